//! Asynchronous I/O of POSIX (aio(7)): the C library does it by threads of its own, whose calls are
//! not seen. It is refused on the image.

use super::image_io::passes_by;
use crate::real;
use libc::{aiocb, c_int, sigevent};

/// Whether a request is about the image, with errno set.
///
/// # Safety
/// `block` is null, or as aio_write(3) wants it.
unsafe fn refuses(block: *const aiocb) -> bool {
    crate::effects::journal::unseen();
    // SAFETY: the caller's contract: if it is not null it can be read during the call.
    !block.is_null() && passes_by(unsafe { (*block).aio_fildes })
}

macro_rules! requests {
    ($($name:ident;)*) => {$(
        /// aio_read(3) or aio_write(3).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(block: *mut aiocb) -> c_int {
            // SAFETY: the caller's argument.
            if unsafe { refuses(block) } {
                return -1;
            }
            // SAFETY: the same, unchanged.
            unsafe { real::$name(block) }
        }
    )*};
}

requests! {
    aio_read;
    aio_read64;
    aio_write;
    aio_write64;
}

macro_rules! lists {
    ($($name:ident;)*) => {$(
        /// lio_listio(3).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            mode: c_int,
            list: *const *mut aiocb,
            count: c_int,
            event: *mut sigevent,
        ) -> c_int {
            let count_of = usize::try_from(count).unwrap_or(0);
            let blocks: &[*mut aiocb] = if list.is_null() || count_of == 0 {
                &[]
            } else {
                // SAFETY: the caller's argument: a list of that length, readable during the call.
                unsafe { std::slice::from_raw_parts(list, count_of) }
            };
            // SAFETY: each is null or a request, as lio_listio(3) wants it.
            if blocks.iter().any(|block| unsafe { refuses(*block) }) {
                return -1;
            }
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::$name(mode, list, count, event) }
        }
    )*};
}

lists! {
    lio_listio;
    lio_listio64;
}
