//! What can be asked of a namespace, by calls or by messages.

use belay_memory::Memory;
use belay_object::{Lower, ObjectId};
use belay_posix::directory::Entry;
use belay_posix::namespace::{Change, Node, Rename, Set};
use belay_posix::{Error, Namespace, Time};

/// What is asked, and why it fails.
pub type Result<T, N> = std::result::Result<T, Error<<N as Names>::Below>>;

/// An extended attribute: its name and its value.
pub type Extended = (Vec<u8>, Vec<u8>);

/// A namespace.
pub trait Names {
    /// Why a layer below it fails.
    type Below: std::fmt::Display;

    /// What time it is.
    fn now(&self) -> Time;

    /// What a name leads to.
    ///
    /// # Errors
    /// Those of the namespace, as for all of these.
    fn lookup(&mut self, at: ObjectId, name: &[u8]) -> Result<Node, Self>;

    /// What is told of a file.
    ///
    /// # Errors
    /// See above.
    fn node(&mut self, object: ObjectId) -> Result<Node, Self>;

    /// Makes a file of any kind but a symbolic link.
    ///
    /// # Errors
    /// See above.
    fn make(&mut self, at: ObjectId, name: &[u8], mode: u32, device: u32) -> Result<(), Self>;

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// See above.
    fn symlink(&mut self, at: ObjectId, name: &[u8], target: &[u8]) -> Result<(), Self>;

    /// Gives a file another name.
    ///
    /// # Errors
    /// See above.
    fn link(&mut self, object: ObjectId, at: ObjectId, name: &[u8]) -> Result<(), Self>;

    /// Removes a name of what is no directory.
    ///
    /// # Errors
    /// See above.
    fn unlink(&mut self, at: ObjectId, name: &[u8]) -> Result<(), Self>;

    /// Removes a directory.
    ///
    /// # Errors
    /// See above.
    fn rmdir(&mut self, at: ObjectId, name: &[u8]) -> Result<(), Self>;

    /// Renames a file.
    ///
    /// # Errors
    /// See above.
    fn rename(
        &mut self,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
        how: Rename,
    ) -> Result<(), Self>;

    /// Reads from a file; less than that at its end.
    ///
    /// # Errors
    /// See above.
    fn read(&mut self, object: ObjectId, offset: u64, length: usize) -> Result<Vec<u8>, Self>;

    /// Writes to a file.
    ///
    /// # Errors
    /// See above.
    fn write(&mut self, object: ObjectId, offset: u64, data: &[u8]) -> Result<(), Self>;

    /// Changes metadata.
    ///
    /// # Errors
    /// See above.
    fn change(&mut self, object: ObjectId, change: Change) -> Result<Node, Self>;

    /// Makes room, or zeros.
    ///
    /// # Errors
    /// See above.
    fn allocate(
        &mut self,
        object: ObjectId,
        offset: u64,
        length: u64,
        flags: u32,
    ) -> Result<(), Self>;

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// See above.
    fn readlink(&mut self, object: ObjectId) -> Result<Vec<u8>, Self>;

    /// Some names of a directory behind a key.
    ///
    /// # Errors
    /// See above.
    fn list(&mut self, object: ObjectId, behind: u64) -> Result<Vec<Entry>, Self>;

    /// All extended attributes of a file.
    ///
    /// # Errors
    /// See above.
    fn extended(&mut self, object: ObjectId) -> Result<Vec<Extended>, Self>;

    /// What an extended attribute says.
    ///
    /// # Errors
    /// See above.
    fn get_extended(&mut self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>, Self>;

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// See above.
    fn set_extended(
        &mut self,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: Set,
    ) -> Result<(), Self>;

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// See above.
    fn remove_extended(&mut self, object: ObjectId, name: &[u8]) -> Result<(), Self>;
}

/// Names that are listed at once.
const LISTED: usize = 7;

/// By calls, all in one request.
impl<M: Memory, B: Lower> Names for Namespace<'_, '_, M, B>
where
    B::Error: std::fmt::Display,
{
    type Below = B::Error;

    fn now(&self) -> Time {
        self.caller().now
    }

    fn lookup(&mut self, at: ObjectId, name: &[u8]) -> Result<Node, Self> {
        Namespace::lookup(self, at, name)
    }

    fn node(&mut self, object: ObjectId) -> Result<Node, Self> {
        Namespace::node(self, object)
    }

    fn make(&mut self, at: ObjectId, name: &[u8], mode: u32, device: u32) -> Result<(), Self> {
        Namespace::make(self, at, name, mode, device).map(|_| ())
    }

    fn symlink(&mut self, at: ObjectId, name: &[u8], target: &[u8]) -> Result<(), Self> {
        Namespace::symlink(self, at, name, target).map(|_| ())
    }

    fn link(&mut self, object: ObjectId, at: ObjectId, name: &[u8]) -> Result<(), Self> {
        Namespace::link(self, object, at, name).map(|_| ())
    }

    fn unlink(&mut self, at: ObjectId, name: &[u8]) -> Result<(), Self> {
        Namespace::unlink(self, at, name)
    }

    fn rmdir(&mut self, at: ObjectId, name: &[u8]) -> Result<(), Self> {
        Namespace::rmdir(self, at, name)
    }

    fn rename(
        &mut self,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
        how: Rename,
    ) -> Result<(), Self> {
        Namespace::rename(self, from, to, how)
    }

    fn read(&mut self, object: ObjectId, offset: u64, length: usize) -> Result<Vec<u8>, Self> {
        Namespace::read(self, object, offset, length)
    }

    fn write(&mut self, object: ObjectId, offset: u64, data: &[u8]) -> Result<(), Self> {
        Namespace::write(self, object, Some(offset), data)
    }

    fn change(&mut self, object: ObjectId, change: Change) -> Result<Node, Self> {
        Namespace::change(self, object, change)
    }

    fn allocate(
        &mut self,
        object: ObjectId,
        offset: u64,
        length: u64,
        flags: u32,
    ) -> Result<(), Self> {
        Namespace::allocate(self, object, offset, length, flags).map(|_| ())
    }

    fn readlink(&mut self, object: ObjectId) -> Result<Vec<u8>, Self> {
        Namespace::readlink(self, object)
    }

    fn list(&mut self, object: ObjectId, behind: u64) -> Result<Vec<Entry>, Self> {
        Namespace::list(self, object, behind, LISTED)
    }

    fn extended(&mut self, object: ObjectId) -> Result<Vec<Extended>, Self> {
        let all = Namespace::extended(self, object)?;
        Ok(all.into_iter().map(|one| (one.name, one.value)).collect())
    }

    fn get_extended(&mut self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>, Self> {
        Namespace::get_extended(self, object, name)
    }

    fn set_extended(
        &mut self,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: Set,
    ) -> Result<(), Self> {
        Namespace::set_extended(self, object, name, value, how)
    }

    fn remove_extended(&mut self, object: ObjectId, name: &[u8]) -> Result<(), Self> {
        Namespace::remove_extended(self, object, name)
    }
}
