//! The stand-in: what a successor of an ordinary user finds at its mountpoint until it has mounted.
//!
//! The held mount is there all the time, and such a user cannot have a mount table without it. A
//! look at it would wait for the very daemon that looks. So paths at and below the mountpoint mean
//! what the mount covers, or an empty folder where that is not known. And the mount table that the
//! daemon reads is the one without that mount: rclone, for one, does not mount where it says that
//! something is mounted. What the shim does for the daemons that it is loaded into (its `standin`)
//! is done here for the calls of the kernel that take one path (`Named::by`).

use crate::memory::{Caller, fact};
use belay_sys::{below, follow_up_to, sealable_memory_file};
use rustix::fs::{SealFlags, fcntl_add_seals};
use std::ffi::CString;
use std::fs::{File, read_link};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Where a daemon is led instead of its mountpoint.
#[derive(Clone, Debug)]
pub struct Standin {
    /// The mountpoint: absolute and free of links.
    pub mountpoint: PathBuf,
    /// What is looked at in its place: a folder or a file, or a descriptor of the relay's, as
    /// `/proc/self/fd/N`.
    pub instead: PathBuf,
}

/// Which paths lead elsewhere, and where.
#[derive(Debug)]
pub(crate) struct Paths {
    mountpoint: Vec<u8>,
    instead: Vec<u8>,
    /// The mount tables without the mount: as `mounts` has it, and as `mountinfo` has it.
    tables: [File; 2],
}

/// How a call of the kernel's names a path: by which of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The directory that it begins at; the working directory if there is none.
    directory: Option<usize>,
    pub(crate) path: usize,
    /// The argument, and the bit in it, that keep the last part from being followed. `None`: it is
    /// followed.
    unless: Option<(usize, i32)>,
    /// It is never followed.
    stays: bool,
    /// It makes or removes the name: of the mountpoint that is for the folder that it is in to say.
    below: bool,
}

impl Named {
    const fn at(directory: Option<usize>, path: usize) -> Self {
        Self { directory, path, unless: None, stays: false, below: false }
    }

    const fn unless(self, argument: usize, bit: i32) -> Self {
        Self { unless: Some((argument, bit)), ..self }
    }

    const fn stays(self) -> Self {
        Self { stays: true, ..self }
    }

    const fn names(self) -> Self {
        Self { stays: true, below: true, ..self }
    }

    /// The path that a call goes to. `None` for calls that take none, and for those that take two.
    pub(crate) fn by(call: i64) -> Option<Self> {
        const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;
        const DONT_FOLLOW: i32 = libc::IN_DONT_FOLLOW as i32;
        #[cfg(target_arch = "x86_64")]
        match call {
            libc::SYS_open => return Some(Self::at(None, 0).unless(1, libc::O_NOFOLLOW)),
            libc::SYS_stat | libc::SYS_access => return Some(Self::at(None, 0)),
            libc::SYS_lstat | libc::SYS_readlink | libc::SYS_lchown => {
                return Some(Self::at(None, 0).stays());
            }
            libc::SYS_chmod | libc::SYS_chown | libc::SYS_utime | libc::SYS_utimes => {
                return Some(Self::at(None, 0));
            }
            libc::SYS_futimesat => return Some(Self::at(Some(0), 1)),
            libc::SYS_mkdir | libc::SYS_mknod | libc::SYS_unlink | libc::SYS_rmdir => {
                return Some(Self::at(None, 0).names());
            }
            libc::SYS_creat => return Some(Self::at(None, 0)),
            _ => {}
        }
        Some(match call {
            libc::SYS_openat => Self::at(Some(0), 1).unless(2, libc::O_NOFOLLOW),
            libc::SYS_openat2 | libc::SYS_faccessat | libc::SYS_fchmodat => Self::at(Some(0), 1),
            libc::SYS_newfstatat | libc::SYS_faccessat2 | libc::SYS_utimensat => {
                Self::at(Some(0), 1).unless(3, NOFOLLOW)
            }
            libc::SYS_fchownat | libc::SYS_execveat => Self::at(Some(0), 1).unless(4, NOFOLLOW),
            libc::SYS_fchmodat2 => Self::at(Some(0), 1).unless(3, NOFOLLOW),
            libc::SYS_mkdirat | libc::SYS_mknodat | libc::SYS_unlinkat => {
                Self::at(Some(0), 1).names()
            }
            libc::SYS_statx | libc::SYS_open_tree => Self::at(Some(0), 1).unless(2, NOFOLLOW),
            libc::SYS_readlinkat | libc::SYS_name_to_handle_at => Self::at(Some(0), 1).stays(),
            libc::SYS_chdir
            | libc::SYS_chroot
            | libc::SYS_execve
            | libc::SYS_statfs
            | libc::SYS_truncate
            | libc::SYS_getxattr
            | libc::SYS_setxattr
            | libc::SYS_removexattr
            | libc::SYS_listxattr => Self::at(None, 0),
            libc::SYS_lgetxattr
            | libc::SYS_lsetxattr
            | libc::SYS_lremovexattr
            | libc::SYS_llistxattr => Self::at(None, 0).stays(),
            libc::SYS_inotify_add_watch => Self::at(None, 1).unless(2, DONT_FOLLOW),
            _ => return None,
        })
    }
}

