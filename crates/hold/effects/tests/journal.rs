//! Requests that are done again, against a model of what they do outside.
#![allow(missing_docs)]

mod common;

use belay_effects::call::{KINDS, Twice};
use belay_effects::journal::{Further, before_write, digest_of_write};
use belay_effects::log::Head;
use belay_effects::probe::{File, PRESENT, Probed, settle, settle_over};
use belay_effects::{Advice, Cursor, Entry, Kind, Log, Settled};
use common::{Mortal, layout};

fn head(kind: Kind, digest: u64) -> Head {
    Head { kind: kind as u32, digest, ..Head::default() }
}

/// The calls of a request: kind and digest.
const REQUEST: [(Kind, u64); 7] = [
    (Kind::Stat, 1),
    (Kind::Mkdir, 2),
    (Kind::Stat, 1),
    (Kind::Owner, 3),
    (Kind::ReadAt, 4),
    (Kind::Mode, 5),
    (Kind::Times, 6),
];

/// Does the request's calls up to the `n`th, the last one without an outcome if `open`.
fn done(log: &Log<'_, Mortal>, n: usize, open: bool) {
    log.begin(2);
    for (i, (kind, digest)) in REQUEST.into_iter().take(n).enumerate() {
        if kind.is_effect() {
            let mut entry = log.append(&head(kind, digest), &[]).expect("room");
            if i + 1 < n || !open {
                log.finish(&mut entry, (i as i64, 0));
            }
        } else {
            log.append_done(&head(kind, digest), &[i as u8; 3], (i as i64, 0)).expect("room");
        }
    }
}

#[test]
fn a_request_goes_on_where_it_was_wherever_that_was() {
    let layout = layout();
    for n in 0..=REQUEST.len() {
        for open in [false, true] {
            let memory = Mortal::new(&layout);
            let log = Log::new(&memory, &layout, 0);
            done(&log, n, open);
            let mut cursor = Cursor::START;
            for (i, (kind, digest)) in REQUEST.into_iter().enumerate() {
                let last = i + 1 == n && open && kind.is_effect();
                match cursor.advise(&log, kind, digest) {
                    Advice::Recorded(entry) => {
                        assert!(i < n && !last);
                        assert_eq!(entry.outcome, Some((i as i64, 0)), "call {i} of {n}");
                    }
                    Advice::Unsettled(_) => assert!(last),
                    Advice::Make => assert!(i >= n),
                    Advice::Over(_) | Advice::Diverged => panic!("call {i} of {n} is the same"),
                }
            }
            assert!(cursor.is_done(&log));
        }
    }
}

#[test]
fn effects_must_be_the_same_and_reads_may_differ() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 0);
    done(&log, REQUEST.len(), false);
    let mut cursor = Cursor::START;
    // Caches are cold: a read that was not made before.
    assert_eq!(cursor.advise(&log, Kind::Stat, 77), Advice::Make);
    // And one that was is not made now.
    assert!(matches!(cursor.advise(&log, Kind::Mkdir, 2), Advice::Recorded(_)));
    assert!(!cursor.is_done(&log));
    assert_eq!(cursor.expected(&log), Some(Kind::Owner));
    assert_eq!(cursor.advise(&log, Kind::Owner, 4), Advice::Diverged, "another argument");
    assert_eq!(cursor.advise(&log, Kind::Mode, 5), Advice::Diverged, "one was left out");
    assert_eq!(cursor.advise(&log, Kind::Unlink, 3), Advice::Diverged, "another call");
    assert!(matches!(cursor.advise(&log, Kind::Owner, 3), Advice::Recorded(_)));
}

