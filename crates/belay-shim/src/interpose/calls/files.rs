//! Calls that write files and read them.

use super::{on_file, on_name, syscall};
use crate::descriptors::{Sink, is_image, sink};
use crate::effects::journal::{About, Call, arguments, effect, read};
use crate::effects::{Policy, policy};
use crate::real;
use crate::start::shim;
use belay_effects::Kind;
use libc::{AT_FDCWD, c_char, c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};

/// FALLOC_FL_COLLAPSE_RANGE and FALLOC_FL_INSERT_RANGE.
const SHIFTS: c_int = 0x08 | 0x20;
/// How much of what is written is compared when it is written again: its two ends.
const SAMPLE: usize = 64;

/// What a write at the position of `fd` is.
fn kind_of(fd: c_int) -> Kind {
    match sink(fd, || look_at(fd)) {
        Sink::File => Kind::Write,
        Sink::End => Kind::Append,
        Sink::Stream => Kind::Send,
    }
}

fn look_at(fd: c_int) -> Sink {
    // SAFETY: a zeroed stat is a valid value of that plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let file = syscall!(SYS_fstat, fd, &raw mut stat) == 0
        && matches!(stat.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK);
    let flags = syscall!(SYS_fcntl, fd, libc::F_GETFL);
    match file {
        false => Sink::Stream,
        true if flags >= 0 && flags as c_int & libc::O_APPEND != 0 => Sink::End,
        true => Sink::File,
    }
}

fn is_pipe(fd: c_int) -> bool {
    // SAFETY: a zeroed stat is a valid value of that plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    syscall!(SYS_fstat, fd, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// Whether what is written to `fd` goes to the end of the file: on Linux also what pwrite(2) writes.
fn appends(fd: c_int) -> bool {
    kind_of(fd) == Kind::Append
}

/// The memory of an iovec of the daemon's.
fn part<'a>(part: &iovec) -> &'a [u8] {
    slice(part.iov_base, part.iov_len)
}

/// Memory of the daemon's that a call reads.
fn slice<'a>(at: *const c_void, len: usize) -> &'a [u8] {
    if at.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the daemon's argument to a call that reads `len` bytes there until it returns.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) }
}

/// Memory of the daemon's that a call has filled.
fn filled<'a>(at: *mut c_void, len: usize) -> &'a mut [u8] {
    if at.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the daemon's argument to a read, which may write `len` bytes there until it returns;
    // its thread waits for us.
    unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) }
}

/// The iovecs of a call.
pub(in crate::interpose) fn parts<'a>(iov: *const iovec, count: c_int) -> &'a [iovec] {
    let count = usize::try_from(count).unwrap_or(0);
    if iov.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the daemon's argument to a vectored call: `count` iovecs, readable until it returns.
    unsafe { std::slice::from_raw_parts(iov, count) }
}

/// The ends of what is written.
fn sample(parts: &[iovec]) -> u64 {
    let ends = |part: &iovec| {
        let bytes = self::part(part);
        let head = bytes.get(..SAMPLE).unwrap_or(bytes);
        let tail = bytes.get(bytes.len().saturating_sub(SAMPLE)..).unwrap_or(bytes);
        arguments(Kind::Write, &[head, tail], &[bytes.len() as u64])
    };
    parts.iter().fold(0, |sum: u64, part| sum.rotate_left(7) ^ ends(part))
}

fn total(parts: &[iovec]) -> usize {
    parts.iter().map(|part| part.iov_len).sum()
}

/// write(2), writev(2) to anything but the device.
#[inline]
pub(in crate::interpose) fn write_here(
    fd: c_int,
    parts: &[iovec],
    make: impl Fn() -> isize,
) -> isize {
    if is_image(fd) {
        return image_here(fd, parts, false);
    }
    if policy() == Policy::None {
        return make();
    }
    if fd == libc::STDERR_FILENO && sink(fd, || look_at(fd)) == Sink::Stream {
        return make(); // what a daemon says changes nothing
    }
    let call = || {
        let kind = kind_of(fd);
        let length = total(parts) as u64;
        let digest = arguments(kind, &[], &[length, sample(parts)]);
        Call { kind, digest, about: About::File(fd), length }
    };
    effect(call, make, || 0)
}

/// read(2), readv(2) of anything but the device.
#[inline]
pub(in crate::interpose) fn read_here(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    make: impl Fn() -> isize,
) -> isize {
    if is_image(fd) {
        return image_here(fd, &[iovec { iov_base: at, iov_len: len }], true);
    }
    if policy() == Policy::None || sink(fd, || look_at(fd)) == Sink::Stream {
        return make(); // what has come through a pipe or a connection comes anew to each life
    }
    let digest = || arguments(Kind::Read, &[], &[len as u64]);
    read(Kind::Read, digest, (at.cast(), len), length, make, Some(fd))
}

