//! The overlay against a plain byte string: whatever is done, the daemon sees what it has written,
//! and the committer what there was at the checkpoint.
#![allow(missing_docs)]

mod common;

use belay_image::{Capacity, Overlay, Refused};
use common::{AT, MOST, Op, Sim, World, op, pread};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn cases() -> u32 {
    std::env::var("BELAY_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1) * 1024
}

proptest! {
    #![proptest_config(belay_seeds::cases!(cases()))]

    #[test]
    fn the_daemon_sees_what_it_has_written(
        length in 0..MOST,
        pages in prop_oneof![Just(3usize), Just(5), Just(32)],
        ops in prop::collection::vec(op(9000), 1..60),
        reads in prop::collection::vec((0..MOST + 5000, 0..30_000usize), 60),
    ) {
        let mut world = World::new(pages, length);
        for (op, (at, len)) in ops.iter().zip(reads) {
            world.model = world.act(op);
            let model = &world.model;
            prop_assert!(world.view(&model.disk) == model.current, "{op:?}");
            let overlay = world.overlay();
            prop_assert_eq!(overlay.length(), Ok(model.current.len() as u64));
            prop_assert_eq!(overlay.epoch(), Ok(model.epoch));
            prop_assert_eq!(overlay.dirty_bytes(), Ok(model.pages.len() as u64 * 4096));
            // From anywhere, for any length, in both ways of reading.
            let mut out = vec![0xdd; len];
            let n = overlay.read(at as u64, &mut out, |at, out| pread(&model.disk, at, out)).unwrap();
            let there = model.current.get(at..).unwrap_or_default();
            let there = &there[..there.len().min(len)];
            prop_assert!(out[..n] == *there, "a read of {} at {}", len, at);
            prop_assert!(out[n..].iter().all(|byte| *byte == 0xdd));
            let mut patched = vec![0; n];
            let on_disk = pread(&model.disk, at as u64, &mut patched).unwrap();
            patched[on_disk..].fill(0);
            let disk = patched.clone();
            overlay.patch(at as u64, &mut patched).unwrap();
            prop_assert!(patched == there);
            prop_assert!(overlay.differs(at as u64, len).unwrap() || disk == there);
        }
    }
}

#[test]
fn a_read_that_meets_nothing_is_one_call_and_little_else() {
    let world = World::new(1024, 0);
    let overlay = world.overlay();
    overlay.set_length(1 << 30).unwrap();
    assert_eq!(overlay.seal(), Ok(Some(1)));
    overlay.set_committed(1).unwrap();
    for page in 0..500u64 {
        overlay
            .write(page * 8192, &[7; 4096], |_, _| -> Result<usize, ()> { panic!("whole sectors") })
            .unwrap();
    }
    let mut out = vec![0; 128 << 10];
    let mut calls = Vec::new();
    let before = world.memory.loads();
    overlay
        .read((1 << 29) + 77, &mut out, |at, out| {
            calls.push((at, out.len()));
            Ok::<_, ()>(out.len())
        })
        .unwrap();
    assert_eq!(calls, [((1 << 29) + 77, 128 << 10)]);
    let loads = world.memory.loads() - before;
    assert!(loads < 33 * 2 * 8, "{loads} loads for 33 pages");
    assert_eq!(overlay.differs((1 << 29) + 77, 128 << 10), Ok(false));
    // One that meets a page in the middle is still one call; one that is all there is none.
    calls.clear();
    overlay
        .read(8192 - 4096, &mut out[..12288], |at, out| {
            calls.push((at, out.len()));
            Ok::<_, ()>(out.len())
        })
        .unwrap();
    assert_eq!(calls, [(4096, 12288)]);
    assert_eq!((out[4095], out[4096], out[8191], out[8192]), (0, 7, 7, 0));
    overlay
        .read(8192, &mut out[..4096], |_, _| -> Result<usize, ()> { panic!("it is held") })
        .unwrap();
}

#[test]
fn an_error_of_the_image_leaves_everything_as_it_was() {
    let mut world = World::new(8, 3 * 4096);
    let overlay = world.overlay();
    // The tail's sector cannot be read, the head's can.
    let mut calls = 0;
    let refused = overlay.write(100, &[9; 5000], |at, out| {
        calls += 1;
        if at >= 4096 { Err("bad sector") } else { Ok(pread(&world.model.disk, at, out).unwrap()) }
    });
    assert_eq!(refused, Err(Refused::Image("bad sector")));
    assert_eq!(calls, 2);
    assert_eq!(overlay.is_dirty(), Ok(false));
    assert_eq!(world.view(&world.model.disk), world.model.current);
    let mut out = [0; 600];
    assert_eq!(overlay.read(0, &mut out, |_, _| Err("bad")), Err(Refused::Image("bad")));
    assert_eq!(
        overlay.write(i64::MAX as u64 - 1, &[1, 2], |_, _| Ok::<_, ()>(0)),
        Err(Refused::TooFar)
    );
    assert_eq!(overlay.write(u64::MAX, &[1, 2], |_, _| Ok::<_, ()>(0)), Err(Refused::TooFar));
    assert_eq!(overlay.set_length(u64::MAX), Err(Refused::TooFar));
    assert_eq!(overlay.read(u64::MAX, &mut out, |_, _| Err("bad")), Ok(0));
    assert_eq!(overlay.write(5, &[], |_, _| Err("bad")), Ok(0));
    world.model = world.act(&Op::Write { at: 100, len: 5000, seed: 3 });
    assert_eq!(world.view(&world.model.disk), world.model.current);
}

#[test]
fn pages_from_anywhere_are_found_up_to_the_last_that_there_is_room_for() {
    let capacity = Capacity { pages: 300 };
    let memory = Sim::new(AT + capacity.words());
    let overlay = Overlay::new(&memory, AT, capacity);
    assert_eq!(overlay.write(0, b"x", |_, _| Ok::<_, ()>(0)), Err(Refused::Corrupt), "no life yet");
    let mut seed = 1u64;
    for _ in 0..4 {
        overlay.discard_current(1 << 62).unwrap();
        let mut written = BTreeMap::new();
        while written.len() < 300 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let page = match seed >> 62 {
                0 => seed >> 20 & 0x3f,
                1 => (seed >> 20) & !0xfff_ffff,
                _ => seed >> 20,
            } & ((1 << 50) - 1);
            let bytes = seed.to_le_bytes();
            if overlay.write(page * 4096 + 512, &bytes.repeat(64), |_, _| Ok::<_, ()>(0)) == Ok(512)
            {
                written.insert(page, bytes);
            }
        }
        let image = |_, _: &mut [u8]| Ok::<_, ()>(0);
        let next = written.keys().find(|page| !written.contains_key(&(*page + 1))).unwrap() + 1;
        assert_eq!(overlay.write(next * 4096, b"x", image), Err(Refused::Full));
        let long = vec![1; 8192];
        assert_eq!(overlay.write((next - 1) * 4096, &long, image), Err(Refused::Full));
        for (page, bytes) in &written {
            let mut out = [1; 520];
            overlay.read(page * 4096 + 508, &mut out, image).unwrap();
            assert_eq!(out[..4], [0; 4]);
            assert_eq!(out[4..516], bytes.repeat(64));
        }
        assert_eq!(overlay.dirty_bytes(), Ok(300 * 4096));
        let [mine, other] = overlay.spare().unwrap();
        assert!(mine.is_empty() && other.len() == 300 * 4096, "{mine:?} {other:?}");
        let epoch = overlay.seal().unwrap().unwrap();
        assert_eq!(overlay.spare(), Ok([other, 0..0]));
        let sealed = overlay.sealed().unwrap().unwrap();
        let places: Vec<_> = sealed.runs.iter().map(|run| (run.offset, run.len)).collect();
        let expected: Vec<_> = written.keys().map(|page| (page * 4096 + 512, 512)).collect();
        assert_eq!(places, expected);
        assert_eq!(sealed.bytes(), 300 * 512);
        assert_eq!(overlay.seal(), Ok(None));
        overlay.set_committed(epoch + 1).unwrap();
        assert_eq!(overlay.can_seal(), Ok(false), "that is not the sealed one");
        overlay.set_committed(epoch).unwrap();
        assert_eq!(overlay.sealed(), Ok(None));
    }
}

