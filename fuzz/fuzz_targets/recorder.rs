//! A recorder that a daemon has scribbled over.
#![no_main]

#[allow(dead_code, unused_imports, reason = "shared with the tests of the crate")]
#[path = "../../crates/hold/recorder/tests/common/mod.rs"]
mod common;

use belay_memory::Memory;
use belay_recorder::Store;
use common::Sim;
use common::readers::{LAYOUT, populated, read_all, write_some};
use libfuzzer_sys::fuzz_target;

thread_local! {
    static STORE: (Sim, Store<Sim>) = populated();
}

fuzz_target!(|data: &[u8]| {
    STORE.with(|(memory, store)| {
        memory.mark();
        for (at, word) in belay_fuzz::scribbles(data) {
            // Mostly where the tables are, which come first.
            let at = if at & 3 == 0 { at >> 2 } else { LAYOUT.store + (at >> 2) % 4096 };
            memory.store(at % LAYOUT.words, word);
        }
        read_all(store);
        write_some(store);
        read_all(store);
        memory.rewind();
    });
});
