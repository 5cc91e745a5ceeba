//! Calls that write files and read them.

use super::image_io::{read_image_at, read_image_here, write_image_at, write_image_here};
use super::made::syscall;
use crate::argument::{Input, Output, Outputs};
use crate::descriptors::{Sink, is_image, sink, stat_of};
use crate::effects::journal::{About, Call, arguments, effect, read};
use crate::effects::matters;
use crate::interpose::io::{read_device, write_device};
use crate::shim::policy;
use belay_effects::Kind;
use belay_effects::journal::digest_of_write;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

/// How much of what is written is compared when it is written again: its two ends.
const SAMPLE: usize = 64;

/// What a write at the position of `fd` is.
pub(super) fn kind_of(fd: c_int) -> Kind {
    match sink(fd, || look_at(fd)) {
        Sink::File => Kind::Write,
        Sink::End => Kind::Append,
        Sink::Stream | Sink::Words => Kind::Send,
    }
}

fn look_at(fd: c_int) -> Sink {
    let Some(stat) = stat_of(fd) else { return Sink::Stream };
    let flags = || syscall!(SYS_fcntl, fd, libc::F_GETFL);
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFBLK => match flags() {
            flags if flags >= 0 && flags as c_int & libc::O_APPEND != 0 => Sink::End,
            _ => Sink::File,
        },
        // No type at all: an eventfd, which only wakes somebody up, and has to in each life.
        libc::S_IFCHR | 0 => Sink::Words,
        _ if matches!(fd, libc::STDOUT_FILENO | libc::STDERR_FILENO) => Sink::Words,
        _ => Sink::Stream,
    }
}

/// Whether what is written to `fd` goes to the end of the file: on Linux also what pwrite(2)
/// writes.
fn appends(fd: c_int) -> bool {
    kind_of(fd) == Kind::Append
}

/// The ends of what is written.
fn sample(parts: &[Input<'_>]) -> u64 {
    let ends = |part: &Input<'_>| {
        let bytes = part.bytes();
        let head = bytes.get(..SAMPLE).unwrap_or(bytes);
        let tail = bytes.get(bytes.len().saturating_sub(SAMPLE)..).unwrap_or(bytes);
        arguments(Kind::Write, &[head, tail], &[bytes.len() as u64])
    };
    parts.iter().fold(0, |sum: u64, part| sum.rotate_left(7) ^ ends(part))
}

