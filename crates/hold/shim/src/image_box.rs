//! The image box: where the daemon's image is left for those who have to write to it without the
//! daemon.
//!
//! What was committed is carried out by the next generation, or by the supervisor, both of which
//! may be root, when the daemon that wrote the records of it may long have given up its privileges.
//! So they write through a descriptor that came from the daemon, and need not believe anything that
//! a daemon says of paths and files. It stays in the box, a mailbox of belay's
//! ([`belay_sys::mailbox`]), as a message that is looked at and never taken out.
//!
//! It is no duplicate of the daemon's but opened anew, when the daemon opens its image: locks of
//! the daemon's on the file, and what it has a disk to itself by (O_EXCL), belong to a description
//! and would outlive the daemon with a duplicate.

use belay_sys::mailbox;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// Device and inode of an image; of a disk its own number and 0.
pub(crate) type Identity = (u64, u64);

/// Both ends of the box.
pub(crate) struct ImageBox {
    post: OwnedFd,
    mail: OwnedFd,
    /// The image that the user has named, under the policy `epoch`.
    named: Option<Identity>,
}

/// By what a file is known that can be an image.
pub(crate) fn identity(stat: &Stat) -> Option<Identity> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some((stat.st_dev, stat.st_ino)),
        FileType::BlockDevice => Some((stat.st_rdev, 0)),
        _ => None,
    }
}

/// Whether anybody, this process included, has a POSIX lock on a file of which `fd` is a
/// description of its own.
fn is_locked(fd: BorrowedFd<'_>) -> bool {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: F_OFD_GETLK on a live descriptor fills in the structure that it is given, and changes
    // nothing else. An owner of its own is asked for (the description), so this process's locks
    // count as somebody else's.
    let done = unsafe {
        belay_sys::raw::syscall(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock)
    };
    done < 0 || lock.l_type != libc::F_UNLCK as libc::c_short
}

impl ImageBox {
    /// The box as the supervisor has made it.
    pub(crate) fn new(post: OwnedFd, mail: OwnedFd, named: Option<Identity>) -> Self {
        Self { post, mail, named }
    }

    /// The numbers of both ends.
    pub(crate) fn numbers(&self) -> [RawFd; 2] {
        [self.post.as_raw_fd(), self.mail.as_raw_fd()]
    }

    /// The image that the user has named.
    pub(crate) fn named(&self) -> Option<Identity> {
        self.named
    }

    /// What is in the box.
    pub(crate) fn image(&self) -> Option<OwnedFd> {
        mailbox::look_for_image(self.mail.as_fd())
    }

    /// The daemon has just opened `file`, for writing: leaves it in the box if nothing is there.
    /// `false` if something else is, or it cannot be.
    pub(crate) fn leave(&self, file: BorrowedFd<'_>) -> bool {
        let of = |fd: BorrowedFd<'_>| fstat(fd).ok().as_ref().and_then(identity);
        let Some(wanted) = of(file) else { return false };
        if self.image().is_none() {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
            let again = open(path.as_str(), flags, Mode::empty());
            let Ok(again) = again else { return false };
            if of(again.as_fd()) == Some(wanted) {
                let _ = mailbox::leave(self.post.as_fd(), again.as_fd());
            }
            // A process that closes any descriptor of a file loses its POSIX locks on it: if
            // somebody has one, it may be this one, and the descriptor stays.
            if is_locked(again.as_fd()) {
                let _ = again.into_raw_fd();
            }
        }
        self.image().is_some_and(|image| of(image.as_fd()) == Some(wanted))
    }
}
