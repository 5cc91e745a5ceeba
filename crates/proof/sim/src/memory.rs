//! Memory that outlives the simulated daemon, and the clock that decides when it dies.

use belay_memory::Memory;
use belay_oplog::Capacity;
use belay_recorder::layout::SLOT_WORDS;
use belay_recorder::{Blame, Layout};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// The usual op-log. It lies behind all else.
pub const OPLOG: Capacity = Capacity { record_bytes: 64 << 10, pages: 64 };

/// What a simulated death unwinds with, and what it says of a request that was alone.
pub struct Died(pub Blame);

/// What the end unwinds with of a daemon that ends as it should, for a checkpoint.
pub struct Ended;

/// Counts instants at which a daemon may die, and kills it at the planned ones.
pub struct Clock {
    ticks: Cell<u64>,
    die_at: Cell<u64>,
    plan: RefCell<VecDeque<u64>>,
}

impl Clock {
    /// Dies `plan[0]` ticks from now, then `plan[1]` ticks after that death, and so on.
    pub fn new(plan: &[u64]) -> Rc<Self> {
        let clock = Self {
            ticks: Cell::new(0),
            die_at: Cell::new(0),
            plan: RefCell::new(plan.iter().copied().collect()),
        };
        clock.arm();
        Rc::new(clock)
    }

    /// Plans the next death.
    pub fn arm(&self) {
        let next = self.plan.borrow_mut().pop_front();
        self.die_at.set(next.map_or(0, |n| self.ticks.get() + n));
    }

    /// Ticks so far.
    pub fn now(&self) -> u64 {
        self.ticks.get()
    }

    /// An instant at which the daemon may die. It dies before what comes next.
    pub fn tick(&self) {
        let now = self.ticks.get() + 1;
        self.ticks.set(now);
        if now == self.die_at.get() {
            std::panic::resume_unwind(Box::new(Died(Blame::Unknown)));
        }
    }
}

/// Words that several generations share.
#[derive(Clone)]
pub struct Words {
    words: Rc<Vec<Cell<u64>>>,
    clock: Rc<Clock>,
    decisions: std::ops::Range<usize>,
    undo: std::ops::Range<usize>,
    slots: std::ops::Range<usize>,
}

impl Words {
    pub fn new(layout: &Layout, oplog: Capacity, clock: Rc<Clock>) -> Self {
        Self {
            words: Rc::new((0..layout.words + oplog.words()).map(|_| Cell::new(0)).collect()),
            clock,
            decisions: layout.decisions..layout.name_index,
            undo: layout.undo + 1..layout.store,
            slots: layout.slots..layout.handles,
        }
    }

    /// The same memory for somebody who does not die.
    pub fn calm(&self) -> Self {
        Self { clock: Clock::new(&[]), ..self.clone() }
    }

    /// Writes as the kernel does when it fills a buffer: not an act of the daemon.
    pub fn fill(&self, byte: usize, bytes: &[u8]) {
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words[byte / 8 + i].set(u64::from_ne_bytes(word));
        }
    }
}

impl Memory for Words {
    fn load(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, Cell::get)
    }

    fn store(&self, at: usize, value: u64) {
        // No places where a death could matter: decisions, undo pairs (their count is what
        // counts), replies and bodies of requests (the slot's state is).
        let dull = self.decisions.contains(&at)
            || self.undo.contains(&at)
            || (self.slots.contains(&at) && (at - self.slots.start) % SLOT_WORDS > 8);
        if !dull {
            self.clock.tick();
        }
        if let Some(word) = self.words.get(at) {
            word.set(value);
        }
    }

    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        let found = self.load(at);
        if found == old {
            self.words[at].set(new);
            return Ok(old);
        }
        Err(found)
    }

    fn add(&self, at: usize, by: u64) -> u64 {
        let before = self.load(at);
        self.words[at].set(before.wrapping_add(by));
        before
    }
}

/// A small generator of pseudo-random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.number() % n.max(1) as u64) as usize
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.number() % 100 < percent
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
