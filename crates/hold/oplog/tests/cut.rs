//! Checkpoints in the middle of a log: which there can be, and that the log and its epoch change in
//! the same instant.
#![allow(missing_docs)]

mod common;

use belay_oplog::{Capacity, Oplog};
use common::short::{fresh, write};

/// Numbers of the writes that are there, by their first byte.
fn bytes<M: belay_memory::Memory>(log: &Oplog<M>) -> Vec<u8> {
    let issues = log.replay(1 << 20).map(|issue| issue.expect("whole"));
    issues.flat_map(|issue| issue.data).map(|run| run.bytes.first().copied().unwrap_or(0)).collect()
}

#[test]
fn there_is_no_cut_between_data_and_what_took_its_place() {
    let (_, mut log) = fresh(Capacity::SMALL);
    write(&mut log, 7, 0, 4096, 1);
    write(&mut log, 8, 0, 4096, 2);
    write(&mut log, 7, 0, 4096, 3);
    write(&mut log, 8, 8192, 4096, 4);
    // In front of the second and third the first would be missing.
    assert_eq!(log.cuts(), [false, false, false, true]);
}

#[test]
fn the_store_that_ends_the_epoch_cuts_the_log() {
    let (memory, mut log) = fresh(Capacity::SMALL);
    for byte in 1..=4 {
        write(&mut log, u64::from(byte), 0, 100, byte);
    }
    let epoch = log.epoch();
    let names = || [(1, b"name".to_vec(), 9)].into_iter();
    assert_eq!(log.cuts(), [false, true, true, true]);
    let open = |epoch| {
        Oplog::open(memory.clone(), common::short::AT, Capacity::SMALL, epoch).expect("whole")
    };
    // A daemon dies before that store, and the next epoch comes by another way: nothing of it is
    // taken for its log.
    assert_eq!(log.prepare_cut(2, names()), Ok(true));
    assert_eq!(bytes(&open(epoch)), [1, 2, 3, 4]);
    assert!(bytes(&open(epoch + 1)).is_empty());

    let (memory, mut log) = fresh(Capacity::SMALL);
    for byte in 1..=4 {
        write(&mut log, u64::from(byte), 0, 100, byte);
    }
    assert_eq!(log.prepare_cut(2, names()), Ok(true));
    // It dies behind the store: the rest is the log, whether anybody has said so or not.
    let mut next =
        Oplog::open(memory.clone(), common::short::AT, Capacity::SMALL, epoch + 1).expect("whole");
    assert_eq!(bytes(&next), [3, 4]);
    let said: Vec<_> = next.notable().map(|record| record.expect("whole").names.len()).collect();
    assert_eq!(said, [1]);
    assert_eq!(log.cut(), Ok(Some(1)));
    assert_eq!(bytes(&log), [3, 4]);
    // And it can be cut again.
    assert_eq!(next.cuts(), [false, true, true]);
    assert_eq!(next.prepare_cut(2, names()), Ok(true));
    assert_eq!(next.cut(), Ok(Some(1)));
    assert_eq!(bytes(&next), [4]);
}
