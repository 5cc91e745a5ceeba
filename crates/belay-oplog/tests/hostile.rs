//! What a wild write has hit is not taken for true, and brings nobody down.
#![allow(missing_docs)]

mod common;

use belay_oplog::namespace::from_triples;
use belay_oplog::{Capacity, Facts, Issue, NameChange, Namespace, Oplog};
use belay_recorder::Memory;
use belay_wire::Opcode;
use common::Sim;
use common::short::{AT, EPOCH, body, facts, fresh, issues, open, other, write};
use proptest::prelude::*;

const SMALL: Capacity = Capacity { record_bytes: 8 << 10, pages: 12 };

fn filled() -> (Sim, Oplog<Sim>) {
    let (memory, mut log) = fresh(SMALL);
    write(&mut log, 3, 0, 5000, b'a');
    let name = NameChange { parent: 1, name: b"a name"[..].into(), before: 0, after: 7 };
    log.append(&facts(Opcode::MKNOD, 4, [0, 0]), b"body\0", &[name], None).expect("room");
    write(&mut log, 3, 4096, 4096, b'b');
    other(&mut log, Opcode::SETATTR, [3, 0]);
    write(&mut log, 3, 10, 10, b'c');
    (memory, log)
}

/// The words that count: the head, and the records in the first half.
fn words(log: &Oplog<Sim>) -> Vec<usize> {
    let first = AT + 512;
    [AT].into_iter().chain(first..first + log.sizes().record_bytes / 8).collect()
}

/// All that a successor does, with all its errors.
fn use_it(memory: &Sim, epoch: u64) -> Option<Vec<Issue>> {
    let mut log = Oplog::open(memory.clone(), AT, SMALL, epoch).ok()?;
    let found: Result<Vec<_>, _> = log.replay(1000).collect();
    if let Ok(mut space) = Namespace::at_checkpoint(&log) {
        let now = from_triples([(1, b"x".to_vec(), 50)]);
        for record in log.records().flatten() {
            let _ = space.path(1, record.facts.node, &now);
            space.forward(&record.names);
        }
    }
    let _ = log.retract(4);
    for round in 0..40 {
        let Some(staged) = log.stage(round * 100, &[1; 5000]) else { break };
        let facts = Facts { size: 5000, ..facts(Opcode::WRITE, 2, [3, 0]) };
        let _ = log.append(&facts, &body(0, 5000, 0), &[], Some(staged));
        let _ = log.append(&facts, b"", &[], None);
    }
    let _ = (log.sizes(), log.spare(), log.replay(1000).count());
    log.restart(epoch + 1);
    found.ok()
}

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
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

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
