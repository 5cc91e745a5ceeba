//! The operations of the study, on a small fixed tree.
//!
//! Each changes the tree by one system call, so that between the tree before and the tree after
//! there is no third that an application could have made.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::path::Path;
use std::time::{Duration, Instant};

use belay_faults::Target;
use belay_wire::Opcode;
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, RenameFlags, StatxFlags, Timespec, Timestamps, XattrFlags,
};

use crate::digest::hash;

/// One operation.
#[derive(Debug)]
pub struct Operation {
    /// Its name.
    pub name: &'static str,
    /// The request that is meant: the first with one of these opcodes, ...
    opcodes: &'static [Opcode],
    /// ... and with this in it.
    contains: Option<&'static str>,
    /// Carries it out in a prepared directory; what it returns tells whether it went well.
    pub act: fn(&Path) -> io::Result<String>,
    /// The time that it sets, so that it matters.
    pub sets_time: Option<i64>,
    /// What it needs besides the tree that all start from.
    pub(crate) needs: fn(&Path) -> io::Result<()>,
}

impl Operation {
    /// The request in which the daemon dies.
    #[must_use]
    pub fn target(&self) -> Target {
        let target = Target::any(self.opcodes);
        match self.contains {
            Some(text) => target.containing(text),
            None => target,
        }
    }

    /// Reads a name.
    ///
    /// # Errors
    /// When there is no such operation; the message lists those that there are.
    pub fn parse(name: &str) -> anyhow::Result<&'static Self> {
        let mut all = OPERATIONS.iter().chain(FURTHER);
        all.find(|op| op.name == name).ok_or_else(|| {
            let names: Vec<_> = OPERATIONS.iter().chain(FURTHER).map(|op| op.name).collect();
            anyhow::anyhow!("unknown operation {name:?}: there are {}", names.join(", "))
        })
    }
}

/// Size of the file that most operations are about: some pages and a bit.
const SIZE: usize = 10_000;
/// A time long ago, in whole seconds: sshfs knows no others.
const TIME: i64 = 1_000_000_000;
const MAKE: &[Opcode] = &[Opcode::CREATE, Opcode::MKNOD];
const RENAME: &[Opcode] = &[Opcode::RENAME, Opcode::RENAME2];

