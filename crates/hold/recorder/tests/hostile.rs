//! Memory that a dying daemon scribbled over: no reader panics, and each ends soon.
#![allow(missing_docs)]

mod common;

use belay_memory::Memory;
use belay_recorder::layout::NODE_WORDS;
use belay_recorder::{Node, Store};
use common::readers::{CAPACITY, LAYOUT, populated, read_all, write_some};
use common::{Random, Sim};
use proptest::prelude::*;

/// Items that are, taken as heap units, handles, nodes or counts, mostly in range.
fn plausible(random: &mut Random) -> u64 {
    let mut half = || match random.below(8) {
        0 => 0,
        1 => 1,
        2 => u64::from(u32::MAX),
        3 => random.next() & 0xffff_ffff,
        4 => random.next() % 16,
        _ => random.next() % 2048,
    };
    let (low, high) = (half(), half());
    high << 32 | low
}

proptest! {
    #![proptest_config(belay_seeds::cases!(24))]

    #[test]
    fn random_memory(seed: u64) {
        let mut random = Random(seed);
        let memory = Sim::from_words((0..LAYOUT.words).map(|_| random.next()).collect());
        let store = Store::new(memory, LAYOUT);
        read_all(&store);
        write_some(&store);
        read_all(&store);
    }

    #[test]
    fn memory_full_of_plausible_links(seed: u64) {
        let mut random = Random(seed);
        let memory = Sim::from_words((0..LAYOUT.words).map(|_| plausible(&mut random)).collect());
        read_all(&Store::new(memory, LAYOUT));
    }

    #[test]
    fn a_store_with_some_words_changed(seed: u64, words in 1..400usize) {
        let (memory, store) = populated();
        read_all(&store);
        let mut random = Random(seed);
        for _ in 0..words {
            // Mostly where something is, and the store's header often.
            let at = match random.below(6) {
                0 => LAYOUT.store + random.below(110),
                1 => LAYOUT.nodes + random.below(21 * NODE_WORDS),
                2 => LAYOUT.handles + random.below(16 * 12),
                3 => LAYOUT.name_index + random.below(64),
                4 => random.below(LAYOUT.words),
                _ => LAYOUT.heap + random.below(4096),
            };
            memory.store(at, plausible(&mut random));
        }
        read_all(&store);
    }

    #[test]
    fn a_wild_undo_area_is_bounded(seed: u64, count: u64) {
        let (memory, _) = populated();
        let mut random = Random(seed);
        memory.store(LAYOUT.undo, count);
        for i in 0..2 * LAYOUT.undo_pairs {
            memory.store(LAYOUT.undo + 1 + i, plausible(&mut random));
        }
        let store = Store::new(memory, LAYOUT);
        let most = LAYOUT.undo_pairs as u64;
        prop_assert_eq!(store.recover().is_ok(), count <= most);
        prop_assert_eq!(store.recover().is_ok_and(|restored| restored == 0), count <= most);
        read_all(&store);
    }
}

#[test]
fn each_word_of_the_header_may_be_anything() {
    for field in 0..110 {
        for value in
            [0, 1, 63, 65, 1 << 31, u64::from(u32::MAX), 1 << 32, 1 << 62, 1 << 63, u64::MAX]
        {
            let (memory, store) = populated();
            memory.store(LAYOUT.store + field, value);
            read_all(&store);
            write_some(&store);
        }
    }
}

#[test]
fn lists_that_bite_their_tails_end() {
    let (memory, store) = populated();
    // Every word of the heap: next is unit 1, and so is everything else.
    for at in LAYOUT.heap..LAYOUT.copies {
        memory.store(at, 1 << 32 | 1);
    }
    read_all(&store);
    assert!(store.locks().len() <= 1 << 20);
    // Streams of the greatest length over one chunk.
    for handle in store.live_handles() {
        memory.store(LAYOUT.handles + store.handle_key(handle) as u32 as usize * 12 + 7, u64::MAX);
        assert!(store.stream_bytes(handle, 0).len() <= CAPACITY.heap_words * 8);
    }
}

#[test]
fn a_blank_memory_can_be_read() {
    let store = Store::new(Sim::new(LAYOUT.words), LAYOUT);
    assert!(store.is_blank());
    read_all(&store);
    let store = Store::new(Sim::new(0), LAYOUT);
    read_all(&store);
    write_some(&store);
}

/// Counts that somebody has written over end at the most.
#[test]
fn counts_end_at_the_most() {
    let (_, store) = populated();
    store.begin();
    store.set_count(Node::ROOT, u64::MAX);
    store.set_daemon_count(Node::ROOT, u64::MAX);
    store.count_for_kernel(Node::ROOT);
    store.count_for_daemon(Node::ROOT);
    store.commit();
    assert_eq!(store.count(Node::ROOT), u64::MAX);
    assert_eq!(store.daemon_count(Node::ROOT), u64::MAX);
}
