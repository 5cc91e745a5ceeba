//! A namespace whose objects say something else, and messages that no kernel sends.
#![no_main]

use belay_volume_sim::hostile::namespace::World;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static WORLD: OnceLock<World> = OnceLock::new();

fuzz_target!(|data: &[u8]| WORLD.get_or_init(World::new).use_with(data));
