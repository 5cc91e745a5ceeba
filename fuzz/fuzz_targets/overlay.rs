//! The overlay of an image that a daemon has scribbled over.
#![no_main]

#[allow(dead_code, unused_imports, reason = "shared with the tests of the crate")]
#[path = "../../crates/hold/image/tests/common/mod.rs"]
mod common;

use belay_memory::Memory;
use common::AT;
use common::hostile::{use_all, world};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let world = world();
    for (at, word) in belay_fuzz::scribbles(data) {
        // The header and both indices: three pages.
        world.memory.store(AT + at % (3 * 512), word);
    }
    use_all(&world);
});
