//! The logs of requests, and what a dying daemon has left, that a daemon has scribbled over.
#![no_main]

#[allow(dead_code, reason = "shared with the tests of the crate")]
#[path = "../../crates/hold/effects/tests/common/mod.rs"]
mod common;

use belay_effects::area::Area;
use belay_effects::call::KINDS;
use belay_effects::log::Head;
use belay_effects::{Cursor, Kind, Log, remains};
use belay_memory::Memory;
use belay_recorder::Slot;
use common::{Mortal, layout};
use libfuzzer_sys::fuzz_target;

const UNIQUE: u64 = 42;

fn written(log: &Log<'_, Mortal>) {
    let head = |kind: Kind, digest| Head { kind: kind as u32, digest, before: 9 };
    log.begin(UNIQUE);
    for (i, kind) in [Kind::Stat, Kind::Mkdir, Kind::Read, Kind::Owner].into_iter().enumerate() {
        log.append_done(&head(kind, i as u64), &[i as u8; 30], (i as i64, 0)).expect("room");
    }
    log.append(&head(Kind::Unlink, 9), b"name").expect("room");
}

fuzz_target!(|data: &[u8]| {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let log = Log::new(&memory, &layout, 1);
    written(&log);
    let first = log.range().0 / 8;
    for (at, word) in belay_fuzz::scribbles(data) {
        // Mostly where the log is.
        let at = if at & 3 == 0 { at >> 2 } else { first + (at >> 2) % 128 };
        memory.store(at % layout.words, word);
    }
    let (entries, _) = log.entries();
    for entry in &entries {
        log.payload(entry, &mut [0; 64]);
    }
    let mut cursor = Cursor::load(&log);
    for (kind, digest) in KINDS.into_iter().zip(0..) {
        let _ = cursor.advise(&log, kind, digest);
        let _ = (cursor.is_done(&log), cursor.is_at_end(&log), cursor.expected(&log));
    }
    let area = Area::new(&memory, layout);
    let _ = area.left(Slot(1), UNIQUE);
    let _ = area.tallies().count();
    for generation in 0..3 {
        let _ = remains::read(&memory, &layout, generation);
    }
    // What goes on with it.
    let mut entry = log.append(&Head::default(), b"more");
    if let Some(entry) = &mut entry {
        log.finish(entry, (0, 0));
    }
    log.set_cursor(usize::MAX);
    log.drop();
});
