//! The registers of a traced thread, as far as a call of the kernel's is told by them.

#[cfg(target_arch = "x86_64")]
use belay_sys::THIS_MACHINE;
#[cfg(target_arch = "x86_64")]
use nix::sys::ptrace;
use nix::unistd::Pid;

/// PTRACE_SYSCALL_INFO_ENTRY, PTRACE_SYSCALL_INFO_EXIT (linux/ptrace.h).
#[cfg(target_arch = "x86_64")]
const ENTRY: u8 = 1;
#[cfg(target_arch = "x86_64")]
const EXIT: u8 = 2;
/// How long the instruction is by which a call is made.
#[cfg(target_arch = "x86_64")]
const INSTRUCTION: u64 = 2;

/// Where in a call a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Begin,
    End,
}

/// Where in a call of this machine's kind the thread has stopped, if it has. It may make calls of
/// another kind, whose numbers and registers are others.
#[cfg(target_arch = "x86_64")]
pub(crate) fn stopped_at(thread: Pid) -> Option<At> {
    let info = ptrace::syscall_info(thread).ok()?;
    match info.op {
        ENTRY if info.arch == THIS_MACHINE => Some(At::Begin),
        EXIT if info.arch == THIS_MACHINE => Some(At::End),
        _ => None,
    }
}

/// The registers of a stopped thread.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers(libc::user_regs_struct);

#[cfg(target_arch = "x86_64")]
impl Registers {
    pub(crate) fn of(thread: Pid) -> Option<Self> {
        ptrace::getregs(thread).ok().map(Self)
    }

    /// Gives them to the thread. It may have ended.
    pub(crate) fn put(self, thread: Pid) -> bool {
        ptrace::setregs(thread, self.0).is_ok()
    }

    /// The call's number.
    pub(crate) fn number(&self) -> i64 {
        self.0.orig_rax.cast_signed()
    }

    pub(crate) fn arguments(&self) -> [u64; 6] {
        [self.0.rdi, self.0.rsi, self.0.rdx, self.0.r10, self.0.r8, self.0.r9]
    }

    /// What the call has given, at its end.
    pub(crate) fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    pub(crate) fn with_result(mut self, result: i64) -> Self {
        self.0.rax = result.cast_unsigned();
        self
    }

    pub(crate) fn with_argument(mut self, which: usize, value: u64) -> Self {
        let register = match which {
            0 => &mut self.0.rdi,
            1 => &mut self.0.rsi,
            2 => &mut self.0.rdx,
            3 => &mut self.0.r10,
            4 => &mut self.0.r8,
            _ => &mut self.0.r9,
        };
        *register = value;
        self
    }

    /// At the begin of a call: another one is made in its place.
    pub(crate) fn with_call(mut self, number: i64, arguments: [u64; 6]) -> Self {
        self.0.orig_rax = number.cast_unsigned();
        for (which, value) in arguments.into_iter().enumerate() {
            self = self.with_argument(which, value);
        }
        self
    }

    /// What they were at the begin of a call, for a thread at the end of another one: it makes the
    /// call once more.
    pub(crate) fn once_more(mut self) -> Self {
        self.0.rip = self.0.rip.wrapping_sub(INSTRUCTION);
        self.0.rax = self.0.orig_rax;
        self.0.orig_rax = u64::MAX; // it is in no call
        self
    }
}

/// On other machines nothing is known of them: nobody is led, and the end of a mount is that of a
/// socket.
#[cfg(not(target_arch = "x86_64"))]
mod unknown {
    use super::{At, Pid};

    pub(crate) fn stopped_at(_thread: Pid) -> Option<At> {
        None
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Registers;

    impl Registers {
        pub(crate) fn of(_thread: Pid) -> Option<Self> {
            None
        }
        pub(crate) fn put(self, _thread: Pid) -> bool {
            false
        }
        pub(crate) fn number(&self) -> i64 {
            -1
        }
        pub(crate) fn arguments(&self) -> [u64; 6] {
            [0; 6]
        }
        pub(crate) fn result(&self) -> i64 {
            -1
        }
        pub(crate) fn with_result(self, _result: i64) -> Self {
            self
        }
        pub(crate) fn with_argument(self, _which: usize, _value: u64) -> Self {
            self
        }
        pub(crate) fn with_call(self, _number: i64, _arguments: [u64; 6]) -> Self {
            self
        }
        pub(crate) fn once_more(self) -> Self {
            self
        }
    }
}
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use unknown::{Registers, stopped_at};
