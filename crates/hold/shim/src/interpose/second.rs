//! Mounts that the daemon makes besides the held one. They are its own, as without belay: each gets
//! a device of its own, and nothing that is done with that is looked at.
//!
//! Which mount a /dev/fuse is for is known when it is mounted, not when it is opened: it may as
//! well be a clone for another thread, or a probe. So each is the held device at first, and what
//! turns out to be for another mount is exchanged then.

use crate::shim::{Shim, shim};
use crate::{descriptors, real, renumbered, standin};
use belay_recorder::control::{Flags, Loss};
use belay_sys::raw::syscall;
use libc::{c_int, c_long, c_ulong, c_void};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::AcqRel, Ordering::Relaxed};

/// This life has the held mount.
static CLAIMED: AtomicBool = AtomicBool::new(false);
/// A thread is making it.
static MAKING: AtomicBool = AtomicBool::new(false);
/// The number of the device that it was made with, while that is open.
static MADE_WITH: AtomicI32 = AtomicI32::new(-1);

/// The number that has made the held device one that is not waited for, by how it was opened.
static HURRIED: AtomicI32 = AtomicI32::new(-1);

/// The device `fd` is about to be one that is not waited for, and with it all that are the held one
/// still.
pub(super) fn opened_nonblocking(fd: c_int) {
    // SAFETY: a number; where it is not open, the kernel says so.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags >= 0 && flags & libc::O_NONBLOCK == 0 {
        HURRIED.store(fd, Relaxed);
    }
}

/// The device is closed by that number, or it means something else.
pub(crate) fn closing(fd: c_int) {
    for known in [&MADE_WITH, &HURRIED] {
        let _ = known.compare_exchange(fd, -1, Relaxed, Relaxed);
    }
}

