//! Data: what later writes take over, what they do not, and how much there is of it.
#![allow(missing_docs)]

mod common;

use belay_oplog::{Capacity, EVERY_FILE, Facts, Replay};
use belay_wire::Opcode;
use belay_wire::abi::WRITE_KILL_SUIDGID;
use common::short::{body, facts, fresh, issues, open, other, runs, write, write_with};

/// Something that comes between two writes.
type Barrier<'a> = &'a dyn Fn(&mut belay_oplog::Oplog<common::Sim>);

const ROOMY: Capacity = Capacity { record_bytes: 1 << 20, pages: 1 << 10 };

#[test]
fn the_same_range_over_and_over_takes_no_more_than_once() {
    let (memory, mut log) = fresh(ROOMY);
    for round in 0..3000u32 {
        write(&mut log, 3, 0, 64 << 10, round as u8);
        let sizes = log.sizes();
        assert_eq!((sizes.records, sizes.pages, sizes.data_bytes), (1, 16, 64 << 10));
        assert!(sizes.record_bytes <= 80 << 10, "{sizes:?}");
    }
    let bytes = 2999u32 as u8;
    assert_eq!(runs(&log), [vec![(3, 0, 64 << 10, bytes, bytes)]]);
    assert_eq!(runs(&open(&memory, ROOMY)), runs(&log));
    // Of the memory as well: head, two halves of 80 KiB, twice 16 pages, and where pages of 512
    // words begin.
    assert!(memory.touched() <= 1 + 2 * 21 + 33, "{}", memory.touched());
}

#[test]
fn many_files_over_and_over() {
    let (_, mut log) = fresh(ROOMY);
    for round in 0..5000u64 {
        for file in 1..20 {
            write(&mut log, file, 4096 * (round % 7) + file, 300, round as u8);
        }
        assert!(log.sizes().pages <= 19 * 7 && log.sizes().records <= 19 * 7);
        assert!(log.sizes().record_bytes <= 2 * 19 * 7 * 184 + (66 << 10), "{:?}", log.sizes());
    }
}

#[test]
fn small_writes_one_behind_the_other_become_whole_pages() {
    let (memory, mut log) = fresh(ROOMY);
    let mut expected = Vec::new();
    for i in 0..1000u64 {
        let data: Vec<u8> = (0..100).map(|at| (i * 7 + at) as u8).collect();
        write_with(&mut log, 3, i * 100, &data, 0);
        expected.extend(data);
        assert_eq!(log.sizes().pages, (i as usize * 100 + 99) / 4096 + 1);
    }
    let mut file = vec![0; expected.len()];
    for issue in issues(&open(&memory, ROOMY)) {
        for run in issue.data {
            file[run.offset as usize..][..run.bytes.len()].copy_from_slice(&run.bytes);
        }
    }
    assert!(file == expected);
}

#[test]
fn what_overlaps_or_adjoins_becomes_one_and_what_is_apart_stays() {
    let (_, mut log) = fresh(ROOMY);
    write(&mut log, 3, 100, 50, b'a');
    write(&mut log, 3, 300, 50, b'b');
    write(&mut log, 3, 151, 10, b'c'); // one byte apart from the first
    assert_eq!((log.sizes().records, log.sizes().pages), (3, 3));
    write(&mut log, 3, 150, 1, b'd'); // and that byte
    assert_eq!((log.sizes().records, log.sizes().pages), (2, 2));
    assert_eq!(runs(&log), [vec![(3, 300, 50, b'b', b'b')], vec![(3, 100, 61, b'a', b'c')]]);
    write(&mut log, 3, 140, 170, b'e');
    assert_eq!(runs(&log), [[(3, 100, 250, b'a', b'b')]]);
    let bytes = &issues(&log)[0].data[0].bytes;
    assert!(
        bytes[..40] == [b'a'; 40] && bytes[40..210] == [b'e'; 170] && bytes[210..] == [b'b'; 40]
    );
    write(&mut log, 4, 140, 170, b'f');
    assert_eq!(log.sizes().records, 2, "another file");
}

#[test]
fn a_write_loses_the_pages_that_a_later_one_covers() {
    let (memory, mut log) = fresh(ROOMY);
    write(&mut log, 3, 0, 5 * 4096, b'a');
    write(&mut log, 3, 4096, 4096, b'b');
    write(&mut log, 3, 3 * 4096 + 1, 10, b'c');
    let expected = [
        vec![(3, 0, 4096, b'a', b'a'), (3, 8192, 4096, b'a', b'a'), (3, 16384, 4096, b'a', b'a')],
        vec![(3, 4096, 4096, b'b', b'b')],
        vec![(3, 3 * 4096, 4096, b'a', b'a')],
    ];
    assert_eq!(runs(&log), expected);
    assert_eq!(runs(&open(&memory, ROOMY)), expected);
    assert_eq!((log.sizes().pages, log.sizes().data_bytes), (5, 5 * 4096));
    // Split to what the daemon takes.
    let mut replay = Replay::new(3000);
    let issue = replay.next(&log).expect("whole").expect("there");
    let runs: Vec<_> = issue.data.iter().map(|run| (run.offset, run.bytes.len())).collect();
    let split = |at| [(at, 3000), (at + 3000, 1096)];
    assert_eq!(runs, [split(0), split(8192), split(16384)].concat());
}

