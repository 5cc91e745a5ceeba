//! poll and select: for the device they wait with the bell. (epoll is in `epolls`.)

use crate::descriptors::is_device;
use crate::real;
use crate::shim::{Shim, now, shim};
use crate::waiting::Found;
use libc::{c_int, c_short, c_ulong, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::marker::PhantomData;

/// As many descriptors of the device in one call are looked after; no daemon has more than one or
/// two.
const MOST: usize = 8;
const READS: c_short = libc::POLLIN | libc::POLLRDNORM;
const WRITES: c_short = libc::POLLOUT | libc::POLLWRNORM;

/// When a wait that is to take so long ends; `None` for never.
fn deadline(timeout: Option<timespec>) -> Option<u64> {
    let time = timeout?;
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let ns = u64::try_from(time.tv_nsec).unwrap_or(0);
    Some(now().saturating_add(seconds.saturating_mul(1_000_000_000)).saturating_add(ns))
}

/// The time that is left.
fn left(deadline: Option<u64>) -> Option<timespec> {
    let ns = deadline?.saturating_sub(now());
    let seconds = libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX);
    Some(timespec { tv_sec: seconds, tv_nsec: (ns % 1_000_000_000) as i64 })
}

fn over(deadline: Option<u64>) -> bool {
    deadline.is_some_and(|at| now() >= at)
}

const NONE_LEFT: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

fn as_pointer<T>(value: Option<&T>) -> *const T {
    value.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// A descriptor of the device among those that are polled.
#[derive(Clone, Copy)]
struct DeviceEntry {
    at: usize,
    fd: c_int,
    events: c_short,
}

/// Waits as ppoll(2) does, if one of `fds` is the device and is to be read. Nothing here has a
/// destructor: it is a cancellation point.
fn poll_device(
    fds: &mut [pollfd],
    timeout: Option<timespec>,
    mask: Option<&sigset_t>,
) -> Option<c_int> {
    let shim = shim()?;
    if !fds.iter().any(|one| is_device(one.fd) && one.events & READS != 0) {
        return None;
    }
    let Some(bell) = shim.bell() else {
        shim.waiting.wait_unheard();
        return None;
    };
    let mut entries = [DeviceEntry { at: usize::MAX, fd: -1, events: 0 }; MOST];
    let mut writable = false;
    let found = fds.iter_mut().enumerate().filter(|(_, one)| is_device(one.fd));
    for (entry, (at, one)) in entries.iter_mut().zip(found) {
        if one.events & READS != 0 {
            *entry = DeviceEntry { at, fd: one.fd, events: one.events };
            writable |= one.events & WRITES != 0; // it always is
            (one.fd, one.events) = (bell, libc::POLLIN);
        }
    }
    let end = deadline(timeout);
    let result = loop {
        let time = if writable { Some(NONE_LEFT) } else { left(end) };
        let (time, mask) = (as_pointer(time.as_ref()), as_pointer(mask));
        // SAFETY: a live array, and a time and a mask that live or are null.
        let n = unsafe { real::ppoll(fds.as_mut_ptr(), fds.len() as nfds_t, time, mask) };
        if n < 0 {
            break n;
        }
        let told = tell(shim, fds, &entries);
        if told != 0 || writable || over(end) {
            break told;
        }
    };
    for entry in &entries {
        if let Some(one) = fds.get_mut(entry.at) {
            (one.fd, one.events) = (entry.fd, entry.events);
        }
    }
    Some(result)
}

/// Puts down what is true of the device; gives of how many descriptors there is something to say,
/// or -1 if a signal has come meanwhile.
fn tell(shim: &Shim, fds: &mut [pollfd], entries: &[DeviceEntry; MOST]) -> c_int {
    let at = |entry: &DeviceEntry, fds: &[pollfd]| fds.get(entry.at).map_or(0, |one| one.revents);
    let rings = entries.iter().any(|entry| at(entry, fds) != 0);
    let readable = match rings.then(|| shim.has_message()) {
        Some(Found::Interrupted) => {
            real::set_errno(libc::EINTR);
            return -1;
        }
        found => found == Some(Found::Message),
    };
    for entry in entries {
        if let Some(one) = fds.get_mut(entry.at) {
            let reads = if readable { entry.events & READS } else { 0 };
            one.revents = reads | entry.events & WRITES;
        }
    }
    fds.iter().filter(|one| one.revents != 0).count() as c_int
}

/// The array that a caller of poll(2) gives.
///
/// # Safety
/// `fds` is null, or `count` of them lie there, which for `'c` are the calling thread's alone, and
/// used only by what this gives.
unsafe fn array<'c>(fds: *mut pollfd, count: nfds_t) -> &'c mut [pollfd] {
    if fds.is_null() {
        return &mut [];
    }
    // SAFETY: not null, so an array of so many, by the caller's contract.
    unsafe { std::slice::from_raw_parts_mut(fds, count as usize) }
}

/// poll(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let time = u32::try_from(timeout).ok().map(|ms| timespec {
        tv_sec: libc::time_t::from(ms / 1000),
        tv_nsec: i64::from(ms % 1000) * 1_000_000,
    });
    // SAFETY: poll(2) takes an array of so many, which is its caller's alone until it returns.
    if let Some(n) = poll_device(unsafe { array(fds, count) }, time, None) {
        return n;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::poll(fds, count, timeout) }
}

