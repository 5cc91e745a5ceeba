//! syscall(2), past whatever stands in front of libc's.
//!
//! In a daemon that is the shim, which looks at what the daemon asks of the kernel by number. What
//! belay asks itself must not come there again.

use libc::{c_int, c_long};

/// Makes a system call, as libc's syscall(2): -1 with errno set if it fails.
///
/// # Safety
/// Calling it has the contract of the system call that it makes.
#[expect(non_upper_case_globals, reason = "it stands in the place of libc's function")]
pub const syscall: unsafe extern "C" fn(c_long, ...) -> c_long = {
    type Fixed = unsafe extern "C" fn(c_long, Word, Word, Word, Word, Word, Word) -> c_long;
    let fixed: Fixed = make;
    // SAFETY: on both machines (System V, AAPCS64 on Linux) arguments of a variadic function lie
    // where those of one with fixed ones lie. What was not given is of no meaning in its register,
    // or on the stack, and the kernel looks at none that the call does not have; libc's own
    // function does the same.
    unsafe { std::mem::transmute::<Fixed, unsafe extern "C" fn(c_long, ...) -> c_long>(fixed) }
};

/// An argument.
type Word = usize;

/// Errors are the last 4095 numbers.
extern "C" fn fail(result: c_long) -> c_long {
    // SAFETY: it always gives a valid pointer to the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is valid, and only this thread uses it.
    unsafe { *place = -result as c_int };
    -1
}

/// Makes a system call.
///
/// # Safety
/// That of the system call. It has no frame: what comes back twice, or on another stack, may be
/// called by it as by libc's function.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C" fn make(
    number: c_long,
    a: Word,
    b: Word,
    c: Word,
    d: Word,
    e: Word,
    f: Word,
) -> c_long {
    core::arch::naked_asm!(
        "endbr64",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {fail}",
        fail = sym fail,
    )
}

/// Makes a system call.
///
/// # Safety
/// That of the system call. It has no frame: what comes back twice, or on another stack, may be
/// called by it as by libc's function.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C" fn make(
    number: c_long,
    a: Word,
    b: Word,
    c: Word,
    d: Word,
    e: Word,
    f: Word,
) -> c_long {
    core::arch::naked_asm!(
        "hint #34", // where calls by address may lead (bti c)
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        "cmn x0, #4095",
        "b.cs 2f",
        "ret",
        "2:",
        "b {fail}",
        fail = sym fail,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_those_of_libc() {
        // SAFETY: a call without arguments.
        assert_eq!(unsafe { syscall(libc::SYS_getpid) }, c_long::from(std::process::id()));
        // SAFETY: no descriptor has this number.
        assert_eq!(unsafe { syscall(libc::SYS_close, -1_i32) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn six_arguments_arrive() {
        let file = tempfile::tempfile().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let (text, mut out) = (*b"text", [0_u8; 4]);
        // SAFETY: descriptors and buffers that live.
        let wrote = unsafe { syscall(libc::SYS_pwrite64, fd, text.as_ptr(), 4_usize, 6_usize) };
        assert_eq!(wrote, 4);
        let (mut from, mut to) = (6_i64, 0_i64);
        // SAFETY: the same.
        let copied = unsafe {
            let flags = 0_u32;
            syscall(libc::SYS_copy_file_range, fd, &raw mut from, fd, &raw mut to, 4_usize, flags)
        };
        assert_eq!((copied, from, to), (4, 10, 4));
        // SAFETY: the same.
        let read = unsafe { syscall(libc::SYS_pread64, fd, out.as_mut_ptr(), 4_usize, 0_usize) };
        assert_eq!((read, out), (4, text));
    }
}