#[test]
fn nothing_is_taken_over_across_a_barrier() {
    let barriers: [Barrier<'_>; 7] = [
        &|log| other(log, Opcode::SETATTR, [3, 0]),
        &|log| other(log, Opcode::COPY_FILE_RANGE, [8, 3]),
        &|log| other(log, Opcode::FALLOCATE, [EVERY_FILE, 0]),
        &|log| write_with(log, 0, 0, b"of nobody knows what", 0),
        &|log| write_with(log, EVERY_FILE, 0, b"the same", 0),
        &|log| write_with(log, 3, 9000, b"", 0),
        &|log| write_with(log, 3, 9000, b"clears setuid", WRITE_KILL_SUIDGID),
    ];
    for (i, barrier) in barriers.iter().enumerate() {
        let (memory, mut log) = fresh(ROOMY);
        write(&mut log, 3, 0, 100, b'a');
        barrier(&mut log);
        write(&mut log, 3, 0, 100, b'b');
        write(&mut log, 3, 100, 100, b'c');
        for log in [&log, &open(&memory, ROOMY)] {
            let runs = runs(log);
            assert_eq!(runs.len(), 3, "{i}");
            assert_eq!(
                (runs[0].as_slice(), runs[2].as_slice()),
                ([(3, 0, 100, b'a', b'a')].as_slice(), [(3, 0, 200, b'b', b'c')].as_slice())
            );
        }
    }
    let (_, mut log) = fresh(ROOMY);
    write(&mut log, 3, 0, 100, b'a');
    other(&mut log, Opcode::SETATTR, [4, 0]);
    other(&mut log, Opcode::MKDIR, [0, 0]);
    write(&mut log, 4, 0, 100, b'a');
    write(&mut log, 3, 0, 100, b'b');
    assert_eq!(log.sizes().records, 4, "not its own");
}

#[test]
fn a_short_write_keeps_what_was_written() {
    let (memory, mut log) = fresh(ROOMY);
    let staged = log.stage(4000, &[b'a'; 5000]);
    let short = Facts { size: 96, ..facts(Opcode::WRITE, 2, [3, 0]) };
    log.append(&short, &body(4000, 5000, 0), &[], staged).expect("room");
    assert_eq!(runs(&log), [[(3, 4000, 96, b'a', b'a')]]);
    let sizes = log.sizes();
    assert_eq!((sizes.pages, sizes.staged_pages, sizes.data_bytes), (1, 0, 96));
    assert_eq!(open(&memory, ROOMY).sizes(), sizes);
}

#[test]
fn data_may_come_in_parts() {
    let (_, mut log) = fresh(ROOMY);
    let data: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
    for part in [1, 3, 8, 13, 4096, 5000] {
        // From any byte of a word, over what was there before.
        let other = log.stage(4091, &[0xff; 10_000]).expect("room");
        log.unstage(other);
        let staged = log.reserve(4091, data.len()).expect("room");
        for (i, piece) in data.chunks(part).enumerate().collect::<Vec<_>>().into_iter().rev() {
            staged.fill(log.memory(), i * part, piece);
        }
        let facts = Facts { size: 10_000, ..facts(Opcode::WRITE, 2, [3, 0]) };
        log.append(&facts, &body(4091, 10_000, 0), &[], Some(staged)).expect("room");
        let found = issues(&log);
        assert_eq!((found.len(), found[0].data.len()), (1, 1));
        assert!(found[0].data[0].offset == 4091 && found[0].data[0].bytes == data, "{part}");
    }
    let staged = log.reserve(0, 10).expect("room");
    assert!(staged.len() == 10 && !staged.is_empty());
    staged.fill(log.memory(), 8, &[1; 4096]); // more than was asked for
    staged.fill(log.memory(), 4096, &[1; 4096]);
    log.unstage(staged);
    assert_eq!(issues(&log)[0].data[0].bytes, data);
}

#[test]
fn spare_memory_holds_nothing() {
    use belay_memory::Memory;
    let (memory, mut log) = fresh(ROOMY);
    for round in 0..2000 {
        write(&mut log, 3, 4096 * (round % 5), 4096, round as u8);
        other(&mut log, Opcode::MKDIR, [0, 0]);
    }
    let before = issues(&log);
    let spare = log.spare();
    assert!(spare.iter().all(|range| range.start % 8 == 0 && range.end % 8 == 0));
    for word in spare.into_iter().flat_map(|range| range.start / 8..range.end / 8) {
        memory.store(word, u64::MAX);
    }
    assert_eq!(issues(&log), before);
    assert_eq!(issues(&open(&memory, ROOMY)), before);
}
