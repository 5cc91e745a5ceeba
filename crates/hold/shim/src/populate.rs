//! Buffers that the kernel copies requests into are brought into memory first.
//!
//! When a thread that a fatal signal has reached takes a request from the device, and a page of its
//! buffer is not in memory yet, the kernel cannot fault it in any more (get_user_pages gives EINTR)
//! and ends the request with EIO (fs/fuse/dev.c, fuse_dev_do_read): the application sees the crash.
//! Pages that are there are found without a fault, also by a dying thread. A fork makes each page
//! one to be copied when it is written next, which is such a fault: so all are brought in anew
//! behind it.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

const PAGE: usize = 4096;
/// The size of a huge page on x86-64 and, mostly, on arm64.
const HUGE: usize = 2 << 20;
/// Bytes of a program that are brought in beforehand: no more than is taken apart quickly at the
/// end of the process, which is waited for.
const PROGRAM: usize = 16 << 20;

/// What [`mark`] gives for buffers that were seen last. Shared by all threads and asked at every
/// read: a load, where a thread's own storage is a call into the loader, as this library is
/// preloaded. A mark that is overwritten costs one look at [`SEEN`].
static LAST: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// All buffers seen, for daemons whose threads share them, and the shim's own.
static SEEN: LazyLock<Mutex<HashSet<(usize, usize)>>> = LazyLock::new(Mutex::default);

/// More different buffers than this are not those of a daemon that uses them again.
const MANY: usize = 4096;

/// One number for a buffer; two buffers hardly ever have the same.
#[inline]
fn mark(buffer: usize, len: usize) -> usize {
    (buffer ^ len.rotate_right(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Brings a buffer of the daemon, which begins at that address, into memory when it is first seen,
/// behind `put_off`. The contents stay; where there is no memory nothing happens.
#[inline]
pub(crate) fn once(address: usize, len: usize, put_off: impl FnOnce()) {
    let mark = mark(address, len);
    let place = LAST.get(mark >> 58);
    if place.is_none_or(|place| place.load(Relaxed) != mark) {
        first((address, len), put_off);
        if let Some(place) = place {
            place.store(mark, Relaxed);
        }
    }
}

#[cold]
fn first(range: (usize, usize), put_off: impl FnOnce()) {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() < MANY && !seen.contains(&range) {
        drop(seen);
        put_off();
        now(range.0, range.1);
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert(range);
    }
}

/// Has what the threads of this process read into be its own again behind each fork.
pub(crate) fn watch_forks() {
    extern "C" fn after() {
        // A handler of a signal may fork while its own thread has the lock: it does not wait for
        // that.
        if let Ok(seen) = SEEN.try_lock() {
            for (at, len) in &*seen {
                now(*at, *len);
            }
        }
    }
    // SAFETY: the function has that signature and lives as long as the process; what it does the
    // parent may do at any time.
    unsafe { libc::pthread_atfork(None, Some(after), None) };
}

/// A buffer that was made before it was needed.
static MADE: Mutex<Option<Buffer>> = Mutex::new(None);

/// Brings in what is needed soon, for a process that has time now, and none when it is let through
/// its gate: the program, and a buffer. It takes what is in flight from the device before it does
/// anything else.
pub(crate) fn prepare() {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let name = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    for (at, len) in program(&maps, name.as_os_str().as_bytes()) {
        // Before Linux 5.14 each part comes in when it is needed.
        advise(at, len, libc::MADV_POPULATE_READ);
    }
    let made = Buffer::new(HUGE);
    *MADE.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
}

/// Where the program of that name is in memory, but what it can write to, by a text such as
/// /proc/self/maps: addresses and lengths, at most [`PROGRAM`] bytes in all.
fn program(maps: &[u8], name: &[u8]) -> Vec<(usize, usize)> {
    let mut left = if name.is_empty() { 0 } else { PROGRAM };
    let part = |line: &[u8]| {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let (range, rights) = (words.next()?, words.next()?);
        let is_it = words.nth(3)?.trim_ascii_start() == name && rights.starts_with(b"r-");
        let (from, to) = std::str::from_utf8(range).ok().filter(|_| is_it)?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(from)?, number(to)?.checked_sub(number(from)?)?))
    };
    let parts = maps.split(|byte| *byte == b'\n').filter_map(part);
    parts
        .map(|(at, len)| {
            let len = len.min(left);
            left -= len;
            (at, len)
        })
        .filter(|(_, len)| *len > 0)
        .collect()
}

/// A buffer of the shim's own that is in memory, of that length at the least.
pub(crate) fn buffer(len: usize) -> Buffer {
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner).take();
    made.filter(|made| made.len >= len).unwrap_or_else(|| Buffer::new(len))
}

/// A buffer of the shim's own that is in memory. If the machine has a huge page to spare, that
/// takes a tenth of the time of small pages.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Self {
        let whole = len.next_multiple_of(HUGE);
        let memory = vec![0; whole + HUGE];
        let start = memory.as_ptr().align_offset(HUGE).min(HUGE);
        let at = memory.as_ptr() as usize + start;
        advise(at, whole, libc::MADV_HUGEPAGE);
        now(at, len);
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert((at, len));
        Self { memory, start, len }
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let at = self.memory.as_ptr() as usize + self.start;
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&(at, self.len));
    }
}

/// Brings memory of this process that is about to be written to into memory.
fn now(at: usize, len: usize) {
    let start = at & !(PAGE - 1);
    let end = (at + len).next_multiple_of(PAGE);
    // Kernels before 5.14 do not know it: there a crash may cost an EIO.
    advise(start, end - start, libc::MADV_POPULATE_WRITE);
}

/// madvise(2) with one of those three, whose failure does no harm; errno stays.
fn advise(at: usize, len: usize, advice: i32) {
    let errno = crate::real::errno();
    // SAFETY: MADV_POPULATE_WRITE, MADV_POPULATE_READ and MADV_HUGEPAGE change no contents; on
    // addresses that are not mapped they only give an error.
    unsafe { belay_sys::raw::syscall(libc::SYS_madvise, at, len, advice) };
    crate::real::set_errno(errno);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_program_all_is_found_that_it_cannot_write_to() {
        let maps = b"1000-3000 r--p 00000000 fe:00 77          /usr/bin/a b\n\
            3000-8000 r-xp 00002000 fe:00 77          /usr/bin/a b\n\
            8000-9000 rw-p 00007000 fe:00 77          /usr/bin/a b\n\
            a000-b000 r-xp 00000000 fe:00 78          /usr/lib/x\n\
            c000-d000 r-xp 00000000 00:00 0\n\
            nonsense\n9000-8000 r-xp 00000000 fe:00 77 /usr/bin/a b\n";
        assert_eq!(program(maps, b"/usr/bin/a b"), [(0x1000, 0x2000), (0x3000, 0x5000)]);
        assert!(program(maps, b"/usr/bin/a").is_empty() && program(b"", b"").is_empty());
        let large = b"1000-10001000 r-xp 00000000 fe:00 77 /a\n20000000-20001000 r-xp 0 0:0 7 /a";
        assert_eq!(program(large, b"/a"), [(0x1000, PROGRAM)], "no more than that");
        let maps = std::fs::read("/proc/self/maps").expect("maps");
        let name = std::env::current_exe().expect("exe");
        let here = of_a_program_all_is_found_that_it_cannot_write_to as fn() as usize;
        let found = program(&maps, name.as_os_str().as_bytes());
        assert!(found.iter().any(|(at, len)| (*at..at + len).contains(&here)), "{found:?}");
    }
}
