//! An op-log that a daemon has scribbled over, and the file in which one is kept.
#![no_main]

#[allow(dead_code, unused_imports, reason = "shared with the tests of the crate")]
#[path = "../../crates/hold/oplog/tests/common/mod.rs"]
mod common;

use belay_memory::Memory;
use belay_oplog::kept;
use common::hostile::{filled, use_it, words};
use common::short::EPOCH;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, data)) = data.split_first() else { return };
    if kind & 1 == 0 {
        let left = kept::left(std::io::Cursor::new(data), data.len() as u64);
        assert!(kept::decode(data).is_err() || left.is_ok(), "what can be read can be counted");
        return;
    }
    let (memory, log) = filled();
    let words = words(&log);
    for (at, word) in belay_fuzz::scribbles(data) {
        memory.store(words[at % words.len()], word);
    }
    use_it(&memory, EPOCH + u64::from(kind >> 7));
});