/// Reads or writes the image at the position of its descriptor.
pub(in crate::interpose) fn image_here(fd: c_int, parts: &[iovec], reads: bool) -> isize {
    let at = syscall!(SYS_lseek, fd, 0, libc::SEEK_CUR);
    if at < 0 {
        return at;
    }
    let done = image_at(fd, parts, at as i64, reads);
    if done > 0 {
        syscall!(SYS_lseek, fd, at + done, libc::SEEK_SET);
    }
    done
}

/// Reads or writes the image at an offset.
fn image_at(fd: c_int, parts: &[iovec], offset: i64, reads: bool) -> isize {
    let Some(shim) = shim() else {
        real::set_errno(libc::EBADF);
        return -1;
    };
    let mut done = 0_isize;
    for part in parts {
        let at = offset + done as i64;
        let n = if reads {
            let n = syscall!(SYS_pread64, fd, part.iov_base, part.iov_len, at);
            shim.image_read(n, filled(part.iov_base, part.iov_len), at)
        } else {
            shim.image_write(fd, self::part(part), at)
        };
        if n < 0 {
            return if done > 0 { done } else { n };
        }
        done += n;
        if (n as usize) < part.iov_len {
            break;
        }
    }
    done
}

fn length(result: isize) -> usize {
    usize::try_from(result).unwrap_or(0)
}

/// A write at an offset.
fn write_at(fd: c_int, parts: &[iovec], offset: off_t, make: impl Fn() -> isize) -> isize {
    if is_image(fd) {
        return image_at(fd, parts, offset, false);
    }
    let call = || {
        let length = total(parts) as u64;
        let kind = if appends(fd) { Kind::Append } else { Kind::WriteAt };
        let digest = arguments(kind, &[], &[offset as u64, length, sample(parts)]);
        Call { kind, digest, about: About::File(fd), length }
    };
    effect(call, make, || 0)
}

/// pread(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pread(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    offset: off_t,
) -> ssize_t {
    if is_image(fd) {
        return image_at(fd, &[iovec { iov_base: at, iov_len: len }], offset, true);
    }
    let digest = || arguments(Kind::ReadAt, &[], &[offset as u64, len as u64]);
    let make = || syscall!(SYS_pread64, fd, at, len, offset);
    read(Kind::ReadAt, digest, (at.cast(), len), length, make, None)
}

/// pread64(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pread64(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { pread(fd, at, len, offset) }
}

macro_rules! checked {
    ($($name:ident;)*) => {$(
        /// pread(2) as _FORTIFY_SOURCE calls it.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            at: *mut c_void,
            len: size_t,
            offset: off_t,
            room: size_t,
        ) -> ssize_t {
            if len > room {
                std::process::abort(); // as glibc does
            }
            // SAFETY: the caller's arguments.
            unsafe { pread(fd, at, len, offset) }
        }
    )*};
}

checked! {
    __pread_chk;
    __pread64_chk;
}

macro_rules! vectored_reads {
    ($($name:ident;)*) => {$(
        /// preadv(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            iov: *const iovec,
            count: c_int,
            offset: off_t,
        ) -> ssize_t {
            if is_image(fd) {
                return image_at(fd, parts(iov, count), offset, true);
            }
            // Not logged: what is read in parts is not compared.
            syscall!(SYS_preadv, fd, iov, count, offset, 0)
        }
    )*};
}

vectored_reads! {
    preadv;
    preadv64;
}

macro_rules! vectored_reads_with_flags {
    ($($name:ident;)*) => {$(
        /// preadv2(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            iov: *const iovec,
            count: c_int,
            offset: off_t,
            flags: c_int,
        ) -> ssize_t {
            match (is_image(fd), offset) {
                (true, -1) => image_here(fd, parts(iov, count), true),
                (true, _) => image_at(fd, parts(iov, count), offset, true),
                _ => syscall!(SYS_preadv2, fd, iov, count, offset, 0, flags),
            }
        }
    )*};
}

vectored_reads_with_flags! {
    preadv2;
    preadv64v2;
}

macro_rules! writes {
    ($($name:ident;)*) => {$(
        /// pwrite(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            at: *const c_void,
            len: size_t,
            offset: off_t,
        ) -> ssize_t {
            let part = [iovec { iov_base: at.cast_mut(), iov_len: len }];
            write_at(fd, &part, offset, || syscall!(SYS_pwrite64, fd, at, len, offset))
        }
    )*};
}

writes! {
    pwrite;
    pwrite64;
}

macro_rules! vectored_writes {
    ($($name:ident;)*) => {$(
        /// pwritev(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            iov: *const iovec,
            count: c_int,
            offset: off_t,
        ) -> ssize_t {
            let make = || syscall!(SYS_pwritev, fd, iov, count, offset, 0);
            write_at(fd, parts(iov, count), offset, make)
        }
    )*};
}

