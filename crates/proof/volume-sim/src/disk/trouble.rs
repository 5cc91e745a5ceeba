//! What a disk answers for a while, until it is well again.

use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;

/// What a disk answers for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trouble {
    /// Reads fail.
    Reads,
    /// Writes fail, and leave half of a block.
    Writes,
    /// Flushes fail, and can be tried again.
    Flushes,
    /// Flushes fail. What was to be written is read as if it had been, and goes with the power,
    /// whatever later ones say.
    LostWrites,
    /// The file system that the image is on is full: a block that was not written yet cannot be.
    Full,
}

/// All of them.
pub const TROUBLES: [Trouble; 5] =
    [Trouble::Reads, Trouble::Writes, Trouble::Flushes, Trouble::LostWrites, Trouble::Full];

type Meanwhile = Box<dyn FnOnce()>;

/// When a disk is in trouble, and when it stalls.
#[derive(Default)]
pub struct Troubles {
    /// What it is, and how many accesses are answered before.
    now: Cell<Option<(Trouble, u64)>>,
    /// What others do while an access is not answered, and how many are before it.
    stall: RefCell<Option<(u64, Meanwhile)>>,
    /// The read after so many fails, and none after it.
    one: Cell<Option<u64>>,
    errors: Cell<u64>,
}

impl fmt::Debug for Troubles {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Troubles").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Troubles {
    /// It begins after so many accesses, and goes on until the disk is well.
    pub fn begin(&self, trouble: Trouble, after: u64) {
        self.now.set(Some((trouble, after)));
    }

    /// The read after so many fails, and none after it.
    pub fn fail_one_read(&self, after: u64) {
        self.one.set(Some(after));
    }

    /// The access after so many is not answered before others have done that.
    pub fn stall(&self, after: u64, meanwhile: Meanwhile) {
        *self.stall.borrow_mut() = Some((after, meanwhile));
    }

    /// The disk is well again.
    pub fn end(&self) {
        self.now.set(None);
        self.one.set(None);
        *self.stall.borrow_mut() = None;
    }

    /// All accesses are answered from now on; gives whether one was to stall, and has not come.
    pub fn answer(&self) -> bool {
        self.stall.borrow_mut().take().is_some()
    }

    /// How many accesses have failed.
    pub fn errors(&self) -> u64 {
        self.errors.get()
    }

    /// An access: the trouble that it meets.
    fn access(&self) -> Option<Trouble> {
        let is_due = match self.stall.borrow_mut().as_mut() {
            Some((0, _)) => true,
            Some((left, _)) => {
                *left -= 1;
                false
            }
            None => false,
        };
        if is_due {
            let meanwhile = self.stall.borrow_mut().take();
            meanwhile.into_iter().for_each(|(_, meanwhile)| meanwhile());
        }
        match self.now.get()? {
            (trouble, 0) => Some(trouble),
            (trouble, left) => {
                self.now.set(Some((trouble, left - 1)));
                None
            }
        }
    }

    fn failed(&self, kind: io::ErrorKind, why: &'static str) -> io::Error {
        self.errors.set(self.errors.get() + 1);
        io::Error::new(kind, why)
    }

    pub(super) fn read(&self) -> io::Result<()> {
        let left = self.one.get();
        self.one.set(left.and_then(|left| left.checked_sub(1)));
        if left == Some(0) {
            return Err(self.failed(io::ErrorKind::Other, "one read fails"));
        }
        match self.access() {
            Some(Trouble::Reads) => Err(self.failed(io::ErrorKind::Other, "a read fails")),
            _ => Ok(()),
        }
    }

    pub(super) fn write(&self, is_new: bool) -> io::Result<()> {
        match self.access() {
            Some(Trouble::Writes) => Err(self.failed(io::ErrorKind::Other, "a write fails")),
            Some(Trouble::Full) if is_new => {
                Err(self.failed(io::ErrorKind::StorageFull, "there is no room for the image"))
            }
            _ => Ok(()),
        }
    }

    /// An error, and whether what was to be written is lost.
    pub(super) fn flush(&self) -> Result<(), (io::Error, bool)> {
        let failed = || self.failed(io::ErrorKind::Other, "a flush fails");
        match self.access() {
            Some(Trouble::Flushes) => Err((failed(), false)),
            Some(Trouble::LostWrites) => Err((failed(), true)),
            _ => Ok(()),
        }
    }
}
