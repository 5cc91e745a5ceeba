//! What commits and recoveries need of a file, and of the memory that is written to it.

use std::io;

/// What is known of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its length in bytes.
    pub length: u64,
    /// The number of the device that it is on, or is.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// When it was last written to, in seconds since 1970.
    pub modified: i64,
    /// The user that it belongs to.
    pub owner: u32,
    /// Others than its owner may write to it.
    pub shared: bool,
    /// It is a device: its length is what it is.
    pub is_device: bool,
    /// The inode number is a file's, that of a device which shows one is meant by it. A device's
    /// own is another one after each boot.
    pub is_lasting: bool,
    /// The time tells of writes to this and to nothing else: of a device only if it shows a whole
    /// file.
    pub is_dated: bool,
}

/// A file, as far as commits and recoveries need one.
pub trait Storage {
    /// What to call it in messages.
    fn name(&self) -> String;
    /// What is known of it.
    ///
    /// # Errors
    /// Those of fstat(2).
    fn metadata(&self) -> io::Result<Metadata>;
    /// Reads from `offset` on; less than asked for only at the end of the file.
    ///
    /// # Errors
    /// Those of pread(2).
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Those of pwrite(2).
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the file shorter or longer.
    ///
    /// # Errors
    /// Those of ftruncate(2).
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Makes all that was done to the file durable.
    ///
    /// # Errors
    /// Those of fsync(2).
    fn sync(&self) -> io::Result<()>;
}

/// Memory from which a file of kind `F` can be written.
pub trait Source<F> {
    /// Copies bytes that start at byte `from` of the memory.
    fn load(&self, from: usize, out: &mut [u8]);
    /// Writes pieces of the memory (offset and length, in bytes; at most 64), one behind the other,
    /// to `offset` of `file`. Gives how much was written.
    ///
    /// # Errors
    /// Those of pwritev(2).
    fn write_to(&self, file: &F, offset: u64, pieces: &[(usize, usize)]) -> io::Result<usize>;
}
