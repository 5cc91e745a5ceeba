//! Looking at the log of a daemon that may live.
//!
//! To open a log is to write to it: what a death has left is tidied up. Only the daemon that is to
//! use the log may do that, as a store of anybody else's takes away what it puts on record
//! meanwhile. All others look at it by memory that they cannot write to.

use crate::capacity::Capacity;
use crate::log::Oplog;
use crate::record::Corrupt;
use belay_memory::Memory;

/// Memory that is only read: what is stored there is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Unwritten<M>(M);

impl<M: Memory> Memory for Unwritten<M> {
    fn load(&self, at: usize) -> u64 {
        self.0.load(at)
    }
    fn store(&self, _: usize, _: u64) {}
    fn compare_exchange(&self, at: usize, _: u64, _: u64) -> Result<u64, u64> {
        Err(self.0.load(at))
    }
    fn add(&self, at: usize, _: u64) -> u64 {
        self.0.load(at)
    }
    fn load_fields<const N: usize>(&self, at: usize, fields: [usize; N]) -> [u64; N] {
        self.0.load_fields(at, fields)
    }
    fn load_bytes(&self, at: usize, out: &mut [u8]) {
        self.0.load_bytes(at, out);
    }
}

impl<M: Memory> Oplog<Unwritten<M>> {
    /// The log as it is now, unchanged. See [`Oplog::open`], which is for the daemon that goes on
    /// with it.
    ///
    /// # Errors
    /// If it is damaged, or a daemon that lives has changed it in the meantime: then another look
    /// finds it whole.
    pub fn look(memory: M, at: usize, capacity: Capacity, epoch: u64) -> Result<Self, Corrupt> {
        Self::open(Unwritten(memory), at, capacity, epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forged::{CAPACITY, EPOCH, Words};
    use crate::record::Facts;

    /// At every state that a log can be found in: used, of an epoch that has ended, never used,
    /// with a cut prepared, damaged.
    #[test]
    fn a_look_changes_nothing() {
        let words = Words::default_of(CAPACITY.words());
        let unchanged = |epoch| {
            let before = words.copy();
            let found = Oplog::look(&words, 0, CAPACITY, epoch).map(|log| log.sizes().records);
            assert_eq!(words.copy(), before);
            found
        };
        assert_eq!(unchanged(EPOCH), Ok(0), "never used");
        let mut log = Oplog::fresh(&words, 0, CAPACITY, EPOCH);
        for node in 1..4 {
            let facts = Facts { opcode: 4, node, ..Facts::default() };
            log.append(&facts, &[0; 40], &[], None).expect("room");
        }
        assert_eq!(unchanged(EPOCH), Ok(3));
        assert_eq!(unchanged(EPOCH + 1), Ok(0), "the epoch has ended");
        assert_eq!(log.prepare_cut(1, std::iter::empty()), Ok(true));
        assert_eq!(unchanged(EPOCH), Ok(3), "a cut is prepared");
        assert_eq!(unchanged(EPOCH + 1), Ok(2), "and made");
        (&words).store(0, 7);
        assert_eq!(unchanged(EPOCH), Err(Corrupt));
    }
}
