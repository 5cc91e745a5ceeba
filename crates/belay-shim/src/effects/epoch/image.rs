//! Reads and writes of the image: through the overlay.

use crate::real;
use crate::start::Shim;
use belay_image::overlay::Refused;
use libc::c_int;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that an epoch may collect before a checkpoint is due (Membrane, section 4.3.3).
const DIRTY: u64 = 40 << 20;

impl Shim {
    /// pread(2) of the daemon's from the image.
    pub(crate) fn epoch_read(&self, fd: c_int, out: &mut [u8], offset: i64) -> isize {
        let Ok(at) = u64::try_from(offset) else { return fail(libc::EINVAL) };
        let _shared = self.epochs.overlay.read().unwrap_or_else(PoisonError::into_inner);
        let done = self.overlay().read(at, out, |at, out| pread(fd, at, out));
        done.map_or_else(|why| refuse(&why), |n| n as isize)
    }

    /// pwrite(2) of the daemon's to the image.
    pub(crate) fn epoch_write(&self, fd: c_int, bytes: &[u8], offset: i64) -> isize {
        let Ok(at) = u64::try_from(offset) else { return fail(libc::EINVAL) };
        let _alone = self.epochs.overlay.write().unwrap_or_else(PoisonError::into_inner);
        let overlay = self.overlay();
        let done = overlay.write(at, bytes, |at, out| pread(fd, at, out));
        if overlay.dirty_bytes().is_ok_and(|dirty| dirty > DIRTY) {
            self.epochs.due.store(true, Relaxed);
        }
        done.map_or_else(|why| refuse(&why), |n| n as isize)
    }

    /// ftruncate(2) of the daemon's of the image.
    pub(crate) fn epoch_set_length(&self, length: i64) -> c_int {
        let Ok(length) = u64::try_from(length) else { return fail(libc::EINVAL) as c_int };
        let _alone = self.epochs.overlay.write().unwrap_or_else(PoisonError::into_inner);
        let done = self.overlay().set_length(length);
        done.map_or_else(|_| fail(libc::EIO) as c_int, |()| 0)
    }

    /// The daemon has opened its image, which is `length` bytes long, in this life: what the dead
    /// generation wrote since the last checkpoint is dropped.
    pub(crate) fn epoch_opened(&self, length: u64) {
        let _alone = self.epochs.overlay.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = self.overlay().discard_current(length) {
            eprintln!("belay: {why}: the daemon cannot be given its image");
            std::process::abort();
        }
    }
}

fn fail(errno: c_int) -> isize {
    real::set_errno(errno);
    -1
}

#[cold]
fn refuse(why: &Refused<c_int>) -> isize {
    match why {
        Refused::Image(errno) => fail(*errno),
        Refused::TooFar => fail(libc::EFBIG),
        Refused::Full => {
            eprintln!(
                "belay: the daemon has written more to its image within one request than there is room for before a \
                 checkpoint; it gets an I/O error"
            );
            fail(libc::EIO)
        }
        Refused::Spoilt => {
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
            libc::syscall(libc::SYS_pread64, fd, rest.as_mut_ptr(), rest.len(), at + done as u64)
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
