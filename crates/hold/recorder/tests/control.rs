//! The control block.
#![allow(missing_docs)]

mod common;

use belay_memory::Memory;
use belay_recorder::control::{
    COUNTER_NAMES, CheckpointSettings, Counter, Decision, Flags, FlushBy, InitState, Instant, Kept,
    Lease, Loss, MAGIC, ending,
};
use belay_recorder::layout::{DECISION_WORDS, DECISIONS};
use belay_recorder::{Blame, Capacity, Control, Layout};
use common::{Random, Sim};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LAYOUT: Layout = Layout::new(Capacity {
    nodes: 16,
    handles: 4,
    slots: 2,
    heap_words: 64,
    copy_bytes: 0,
    effect_bytes: 0,
    epoch_bytes: 0,
});
const TEXT: usize = (DECISION_WORDS - 6) * 8;

/// Memory that threads share.
struct Shared(Vec<AtomicU64>);

impl Memory for Shared {
    fn load(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }
    fn store(&self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::Release);
    }
    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        self.0[at].compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
    }
    fn add(&self, at: usize, by: u64) -> u64 {
        self.0[at].fetch_add(by, Ordering::AcqRel)
    }
}

fn memory() -> Sim {
    Sim::new(LAYOUT.words)
}

fn decision(i: u64) -> Decision {
    Decision {
        generation: 1 + i as u32,
        opcode: 2,
        unique: 10 * i,
        node: i,
        row: 7,
        errno: (i % 3) as i32,
        text: format!("decision {i}"),
    }
}

#[test]
fn the_ring_keeps_the_youngest() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    assert_eq!(control.decisions_since(0), []);
    let all = 3 * DECISIONS as u64 + 17;
    for i in 0..all {
        control.decide(&decision(i));
        assert_eq!(control.decision_top(), i + 1);
        assert_eq!(control.decisions_since(i), [decision(i)]);
    }
    let held: Vec<_> = (all - DECISIONS as u64..all).map(decision).collect();
    assert_eq!(control.decisions_since(0), held);
    assert_eq!(control.decisions_since(all - 3), held[DECISIONS - 3..]);
    assert_eq!(control.decisions_since(all), []);
    assert_eq!(control.decisions_since(u64::MAX), []);
}

#[test]
fn a_decision_that_died_is_never_an_older_one() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    let all = DECISIONS as u64 + 5;
    for i in 0..all {
        control.decide(&decision(i));
    }
    memory.mark();
    let (_, stores) = memory.process(usize::MAX, || control.decide(&decision(all)));
    memory.rewind();
    for at in 0..stores {
        memory.process(at, || control.decide(&decision(all)));
        assert_eq!(control.decisions_since(all), [], "death {at}");
        assert_eq!(control.decisions_since(all - 1), [decision(all - 1)]);
        // The next one is not held up.
        control.decide(&decision(all + 1));
        assert_eq!(control.decisions_since(all), [decision(all + 1)]);
        memory.rewind();
    }
}

#[test]
fn long_texts_are_cut() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    for length in [0, 1, 7, 8, TEXT - 1, TEXT, TEXT + 1, 5 * TEXT] {
        let text = "x".repeat(length);
        control.decide(&Decision { text: text.clone(), ..decision(1) });
        let top = control.decision_top();
        assert_eq!(control.decisions_since(top - 1)[0].text, text[..length.min(TEXT)]);
    }
    // A cut inside of a character is not an error.
    control.decide(&Decision { text: "é".repeat(TEXT), ..decision(1) });
    control.decide(&Decision { text: format!("x{}", "é".repeat(TEXT)), ..decision(1) });
    assert_eq!(control.decisions_since(0).len(), 10);
    // A record that runs to its very end does not touch the next one.
    let next = LAYOUT.decisions + 10 * DECISION_WORDS;
    assert!((next..LAYOUT.name_index).all(|at| memory.load(at) == 0));
}

