//! What a wild write has hit is not taken for true: a daemon that dies may have written anywhere
//! before.
#![allow(missing_docs)]

mod common;

use belay_effects::area::Area;
use belay_effects::log::Head;
use belay_effects::{Entry, Kind, Left, Log};
use belay_memory::Memory;
use belay_recorder::Slot;
use common::{Mortal, layout};

const UNIQUE: u64 = 42;

fn write(log: &Log<'_, Mortal>) {
    let head = |kind: Kind, digest| Head { kind: kind as u32, digest, before: 9 };
    log.begin(UNIQUE);
    let mut first = log.append(&head(Kind::Mkdir, 1), &[]).expect("room");
    log.finish(&mut first, (0, 0));
    log.append_done(&head(Kind::Read, 2), b"some thirty bytes that were read", (30, 0))
        .expect("room");
    log.append_done(&head(Kind::Unlink, 3), &[], (-1, 2)).expect("room");
    log.append(&head(Kind::Owner, 4), &[]).expect("room");
}

type Whole = (Entry, Vec<u8>);

fn entries(log: &Log<'_, Mortal>) -> (Vec<Whole>, bool) {
    let (entries, whole) = log.entries();
    let with_payload = |entry: Entry| {
        let mut bytes = vec![0; entry.payload];
        log.payload(&entry, &mut bytes);
        (entry, bytes)
    };
    (entries.into_iter().map(with_payload).collect(), whole)
}

#[test]
fn no_altered_entry_is_taken_for_true() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 1);
    let area = Area::new(&memory, layout);
    write(&log);
    let (written, _) = entries(&log);
    assert_eq!((written.len(), area.left(Slot(1), UNIQUE)), (4, Left::Journal));
    let first = log.range().0 / 8;
    let last = first + 8 + log.used();
    let mut seen = 0;
    for at in first..last {
        let before = memory.load(at);
        let bits = (0..64).map(|bit| before ^ 1 << bit);
        for altered in bits.chain([0, !0, !before, 0x6161_6161_6161_6161]) {
            if altered == before {
                continue;
            }
            memory.store(at, altered);
            let what = format!("word {} is {altered:#x}", at - first);
            let (found, whole) = entries(&log);
            for ((entry, payload), (true_entry, true_payload)) in found.iter().zip(&written) {
                let known = entry.outcome.is_some();
                assert!(!known || entry.outcome == true_entry.outcome, "{what}");
                assert_eq!(Entry { outcome: true_entry.outcome, ..*entry }, *true_entry, "{what}");
                assert_eq!(payload, true_payload, "{what}");
            }
            assert!(found.len() <= written.len(), "{what}");
            // A log from which something is missing is not believed.
            let left = area.left(Slot(1), UNIQUE);
            let complete = whole && found.len() == written.len();
            let dropped = matches!(left, Left::Unknown | Left::Torn);
            assert!(complete && left == Left::Journal || dropped, "{what}: {left:?}");
            seen += usize::from(dropped);
            memory.store(at, before);
        }
    }
    assert!(seen > 1000, "{seen}");
    assert_eq!(entries(&log), (written, true));
}

#[test]
fn nothing_is_added_to_a_log_that_is_corrupt() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 1);
    write(&log);
    let length = log.range().0 / 8 + 1;
    memory.store(length, memory.load(length) - 8); // the last entry is gone
    assert!(log.append(&Head { kind: Kind::Link as u32, ..Head::default() }, &[]).is_none());
    log.raise(belay_effects::log::COMMITTED);
    assert!(!log.is_whole() && !log.entries().1);
    assert_eq!(log.flags(), belay_effects::log::COMMITTED);
    log.begin(UNIQUE + 1);
    assert!(log.is_whole() && log.entries().0.is_empty());
}

#[test]
fn a_log_of_another_request_says_that_there_is_none() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let (log, area) = (Log::new(&memory, &layout, 1), Area::new(&memory, layout));
    assert_eq!(area.left(Slot(1), UNIQUE), Left::Nothing, "never used");
    write(&log);
    assert_eq!(area.left(Slot(1), UNIQUE + 1), Left::Nothing);
    log.drop();
    assert_eq!(area.left(Slot(1), UNIQUE), Left::Nothing, "dropped");
    write(&log);
    memory.store(log.range().0 / 8, 0);
    assert_eq!(area.left(Slot(1), UNIQUE), Left::Unknown, "overwritten, not dropped");
}