/// The device that a mount is to be made with, by its options.
pub(super) fn device_in(options: &[u8]) -> Option<c_int> {
    let mut words = options.split(|byte| *byte == b',');
    let number = words.find_map(|word| word.strip_prefix(b"fd="))?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Whether both are one description; `None` if the kernel does not tell.
fn is_same(a: c_int, b: c_int) -> Option<bool> {
    let me = std::process::id();
    // SAFETY: numbers only; KCMP_FILE is 0.
    let order = unsafe { syscall(libc::SYS_kcmp, me, me, 0, a, b) };
    (order >= 0).then_some(order == 0)
}

/// Whether `fd` is a /dev/fuse. Any number may be asked for.
fn is_fuse(fd: c_int) -> bool {
    // SAFETY: not -1, and used at once, to ask only: where it is not open, the kernel says so.
    fd >= 0 && belay_sys::mailbox::is_fuse(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Gives the number `fd`, which is the held device still, one of its own. Says in errno why not.
pub(super) fn give_own_device(fd: c_int) -> bool {
    // SAFETY: a number; where it is not open, the kernel says so.
    let mode = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    let mut flags = libc::O_RDWR | libc::O_CLOEXEC;
    let hurried = HURRIED.compare_exchange(fd, -1, Relaxed, Relaxed).is_ok();
    if hurried {
        flags |= libc::O_NONBLOCK;
    }
    // SAFETY: a C string and flags, by which no file is made.
    let own = unsafe { real::openat(libc::AT_FDCWD, c"/dev/fuse".as_ptr(), flags, 0) };
    if own < 0 {
        return false;
    }
    if hurried && let Some(shim) = shim() {
        // It was opened so for the other mount.
        // SAFETY: the held device, which lives as long as the process.
        unsafe { libc::fcntl(shim.device.as_raw_fd(), libc::F_SETFL, libc::O_RDWR) };
        shim.reads_wait(); // looks, and notes it
    }
    let inherited = mode >= 0 && mode & libc::FD_CLOEXEC == 0;
    renumbered::remove(fd);
    // SAFETY: the number is the daemon's device, which it is about to mount with, and stays open in
    // this one step.
    let done =
        unsafe { syscall(libc::SYS_dup3, own, fd, if inherited { 0 } else { libc::O_CLOEXEC }) };
    let why = real::errno();
    // SAFETY: opened above, and known to nobody else.
    unsafe { syscall(libc::SYS_close, own) };
    real::set_errno(why);
    done >= 0
}

/// FUSE_DEV_IOC_CLONE on `fd`, which is the held device still: whether it is to be a clone of one
/// of another mount, and was made a device of its own for that. `source`: the place of the number
/// of what is cloned.
///
/// # Safety
/// `source` is null, or four bytes can be read there, aligned or not.
pub(super) unsafe fn clones_another(fd: c_int, source: *const c_void) -> bool {
    if source.is_null() || !CLAIMED.load(Relaxed) {
        return false;
    }
    // SAFETY: not null, so it is the place of a number, by the caller's contract.
    let source = (unsafe { source.cast::<u32>().read_unaligned() }) as c_int;
    !descriptors::is_device(source) && is_fuse(source) && give_own_device(fd)
}

/// `path` from the root on, without links, as far as that can be said without going into the held
/// mount.
fn whole(path: &[u8], held: &[u8]) -> Vec<u8> {
    standin::resolve(libc::AT_FDCWD, path, true, held).unwrap_or_else(|| path.to_vec())
}

/// What the making of the held mount takes: no other thread takes it for another meanwhile.
pub(super) struct Making(());

impl Drop for Making {
    fn drop(&mut self) {
        MAKING.store(false, Relaxed);
    }
}

impl Shim {
    /// Whether there is the held mount.
    fn has_mount(&self) -> bool {
        if self.host.generation() > 0 {
            CLAIMED.load(Relaxed)
        } else {
            self.control().has(Flags::MOUNTED)
        }
    }

    /// Whether what is mounted at `target`, with the device `fd` if that is known, is another mount
    /// than the held one.
    pub(super) fn is_another(&self, target: &[u8], fd: Option<c_int>) -> bool {
        let control = self.control();
        let has_mount = self.has_mount();
        let may_be = has_mount || self.host.generation() > 0 && control.has(Flags::SEVERAL);
        if !may_be || has_mount && fd.is_some_and(|fd| fd == MADE_WITH.load(Relaxed)) {
            return false;
        }
        let held = control.mountpoint();
        if held.is_empty() {
            return has_mount;
        }
        let held = whole(&held, &held);
        whole(target, &held) != held
    }

    /// The right to make the held mount, which one thread has at a time; `None`: what is to be
    /// mounted is another.
    pub(super) fn make_held(&self, target: &[u8], fd: Option<c_int>) -> Option<Making> {
        if self.is_another(target, fd) || MAKING.swap(true, AcqRel) {
            return None;
        }
        let making = Making(());
        // It may have come while this one looked.
        (!self.is_another(target, fd)).then_some(making)
    }

    /// This life has the held mount, by that device.
    pub(crate) fn claim_mount(&self, fd: Option<c_int>) {
        if let Some(fd) = fd.filter(|fd| descriptors::is_device(*fd)) {
            MADE_WITH.store(fd, Relaxed);
        }
        CLAIMED.store(true, Relaxed);
    }

    /// Whether a mount that is made in steps, and begins, is another than the held one.
    pub(super) fn begins_another(&self) -> bool {
        self.has_mount()
    }

    /// Has `act` mount at `target`, for which `fd` becomes a device of its own.
    pub(super) fn mount_another(
        &self,
        target: &[u8],
        fd: Option<c_int>,
        act: impl Fn(&CStr) -> c_int,
    ) -> c_int {
        if let Some(fd) = fd.filter(|fd| descriptors::is_device(*fd))
            && !give_own_device(fd)
        {
            return -1;
        }
        let held = self.control().mountpoint();
        let Ok(place) = CString::new(whole(target, &whole(&held, &held))) else {
            real::set_errno(libc::EINVAL);
            return -1;
        };
        let done = self.outside(|| act(&place));
        if done == 0 {
            self.tell_another(place.to_bytes());
        }
        done
    }

    /// The daemon has another mount; where, as far as it is known.
    pub(crate) fn tell_another(&self, place: &[u8]) {
        let control = self.control();
        control.raise(Flags::SEVERAL);
        control.lose(Loss::Second, &String::from_utf8_lossy(place));
        self.tell();
    }

    /// Whether a /dev/fuse that the daemon has received is that of another mount.
    pub(crate) fn is_of_another(&self, fd: c_int) -> bool {
        let differs = |other| is_same(fd, other) == Some(false);
        match self.mailbox.look() {
            // What is in there is that of the held mount, whether it has been received yet or not.
            Some(mail) => differs(mail.as_raw_fd()) && differs(self.device.as_raw_fd()),
            None => self.mailbox.is_settled() && differs(self.device.as_raw_fd()),
        }
    }

    /// Does `act`, a system call that changes the mount table, where everybody sees it: a successor
    /// has a mount namespace of its own. Gives what it gives.
    pub(super) fn outside(&self, act: impl Fn() -> c_int) -> c_int {
        let Some(outer) = &self.outer else { return act() };
        // A child that tells nobody of its end, so that the daemon does not hear of it. SAFETY: the
        // child is a copy of this process with this thread alone, makes system calls only, and
        // ends.
        let child = unsafe { syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        if child == 0 {
            // SAFETY: an open descriptor of a mount namespace. This process has one thread, as
            // setns(2) demands.
            let there = unsafe { syscall(libc::SYS_setns, outer.as_raw_fd(), libc::CLONE_NEWNS) };
            let why = if there < 0 || act() < 0 { real::errno() } else { 0 };
            // SAFETY: ends this process at once: its exit handlers are the daemon's.
            unsafe { libc::_exit(why & 0xff) }
        }
        let mut status = 0;
        let why = loop {
            if child < 0 {
                break real::errno();
            }
            // SAFETY: the child just made, and the place of a number.
            if unsafe { libc::waitpid(child as c_int, &raw mut status, libc::__WALL) } >= 0 {
                break if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { libc::EIO };
            }
            if real::errno() != libc::EINTR {
                break real::errno();
            }
        };
        if why == 0 {
            return 0;
        }
        real::set_errno(why);
        -1
    }
}

/// umount2(2) by a successor of what may be another mount of its daemon: where everybody sees it.
/// Whether that was done.
pub(super) fn unmounts_another(target: &CStr, how: c_int) -> bool {
    let Some(shim) = shim().filter(|shim| shim.outer.is_some()) else { return false };
    if !shim.control().has(Flags::SEVERAL) || !target.to_bytes().starts_with(b"/") {
        return false;
    }
    let away = || {
        // SAFETY: a C string and flags.
        let done: c_long = unsafe { syscall(libc::SYS_umount2, target.as_ptr(), how) };
        done as c_int
    };
    let before = real::errno();
    let done = shim.outside(away) == 0;
    real::set_errno(before);
    done
}

/// mount(2) itself.
///
/// # Safety
/// As that.
pub(super) unsafe fn mount_at(
    place: &CStr,
    source: *const libc::c_char,
    kind: *const libc::c_char,
    how: c_ulong,
    data: *const c_void,
) -> c_int {
    // SAFETY: by the caller's contract; the place is a live string. No function of libc's: this may
    // be a child of a process with threads.
    unsafe { syscall(libc::SYS_mount, source, place.as_ptr(), kind, how, data) as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn the_device_is_told_from_the_other_options() {
        assert_eq!(device_in(b"rw,fd=7,rootmode=40000"), Some(7));
        for options in [&b""[..], b"fds=7", b"xfd=7", b"fd=", b"fd=x", b"fd=99999999999"] {
            assert_eq!(device_in(options), None);
        }
    }

    #[test]
    fn descriptions_are_told_from_each_other() {
        let [one, other] = [(); 2].map(|()| File::open("/dev/null").expect("null"));
        let copy = one.try_clone().expect("dup");
        let (one, copy, other) = (one.as_raw_fd(), copy.as_raw_fd(), other.as_raw_fd());
        assert!(matches!(is_same(one, copy), Some(true) | None));
        assert!(matches!(is_same(one, other), Some(false) | None));
    }
}
