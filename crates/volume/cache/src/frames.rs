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

    /// Gives a frame back. Whoever still reads it notices.
    pub(crate) fn give_back(&self, frame: u32) {
        let at = self.layout.entry(frame);
        let version = version_of(self.memory.load(at)).wrapping_add(1);
        self.memory.store(at, u64::from(version) << VERSION);
    }

    /// The same, if it still holds that.
    pub(crate) fn give_back_if(&self, version: Version) {
        if self.version(version.frame) == Some(version) {
            self.give_back(version.frame);
        }
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
        for frame in 0..self.layout.capacity.frames {
            let state = self.memory.load(self.layout.entry(frame));
            let is_dead = state & TAKEN != 0 && generation_of(state) != alive & 0xff_ffff;
            if is_dead && used.get(frame as usize) == Some(&false) {
                self.give_back(frame);
            }
        }
    }

    /// How many frames are free.
    pub fn free_frames(&self) -> u32 {
        let is_free = |frame: &u32| self.memory.load(self.layout.entry(*frame)) & TAKEN == 0;
        (0..self.layout.capacity.frames).filter(is_free).count() as u32
    }
}
