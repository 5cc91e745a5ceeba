//! The registers of a stopped thread: all that depends on the machine, but for system call numbers.

use nix::sys::ptrace;
use nix::unistd::Pid;

/// A system call as the thread asked for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// Its number.
    pub(crate) number: i64,
    /// Its arguments.
    pub(crate) args: [u64; 6],
}

/// The call at whose entry a thread is stopped.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call(thread: Pid) -> nix::Result<Call> {
    let r = ptrace::getregs(thread)?;
    let number = i64::from_ne_bytes(r.orig_rax.to_ne_bytes());
    Ok(Call { number, args: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] })
}

/// What the call at whose exit a thread is stopped returned.
#[cfg(target_arch = "x86_64")]
pub(crate) fn result(thread: Pid) -> nix::Result<i64> {
    Ok(i64::from_ne_bytes(ptrace::getregs(thread)?.rax.to_ne_bytes()))
}

/// Has the call at whose entry a thread is stopped do nothing.
#[cfg(target_arch = "x86_64")]
pub(crate) fn cancel(thread: Pid) -> nix::Result<()> {
    let mut r = ptrace::getregs(thread)?;
    r.orig_rax = u64::MAX;
    ptrace::setregs(thread, r)
}

/// Has a stopped thread go on at the address 0, where nothing is.
#[cfg(target_arch = "x86_64")]
pub(crate) fn lead_astray(thread: Pid) -> nix::Result<()> {
    let mut r = ptrace::getregs(thread)?;
    r.rip = 0;
    ptrace::setregs(thread, r)
}

/// The call at whose entry a thread is stopped.
#[cfg(target_arch = "aarch64")]
pub(crate) fn call(thread: Pid) -> nix::Result<Call> {
    let r = ptrace::getregs(thread)?.regs;
    let number = i64::from_ne_bytes(r[8].to_ne_bytes());
    Ok(Call { number, args: [r[0], r[1], r[2], r[3], r[4], r[5]] })
}

/// What the call at whose exit a thread is stopped returned.
#[cfg(target_arch = "aarch64")]
pub(crate) fn result(thread: Pid) -> nix::Result<i64> {
    Ok(i64::from_ne_bytes(ptrace::getregs(thread)?.regs[0].to_ne_bytes()))
}

/// Has the call at whose entry a thread is stopped do nothing. Its number lies out of reach here (a
/// register set of its own), so all its arguments are made ones that no call with an effect takes:
/// no descriptor and no address.
#[cfg(target_arch = "aarch64")]
pub(crate) fn cancel(thread: Pid) -> nix::Result<()> {
    let mut r = ptrace::getregs(thread)?;
    r.regs[..6].fill(u64::MAX);
    ptrace::setregs(thread, r)
}

/// Has a stopped thread go on at the address 0, where nothing is.
#[cfg(target_arch = "aarch64")]
pub(crate) fn lead_astray(thread: Pid) -> nix::Result<()> {
    let mut r = ptrace::getregs(thread)?;
    r.pc = 0;
    ptrace::setregs(thread, r)
}

/// What it takes to stop a thread at a function.
#[cfg(target_arch = "x86_64")]
pub(crate) mod functions {
    use super::{Call, Pid, ptrace};
    use crate::memory;
    use belay_wire::errno::EINTR;

    /// The instruction that stops a thread, and whether there is one here.
    pub(crate) const BREAK: Option<u8> = Some(0xcc);
    /// What the kernel's own code for "to be done again" looks like (ERESTARTSYS to
    /// ERESTART_RESTARTBLOCK).
    const AGAIN: std::ops::RangeInclusive<i64> = -516..=-512;

    /// The address at which a thread has run into that instruction; it is put back to there.
    pub(crate) fn back_up(thread: Pid, is_one: impl Fn(u64) -> bool) -> nix::Result<Option<u64>> {
        let mut r = ptrace::getregs(thread)?;
        let at = r.rip.wrapping_sub(1);
        if !is_one(at) {
            return Ok(None);
        }
        r.rip = at;
        ptrace::setregs(thread, r)?;
        Ok(Some(at))
    }

    /// The call of the function at whose entry a thread is stopped, as the system call `number`;
    /// where it returns to; the stack pointer then.
    pub(crate) fn entered(thread: Pid, number: i64) -> nix::Result<(Call, u64, u64)> {
        let r = ptrace::getregs(thread)?;
        let call = Call { number, args: [r.rdi, r.rsi, r.rdx, r.rcx, r.r8, r.r9] };
        Ok((call, memory::word(thread, r.rsp), r.rsp.wrapping_add(8)))
    }

    /// The stack pointer.
    pub(crate) fn stack(thread: Pid) -> nix::Result<u64> {
        Ok(ptrace::getregs(thread)?.rsp)
    }

    /// Has the system call that a thread has been taken out of, and would make again, return EINTR
    /// instead, if `wanted` says so of it.
    pub(crate) fn interrupt(thread: Pid, wanted: impl Fn(&Call) -> bool) -> nix::Result<()> {
        let call = super::call(thread)?;
        let mut r = ptrace::getregs(thread)?;
        if AGAIN.contains(&super::result(thread)?) && wanted(&call) {
            r.rax = u64::from_ne_bytes(i64::from(-EINTR).to_ne_bytes());
            r.orig_rax = u64::MAX;
            ptrace::setregs(thread, r)?;
        }
        Ok(())
    }
}

/// Not on this machine.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod functions {
    use super::{Call, Pid};
    use nix::errno::Errno;

    pub(crate) const BREAK: Option<u8> = None;

    pub(crate) fn back_up(_: Pid, _: impl Fn(u64) -> bool) -> nix::Result<Option<u64>> {
        Err(Errno::ENOSYS)
    }

    pub(crate) fn entered(_: Pid, _: i64) -> nix::Result<(Call, u64, u64)> {
        Err(Errno::ENOSYS)
    }

    pub(crate) fn stack(_: Pid) -> nix::Result<u64> {
        Err(Errno::ENOSYS)
    }

    pub(crate) fn interrupt(_: Pid, _: impl Fn(&Call) -> bool) -> nix::Result<()> {
        Ok(())
    }
}
