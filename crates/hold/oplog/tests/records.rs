//! Records: whole or not there, of one epoch, and no more than fit.
#![allow(missing_docs)]

mod common;

use belay_memory::Memory;
use belay_oplog::{Capacity, Entry, Facts, NameChange, Oplog, Refused, Run};
use belay_wire::Opcode;
use common::Sim;
use common::short::{AT, EPOCH, body, facts, fresh, issues, open, other, write};

const SMALL: Capacity = Capacity::SMALL;

fn change(parent: u64, name: &'static [u8], before: u64, after: u64) -> NameChange<'static> {
    NameChange { parent, name: name.into(), before, after }
}

#[test]
fn all_of_a_record_comes_back() {
    let (memory, mut log) = fresh(SMALL);
    let facts = Facts {
        unique: 0x1234_5678_9abc_def0,
        opcode: Opcode::RENAME2.0,
        uid: 1,
        gid: u32::MAX,
        pid: 3,
        time: 1 << 60,
        node: 5,
        files: [6, 7],
        errno: 17,
        size: 8,
        entry: Entry { key: 9, ino: 10, mode: 0o100644 },
    };
    let names = [change(1, b"", 2, 3), change(4, b"eight by", 0, 6), change(7, &[b'x'; 255], 8, 0)];
    let staged = log.stage(4093, b"some bytes");
    log.append(&facts, b"thirteen byte", &names, staged).expect("room");
    log.append(&Facts::default(), &[], &[], None).expect("room");
    for log in [&log, &open(&memory, SMALL)] {
        let records: Vec<_> = log.records().collect::<Result<_, _>>().expect("whole");
        assert_eq!(records.len(), 2);
        assert_eq!((records[0].facts, records[1].facts), (facts, Facts::default()));
        assert_eq!((&*records[0].body, &*records[0].names), (&b"thirteen byte"[..], &names[..]));
        assert!(records[1].body.is_empty() && records[1].names.is_empty());
        // An error keeps no data.
        assert!(issues(log).iter().all(|issue| issue.data.is_empty()));
    }
    assert_eq!(log.sizes().staged_pages, 0);
}

#[test]
fn data_of_other_requests_are_kept_as_they_are() {
    let (memory, mut log) = fresh(SMALL);
    let value: Vec<u8> = (0..9000).map(|i| i as u8).collect();
    for _ in 0..2 {
        let staged = log.stage(0, &value);
        log.append(&facts(Opcode::SETXATTR, 2, [3, 0]), b"head", &[], staged).expect("room");
    }
    let found = issues(&open(&memory, SMALL));
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|issue| issue.data == [Run { offset: 0, bytes: value.clone() }]));
}

#[test]
fn the_last_store_of_an_append_is_the_one() {
    let (memory, mut log) = fresh(SMALL);
    write(&mut log, 3, 0, 100, b'a');
    let probe = memory.copy();
    memory.mark();
    write(&mut log, 3, 50, 100, b'b');
    let stores = memory.take();
    assert!(stores.len() > 30);
    for (i, (at, _, new)) in stores.iter().enumerate() {
        let before = open(&probe, SMALL);
        let bytes = issues(&before)[0].data[0].bytes.clone();
        assert_eq!((issues(&before).len(), bytes), (1, vec![b'a'; 100]), "store {i}");
        probe.store(*at, *new);
    }
    let after = issues(&open(&probe, SMALL));
    let expected: Vec<u8> = [[b'a'; 50].as_slice(), &[b'b'; 100]].concat();
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].data, [Run { offset: 0, bytes: expected }]);
}

#[test]
fn a_record_whose_request_was_not_answered_goes_again() {
    let (memory, mut log) = fresh(SMALL);
    write(&mut log, 3, 0, 5000, b'a');
    let before = (issues(&log), log.sizes());
    let staged = log.stage(10, &[b'b'; 4086]);
    let second = Facts { size: 4086, ..facts(Opcode::WRITE, 4, [3, 0]) };
    log.append(&second, &body(10, 4086, 0), &[], staged).expect("room");
    let after = (issues(&log), log.sizes());
    let mut successor = open(&memory, SMALL);
    assert_eq!(successor.retract(2), Ok(false), "only the last one does");
    assert_eq!((issues(&successor), successor.sizes()), after);
    assert_eq!(successor.retract(4), Ok(true));
    assert_eq!((issues(&successor), successor.sizes()), before);
    assert_eq!((issues(&open(&memory, SMALL)), successor.retract(4)), (before.0, Ok(false)));
    assert_eq!((successor.retract(2), successor.retract(2)), (Ok(true), Ok(false)));
}

#[test]
fn full_means_refused_and_nothing_is_lost() {
    let capacity = Capacity { record_bytes: 4096, pages: 3 };
    let (memory, mut log) = fresh(capacity);
    assert!(log.stage(4095, &[0; 8194]).is_none(), "four pages");
    let three = log.stage(4095, &[0; 8193]).expect("three");
    assert!(log.stage(0, &[1]).is_none() && log.stage(0, &[]).is_some());
    assert_eq!((log.sizes().staged_pages, log.sizes().pages_most), (3, 3));
    log.unstage(three);
    assert!(log.reserve(u64::MAX, 1).is_none() && log.reserve(u64::MAX - 4096, 1).is_none());
    let mut n = 0;
    while log.append(&facts(Opcode::MKDIR, n, [0, 0]), b"name", &[], None).is_ok() {
        n += 1;
    }
    assert_eq!(n, 4096 / (16 * 8));
    let staged = log.stage(0, b"data");
    let before = memory.copy();
    assert_eq!(
        log.append(&facts(Opcode::SETXATTR, 99, [0, 0]), &[], &[], staged),
        Err(Refused::Full)
    );
    assert_eq!((log.sizes().staged_pages, log.sizes().records), (0, n as usize));
    assert_eq!(issues(&open(&before, capacity)), issues(&log));
    let huge = vec![0; 1 << 20];
    assert_eq!(log.append(&facts(Opcode::MKDIR, 1, [0, 0]), &huge, &[], None), Err(Refused::Full));
    log.restart(EPOCH + 1);
    other(&mut log, Opcode::MKDIR, [0, 0]);
    assert_eq!(log.sizes().records, 1);
}

