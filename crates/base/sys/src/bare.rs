//! A thread without descriptors.

use std::io;

/// Calls `act` in a thread of its own that has none of the process's descriptors but the first
/// three: what the kernel has it wait for keeps nothing open beyond the end of the process. `act`
/// must bring no descriptors.
///
/// # Errors
/// Those of unshare(2), close_range(2) and of starting a thread.
pub fn without_descriptors<T: Send>(act: impl FnOnce() -> T + Send) -> io::Result<T> {
    let inside = move || {
        // SAFETY: takes this thread alone, which ends with this closure, out of the sharing of the
        // descriptor table; its own is a copy, so no descriptor changes its meaning.
        if unsafe { libc::unshare(libc::CLONE_FILES) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the table is this thread's alone, and nothing that the thread owns is in it:
        // `act` brings none.
        if unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(act())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("bare".into()).spawn_scoped(scope, inside)?;
        thread.join().map_err(|_| io::Error::other("a thread failed"))?
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn only_that_thread_is_without_descriptors() {
        let file = File::open("/proc/self/stat").expect("open");
        let number = file.as_raw_fd();
        let is_open =
            move || std::path::Path::new(&format!("/proc/thread-self/fd/{number}")).exists();
        assert!(!super::without_descriptors(is_open).expect("thread"));
        assert!(is_open());
    }
}
