//! Logs: whole after a death at any store.
#![allow(missing_docs)]

mod common;

use belay_effects::area::Area;
use belay_effects::log::{COMMITTED, Head, TORN};
use belay_effects::{Kind, Left, Log};
use belay_recorder::Slot;
use common::{Mortal, layout};

const UNIQUE: u64 = 42;

fn head(kind: Kind, digest: u64) -> Head {
    Head { kind: kind as u32, digest, before: 9 }
}

/// What a request writes: an entry with an outcome, a read with a payload, an entry without
/// outcome.
fn write(log: &Log<'_, Mortal>) {
    log.begin(UNIQUE);
    // A dead writer's log has no room.
    let Some(mut first) = log.append(&head(Kind::Mkdir, 1), &[]) else { return };
    log.finish(&mut first, (0, 0));
    log.append_done(&head(Kind::Stat, 2), b"thirteen bytes"[..13].as_ref(), (0, 0));
    log.append(&head(Kind::Owner, 3), &[]);
}

#[test]
fn a_death_at_any_store_leaves_a_beginning_of_what_was_written() {
    let layout = layout();
    let full = Mortal::new(&layout);
    write(&Log::new(&full, &layout, 1));
    let stores = full.stores.get();
    let (all, _) = Log::new(&full, &layout, 1).entries();
    assert_eq!(all.len(), 3);
    let mut lengths = Vec::new();
    for death in 0..=stores {
        let memory = Mortal::new(&layout);
        // The place was used before, by another request.
        let old = Log::new(&memory, &layout, 1);
        old.begin(41);
        for digest in 0..5 {
            old.append_done(&head(Kind::Unlink, digest), &[0xff; 29], (-1, 2)).expect("room");
        }
        memory.dies_after(death);
        write(&old);
        memory.revive();
        let log = Log::new(&memory, &layout, 1);
        if log.unique() != UNIQUE {
            assert!(lengths.is_empty(), "once it is the new request's log it stays so");
            continue;
        }
        let (entries, whole) = log.entries();
        assert!(whole, "death at store {death}");
        for (i, (entry, full)) in entries.iter().zip(&all).enumerate() {
            let expected = belay_effects::Entry { outcome: entry.outcome, ..*full };
            assert_eq!(*entry, expected);
            let known = entry.outcome.is_some();
            assert!(!known || entry.outcome == full.outcome, "entry {i}, death at {death}");
            // An entry behind it proves that it was finished.
            assert!(known || i + 1 == entries.len() || full.outcome.is_none());
        }
        lengths.push(entries.len());
    }
    assert!(lengths.is_sorted());
    assert_eq!(lengths.last(), Some(&3));
    assert_eq!(lengths.first(), Some(&0));
}

#[test]
fn what_is_left_of_a_request() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let area = Area::new(&memory, layout);
    let slot = Slot(2);
    assert_eq!(area.left(slot, UNIQUE), Left::Nothing);
    let log = area.log(slot);
    log.begin(UNIQUE);
    assert_eq!(area.left(slot, UNIQUE), Left::Nothing);
    log.append_done(&head(Kind::Stat, 1), &[1; 144], (0, 0)).expect("room");
    assert_eq!(area.left(slot, UNIQUE), Left::Nothing, "reads leave nothing");
    log.append(&head(Kind::Mkdir, 1), &[]).expect("room");
    assert_eq!(area.left(slot, UNIQUE), Left::Journal);
    assert_eq!(area.left(slot, UNIQUE + 2), Left::Nothing, "another request's log");
    log.append(&head(Kind::Send, 1), &[]).expect("room");
    assert_eq!(area.left(slot, UNIQUE), Left::Unknown, "a connection");
    log.begin(UNIQUE);
    log.mark_opaque(UNIQUE);
    assert_eq!(area.left(slot, UNIQUE), Left::Unknown);
    log.begin(UNIQUE + 2);
    assert_eq!(area.left(slot, UNIQUE + 2), Left::Nothing, "the mark is for one request");
    log.raise(TORN);
    assert_eq!(area.left(slot, UNIQUE + 2), Left::Torn);
    log.mark_opaque(UNIQUE + 2);
    assert_eq!(
        area.left(slot, UNIQUE + 2),
        Left::Torn,
        "that must be told, whatever else is known"
    );
    assert!(!log.is_diverged(UNIQUE + 2));
    log.mark_diverged(UNIQUE + 2);
    assert!(log.is_diverged(UNIQUE + 2) && !log.is_diverged(UNIQUE) && !log.is_diverged(0));
}

#[test]
fn committed_is_one_store_or_a_recorded_reply() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 0);
    log.begin(UNIQUE);
    log.append(&head(Kind::Image, 4096), &[7; 1024]).expect("room");
    assert!(!Area::is_committed(&log, UNIQUE, false));
    assert!(Area::is_committed(&log, UNIQUE, true));
    assert!(!Area::is_committed(&log, UNIQUE + 2, true));
    let before = memory.stores.get();
    log.raise(COMMITTED);
    assert_eq!(memory.stores.get(), before + 1);
    assert!(Area::is_committed(&log, UNIQUE, false));
    assert_eq!(log.entries().0.len(), 1, "flags leave the length alone");
    log.drop();
    assert!(!Area::is_committed(&log, UNIQUE, true));
}

#[test]
fn a_full_log_refuses_and_stays_whole() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 0);
    assert!(log.append(&head(Kind::Mkdir, 0), &[]).is_none(), "no request, no log");
    log.begin(UNIQUE);
    let mut n = 0;
    while log.append(&head(Kind::WriteAt, n), &[n as u8; 1000]).is_some() {
        n += 1;
    }
    assert!(n > 10);
    let (entries, whole) = log.entries();
    assert!(whole && entries.len() == n as usize);
    assert!(log.append(&head(Kind::WriteAt, n), &[0; 17 << 10]).is_none());
    let next = Log::new(&memory, &layout, 1);
    assert_eq!(next.unique(), 0, "the log behind is untouched");
}

#[test]
fn an_outcome_is_there_once_its_mark_is() {
    let layout = layout();
    for death in 0..4 {
        let memory = Mortal::new(&layout);
        let log = Log::new(&memory, &layout, 0);
        log.begin(UNIQUE);
        let mut entry = log.append(&head(Kind::Rename, 5), &[]).expect("room");
        memory.dies_after(death);
        log.finish(&mut entry, (-1, 17));
        memory.revive();
        let found = log.entry(0).expect("whole").expect("an entry").outcome;
        assert_eq!(found, if death == 3 { Some((-1, 17)) } else { None });
    }
}
