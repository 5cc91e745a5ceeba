//! The disks of a volume any block of which says something else, with checksums that are right or
//! wrong.
#![no_main]

use belay_volume_sim::hostile::image::World;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static WORLD: OnceLock<World> = OnceLock::new();

fuzz_target!(|data: &[u8]| WORLD.get_or_init(World::new).use_with(data));