#[test]
fn writes_of_other_bytes_are_made_over_the_old_ones() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 0);
    let of = |place: u64, bytes: u64| digest_of_write(place << 32, bytes);
    log.begin(7);
    log.append_done(&head(Kind::WriteAt, of(1, 5)), &[], (10, 0)).expect("room");
    log.append_done(&head(Kind::WriteAt, of(2, 5)), &[], (10, 0)).expect("room");
    log.append_done(&head(Kind::Truncate, of(3, 5)), &[], (0, 0)).expect("room");
    let mut cursor = Cursor::START;
    assert_eq!(cursor.advise(&log, Kind::WriteAt, of(4, 5)), Advice::Diverged, "another place");
    assert!(matches!(cursor.advise(&log, Kind::WriteAt, of(1, 6)), Advice::Over(_)));
    assert!(matches!(cursor.advise(&log, Kind::WriteAt, of(2, 5)), Advice::Recorded(_)));
    assert_eq!(cursor.advise(&log, Kind::Truncate, of(3, 6)), Advice::Diverged, "no write");
    assert!(!cursor.is_done(&log));
}

#[test]
fn what_was_written_before_a_cut_may_be_left_out() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 0);
    let begin = |last: Option<(i64, i32)>| {
        log.begin(9);
        log.append_done(&head(Kind::ReadAt, 1), &[], (10, 0)).expect("room");
        log.append_done(&head(Kind::WriteAt, 2), &[], (10, 0)).expect("room");
        match last {
            Some(outcome) => log.append_done(&head(Kind::Truncate, 3), &[], outcome),
            None => log.append(&head(Kind::Truncate, 3), &[]),
        }
        .expect("room");
        Cursor::START
    };
    // The file is as short as it is to be: no block is read, nor written.
    let mut cursor = begin(Some((0, 0)));
    assert!(!cursor.is_done(&log) && cursor.may_end(&log));
    assert_eq!(cursor.advise(&log, Kind::Truncate, 4), Advice::Diverged, "another length");
    assert!(matches!(cursor.advise(&log, Kind::Truncate, 3), Advice::Recorded(_)));
    assert!(cursor.is_done(&log));
    let mut cursor = begin(None);
    assert!(!cursor.may_end(&log), "nobody knows whether it was cut");
    assert!(matches!(cursor.advise(&log, Kind::Truncate, 3), Advice::Unsettled(_)));
    // The same goes for one write before another, which may have other bytes now.
    let placed = |place: u64, bytes: u64| digest_of_write(place << 32, bytes);
    log.begin(11);
    log.append_done(&head(Kind::WriteAt, placed(1, 1)), &[], (10, 0)).expect("room");
    log.append(&head(Kind::WriteAt, placed(2, 1)), &[]).expect("room");
    let mut cursor = Cursor::START;
    assert!(matches!(cursor.advise(&log, Kind::WriteAt, placed(2, 1)), Advice::Unsettled(_)));
    let mut cursor = Cursor::START;
    assert!(matches!(cursor.advise(&log, Kind::WriteAt, placed(2, 2)), Advice::Over(_)));
    // Nothing else is left out.
    log.begin(10);
    log.append_done(&head(Kind::Mkdir, 2), &[], (0, 0)).expect("room");
    log.append_done(&head(Kind::Truncate, 3), &[], (0, 0)).expect("room");
    let mut cursor = Cursor::START;
    assert!(!cursor.may_end(&log));
    assert_eq!(cursor.advise(&log, Kind::Truncate, 3), Advice::Diverged);
}

#[test]
fn what_leaves_the_same_goes_on_from_what_it_had_written() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 0);
    // A file of 12 bytes.
    let placed = |start: u64, bytes: u64| Head {
        before: before_write(start, 12, 12),
        ..head(Kind::WriteAt, digest_of_write(start << 32, bytes))
    };
    let further = |start, bytes| Further {
        digest: digest_of_write(start << 32, bytes),
        start,
        length: 10,
        asked: 25,
    };
    log.begin(9);
    log.append_done(&placed(8, 1), &[], (12, 0)).expect("room");
    // The last block of the file is filled up: the next one is written, which is not on record yet.
    let next = further(20, 2);
    let mut cursor = Cursor::START;
    assert_eq!(cursor.advise(&log, Kind::WriteAt, next.digest), Advice::Diverged);
    assert!(!cursor.goes_on(&log, Kind::Rename, &next), "no write");
    assert!(!cursor.is_at_end(&log));
    assert!(cursor.goes_on(&log, Kind::WriteAt, &next));
    assert!(cursor.is_at_end(&log));
    log.append(&placed(20, 2), &[]).expect("room");
    let mut cursor = Cursor::START;
    assert!(!cursor.goes_on(&log, Kind::WriteAt, &next), "nobody knows whether it was written");
    log.begin(10);
    log.append_done(&head(Kind::Rename, 2), &[], (0, 0)).expect("room");
    let mut cursor = Cursor::START;
    assert!(!cursor.goes_on(&log, Kind::WriteAt, &next), "a name was changed");
}

