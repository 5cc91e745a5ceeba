//! Requests that the daemon dies of, whichever daemon gets them: they fail alone.

use super::{FLAVOURS, seeds};
use belay_sim::daemon::{Deadly, Flavour};
use belay_sim::disk::EIO;
use belay_sim::generate::random_ops;
use belay_sim::memory::Rng;
use belay_sim::ops::*;
use belay_sim::world::{Ran, Setup, run};
use belay_wire::Opcode;

/// What is deadly, with operations of which the one at that place is it.
fn deadly_ops() -> Vec<(Opcode, Vec<Op>, usize)> {
    let create =
        |path: &str, fd| Op::Create { path: path.into(), flags: O_CREAT | RDWR, mode: 0o644, fd };
    let append = |data: &str| Op::Append { fd: 1, data: data.into() };
    let xattr = |value: &str, flags| Op::SetXattr {
        path: "p/f".into(),
        name: "user.a",
        value: value.into(),
        flags,
    };
    let write = |fd, data: &str| Op::Write { fd, at: 0, data: data.into() };
    let around = |deadly: Op| {
        vec![
            Op::Mkdir("p".into()),
            create("p/f", 0),
            write(0, "before"),
            Op::Create { path: "p/a".into(), flags: O_CREAT | O_APPEND | RDWR, mode: 0o644, fd: 1 },
            append("one"),
            deadly,
            append("two"),
            write(0, "after"),
            Op::Read { fd: 0, at: 0, len: 20 },
            Op::Mkdir("p/d".into()),
            Op::Close(0),
            Op::Stat("p/f".into()),
        ]
    };
    let all = vec![
        (Opcode::LOOKUP, Op::Stat("p/poison".into())),
        (Opcode::MKDIR, Op::Mkdir("p/poison".into())),
        (Opcode::MKNOD, Op::Mknod("p/poison".into())),
        (Opcode::SYMLINK, Op::Symlink("p/s".into(), "poison".into())),
        (Opcode::CREATE, create("p/poison", 2)),
        (Opcode::RENAME, Op::Rename("p/f".into(), "p/poison".into(), 0)),
        (Opcode::LINK, Op::Link("p/f".into(), "p/poison".into())),
        (Opcode::WRITE, write(0, "poison")),
        (Opcode::WRITE, append("poison")),
        (Opcode::SETXATTR, xattr("poison", 0)),
        (Opcode::SETXATTR, xattr("poison", 1)),
    ];
    all.into_iter().map(|(opcode, op)| (opcode, around(op), 5)).collect()
}

fn setup(seed: u64, opcode: Opcode, clients: Vec<Vec<Op>>, poison: Vec<(usize, usize)>) -> Setup {
    let mut rng = Rng::new(seed + 1000);
    let deadly = Some(Deadly { opcode, from: 0 });
    // One that makes links, or there would be no LINK to die of.
    let flavour = Flavour { deadly, links: true, ..*rng.pick(&FLAVOURS) };
    let (resend, threads) = (rng.chance(60), 1 + rng.below(3));
    Setup { resend, threads, poison, ..Setup::new(seed, clients, flavour) }
}

fn check(ran: &Ran, opcode: Opcode, number: usize) {
    assert_eq!(ran.failed.len(), number, "{:?}", ran.failed);
    for decision in &ran.failed {
        let found = (decision.row, decision.errno, Opcode(decision.opcode));
        assert_eq!(found, (11, EIO, opcode), "{decision:?}");
    }
}

fn others(rng: &mut Rng) -> Vec<Vec<Op>> {
    (0..rng.below(3)).map(|i| random_ops(rng, &format!("c{i}"), 40)).collect()
}

#[test]
fn the_deadly_request_fails_alone_and_after_two_crashes() {
    for seed in seeds(20) {
        for (opcode, ops, at) in deadly_ops() {
            let mut rng = Rng::new(seed);
            let mut clients = others(&mut rng);
            clients.insert(0, ops);
            let ran = run(&setup(seed, opcode, clients, vec![(0, at)]));
            check(&ran, opcode, 1);
            assert_eq!(ran.crashes, 2, "{opcode}");
        }
    }
}

#[test]
fn nothing_else_fails_if_daemons_are_killed_besides() {
    for seed in seeds(60) {
        for (opcode, ops, at) in deadly_ops() {
            let mut rng = Rng::new(seed);
            let mut setup = setup(seed, opcode, vec![ops], vec![(0, at)]);
            let spread = *rng.pick(&[60, 300, 1000]);
            // Fewer than it takes to take a killed daemon's request for poison.
            setup.plan = (0..3).map(|_| 1 + rng.below(spread) as u64).collect();
            let ran = run(&setup);
            check(&ran, opcode, 1);
            assert!(ran.crashes >= 2, "{opcode}");
        }
    }
}

#[test]
fn several_at_once_fail_one_after_another() {
    for seed in seeds(60) {
        let ops = |top: &str| vec![Op::Mkdir(top.into()), Op::Mkdir(format!("{top}/poison"))];
        let clients = ["a", "b", "c"].map(ops).to_vec();
        let ran = run(&setup(seed, Opcode::MKDIR, clients, vec![(0, 1), (1, 1), (2, 1)]));
        check(&ran, Opcode::MKDIR, 3);
        // Each dies alone once; some have been in flight together before.
        assert!((4..=6).contains(&ran.crashes), "{} crashes", ran.crashes);
    }
}

#[test]
fn it_stays_deadly_and_fails_again() {
    let mkdir = || Op::Mkdir("poison".into());
    let ran = run(&setup(3, Opcode::MKDIR, vec![vec![mkdir(), mkdir()]], vec![(0, 0), (0, 1)]));
    check(&ran, Opcode::MKDIR, 2);
    assert_eq!(ran.crashes, 4);
}