vectored_writes! {
    pwritev;
    pwritev64;
}

macro_rules! vectored_writes_with_flags {
    ($($name:ident;)*) => {$(
        /// pwritev2(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            iov: *const iovec,
            count: c_int,
            offset: off_t,
            flags: c_int,
        ) -> ssize_t {
            let make = || syscall!(SYS_pwritev2, fd, iov, count, offset, 0, flags);
            if offset == -1 {
                return write_here(fd, parts(iov, count), make);
            }
            write_at(fd, parts(iov, count), offset, make)
        }
    )*};
}

vectored_writes_with_flags! {
    pwritev2;
    pwritev64v2;
}

macro_rules! lengths {
    ($($by_name:ident, $by_file:ident;)*) => {$(
        /// truncate(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $by_name(path: *const c_char, length: off_t) -> c_int {
            let make = || syscall!(SYS_truncate, path, length);
            on_name(Kind::Truncate, (AT_FDCWD, path), &[length as u64], make)
        }

        /// ftruncate(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $by_file(fd: c_int, length: off_t) -> c_int {
            beyond_writes(fd);
            let make = || syscall!(SYS_ftruncate, fd, length);
            on_file(Kind::Truncate, fd, &[length as u64], make) as c_int
        }
    )*};
}

lengths! {
    truncate, ftruncate;
    truncate64, ftruncate64;
}

/// The image, if `fd` is that, is about to be changed otherwise than by a write.
pub(in crate::interpose) fn beyond_writes(fd: c_int) {
    if is_image(fd)
        && let Some(shim) = shim()
    {
        shim.image_beyond();
    }
}

fn allocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    beyond_writes(fd);
    let kind = if mode & SHIFTS != 0 { Kind::Shift } else { Kind::Allocate };
    let make = || syscall!(SYS_fallocate, fd, mode, offset, length);
    on_file(kind, fd, &[mode as u64, offset as u64, length as u64], make) as c_int
}

macro_rules! allocations {
    ($($name:ident, $posix:ident;)*) => {$(
        /// fallocate(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            mode: c_int,
            offset: off_t,
            length: off_t,
        ) -> c_int {
            allocate(fd, mode, offset, length)
        }

        /// posix_fallocate(3), on file systems that can allocate; others are filled by libc.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $posix(fd: c_int, offset: off_t, length: off_t) -> c_int {
            let errno = real::errno();
            let done = allocate(fd, 0, offset, length);
            let failed = real::errno();
            real::set_errno(errno); // this function leaves it alone, and returns it
            match done {
                0 => 0,
                // SAFETY: the caller's arguments, unchanged. What it writes is zeros where
                // nothing was: twice is as good as once.
                _ if failed == libc::EOPNOTSUPP => unsafe { real::$posix(fd, offset, length) },
                _ => failed,
            }
        }
    )*};
}

allocations! {
    fallocate, posix_fallocate;
    fallocate64, posix_fallocate64;
}

/// copy_file_range(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let make = || syscall!(SYS_copy_file_range, from, from_at, to, to_at, len, flags);
    copy(to, len, make)
}

macro_rules! sends {
    ($($name:ident;)*) => {$(
        /// sendfile(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            to: c_int,
            from: c_int,
            from_at: *mut off_t,
            len: size_t,
        ) -> ssize_t {
            copy(to, len, || syscall!(SYS_sendfile, to, from, from_at, len))
        }
    )*};
}

sends! {
    sendfile;
    sendfile64;
}

/// splice(2) between anything but the device.
pub(in crate::interpose) fn splice_here(to: c_int, len: usize, make: impl Fn() -> isize) -> isize {
    if policy() == Policy::None {
        return make();
    }
    if kind_of(to) == Kind::Send && is_pipe(to) {
        return make(); // data on its way through the daemon
    }
    copy(to, len, make)
}

/// A copy within the kernel. What was copied is not given from the record, since the caller's offsets
/// would not follow: it is done again, and gives the same.
fn copy(to: c_int, len: usize, make: impl Fn() -> isize) -> isize {
    beyond_writes(to);
    let call = || {
        let kind = if kind_of(to) == Kind::Send { Kind::Send } else { Kind::Copy };
        let digest = arguments(kind, &[], &[len as u64]);
        Call { kind, digest, about: About::File(to), length: len as u64 }
    };
    effect(call, &make, &make)
}

macro_rules! syncs {
    ($($name:ident, $number:ident;)*) => {$(
        /// Makes a file durable. Of an image with a transaction under way: once that is carried out.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int) -> c_int {
            if is_image(fd)
                && let Some(done) = shim().and_then(crate::start::Shim::image_sync)
            {
                return done;
            }
            syscall!($number, fd) as c_int
        }
    )*};
}

syncs! {
    fsync, SYS_fsync;
    fdatasync, SYS_fdatasync;
}
