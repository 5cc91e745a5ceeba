//! What the simulation is worth: faults of a host that are put in on purpose are found by seed.
#![forbid(unsafe_code)]

use belay_recorder::control::FlushBy;
use belay_sim::Sabotage;
use belay_sim::daemon::Flavour;
use belay_sim::generate::random_ops;
use belay_sim::memory::{OPLOG, Rng};
use belay_sim::scenario::{FLAVOURS, lengthen};
use belay_sim::world::{Setup, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// So many seeds are looked through for each.
const SEEDS: u64 = 200;

fn setup(seed: u64, sabotage: Option<Sabotage>) -> Setup {
    let mut rng = Rng::new(seed);
    let clients = 1 + rng.below(3);
    let mut clients: Vec<_> =
        (0..clients).map(|i| random_ops(&mut rng, &format!("c{i}"), 60)).collect();
    clients.iter_mut().flatten().for_each(|op| lengthen(op, &mut rng));
    Setup {
        clients,
        flavour: Flavour { hands_over: rng.chance(50), splices: true, ..FLAVOURS[0] },
        resend: rng.chance(60),
        threads: 1 + rng.below(3),
        // A signal has a thread look for work: nothing would be lost for long.
        signals: sabotage == Some(Sabotage::NotGivenBack),
        seed,
        plan: (0..3).map(|_| 1 + rng.below(1500) as u64).collect(),
        poison: Vec::new(),
        oplog: OPLOG,
        epochs: rng.chance(50),
        flush: FlushBy::FsyncDir,
        sabotage,
    }
}

/// What is said of the first run that goes wrong, and its seed.
fn first_found(sabotage: Option<Sabotage>) -> Option<(u64, String)> {
    (1..=SEEDS).find_map(|seed| {
        let cause = catch_unwind(AssertUnwindSafe(|| run(&setup(seed, sabotage)))).err()?;
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Some((seed, text.unwrap_or_default()))
    })
}

#[test]
fn a_host_as_it_should_be_is_not_blamed() {
    assert_eq!(first_found(None), None);
}

#[test]
fn what_is_done_wrong_is_found() {
    for (sabotage, said) in [
        (Sabotage::LostWakeUp, "nothing moves"),
        (Sabotage::PassedBy, "gave Err(116), not Ok"),
        (Sabotage::PassedHead, "uses unknown node"),
        (Sabotage::NotGivenBack, "slots are in use"),
        (Sabotage::DoubleAnswer, "which is not outstanding"),
        (Sabotage::NotCollected, "gave Err(17), not Ok"),
    ] {
        let found = first_found(Some(sabotage));
        println!("{sabotage:?}: {found:?}");
        assert!(found.is_some_and(|(_, text)| text.contains(said)), "{sabotage:?}");
    }
}
