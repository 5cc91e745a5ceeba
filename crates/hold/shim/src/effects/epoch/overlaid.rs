//! Reads and writes of the image: through the overlay.

use super::Epoch;
use crate::descriptors;
use crate::positions;
use crate::real;
use belay_image::overlay::Refused;
use libc::c_int;
use rustix::fs::{AtFlags, CWD, Stat};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

impl Epoch<'_> {
    /// pread(2) of the daemon's from the image.
    pub(crate) fn read(&self, fd: c_int, out: &mut [u8], offset: i64) -> isize {
        let Ok(at) = u64::try_from(offset) else { return real::fail(libc::EINVAL) };
        let _shared = self.state.overlay.read().unwrap_or_else(PoisonError::into_inner);
        let done = self.overlay().read(at, out, |at, out| pread(fd, at, out));
        done.map_or_else(|why| refuse(&why), |n| n as isize)
    }

    /// pwrite(2) of the daemon's to the image.
    pub(crate) fn write(&self, fd: c_int, bytes: &[u8], offset: i64) -> isize {
        let Ok(at) = u64::try_from(offset) else { return real::fail(libc::EINVAL) };
        let _alone = self.state.overlay.write().unwrap_or_else(PoisonError::into_inner);
        let overlay = self.overlay();
        let done = overlay.write(at, bytes, |at, out| pread(fd, at, out));
        if let (Ok(dirty), Ok(next)) = (overlay.dirty_bytes(), overlay.next_page()) {
            self.state.ahead.want_overlay(next);
            self.grown(&overlay, dirty);
        }
        done.map_or_else(|why| refuse(&why), |n| n as isize)
    }

    /// ftruncate(2) of the daemon's of the image.
    pub(crate) fn set_length(&self, length: i64) -> c_int {
        let Ok(length) = u64::try_from(length) else { return real::fail(libc::EINVAL) as c_int };
        let _alone = self.state.overlay.write().unwrap_or_else(PoisonError::into_inner);
        let done = self.overlay().set_length(length);
        done.map_or_else(|_| real::fail(libc::EIO) as c_int, |()| 0)
    }

    /// How long the image is as the daemon sees it; `None` if nobody can tell, or it is a disk.
    pub(crate) fn length(&self) -> Option<i64> {
        let _shared = self.state.overlay.read().unwrap_or_else(PoisonError::into_inner);
        self.overlay().length().ok().and_then(|length| i64::try_from(length).ok())
    }

    /// The daemon has opened `fd`. If that is its image, as the user has named it, and can be
    /// written to, or is so already by another descriptor, what it reads and writes there goes
    /// through the overlay. At the first time in its life what the dead generation wrote since the
    /// last checkpoint is dropped.
    pub(crate) fn opened(&self, fd: c_int, flags: c_int) {
        let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
        if flags & libc::O_PATH != 0 || (reads && !self.state.opened.load(Relaxed)) {
            return;
        }
        // SAFETY: the daemon's open(2) has just returned this descriptor, on this thread.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        if !rustix::fs::fstat(file).is_ok_and(|stat| self.is_image(&stat)) {
            return;
        }
        if flags & (libc::O_DIRECT | libc::O_APPEND) != 0 {
            refuse_image("past the page cache or for appending only");
        }
        if !descriptors::has_own_memory() {
            refuse_image("in a child that has the daemon's memory (vfork)");
        }
        if !descriptors::add_image(fd) {
            refuse_image("by a descriptor of too high a number");
        }
        positions::keep(fd);
        if !reads && !self.shim.image_box.leave(file) {
            refuse_image("in a way in which belay cannot have it, too");
        }
        let _alone = self.state.overlay.write().unwrap_or_else(PoisonError::into_inner);
        if self.state.opened.swap(true, Relaxed) {
            return;
        }
        let length = length(file).unwrap_or(u64::MAX);
        if let Err(why) = self.overlay().discard_current(length) {
            eprintln!("belay: {why}: the daemon cannot be given its image");
            std::process::abort();
        }
    }

    /// The daemon is about to empty the file `path` as it opens it, which must not be its image.
    pub(crate) fn empties(&self, dir: c_int, path: &CStr, follows: bool) {
        if self.leads_to_image(dir, path, follows) {
            refuse_image("to empty it");
        }
    }

    /// Whether a name of the daemon's leads to its image.
    pub(crate) fn leads_to_image(&self, dir: c_int, path: &CStr, follows: bool) -> bool {
        let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let dir = match dir {
            _ if path.to_bytes().starts_with(b"/") => CWD, // nobody looks at it then
            libc::AT_FDCWD => CWD,
            ..0 => return false,
            // SAFETY: not -1, and the daemon's argument to a call that is being made on this
            // thread. If it is no descriptor the call below fails, as the daemon's own will.
            dir => unsafe { BorrowedFd::borrow_raw(dir) },
        };
        rustix::fs::statat(dir, path, flags).is_ok_and(|stat| self.is_image(&stat))
    }

    /// Whether the daemon is about to open a stream on its image, which is `stat`, and must not:
    /// what libc reads and writes there by itself is not seen here. To look at it before it is
    /// opened for writing is allowed, as above.
    pub(crate) fn refuses_stream(&self, stat: &Stat, reads: bool) -> bool {
        let refused = (!reads || self.state.opened.load(Relaxed)) && self.is_image(stat);
        if refused {
            eprintln!(
                "belay: the daemon opens its image as a stream (fopen, fdopen), which the policy `epoch` cannot follow: \
                 it gets EOPNOTSUPP; start it under another policy (--policy)"
            );
            real::set_errno(libc::EOPNOTSUPP);
        }
        refused
    }

    /// Whether a file is the image, by whatever name.
    fn is_image(&self, stat: &Stat) -> bool {
        let named = self.shim.image_box.named();
        named.is_some() && crate::image_box::identity(stat) == named
    }
}

