//! Memory that anybody has scribbled over: nothing panics or goes on for ever, nothing is written
//! outside, and what is not what was written does not get to the image.
#![allow(missing_docs)]

mod common;

use belay_image::{Refused, Spoilt};
use belay_recorder::Memory;
use common::{AT, Op, World};
use proptest::prelude::*;

/// Calls everything.
fn use_all(world: &World) {
    let overlay = world.overlay();
    let image = |_: u64, out: &mut [u8]| Ok::<_, ()>(out.len() / 2);
    let before = world.memory.loads();
    let mut out = vec![0; 20_000];
    for at in [0, 1, 511, 4096, 9000, 1 << 40, i64::MAX as u64 - 5, u64::MAX] {
        let _ = overlay.read(at, &mut out, image);
        let _ = overlay.patch(at, &mut out);
        let _ = overlay.differs(at, 5000);
        let _ = overlay.write(at, &out[..5000], image);
    }
    let _ = (overlay.length(), overlay.dirty_bytes(), overlay.is_dirty(), overlay.can_seal());
    if let Ok(Some(sealed)) = overlay.sealed() {
        let mut end = 0;
        for run in &sealed.runs {
            assert!(run.offset >= end && run.len > 0);
            end = run.offset + run.len as u64;
            assert!(end <= sealed.length);
            assert!(run.from >= AT * 8 && run.from + run.len <= (AT + world.capacity.words()) * 8);
        }
        let _ = overlay.set_committed(sealed.epoch);
    }
    let _ = (overlay.set_length(3000), overlay.set_length(1 << 50));
    let _ = (overlay.spare(), overlay.committed(), overlay.set_committed(2));
    let _ = overlay.seal();
    let _ = overlay.discard_current(u64::MAX);
    let _ = overlay.write(100, &out[..5000], image);
    assert!(world.memory.loads() - before < 2_000_000, "it does not end");
    assert_eq!(world.memory.load(AT - 1), 0xfe11);
    assert_eq!(world.memory.load(AT + world.capacity.words()), 0xfe11);
}

fn world() -> World {
    let mut world = World::new(6, 9000);
    for op in [
        Op::Write { at: 700, len: 5000, seed: 1 },
        Op::Seal,
        Op::Write { at: 5, len: 9000, seed: 2 },
        Op::Length(8000),
    ] {
        world.model = world.act(&op);
    }
    world.memory.store(AT - 1, 0xfe11);
    world.memory.store(AT + world.capacity.words(), 0xfe11);
    world
}

/// Words of the header and of both indices.
const CONTROL: usize = 3 * 512;

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scribbled_words_are_survived(
        words in prop::collection::vec((
            prop_oneof![0..32usize, 512..512 + 32usize, 1024..1024 + 32usize, 0..CONTROL],
            prop_oneof![
                any::<u64>(),
                (1..3u64, any::<u32>()).prop_map(|(stamp, rest)| stamp << 32 | u64::from(rest)),
                Just(u64::MAX),
                0..20u64,
            ],
        ), 1..20),
    ) {
        let world = world();
        for (at, word) in words {
            world.memory.store(AT + at, word);
        }
        use_all(&world);
    }

    #[test]
    fn noise_is_survived(seed: u64, keep_epoch: bool) {
        let world = world();
        let mut state = seed;
        for at in if keep_epoch { 16..CONTROL } else { 0..CONTROL } {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            // Stamps that are the sides' own, so that entries are believed.
            let word = if at >= 512 && at % 2 == 0 { state >> 40 | 1 << 32 } else { state >> 59 };
            world.memory.store(AT + at, word);
        }
        use_all(&world);
    }

    /// Every single word of control data that is changed while an epoch is sealed is seen, or makes no
    /// difference to what is committed. (But for the masks, of which only those are seen that reach
    /// behind the image: nothing else says which sectors were written.)
    #[test]
    fn what_is_not_as_it_was_written_is_not_committed(at in prop_oneof![0..32usize, 512..512 + 32usize, 1024..1024 + 32usize], bit in 0..64u32) {
        let world = world();
        let before = world.commitment().unwrap();
        let old = world.memory.load(AT + at);
        prop_assume!(!(at >= 512 && at % 2 == 0 && (24..32).contains(&bit)));
        world.memory.store(AT + at, old ^ 1 << bit);
        match world.overlay().sealed() {
            Err(Spoilt) => {}
            Ok(found) => {
                prop_assert!(found.is_some());
                prop_assert_eq!(world.commitment().unwrap(), before);
            }
        }
    }
}

#[test]
fn numbers_that_nobody_wrote_are_refused() {
    let world = world();
    world.memory.mark();
    for at in [0, 8] {
        for word in [1, 2, 3, u64::MAX, 1 << 40] {
            world.memory.store(AT + at, word);
            let overlay = world.overlay();
            let image = |_: u64, _: &mut [u8]| Ok::<_, ()>(0);
            assert_eq!(overlay.read(0, &mut [0; 8], image), Err(Refused::Spoilt));
            assert_eq!(overlay.write(0, &[0; 8], image), Err(Refused::Spoilt));
            assert_eq!((overlay.seal(), overlay.can_seal()), (Err(Spoilt), Err(Spoilt)));
            assert_eq!((overlay.sealed(), overlay.length()), (Err(Spoilt), Err(Spoilt)));
            assert_eq!(overlay.discard_current(5), Err(Spoilt));
            world.memory.rewind();
            world.memory.mark();
        }
    }
    // One word in the place of the other, each right where it was.
    let epoch = world.memory.load(AT);
    world.memory.store(AT + 8, epoch);
    assert_eq!(world.overlay().committed(), Err(Spoilt));
}
