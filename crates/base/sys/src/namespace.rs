//! Mount namespaces of other processes.

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;

/// `NS_GET_USERNS` of linux/nsfs.h.
const NS_GET_USERNS: libc::Ioctl = 0xb701;

/// The user namespace whose root may change `namespace` (an open file of `/proc/PID/ns/`).
///
/// # Errors
/// Those of `ioctl_ns(2)`: `EPERM` if it is none of the caller's.
pub fn owner_of(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that is live during the call, and no argument.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for this process, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls `act` in the mount namespace that `namespace` (an open `/proc/PID/ns/mnt`) names, in a
/// thread of its own, so that nobody else's view changes.
///
/// That thread has a descriptor table of its own with nothing in it but the standard streams: if
/// `act` never comes back, it keeps no descriptor of this process open beyond the process's end.
/// So `act` must bring no descriptors.
///
/// # Errors
/// Those of unshare(2), setns(2) and of starting a thread: `EPERM` without CAP_SYS_ADMIN.
pub fn in_mount_namespace<T: Send>(
    namespace: BorrowedFd<'_>,
    act: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let inside = move || {
        // SAFETY: takes this thread alone out of the sharing of root, working directory and
        // descriptor table, the first of which setns(2) demands; the table is a copy, so no
        // descriptor changes its meaning.
        if unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_FILES) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that is live during the call, here as in the table that was copied;
        // it changes this thread only, which ends with this closure.
        if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the table is this thread's alone, and nothing that the thread owns is in it:
        // `namespace` is borrowed and not used any more, `act` brings none. Before Linux 5.9 it
        // fails, and the copies stay open until the thread ends.
        unsafe { crate::raw::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
        Ok(act())
    };
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("inside".into()).spawn_scoped(scope, inside)?;
        thread.join().map_err(|_| io::Error::other("a thread failed"))?
    })
}
