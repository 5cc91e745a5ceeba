//! The power goes at any write and any sync of commits and recoveries: the image is at the last
//! checkpoint or the one before, byte for byte.
#![allow(missing_docs)]

mod common;

use belay_image::journal::{How, Recovered, commit, mark_empty, recover};
use belay_image::{Run, Sealed};
use common::disk::{Disk, Fault, IMAGE, Platter, SimSource};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A small commit: cut, writes, length.
type Small = (usize, Vec<(usize, usize)>, usize);

const DAY: i64 = 86_400;

/// A checkpoint, and the image that it makes.
#[derive(Clone, Debug)]
struct Checkpoint {
    sealed: Sealed,
    source: Vec<u8>,
    image: Vec<u8>,
}

impl Checkpoint {
    /// Writes of (place, length) to an image that is cut, and has a length in the end.
    fn new(
        epoch: u64,
        before: &[u8],
        cut: usize,
        writes: &[(usize, usize)],
        length: usize,
    ) -> Self {
        let mut image = before.to_vec();
        image.truncate(cut);
        let mut source = vec![0x5a; 3];
        let mut runs = Vec::new();
        for (i, (at, len)) in writes.iter().enumerate() {
            let data = (0..*len).map(|byte| (byte + 31 * i) as u8 ^ (epoch as u8) << 5 | 1);
            runs.push(Run { offset: *at as u64, from: source.len(), len: *len });
            source.extend(data);
            if image.len() < at + len {
                image.resize(at + len, 0);
            }
            let from = source.len() - len;
            image[*at..at + len].copy_from_slice(&source[from..]);
        }
        image.resize(length, 0);
        let (start, cut, length) =
            (before.len() as u64, cut.min(before.len()) as u64, length as u64);
        Self { sealed: Sealed { epoch, start, cut, length, runs }, source, image }
    }

    fn commit(&self, disk: &Disk) -> bool {
        let source = SimSource(self.source.clone());
        commit(&disk.journal(), &disk.image(), &source, &self.sealed, &mut |_| {}).is_ok()
    }
}

fn base(sectors: usize) -> Vec<u8> {
    (0..sectors * 512).map(|i| (i / 7 + i / 512) as u8 & 0xfe).collect()
}

/// An image with a journal that was just made.
fn fresh(image: &[u8]) -> Disk {
    let disk =
        Disk::new(Platter { image: image.to_vec(), journal: vec![], modified: [5, 0] }, 1000);
    mark_empty(&disk.journal()).unwrap();
    Disk::new(disk.platter(|| true), 1000)
}

/// Recovers what is on a disk, a day later.
fn recovered(platter: &Platter, clock: i64) -> (Disk, Recovered) {
    let disk = Disk::new(platter.clone(), clock + DAY);
    let done = recover(&disk.journal(), &disk.image(), How::default(), &mut |_| {});
    (disk, done.unwrap_or_else(|why| panic!("refused: {why}")))
}

/// Checks that what is on a disk becomes one of `allowed`, and stays so. Which one that is.
fn check(platter: &Platter, clock: i64, allowed: &[&[u8]], what: &str) -> usize {
    let (disk, done) = recovered(platter, clock);
    assert_eq!(disk.undecided(), 0, "all that was done is durable");
    let found = disk.contents(IMAGE);
    let which = allowed.iter().position(|image| *image == found);
    let which =
        which.unwrap_or_else(|| panic!("{what}: {done:?}, and the image is at no checkpoint"));
    assert_eq!(recovered(&disk.platter(|| false), clock + DAY).1, Recovered::Nothing);
    which
}

/// All that a disk can be after the power went: every combination of what is undecided.
fn combinations(disk: &Disk, most: usize) -> BTreeSet<Platter> {
    let undecided = disk.undecided();
    assert!(undecided <= most, "{undecided} things make too many combinations");
    (0u32..1 << undecided)
        .map(|bits| {
            let mut left = bits;
            disk.platter(|| {
                let keep = left & 1 == 1;
                left >>= 1;
                keep
            })
        })
        .collect()
}

