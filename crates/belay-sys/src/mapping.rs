//! A shared mapping of a memory file, seen only as atomic words.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A shared, read-write mapping of the first `len` bytes of a memory file.
///
/// Other processes map the same file and write to it at any time, so the mapping is never
/// handed out as `&[u8]`: only as a slice of atomics, whose every load is a copy.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: `base` is the start of a mapping that this value owns until its drop; the memory is
// reached only through `AtomicU64`, which may be used from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`: shared access goes through `AtomicU64` alone.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes (rounded down to whole words) of `file`, shared and not reserved.
    ///
    /// # Errors
    /// Those of mmap(2). A file shorter than `len` maps, but a touch beyond its end raises
    /// SIGBUS, so that is refused with `InvalidInput`.
    pub fn new(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let size = rustix::fs::fstat(file)?.st_size;
        if usize::try_from(size).map_or(true, |size| size < len) || len < 8 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("memory file has {size} bytes, {len} are needed"),
            ));
        }
        // SAFETY: no address is asked for (null), so the kernel places the mapping where nothing
        // else is mapped; it aliases no Rust object.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file.as_fd(),
                0,
            )
        }?;
        let base = NonNull::new(base.cast::<AtomicU64>())
            .ok_or_else(|| io::Error::other("mmap returned a null mapping"))?;
        Ok(Self { base, words: len / 8 })
    }

    /// The mapping as atomic words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is page-aligned and valid for `words * 8` bytes until `self` is dropped
        // (the file was at least that long, and belay never shrinks its memory files); all
        // access by this and other processes goes through atomics or the kernel.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// read(2) from `fd` straight into the mapping, at byte `offset`, at most `len` bytes.
    ///
    /// The kernel copies into the memory file before the call returns, so what was taken from
    /// `fd` survives a SIGKILL of the caller at the very next instruction.
    ///
    /// # Errors
    /// Those of read(2), as a raw errno; `EFAULT` if the range is outside of the mapping.
    pub fn read_from(&self, fd: BorrowedFd<'_>, offset: usize, len: usize) -> Result<usize, i32> {
        let end = offset.checked_add(len).ok_or(libc::EFAULT)?;
        if end > self.words * 8 {
            return Err(libc::EFAULT);
        }
        // SAFETY: offset + len lies within the mapping (checked above), so the pointer stays in it.
        let target = unsafe { self.base.as_ptr().cast::<u8>().add(offset) };
        use std::os::fd::AsRawFd;
        // SAFETY: SYS_read with a live descriptor and a buffer of `len` bytes inside the mapping;
        // it is only ever seen through atomics, so no Rust reference is invalidated.
        let n = unsafe { libc::syscall(libc::SYS_read, fd.as_raw_fd(), target, len) };
        usize::try_from(n)
            .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and the length are those of the mapping made in `new`, unmapped only here;
        // no borrow of it outlives `self`. A failure leaves the mapping in place, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.words * 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_mappings_of_one_file_share_words() {
        let file = memfd_create("belay-test", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 8192).expect("ftruncate");
        let a = Mapping::new(file.as_fd(), 8192).expect("map");
        let b = Mapping::new(file.as_fd(), 8192).expect("map");
        a.words()[7].store(42, Relaxed);
        assert_eq!(b.words()[7].load(Relaxed), 42);
    }

    #[test]
    fn short_files_and_out_of_range_reads_are_refused() {
        let file = memfd_create("belay-test", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 4096).expect("ftruncate");
        assert!(Mapping::new(file.as_fd(), 8192).is_err());
        let map = Mapping::new(file.as_fd(), 4096).expect("map");
        assert_eq!(map.read_from(file.as_fd(), 4090, 100), Err(libc::EFAULT));
        assert_eq!(map.read_from(file.as_fd(), 0, 100), Ok(100));
    }
}
