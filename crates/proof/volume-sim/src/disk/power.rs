//! What all disks of a machine have in common.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// What all disks of a machine have in common: power, and how many writes and flushes there were.
#[derive(Clone, Debug, Default)]
pub struct Power(Rc<(Cell<u64>, Cell<Option<u64>>)>);

impl Power {
    /// How many writes and flushes there were.
    pub fn steps(&self) -> u64 {
        self.0.0.get()
    }

    /// Has the power fail, or the process die, at that write or flush, counted from the start: it
    /// and all later ones do nothing.
    pub fn end_at(&self, step: Option<u64>) {
        self.0.1.set(step);
    }

    /// Whether there is none.
    pub fn is_off(&self) -> bool {
        self.0.1.get().is_some_and(|end| self.steps() >= end)
    }

    /// A write or flush begins; an error if there is no power any more.
    pub(super) fn step(&self) -> io::Result<()> {
        if self.is_off() {
            return Err(io::Error::other("there is no power"));
        }
        self.0.0.set(self.steps() + 1);
        Ok(())
    }
}
