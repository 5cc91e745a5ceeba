//! A shared mapping of a memory file, seen only as atomic words.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
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
        let mapping = Self { base, words: len / 8 };
        // A core dump of a daemon would walk through all of the address space, while applications
        // wait. A kernel that refuses this dumps it.
        let _ = mapping.advise(0, mapping.words * 8, libc::MADV_DONTDUMP);
        Ok(mapping)
    }

    /// Memory of this process's own in the place of a file, all zero: for who finds that the file
    /// is corrupt.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn blank(len: usize) -> io::Result<Self> {
        // SAFETY: no address is asked for (null), so the kernel places the mapping where nothing
        // else is mapped.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast::<AtomicU64>())
            .ok_or_else(|| io::Error::other("mmap returned a null mapping"))?;
        Ok(Self { base, words: len / 8 })
    }

    /// Has this process live on when somebody makes the file shorter; see [`crate::is_lost`].
    /// `false` if that cannot be had.
    pub fn guard(&self) -> bool {
        crate::guard::add(self.base.as_ptr() as usize, self.words * 8)
    }

    /// madvise(2) for `len` bytes from byte `offset` on.
    fn advise(&self, offset: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.words * 8) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: offset lies within the mapping (just checked).
        let start = unsafe { self.base.as_ptr().cast::<u8>().add(offset) };
        // SAFETY: the range lies within this mapping, which is shared memory that is only seen as
        // atomics: advice that drops its pages makes them read as zeros, which atomics may.
        if unsafe { libc::madvise(start.cast(), len, advice) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Asks for large pages behind `len` bytes from byte `offset` on, where the file may have them.
    /// It is a wish: whoever does not get them has small ones.
    pub fn prefer_large(&self, offset: usize, len: usize) {
        let _ = self.advise(offset, len, libc::MADV_HUGEPAGE);
    }

    /// Gives the memory behind `len` bytes from byte `offset` on back to the system; they read as
    /// zeros from then on. Whole pages only.
    ///
    /// # Errors
    /// Those of madvise(2) with MADV_REMOVE; `InvalidInput` outside of the mapping.
    pub fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        self.advise(offset, len, libc::MADV_REMOVE)
    }

    /// Copies `bytes` into the mapping, from word `at` on, as fast as memory can be copied: not
    /// word by word. `false` if they do not fit.
    ///
    /// The words must be the caller's to write: a reader that looks at them at the same time may
    /// see any mixture of old and new. What makes them valid for others is an atomic store
    /// afterwards.
    #[inline]
    pub fn fill(&self, at: usize, bytes: &[u8]) -> bool {
        let Some(place) = self.words().get(at..) else { return false };
        if bytes.len() > size_of_val(place) {
            return false;
        }
        let to = place.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: `to` is writable for `bytes.len()` bytes (just checked), within the mapping that
        // this value keeps, and `bytes` lies elsewhere: nobody is given a slice of the mapping. The
        // memory is behind `AtomicU64`s, which may be written through a shared reference. A process
        // that reads the same words meanwhile reads them as atomics of its own mapping, and copes
        // with whatever it finds, as it must cope with a writer that dies.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        true
    }

    /// Copies bytes of the mapping that start at word `at` to `out`, as fast as memory can be
    /// copied: not word by word. `false` if there are not as many.
    ///
    /// Whoever writes to them at the same time makes `out` any mixture of old and new. It is a
    /// copy, to be validated.
    #[inline]
    pub fn copy_out(&self, at: usize, out: &mut [u8]) -> bool {
        let Some(place) = self.words().get(at..) else { return false };
        if out.len() > size_of_val(place) {
            return false;
        }
        // SAFETY: that many bytes lie at `place`, within the mapping that this value keeps (just
        // checked).
        unsafe { copy_shared(place.as_ptr().cast(), out) };
        true
    }

    /// Has the processor bring `bytes` bytes (whole lines of 64) from word `at` on into its cache,
    /// and does not wait for that. Pages that were never touched stay so.
    #[inline]
    pub fn prefetch(&self, at: usize, bytes: usize) {
        let place = self.words().get(at..).unwrap_or_default();
        let end = place.len().min(bytes.div_ceil(8));
        let (lines, _) = place.get(..end).unwrap_or_default().as_chunks::<{ LINE / 8 }>();
        for line in lines {
            prefetch_line(line.as_ptr().cast());
        }
    }

    /// pwritev(2) of pieces of the mapping (byte offset, length; at most 64) to `file` at byte
    /// `at`. Gives how much was written.
    ///
    /// # Errors
    /// Those of pwritev(2), as a raw errno; `EFAULT` if a piece lies outside of the mapping.
    pub fn write_to(
        &self,
        file: BorrowedFd<'_>,
        at: u64,
        pieces: &[(usize, usize)],
    ) -> Result<usize, i32> {
        if let [(offset, len)] = pieces {
            return self.write_one(file, at, *offset, *len);
        }
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut iov = [nothing; 64];
        let mut count = 0;
        for ((offset, len), place) in pieces.iter().zip(&mut iov) {
            if offset.checked_add(*len).is_none_or(|end| end > self.words * 8) {
                return Err(libc::EFAULT);
            }
            // SAFETY: offset lies within the mapping (just checked).
            place.iov_base = unsafe { self.base.as_ptr().cast::<u8>().add(*offset) }.cast();
            place.iov_len = *len;
            count += 1;
        }
        use std::os::fd::AsRawFd;
        let (fd, low, high) = (file.as_raw_fd(), at as libc::c_long, 0 as libc::c_long);
        // SAFETY: SYS_pwritev with a live descriptor and `count` iovecs that lie within the mapping
        // (each was checked); on 64-bit machines the offset's low word is all of it.
        let n =
            unsafe { crate::raw::syscall(libc::SYS_pwritev, fd, iov.as_ptr(), count, low, high) };
        usize::try_from(n)
            .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// The mapping as atomic words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is page-aligned and valid for `words * 8` bytes until `self` is dropped
        // (the file was at least that long; it is sealed, or the mapping is guarded, or it is the
        // daemon's own process that shortens it and dies of that); all access by this and other
        // processes goes through atomics or the kernel.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    fn write_one(
        &self,
        file: BorrowedFd<'_>,
        at: u64,
        offset: usize,
        len: usize,
    ) -> Result<usize, i32> {
        if offset.checked_add(len).is_none_or(|end| end > self.words * 8) {
            return Err(libc::EFAULT);
        }
        // SAFETY: offset lies within the mapping (just checked).
        let from = unsafe { self.base.as_ptr().cast::<u8>().add(offset) };
        use std::os::fd::AsRawFd;
        // SAFETY: SYS_pwrite64 with a live descriptor and `len` bytes that lie within the mapping.
        let n = unsafe { crate::raw::syscall(libc::SYS_pwrite64, file.as_raw_fd(), from, len, at) };
        usize::try_from(n)
            .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
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
        let n = unsafe { crate::raw::syscall(libc::SYS_read, fd.as_raw_fd(), target, len) };
        usize::try_from(n)
            .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Copies `out.len()` bytes from `from`; they may change meanwhile.
///
/// # Safety
/// There must be as many bytes of a living mapping.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_shared(from: *const u8, out: &mut [u8]) {
    // SAFETY: `from` may be read for `out.len()` bytes, says the caller; `out` lies elsewhere, as
    // nobody is given a slice of a mapping. That other processes write to the source makes no race
    // that the language knows of: the instruction stands for relaxed atomic loads of single bytes.
    // The direction flag is clear, as it is wherever Rust's code enters assembly.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") out.len() => _,
            inout("rsi") from => _,
            inout("rdi") out.as_mut_ptr() => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies `out.len()` bytes from `from`; they may change meanwhile.
///
/// # Safety
/// There must be as many bytes of a living mapping.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_shared(from: *const u8, out: &mut [u8]) {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    for (i, place) in out.iter_mut().enumerate() {
        // SAFETY: `i` is less than `out.len()`, for which there are bytes, says the caller.
        let byte = unsafe { from.add(i) };
        // SAFETY: it points into the mapping, all access to which is by atomics.
        *place = unsafe { AtomicU8::from_ptr(byte.cast_mut()) }.load(Relaxed);
    }
}

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// Into the second level of the cache, where it stays while the kernel does a request's part.
#[inline]
fn prefetch_line(at: *const i8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint that reads nothing: it does not fault, wherever `at` points. SSE is part
        // of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

impl AsRef<Mapping> for Mapping {
    fn as_ref(&self) -> &Mapping {
        self
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        crate::guard::remove(self.base.as_ptr() as usize);
        // SAFETY: `base` and the length are those of the mapping made in `new`, unmapped only here;
        // no borrow of it outlives `self`. A failure leaves the mapping in place, which is
        // harmless.
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
    fn pieces_are_written_one_behind_the_other_and_dropped_pages_read_as_zeros() {
        let file = memfd_create("belay-test", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 8192).expect("ftruncate");
        let map = Mapping::new(file.as_fd(), 8192).expect("map");
        map.words()[1].store(u64::from_ne_bytes(*b"abcdefgh"), Relaxed);
        map.words()[512].store(u64::from_ne_bytes(*b"ijklmnop"), Relaxed);
        let out = memfd_create("belay-test-out", MemfdFlags::CLOEXEC).expect("memfd");
        assert_eq!(map.write_to(out.as_fd(), 3, &[(4096, 2), (10, 3)]), Ok(5));
        let mut found = [0; 8];
        assert_eq!(rustix::io::pread(&out, &mut found, 0).expect("pread"), 8);
        assert_eq!(&found, b"\0\0\0ijcde");
        assert_eq!(map.write_to(out.as_fd(), 0, &[(8190, 3)]), Err(libc::EFAULT));
        assert_eq!(map.write_to(out.as_fd(), 1, &[(8, 2)]), Ok(2));
        assert_eq!(rustix::io::pread(&out, &mut found, 0).expect("pread"), 8);
        assert_eq!(&found, b"\0abijcde");
        map.discard(4096, 4096).expect("discard");
        assert_eq!(map.words()[512].load(Relaxed), 0);
        assert!(map.discard(8192, 4096).is_err());
    }

    #[test]
    fn bytes_are_copied_out_where_there_are_as_many() {
        let file = memfd_create("belay-test", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 4096).expect("ftruncate");
        let map = Mapping::new(file.as_fd(), 4096).expect("map");
        let bytes: Vec<u8> = (0..4096_usize).map(|i| (i % 251) as u8).collect();
        assert!(map.fill(0, &bytes));
        for (at, len) in [(0, 4096), (511, 8), (1, 0), (512, 0), (3, 77), (100, 1000)] {
            let mut out = vec![0xee; len + 2];
            assert!(map.copy_out(at, &mut out[1..=len]), "{at} {len}");
            assert_eq!(out[1..=len], bytes[at * 8..at * 8 + len]);
            assert_eq!((out[0], out[len + 1]), (0xee, 0xee));
        }
        let mut out = [7; 9];
        assert!(!map.copy_out(511, &mut out) && !map.copy_out(513, &mut out[..0]));
        assert!(!map.copy_out(usize::MAX, &mut out) && out == [7; 9]);
        // A hint, wherever it points.
        map.prefetch(0, 4096);
        map.prefetch(511, 4096);
        map.prefetch(usize::MAX, usize::MAX);
    }

    #[test]
    fn bytes_are_filled_in_where_they_fit() {
        let file = memfd_create("belay-test", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 4096).expect("ftruncate");
        let map = Mapping::new(file.as_fd(), 4096).expect("map");
        assert!(map.fill(510, b"0123456789abcdef"));
        assert_eq!(map.words()[511].load(Relaxed).to_ne_bytes(), *b"89abcdef");
        assert!(!map.fill(510, b"0123456789abcdefg") && !map.fill(513, b"") && map.fill(512, b""));
        assert!(map.fill(3, b"xyz"));
        assert_eq!(map.words()[3].load(Relaxed).to_ne_bytes(), *b"xyz\0\0\0\0\0");
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
