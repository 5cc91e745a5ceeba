//! A cache's memory, any word of which says something else, and records of transactions that nobody
//! would make.
#![no_main]

use belay_volume_sim::hostile::cache::World;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static WORLD: OnceLock<World> = OnceLock::new();

fuzz_target!(|data: &[u8]| WORLD.get_or_init(World::new).use_with(data));