impl Paths {
    /// # Errors
    /// If there is no memory for a mount table.
    pub(crate) fn new(standin: &Standin) -> io::Result<Self> {
        let own = std::process::id();
        // It is the daemon that takes these paths, and it is another process.
        let instead = match standin.instead.strip_prefix("/proc/self") {
            // Calls that follow no link shall look at what that link leads to.
            Ok(rest) => PathBuf::from(format!("/proc/{own}")).join(rest).join("."),
            Err(_) => standin.instead.clone(),
        };
        let instead = instead.into_os_string().into_vec();
        let mountpoint = standin.mountpoint.as_os_str().as_bytes().to_vec();
        let table = |name: &str, column: usize| -> io::Result<File> {
            let table = std::fs::read(format!("/proc/self/{name}"))?;
            let mut file = File::from(sealable_memory_file("belay-mounts")?);
            file.write_all(&without(&table, column, &mountpoint))?;
            let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
            fcntl_add_seals(&file, all)?;
            Ok(file)
        };
        let tables = [table("mounts", 1)?, table("mountinfo", 4)?];
        Ok(Self { mountpoint, instead, tables })
    }

    /// What the thread is to look at instead, in a call with these arguments; `None` if that is
    /// what it says.
    pub(crate) fn instead(
        &self,
        thread: u32,
        named: Named,
        arguments: &[u64; 6],
    ) -> Option<CString> {
        let argument = |which: usize| arguments.get(which).copied().unwrap_or(0);
        let text = Caller::new(thread)?.text(argument(named.path))?;
        let follow = !named.stays
            && named.unless.is_none_or(|(which, bit)| argument(which) as i32 & bit == 0);
        let directory = match named.directory.map(|which| argument(which) as i32) {
            None | Some(libc::AT_FDCWD) => format!("/proc/{thread}/cwd"),
            Some(number) => format!("/proc/{thread}/fd/{number}"),
        };
        let start = || Some(read_link(directory).ok()?.into_os_string().into_vec());
        let text = told_apart(text.as_bytes(), thread);
        let path = follow_up_to(&self.mountpoint, &text, follow, start)?;
        if let Some(below) = below(&self.mountpoint, &path) {
            if named.below && below.is_empty() {
                return None;
            }
            return CString::new([&*self.instead, below].concat()).ok();
        }
        // Who looks at the link itself is to see that.
        let table = self.tables.get(table_in(&path).filter(|_| follow)?)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), table.as_raw_fd());
        CString::new(path).ok()
    }
}

/// A path with the thread's own part of /proc where it says `self`: here that is another process.
pub(crate) fn told_apart(path: &[u8], thread: u32) -> Vec<u8> {
    for own in [&b"/proc/self"[..], b"/proc/thread-self"] {
        if let Some(rest) = path.strip_prefix(own)
            && (rest.is_empty() || rest.starts_with(b"/"))
        {
            let process = fact(&format!("{thread}/status"), "Tgid:");
            let process = process.unwrap_or_else(|| thread.to_string());
            return [b"/proc/", process.as_bytes(), rest].concat();
        }
    }
    path.to_vec()
}

/// Which mount table a path leads to: `mounts` or `mountinfo` of a process or thread.
fn table_in(path: &[u8]) -> Option<usize> {
    let mut parts = path.strip_prefix(b"/proc/")?.split(|byte| *byte == b'/');
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if !is_number(parts.next()?) {
        return None;
    }
    let parts: Vec<&[u8]> = parts.collect();
    let name = match parts.as_slice() {
        [name] => name,
        [b"task", thread, name] if is_number(thread) => name,
        _ => return None,
    };
    [&b"mounts"[..], b"mountinfo"].iter().position(|table| table == name)
}

