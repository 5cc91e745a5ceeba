//! System calls of another program that are looked at before the kernel makes them
//! (seccomp_unotify(2)): also of one that is linked statically, or that calls the kernel without a
//! C library.
//!
//! Which calls these are is decided here, once: those by which a FUSE file system is mounted and
//! unmounted. None of them is on the path of a request, so the program pays for the filter, a few
//! instructions a call, and for nothing else.
//!
//! A filter stays for ever, and all that descends from the program has it. The one who looks sees
//! numbers only; what they point to is in the memory of the program, which may change it at any
//! moment. So it is copied first, and no right depends on it.

use libc::{c_int, c_long, c_uint, c_ulong, sock_filter, sock_fprog};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;
use std::mem::zeroed;

/// Where the parts of `struct seccomp_data` are: the call's number, the machine, and the low half
/// of the second argument.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const SECOND: u32 = 16 + 8;

/// The kind of this machine's system calls: AUDIT_ARCH_X86_64 (linux/audit.h).
#[cfg(target_arch = "x86_64")]
pub const THIS_MACHINE: u32 = 0xc000_003e;
/// The kind of this machine's system calls: AUDIT_ARCH_AARCH64.
#[cfg(target_arch = "aarch64")]
pub const THIS_MACHINE: u32 = 0xc000_00b7;
/// The kind of this machine's system calls: AUDIT_ARCH_RISCV64.
#[cfg(target_arch = "riscv64")]
pub const THIS_MACHINE: u32 = 0xc000_00f3;

/// FUSE_DEV_IOC_CLONE (linux/fuse.h).
const CLONE: u32 = 0x8004_e500;

/// A number of a call, as a filter has it.
const fn number(call: c_long) -> u32 {
    call as u32
}

/// A word of the call's data.
const fn load(at: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: at }
}

/// So many instructions further on, if the word is that one or not.
const fn jump(is: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf, k: is }
}

/// What becomes of the call.
const fn end(action: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: action }
}

/// mount(2), umount2(2), fsopen(2) and the cloning of a device are told. Pipes cannot be resized,
/// which programs take for a limit: those that move replies to the device by splice(2) give that up
/// then. Into a socket it would cut messages into pieces.
static FILTER: [sock_filter; 15] = [
    load(MACHINE),
    jump(THIS_MACHINE, 0, 10), // a program of another kind does as it likes
    load(NUMBER),
    jump(number(libc::SYS_mount), 9, 0),
    jump(number(libc::SYS_umount2), 8, 0),
    jump(number(libc::SYS_fsopen), 7, 0),
    jump(number(libc::SYS_fcntl), 3, 0),
    jump(number(libc::SYS_ioctl), 0, 4),
    load(SECOND),
    jump(CLONE, 3, 2),
    load(SECOND),
    jump(libc::F_SETPIPE_SZ as u32, 2, 0),
    end(libc::SECCOMP_RET_ALLOW),
    end(libc::SECCOMP_RET_USER_NOTIF),
    end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
];

/// Has the calls of this process looked at from now on, and those of all that it starts. Gives the
/// descriptor through which they are told ([`Listener`]). Does nothing that may not be done between
/// fork and exec.
///
/// Who may not have that otherwise gives up for it what programs gain by being set-uid, for ever
/// (PR_SET_NO_NEW_PRIVS).
///
/// # Errors
/// Those of seccomp(2): `EBUSY` if somebody looks at this process's calls already, `EINVAL` before
/// Linux 5.0.
pub(crate) fn listen() -> io::Result<OwnedFd> {
    let set = |flags: c_ulong| {
        let program = sock_fprog {
            len: FILTER.len() as u16,
            filter: std::ptr::from_ref(&FILTER).cast::<sock_filter>().cast_mut(),
        };
        // SAFETY: a live program of as many instructions, which the kernel copies and does not
        // write to.
        unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        }
    };
    let listens = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // The second: signals do not break off a call that is being answered (Linux 5.19).
    let ways = [listens | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, listens];
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for flags in ways {
        let mut result = set(flags);
        if result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EACCES) {
            rustix::thread::set_no_new_privs(true)?;
            result = set(flags);
        }
        if let Some(fd) = c_int::try_from(result).ok().filter(|fd| *fd >= 0) {
            // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        last = io::Error::last_os_error();
        if last.raw_os_error() != Some(libc::EINVAL) {
            break;
        }
    }
    Err(last)
}

/// A call that somebody wants to make, and waits for.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// By which it is answered.
    id: u64,
    /// The thread that makes it.
    pub thread: u32,
    /// Its number (`SYS_...`).
    pub number: c_long,
    /// What it is given.
    pub arguments: [u64; 6],
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel makes it.
    GoesOn,
    /// It is not made, and gives that.
    Gives(i64),
    /// It is not made, and fails with this errno.
    Fails(i32),
}

