//! Memory that anybody has scribbled over: nothing panics or goes on for ever, nothing is written
//! outside, and what is not what was written does not get to the image.
#![allow(missing_docs)]

mod common;

use belay_image::{Corrupt, Refused};
use belay_memory::Memory;
use common::AT;
use common::hostile::{use_all, world};
use proptest::prelude::*;

/// Words of the header and of both indices.
const CONTROL: usize = 3 * 512;

proptest! {
    #![proptest_config(belay_seeds::cases!(512))]

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

    /// Every single word of control data that is changed while an epoch is sealed is seen, or makes
    /// no difference to what is committed. (But for the masks, of which only those are seen that
    /// reach behind the image: nothing else says which sectors were written.)
    #[test]
    fn what_is_not_as_it_was_written_is_not_committed(at in prop_oneof![0..32usize, 512..512 + 32usize, 1024..1024 + 32usize], bit in 0..64u32) {
        let world = world();
        let before = world.commitment().unwrap();
        let old = world.memory.load(AT + at);
        prop_assume!(!(at >= 512 && at % 2 == 0 && (24..32).contains(&bit)));
        world.memory.store(AT + at, old ^ 1 << bit);
        match world.overlay().sealed() {
            Err(Corrupt) => {}
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
            assert_eq!(overlay.read(0, &mut [0; 8], image), Err(Refused::Corrupt));
            assert_eq!(overlay.write(0, &[0; 8], image), Err(Refused::Corrupt));
            assert_eq!((overlay.seal(), overlay.can_seal()), (Err(Corrupt), Err(Corrupt)));
            assert_eq!((overlay.sealed(), overlay.length()), (Err(Corrupt), Err(Corrupt)));
            assert_eq!(overlay.discard_current(5), Err(Corrupt));
            world.memory.rewind();
            world.memory.mark();
        }
    }
    // One word in the place of the other, each right where it was.
    let epoch = world.memory.load(AT);
    world.memory.store(AT + 8, epoch);
    assert_eq!(world.overlay().committed(), Err(Corrupt));
}