/// `prepare` makes a disk; then `last` is committed, with a power failure at every operation, and
/// in every recovery from that, at every operation. Gives how many disks there were.
fn exhaust(prepare: &dyn Fn() -> Disk, last: &Checkpoint, before: &[u8]) -> usize {
    let disk = prepare();
    disk.repair();
    assert!(last.commit(&disk));
    let ops = disk.repair();
    assert_eq!(disk.contents(IMAGE), last.image);
    let allowed = [before, &last.image];
    let mut disks = 0;
    let mut seen = [false; 2];
    for at in 0..=ops {
        let disk = prepare();
        disk.fault(at, Fault::Power);
        let done = last.commit(&disk);
        assert_eq!(done, at == ops);
        for platter in combinations(&disk, 14) {
            let clock = disk.clock();
            let what = format!("power lost at {at} of {ops}");
            let which = check(&platter, clock, &allowed, &what);
            assert!(!done || which == 1, "what was committed is there");
            seen[which] = true;
            disks += 1;
            // The same, in the recovery.
            let again = Disk::new(platter.clone(), clock + DAY);
            let run = |disk: &Disk| {
                let (journal, image) = (disk.journal(), disk.image());
                recover(&journal, &image, How::default(), &mut |_| {}).is_ok()
            };
            again.repair();
            assert!(run(&again));
            for inner in 0..again.repair() {
                let again = Disk::new(platter.clone(), clock + DAY);
                again.fault(inner, Fault::Power);
                assert!(!run(&again));
                for platter in combinations(&again, 12) {
                    let what = format!("{what}, and at {inner} of the recovery");
                    assert_eq!(check(&platter, clock + DAY, &allowed, &what), which);
                    disks += 1;
                }
            }
        }
    }
    assert_eq!(seen, [true; 2], "both outcomes are possible");
    disks
}

/// Small commits: (cut, writes, length), on an image of four sectors.
fn small() -> Vec<Small> {
    vec![
        (2048, vec![(512, 512)], 2048),
        (2048, vec![(0, 512), (1536, 512)], 2048),
        (2048, vec![(512, 100), (612, 412)], 2048),
        (2048, vec![(2048, 512)], 2560), // longer
        (2048, vec![(1024, 512)], 4096), // much longer
        (600, vec![(0, 512)], 600),      // shorter, in a sector
        (512, vec![(1024, 512)], 2048),  // shorter, and as long again
        (0, vec![], 0),
        (2048, vec![], 2100),
    ]
}

#[test]
fn small_commits_survive_every_loss_of_power() {
    let before = base(4);
    let mut disks = 0;
    for (cut, writes, length) in small() {
        let last = Checkpoint::new(9, &before, cut, &writes, length);
        disks += exhaust(&|| fresh(&before), &last, &before);
    }
    println!("{disks} disks");
    assert!(disks > 1000);
}

/// With a journal from before in place, whose mark may be durable or not, or was never made.
#[test]
fn commits_that_follow_others_survive_every_loss_of_power() {
    let first = base(4);
    for marked in [false, true] {
        for (earlier, later) in [(0, 1), (1, 0), (4, 6), (6, 3), (1, 1)] {
            let (cut, writes, length) = &small()[earlier];
            let one = Checkpoint::new(4, &first, *cut, writes, *length);
            let (cut, writes, length) = &small()[later];
            let cut = if *cut == 2048 { one.image.len() } else { *cut };
            let length = if *length == 2048 { one.image.len() } else { *length };
            let two = Checkpoint::new(5, &one.image, cut, writes, length);
            let prepare = || {
                let disk = fresh(&first);
                assert!(one.commit(&disk));
                if marked {
                    mark_empty(&disk.journal()).unwrap();
                }
                disk.pass(5);
                disk
            };
            exhaust(&prepare, &two, &one.image);
        }
    }
}

/// The supervisor dies in a commit, or a write fails; it is done once more from the start, and the
/// power goes.
#[test]
fn commits_that_are_done_once_more_survive_every_loss_of_power() {
    let before = base(4);
    for (cut, writes, length) in small() {
        let last = Checkpoint::new(9, &before, cut, &writes, length);
        for fault in [Fault::Death, Fault::Error] {
            for first in 0..6 {
                let prepare = || {
                    let disk = fresh(&before);
                    disk.fault(first, fault);
                    last.commit(&disk);
                    disk.repair();
                    disk
                };
                // The first try may have got as far as the image: both outcomes need not be there.
                let disk = prepare();
                assert!(last.commit(&disk));
                let ops = disk.repair();
                assert_eq!(disk.contents(IMAGE), last.image);
                for at in 0..=ops {
                    let disk = prepare();
                    disk.fault(at, Fault::Power);
                    let done = last.commit(&disk);
                    for platter in combinations(&disk, 16) {
                        let what = format!("{fault:?} at {first}, power lost at {at}");
                        let which = check(&platter, disk.clock(), &[&before, &last.image], &what);
                        assert!(!done || which == 1);
                    }
                }
            }
        }
    }
}

fn checkpoint() -> impl Strategy<Value = (Vec<(usize, usize)>, Option<usize>, usize)> {
    let piece = (0..2000usize, prop_oneof![Just(512usize), Just(4096), 1..9000usize]);
    let pieces = prop::collection::vec(piece, 0..90).prop_map(|pieces| {
        let mut at = 0;
        let mut out = Vec::new();
        for (gap, len) in pieces {
            at += if gap < 700 { 0 } else { gap };
            out.push((at, len));
            at += len;
        }
        out
    });
    (pieces, prop::option::weighted(0.3, 0..60_000usize), 0..20_000usize)
}