macro_rules! operations {
    ($(#[$doc:meta])* $list:ident: $($name:literal: $opcodes:expr, $contains:expr => $act:expr;)*) => {
        $(#[$doc])*
        pub const $list: &[Operation] = &[$(Operation {
            name: $name,
            opcodes: $opcodes,
            contains: $contains,
            act: $act,
            sets_time: if matches!($name.as_bytes(), b"utime") { Some(TIME) } else { None },
            needs: if matches!($name.as_bytes(), b"removexattr") { set_attribute } else { nothing },
        }),*];
    };
}

operations! {
    /// Those of every study, in the order of the tables.
    OPERATIONS:
    "create": MAKE, Some("new") => |dir| make(dir, OpenOptions::new().write(true).create(true));
    "mkdir": &[Opcode::MKDIR], Some("new") => |dir| {
        done(fs::DirBuilder::new().mode(0o750).create(dir.join("new")))
    };
    "symlink": &[Opcode::SYMLINK], Some("new") => |dir| done(symlink("some/where", dir.join("new")));
    "link": &[Opcode::LINK], Some("new") => |dir| {
        done(fs::hard_link(dir.join("file"), dir.join("new")))
    };
    "rename": RENAME, Some("file") => |dir| done(fs::rename(dir.join("file"), dir.join("new")));
    "open": &[Opcode::OPEN], None => |dir| close(File::open(dir.join("file"))?);
    "read": &[Opcode::READ], None => |dir| {
        let file = File::open(dir.join("file"))?;
        let mut buffer = vec![0; SIZE];
        file.read_exact_at(&mut buffer, 0)?;
        close(file).map(|_| hash(&buffer))
    };
    "readdir": &[Opcode::READDIR, Opcode::READDIRPLUS], None => |dir| {
        let entries = fs::read_dir(dir.join("full"))?;
        let mut names = entries.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(format!("{names:?}"))
    };
    "readlink": &[Opcode::READLINK], None => |dir| {
        fs::read_link(dir.join("symlink")).map(|target| format!("{target:?}"))
    };
    "write": &[Opcode::WRITE], None => |dir| {
        let file = OpenOptions::new().write(true).open(dir.join("file"))?;
        file.write_all_at(&[b'w'; 3000], 1000)?;
        close(file)
    };
    "unlink": &[Opcode::UNLINK], Some("other") => |dir| done(fs::remove_file(dir.join("other")));
    "rmdir": &[Opcode::RMDIR], Some("dir") => |dir| done(fs::remove_dir(dir.join("dir")));
    "truncate": &[Opcode::SETATTR], None => |dir| {
        done(nix::unistd::truncate(&dir.join("file"), 1234).map_err(io::Error::from))
    };
    "utime": &[Opcode::SETATTR], None => |dir| {
        let time = Timespec { tv_sec: TIME, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        done(rustix::fs::utimensat(CWD, dir.join("file"), &times, AtFlags::empty()).map_err(Into::into))
    };
    "chmod": &[Opcode::SETATTR], None => |dir| {
        done(fs::set_permissions(dir.join("file"), PermissionsExt::from_mode(0o604)))
    };
    "stat": &[Opcode::GETATTR], None => |dir| {
        // The daemon is to be asked, whatever the kernel still knows.
        let flags = AtFlags::STATX_FORCE_SYNC;
        let stat = rustix::fs::statx(CWD, dir.join("file"), flags, StatxFlags::BASIC_STATS)?;
        Ok(format!("mode {:o}, {} bytes", stat.stx_mode, stat.stx_size))
    };
    "rename-over": RENAME, Some("file") => |dir| {
        done(fs::rename(dir.join("file"), dir.join("other")))
    };
    "rename-exchange": RENAME, Some("file") => |dir| {
        let (one, other) = (dir.join("file"), dir.join("other"));
        done(rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).map_err(Into::into))
    };
    "excl-create": MAKE, Some("new") => |dir| {
        make(dir, OpenOptions::new().read(true).write(true).create_new(true))
    };
    "append": &[Opcode::WRITE], None => |dir| {
        let file = OpenOptions::new().append(true).open(dir.join("file"))?;
        let written = rustix::io::write(&file, &[b'a'; 500])?;
        close(file).map(|_| format!("{written} bytes"))
    };
    "fallocate": &[Opcode::FALLOCATE], None => |dir| {
        let file = OpenOptions::new().write(true).open(dir.join("file"))?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000)?;
        close(file)
    };
    "setxattr": &[Opcode::SETXATTR], Some("user.study") => |dir| {
        let flags = XattrFlags::CREATE;
        done(rustix::fs::setxattr(dir.join("file"), "user.study", b"value", flags).map_err(Into::into))
    };
}

operations! {
    /// What file systems on a disk image are asked for besides.
    FURTHER:
    "lookup": &[Opcode::LOOKUP], Some("three") => |dir| {
        fs::metadata(dir.join("full/three")).map(|meta| format!("{} bytes", meta.len()))
    };
    "mknod": &[Opcode::MKNOD], Some("new") => |dir| {
        done(nix::unistd::mkfifo(&dir.join("new"), nix::sys::stat::Mode::S_IRUSR).map_err(Into::into))
    };
    "move-directory": RENAME, Some("full") => |dir| {
        done(fs::rename(dir.join("full"), dir.join("dir").join("full")))
    };
    "chown": &[Opcode::SETATTR], None => |dir| {
        let meta = fs::metadata(dir.join("file"))?;
        done(std::os::unix::fs::chown(dir.join("file"), Some(meta.uid()), Some(meta.gid())))
    };
    "lengthen": &[Opcode::SETATTR], None => |dir| {
        done(nix::unistd::truncate(&dir.join("file"), 30_000).map_err(io::Error::from))
    };
    "punch-hole": &[Opcode::FALLOCATE], None => |dir| {
        let file = OpenOptions::new().write(true).open(dir.join("file"))?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, 1000, 6000)?;
        close(file)
    };
    "getxattr": &[Opcode::GETXATTR], Some("user.study") => |dir| {
        let len = rustix::fs::getxattr(dir.join("file"), "user.study", &mut [0; 64])?;
        Ok(format!("{len} bytes"))
    };
    "listxattr": &[Opcode::LISTXATTR], None => |dir| {
        let len = rustix::fs::listxattr(dir.join("file"), &mut [0; 64])?;
        Ok(format!("{len} bytes"))
    };
    "removexattr": &[Opcode::REMOVEXATTR], Some("user.study") => |dir| {
        done(rustix::fs::removexattr(dir.join("file"), "user.study").map_err(Into::into))
    };
    "opendir": &[Opcode::OPENDIR], None => |dir| close(File::open(dir.join("full"))?);
    "statfs": &[Opcode::STATFS], None => |dir| {
        rustix::fs::statvfs(dir.join("file")).map(|all| format!("{} blocks", all.f_blocks)).map_err(Into::into)
    };
    "flush": &[Opcode::FLUSH], None => write_in_the_middle;
    "release": &[Opcode::RELEASE], None => write_in_the_middle;
    "fsync": &[Opcode::FSYNC], None => |dir| {
        let file = OpenOptions::new().write(true).open(dir.join("file"))?;
        file.write_all_at(&[b's'; 3000], 1000)?;
        file.sync_all()?;
        close(file)
    };
}

