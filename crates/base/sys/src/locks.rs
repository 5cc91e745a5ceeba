//! Locks of open file descriptions (`F_OFD_SETLK`): they have a range, and go with the last
//! descriptor, in whichever process.

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// How much a lock lets others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Others may have the same.
    Shared,
    /// Nobody else may have any. The file must be open for writing.
    Exclusive,
}

fn flock(kind: libc::c_int, start: u64, length: u64) -> libc::flock64 {
    let part = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let start = part(start);
    // 0: up to the end, wherever that comes to be.
    let length = Some(part(length)).filter(|length| start.checked_add(*length).is_some());
    libc::flock64 {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length.unwrap_or(0),
        l_pid: 0,
    }
}

/// Locks `length` bytes from `start` on, or says at once that somebody has some of them.
///
/// # Errors
/// Those of fcntl(2): `EAGAIN` if another description has a lock there, `EBADF` if it is not open
/// for what that takes.
pub fn lock_range(file: BorrowedFd<'_>, lock: Lock, start: u64, length: u64) -> io::Result<()> {
    let kind = if lock == Lock::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
    let range = flock(kind, start, length);
    // SAFETY: a live descriptor, and a structure of this command's that lives as long as the call,
    // which only reads it.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether another description has a lock of this kind anywhere in the file. Locks of processes
/// (`F_SETLK`) do not count.
///
/// # Errors
/// Those of fcntl(2).
pub fn has_ranges(file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut range = flock(libc::F_WRLCK, 0, u64::MAX);
    // SAFETY: a live descriptor, and a structure of this command's that lives as long as the call,
    // which writes to it.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(libc::c_int::from(range.l_type) != libc::F_UNLCK && range.l_pid == -1)
}

/// Waits until this process alone has the lock of a file (`F_SETLKW`). It goes when the process
/// ends, or closes any descriptor of that file, so the file is opened once and stays open.
///
/// # Errors
/// Those of fcntl(2).
pub fn lock_for_process(file: BorrowedFd<'_>) -> io::Result<()> {
    let range = flock(libc::F_WRLCK, 0, u64::MAX);
    // SAFETY: a live descriptor, and a structure of this command's that lives as long as the call,
    // which only reads it.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const range) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Which other process has that lock.
///
/// # Errors
/// Those of fcntl(2).
pub fn process_with_lock(file: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let mut range = flock(libc::F_WRLCK, 0, u64::MAX);
    // SAFETY: a live descriptor, and a structure of this command's that lives as long as the call,
    // which writes to it.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut range) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_locked = libc::c_int::from(range.l_type) != libc::F_UNLCK;
    Ok(u32::try_from(range.l_pid).ok().filter(|pid| is_locked && *pid > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    #[test]
    fn the_process_with_a_lock_is_known() {
        let file = tempfile::NamedTempFile::new().expect("file");
        // Not this process: its own lock would be none to it.
        let mut other = std::process::Command::new("python3")
            .arg("-c")
            .arg("import fcntl,sys\nf=open(sys.argv[1],'r+')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint(flush=True)\nsys.stdin.read()")
            .arg(file.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("python3");
        let said = other.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(said, &mut [0]).expect("it has the lock");
        let opened = File::options().read(true).write(true).open(file.path()).expect("open");
        assert_eq!(process_with_lock(opened.as_fd()).expect("get"), Some(other.id()));
        drop(other.stdin.take());
        lock_for_process(opened.as_fd()).expect("it has ended");
        assert!(other.wait().expect("wait").success());
        assert_eq!(process_with_lock(opened.as_fd()).expect("get"), None, "one's own is none");
    }

    #[test]
    fn ranges_are_kept_apart() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let open = || File::options().read(true).write(true).open(file.path()).expect("open");
        let (one, two) = (open(), open());
        lock_range(one.as_fd(), Lock::Exclusive, 0, 512).expect("free");
        lock_range(two.as_fd(), Lock::Exclusive, 512, u64::MAX).expect("beside it");
        assert!(has_ranges(one.as_fd()).expect("get") && has_ranges(two.as_fd()).expect("get"));
        let three = open();
        for start in [0, 511, 1 << 40] {
            let why = lock_range(three.as_fd(), Lock::Shared, start, 1).expect_err("taken");
            assert_eq!(why.raw_os_error(), Some(libc::EAGAIN));
        }
        drop((one, two));
        // A process that another test has just started has copies of all descriptors, until it
        // executes its program.
        let end = Instant::now() + Duration::from_secs(10);
        while has_ranges(three.as_fd()).expect("get") {
            assert!(Instant::now() < end, "a closed file has its lock yet");
            std::thread::yield_now();
        }
        lock_range(three.as_fd(), Lock::Shared, 0, u64::MAX).expect("free");
        lock_range(open().as_fd(), Lock::Shared, 0, u64::MAX).expect("shared");
    }
}
