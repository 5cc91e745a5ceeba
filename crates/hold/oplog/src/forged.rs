//! Records that are nonsense under a right check value: nobody is brought down by them.

use crate::capacity::Capacity;
use crate::log::Oplog;
use crate::namespace::Namespace;
use crate::pages::Piece;
use crate::record::{Draft, Facts, NameChange};
use belay_memory::Memory;
use proptest::prelude::*;
use std::cell::RefCell;

pub(crate) struct Words(RefCell<Vec<u64>>);

impl Words {
    pub(crate) fn default_of(words: usize) -> Self {
        Self(RefCell::new(vec![0; words]))
    }

    pub(crate) fn copy(&self) -> Vec<u64> {
        self.0.borrow().clone()
    }
}

impl Memory for &Words {
    fn load(&self, at: usize) -> u64 {
        self.0.borrow().get(at).copied().unwrap_or(0)
    }
    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.0.borrow_mut().get_mut(at) {
            *word = value;
        }
    }
    fn compare_exchange(&self, _: usize, _: u64, _: u64) -> Result<u64, u64> {
        Err(0)
    }
    fn add(&self, _: usize, _: u64) -> u64 {
        0
    }
}

pub(crate) const CAPACITY: Capacity = Capacity { record_bytes: 8 << 10, pages: 8 };
pub(crate) const EPOCH: u64 = 3;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..5u64, any::<u64>(), Just(u64::MAX), Just(u64::MAX / 4096)]
}

fn piece() -> impl Strategy<Value = Piece> {
    let wild = (number(), any::<u32>(), any::<u16>(), any::<u16>());
    let near = (0..3u64, 0..10u32, 0..4096u16, 0..4097u16);
    prop_oneof![wild, near.clone(), near].prop_map(|(page, slot, from, length)| Piece {
        page,
        slot,
        from,
        length,
    })
}

type Forged = (u32, [u64; 5], Vec<u8>, Vec<(u64, Vec<u8>, u64, u64)>, Vec<Piece>);

fn forged() -> impl Strategy<Value = Forged> {
    let name = (number(), prop::collection::vec(any::<u8>(), 0..12), number(), number());
    (
        prop_oneof![3 => Just(16u32), 1 => Just(47), 1 => any::<u32>()],
        prop::array::uniform5(number()),
        prop::collection::vec(any::<u8>(), 0..60),
        prop::collection::vec(name, 0..3),
        prop_oneof![prop::collection::vec(piece(), 0..4), piece().prop_map(|piece| vec![piece])],
    )
}

proptest! {
    #![proptest_config(belay_seeds::cases!(4000))]

    #[test]
    fn forged_records_bring_nobody_down(records in prop::collection::vec(forged(), 1..8), cut in 0..3usize) {
        let words = Words::default_of(CAPACITY.words());
        let mut log = Oplog::fresh(&words, 0, CAPACITY, EPOCH);
        let mut bytes = Vec::new();
        for (opcode, [node, file, other, size, key], body, names, pieces) in &records {
            let mut facts = Facts { opcode: *opcode, node: *node, files: [*file, *other], ..Facts::default() };
            (facts.size, facts.entry.key) = (*size, *key);
            let change = |(parent, name, before, after): &(u64, Vec<u8>, u64, u64)| NameChange {
                parent: *parent,
                name: name.clone().into(),
                before: *before,
                after: *after,
            };
            let names: Vec<_> = names.iter().map(change).collect();
            let draft = Draft { facts: &facts, body, names: &names, pieces };
            log.forge(&draft, &mut bytes);
        }
        log.forge_length(cut);
        let Ok(mut log) = Oplog::open(&words, 0, CAPACITY, EPOCH) else { return Ok(()) };
        prop_assert!(log.sizes().pages <= CAPACITY.pages);
        let total = |log: &Oplog<&Words>| -> usize {
            let issues = log.replay(1000).flatten();
            issues.flat_map(|issue| issue.data).map(|run| run.bytes.len()).sum()
        };
        prop_assert!(total(&log) <= CAPACITY.pages * 4096);
        let mut space = Namespace::at_checkpoint(&log).expect("whole");
        for record in log.records().flatten() {
            for change in &record.names {
                let _ = space.path(1, change.after, &|key: u64| vec![(key / 2, vec![1])]);
            }
            space.forward(&record.names);
        }
        for round in 0..60 {
            let Some(staged) = log.stage(round * 50, &[7; 100]) else { break };
            let facts = Facts { opcode: 16, size: 100, files: [1, 0], ..Facts::default() };
            let _ = log.append(&facts, &[0; 40], &[], Some(staged));
            let _ = total(&log);
        }
        let again = Oplog::open(&words, 0, CAPACITY, EPOCH).expect("as it was found before");
        prop_assert_eq!(again.sizes(), log.sizes());
        prop_assert_eq!(again.replay(1000).collect::<Vec<_>>(), log.replay(1000).collect::<Vec<_>>());
    }
}
