//! The mount table: what is mounted where, by the kernel's own words. Nobody else is asked.

use crate::procfs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mount {
    /// The kernel's number of the mount, which may come again once it is gone.
    pub id: u32,
    /// The number of the mount that it is on.
    pub parent: u32,
    /// `major:minor` of the file system.
    pub device: String,
    /// What of the file system is mounted: `/`, or the directory of a bind mount.
    pub root: Vec<u8>,
    /// Where it is mounted.
    pub mountpoint: Vec<u8>,
    /// Its type, such as `fuse.sshfs`.
    pub kind: String,
}

impl Mount {
    /// Whether it is a FUSE file system.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse"
            || self.kind == "fuseblk"
            || self.kind.starts_with("fuse.")
            || self.kind.starts_with("fuseblk.")
    }

    /// Whether somebody else has what is on it: a program or another machine, which may not answer.
    pub fn is_served(&self) -> bool {
        const KINDS: [&str; 14] = [
            "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "afs", "coda", "lustre", "ocfs2",
            "gfs2", "virtiofs", "autofs",
        ];
        self.is_fuse() || KINDS.contains(&self.kind.as_str())
    }

    /// Whether `other`, of another table or another time, is the same thing at the same place.
    pub fn is_same(&self, other: &Self) -> bool {
        self.device == other.device
            && self.root == other.root
            && self.mountpoint == other.mountpoint
    }
}

/// What is mounted on all of `mount`.
pub(super) fn upper<'t>(table: &'t [Mount], mount: &Mount) -> Option<&'t Mount> {
    table.iter().find(|other| {
        other.parent == mount.id && other.id != mount.id && other.mountpoint == mount.mountpoint
    })
}

/// For how long a table that was read is taken for the table of now, if the kernel has told of no
/// mount and no unmount since. It does not tell when a directory that a mountpoint is in gets
/// another name: that is seen so much later.
const FRESH: Duration = Duration::from_millis(20);

/// A table that was read. The replacement of a daemon looks at it a dozen times within a few
/// milliseconds, and each reading costs as much as there are mounts.
struct Snapshot {
    /// The process that it was read by: its child may have another table.
    process: u32,
    at: Instant,
    /// Becomes ready when the table changes.
    file: File,
    table: Rc<[Mount]>,
}

thread_local! {
    static LAST: RefCell<Option<Snapshot>> = const { RefCell::new(None) };
}

impl Snapshot {
    fn read() -> io::Result<Self> {
        let at = Instant::now();
        // What is mounted after this makes it ready.
        let file = File::open("/proc/self/mountinfo")?;
        let table = parse_table(&procfs::read_open(&file)?).into();
        Ok(Self { process: process::id(), at, file, table })
    }

    fn is_fresh(&self) -> bool {
        let is_unchanged = || {
            let mut file = [PollFd::new(&self.file, PollFlags::PRI)];
            poll(&mut file, Some(&Timespec::default())) == Ok(0)
        };
        self.process == process::id() && self.at.elapsed() < FRESH && is_unchanged()
    }
}

/// Has the table be read anew when it is asked for next: it was found to be old.
pub fn forget() {
    LAST.take();
}

/// The mount table of this process.
///
/// # Errors
/// Those of reading it. That nothing is found in it says something only if it was read.
pub fn table() -> io::Result<Rc<[Mount]>> {
    LAST.with_borrow_mut(|last| {
        if let Some(fresh) = last.as_ref().filter(|last| last.is_fresh()) {
            return Ok(Rc::clone(&fresh.table));
        }
        *last = None;
        let read = Snapshot::read()?;
        Ok(Rc::clone(&last.insert(read).table))
    })
}

/// Parses a mountinfo file; lines that are not understood are left out.
pub fn parse_table(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
    Some(Mount {
        id: number(words.first()?)?,
        parent: number(words.get(1)?)?,
        device: text(words.get(2)?),
        root: unescape(words.get(3)?),
        mountpoint: unescape(words.get(4)?),
        kind: text(words.get(dash + 1)?),
    })
}

