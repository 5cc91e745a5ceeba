//! What a child does between fork and exec: descriptors at fixed numbers, its own mount table.

use crate::known::open_known;
use crate::seccomp::Listener;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, open, openat, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How a successor is kept from seeing the mount that it is to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateMountNamespace {
    /// The names on the way from the root to the mount that is taken out of the child's mount
    /// table; nothing is if there are none. Links are not followed.
    pub way: Vec<CString>,
    /// Major and minor number of the file system that is mounted there. If the way leads to
    /// another, the child fails with `ESTALE`.
    pub device: (u32, u32),
    /// Whoever serves a file system on the way may be asked, and waited for. Else the way is gone
    /// only as far as the kernel knows it, and the child fails with `ESTALE` if it does not.
    pub may_wait: bool,
}

/// What [`prepare_child`] arranges in the child.
#[derive(Debug, Default)]
pub struct ChildSetup {
    /// Descriptors that the child gets at fixed numbers, without close-on-exec.
    pub descriptors: Vec<(OwnedFd, RawFd)>,
    /// Give the child a mount table of its own without the mount.
    pub mount_namespace: Option<PrivateMountNamespace>,
    /// Signals that do not come to the child, bit `n - 1` for signal `n`. (What it inherits is what
    /// the calling thread has.)
    pub blocked_signals: u64,
    /// What the child, and all that descends from it, can be told by: its limit of file locks,
    /// which no kernel since 2.4 obeys. A child that may not have that limit goes without.
    pub mark: Option<u64>,
    /// The signal that the child gets when the thread ends that has started it. Programs that gain
    /// rights by it lose that wish.
    pub at_end_of_parent: Option<Signal>,
    /// A descriptor of the child's that its program does not get.
    pub closed: Option<RawFd>,
    /// The socket through which the child sends the descriptor by which its calls are looked at
    /// ([`crate::Listener`]).
    pub watcher: Option<OwnedFd>,
    /// Have the child traced by the thread that starts it (ptrace(2)): it stops before the first
    /// instruction of its program. Where that is not allowed it is not traced, and does not stop.
    /// Limit: a signal that comes to it between that and its exec stops it there, while whoever
    /// starts it waits for the exec.
    pub traced: bool,
}

/// Registers `setup` to run in the child that `command` will start.
///
/// The child's mount table is a slave of the parent's: later mounts and unmounts of the host
/// reach it where the host's mounts are shared, its own never reach the host
/// (mount_namespaces(7)).
pub fn prepare_child(command: &mut Command, setup: ChildSetup) {
    // SAFETY: the closure runs in the forked child, before exec. It calls only async-signal-safe
    // system calls on data allocated before the fork (the moved `setup`), and takes no locks.
    unsafe {
        command.pre_exec(move || run_in_child(&setup));
    }
}

fn run_in_child(setup: &ChildSetup) -> io::Result<()> {
    if let Some(mark) = setup.mark {
        let limit = Rlimit { current: Some(mark), maximum: Some(mark) };
        let _ = setrlimit(Resource::Locks, limit);
    }
    if let Some(namespace) = &setup.mount_namespace {
        leave_mount(namespace)?;
    }
    for (from, to) in &setup.descriptors {
        if from.as_raw_fd() == *to {
            // SAFETY: `from` is an open descriptor that this closure owns; F_SETFD takes an int.
            if unsafe { libc::fcntl(*to, libc::F_SETFD, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
            continue;
        }
        // SAFETY: dup2 onto a number that the parent reserved for this purpose; in this
        // single-threaded child no Rust value owns that number.
        if unsafe { libc::dup2(from.as_raw_fd(), *to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if let Some(closed) = setup.closed {
        // SAFETY: F_SETFD takes an int; on a number that is not open it fails, which is as good.
        unsafe { libc::fcntl(closed, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    if let Some(signal) = setup.at_end_of_parent {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
    }
    if let Some(watcher) = &setup.watcher {
        let listener = crate::seccomp::listen()?;
        let listeners = [listener.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&listeners)) {
            return Err(Errno::NOBUFS.into());
        }
        sendmsg(watcher, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    }
    if setup.blocked_signals != 0 {
        crate::signals::set_mask(setup.blocked_signals)?;
    }
    if setup.traced {
        // SAFETY: this request reads and writes no memory, and concerns this single-threaded child
        // alone.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    }
    Ok(())
}

/// What a child has sent that was started with a [`ChildSetup::watcher`].
///
/// # Errors
/// Those of recvmsg(2); `ENOMSG` if no descriptor has come.
pub fn receive_listener(socket: &OwnedFd) -> io::Result<Listener> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    rights.next().map(Listener::new).ok_or_else(|| Errno::NOMSG.into())
}

fn leave_mount(namespace: &PrivateMountNamespace) -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // The child must keep its working directory: if it is inside the mount, the daemon was
    // started there before the mount existed, and nothing better is known.
    // SAFETY: a plain unshare(2) of the mount namespace in a single-threaded child.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
        return Err(io::Error::last_os_error());
    }
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    match take_out(namespace) {
        Ok(()) => Ok(()),
        // The way leads elsewhere by now; whoever starts the child looks again.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::INVAL | Errno::AGAIN) => {
            Err(Errno::STALE.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Unmounts what is at the end of the way, by its descriptor. No daemon is asked for anything: the
/// device's number is the kernel's own.
fn take_out(namespace: &PrivateMountNamespace) -> rustix::io::Result<()> {
    let Some((name, folders)) = namespace.way.split_last() else { return Ok(()) };
    let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let step = |folder: &OwnedFd, name: &CStr, flags| {
        if namespace.may_wait {
            return openat(folder, name, flags, Mode::empty());
        }
        open_known(folder, name, flags, ResolveFlags::empty())
    };
    let mut folder = open(c"/", place | OFlags::DIRECTORY, Mode::empty())?;
    for name in folders {
        folder = step(&folder, name, place | OFlags::DIRECTORY)?;
    }
    let mount = step(&folder, name, place)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = statx(&mount, c"", flags, StatxFlags::empty())?;
    if (stat.stx_dev_major, stat.stx_dev_minor) != namespace.device {
        return Err(Errno::STALE);
    }
    // Without an allocation: this is between fork and exec.
    let mut link = [0_u8; 48];
    let mut rest = &mut link[..];
    write!(rest, "/proc/thread-self/fd/{}", mount.as_raw_fd()).map_err(|_| Errno::NAMETOOLONG)?;
    let link = CStr::from_bytes_until_nul(&link).map_err(|_| Errno::NAMETOOLONG)?;
    unmount(link, UnmountFlags::DETACH)
}

/// Duplicates `fd` with close-on-exec set, at the lowest free number.
pub fn dup_cloexec(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}