/// A number for a write: where, how much, and what.
fn digest_of(kind: Kind, place: &[u64], parts: &[Input<'_>]) -> u64 {
    digest_of_write(arguments(kind, &[], place), arguments(kind, &[], &[sample(parts)]))
}

fn total(parts: &[Input<'_>]) -> usize {
    parts.iter().map(Input::len).sum()
}

/// write(2), writev(2) to anything but the device.
#[inline]
pub(in crate::interpose) fn write_here(
    fd: c_int,
    parts: &[Input<'_>],
    make: impl Fn() -> isize,
) -> isize {
    if is_image(fd) {
        return write_image_here(fd, parts);
    }
    if !matters() {
        return make();
    }
    if sink(fd, || look_at(fd)) == Sink::Words {
        return make(); // what a daemon says changes nothing
    }
    let call = || {
        let kind = kind_of(fd);
        let length = total(parts) as u64;
        let digest = digest_of(kind, &[length], parts);
        Call { kind, digest, about: About::File(fd), length }
    };
    effect(call, make, || 0)
}

/// read(2), readv(2) of anything but the device.
#[inline]
pub(in crate::interpose) fn read_here(
    fd: c_int,
    mut into: Output<'_>,
    make: impl Fn() -> isize,
) -> isize {
    if is_image(fd) {
        return read_image_here(fd, &mut into.alone());
    }
    if !policy().records() || sink(fd, || look_at(fd)) == Sink::Stream {
        return make(); // what has come through a pipe or a connection comes anew to each life
    }
    let len = into.len() as u64;
    let digest = || arguments(Kind::Read, &[], &[len]);
    read(Kind::Read, digest, into, length, make, Some(fd))
}

fn length(result: isize) -> usize {
    usize::try_from(result).unwrap_or(0)
}

/// A write at an offset.
fn write_at(fd: c_int, parts: &[Input<'_>], offset: off_t, make: impl Fn() -> isize) -> isize {
    if is_image(fd) {
        return write_image_at(fd, parts, offset);
    }
    if let Some(n) = write_device(fd, parts) {
        return n;
    }
    let call = || {
        let length = total(parts) as u64;
        let (kind, about) = if appends(fd) {
            (Kind::Append, About::File(fd))
        } else {
            (Kind::WriteAt, About::Offset(fd, offset as u64))
        };
        let digest = digest_of(kind, &[offset as u64, length], parts);
        Call { kind, digest, about, length }
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
    // SAFETY: pread(2) fills at most `len` bytes at `at`, which are its caller's alone until it
    // returns.
    let mut into = unsafe { Output::new(at, len) };
    if is_image(fd) {
        return read_image_at(fd, &mut into.alone(), offset);
    }
    if let Some(n) = read_device(fd, &mut into.alone()) {
        return n;
    }
    let digest = || arguments(Kind::ReadAt, &[], &[offset as u64, len as u64]);
    let make = || syscall!(SYS_pread64, fd, at, len, offset);
    read(Kind::ReadAt, digest, into, length, make, None)
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
            // SAFETY: pwrite(2) reads `len` bytes at `at`, which its caller leaves as they are
            // until it returns.
            let part = [unsafe { Input::new(at, len) }];
            write_at(fd, &part, offset, || syscall!(SYS_pwrite64, fd, at, len, offset))
        }
    )*};
}

writes! {
    pwrite;
    pwrite64;
}

/// A vectored read; at the position of `fd` if `at` is none.
fn read_parts(
    fd: c_int,
    mut parts: Outputs<'_>,
    at: Option<off_t>,
    make: impl Fn() -> isize,
) -> isize {
    match (is_image(fd), at) {
        (true, Some(offset)) => read_image_at(fd, &mut parts, offset),
        (true, None) => read_image_here(fd, &mut parts),
        // Not logged: what is read in parts is not compared.
        _ => read_device(fd, &mut parts).unwrap_or_else(make),
    }
}

/// A vectored write; at the position of `fd` if `at` is none.
fn write_parts(
    fd: c_int,
    parts: &[Input<'_>],
    at: Option<off_t>,
    make: impl Fn() -> isize,
) -> isize {
    match at {
        Some(offset) => write_at(fd, parts, offset, make),
        None => write_device(fd, parts).unwrap_or_else(|| write_here(fd, parts, make)),
    }
}

/// Vectored calls at an offset. Those that take flags know an offset that means the position of the
/// descriptor.
macro_rules! vectored {
    ($($name:ident, $does:ident of $parts:path, $number:ident $(, $flags:ident, $here:literal)?;)*) => {$(
        /// preadv(2), preadv2(2), pwritev(2) or pwritev2(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            iov: *const iovec,
            count: c_int,
            offset: off_t,
            $($flags: c_int,)?
        ) -> ssize_t {
            let at = Some(offset)$(.filter(|offset| *offset != $here))?;
            let make = || syscall!($number, fd, iov, count, offset, 0 $(, $flags)?);
            // SAFETY: this call takes `count` iovecs at `iov`. What they name it reads, and then
            // its caller leaves that as it is until it returns; or fills, and then that is its
            // caller's alone for so long.
            let parts = unsafe { $parts(iov, usize::try_from(count).unwrap_or(0)) };
            $does(fd, parts, at, make)
        }
    )*};
}

vectored! {
    preadv, read_parts of Outputs::new, SYS_preadv;
    preadv64, read_parts of Outputs::new, SYS_preadv;
    preadv2, read_parts of Outputs::new, SYS_preadv2, flags, -1;
    preadv64v2, read_parts of Outputs::new, SYS_preadv2, flags, -1;
    pwritev, write_parts of Input::list, SYS_pwritev;
    pwritev64, write_parts of Input::list, SYS_pwritev;
    pwritev2, write_parts of Input::list, SYS_pwritev2, flags, -1;
    pwritev64v2, write_parts of Input::list, SYS_pwritev2, flags, -1;
}
