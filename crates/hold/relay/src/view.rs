//! What a daemon sees at its mountpoint once it has mounted.
//!
//! In later lives the held mount is not in the daemon's view: a look at it, before it serves, would
//! wait for the daemon itself. But some look at it as soon as they have mounted, and take what they
//! find for the answer of their own: go-fuse opens a file of a name that nobody else has, and gives
//! up if it is not there. So then there is a folder with that file, which only the daemon sees.

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The file that go-fuse looks for (its `fuse/poll.go`).
const LOOKED_FOR: &str = ".go-fuse-epoll-hack";

/// The daemon has mounted at that place, with these options. What cannot be shown it does not see.
pub(crate) fn show(place: &Path, options: &[u8]) {
    let is_folder = options.split(|byte| *byte == b',').any(|word| word == b"rootmode=40000");
    let known = std::fs::read("/proc/thread-self/mountinfo");
    if !is_folder || known.is_ok_and(|known| is_mounted(&known, place)) {
        return;
    }
    let kept = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Past the shim, which takes nothing but FUSE for the daemon's. It goes with the daemon's view.
    if mount(c"belay", place, c"tmpfs", kept, c"mode=555,size=4k").is_ok() {
        let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::CLOEXEC;
        let _ = rustix::fs::open(place.join(LOOKED_FOR), flags, Mode::from_raw_mode(0o444));
    }
}

/// Whether the table has a mount at that place. Nobody is asked who serves it.
fn is_mounted(table: &[u8], place: &Path) -> bool {
    let place = escaped(place.as_os_str().as_bytes());
    let point = |line: &[u8]| line.split(|byte| *byte == b' ').nth(4) == Some(&place[..]);
    table.split(|byte| *byte == b'\n').any(point)
}

/// A path as the table has it.
pub(crate) fn escaped(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => text.extend(format!("\\{byte:03o}").bytes()),
            byte => text.push(*byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_in_the_table() {
        let table = b"25 1 0:23 / / rw - ext4 x rw\n26 25 0:24 / /a\\040b rw - fuse x rw\n";
        for (place, mounted) in [("/", true), ("/a b", true), ("/a", false), ("/b", false)] {
            assert_eq!(is_mounted(table, Path::new(place)), mounted, "{place}");
        }
        assert_eq!(escaped(b"/a\\b\n"), b"/a\\134b\\012");
    }
}