#[test]
fn stamps_start_again_without_finding_what_is_old() {
    let world = World::new(4, 4096);
    let overlay = world.overlay();
    // Stamp 1 has an entry; then the side's stamp is at its last.
    overlay.write(0, &[5; 4096], |_, _| Ok::<_, ()>(0)).unwrap();
    let side = AT + 24; // of odd epochs
    assert_eq!(belay_memory::Memory::load(&world.memory, side), 1 << 32 | 1);
    belay_memory::Memory::store(&world.memory, side, u64::from(u32::MAX) << 32);
    overlay.discard_current(4096).unwrap();
    assert_eq!(belay_memory::Memory::load(&world.memory, side), 1 << 32);
    assert!(world.view(&world.model.disk) == world.model.disk);
}

#[test]
fn an_overlay_of_no_pages_refuses_and_touches_nothing() {
    assert_eq!(Capacity { pages: 0 }.words(), 0);
    let memory = Sim::new(64);
    memory.mark();
    let overlay = Overlay::new(&memory, 0, Capacity { pages: 0 });
    let _ = overlay.discard_current(99);
    let _ = overlay.set_length(5);
    let (_, stores) = memory.process(usize::MAX, || {
        overlay.write(0, b"x", |_, _| Ok::<_, ()>(0)).unwrap_err();
        assert_eq!(overlay.seal(), Ok(Some(1)));
        assert_eq!((overlay.sealed(), overlay.spare()), (Ok(None), Ok([0..0, 0..0])));
    });
    assert_eq!(stores, 0);
}