// The kernel writes blank, tab, newline and backslash as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let octal = tail.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match (first, octal) {
            (b'\\', Some(digits)) => {
                let value = digits.iter().fold(0_u32, |sum, d| sum * 8 + u32::from(d - b'0'));
                out.push(value as u8);
                rest = tail.get(3..).unwrap_or_default();
            }
            _ => out.push(*first),
        }
    }
    out
}

/// What is mounted at exactly `path`, uppermost; nothing if that cannot be told, so this is for
/// messages and for looks that come again.
pub fn at(path: &Path) -> Option<Mount> {
    let table = table().ok()?;
    let at = |mount: &&Mount| mount.mountpoint == path.as_os_str().as_bytes();
    table.iter().rev().find(at).cloned()
}

/// The FUSE file systems in the mount table, by `major:minor`.
///
/// # Errors
/// Those of [`table`].
pub fn fuse_devices() -> io::Result<Vec<String>> {
    let table = table()?;
    let fuse = table.iter().filter(|mount| mount.is_fuse());
    let devices: BTreeSet<&String> = fuse.map(|mount| &mount.device).collect();
    Ok(devices.into_iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_tables_are_parsed() {
        let text = b"42 27 0:39 / /tmp/a\\040b rw,relatime - fuse.x x rw,user_id=0\n\
            27 1 254:0 / / rw shared:1 master:2 - ext4 /dev/vda rw\n\
            nonsense\n\n43 27 0:40 / /z\\\\ rw -\n";
        let table = parse_table(text);
        assert_eq!(table.len(), 2);
        assert_eq!(table[0].mountpoint, b"/tmp/a b");
        assert_eq!(table[0].device, "0:39");
        assert_eq!((table[0].id, table[0].parent, table[0].root.as_slice()), (42, 27, &b"/"[..]));
        assert!(table[0].is_fuse());
        assert!(!table[1].is_fuse());
        assert_eq!(unescape(b"a\\1"), b"a\\1");
        assert_eq!(unescape(b"\\777"), [0xff]);
    }

    /// Runs `test` again, alone, where mounting harms nobody; says whether that is now.
    fn is_where_mounting_harms_nobody(test: &str) -> bool {
        const WORD: &str = "BELAY_TEST_MOUNTS";
        if std::env::var_os(WORD).is_some() {
            return true;
        }
        let here = std::env::current_exe().expect("the tests");
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).arg(here);
        let module = module_path!().split_once("::").expect("a module").1;
        let status =
            command.args(["--exact", &format!("{module}::{test}")]).env(WORD, "1").status();
        assert!(status.expect("unshare").success());
        false
    }

    #[test]
    fn what_is_mounted_is_seen_at_once() {
        if !is_where_mounting_harms_nobody("what_is_mounted_is_seen_at_once") {
            return;
        }
        let dir = tempfile::tempdir().expect("tempdir");
        let place = dir.path().canonicalize().expect("canonical");
        for _ in 0..100 {
            assert_eq!(at(&place), None);
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("none", &place, "tmpfs", flags, None).expect("mount");
            assert_eq!(at(&place).expect("mounted").kind, "tmpfs");
            assert_eq!(at(&place).expect("mounted").kind, "tmpfs");
            rustix::mount::unmount(&place, rustix::mount::UnmountFlags::empty()).expect("unmount");
        }
    }

    #[test]
    fn a_new_name_of_a_directory_is_seen_soon() {
        if !is_where_mounting_harms_nobody("a_new_name_of_a_directory_is_seen_soon") {
            return;
        }
        let dir = tempfile::tempdir().expect("tempdir");
        let above = dir.path().canonicalize().expect("canonical");
        std::fs::create_dir_all(above.join("old/m")).expect("a directory");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", above.join("old/m"), "tmpfs", flags, None).expect("mount");
        assert!(at(&above.join("old/m")).is_some());
        std::fs::rename(above.join("old"), above.join("new")).expect("rename");
        let begun = Instant::now();
        while at(&above.join("new/m")).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(10), "it is never seen");
            std::thread::yield_now();
        }
        assert!(at(&above.join("old/m")).is_none());
        let flags = rustix::mount::UnmountFlags::empty();
        rustix::mount::unmount(above.join("new/m"), flags).expect("unmount");
    }
}
