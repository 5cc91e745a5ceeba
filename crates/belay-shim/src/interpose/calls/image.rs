//! Reads and writes of the image, turned to the transaction, and what cannot be turned there.

use super::memory::{filled, part};
use super::syscall;
use crate::descriptors::is_image;
use crate::real;
use crate::start::shim;
use libc::{c_int, iovec};

/// Reads or writes the image at the position of its descriptor.
pub(in crate::interpose) fn image_here(fd: c_int, parts: &[iovec], reads: bool) -> isize {
    let at = syscall!(SYS_lseek, fd, 0, libc::SEEK_CUR);
    if at < 0 {
        return at;
    }
    let done = image_at(fd, parts, at as i64, reads);
    if done > 0 {
        syscall!(SYS_lseek, fd, at + done, libc::SEEK_SET);
    }
    done
}

/// Reads or writes the image at an offset.
pub(super) fn image_at(fd: c_int, parts: &[iovec], offset: i64, reads: bool) -> isize {
    let Some(shim) = shim() else {
        real::set_errno(libc::EBADF);
        return -1;
    };
    let mut done = 0_isize;
    for this in parts {
        let at = offset + done as i64;
        let n = if reads {
            let n = syscall!(SYS_pread64, fd, this.iov_base, this.iov_len, at);
            shim.image_read(n, filled(this.iov_base, this.iov_len), at)
        } else {
            shim.image_write(fd, part(this), at)
        };
        if n < 0 {
            return if done > 0 { done } else { n };
        }
        done += n;
        if (n as usize) < this.iov_len {
            break;
        }
    }
    done
}

/// The image, if `fd` is that, is about to be changed otherwise than by a write.
pub(in crate::interpose) fn beyond_writes(fd: c_int) {
    if is_image(fd)
        && let Some(shim) = shim()
    {
        shim.image_beyond();
    }
}

macro_rules! syncs {
    ($($name:ident, $number:ident;)*) => {$(
        /// Makes a file durable. Of an image with a transaction under way: once that is carried out.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int) -> c_int {
            if is_image(fd)
                && let Some(done) = shim().and_then(crate::start::Shim::image_sync)
            {
                return done;
            }
            syscall!($number, fd) as c_int
        }
    )*};
}

syncs! {
    fsync, SYS_fsync;
    fdatasync, SYS_fdatasync;
}
