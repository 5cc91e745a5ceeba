//! Mount namespaces of other processes.

use rustix::fd::{AsFd, AsRawFd};
use std::io;

/// Calls `act` in the mount namespace that `namespace` (an open `/proc/PID/ns/mnt`) names, in a
/// thread of its own, so that nobody else's view changes.
///
/// # Errors
/// Those of unshare(2), setns(2) and of starting a thread: `EPERM` without CAP_SYS_ADMIN.
pub fn in_mount_namespace<T: Send>(
    namespace: impl AsFd + Send,
    act: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let inside = move || {
        // SAFETY: takes this thread alone out of the sharing of root and working directory, which
        // setns(2) demands; no descriptor changes its meaning.
        if unsafe { libc::unshare(libc::CLONE_FS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a live descriptor, used during the call; it changes this thread only, which ends
        // with this closure.
        if unsafe { libc::setns(namespace.as_fd().as_raw_fd(), libc::CLONE_NEWNS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(act())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, inside)?;
        thread.join().map_err(|_| io::Error::other("a thread failed"))?
    })
}
