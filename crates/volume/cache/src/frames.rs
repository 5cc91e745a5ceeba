//! Pages in the memory.
//!
//! A frame is free, or belongs to a generation of a process, which alone fills it. That it was published then does not show here, but in
//! the log: what belongs to a dead generation and is in no transaction of the log is free again ([`Shared::sweep`]).
//!
//! Each time that a frame is given back its version grows. Who reads one looks at the version before and after it has copied the
//! content: so nobody has to be told who reads.

use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{ObjectId, PAGE};
use xxhash_rust::xxh3::xxh3_64;

/// A frame, and which of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The frame.
    pub frame: u32,
    version: u32,
}

impl Version {
    /// As a number, which can be written down.
    pub fn number(self) -> u64 {
        u64::from(self.version) << VERSION | u64::from(self.frame)
    }

    /// What was written down.
    pub fn from_number(number: u64) -> Self {
        Self { frame: number as u32, version: version_of(number) }
    }
}

/// Bits of the state word: the version, the generation that it belongs to, and whether it belongs to one.
const TAKEN: u64 = 1;
const GENERATION: u32 = 8;
const VERSION: u32 = 32;

fn version_of(state: u64) -> u32 {
    (state >> VERSION) as u32
}

fn generation_of(state: u64) -> u32 {
    (state >> GENERATION) as u32 & 0xff_ffff
}

impl<M: Memory> Shared<M> {
    /// Takes a free frame for a generation, from `hint` on; `None` if there is none.
    pub(crate) fn take(&self, generation: u32, hint: &mut u32) -> Option<u32> {
        let count = self.layout.capacity.frames;
        for _ in 0..count {
            let frame = *hint % count;
            *hint = frame + 1;
            let at = self.layout.entry(frame);
            let state = self.memory.load(at);
            let taken =
                state & !0xffff_ffff | u64::from(generation & 0xff_ffff) << GENERATION | TAKEN;
            if state & TAKEN == 0 && self.memory.compare_exchange(at, state, taken).is_ok() {
                return Some(frame);
            }
        }
        None
    }

    /// Gives a frame back, if its state is one for which that is right. Whoever still reads it notices. If somebody else gives it back
    /// meanwhile, it is not done again: it may have a new owner by then.
    fn give_back_where(&self, frame: u32, is_right: impl Fn(u64) -> bool) {
        let at = self.layout.entry(frame);
        let state = self.memory.load(at);
        if frame < self.layout.capacity.frames && state & TAKEN != 0 && is_right(state) {
            let free = u64::from(version_of(state).wrapping_add(1)) << VERSION;
            // Who fails at it has nothing to give back any more.
            let _ = self.memory.compare_exchange(at, state, free);
        }
    }

    /// Gives a frame back that belongs to that generation.
    pub(crate) fn give_back(&self, frame: u32, generation: u32) {
        self.give_back_where(frame, |state| generation_of(state) == generation & 0xff_ffff);
    }

    /// Gives a frame back that still holds that.
    pub(crate) fn give_back_if(&self, version: Version) {
        self.give_back_where(version.frame, |state| version_of(state) == version.version);
    }

    /// Fills a frame that the caller has taken with a page of an object.
    pub(crate) fn fill(&self, frame: u32, object: ObjectId, page: u64, content: &[u8; PAGE]) {
        let at = self.layout.entry(frame);
        self.memory.store_bytes(self.layout.content(frame), content);
        self.memory.store(at + 1, object.0);
        self.memory.store(at + 2, page);
        self.memory.store(at + 3, xxh3_64(content));
    }

    /// Which content a frame has now; `None` if there is no such frame, or it is free.
    pub(crate) fn version(&self, frame: u32) -> Option<Version> {
        let state = self.memory.load(self.layout.entry(frame));
        let there = frame < self.layout.capacity.frames && state & TAKEN != 0;
        there.then_some(Version { frame, version: version_of(state) })
    }

    /// Reads a page from its frame; false if the frame holds something else by now, or what does not match its checksum.
    pub(crate) fn read_page(
        &self,
        version: Version,
        object: ObjectId,
        page: u64,
        out: &mut [u8; PAGE],
    ) -> bool {
        let at = self.layout.entry(version.frame);
        self.memory.load_bytes(self.layout.content(version.frame), out);
        let [of, number, checksum] = self.memory.load_fields(at, [1, 2, 3]);
        self.version(version.frame) == Some(version)
            && (of, number) == (object.0, page)
            && checksum == xxh3_64(out)
    }

    /// Gives back all frames of generations other than `alive` that are not in use; of each, `used` says that.
    pub(crate) fn sweep(&self, alive: u32, used: &[bool]) {
        let unused = |frame: &u32| used.get(*frame as usize) == Some(&false);
        for frame in (0..self.layout.capacity.frames).filter(unused) {
            self.give_back_where(frame, |state| generation_of(state) != alive & 0xff_ffff);
        }
    }

    /// How many frames are free.
    pub fn free_frames(&self) -> u32 {
        let is_free = |frame: &u32| self.memory.load(self.layout.entry(*frame)) & TAKEN == 0;
        (0..self.layout.capacity.frames).filter(is_free).count() as u32
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

    /// The next life of a module sweeps and takes a frame at any moment at which somebody else gives it back: it keeps it.
    fn keeps(give_back: impl Fn(&Shared<Stepped>, Version)) {
        for step in 0..6 {
            let layout = Layout::new(Capacity { frames: 1, slots: 4 });
            let memory = Stepped::default();
            memory.words.borrow_mut().resize(layout.words, 0);
            let shared = Shared::new(memory.clone(), layout);
            let frame = shared.take(DEAD, &mut 0).unwrap();
            let version = shared.version(frame).unwrap();
            let next = shared.clone();
            *memory.other.borrow_mut() = Some(Box::new(move || {
                next.sweep(NEXT, &[false]);
                next.take(NEXT, &mut 0).unwrap();
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
        keeps(|shared, version| shared.give_back_if(version));
        keeps(|shared, version| shared.give_back(version.frame, DEAD));
        // Another life sweeps at the same time.
        keeps(|shared, _| shared.sweep(NEXT, &[false]));
    }
}