fn nothing(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Gives `file` an extended attribute, where there are any.
fn set_attribute(dir: &Path) -> io::Result<()> {
    let flags = XattrFlags::empty();
    let _ = rustix::fs::setxattr(dir.join("file"), "user.study", b"value", flags);
    Ok(())
}

fn write_in_the_middle(dir: &Path) -> io::Result<String> {
    let file = OpenOptions::new().write(true).open(dir.join("file"))?;
    file.write_all_at(&[b'm'; 3000], 1000)?;
    close(file)
}

fn done(result: io::Result<()>) -> io::Result<String> {
    result.map(|()| "done".to_owned())
}

/// Closes it and hears what closing says.
fn close(file: File) -> io::Result<String> {
    done(nix::unistd::close(OwnedFd::from(file)).map_err(Into::into))
}

/// Makes `new` and looks at it through the handle.
fn make(dir: &Path, options: &mut OpenOptions) -> io::Result<String> {
    let file = options.mode(0o640).open(dir.join("new"))?;
    let meta = file.metadata()?;
    close(file).map(|_| format!("mode {:o}, {} bytes", meta.mode(), meta.len()))
}

/// Whom a thread acts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Whoever this process is.
    Own,
    /// Somebody else, so that a daemon has to give to its caller what it makes. Takes root.
    Other(u32),
}

impl User {
    /// Somebody who owns nothing.
    pub const ORDINARY: Self = Self::Other(1234);

    /// From now on, this thread's accesses to files are this user's. Threads have identities of
    /// their own for that.
    pub fn assume(self) {
        if let Self::Other(id) = self {
            nix::unistd::setfsgid(id.into());
            nix::unistd::setfsuid(id.into());
        }
    }
}