/// What would be written in this way could not be kept back.
#[cold]
fn refuse_image(how: &str) -> ! {
    eprintln!(
        "belay: the daemon opens its image {how}: the policy `epoch` cannot hold it so; give it other options, or \
         choose another policy"
    );
    std::process::abort();
}

/// How long an image is that was just opened.
fn length(image: BorrowedFd<'_>) -> Option<u64> {
    let end = rustix::fs::seek(image, rustix::fs::SeekFrom::End(0)).ok()?;
    rustix::fs::seek(image, rustix::fs::SeekFrom::Start(0)).ok()?;
    Some(end)
}

#[cold]
fn refuse(why: &Refused<c_int>) -> isize {
    match why {
        Refused::Image(errno) => real::fail(*errno),
        Refused::TooFar => real::fail(libc::EFBIG),
        Refused::Full => {
            eprintln!(
                "belay: the daemon has written more to its image within one request than there is room for before a \
                 checkpoint; it gets an I/O error"
            );
            real::fail(libc::EIO)
        }
        Refused::Corrupt => {
            eprintln!(
                "belay: what the daemon wrote since the last checkpoint was written over by something else"
            );
            std::process::abort(); // its successor has it done again
        }
    }
}

/// Reads from the image itself: as much as there is.
fn pread(fd: c_int, at: u64, out: &mut [u8]) -> Result<usize, c_int> {
    let mut done = 0;
    while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the daemon's own descriptor, and a writable buffer of that length.
        let n = unsafe {
            belay_sys::raw::syscall(
                libc::SYS_pread64,
                fd,
                rest.as_mut_ptr(),
                rest.len(),
                at + done as u64,
            )
        };
        match usize::try_from(n) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(_) if real::errno() == libc::EINTR => {}
            Err(_) => return Err(real::errno()),
        }
    }
    Ok(done)
}
