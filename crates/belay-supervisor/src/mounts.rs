//! The mount table, and what can be done to the device without serving it.

use crate::fusermount;
use crate::text::OsText;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a mount must be in use to be taken as such.
const IN_USE: Duration = Duration::from_millis(500);

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

    /// Whether `other`, of another table or another time, is the same thing at the same place.
    pub fn is_same(&self, other: &Self) -> bool {
        self.device == other.device
            && self.root == other.root
            && self.mountpoint == other.mountpoint
    }
}

/// The mount that belay holds: what must agree before anything is done to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFact {
    /// Where it is mounted.
    pub mountpoint: OsText,
    /// `major:minor` of the file system.
    pub device: String,
}

impl MountFact {
    /// Whether `mount` is of the held file system.
    pub fn is_of(&self, mount: &Mount) -> bool {
        mount.is_fuse() && mount.device == self.device
    }
}

/// The mount table of this process; empty if it cannot be read.
pub fn table() -> Vec<Mount> {
    parse_table(&fs::read("/proc/self/mountinfo").unwrap_or_default())
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

/// What is mounted at exactly `path`, uppermost.
pub fn at(path: &Path) -> Option<Mount> {
    table().into_iter().rev().find(|mount| mount.mountpoint == path.as_os_str().as_bytes())
}

/// Finds the mount of the connection that `device` serves. `told` is where the daemon said that it
/// mounted: only a hint, used on kernels that do not name the connection of a descriptor.
pub fn find(device: BorrowedFd<'_>, told: &[u8]) -> Option<MountFact> {
    let table = table();
    let fact = |mount: &Mount| MountFact {
        mountpoint: OsText::from_bytes(&mount.mountpoint),
        device: mount.device.clone(),
    };
    if let Some(number) = connection(device) {
        let of_connection = |mount: &&Mount| mount.device == number && mount.is_fuse();
        // The same file system may be bound elsewhere: what the daemon said decides then.
        let all = || table.iter().filter(of_connection);
        return all().find(|m| m.mountpoint == told).or_else(|| all().next()).map(fact);
    }
    table.iter().rev().find(|m| m.is_fuse() && m.mountpoint == told).map(fact)
}

/// `major:minor` of the connection of a FUSE device description; `None` before the mount and on
/// kernels that do not tell.
pub fn connection(device: BorrowedFd<'_>) -> Option<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", device.as_raw_fd())).ok()?;
    let number = info.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    let number = number.trim().parse::<u32>().ok()?;
    // The kernel's own form of a device number: 12 bits and 20 bits.
    Some(format!("{}:{}", number >> 20, number & 0xf_ffff))
}

/// Whether the connection of `device` is gone, or was never there.
pub fn is_disconnected(device: BorrowedFd<'_>) -> bool {
    look(device).contains(PollFlags::ERR)
}

/// Whether the kernel holds requests for `device` that nobody has read.
pub fn has_unread(device: BorrowedFd<'_>) -> bool {
    let events = look(device);
    events.contains(PollFlags::IN) && !events.contains(PollFlags::ERR)
}

// One look: to wait for the device would wake the supervisor at every request.
fn look(device: BorrowedFd<'_>) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(device, PollFlags::IN)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut fds, Some(&none)) {
            Err(Errno::INTR) => {}
            Ok(_) => return fds[0].revents(),
            Err(_) => return PollFlags::empty(),
        }
    }
}

/// Asks the kernel to hand out again all requests that were read and not answered.
///
/// # Errors
/// `EINVAL` on a kernel before 6.9, `EPERM` before the mount, `ENODEV` after its end.
pub fn resend(device: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut message = [0_u8; 16];
    message[..4].copy_from_slice(&16_u32.to_ne_bytes());
    message[4..8].copy_from_slice(&7_i32.to_ne_bytes()); // FUSE_NOTIFY_RESEND
    rustix::io::write(device, &message).map(drop)
}

/// Unmounts, by the means that this user has.
fn take_off(path: &Path, flags: UnmountFlags) -> bool {
    match unmount(path, flags) {
        Err(Errno::PERM) => fusermount::unmount(path, flags.contains(UnmountFlags::DETACH)),
        result => result.is_ok(),
    }
}

/// Takes the mount out of the tree if it is still the one that belay holds; says whether it was.
pub fn detach(fact: &MountFact) -> bool {
    let path = fact.mountpoint.as_path();
    // The mount table is checked first: what the daemon says must never unmount anything else.
    match at(path) {
        Some(mount) if fact.is_of(&mount) => take_off(path, UnmountFlags::DETACH),
        _ => false,
    }
}

/// Unmounts, or asks `daemon` to end if the mount is in use. In a thread of its own: unmounting
/// waits for the daemon (dirty pages are written back), whose end the caller must not miss.
pub fn release(fact: MountFact, daemon: crate::process::Watched) {
    std::thread::spawn(move || {
        let path = fact.mountpoint.as_path();
        let ours = || at(path).is_some_and(|mount| fact.is_of(&mount));
        let begin = Instant::now();
        let mut unmounted = false;
        while ours() {
            unmounted = take_off(path, UnmountFlags::empty());
            if unmounted || begin.elapsed() > IN_USE {
                break;
            }
            // For the instant between fork and exec a child has what its parent had open.
            std::thread::sleep(IN_USE / 25);
        }
        if !unmounted && let Err(error) = daemon.signal(signal_hook::consts::SIGTERM) {
            tracing::warn!("cannot signal process {}: {error}", daemon.pid);
        }
    });
}

/// Aborts the connection through the FUSE control file system, so that every caller gets an error
/// instead of waiting. Says whether that worked; closing the device everywhere does the same.
///
/// A connection's number is another's as soon as its file system is gone. So `is_there` is asked whether it is still there
/// once its control file is open: that leads to nothing any more when the connection goes.
pub fn abort(fact: &MountFact, is_there: impl Fn() -> bool) -> bool {
    let Some((major, minor)) = fact.device.split_once(':') else {
        return false;
    };
    let (Ok(major), Ok(minor)) = (major.parse::<u64>(), minor.parse::<u64>()) else {
        return false;
    };
    let number = (major << 20) | minor;
    let control =
        fs::File::options().write(true).open(format!("/sys/fs/fuse/connections/{number}/abort"));
    control.is_ok_and(|mut control| is_there() && control.write_all(b"1").is_ok())
}

/// `path` made absolute and free of links without touching what is mounted at it, which may hang.
pub fn resolve_untouched(path: &Path) -> std::path::PathBuf {
    let Ok(absolute) = std::path::absolute(path) else {
        return path.to_owned();
    };
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => match parent.canonicalize() {
            Ok(parent) => parent.join(name),
            Err(_) => absolute,
        },
        _ => absolute,
    }
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

    #[test]
    fn only_the_held_mount_is_detached() {
        let fact = MountFact { mountpoint: OsText("/".into()), device: "0:1".into() };
        assert!(!detach(&fact));
        assert!(at(Path::new("/")).is_some());
    }

    #[test]
    fn paths_are_resolved_without_their_last_part() {
        let dir = tempfile::tempdir().expect("tempdir");
        let real = dir.path().canonicalize().expect("canonical");
        std::os::unix::fs::symlink(&real, real.join("link")).expect("link");
        assert_eq!(resolve_untouched(&real.join("link/x")), real.join("x"));
        assert_eq!(resolve_untouched(&real.join("no/x")), real.join("no/x"));
    }
}