#[test]
fn who_appends_to_what_it_finds_does_not_go_on() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 0);
    // What was asked for is written, at the end as it was found: 30 to 40.
    let written = digest_of_write(1 << 32, 1);
    let write = |size| {
        log.begin(9);
        let done = Head { before: before_write(30, 10, size), ..head(Kind::WriteAt, written) };
        log.append_done(&done, &[], (10, 0)).expect("room");
    };
    write(30);
    let goes_on = |start, length, bytes, asked| {
        let digest = digest_of_write(2 << 32, bytes);
        let further = Further { digest, start, length, asked };
        let mut cursor = Cursor::START;
        cursor.goes_on(&log, Kind::WriteAt, &further)
    };
    assert!(!goes_on(40, 10, 1, 30), "the same once more, behind it");
    assert!(!goes_on(40, 10, 2, 30), "with the time in it");
    assert!(!goes_on(40, 10, 1, 99), "where a file is shorter than what it shows");
    assert!(!goes_on(40, 10, 2, 0), "nobody knows what was asked for");
    assert!(!goes_on(35, 10, 2, 30), "partly behind it");
    assert!(!goes_on(40, 10, 2, 4096), "a place in the file that is shown, which is another one");
    assert!(!goes_on(40, 10, 2, 45), "be it there or not");
    assert!(goes_on(32, 8, 2, 30), "over it");
    assert!(goes_on(0, 30, 1, 30), "before it");
    let cut = Further { digest: 7, start: 0, length: 0, asked: 30 };
    let mut cursor = Cursor::START;
    assert!(cursor.goes_on(&log, Kind::Truncate, &cut), "a cut appends nothing");
    // Its last block filled up: of a file of 35 bytes, and of one that it lies in.
    write(35);
    assert!(goes_on(40, 10, 2, 45) && goes_on(40, 10, 2, 50));
    assert!(!goes_on(40, 10, 2, 4096), "it does not get there");
    assert!(!goes_on(38, 10, 2, 45), "partly over it");
    assert!(!goes_on(40, 10, 2, 30), "that was asked for");
    write(41);
    assert!(!goes_on(40, 10, 2, 45), "no block is filled up");
}

#[test]
fn what_was_appended_is_taken_back_if_it_is_the_end() {
    let entry = |outcome| Entry { at: 8, kind: 0, payload: 0, digest: 0, before: 100, outcome };
    let over = |kind, outcome, size| {
        let probed = Probed { first: Some(File { size, ..File::default() }), ..Probed::default() };
        settle_over(kind, &entry(outcome), &probed, 10)
    };
    assert_eq!(over(Kind::Append, Some((10, 0)), 110), Settled::Cut(100));
    assert_eq!(over(Kind::Append, Some((10, 0)), 115), Settled::Unknown, "somebody went on");
    assert_eq!(over(Kind::Append, Some((10, 0)), 105), Settled::Unknown, "somebody cut it");
    assert_eq!(over(Kind::Append, Some((-1, 28)), 100), Settled::Cut(100), "it had failed");
    assert_eq!(over(Kind::Append, None, 104), Settled::Cut(100));
    assert_eq!(over(Kind::Append, None, 111), Settled::Unknown);
    assert_eq!(over(Kind::WriteAt, Some((10, 0)), 7), Settled::Again);
    assert_eq!(over(Kind::Send, Some((10, 0)), 7), Settled::Unknown);
}