#[test]
fn lengths_that_lie_are_cut() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    control.set_init_request(b"request");
    control.set_init_reply(b"reply");
    control.set_mount(b"/mnt", b"allow_other");
    control.decide(&decision(3));
    for at in [64, 96, 512, 1024, LAYOUT.decisions + 5] {
        assert!(memory.load(at) > 0, "a length");
        memory.store(at, u64::MAX);
    }
    assert_eq!(control.init_request().len(), 31 * 8);
    assert_eq!(control.init_reply().len(), 31 * 8);
    assert_eq!(control.mountpoint().len(), 511 * 8);
    assert_eq!(control.mount_data().len(), 511 * 8);
    assert_eq!(control.decisions_since(0)[0].text.len(), TEXT);
    memory.store(128, u64::MAX); // the ring's top
    assert!(control.decisions_since(0).len() <= DECISIONS);
    control.decide(&decision(4));
    assert_eq!(control.decision_top(), 0);
}

#[test]
fn byte_strings_come_back_and_are_cut_at_their_room() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    for length in [0, 1, 8, 104, 247, 248, 249, 4087, 4088, 4089, 9000] {
        let bytes: Vec<_> = (0..length).map(|i| i as u8 | 1).collect();
        control.set_init_request(&bytes);
        control.set_init_reply(&bytes);
        control.set_mount(&bytes, &bytes);
        for (got, room) in [
            (control.init_request(), 248),
            (control.init_reply(), 248),
            (control.mountpoint(), 4088),
            (control.mount_data(), 4088),
        ] {
            assert_eq!(got, bytes[..length.min(room)]);
        }
    }
    assert_eq!(control.decision_top(), 0);
}

#[test]
fn a_string_that_was_being_written_is_empty_or_whole() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    control.set_init_reply(b"an old reply of some length");
    memory.mark();
    let new = b"a new and much longer reply than the old one was";
    let (_, stores) = memory.process(usize::MAX, || control.set_init_reply(new));
    memory.rewind();
    for at in 0..=stores {
        memory.process(at, || control.set_init_reply(new));
        let expected: &[u8] = match at {
            0 => b"an old reply of some length",
            _ if at == stores => new,
            _ => b"",
        };
        assert_eq!(control.init_reply(), expected);
        memory.rewind();
    }
}

#[test]
fn only_one_takes_the_lease() {
    let memory = Arc::new(Shared((0..LAYOUT.words).map(|_| AtomicU64::new(0)).collect()));
    let control = &Control::new(&memory, LAYOUT);
    assert_eq!(control.lease(), Lease { generation: 0, pid: 0 });
    for generation in 0..100 {
        let free = Lease { generation, pid: 0 };
        let winners: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..5)
                .map(|pid| {
                    scope.spawn(move || control.change_lease(free, Lease { generation, pid }))
                })
                .collect();
            (1..5)
                .zip(threads)
                .filter_map(|(pid, t)| t.join().expect("no panic").then_some(pid))
                .collect()
        });
        assert_eq!(winners.len(), 1);
        let held = Lease { generation, pid: winners[0] };
        assert_eq!(control.lease(), held);
        // One that comes late, and one that was superseded, get nothing.
        assert!(!control.change_lease(free, Lease { generation, pid: 9 }));
        let next = Lease { generation: generation + 1, pid: 0 };
        assert!(control.change_lease(held, next));
        assert!(!control.change_lease(held, Lease { generation, pid: 9 }));
        assert_eq!(control.lease(), next);
    }
}

#[test]
fn flags_and_counters_lose_nothing_among_threads() {
    let memory = Arc::new(Shared((0..LAYOUT.words).map(|_| AtomicU64::new(0)).collect()));
    let control = &Control::new(&memory, LAYOUT);
    std::thread::scope(|scope| {
        for i in 0..4 {
            scope.spawn(move || {
                for bit in 0..16 {
                    control.raise(Flags::from_bits_retain(1 << (16 * i + bit)));
                }
                for _ in 0..1000 {
                    control.count(Counter::Reissued, 1);
                }
                for n in 0..50 {
                    control.decide(&decision(n));
                }
            });
        }
    });
    assert!(control.has(Flags::from_bits_retain(u64::MAX)));
    assert_eq!(control.counter(Counter::Reissued), 4000);
    assert_eq!(control.decision_top(), 200);
    assert_eq!(control.decisions_since(0).len(), 200);
}

