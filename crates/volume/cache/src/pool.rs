//! Places in the memory that have owners: frames for pages, and cells for records of the log.
//!
//! A place is free, or belongs to a generation of a process, which alone fills it. That it was
//! published then does not show here, but in the log: what belongs to a dead generation and is in
//! no transaction of the log is free again ([`Pool::sweep`]).
//!
//! Each time that a place is given back its version grows. Who reads one looks at the version
//! before and after it has copied the content: so nobody has to be told who reads.

use crate::layout::ENTRY;
use crate::shared::Shared;
use belay_memory::Memory;

/// A place, and which of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The place.
    pub place: u32,
    version: u32,
}

impl Version {
    /// As a number, which can be written down.
    pub fn number(self) -> u64 {
        u64::from(self.version) << VERSION | u64::from(self.place)
    }

    /// What was written down.
    pub fn from_number(number: u64) -> Self {
        Self { place: number as u32, version: version_of(number) }
    }
}

/// Bits of the state word: the version, the generation that it belongs to, and whether it belongs
/// to one.
const TAKEN: u64 = 1;
const GENERATION: u32 = 8;
const VERSION: u32 = 32;

fn version_of(state: u64) -> u32 {
    (state >> VERSION) as u32
}

fn generation_of(state: u64) -> u32 {
    (state >> GENERATION) as u32 & 0xff_ffff
}

/// All places of a kind.
#[derive(Debug)]
pub struct Pool<'a, M> {
    memory: &'a M,
    /// Where the state word of the first one is, and how far away that of the next one.
    table: usize,
    stride: usize,
    count: u32,
}

impl<M: Memory> Shared<M> {
    /// The frames.
    pub fn frames(&self) -> Pool<'_, M> {
        let (table, count) = (self.layout.table, self.layout.capacity.frames);
        Pool { memory: &self.memory, table, stride: ENTRY, count }
    }

    /// The cells.
    pub fn cells(&self) -> Pool<'_, M> {
        let (table, count) = (self.layout.cell_table, self.layout.cells);
        Pool { memory: &self.memory, table, stride: 1, count }
    }
}

impl<M: Memory> Pool<'_, M> {
    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    fn state(&self, place: u32) -> usize {
        self.table + place as usize * self.stride
    }

    /// Takes a free place for a generation, from `hint` on; `None` if there is none.
    pub(crate) fn take(&self, generation: u32, hint: &mut u32) -> Option<u32> {
        for _ in 0..self.count {
            let place = *hint % self.count;
            *hint = place + 1;
            let at = self.state(place);
            let state = self.memory.load(at);
            let taken =
                state & !0xffff_ffff | u64::from(generation & 0xff_ffff) << GENERATION | TAKEN;
            if state & TAKEN == 0 && self.memory.compare_exchange(at, state, taken).is_ok() {
                return Some(place);
            }
        }
        None
    }

    /// Gives a place back, if its state is one for which that is right. Whoever still reads it
    /// notices. If somebody else gives it back meanwhile, it is not done again: it may have a new
    /// owner by then.
    fn give_back_where(&self, place: u32, is_right: impl Fn(u64) -> bool) {
        let at = self.state(place);
        let state = self.memory.load(at);
        if place < self.count && state & TAKEN != 0 && is_right(state) {
            let free = u64::from(version_of(state).wrapping_add(1)) << VERSION;
            // Who fails at it has nothing to give back any more.
            let _ = self.memory.compare_exchange(at, state, free);
        }
    }

    /// Gives a place back that belongs to that generation.
    pub(crate) fn give_back(&self, place: u32, generation: u32) {
        self.give_back_where(place, |state| generation_of(state) == generation & 0xff_ffff);
    }

    /// Gives a place back that still holds that.
    pub(crate) fn give_back_if(&self, version: Version) {
        self.give_back_where(version.place, |state| version_of(state) == version.version);
    }

    /// Which content a place has now; `None` if there is no such place, or it is free.
    pub(crate) fn version(&self, place: u32) -> Option<Version> {
        let state = self.memory.load(self.state(place));
        let there = place < self.count && state & TAKEN != 0;
        there.then_some(Version { place, version: version_of(state) })
    }

    /// Gives back all places of generations other than `alive` but those in use.
    pub(crate) fn sweep(&self, alive: u32, used: impl IntoIterator<Item = u32>) {
        let mut unused = vec![true; self.count as usize];
        for place in used {
            if let Some(unused) = unused.get_mut(place as usize) {
                *unused = false;
            }
        }
        for (place, _) in (0..self.count).zip(unused).filter(|(_, unused)| *unused) {
            self.give_back_where(place, |state| generation_of(state) != alive & 0xff_ffff);
        }
    }

    /// How many are free.
    pub fn free(&self) -> u32 {
        let is_free = |place: &u32| self.memory.load(self.state(*place)) & TAKEN == 0;
        (0..self.count).filter(is_free).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Capacity, Layout};
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    /// What another process does.
    type Other = Box<dyn FnOnce()>;

    /// Words, and what happens before one of the accesses.
    #[derive(Clone, Default)]
    struct Stepped {
        words: Rc<RefCell<Vec<u64>>>,
        left: Rc<Cell<Option<u32>>>,
        other: Rc<RefCell<Option<Other>>>,
    }

    impl Stepped {
        fn step(&self) {
            let left = self.left.get();
            self.left.set(left.and_then(|left| left.checked_sub(1)));
            if left == Some(0)
                && let Some(other) = self.other.take()
            {
                other();
            }
        }
    }

    impl Memory for Stepped {
        fn load(&self, at: usize) -> u64 {
            self.step();
            self.words.borrow()[at]
        }

        fn store(&self, at: usize, value: u64) {
            self.step();
            self.words.borrow_mut()[at] = value;
        }

        fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
            self.step();
            let word = &mut self.words.borrow_mut()[at];
            if *word != old {
                return Err(*word);
            }
            *word = new;
            Ok(old)
        }

        fn add(&self, at: usize, by: u64) -> u64 {
            self.step();
            let word = &mut self.words.borrow_mut()[at];
            let old = *word;
            *word += by;
            old
        }
    }

    const DEAD: u32 = 1;
    const NEXT: u32 = 2;

    /// The next life of a module sweeps and takes a frame at any moment at which somebody else
    /// gives it back: it keeps it.
    fn keeps(give_back: impl Fn(&Shared<Stepped>, Version)) {
        for step in 0..6 {
            let layout = Layout::new(Capacity { frames: 1, slots: 4 });
            let memory = Stepped::default();
            memory.words.borrow_mut().resize(layout.words, 0);
            let shared = Shared::new(memory.clone(), layout);
            let frame = shared.frames().take(DEAD, &mut 0).unwrap();
            let version = shared.frames().version(frame).unwrap();
            let next = shared.clone();
            *memory.other.borrow_mut() = Some(Box::new(move || {
                next.frames().sweep(NEXT, []);
                next.frames().take(NEXT, &mut 0).unwrap();
            }));
            memory.left.set(Some(step));
            give_back(&shared, version);
            if let Some(other) = memory.other.take() {
                other();
            }
            let state = shared.memory.load(shared.layout.entry(frame));
            assert!(state & TAKEN != 0 && generation_of(state) == NEXT, "after {step} accesses");
        }
    }

    #[test]
    fn a_frame_is_given_back_once() {
        keeps(|shared, version| shared.frames().give_back_if(version));
        keeps(|shared, version| shared.frames().give_back(version.place, DEAD));
        // Another life sweeps at the same time.
        keeps(|shared, _| shared.frames().sweep(NEXT, []));
    }
}
