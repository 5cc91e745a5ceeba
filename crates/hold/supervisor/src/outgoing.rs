//! What belay says on standard error, and what the daemon does: nobody waits for whoever reads it,
//! or does not.
//!
//! A terminal that is halted (Ctrl-S), or a pipe that is full, makes the one who writes to it wait,
//! and no look beforehand tells how much it takes. So a thread writes, and takes what it writes
//! from a queue of limited length. What finds no room there is lost, counted, and said to be lost
//! as soon as somebody reads again.

use crate::text::counted;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::fs::{FlockOperation, fcntl_lock, fstat, ftruncate};
use rustix::io::{Errno, pread, write};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that wait for a reader at most.
const ROOM: usize = 256 << 10;
/// Bytes of one write.
const CHUNK: usize = 4096;
/// At its end a process waits as long as this for a reader that takes nothing.
const AT_END: Duration = Duration::from_millis(250);

/// What waits to be written.
#[derive(Debug, Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// Lines without room since the last one that had.
    lost: u64,
    /// The thread is writing what it has taken.
    writing: bool,
    /// Bytes that were written so far.
    written: u64,
}

impl Queue {
    /// Puts `bytes` behind what waits, all or nothing. After a loss nothing is taken until that was
    /// said, so that what is read is in order.
    fn push(&mut self, bytes: &[u8]) {
        if self.lost > 0 || self.bytes.len() + bytes.len() > ROOM {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count().max(1);
            self.lost = self.lost.saturating_add(lines as u64);
        } else {
            self.bytes.extend(bytes);
        }
    }

