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

/// Has the call at whose entry a thread is stopped do nothing. Its number lies out of reach here (a register set of its
/// own), so all its arguments are made ones that no call with an effect takes: no descriptor and no address.
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