/// Where calls are told.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// The one that a child has sent, see [`crate::ChildSetup::watcher`].
    pub fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The next call. Waits for it.
    ///
    /// # Errors
    /// Those of the kernel: `ENOENT` if the one who made it has gone, `EINTR`.
    pub fn next(&self) -> io::Result<Call> {
        // SAFETY: a zeroed structure of numbers is a valid value of it, and what the kernel wants
        // to have.
        let mut told: libc::seccomp_notif = unsafe { zeroed() };
        let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
        // SAFETY: a live structure of the kind that this request fills.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw mut told) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let number = c_long::from(told.data.nr);
        Ok(Call { id: told.id, thread: told.pid, number, arguments: told.data.args })
    }

    /// Whether the thread still waits for its call, so that its number is still its own.
    pub fn is_waiting(&self, call: &Call) -> bool {
        let request = libc::SECCOMP_IOCTL_NOTIF_ID_VALID;
        // SAFETY: a live number, which is all that this request reads.
        unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw const call.id) == 0 }
    }

    /// Makes `fd` the descriptor `number` of the thread that waits for `call`, whatever that was.
    ///
    /// # Errors
    /// Those of the kernel: `ENOENT` if it does not wait any more, `EINVAL` before Linux 5.9.
    pub fn replace(
        &self,
        call: &Call,
        fd: BorrowedFd<'_>,
        number: u32,
        closes_on_exec: bool,
    ) -> io::Result<()> {
        let place = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SETFD as u32,
            srcfd: fd.as_raw_fd().unsigned_abs(),
            newfd: number,
            newfd_flags: if closes_on_exec { libc::O_CLOEXEC as c_uint } else { 0 },
        };
        let request = libc::SECCOMP_IOCTL_NOTIF_ADDFD;
        // SAFETY: a live structure, which this request reads, and an open descriptor in it.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw const place) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Lets the thread go on.
    ///
    /// # Errors
    /// Those of the kernel: `ENOENT` if it does not wait any more; a signal may have had it make
    /// the call once more.
    pub fn answer(&self, call: &Call, verdict: Verdict) -> io::Result<()> {
        let (val, error, flags) = match verdict {
            Verdict::GoesOn => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Verdict::Gives(value) => (value, 0, 0),
            Verdict::Fails(errno) => (0, -errno, 0),
        };
        let mut answer = libc::seccomp_notif_resp { id: call.id, val, error, flags };
        let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
        // SAFETY: a live structure of the kind that this request reads.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw mut answer) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChildSetup, prepare_child, receive_listener};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::process::Command;

    /// What the filter says of a call, as the kernel would run it.
    fn judge(machine: u32, call: c_long, second: u32) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let step = FILTER[at];
            at += 1;
            if step.code == load(0).code {
                word = match step.k {
                    NUMBER => number(call),
                    MACHINE => machine,
                    SECOND => second,
                    other => panic!("{other}"),
                };
            } else if step.code == jump(0, 0, 0).code {
                at += usize::from(if word == step.k { step.jt } else { step.jf });
            } else {
                return step.k;
            }
        }
    }

    #[test]
    fn the_filter_tells_of_mounts_only() {
        let set = libc::F_SETPIPE_SZ as u32;
        for call in [libc::SYS_mount, libc::SYS_umount2, libc::SYS_fsopen] {
            assert_eq!(judge(THIS_MACHINE, call, 0), libc::SECCOMP_RET_USER_NOTIF);
            assert_eq!(judge(1, call, 0), libc::SECCOMP_RET_ALLOW, "another machine");
        }
        for call in [libc::SYS_read, libc::SYS_openat, libc::SYS_splice, libc::SYS_fsmount] {
            assert_eq!(judge(THIS_MACHINE, call, set), libc::SECCOMP_RET_ALLOW);
        }
        for call in [libc::SYS_fcntl, libc::SYS_ioctl] {
            assert_eq!(judge(THIS_MACHINE, call, 1), libc::SECCOMP_RET_ALLOW);
        }
        assert_eq!(judge(THIS_MACHINE, libc::SYS_ioctl, set), libc::SECCOMP_RET_ALLOW);
        assert_eq!(judge(THIS_MACHINE, libc::SYS_fcntl, CLONE), libc::SECCOMP_RET_ALLOW);
        let clone = judge(THIS_MACHINE, libc::SYS_ioctl, CLONE);
        assert_eq!(clone, libc::SECCOMP_RET_USER_NOTIF);
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        assert_eq!(judge(THIS_MACHINE, libc::SYS_fcntl, set), refused);
    }

    #[test]
    fn a_call_is_told_and_answered() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair");
        let mut command = Command::new("umount");
        command.arg("/no/such/place").stderr(std::process::Stdio::null());
        let setup = ChildSetup { watcher: Some(theirs), ..ChildSetup::default() };
        prepare_child(&mut command, setup);
        let mut child = match command.spawn() {
            Ok(child) => child,
            // Somebody looks at this process's own calls, or the kernel has no such thing.
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let listener = receive_listener(&ours).expect("it was sent");
        drop(child.stdin.take());
        let watcher = std::thread::spawn(move || {
            let call = listener.next().expect("a call");
            assert_eq!(call.number, libc::SYS_umount2);
            assert!(listener.is_waiting(&call));
            listener.answer(&call, Verdict::Gives(0)).expect("it waits");
            assert!(!listener.is_waiting(&call));
        });
        // umount(8) looks before it asks the kernel, and may ask nothing then.
        let status = child.wait().expect("wait");
        if status.success() {
            watcher.join().expect("the call was told");
        }
    }
}
