//! Connections and pipes: what has gone there is out of reach. It is put on record that something
//! has, so that a request that has sent nothing is known to have done nothing.

use super::made::syscall;
use crate::effects::journal::{About, Call, effect};
use belay_effects::Kind;
use libc::{c_int, c_uint, c_void, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

/// Something is sent: `length` bytes, or messages whose length is not looked at.
fn send_to(fd: c_int, length: Option<size_t>, make: impl Fn() -> isize) -> isize {
    let length = length.map_or(u64::MAX, |length| length as u64);
    let call = || Call { kind: Kind::Send, digest: 0, about: About::File(fd), length };
    effect(call, make, || 0)
}

/// send(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    at: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments; no address.
    unsafe { sendto(fd, at, len, flags, std::ptr::null(), 0) }
}

/// sendto(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    at: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    send_to(fd, Some(len), || syscall!(SYS_sendto, fd, at, len, flags, to, to_len))
}

/// sendmsg(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    send_to(fd, None, || syscall!(SYS_sendmsg, fd, message, flags))
}

/// sendmmsg(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    send_to(fd, None, || syscall!(SYS_sendmmsg, fd, messages, count, flags)) as c_int
}