#[test]
fn threads_of_a_request_do_not_compare_with_each_other() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 0);
    // Ends in a read that does not come again.
    done(&log, 5, false);
    let mut cursor = Cursor::START;
    assert!(matches!(cursor.advise(&log, Kind::Mkdir, 2), Advice::Recorded(_)));
    assert!(matches!(cursor.advise(&log, Kind::Owner, 3), Advice::Recorded(_)));
    // One thread goes on.
    assert_eq!(cursor.advise(&log, Kind::Mode, 5), Advice::Make);
    cursor.store(&log);
    log.append_done(&head(Kind::Mode, 5), &[], (0, 0)).expect("room");
    // The others have that to do that is left, and nothing that was made now.
    let mut cursor = Cursor::load(&log);
    assert!(cursor.is_done(&log) && cursor.is_at_end(&log));
    assert_eq!(cursor.advise(&log, Kind::Times, 6), Advice::Make);
}

#[test]
fn effects_in_vain_need_not_come_again() {
    let layout = layout();
    for outcome in [Some((-1, 2)), None] {
        let memory = Mortal::new(&layout);
        let log = Log::new(&memory, &layout, 0);
        log.begin(2);
        let mut vain = log.append(&head(Kind::Unlink, 1), &[]).expect("room");
        if let Some(outcome) = outcome {
            log.finish(&mut vain, outcome);
        }
        assert!(Cursor::START.is_done(&log), "nothing was changed");
        let first = |kind, digest| {
            let mut cursor = Cursor::START;
            cursor.advise(&log, kind, digest)
        };
        assert_eq!(first(Kind::Mkdir, 2), Advice::Make);
        let known = first(Kind::Unlink, 1);
        let vain = log.entry(0).expect("whole").expect("one");
        let wanted = match outcome {
            Some(_) => Advice::Recorded(vain),
            None => Advice::Unsettled(vain),
        };
        assert_eq!(known, wanted);
        if outcome.is_none() {
            continue; // it is the last one
        }
        let mut made = log.append(&head(Kind::Mkdir, 2), &[]).expect("room");
        log.finish(&mut made, (0, 0));
        let mut cursor = Cursor::START;
        assert!(!cursor.is_done(&log));
        assert_eq!(cursor.expected(&log), Some(Kind::Mkdir));
        assert!(matches!(cursor.advise(&log, Kind::Mkdir, 2), Advice::Recorded(_)));
        assert!(cursor.is_done(&log));
        assert_eq!(first(Kind::Rmdir, 3), Advice::Diverged);
    }
    // It was there: nobody knows whether it has gone by this call.
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 0);
    log.begin(2);
    log.append(&Head { before: PRESENT, ..head(Kind::Unlink, 1) }, &[]).expect("room");
    assert!(!Cursor::START.is_done(&log));
    let mut cursor = Cursor::START;
    assert_eq!(cursor.advise(&log, Kind::Mkdir, 2), Advice::Diverged);
}

