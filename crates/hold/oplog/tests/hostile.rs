//! What a wild write has hit is not taken for true, and brings nobody down.
#![allow(missing_docs)]

mod common;

use belay_memory::Memory;
use belay_oplog::{Capacity, Facts, Namespace, Oplog};
use belay_wire::Opcode;
use common::Sim;
use common::hostile::{SMALL, filled, use_it, words};
use common::short::{AT, EPOCH, body, facts, fresh, issues, open, other, write};
use proptest::prelude::*;

#[test]
fn no_altered_record_is_taken_for_true() {
    let (memory, log) = filled();
    let truth = issues(&log);
    let mut refused = 0;
    for at in words(&log) {
        let before = memory.load(at);
        let bits = (0..64).map(|bit| before ^ 1 << bit);
        for altered in bits.chain([0, !0, !before, 0x6161_6161_6161_6161]) {
            if altered == before {
                continue;
            }
            memory.store(at, altered);
            let copy = memory.copy();
            let found = Oplog::open(copy.clone(), AT, SMALL, EPOCH).map(|log| issues(&log));
            assert!(found.is_err() || found == Ok(truth.clone()), "word {at} is {altered:#x}");
            refused += usize::from(found.is_err());
            use_it(&copy, EPOCH);
            memory.store(at, before);
        }
    }
    assert!(refused > 5000, "{refused}");
    assert_eq!(issues(&open(&memory, SMALL)), truth);
}

#[test]
fn damage_under_a_living_log_is_refused_until_the_next_epoch() {
    let capacity = Capacity { record_bytes: 4096, pages: 12 };
    let (memory, mut log) = fresh(capacity);
    other(&mut log, Opcode::MKDIR, [0, 0]);
    memory.store(AT + 512 + 3, 1);
    let facts = Facts { size: 10, ..facts(Opcode::WRITE, 2, [3, 0]) };
    let mut refused = Vec::new();
    for _ in 0..100 {
        let staged = log.stage(0, &[0; 10]);
        assert!(staged.is_some(), "what was refused gives its pages back");
        refused.extend(log.append(&facts, &body(0, 10, 0), &[], staged).err());
    }
    // It is found when records are written anew.
    assert!(
        refused.len() > 10 && refused.iter().all(|why| why.to_string() == "the op-log is damaged")
    );
    assert!(log.replay(100).any(|issue| issue.is_err()));
    assert!(Namespace::at_checkpoint(&log).is_err());
    log.restart(EPOCH + 1);
    write(&mut log, 3, 0, 10, b'a');
    assert_eq!(log.sizes().records, 1);
}

proptest! {
    #![proptest_config(belay_seeds::cases!(2000))]

    #[test]
    fn scribbles_bring_nobody_down(
        scribbles in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), any::<bool>()), 1..8),
        epoch in EPOCH..EPOCH + 2,
    ) {
        let (memory, log) = filled();
        let words = words(&log);
        for (at, value, small) in scribbles {
            memory.store(words[at.index(words.len())], if small { value % 64 } else { value });
        }
        use_it(&memory, epoch);
    }

    #[test]
    fn neither_does_any_other_memory(words in prop::collection::vec(any::<u64>(), 0..600)) {
        let memory = Sim::new(AT + SMALL.words());
        for (at, word) in words.iter().enumerate() {
            memory.store(AT + at, *word);
        }
        use_it(&memory, EPOCH);
        // One that is shorter than it should be.
        let short = Sim::new(AT + words.len());
        use_it(&short, EPOCH);
    }
}
