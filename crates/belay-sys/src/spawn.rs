//! What a child does between fork and exec: descriptors at fixed numbers, its own mount table.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How a successor is kept from seeing the mount that it is to serve.
#[derive(Clone, Debug)]
pub struct PrivateMountNamespace {
    /// The mountpoint that is taken out of (or covered in) the child's mount table.
    pub mountpoint: CString,
}

/// What [`prepare_child`] arranges in the child.
#[derive(Debug, Default)]
pub struct ChildSetup {
    /// Descriptors that the child gets at fixed numbers, without close-on-exec.
    pub descriptors: Vec<(OwnedFd, RawFd)>,
    /// Give the child a mount table of its own without the mount.
    pub mount_namespace: Option<PrivateMountNamespace>,
    /// Make the child the leader of a process group of its own.
    pub new_process_group: bool,
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
    if setup.new_process_group {
        rustix::process::setpgid(None, None)?;
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
    Ok(())
}

fn leave_mount(namespace: &PrivateMountNamespace) -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
    // The child must keep its working directory: if it is inside the mount, the daemon was
    // started there before the mount existed, and nothing better is known.
    // SAFETY: a plain unshare(2) of the mount namespace in a single-threaded child.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
        return Err(io::Error::last_os_error());
    }
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    match unmount(namespace.mountpoint.as_c_str(), UnmountFlags::DETACH) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Duplicates `fd` with close-on-exec set, at the lowest free number.
pub fn dup_cloexec(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}