#[test]
fn a_probe_tells_done_from_not_done() {
    let entry = |before| Entry { at: 8, kind: 0, payload: 0, digest: 0, before, outcome: None };
    const REGULAR: u32 = 0o100_000;
    const FOLDER: u32 = 0o040_000;
    const SYMLINK: u32 = 0o120_000;
    const DEVICE: u32 = 0o020_000;
    let of_type = |file_type| Some(File { id: (1, 5), size: 0, file_type });
    let file = |ino, size| Some(File { id: (1, ino), size, file_type: REGULAR });
    let probed = |first, second| Probed { first, second, attribute: false };
    for (kind, made, other) in [
        (Kind::OpenNew, REGULAR, DEVICE),
        (Kind::OpenShut, REGULAR, FOLDER),
        (Kind::Mkdir, FOLDER, REGULAR),
        (Kind::Mknod, DEVICE, FOLDER),
        (Kind::Symlink, SYMLINK, REGULAR),
    ] {
        let (made, other) = (probed(of_type(made), None), probed(of_type(other), None));
        assert_eq!(settle(kind, &entry(0), &probed(None, None), 0), Settled::Again);
        assert_eq!(settle(kind, &entry(0), &made, 0), Settled::Done(0));
        assert_eq!(settle(kind, &entry(0), &other, 0), Settled::Again, "made by another");
        let there = settle(kind, &entry(PRESENT), &made, 0);
        assert_eq!(there, Settled::Again, "it was there before");
        assert_eq!(settle(kind, &entry(PRESENT), &probed(None, None), 0), Settled::Again);
    }
    for kind in [Kind::Unlink, Kind::Rmdir] {
        assert_eq!(settle(kind, &entry(PRESENT), &probed(None, None), 0), Settled::Done(0));
        assert_eq!(settle(kind, &entry(PRESENT), &probed(file(5, 0), None), 0), Settled::Again);
        let not_there = settle(kind, &entry(0), &probed(None, None), 0);
        assert_eq!(not_there, Settled::Again, "it was gone before");
    }
    let one = file(5, 0);
    let other = file(6, 0);
    assert_eq!(settle(Kind::Link, &entry(0), &probed(one, one), 0), Settled::Done(0));
    assert_eq!(settle(Kind::Link, &entry(0), &probed(one, other), 0), Settled::Again);
    assert_eq!(settle(Kind::Link, &entry(0), &probed(one, None), 0), Settled::Again);
    assert_eq!(settle(Kind::Rename, &entry(0), &probed(None, one), 0), Settled::Done(0));
    assert_eq!(settle(Kind::Rename, &entry(0), &probed(one, other), 0), Settled::Again);
    assert_eq!(settle(Kind::Rename, &entry(0), &probed(None, None), 0), Settled::Unknown);
    assert_eq!(settle(Kind::Exchange, &entry(5), &probed(one, other), 0), Settled::Again);
    assert_eq!(settle(Kind::Exchange, &entry(5), &probed(other, one), 0), Settled::Done(0));
    assert_eq!(settle(Kind::Exchange, &entry(9), &probed(other, one), 0), Settled::Unknown);
    let size = |size| probed(file(5, size), None);
    assert_eq!(settle(Kind::Append, &entry(100), &size(100), 10), Settled::Again);
    assert_eq!(settle(Kind::Append, &entry(100), &size(110), 10), Settled::Done(10));
    assert_eq!(settle(Kind::Append, &entry(100), &size(104), 10), Settled::Cut(100));
    assert_eq!(settle(Kind::Append, &entry(100), &size(90), 10), Settled::Unknown);
    assert_eq!(settle(Kind::Shift, &entry(100), &size(100), 0), Settled::Again);
    assert_eq!(settle(Kind::Shift, &entry(100), &size(60), 0), Settled::Done(0));
    let there = Probed { attribute: true, ..Probed::default() };
    let gone = Probed::default();
    assert_eq!(settle(Kind::XattrCreate, &entry(0), &there, 0), Settled::Done(0));
    assert_eq!(settle(Kind::XattrCreate, &entry(PRESENT), &there, 0), Settled::Again);
    assert_eq!(settle(Kind::XattrCreate, &entry(0), &gone, 0), Settled::Again);
    assert_eq!(settle(Kind::XattrRemove, &entry(PRESENT), &gone, 0), Settled::Done(0));
    assert_eq!(settle(Kind::XattrRemove, &entry(0), &gone, 0), Settled::Again);
    assert_eq!(settle(Kind::Send, &entry(0), &gone, 0), Settled::Unknown);
}

#[test]
fn kinds_and_their_numbers() {
    for kind in KINDS {
        assert_eq!(Kind::from_number(kind as u32), Some(kind));
        let fixed = kind.is_effect() && kind.twice() == Twice::Same;
        // What is made again without a look gives the same as before, so a probe says so.
        let nothing =
            Entry { at: 8, kind: kind as u32, payload: 0, digest: 0, before: 0, outcome: None };
        if fixed {
            assert_eq!(settle(kind, &nothing, &Probed::default(), 0), Settled::Again, "{kind:?}");
        }
    }
    assert_eq!(Kind::from_number(0), None);
    let names: std::collections::HashSet<_> = KINDS.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), KINDS.len());
}
