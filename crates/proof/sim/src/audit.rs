//! What must be left when everything is closed and forgotten: nothing.

use super::life::{Life, Outside};
use belay_memory::Memory;
use belay_recorder::layout::{HANDLE_WORDS, NODE_WORDS};

// Words of the store's header (belay_recorder::store).
const NODE_TOP: usize = 0;
const HANDLE_TOP: usize = 2;
const HEAP_TOP: usize = 4;
const LOCKS: usize = 5;
const HIDDEN: usize = 7;
const INDICES: usize = 16;
const HEAP_CLASSES: usize = 32;
const MAX_UNITS: usize = 68;

/// Panics if the store or the daemon holds what it should not.
pub fn check(out: &Outside, life: &Life, crashed: bool) {
    let header = |at: usize| out.memory.load(out.layout.store + at) as usize;
    let heap = free_units(out);
    let handles: Vec<_> = (1..header(HANDLE_TOP))
        .filter(|i| out.memory.load(out.layout.handles + i * HANDLE_WORDS + 4) >> 32 & 1 != 0)
        .collect();
    assert!(handles.is_empty(), "handles {handles:?} are left in the store");
    assert_eq!(header(LOCKS), 0, "locks are left in the store");
    assert_eq!(header(HIDDEN), 0, "hidden files are left in the store");
    let session = life.host.session();
    let slots = (0..session.store().slots())
        .filter(|i| session.store().slot_request(belay_recorder::Slot(*i)).is_some());
    let claimed = life.claimed();
    assert_eq!(slots.count(), claimed, "slots are in use");
    assert!(!session.is_full(), "the session believes that the store is full");
    let kernel = out.kernel.borrow();
    if !kernel.leaked.is_empty() || kernel.plus_in_crash {
        return; // lookups are leaked, as documented
    }
    let nodes: Vec<_> = (2..header(NODE_TOP))
        .filter(|i| out.memory.load(out.layout.nodes + i * NODE_WORDS + 6) & 1 != 0)
        .map(|i| {
            let at = out.layout.nodes + i * NODE_WORDS;
            (i, (0..NODE_WORDS).map(|w| out.memory.load(at + w)).collect::<Vec<_>>())
        })
        .collect();
    assert!(nodes.is_empty(), "nodes are left in the store: {nodes:x?}");
    for index in 0..3 {
        assert_eq!(header(INDICES + 2 * index + 1), 0, "index {index} is not empty");
    }
    assert_eq!(life.daemon.leftovers(), "", "left in the daemon");
    if !crashed {
        assert_eq!(heap, header(HEAP_TOP) - 1, "heap units are lost");
    }
}

/// Counts the free units of the heap, each of which must be on one list once.
fn free_units(out: &Outside) -> usize {
    let header = |at: usize| out.memory.load(out.layout.store + at) as usize;
    let mut free = vec![false; header(HEAP_TOP)];
    for units in 1..=MAX_UNITS {
        let mut block = header(HEAP_CLASSES + units);
        while block != 0 {
            for unit in &mut free[block..block + units] {
                assert!(!*unit, "a heap unit is free twice");
                *unit = true;
            }
            block = out.memory.load(out.layout.heap + 2 * block) as usize;
        }
    }
    free.iter().filter(|free| **free).count()
}