#[test]
fn losses_are_told_once_and_a_mad_daemon_tells_no_more_than_fit() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    control.lose(Loss::Data, "the file a");
    control.lose(Loss::Record, &"x".repeat(1000));
    assert_eq!((memory.load(129), memory.load(1536), memory.load(1536 + 32)), (2, 1, 2));
    let (told, next) = control.losses_since(0);
    assert_eq!(next, 2);
    assert_eq!(told.first(), Some(&(Loss::Data, "the file a".to_owned())));
    assert_eq!(told.get(1), Some(&(Loss::Record, "x".repeat(240))));
    assert_eq!(control.losses_since(1).0.len(), 1);
    assert_eq!(control.losses_since(2), (Vec::new(), 2));
    for word in 1536..2048 {
        memory.store(word, u64::MAX);
    }
    for top in [1, 40, u64::MAX] {
        memory.store(129, top);
        assert_eq!(control.losses_since(0), (Vec::new(), top), "{top}");
    }
    memory.store(129, 40);
    for n in 0..30 {
        control.lose(Loss::Data, &n.to_string());
    }
    assert_eq!(control.losses_since(0).0.len(), 16);
}

/// Who looks at any moment of it misses nothing, and has nothing twice.
#[test]
fn a_loss_that_is_just_being_told_is_waited_for() {
    let memory = Sim::new(LAYOUT.words);
    let control = Control::new(&memory, LAYOUT);
    for first in [0, 20] {
        (0..first).for_each(|_| control.lose(Loss::Data, "before"));
        let begin = control.loss_top();
        memory.mark();
        let tell = || control.lose(Loss::Handle, "it");
        let (_, stores) = memory.process(usize::MAX, tell);
        assert_eq!(control.losses_since(begin), (vec![(Loss::Handle, "it".to_owned())], begin + 1));
        // With the first store its place is taken.
        for at in 1..stores {
            memory.rewind();
            memory.process(at, tell);
            let seen = (Vec::new(), begin);
            assert_eq!(control.losses_since(begin), seen, "after {at} of {stores} stores");
            control.lose(Loss::Data, "another");
            assert_eq!(control.losses_since(begin), seen);
        }
    }
}

/// Each word of the control block says one thing.
#[test]
fn no_word_has_two_meanings() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    control.format();
    control.note_ending(3, ending::ASKED);
    assert!(!control.take_cut());
    control.note_cut();
    assert_eq!(control.ending(3), ending::ASKED);
    assert!(control.take_cut() && !control.take_cut());
    assert_eq!(control.ending(3), ending::ASKED);

    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let parts = std::fs::read_dir(folder.join("control")).unwrap();
    let files = parts.map(|part| part.unwrap().path()).chain([folder.join("control.rs")]);
    let mut words = std::collections::BTreeMap::new();
    for file in files {
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
            let Some(rest) = line.strip_prefix("const W_") else {
                continue;
            };
            let (name, number) = rest.split_once(": usize = ").expect("a word");
            let number = number.split(';').next().expect("a number").to_owned();
            if let Some(other) = words.insert(number.clone(), name.to_owned()) {
                panic!("word {number} is both W_{other} and W_{name}");
            }
        }
    }
    assert!(words.len() > 30, "{words:?}");
}

/// The threads that see to two generations which die one after the other may come to their ends in
/// either order.
#[test]
fn a_fence_never_falls() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    control.format();
    for (raised, seen) in [(2, 2), (1, 2), (2, 2), (3, 3), (0, 3)] {
        control.raise_fence(raised);
        assert_eq!(control.fence(), seen, "after {raised}");
    }
}