/// poll(2) as _FORTIFY_SOURCE calls it.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: usize,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        std::process::abort(); // as glibc does
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { poll(fds, count, timeout) }
}

/// ppoll(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: null, or a time that is readable during the call.
    let time = unsafe { timeout.as_ref() }.copied();
    // SAFETY: null, or a set of signals that its caller leaves as it is until this call returns.
    let set = unsafe { mask.as_ref() };
    // SAFETY: ppoll(2) takes an array of so many, which is its caller's alone for so long.
    if let Some(n) = poll_device(unsafe { array(fds, count) }, time, set) {
        return n;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::ppoll(fds, count, timeout, mask) }
}

/// ppoll(2) as _FORTIFY_SOURCE calls it.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        std::process::abort(); // as glibc does
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { ppoll(fds, count, timeout, mask) }
}

fn has(set: &fd_set, fd: c_int) -> bool {
    // SAFETY: a whole set, and a number below FD_SETSIZE: all callers see to that.
    unsafe { libc::FD_ISSET(fd, set) }
}

fn put(set: &mut fd_set, fd: c_int) {
    // SAFETY: as above.
    unsafe { libc::FD_SET(fd, set) }
}

fn take(set: &mut fd_set, fd: c_int) {
    // SAFETY: as above.
    unsafe { libc::FD_CLR(fd, set) }
}

/// The three sets of select(2): any may be null. A caller's set is as long as the kernel reads and
/// writes it for its count (FDS_BYTES in include/linux/poll.h), which may be less than an fd_set.
struct Three<'c> {
    places: [*mut fd_set; 3],
    count: c_int,
    of: PhantomData<&'c mut fd_set>,
}

impl<'c> Three<'c> {
    /// The sets of the first `count` descriptors.
    ///
    /// # Safety
    /// Each is null, or as many bytes of it as select(2) looks at for `count` are for `'c` the
    /// calling thread's alone, to be read and written by this only. They may be one and the same.
    unsafe fn new(places: [*mut fd_set; 3], count: c_int) -> Self {
        Self { places, count, of: PhantomData }
    }

    /// How many bytes each has.
    fn bytes(&self) -> usize {
        let words = usize::try_from(self.count).unwrap_or(0).div_ceil(c_ulong::BITS as usize);
        (words * size_of::<c_ulong>()).min(size_of::<fd_set>())
    }

    /// What is asked for, and nothing behind that.
    fn load(&self) -> [Option<fd_set>; 3] {
        self.places.map(|place| {
            if place.is_null() {
                return None;
            }
            // SAFETY: an fd_set is an array of numbers, for which 0 is a value.
            let mut set: fd_set = unsafe { std::mem::zeroed() };
            let to = std::ptr::from_mut(&mut set).cast::<u8>();
            // SAFETY: not null, so it has so many bytes, as whoever made this has vouched; and the
            // other is this function's and not shorter.
            unsafe { std::ptr::copy_nonoverlapping(place.cast::<u8>(), to, self.bytes()) };
            let end = self.bytes() * u8::BITS as usize;
            (self.count..end as c_int).for_each(|fd| take(&mut set, fd));
            Some(set)
        })
    }

