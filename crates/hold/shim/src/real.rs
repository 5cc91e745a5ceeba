//! The libc functions that the shim's own stand in front of.

use libc::{
    DIR, FILE, aiocb, c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec,
    loff_t, mode_t, msghdr, nfds_t, off_t, pid_t, pollfd, pthread_attr_t, pthread_t, sigevent,
    sigset_t, size_t, ssize_t, timespec, timeval,
};
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a new thread runs.
pub(crate) type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Where libc's function of that name is; 0 if it has none.
fn look_up(cache: &AtomicUsize, name: &CStr) -> usize {
    // SAFETY: `name` is a NUL-terminated string that lives for the call; dlsym keeps no pointer.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    cache.store(found, Relaxed);
    found
}

/// Looked up by [`prepare`], or here where other constructors of the process run before it.
fn next(cache: &AtomicUsize, name: &CStr) -> usize {
    let known = cache.load(Relaxed);
    if known != 0 {
        return known;
    }
    let found = look_up(cache, name);
    if found == 0 {
        // libc without one of its own functions: there is nothing that could be called instead.
        std::process::abort();
    }
    found
}

macro_rules! real {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $symbol:literal;)*) => {
    /// Looks all of them up. Later would be too late: a handler of a signal may interrupt whoever
    /// has the loader's lock, and between fork and exec that may be held by a thread that does not
    /// exist in the child.
    pub(crate) fn prepare() {
        $(look_up(&addresses::$name, $symbol);)*
        look_up(&VFORK, c"vfork");
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn all_functions_are_looked_up_beforehand() {
            prepare();
            $(assert_ne!(addresses::$name.load(Relaxed), 0, "{:?}", $symbol);)*
            assert_ne!(VFORK.load(Relaxed), 0);
        }
    }

    /// Where they are, as far as it is known.
    #[expect(non_upper_case_globals, reason = "named like the functions")]
    mod addresses {
        use std::sync::atomic::AtomicUsize;
        $(pub(super) static $name: AtomicUsize = AtomicUsize::new(0);)*
    }
    $(
        $(#[$doc])*
        ///
        /// # Safety
        /// That of the libc function, which is called with the same arguments.
        #[inline]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
            let address = next(&addresses::$name, $symbol);
            // SAFETY: the address is that of the libc symbol, whose C signature is this one.
            let function = unsafe {
                std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(address)
            };
            // SAFETY: the caller keeps the libc function's contract.
            unsafe { function($($arg),*) }
        }
    )*
    };
}