#[test]
fn words_are_where_the_document_has_them() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    assert!(!control.is_valid());
    control.format();
    assert!(control.is_valid());
    assert_eq!((memory.load(0), memory.load(1)), (MAGIC, 10));
    assert!(control.change_lease(Lease { generation: 0, pid: 0 }, Lease { generation: 3, pid: 4 }));
    assert_eq!(memory.load(2), 3 << 32 | 4);
    control.raise(Flags::DEGRADED);
    assert!(control.has(Flags::DEGRADED) && !control.has(Flags::DEGRADED | Flags::MOUNTED));
    assert_eq!(memory.load(3), 4);
    control.set_max_write(6);
    assert_eq!((memory.load(5), control.max_write()), (6, 6));
    control.count(Counter::Poisoned, 2);
    assert_eq!(memory.load(16 + 11), 2);
    assert_eq!(COUNTER_NAMES.len(), Counter::Renumbered as usize + 1);
    assert_eq!(control.counters().nth(11), Some(("poisoned", 2)));
    assert_eq!(control.counters().last(), Some(("renumbered", 0)));
    assert_eq!(control.blame(), (0, Blame::Unknown));
    for blame in [Blame::Own, Blame::Hang, Blame::Unknown] {
        control.set_blame(9, blame);
        assert_eq!((memory.load(8), control.blame()), (9 << 32 | blame as u64, (9, blame)));
    }
    memory.store(8, 77); // no such word is written: it says nothing
    assert_eq!(control.blame(), (0, Blame::Unknown));
    control.set_poison_after(2);
    assert_eq!((memory.load(9), control.poison_after()), (2, 2));
    assert_eq!(control.violation(0), None);
    control.set_violation(4, b"rule");
    assert_eq!((memory.load(256), memory.load(257)), (5, 4));
    assert_eq!((control.violation(4), control.violation(3)), (Some(b"rule".to_vec()), None));
    control.set_forward(3, Some(7));
    assert_eq!((memory.load(13), control.forward()), (3 << 32 | 8, Some((3, 7))));
    control.set_forward(3, None);
    assert_eq!(control.forward(), None);
    control.ask_for_checkpoint();
    assert_eq!((memory.load(10), control.checkpoints_asked()), (1, 1));
    control.reach(Instant::FirstReply, 7);
    control.reach(Instant::FirstReply, 8);
    assert_eq!((memory.load(48 + 4), control.instant(Instant::FirstReply)), (7, 7));
    for state in [InitState::Requested, InitState::Replying, InitState::Done, InitState::None] {
        control.set_init_state(state);
        assert_eq!(control.init_state(), state);
        assert_eq!(memory.load(63), state as u64);
    }
    memory.store(63, 99);
    assert_eq!(control.init_state(), InitState::None);
    control.clear_instants();
    assert_eq!(control.instant(Instant::FirstReply), 0);
    control.decide(&decision(5));
    let at = LAYOUT.decisions;
    let words: Vec<_> = (at..at + 6).map(|at| memory.load(at)).collect();
    assert_eq!(words, [1, 6 << 32 | 2, 50, 5, 7 << 32 | 2, 10]);
}

#[test]
fn words_about_checkpoints_are_where_the_document_has_them() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    assert_eq!(control.checkpoint_settings(), CheckpointSettings::default());
    assert_eq!(control.retiring(), None);
    for (word, flush) in
        [FlushBy::FsyncDir, FlushBy::Flush, FlushBy::Restart].into_iter().enumerate()
    {
        let wishes = CheckpointSettings {
            flush,
            syncs_wait: true,
            dirty_bytes: 7,
            log_bytes: 8,
            overlay_bytes: 9,
            early_bytes: 10,
        };
        control.set_checkpoint_settings(&wishes);
        let words: Vec<_> = (192..196).map(|at| memory.load(at)).collect();
        assert_eq!(words, [1 << 32 | word as u64, 7, 8, 9]);
        assert_eq!(memory.load(201), 10);
        assert_eq!(control.checkpoint_settings(), wishes);
    }
    control.set_retiring(0);
    assert_eq!((memory.load(196), control.retiring()), (1 << 32, Some(0)));
    control.count_failed_checkpoint(38);
    control.count_failed_checkpoint(5);
    assert_eq!((memory.load(197), control.checkpoints_failed()), (2 << 32 | 5, (2, 5)));
    control.ask_for_trim();
    assert_eq!((memory.load(200), control.trims_asked()), (1, 1));
    control.set_logged(3, 4);
    assert_eq!((memory.load(198), memory.load(199), control.logged()), (3, 4, (3, 4)));
}

