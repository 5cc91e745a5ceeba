//! What can be asked of the device, and done to it, without serving it.

use crate::procfs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::fs;

/// `major:minor` of the connection of a FUSE device description; `None` before the mount and on
/// kernels that do not tell.
pub fn connection(device: BorrowedFd<'_>) -> Option<String> {
    let path = format!("/proc/self/fdinfo/{}", device.as_raw_fd());
    connection_in(&procfs::read_text(path).ok()?)
}

/// Whether process `pid` has a device open that serves the mount with the number `device`. `false`
/// if that cannot be seen.
pub fn serves(pid: u32, device: &str) -> bool {
    serves_each(pid).any(|of| of == device)
}

/// The numbers of all mounts of which process `pid` has a device open. None if that cannot be seen.
pub(crate) fn served_by(pid: u32) -> Vec<String> {
    serves_each(pid).collect()
}

fn serves_each(pid: u32) -> impl Iterator<Item = String> {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    infos
        .filter_map(|info| procfs::read_text(info.path()).ok())
        .filter_map(|info| connection_in(&info))
}

/// `major:minor` of the connection that a file of fdinfo names.
fn connection_in(info: &str) -> Option<String> {
    let number = info.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    let number = number.trim().parse::<u32>().ok()?;
    // The kernel's own form of a device number: 12 bits and 20 bits.
    Some(format!("{}:{}", number >> 20, number & 0xf_ffff))
}

/// Whether the connection of `device` is gone, or was never there.
pub fn is_disconnected(device: BorrowedFd<'_>) -> bool {
    look(device).contains(PollFlags::ERR)
}

/// Whether something is mounted, or was, by `device`.
pub fn was_mounted(device: BorrowedFd<'_>) -> bool {
    // What is too short for a reply is refused by whoever serves a connection, whether that lives
    // or not (`EINVAL`). Before the mount nothing can be written (`EPERM`), and no write to a
    // device waits.
    rustix::io::write(device, &[0]) != Err(Errno::PERM)
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