fn at_epoch(memory: &Sim, epoch: u64) -> Vec<u64> {
    let log = Oplog::open(memory.clone(), AT, SMALL, epoch).expect("whole");
    log.records().map(|record| record.expect("whole").facts.unique).collect()
}

#[test]
fn a_new_epoch_never_finds_an_older_ones_records() {
    let (memory, mut log) = fresh(SMALL);
    for unique in 0..5 {
        // Of one length, so that the new epoch's lie exactly on the old one's.
        log.append(&facts(Opcode::MKDIR, unique, [0, 0]), b"name", &[], None).expect("room");
    }
    assert_eq!(at_epoch(&memory.copy(), EPOCH), [0, 1, 2, 3, 4]);
    // The caller's store is all that it takes.
    assert!(at_epoch(&memory.copy(), EPOCH + 1).is_empty());
    assert!(at_epoch(&memory.copy(), EPOCH + 7).is_empty());
    let probe = memory.copy();
    memory.mark();
    log.restart(EPOCH + 1);
    for unique in 10..13 {
        log.append(&facts(Opcode::MKDIR, unique, [0, 0]), b"name", &[], None).expect("room");
    }
    let mut seen = Vec::new();
    for (at, _, new) in memory.take() {
        probe.store(at, new);
        let found = at_epoch(&probe.copy(), EPOCH + 1);
        assert!([10, 11, 12].starts_with(&found), "{found:?}");
        seen.push(found.len());
    }
    assert!(seen.is_sorted() && seen.last() == Some(&3) && seen.first() == Some(&0));
    // Numbers do not go back; who says so has damaged memory before him.
    assert!(Oplog::open(memory.copy(), AT, SMALL, EPOCH).is_err());
}

#[test]
fn what_is_staged_outlives_a_checkpoint() {
    let (_, mut log) = fresh(SMALL);
    write(&mut log, 3, 0, 4096, b'a');
    let staged = log.stage(0, &[b'b'; 4096]).expect("room");
    write(&mut log, 3, 4096, 4096, b'c');
    log.restart(EPOCH + 1);
    assert_eq!((log.sizes().pages, log.sizes().staged_pages, log.epoch()), (0, 1, EPOCH + 1));
    for file in 10..20 {
        write(&mut log, file, 0, 4096, b'd');
    }
    let facts = Facts { size: 4096, ..facts(Opcode::WRITE, 2, [3, 0]) };
    log.append(&facts, &body(0, 4096, 0), &[], Some(staged)).expect("room");
    let found = issues(&log);
    assert_eq!(found.len(), 11);
    assert_eq!(found[10].data[0].bytes, [b'b'; 4096]);
}

#[test]
fn a_memory_is_blank_only_once() {
    let (memory, mut log) = fresh(SMALL);
    other(&mut log, Opcode::MKDIR, [0, 0]);
    memory.store(AT, 0);
    assert!(Oplog::open(memory.clone(), AT, SMALL, EPOCH).is_err(), "the head was wiped");
    let mut log = Oplog::fresh(memory.clone(), AT, SMALL, EPOCH);
    assert_eq!(log.sizes().records, 0);
    other(&mut log, Opcode::MKDIR, [0, 0]);
    assert_eq!(open(&memory, SMALL).sizes().records, 1);
}

/// A record that a file was stored takes all others of that file out of the log, by one store, and
/// their pages with them.
#[test]
fn a_file_that_was_stored_is_not_issued_again() {
    for stores in [Opcode::FLUSH, Opcode::FSYNC, Opcode::RELEASE] {
        let (memory, mut log) = fresh(SMALL);
        other(&mut log, Opcode::CREATE, [3, 0]);
        write(&mut log, 3, 0, 100, b'a');
        write(&mut log, 4, 0, 5000, b'b');
        write(&mut log, 3, 50, 9000, b'c');
        other(&mut log, Opcode::SETATTR, [3, 0]);
        assert!(log.holds(3) && log.holds(4) && log.of_file(3).count() == 3);
        let probe = memory.copy();
        memory.mark();
        other(&mut log, stores, [3, 0]);
        for (i, (at, _, new)) in memory.take().iter().enumerate() {
            assert_eq!(open(&probe, SMALL).of_file(3).count(), 3, "store {i}");
            probe.store(*at, *new);
        }
        for log in [&log, &open(&memory, SMALL), &open(&probe, SMALL)] {
            assert!(!log.holds(3) && log.holds(4));
            assert_eq!(issues(log).len(), 1);
            let sizes = log.sizes();
            assert_eq!((sizes.records, sizes.data_bytes, sizes.pages), (1, 5000, 2));
        }
        // What comes later is on record again, whatever becomes of the dead ones.
        for round in 0..2000 {
            write(&mut log, 3, 0, 10, b'd');
            other(&mut log, stores, [3, 0]);
            assert_eq!(issues(&log).len(), 1, "{round}");
        }
        write(&mut log, 3, 20, 10, b'e');
        let found = issues(&open(&memory, SMALL));
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].data, [Run { offset: 20, bytes: vec![b'e'; 10] }]);
    }
}
