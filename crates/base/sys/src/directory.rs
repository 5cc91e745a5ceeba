//! A working directory for one thread.

use rustix::fd::BorrowedFd;
use std::io;

/// Calls `act` in a thread of its own whose working directory is `directory`: for system calls that
/// take a path and no descriptor, such as umount(2). Nobody else's working directory changes.
///
/// # Errors
/// Those of unshare(2), fchdir(2) and of starting a thread.
pub fn in_directory<T: Send>(
    directory: BorrowedFd<'_>,
    act: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let inside = move || {
        // SAFETY: takes this thread alone, which ends with this closure, out of the sharing of root
        // and working directory; no memory and no descriptor is concerned.
        if unsafe { libc::unshare(libc::CLONE_FS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        rustix::process::fchdir(directory)?;
        Ok(act())
    };
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("there".into()).spawn_scoped(scope, inside)?;
        thread.join().map_err(|_| io::Error::other("a thread failed"))?
    })
}
