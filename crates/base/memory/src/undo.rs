//! Changes that are all or nothing, whenever their maker dies.
//!
//! A change is a series of word stores that ends with [`UndoLog::commit`]. Before each store the
//! old value is put on record in the undo area; `commit` empties that area with one store. A
//! process that is killed in between leaves an area that is not empty, and [`UndoLog::recover`]
//! puts the old values back. So every change either happened or did not.
//!
//! * One process makes changes at a time, and one thread of it.
//! * It guards against the death of processes, not of the machine, so program order is all that it
//!   needs.
//! * A change that has more stores than the area has room for says so in the area before it goes
//!   on. If its maker dies then, nobody can tell what the memory held before: `recover` fails.

use crate::words::Memory;
use std::cell::Cell;

/// What the area's first word says of a change that did not fit.
const OVERFLOWN: u64 = u64::MAX;

/// A process has died in a change for which the undo area had no room, or has written rubbish
/// there: the memory may be half changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a change was cut off that is not on record as a whole")]
pub struct Overflow;

/// The undo area of a memory: a count, then that many pairs of (word, old value).
#[derive(Debug)]
pub struct UndoLog {
    at: usize,
    room: usize,
    used: Cell<usize>,
}

impl UndoLog {
    /// The area at word `at`, with room for so many pairs. [`Self::recover`] comes before the first
    /// change, as another process may have left one half made.
    #[must_use]
    pub fn new(at: usize, room: usize) -> Self {
        Self { at, room, used: Cell::new(0) }
    }

    /// Whether a change is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used.get() == 0
    }

    /// Sets a word, which is `old` now, as part of the change under way.
    #[inline]
    pub fn replace<M: Memory>(&self, memory: &M, at: usize, old: u64, value: u64) {
        if old == value {
            return; // nothing to do, so nothing to undo
        }
        let used = self.used.get();
        if used < self.room {
            memory.store_words(self.at + 1 + 2 * used, [at as u64, old]);
            memory.store(self.at, used as u64 + 1);
            self.used.set(used + 1);
        } else {
            memory.store(self.at, OVERFLOWN);
        }
        memory.store(at, value);
    }

    /// Makes the change under way final.
    #[inline]
    pub fn commit<M: Memory>(&self, memory: &M) {
        memory.store(self.at, 0);
        self.used.set(0);
    }

    /// Takes back a change that a dead process has left half made. Gives the number of words
    /// restored.
    ///
    /// # Errors
    /// [`Overflow`]; nothing is changed then, so who comes later is told the same.
    pub fn recover<M: Memory>(&self, memory: &M) -> Result<usize, Overflow> {
        let pairs = usize::try_from(memory.load(self.at)).unwrap_or(usize::MAX);
        if pairs > self.room {
            return Err(Overflow);
        }
        for pair in (0..pairs).rev() {
            let at = self.at + 1 + 2 * pair;
            memory.store(memory.load(at) as usize, memory.load(at + 1));
        }
        self.commit(memory);
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Memory of a process that dies behind so many stores.
    struct Words {
        words: RefCell<Vec<u64>>,
        left: Cell<usize>,
    }

    impl Words {
        fn new(left: usize) -> Self {
            Self { words: RefCell::new(vec![0; 64]), left: Cell::new(left) }
        }
    }

    impl Memory for Words {
        fn load(&self, at: usize) -> u64 {
            self.words.borrow().get(at).copied().unwrap_or(0)
        }
        fn store(&self, at: usize, value: u64) {
            let Some(left) = self.left.get().checked_sub(1) else { return };
            self.left.set(left);
            if let Some(word) = self.words.borrow_mut().get_mut(at) {
                *word = value;
            }
        }
        fn compare_exchange(&self, _: usize, _: u64, _: u64) -> Result<u64, u64> {
            unreachable!("nobody asks")
        }
        fn add(&self, _: usize, _: u64) -> u64 {
            unreachable!("nobody asks")
        }
    }

    const ROOM: usize = 4;
    const FIRST: usize = 32;

    /// Sets words from [`FIRST`] on, in one change.
    fn change(memory: &Words, log: &UndoLog, words: usize, value: u64) {
        for at in FIRST..FIRST + words {
            log.replace(memory, at, memory.load(at), value);
        }
        log.commit(memory);
    }

    #[test]
    fn a_change_that_fits_is_all_or_nothing_wherever_it_is_cut_off() {
        for stores in 0..=4 * ROOM + 1 {
            let memory = Words::new(usize::MAX);
            let log = UndoLog::new(0, ROOM);
            change(&memory, &log, ROOM, 1);
            memory.left.set(stores);
            change(&memory, &log, ROOM, 2);
            memory.left.set(usize::MAX);
            let log = UndoLog::new(0, ROOM);
            assert!(log.recover(&memory).is_ok(), "{stores}");
            let words: Vec<u64> = (FIRST..FIRST + ROOM).map(|at| memory.load(at)).collect();
            assert!(words == [1; ROOM] || words == [2; ROOM], "{stores}: {words:?}");
            assert_eq!(log.recover(&memory), Ok(0));
        }
    }

    #[test]
    fn one_that_does_not_fit_is_never_taken_for_whole() {
        let mut failed = 0;
        for stores in 0..=4 * ROOM + 7 {
            let memory = Words::new(usize::MAX);
            let log = UndoLog::new(0, ROOM);
            change(&memory, &log, ROOM, 1);
            change(&memory, &log, 1, 1);
            memory.left.set(stores);
            change(&memory, &log, ROOM + 2, 2);
            memory.left.set(usize::MAX);
            let log = UndoLog::new(0, ROOM);
            let words = |from: usize, to: usize| -> Vec<u64> {
                (FIRST + from..FIRST + to).map(|at| memory.load(at)).collect()
            };
            if log.recover(&memory).is_ok() {
                let (old, new) = (words(0, ROOM) == [1; ROOM], words(0, ROOM) == [2; ROOM]);
                let rest = words(ROOM, ROOM + 2);
                assert!(old && rest == [0; 2] || new && rest == [2; 2], "{stores}");
            } else {
                failed += 1;
                assert_eq!(log.recover(&memory), Err(Overflow), "told again");
            }
        }
        assert!(failed > 0);
        // Who comes to the end has made it.
        let memory = Words::new(usize::MAX);
        change(&memory, &UndoLog::new(0, ROOM), ROOM + 2, 2);
        assert_eq!(UndoLog::new(0, ROOM).recover(&memory), Ok(0));
    }
}