    /// What is to be written next, if anything is.
    fn pop(&mut self) -> Vec<u8> {
        if self.bytes.is_empty() && self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            let lost = counted(lost, "line is", "lines are");
            let said =
                format!("\nbelay: warning: {lost} missing here: nobody has read standard error\n");
            self.bytes.extend(said.as_bytes());
        }
        let length = self.bytes.len().min(CHUNK);
        self.bytes.drain(..length).collect()
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Whoever panics in here has changed nothing by halves.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self) {
        loop {
            let mut queue = self.lock();
            queue.writing = false;
            self.changed.notify_all();
            let bytes = loop {
                let bytes = queue.pop();
                if !bytes.is_empty() {
                    break bytes;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            queue.writing = true;
            drop(queue);
            write_out(&bytes, |n| self.lock().written += n as u64);
            if SHORT.load(Relaxed) {
                cut(rustix::stdio::stderr(), BEGIN.load(Relaxed));
            }
        }
    }
}

/// Writes to standard error, for as long as that takes. What cannot be written at all is dropped.
fn write_out(mut bytes: &[u8], mut count: impl FnMut(usize)) {
    let stderr = rustix::stdio::stderr();
    while !bytes.is_empty() {
        match write(stderr, bytes) {
            Ok(n) if n > 0 => {
                count(n);
                bytes = bytes.get(n..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            // Somebody who shares it has made it so that it does not wait.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Ok(_) | Err(_) => return,
        }
    }
}

/// Standard error is a file that is belay's to keep short.
static SHORT: AtomicBool = AtomicBool::new(false);
/// Where in it begins what belay has written: all before that is somebody else's, and stays.
static BEGIN: AtomicU64 = AtomicU64::new(0);
/// How long such a file becomes, from there on.
const LONGEST: u64 = 4 << 20;
/// What is left of it then: its end.
const LEFT: u64 = 1 << 20;

/// Standard error is a log that grows for as long as the mount is there: from now on, when it is
/// long, the beginning goes of what was written to it behind the first `begin` bytes.
pub fn keep_short(begin: u64) {
    BEGIN.store(begin, Relaxed);
    SHORT.store(true, Relaxed);
}

/// Takes the beginning of what is behind the first `begin` bytes of a log away, if that is long.
/// Who writes to it at the same time adds to what is left, before or after.
fn cut(log: BorrowedFd<'_>, begin: u64) {
    // Keeper and supervisor write to one file: of two that cut at once the second would find
    // nothing there of what the first leaves.
    if too_long(log, begin).is_none()
        || is_taken(fcntl_lock(log, FlockOperation::NonBlockingLockExclusive))
    {
        return;
    }
    if let Some((length, begin)) = too_long(log, begin) {
        cut_now(log, length, begin);
    }
    let _ = fcntl_lock(log, FlockOperation::Unlock);
}

/// Whether somebody else has the lock. A file system without locks is no reason to let a log grow
/// without end.
fn is_taken(tried: rustix::io::Result<()>) -> bool {
    matches!(tried, Err(Errno::AGAIN | Errno::ACCESS))
}

/// How long a log is, and where belay's part begins, if that is to be cut.
fn too_long(log: BorrowedFd<'_>, begin: u64) -> Option<(u64, u64)> {
    let length = u64::try_from(fstat(log).ok()?.st_size).unwrap_or(0);
    // Somebody who has taken away from it what was before has left nothing but belay's.
    let begin = if length < begin { 0 } else { begin };
    (length - begin > LONGEST).then_some((length, begin))
}

fn cut_now(log: BorrowedFd<'_>, length: u64, begin: u64) {
    let mut bytes = vec![0; usize::try_from(LEFT).unwrap_or_default()];
    let read = pread(log, &mut bytes, length.saturating_sub(LEFT)).unwrap_or(0);
    let rest = bytes.get(..read).unwrap_or_default();
    let line = rest.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    // One that is no file of this kind stays as it is.
    if ftruncate(log, begin).is_ok() {
        let _ = write(log, b"belay: some earlier messages were dropped: there were too many\n");
        let _ = write(log, rest.get(line..).unwrap_or_default());
    }
}

static SHARED: OnceLock<Option<&'static Shared>> = OnceLock::new();

fn shared() -> Option<&'static Shared> {
    *SHARED.get_or_init(|| {
        let shared: &'static Shared = Box::leak(Box::default());
        crate::threads::start("messages", || shared.write_all()).ok().map(|_| shared)
    })
}

/// Has `bytes` written to standard error, and does not wait for that.
pub fn push(bytes: &[u8]) {
    match shared() {
        Some(shared) => {
            shared.lock().push(bytes);
            shared.changed.notify_all();
        }
        // No thread is to be had: what a reader takes at once is better than nothing.
        None => write_out(bytes, |_| ()),
    }
}

/// At the end of the process: waits until all is written, as long as somebody reads.
pub fn finish() {
    let Some(Some(shared)) = SHARED.get() else {
        return;
    };
    let mut queue = shared.lock();
    let (mut seen, mut since) = (queue.written, Instant::now());
    while queue.writing || queue.lost > 0 || !queue.bytes.is_empty() {
        if queue.written != seen {
            (seen, since) = (queue.written, Instant::now());
        }
        let Some(rest) = AT_END.checked_sub(since.elapsed()).filter(|rest| !rest.is_zero()) else {
            return;
        };
        let waited = shared.changed.wait_timeout(queue, rest);
        queue = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut Queue) -> String {
        let mut out = Vec::new();
        loop {
            let bytes = queue.pop();
            if bytes.is_empty() {
                return String::from_utf8(out).expect("UTF-8");
            }
            out.extend(bytes);
        }
    }

    #[test]
    fn of_a_long_log_the_end_is_left() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("log");
        let log = std::fs::File::options().read(true).append(true).create(true).open(&path);
        let log = log.expect("open");
        let line = "a line that tells something\n";
        let put = |bytes: &[u8]| std::io::Write::write_all(&mut &log, bytes);
        put(line.as_bytes()).expect("write");
        cut(std::os::fd::AsFd::as_fd(&log), 0);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), line);
        for _ in 0..=LONGEST / (line.len() as u64) {
            put(line.as_bytes()).expect("write");
        }
        put(b"the last one\n").expect("write");
        cut(std::os::fd::AsFd::as_fd(&log), 0);
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(text.len() as u64 <= LEFT + 100 && text.ends_with("the last one\n"));
        assert!(text.lines().skip(1).all(|rest| rest == "the last one" || rest == line.trim_end()));
    }

    /// Keeper and supervisor have one log.
    #[test]
    fn a_log_that_another_cuts_is_left_to_it() {
        use std::os::fd::AsFd;
        let dir = tempfile::tempdir().expect("tempdir");
        let open = || {
            let mut options = std::fs::File::options();
            options.read(true).append(true).create(true).open(dir.path().join("log")).expect("open")
        };
        let (log, other) = (open(), open());
        let line = "a line\n".repeat(1 << 20);
        std::io::Write::write_all(&mut &log, line.as_bytes()).expect("write");
        belay_sys::lock_range(other.as_fd(), belay_sys::Lock::Exclusive, 0, u64::MAX)
            .expect("free");
        cut(log.as_fd(), 0);
        assert_eq!(log.metadata().expect("stat").len(), line.len() as u64);
        drop(other);
        cut(log.as_fd(), 0);
        assert!(log.metadata().expect("stat").len() <= LEFT + 100);
    }

    #[test]
    fn what_was_in_a_log_before_is_not_cut() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("log");
        let theirs = "theirs\n".repeat(1 << 20);
        std::fs::write(&path, &theirs).expect("write");
        let log = std::fs::File::options().read(true).append(true).open(&path).expect("open");
        let begin = theirs.len() as u64;
        let read = || std::fs::read_to_string(&path).expect("read");
        let put = |bytes: &[u8]| std::io::Write::write_all(&mut &log, bytes).expect("write");
        put(b"ours\n");
        cut(std::os::fd::AsFd::as_fd(&log), begin);
        assert!(read() == format!("{theirs}ours\n"), "it is short");
        put(&b"ours\n".repeat(1 << 20));
        cut(std::os::fd::AsFd::as_fd(&log), begin);
        let text = read();
        let rest = text.strip_prefix(&theirs).expect("what was there before");
        assert!(rest.len() as u64 <= LEFT + 100 && rest.ends_with("ours\n"));
        // Who rotates it by a copy has all of it.
        log.set_len(0).expect("cut");
        put(&b"ours\n".repeat(1 << 20));
        cut(std::os::fd::AsFd::as_fd(&log), begin);
        assert!(read().len() as u64 <= LEFT + 100);
    }

    #[test]
    fn what_is_lost_is_counted_and_said_in_its_place() {
        let mut queue = Queue::default();
        let line = "a line that tells something\n";
        let fitting = ROOM / line.len();
        for _ in 0..fitting + 7 {
            queue.push(line.as_bytes());
        }
        assert!(queue.bytes.len() <= ROOM);
        assert_eq!(queue.pop().len(), CHUNK);
        queue.push(b"there is room, but not before the loss was said\n");
        let text = all(&mut queue);
        assert!(
            text.ends_with(
                "belay: warning: 8 lines are missing here: nobody has read standard error\n"
            ),
            "{text}"
        );
        queue.push(line.as_bytes());
        assert_eq!(all(&mut queue), line);
    }
}
