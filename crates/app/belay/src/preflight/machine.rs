//! The machine: kernel, device, rights.

use belay_supervisor::{Error, Result};
use rustix::fs::{FileType, Mode, OFlags, Stat, major, minor, open, stat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// First kernel that can hand out requests again.
pub const RESEND_SINCE: (u32, u32) = (6, 9);

/// The FUSE device: a character device with these numbers (FUSE_MINOR in the kernel's
/// include/linux/miscdevice.h).
const DEVICE: (u32, u32) = (10, 229);

/// The running kernel's version, `(0, 0)` if it cannot be read.
pub fn kernel() -> (u32, u32) {
    let uname = rustix::system::uname();
    parse_kernel(&uname.release().to_string_lossy())
}

fn parse_kernel(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Files that keeper and supervisor have open of their own, with some to spare for those who ask
/// them.
const DESCRIPTORS: u64 = 64;
/// Those of each process beside the daemon: its lock, its pulse, itself, and what the daemon shares
/// with it.
const BESIDE: u64 = 16;
/// What belay's first thread may take of its stack, with much to spare.
const STACK: u64 = 512 << 10;

/// Refuses a limit of open files that belay comes to by itself: another start would come to it as
/// well. `beside`: how many processes the daemon needs beside it.
///
/// # Errors
/// Which limit, and what helps.
pub fn check_descriptors(beside: usize) -> Result<()> {
    let needed = DESCRIPTORS + BESIDE * beside as u64;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => Err(Error::refused(
            "the limit of open files",
            format!(
                "it is {limit}, and belay needs {needed} at the least, plus what the daemon needs"
            ),
            "raise it: ulimit -n 20000",
        )),
        _ => Ok(()),
    }
}

/// Refuses a stack that belay would be ended for using.
///
/// # Errors
/// The limit, and what helps.
pub fn check_stack() -> Result<()> {
    match getrlimit(Resource::Stack).current {
        Some(limit) if limit < STACK => Err(Error::refused(
            "the limit of the stack",
            format!("it is {} KiB, and belay needs {} KiB at the least", limit >> 10, STACK >> 10),
            "raise it: ulimit -s 8192",
        )),
        _ => Ok(()),
    }
}

/// Whether this process may mount by itself.
pub use belay_supervisor::fusermount::may_mount;

/// What a belay that may not end all of its daemons cannot do.
pub const NO_KILL: &str = "this process has no CAP_KILL: a daemon that changes its user cannot be ended when it hangs, nor restarted";
/// What helps then.
pub use belay_supervisor::degraded::KILL_REMEDY as NO_KILL_REMEDY;

/// Whether its daemon may become another user's, and this process may not end that one.
pub fn may_lose_daemon() -> bool {
    use rustix::thread::CapabilitySet;
    rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective.contains(CapabilitySet::SETUID)
            && !sets.effective.contains(CapabilitySet::KILL)
    })
}

/// Refuses to start without the right to mount, by itself or through fusermount, and the device.
/// What lacks only for some daemons is said.
///
/// # Errors
/// Which is missing, and what to do.
pub fn check() -> Result<()> {
    if !may_mount() {
        super::helper::check()?;
    }
    check_device(Path::new("/dev/fuse"))?;
    if may_lose_daemon() {
        // No refusal: most daemons keep their user, and whether this one does nobody knows before
        // it has.
        tracing::warn!("{NO_KILL}; {NO_KILL_REMEDY}");
    }
    Ok(())
}

/// Refuses a device that cannot be opened.
///
/// # Errors
/// Why, and what to do.
pub fn check_device(path: &Path) -> Result<()> {
    let is_other = |found: Stat| {
        FileType::from_raw_mode(found.st_mode) != FileType::CharacterDevice
            || (major(found.st_rdev), minor(found.st_rdev)) != DEVICE
    };
    if stat(path).is_ok_and(is_other) {
        let (major, minor) = DEVICE;
        return Err(Error::refused(
            path.display().to_string(),
            "something else is in the place of the FUSE device",
            format!(
                "remove it, and make the device: mknod -m 666 {} c {major} {minor}",
                path.display()
            ),
        ));
    }
    let remedy = match open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => return Ok(()),
        Err(error) => (
            error,
            match error {
                Errno::NOENT | Errno::NODEV | Errno::NXIO => {
                    "load the module (modprobe fuse); in a container, pass the device \
                 (--device /dev/fuse)"
                }
                Errno::ACCESS | Errno::PERM => {
                    "run belay as root, or have the device opened to you (chmod 666 /dev/fuse); in a \
                 container, allow the device"
                }
                _ => "run `belay doctor`",
            },
        ),
    };
    Err(Error::system("open", path.display().to_string(), remedy.0, remedy.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_are_read() {
        assert_eq!(parse_kernel("6.18.44-fc-v657"), (6, 18));
        assert_eq!(parse_kernel("6.9"), (6, 9));
        assert_eq!(parse_kernel("odd"), (0, 0));
        assert!(kernel() >= (3, 0));
    }

    #[test]
    fn a_missing_device_is_explained() {
        for other in ["/dev/null", "/etc/passwd"] {
            let text = check_device(Path::new(other)).expect_err("another device").to_string();
            assert!(text.contains("mknod") && text.contains("c 10 229"), "{text}");
        }
        let text = check_device(Path::new("/dev/no-fuse")).expect_err("missing").to_string();
        assert!(text.contains("cannot open /dev/no-fuse") && text.contains("modprobe"), "{text}");
    }
}