/// What a memory without a word for the flags does: nothing, and soon.
#[test]
fn a_memory_that_is_too_small_is_harmless() {
    let memory = Sim::new(1);
    let control = Control::new(&memory, LAYOUT);
    control.raise(Flags::MOUNTED);
    control.decide(&decision(1));
    assert!(!control.has(Flags::MOUNTED));
    assert!(
        !control.change_lease(Lease { generation: 0, pid: 0 }, Lease { generation: 0, pid: 1 })
    );
}

proptest! {
    #![proptest_config(belay_seeds::cases!(64))]

    #[test]
    fn garbage_is_read_without_harm(seed: u64) {
        let mut random = Random(seed);
        let words = (0..LAYOUT.words).map(|_| random.next()).collect();
        let memory = Sim::from_words(words);
        for at in (0..DECISIONS).step_by(3) {
            memory.store(LAYOUT.decisions + at * DECISION_WORDS, random.next() % 1000);
        }
        memory.store(128, random.next() % 1000);
        let control = Control::new(&memory, LAYOUT);
        prop_assert!(!control.is_valid());
        control.raise(Flags::DISCONNECTED);
        prop_assert!(control.has(Flags::DISCONNECTED));
        let _ = (control.lease(), control.max_write(), control.init_state());
        prop_assert!(control.init_request().len() <= 248);
        prop_assert!(control.mountpoint().len() <= 4088);
        prop_assert_eq!(control.counters().count(), COUNTER_NAMES.len());
        for from in [0, 500, u64::MAX] {
            prop_assert!(control.decisions_since(from).len() <= DECISIONS);
        }
    }
}

#[test]
fn what_is_known_of_an_end_is_of_one_generation() {
    let memory = memory();
    let control = Control::new(&memory, LAYOUT);
    assert_eq!(control.ending(0), 0);
    control.note_ending(0, ending::ASKED);
    control.note_ending(0, ending::UNMOUNTS);
    assert_eq!(control.ending(0), ending::ASKED | ending::UNMOUNTS);
    assert_eq!(control.ending(1), 0);
    control.note_ending(1, ending::UNMOUNTS);
    assert_eq!((control.ending(0), control.ending(1)), (0, ending::UNMOUNTS));
}

#[test]
fn what_is_kept_is_found_or_left_out() {
    let memory = Shared((0..LAYOUT.words).map(|_| AtomicU64::new(0)).collect());
    let control = Control::new(&memory, LAYOUT);
    let mut kept = Kept::default();
    for path in ["a", "a/b", "ab", "c"] {
        kept.add(9, path.into());
    }
    kept.add(1, b"c".to_vec()); // it is there
    kept.add(1, vec![b'x'; 249]); // longer than a record
    control.set_kept(&kept);
    assert!(control.kept() == kept && kept.more == 1 && kept.list().len() == 4);
    assert!(kept.rename(b"a", b"new") && !kept.rename(b"nothing", b"c"));
    let paths = |kept: &Kept| kept.list().iter().map(|one| one.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&kept), [&b"new"[..], b"new/b", b"ab"]);
    control.set_kept(&kept);
    assert_eq!(control.kept(), kept);
    (0..40).for_each(|n| kept.add(1, format!("{n}").into()));
    assert_eq!((kept.list().len(), kept.more), (15, 29));
    // Each of them once, however often something is kept of it.
    control.set_kept(&kept);
    kept = control.kept();
    (0..40).for_each(|n| kept.add(1, format!("{n}").into()));
    assert_eq!((kept.list().len(), kept.more), (15, 29));
    kept.clear(|opcode| opcode == 9);
    assert_eq!((kept.list().len(), kept.more, kept.find(b"ab")), (12, 0, None));
    control.set_kept(&kept);
    assert_eq!(control.kept(), kept);
    // Whatever is there, it is bounded.
    for word in 2048..2560 {
        memory.store(word, u64::MAX);
    }
    let kept = control.kept();
    assert!(kept.list().len() == 15 && kept.list().iter().all(|one| one.path.len() == 248));
}
