//! What is put on record of a crash, for the report.

use super::raw::{process_id, thread_id};
use crate::effects::tag;
use crate::shim::Shim;
use belay_effects::remains::{self, Head, Machine, REGISTERS_MAX};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PAGE: usize = 4096;

#[cfg(target_arch = "x86_64")]
fn registers(context: &ucontext_t) -> (Machine, [u64; REGISTERS_MAX], u64) {
    let mut out = [0; REGISTERS_MAX];
    for (register, place) in context.uc_mcontext.gregs.iter().zip(&mut out) {
        *place = *register as u64;
    }
    let top = context.uc_mcontext.gregs.get(libc::REG_RSP as usize);
    (Machine::X86_64, out, top.map_or(0, |top| *top as u64))
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &ucontext_t) -> (Machine, [u64; REGISTERS_MAX], u64) {
    let machine = &context.uc_mcontext;
    let mut out = [0; REGISTERS_MAX];
    let all = machine.regs.iter().chain([&machine.sp, &machine.pc, &machine.pstate]);
    for (register, place) in all.zip(&mut out) {
        *place = *register;
    }
    (Machine::Aarch64, out, machine.sp)
}

/// Writes them.
pub(super) fn write(shim: &Shim, signal: c_int, info: &siginfo_t, context: &ucontext_t) {
    let (machine, registers, top) = registers(context);
    let sent = matches!(info.si_code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL);
    // SAFETY: signals that somebody sent carry who that was.
    let sender = if sent { unsafe { info.si_pid() as u32 } } else { 0 };
    // SAFETY: signals that the kernel sends for an instruction carry its address, or zeros.
    let address = if info.si_code > 0 { unsafe { info.si_addr() as u64 } } else { 0 };
    let tag = tag::get();
    remains::clear(&**shim.host.memory(), shim.host.layout());
    let (stack_at, stack_bytes) = copy_stack(shim, top);
    let head = Head {
        generation: shim.host.generation(),
        machine,
        signal,
        code: info.si_code,
        address,
        sender,
        process: process_id() as u32,
        thread: thread_id() as u32,
        unique: tag.unique,
        opcode: tag.opcode,
        registers,
        stack_at,
        stack_bytes,
        maps_bytes: copy_maps(shim),
        message_bytes: copy_message(shim),
    };
    remains::seal(&**shim.host.memory(), shim.host.layout(), &head);
}

/// The address of the recorder's byte `at`; `None` if it has no `len` bytes from there on.
fn address(shim: &Shim, at: usize, len: usize) -> Option<*mut c_void> {
    let words = shim.host.memory().words();
    let lies_within = at.checked_add(len).is_some_and(|end| end <= size_of_val(words));
    lies_within.then(|| words.as_ptr().cast_mut().cast::<u8>().wrapping_add(at).cast())
}

/// Copies the stack from `top` on. A thread that has used it up has `top` below its end: what can
/// be read begins a little above. Gives where that is and how much there was.
fn copy_stack(shim: &Shim, top: u64) -> (u64, usize) {
    let (room_at, room) = remains::stack_room(shim.host.layout());
    let Ok(from) = usize::try_from(top) else { return (0, 0) };
    copy(shim, from, room_at, room)
}

/// Where glibc keeps the address of the last message of a failed assertion or of its heap; 0 where
/// there is no such place.
static MESSAGE: AtomicUsize = AtomicUsize::new(0);

/// Finds out what cannot be found out in a handler.
pub(super) fn prepare() {
    // SAFETY: dlsym(3) with a NUL-terminated literal; it keeps no pointer.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__abort_msg".as_ptr()) };
    MESSAGE.store(found as usize, Relaxed);
}

/// Copies what the C library has said when it gave up: behind its length, up to a zero. Gives how
/// much there was.
fn copy_message(shim: &Shim) -> usize {
    let place = MESSAGE.load(Relaxed) as *const AtomicUsize;
    if place.is_null() {
        return 0;
    }
    // SAFETY: the address of a pointer-sized, aligned variable of libc's, which is never unloaded;
    // libc stores to it atomically.
    let message = unsafe { (*place).load(Relaxed) };
    if message == 0 {
        return 0;
    }
    let (room_at, room) = remains::message_room(shim.host.layout());
    let (_, done) = copy(shim, message.wrapping_add(size_of::<libc::c_uint>()), room_at, room);
    done
}

/// Copies `room` bytes from `from` on to the recorder, byte `room_at`, or as much as there is. What
/// cannot be read at the beginning is passed over. Gives where that is and how much there was.
fn copy(shim: &Shim, mut from: usize, room_at: usize, room: usize) -> (u64, usize) {
    let mut start = None;
    let mut done = 0;
    for _ in 0..room / PAGE + 16 {
        // To the end of the page, so that a page that is not there corrupts no other.
        let len = (PAGE - from % PAGE).min(room - done);
        if len == 0 {
            break;
        }
        let Some(iov_base) = address(shim, room_at + done, len) else { break };
        let here = libc::iovec { iov_base, iov_len: len };
        let there = libc::iovec { iov_base: from as *mut c_void, iov_len: len };
        let (here, there) = (&raw const here, &raw const there);
        let (me, call) = (process_id(), libc::SYS_process_vm_readv);
        // SAFETY: process_vm_readv(2) into a place of that length in the recorder, which is only
        // seen as atomics; what is read is looked at by the kernel, which finds out whether it is
        // there.
        let got =
            unsafe { belay_sys::raw::syscall(call, me, here, 1_usize, there, 1_usize, 0_usize) };
        if got == len as libc::c_long {
            start.get_or_insert(from);
            done += len;
        } else if start.is_some() {
            break;
        }
        let Some(next) = from.checked_add(len) else { break };
        from = next;
    }
    (start.unwrap_or(0) as u64, done)
}

/// Copies /proc/self/maps.
fn copy_maps(shim: &Shim) -> usize {
    let (room_at, room) = remains::maps_room(shim.host.layout());
    let (path, flags) = (c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
    // SAFETY: openat(2) with a NUL-terminated literal.
    let file = unsafe { belay_sys::raw::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0) };
    if file < 0 {
        return 0;
    }
    let mut done = 0;
    while done < room {
        let Some(at) = address(shim, room_at + done, room - done) else { break };
        // SAFETY: read(2) into a place of that length in the recorder, which is only seen as
        // atomics.
        let got = unsafe { belay_sys::raw::syscall(libc::SYS_read, file, at, room - done) };
        match usize::try_from(got) {
            Ok(got) if (1..=room - done).contains(&got) => done += got,
            _ => break,
        }
    }
    // SAFETY: close(2) of the descriptor just opened.
    unsafe { belay_sys::raw::syscall(libc::SYS_close, file) };
    done
}
