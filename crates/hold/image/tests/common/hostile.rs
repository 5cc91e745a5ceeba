//! Everything that an overlay offers, for memory that anybody scribbled over.

use super::{AT, Op, World};
use belay_memory::Memory;

/// Calls everything.
pub fn use_all(world: &World) {
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

/// An overlay with one epoch sealed and another under way.
pub fn world() -> World {
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
