//! What the simulation is worth: what is done wrong on purpose is found by seed.

use belay_volume_sim::sabotage::Sabotage;
use belay_volume_sim::scenario::first_found;

/// So many seeds are looked through for each.
const SEEDS: u64 = 60;

#[test]
fn a_volume_as_it_should_be_is_not_blamed() {
    assert_eq!(first_found(None, SEEDS), None);
}

#[test]
fn what_is_done_wrong_is_found() {
    for sabotage in Sabotage::ALL {
        let found = first_found(Some(sabotage), SEEDS);
        println!("{sabotage:?}: {found:.300?}");
        assert!(found.is_some(), "{sabotage:?}");
    }
}