    /// Puts down what was found.
    fn store(&mut self, sets: &[Option<fd_set>; 3]) {
        for (place, set) in self.places.into_iter().zip(sets) {
            if let Some(set) = set.as_ref().filter(|_| !place.is_null()) {
                let from = std::ptr::from_ref(set).cast::<u8>();
                // SAFETY: as above; the other is not shorter.
                unsafe { std::ptr::copy_nonoverlapping(from, place.cast::<u8>(), self.bytes()) };
            }
        }
    }
}

/// Waits as pselect(2) does, if the device is to be read. The sets are the caller's, and are left
/// as the call leaves them.
fn select_device(mut sets: Three<'_>, end: Option<u64>, mask: Option<&sigset_t>) -> Option<c_int> {
    let count = sets.count;
    let shim = shim().filter(|_| (0..=libc::FD_SETSIZE as c_int).contains(&count))?;
    let asked = sets.load();
    let reads = asked[0].as_ref()?;
    let is_asked = |fd: c_int| has(reads, fd) && is_device(fd);
    if !(0..count).any(is_asked) {
        return None;
    }
    let Some(bell) = shim.bell().filter(|bell| *bell < libc::FD_SETSIZE as c_int) else {
        shim.waiting.wait_unheard();
        return None;
    };
    loop {
        let mut now_asked = asked;
        if let Some(reads_now) = &mut now_asked[0] {
            (0..count).filter(|fd| is_asked(*fd)).for_each(|fd| take(reads_now, fd));
            put(reads_now, bell);
        }
        let mut pointers = [std::ptr::null_mut(); 3];
        for (pointer, set) in pointers.iter_mut().zip(&mut now_asked) {
            *pointer = set.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        }
        let time = left(end);
        let [reads_at, writes_at, others_at] = pointers;
        // SAFETY: sets of this function, a time and a mask that live or are null.
        let mut n = unsafe {
            real::pselect(
                count.max(bell + 1),
                reads_at,
                writes_at,
                others_at,
                as_pointer(time.as_ref()),
                as_pointer(mask),
            )
        };
        if n < 0 {
            return Some(n);
        }
        if let Some(reads_now) = &mut now_asked[0]
            && has(reads_now, bell)
        {
            take(reads_now, bell);
            n -= 1;
            match shim.has_message() {
                Found::Message => {
                    for fd in (0..count).filter(|fd| is_asked(*fd)) {
                        put(reads_now, fd);
                        n += 1;
                    }
                }
                Found::Nothing => {}
                Found::Interrupted => return Some(real::fail(libc::EINTR) as c_int),
            }
        }
        if n > 0 || over(end) {
            sets.store(&now_asked);
            return Some(n);
        }
    }
}

/// select(2): it says how much time was left.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: null, or a time that is readable during the call.
    let time = unsafe { timeout.as_ref() }
        .map(|time| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec.saturating_mul(1000) });
    let end = deadline(time);
    // SAFETY: select(2) takes three sets of `count` descriptors, or nulls, which are its caller's
    // alone until it returns.
    let sets = unsafe { Three::new([reads, writes, others], count) };
    let Some(n) = select_device(sets, end, None) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::select(count, reads, writes, others, timeout) };
    };
    if let Some(rest) = left(end) {
        let rest = timeval { tv_sec: rest.tv_sec, tv_usec: rest.tv_nsec / 1000 };
        // SAFETY: not null, as there is an end; select(2) writes there too.
        unsafe { timeout.write(rest) };
    }
    n
}

/// pselect(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: null, or a time that is readable during the call.
    let time = unsafe { timeout.as_ref() }.copied();
    // SAFETY: pselect(2) takes three sets of `count` descriptors, or nulls, which are its caller's
    // alone until it returns.
    let sets = unsafe { Three::new([reads, writes, others], count) };
    // SAFETY: null, or a set of signals that its caller leaves as it is for so long.
    let set = unsafe { mask.as_ref() };
    if let Some(n) = select_device(sets, deadline(time), set) {
        return n;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::pselect(count, reads, writes, others, timeout, mask) }
}