fn made(
    epoch: u64,
    before: &[u8],
    plan: &(Vec<(usize, usize)>, Option<usize>, usize),
) -> Checkpoint {
    let (writes, cut, more) = plan;
    let cut = cut.map_or(before.len(), |cut| cut.min(before.len()));
    let end = writes.last().map_or(0, |(at, len)| at + len);
    Checkpoint::new(epoch, before, cut, writes, end.max(cut) + more.saturating_sub(10_000))
}

struct Bits(u64);

impl Bits {
    /// Mostly one of the two, or as it comes.
    fn keep(&mut self, bias: u8) -> bool {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let n = (self.0 >> 33) as u32 % 64;
        match bias {
            0 => n == 0,
            1 => n != 0,
            _ => n < 32,
        }
    }
}

fn cases() -> u32 {
    std::env::var("BELAY_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1) * 32
}

proptest! {
    #![proptest_config(belay_seeds::cases!(cases()))]

    #[test]
    fn large_commits_survive_losses_of_power(
        sectors in 0..200usize,
        plans in prop::collection::vec(checkpoint(), 1..4),
        marks: [bool; 4],
        retry in prop::option::of((any::<prop::sample::Index>(), any::<bool>())),
        seed: u64,
        bias in 0..3u8,
    ) {
        let mut bits = Bits(seed);
        let mut before = base(sectors);
        let disk = fresh(&before);
        let (last, earlier) = plans.split_last().unwrap();
        for (epoch, plan) in earlier.iter().enumerate() {
            let checkpoint = made(epoch as u64 + 1, &before, plan);
            prop_assert!(checkpoint.commit(&disk));
            if marks[epoch] {
                mark_empty(&disk.journal()).unwrap();
            }
            before = checkpoint.image;
            disk.pass(30);
        }
        let platter = disk.platter(|| bits.keep(bias));
        let last = made(9, &before, last);
        // As it is without any loss: how many operations there are.
        let trial = || Disk::new(platter.clone(), disk.clock() + 1);
        let whole = trial();
        prop_assert_eq!(check(&platter, disk.clock(), &[&before], "before"), 0);
        recover(&whole.journal(), &whole.image(), How::default(), &mut |_| {}).unwrap();
        let platter = whole.platter(|| true);
        let trial = || Disk::new(platter.clone(), whole.clock());
        let disk = trial();
        prop_assert!(last.commit(&disk));
        prop_assert!(disk.contents(IMAGE) == last.image);
        let ops = disk.repair();
        for at in 0..=ops {
            let disk = trial();
            if let Some((first, death)) = &retry {
                disk.fault(first.index(ops + 1), if *death { Fault::Death } else { Fault::Error });
                last.commit(&disk);
            }
            disk.fault(at, Fault::Power);
            let done = last.commit(&disk);
            let platter = disk.platter(|| bits.keep(bias));
            let which = check(&platter, disk.clock(), &[&before, &last.image], "the commit");
            prop_assert!(!done || which == 1 || last.image == before);
            // One loss in the recovery, and one in the recovery from that.
            let mut platter = platter;
            for _ in 0..2 {
                let again = Disk::new(platter.clone(), disk.clock() + DAY);
                again.fault((seed as usize).wrapping_add(at) % 9, Fault::Power);
                let _ = recover(&again.journal(), &again.image(), How::default(), &mut |_| {});
                platter = again.platter(|| bits.keep(bias));
                let which_now = check(&platter, disk.clock() + DAY, &[&before, &last.image], "the recovery");
                prop_assert!(which == which_now || last.image == before);
            }
        }
    }
}

/// A checkpoint that has changed nothing touches nothing.
#[test]
fn an_empty_checkpoint_is_no_work() {
    let before = base(3);
    let disk = fresh(&before);
    assert!(Checkpoint::new(2, &before, 1536, &[], 1536).commit(&disk));
    assert_eq!((disk.repair(), disk.undecided()), (0, 0));
}

/// An image that is a device keeps its length, and one of another length is refused.
#[test]
fn devices_are_written_and_never_cut() {
    let before = base(4);
    let disk = fresh(&before);
    disk.set_device();
    let right = Checkpoint::new(2, &before, 2048, &[(512, 1024)], 2048);
    assert!(right.commit(&disk));
    assert_eq!(disk.contents(IMAGE), right.image);
    mark_empty(&disk.journal()).unwrap();
    disk.repair();
    for (cut, length) in [(2048, 2560), (1024, 1024), (1024, 2048)] {
        assert!(!Checkpoint::new(3, &before, cut, &[], length).commit(&disk));
    }
    assert_eq!(disk.repair(), 0);
}