/// Makes the tree that all operations start from, as a user, who this thread then is.
///
/// # Errors
/// Those of the calls that it takes.
pub fn prepare(dir: &Path, user: User) -> io::Result<()> {
    fs::create_dir(dir)?;
    if let User::Other(id) = user {
        std::os::unix::fs::chown(dir, Some(id), Some(id))?;
        user.assume();
    }
    let content: Vec<u8> = (0..SIZE).map(|n| b'a' + u8::try_from(n % 23).unwrap_or(0)).collect();
    fs::write(dir.join("file"), content)?;
    fs::write(dir.join("other"), "another file")?;
    unless_missing(fs::set_permissions(dir.join("other"), PermissionsExt::from_mode(0o600)))?;
    unless_missing(symlink("file", dir.join("symlink")))?;
    fs::create_dir(dir.join("dir"))?;
    fs::create_dir(dir.join("full"))?;
    for name in ["one", "two", "three"] {
        fs::write(dir.join("full").join(name), name)?;
    }
    // Out of the kernel's cache, so that a read is one for the daemon. Not every daemon can sync.
    let file = File::open(dir.join("file"))?;
    let _ = file.sync_all();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    close(file).map(drop)
}

/// Not every file system has modes and symbolic links.
fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ENOSYS as i32) => Ok(()),
        result => result,
    }
}

/// Changes that nobody has asked to be made safe, in a directory of the tree: a daemon that keeps
/// some of them in its memory has something to lose.
///
/// # Errors
/// Those of the calls that it takes.
pub fn leave_unsaved(dir: &Path, user: User) -> io::Result<()> {
    user.assume();
    let dir = dir.join("unsaved");
    fs::create_dir(&dir)?;
    (0..UNSAVED).try_for_each(|n| fs::create_dir(dir.join(format!("d{n:02}"))))
}

/// Directories of [`leave_unsaved`]: more than fuse2fs has cached blocks, and few enough for one
/// cluster of a FAT.
const UNSAVED: usize = 30;

/// How long a file may take to be released after it was closed.
const RELEASE: Duration = Duration::from_secs(2);

/// The round that tells whether a file system can be used.
///
/// # Errors
/// Why it cannot.
pub fn use_it(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    let (one, other) = (dir.join("one"), dir.join("other"));
    fs::write(&one, "usable")?;
    fs::rename(&one, &other)?;
    if fs::read(&other)? != b"usable" {
        return Err(io::Error::other("what was written is not read back"));
    }
    fs::remove_file(&other)?;
    // A daemon hears of a close after the application has gone on. libfuse hides a file that is
    // removed before that, in the same directory.
    let until = Instant::now() + RELEASE;
    loop {
        match fs::remove_dir(dir) {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::snapshot::{Look, Snapshot};

    #[test]
    fn operations_do_something_and_twice_the_same() {
        let names: HashSet<_> = OPERATIONS.iter().map(|op| op.name).collect();
        assert_eq!(names.len(), 22);
        assert!(FURTHER.iter().all(|op| !names.contains(op.name)));
        let temp = tempfile::tempdir().unwrap();
        let quiet = [
            "open",
            "read",
            "readdir",
            "readlink",
            "stat",
            "lookup",
            "chown",
            "getxattr",
            "listxattr",
            "opendir",
            "statfs",
        ];
        for op in OPERATIONS.iter().chain(FURTHER) {
            let look = Look { links: true, time: op.sets_time, free: false };
            let run = |name: String| {
                let dir = temp.path().join(name);
                prepare(&dir, User::Own).unwrap();
                (op.needs)(&dir).unwrap();
                leave_unsaved(&dir, User::Own).unwrap();
                let before = Snapshot::read(&dir, look).unwrap();
                let result = (op.act)(&dir).map_err(|e| e.raw_os_error());
                (result, before, Snapshot::read(&dir, look).unwrap())
            };
            let (one, other) = (run(format!("{}.1", op.name)), run(format!("{}.2", op.name)));
            assert_eq!(one.0, other.0, "{}", op.name);
            assert_eq!(one.2.difference(&other.2), "", "{}", op.name);
            if one.0.is_ok() {
                assert_eq!(one.1 == one.2, quiet.contains(&op.name), "{}", op.name);
            }
        }
        use_it(&temp.path().join("use")).unwrap();
        assert!(!temp.path().join("use").exists());
        assert!(Operation::parse("sync").unwrap_err().to_string().contains("excl-create"));
    }
}