/// The table without the last mount at that place, which is the one that is seen there.
fn without(table: &[u8], column: usize, mountpoint: &[u8]) -> Vec<u8> {
    let point = crate::view::escaped(mountpoint);
    let is_it = |line: &&[u8]| line.split(|byte| *byte == b' ').nth(column) == Some(&point[..]);
    let lines: Vec<&[u8]> = table.split_inclusive(|byte| *byte == b'\n').collect();
    let last = lines.iter().rposition(is_it);
    let kept = lines.iter().enumerate().filter(|(number, _)| Some(*number) != last);
    kept.flat_map(|(_, line)| line.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn tables_are_told_from_other_files() {
        for (path, table) in [
            ("/proc/7/mounts", Some(0)),
            ("/proc/7/mountinfo", Some(1)),
            ("/proc/7/task/8/mountinfo", Some(1)),
            ("/proc/mounts", None),
            ("/proc/7/mountstats", None),
            ("/proc/7/root/mounts", None),
            ("/home/7/mounts", None),
        ] {
            assert_eq!(table_in(path.as_bytes()), table, "{path}");
        }
    }

    #[test]
    fn the_mount_that_is_seen_is_left_out() {
        let table =
            b"a / ext4 rw 0 0\nb /m\\040t fuse rw 0 0\nc /m\\040t fuse rw 0 0\nd /m fuse rw 0 0\n";
        let left = b"a / ext4 rw 0 0\nb /m\\040t fuse rw 0 0\nd /m fuse rw 0 0\n";
        assert_eq!(without(table, 1, b"/m t"), left);
        assert_eq!(without(table, 1, b"/other"), table);
    }

    #[test]
    fn paths_lead_to_the_stand_in_and_the_table() {
        let dir = tempfile::tempdir().expect("a folder");
        let real = dir.path().canonicalize().expect("its path");
        std::fs::create_dir(real.join("mnt")).expect("mkdir");
        std::os::unix::fs::symlink("mnt", real.join("link")).expect("symlink");
        let standin = Standin { mountpoint: real.join("mnt"), instead: "/proc/self/fd/9".into() };
        let paths = Paths::new(&standin).expect("paths");
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let led = |call: i64, path: &str, flags: i32| {
            let text = CString::new(path).expect("text");
            let named = Named::by(call).expect("a call that takes a path");
            let mut arguments = [flags as u64; 6];
            arguments[named.path] = text.as_ptr() as u64;
            if named.directory.is_some() {
                arguments[0] = libc::AT_FDCWD as u64;
            }
            let led = paths.instead(thread, named, &arguments);
            led.map(|path| path.into_string().expect("text"))
        };
        let own = std::process::id();
        let at = |name: &str| real.join(name).display().to_string();
        let here = Some(format!("/proc/{own}/fd/9/."));
        for path in [at("mnt"), at("mnt/"), at("./mnt/."), at("link")] {
            assert_eq!(led(libc::SYS_newfstatat, &path, 0), here, "{path}");
        }
        assert_eq!(led(libc::SYS_openat, &at("mnt/x"), 0), Some(format!("/proc/{own}/fd/9/./x")));
        assert_eq!(led(libc::SYS_newfstatat, &at("link"), libc::AT_SYMLINK_NOFOLLOW), None);
        assert_eq!(led(libc::SYS_readlinkat, &at("link"), 0), None);
        assert_eq!(led(libc::SYS_newfstatat, &at("mntx"), 0), None);
        assert_eq!(led(libc::SYS_newfstatat, "", 0), None);
        for table in ["/proc/self/mountinfo", "/proc/mounts", "/proc/thread-self/mounts"] {
            let path = led(libc::SYS_openat, table, 0).expect(table);
            let mut text = String::new();
            File::open(path).expect("it is there").read_to_string(&mut text).expect("text");
            assert!(text.contains(" / "), "{text}");
        }
        assert_eq!(led(libc::SYS_mkdirat, &at("mnt"), 0), None);
        let below = led(libc::SYS_mkdirat, &at("mnt/x"), 0);
        assert_eq!(below, Some(format!("/proc/{own}/fd/9/./x")));
        assert_eq!(led(libc::SYS_readlinkat, &at("link/"), 0), here, "that is no link");
        assert_eq!(led(libc::SYS_readlinkat, "/proc/self/mounts", 0), None);
        assert_eq!(Named::by(libc::SYS_renameat2), None);
    }
}