real! {
    /// read(2); a cancellation point.
    read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t = c"read";
    /// readv(2); a cancellation point.
    readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = c"readv";
    /// write(2).
    write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t = c"write";
    /// writev(2).
    writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = c"writev";
    /// splice(2); a cancellation point.
    splice(from: c_int, from_off: *mut loff_t, to: c_int, to_off: *mut loff_t, len: size_t, flags: c_uint) -> ssize_t = c"splice";
    /// vmsplice(2).
    vmsplice(fd: c_int, iov: *const iovec, count: size_t, flags: c_uint) -> ssize_t = c"vmsplice";
    /// openat(2).
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = c"openat";
    /// close(2).
    close(fd: c_int) -> c_int = c"close";
    /// poll(2); a cancellation point.
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = c"poll";
    /// ppoll(2); a cancellation point.
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int = c"ppoll";
    /// select(2); a cancellation point.
    select(count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *mut timeval) -> c_int = c"select";
    /// pselect(2); a cancellation point.
    pselect(count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = c"pselect";
    /// epoll_ctl(2).
    epoll_ctl(set: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int = c"epoll_ctl";
    /// epoll_wait(2); a cancellation point.
    epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int = c"epoll_wait";
    /// epoll_pwait(2); a cancellation point.
    epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int = c"epoll_pwait";
    /// epoll_pwait2(2); a cancellation point.
    epoll_pwait2(set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int = c"epoll_pwait2";
    /// ioctl(2).
    ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int = c"ioctl";
    /// mount(2).
    mount(source: *const c_char, target: *const c_char, kind: *const c_char, flags: c_ulong, data: *const c_void) -> c_int = c"mount";
    /// umount(2).
    umount(target: *const c_char) -> c_int = c"umount";
    /// umount2(2).
    umount2(target: *const c_char, flags: c_int) -> c_int = c"umount2";
    /// recvmsg(2); a cancellation point.
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = c"recvmsg";
    /// access(2).
    access(path: *const c_char, mode: c_int) -> c_int = c"access";
    /// faccessat(2).
    faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int = c"faccessat";
    /// fchmodat(2).
    fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int = c"fchmodat";
    /// posix_fallocate(3).
    posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int = c"posix_fallocate";
    /// posix_fallocate64(3).
    posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int = c"posix_fallocate64";
    /// aio_read(3).
    aio_read(block: *mut aiocb) -> c_int = c"aio_read";
    /// The same.
    aio_read64(block: *mut aiocb) -> c_int = c"aio_read64";
    /// aio_write(3).
    aio_write(block: *mut aiocb) -> c_int = c"aio_write";
    /// The same.
    aio_write64(block: *mut aiocb) -> c_int = c"aio_write64";
    /// lio_listio(3).
    lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int = c"lio_listio";
    /// The same.
    lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int = c"lio_listio64";
    /// clock_gettime(2).
    clock_gettime(clock: libc::clockid_t, out: *mut libc::timespec) -> c_int = c"clock_gettime";
    /// gettimeofday(2).
    gettimeofday(out: *mut libc::timeval, zone: *mut c_void) -> c_int = c"gettimeofday";
    /// time(2).
    time(out: *mut libc::time_t) -> libc::time_t = c"time";
    /// statvfs(3).
    statvfs(path: *const c_char, into: *mut libc::statvfs) -> c_int = c"statvfs";
    /// fstatvfs(3).
    fstatvfs(fd: c_int, into: *mut libc::statvfs) -> c_int = c"fstatvfs";
    /// statvfs64(3).
    statvfs64(path: *const c_char, into: *mut libc::statvfs) -> c_int = c"statvfs64";
    /// fstatvfs64(3).
    fstatvfs64(fd: c_int, into: *mut libc::statvfs) -> c_int = c"fstatvfs64";
    /// dup2(2).
    dup2(from: c_int, to: c_int) -> c_int = c"dup2";
    /// dup3(2).
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int = c"dup3";
    /// fopen(3).
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = c"fopen";
    /// The same.
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE = c"fopen64";
    /// freopen(3).
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = c"freopen";
    /// The same.
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = c"freopen64";
    /// fdopen(3).
    fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = c"fdopen";
    /// fclose(3).
    fclose(stream: *mut FILE) -> c_int = c"fclose";
    /// fcntl(2); a cancellation point.
    fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int = c"fcntl";
    /// The same.
    fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int = c"fcntl64";
    /// mkstemp(3).
    mkstemp(template: *mut c_char) -> c_int = c"mkstemp";
    /// mkstemp(3).
    mkstemp64(template: *mut c_char) -> c_int = c"mkstemp64";
    /// mkostemp(3).
    mkostemp(template: *mut c_char, flags: c_int) -> c_int = c"mkostemp";
    /// mkostemp(3).
    mkostemp64(template: *mut c_char, flags: c_int) -> c_int = c"mkostemp64";
    /// mkstemps(3).
    mkstemps(template: *mut c_char, suffix: c_int) -> c_int = c"mkstemps";
    /// mkostemps(3).
    mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = c"mkostemps";
    /// mkdtemp(3).
    mkdtemp(template: *mut c_char) -> *mut c_char = c"mkdtemp";
    /// tmpfile(3).
    tmpfile() -> *mut FILE = c"tmpfile";
    /// memfd_create(2).
    memfd_create(name: *const c_char, flags: c_uint) -> c_int = c"memfd_create";
    /// fork(2).
    fork() -> pid_t = c"fork";
    /// system(3).
    system(command: *const c_char) -> c_int = c"system";
    /// popen(3).
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE = c"popen";
    /// pthread_create(3).
    pthread_create(thread: *mut pthread_t, attributes: *const pthread_attr_t, start: Start, argument: *mut c_void) -> c_int = c"pthread_create";
    /// chdir(2).
    chdir(path: *const c_char) -> c_int = c"chdir";
    /// opendir(3).
    opendir(path: *const c_char) -> *mut DIR = c"opendir";
    /// scandir(3), with its two functions.
    scandir(path: *const c_char, into: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int = c"scandir";
    /// statfs(2).
    statfs(path: *const c_char, into: *mut libc::statfs) -> c_int = c"statfs";
    /// realpath(3).
    realpath(path: *const c_char, into: *mut c_char) -> *mut c_char = c"realpath";
    /// sigaction(2).
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int = c"sigaction";
    /// signal(2).
    signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t = c"signal";
    /// signal(2), as System V has it.
    sysv_signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t = c"__sysv_signal";
    /// siginterrupt(3).
    siginterrupt(signal: c_int, interrupts: c_int) -> c_int = c"siginterrupt";
    /// sigtimedwait(2); a cancellation point.
    sigtimedwait(signals: *const libc::sigset_t, info: *mut libc::siginfo_t, limit: *const libc::timespec) -> c_int = c"sigtimedwait";
    /// signalfd(2).
    signalfd(fd: c_int, signals: *const libc::sigset_t, flags: c_int) -> c_int = c"signalfd";
    /// execvpe(3).
    execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int = c"execvpe";
    /// posix_spawn(3).
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: Strings, envp: Strings) -> c_int = c"posix_spawn";
    /// posix_spawnp(3).
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, argv: Strings, envp: Strings) -> c_int = c"posix_spawnp";
}

/// The arguments or the environment of a program.
pub(crate) type Strings = *const *const c_char;

/// vfork(2) comes back twice, so nothing but a jump can lead there.
static VFORK: AtomicUsize = AtomicUsize::new(0);

/// Where vfork(2) is.
pub(crate) fn vfork_address() -> usize {
    next(&VFORK, c"vfork")
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: __errno_location always returns a valid pointer to the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is valid and only this thread uses it.
    unsafe { *place = errno };
}

/// What a call gives that fails with `errno`.
pub(crate) fn fail(errno: i32) -> isize {
    set_errno(errno);
    -1
}

/// The calling thread's errno.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Ends the calling thread if that was asked for (pthread_cancel) and it lets that happen now:
/// read(2) of the device, which is a cancellation point, may be put off for long. To be called
/// where nothing with a destructor lives.
pub(crate) fn look_for_cancellation() {
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }
    // SAFETY: it takes nothing, and returns or unwinds; the frames up to the daemon's have no
    // destructors.
    unsafe { pthread_testcancel() };
}
