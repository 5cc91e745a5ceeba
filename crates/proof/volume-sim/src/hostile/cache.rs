//! A cache's memory, any word of which says something else, and records of transactions that nobody
//! would make.

use super::objects::Objects;
use super::{Bytes, change, fill, use_all};
use crate::memory::SimMemory;
use belay_cache::answers::Answers;
use belay_cache::intent::{replay, waiting};
use belay_cache::layout::{ANSWER, CELL, ENTRY};
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_memory::Memory;
use belay_object::{Lower, ObjectId, Transaction};

const CAPACITY: Capacity = Capacity { frames: 96, slots: 24 };

/// A memory that is whole, with a log, and what is below it.
#[derive(Clone, Debug)]
pub struct World {
    words: Vec<u64>,
    below: Objects,
}

impl World {
    /// One in which something was published since the last checkpoint.
    pub fn new() -> Self {
        let layout = Layout::new(CAPACITY);
        let memory = SimMemory::new(layout.words);
        let shared = Shared::new(memory.clone(), layout);
        let mut below = Objects::default();
        let room = below.room().unwrap_or_default();
        shared.initialize(0, 0, &room);
        shared.set_valid();
        shared.begin_mount(1);
        fill(&shared, &mut below);
        change(&shared, &mut below);
        let words = (0..layout.words).map(|at| memory.load(at)).collect();
        Self { words, below }
    }

    /// Uses the memory after these bytes have said what is wrong with it.
    pub fn use_with(&self, data: &[u8]) {
        let layout = Layout::new(CAPACITY);
        let memory = SimMemory::of(self.words.clone());
        let shared = Shared::new(memory.clone(), layout);
        let mut below = self.below.clone();
        let mut bytes = Bytes::new(data);
        let published = bytes.byte();
        if published & 1 != 0 {
            // Its checksum is right.
            let operations = bytes.take(usize::from(published & 0xfe) * 8).to_vec();
            publish(&shared, &mut below, operations);
        }
        while !bytes.is_empty() {
            let at = place(&layout, &mut bytes);
            memory.store(at, bytes.number());
        }
        use_memory(&shared, &mut below);
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// A word: of the header, the log, the answers, a table, a cell, or a frame.
fn place(layout: &Layout, bytes: &mut Bytes<'_>) -> usize {
    let frames = CAPACITY.frames as usize;
    let cells = layout.cells as usize;
    match bytes.byte() % 9 {
        0..3 => bytes.below(24),
        3 => layout.slots + bytes.below(CAPACITY.slots as usize),
        4 => layout.answers + bytes.below(40 * ANSWER),
        5 => layout.table + bytes.below(frames * ENTRY),
        6 => layout.cell_table + bytes.below(cells),
        // What a record begins with.
        7 => layout.cell_area + bytes.below(cells) * CELL + bytes.below(8),
        _ => layout.frames + bytes.below(frames * 512),
    }
}

/// Publishes what a process gone mad would, as far as that makes sense.
fn publish(shared: &Shared<SimMemory>, below: &mut Objects, operations: Vec<u8>) {
    let Ok(mut publisher) = Publisher::attach::<<Objects as Lower>::Error>(shared.clone(), 3)
    else {
        return;
    };
    let mut cut = operations;
    let transaction = loop {
        match Transaction::decode(cut.clone()) {
            Ok(transaction) => break transaction,
            Err(_) => cut.truncate(cut.len().saturating_sub(1) / 8 * 8),
        }
    };
    let mut draft = publisher.draft();
    for operation in transaction.operations().flatten() {
        publisher.add(&mut draft, &operation);
    }
    let _ = publisher.commit::<<Objects as Lower>::Error>(draft, 9, b"answered");
    let _ = publisher.room(below);
}

/// Does what all processes of a volume do with the memory.
fn use_memory(shared: &Shared<SimMemory>, below: &mut Objects) {
    let _ = (shared.is_valid(), shared.has_much(), shared.is_empty(), shared.last_sealed());
    let _ = (shared.frames().free(), shared.cells().free(), shared.is_cleared(1), shared.durable());
    let mut answers = Answers::default();
    for unique in [7, u64::MAX] {
        let _ = answers.to(shared, unique);
    }
    let cleaner = Cleaner::new(shared.clone());
    let objects: Vec<ObjectId> = (0..30).chain([u64::MAX]).map(ObjectId).collect();
    let _ = cleaner.sync(below, &objects);
    let _ = waiting(below);
    let generation = shared.next_generation();
    match Publisher::attach::<<Objects as Lower>::Error>(shared.clone(), generation) {
        Ok(publisher) => use_all(&mut publisher.keeping(1 << 20), below, |_, _, _| {}),
        Err(why) => drop(why.to_string()),
    }
    for _ in 0..2 {
        let _ = cleaner.checkpoint(below);
    }
    shared.begin_mount(2);
    let _ = replay(below);
}
