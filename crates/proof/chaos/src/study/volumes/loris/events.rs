//! What the lower layers have said of their recoveries, and which kill each of them is owed to.

use super::table::Kill;
use crate::target::Target;
use belay_stack::report::{CacheReport, Opening, Recovery, StoreReport};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// Clocks are read one after the other: so much later than a kill something may seem to have begun
/// before it, in microseconds.
const TOLERANCE: u64 = 2000;

/// All that was said.
#[derive(Debug, Default)]
pub struct Events {
    openings: BTreeMap<(u64, u32), Opening>,
    recoveries: BTreeMap<(u64, u32), Recovery>,
    /// How many there were, as the processes have counted.
    told: (u64, u64),
}

fn of<T: DeserializeOwned>(status: &Value, role: &str) -> Option<T> {
    let all = status["companions"].as_array()?;
    let report = all.iter().find(|one| one["role"] == role)?.get("report")?;
    T::deserialize(report).ok()
}

impl Events {
    /// Takes what is new out of a status.
    pub fn take(&mut self, status: &Value) {
        if let Some(report) = of::<StoreReport>(status, "store") {
            self.told.0 = report.openings;
            let all = report.recent.into_iter();
            self.openings.extend(all.map(|one| ((one.at_us, one.pid), one)));
        }
        if let Some(report) = of::<CacheReport>(status, "cache") {
            self.told.1 = report.recoveries;
            let all = report.recent.into_iter();
            self.recoveries.extend(all.map(|one| ((one.at_us, one.pid), one)));
        }
    }

    /// How many nobody has looked at in time.
    pub fn unseen(&self) -> u64 {
        let missing = |told: u64, known: usize| told.saturating_sub(known as u64);
        missing(self.told.0, self.openings.len()) + missing(self.told.1, self.recoveries.len())
    }

    /// How many checkpoints were taken between the first and the last opening of the stores.
    pub fn checkpoints(&self) -> u64 {
        let epochs = || self.openings.values().map(|one| one.epoch);
        epochs().max().unwrap_or_default() - epochs().min().unwrap_or_default()
    }

    /// Notes with each kill what came of it.
    pub fn assign(&self, kills: &mut [Kill]) {
        for opening in self.openings.values() {
            let dead =
                |kill: &&mut Kill| kill.target == Target::Store && kill.at_us < opening.at_us;
            let Some(kill) = kills.iter_mut().rev().find(dead) else { continue };
            if kill.serving_us.is_none() {
                kill.serving_us = Some(opening.at_us - kill.at_us);
                kill.penultimate = opening.penultimate;
            }
        }
        for recovery in self.recoveries.values() {
            if recovery.replayed == 0 && recovery.dropped == 0 {
                continue;
            }
            let begun = recovery.at_us.saturating_sub(recovery.took_us) + TOLERANCE;
            let lower = |kill: &Kill| matches!(kill.target, Target::Store | Target::Cache);
            let dead = |kill: &&mut Kill| lower(kill) && kill.at_us <= begun;
            let Some(kill) = kills.iter_mut().rev().find(dead) else { continue };
            kill.replay_us = Some(recovery.at_us.saturating_sub(kill.at_us));
            kill.replayed += recovery.replayed;
            kill.dropped += recovery.dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_recovery_is_owed_to_the_last_death_before_it() {
        let kill = |target, at_us| Kill { target, at_us, ..Kill::default() };
        let mut kills = [
            kill(Target::Store, 1_000_000),
            kill(Target::Namespace, 1_500_000),
            kill(Target::Cache, 2_000_000),
            kill(Target::Store, 3_000_000),
        ];
        let opening = |at_us, penultimate| json!({"pid": 9, "at_us": at_us, "took_us": 1, "epoch": 4, "penultimate": penultimate});
        let recovery = |at_us, took_us, replayed, dropped| {
            json!({"pid": 8, "at_us": at_us, "took_us": took_us, "asked": "checkpoint",
                "deaths": 1, "replayed": replayed, "dropped": dropped})
        };
        let store = json!({"version": 1, "openings": 4, "penultimate": 1,
            "recent": [opening(5, 0), opening(1_004_000, 1), opening(3_002_000, 0)]});
        let cache = json!({"version": 1, "recoveries": 3, "replays": 1, "drops": 1, "recent": [
            recovery(1_600_000, 10_000, 0, 0), recovery(2_030_000, 29_000, 7, 0),
            recovery(3_050_000, 49_500, 0, 5)]});
        let mut events = Events::default();
        let status = json!({"companions": [{"role": "store", "report": store},
            {"role": "cache", "report": cache}]});
        events.take(&status);
        events.take(&status);
        assert_eq!(events.unseen(), 1);
        events.assign(&mut kills);
        assert_eq!((kills[0].serving_us, kills[0].penultimate), (Some(4000), 1));
        assert_eq!((kills[0].replay_us, kills[1].replay_us), (None, None));
        assert_eq!((kills[2].replay_us, kills[2].replayed), (Some(30_000), 7));
        assert_eq!((kills[3].serving_us, kills[3].replay_us), (Some(2000), Some(50_000)));
        assert_eq!(kills[3].dropped, 5);
    }
}
