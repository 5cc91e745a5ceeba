//! What came of the kills, for programs and for people.

use super::super::spread::Spread;
use crate::report::Blackout;
use crate::study::results;
use crate::target::Target;
use anyhow::Result;
use belay_fixtures::table::{numbers, tabulate, words};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a recovery of the lower layers may take, in microseconds: half of them, and each.
const MEDIAN: u64 = 50_000;
const MAX: u64 = 500_000;
/// What half of the blackouts of the namespace module may take, in microseconds.
const BLACKOUT: f64 = 10_000.0;

/// What came of a kill. Times are in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kill {
    /// Who was killed.
    pub target: Target,
    /// By what.
    pub signal: String,
    /// Whether a checkpoint was waited for.
    pub aimed: bool,
    /// When, in seconds since the begin.
    pub at_s: f64,
    /// When, since 1970.
    pub at_us: u64,
    /// The longest operation on names that was under way then, or was begun before the next kill.
    pub pause_us: u64,
    /// The longest sync.
    pub sync_pause_us: u64,
    /// Of a store: from its death until its successor had opened the stores.
    pub serving_us: Option<u64>,
    /// How many stores were opened at their penultimate checkpoint.
    pub penultimate: u64,
    /// If a checkpoint was under way: from the death until it was taken.
    pub replay_us: Option<u64>,
    /// How many transactions were replayed for it.
    pub replayed: u64,
    /// How many were not, as the stores had them already.
    pub dropped: u64,
}

impl Default for Kill {
    fn default() -> Self {
        Self {
            target: Target::Store,
            signal: String::new(),
            aimed: false,
            at_s: 0.0,
            at_us: 0,
            pause_us: 0,
            sync_pause_us: 0,
            serving_us: None,
            penultimate: 0,
            replay_us: None,
            replayed: 0,
            dropped: 0,
        }
    }
}

impl Kill {
    /// From a death in the lower layers until all is done that it has cut off.
    fn recovery_us(&self) -> Option<u64> {
        self.replay_us.or(self.serving_us)
    }
}

/// All kills.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Of this format.
    pub version: u32,
    /// The command that repeats it; the instants are others each time.
    pub command: String,
    pub seed: u64,
    pub work: String,
    pub every_ms: u64,
    pub stores: usize,
    /// Builds that came to their right end.
    pub builds: u64,
    /// What a build takes in a plain directory.
    pub undisturbed_seconds: f64,
    pub seconds: f64,
    /// What did not come out as it should.
    pub wrong: Vec<String>,
    /// Operations on names, and syncs, of the applications beside the builds.
    pub operations: u64,
    pub syncs: u64,
    /// Recoveries that the processes have counted, and nobody has looked at in time.
    pub unseen: u64,
    /// Checkpoints that were taken.
    pub checkpoints: u64,
    /// Of the namespace module.
    pub blackout: Blackout,
    pub kills: Vec<Kill>,
}

impl Results {
    /// Whether nothing was wrong, and something was done.
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty() && !self.kills.is_empty()
    }

    /// Whether the volume has recovered as fast as it should.
    pub fn is_fast(&self) -> bool {
        let all = self.recoveries();
        let is_dark = self.blackout.median_us.is_some_and(|median| median > BLACKOUT);
        all.median_us <= MEDIAN && all.max_us <= MAX && !is_dark
    }

    fn recoveries(&self) -> Spread {
        Spread::of(self.kills.iter().filter_map(Kill::recovery_us))
    }

    /// Writes `loris.json` and `loris.md` into a directory.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn write(&self, dir: &Path) -> Result<()> {
        results::write(dir, "loris", self, &self.page())
    }

    /// What was wrong, or that nothing was.
    pub fn summary(&self) -> String {
        let mut text = format!(
            "{} kills in {:.0} s, {} builds right; recovery median / p99 / max {}",
            self.kills.len(),
            self.seconds,
            self.builds,
            self.recoveries()
        );
        for line in &self.wrong {
            text += &format!("\nWRONG: {line}");
        }
        if !self.wrong.is_empty() {
            text += &format!("\nreplay: {}", self.command);
        }
        text
    }

    /// The page in Markdown.
    pub fn page(&self) -> String {
        let verdict = match self.wrong.is_empty() {
            true => "None of them was noticed.".to_owned(),
            false => format!("Something was wrong: {}", self.wrong.join("; ")),
        };
        let mut text = format!(
            "# The kill test of Loris\n\n\
             OpenSSH is built again and again on a volume, and a process of the volume is killed at random: after {} ms on \
             average, or when a checkpoint has begun. Most often it is one of the lower layers, the store or the cache. Checkpoints are taken every five seconds, and as soon as there is much in the \
             log, as a build often brings about. After each build, the tree that it has left is compared with that of an undisturbed build in a plain directory, and the programs are run. Beside it one application \
             makes, looks at and removes a small file, and another one writes and syncs. The volume has {} stores, and is checked \
             at the end.\n\n    {}\n\n\
             {}; {} builds, {} checkpoints in {:.0} s. {verdict}\n\n",
            self.every_ms,
            self.stores,
            self.command,
            self.work,
            self.builds,
            self.checkpoints,
            self.seconds,
        );
        text += &self.beside_the_paper();
        text += &self.by_process();
        text + "\nPauses are the longest operation that was under way at the kill, or began before the next one: an operation that \
             takes less than a millisecond counts as one. A recovery of the lower layers begins with the death of the store or \
             the cache. It ends when the stores are open again, or, if a checkpoint was under way, when that is taken: for this, \
             the log is replayed. The paper's log is replayed at each death; here what is in the log is read from memory, and \
             nobody waits for its replay but who syncs.\n"
    }

    fn beside_the_paper(&self) -> String {
        let lower = self.kills.iter().filter(|kill| kill.recovery_us().is_some());
        let replays = Spread::of(
            self.kills.iter().filter(|kill| kill.replayed > 0).filter_map(|kill| kill.replay_us),
        );
        let all = self.recoveries();
        let seconds = |us: u64| format!("{:.3} s", us as f64 / 1e6);
        let count = |holds: &dyn Fn(&Kill) -> bool| {
            self.kills.iter().filter(|kill| holds(kill)).count().to_string()
        };
        let penultimate: u64 = self.kills.iter().map(|kill| kill.penultimate).sum();
        let transactions = self.kills.iter().map(|kill| kill.replayed).max().unwrap_or_default();
        let killed = self.kills.iter().filter(|kill| kill.target.is_lower()).count();
        let opened = self.kills.iter().filter(|kill| kill.serving_us.is_some()).count();
        let recovered = lower.count();
        let share = |part: u64, of: usize| match of {
            0 => part.to_string(),
            of => format!("{part} ({:.1} %)", part as f64 * 100.0 / of as f64),
        };
        let dropped = self.kills.iter().filter(|kill| kill.dropped > 0).count() as u64;
        let rows = [
            ["kills of the lower layers".to_owned(), killed.to_string(), "10,701".to_owned()],
            [
                "kills of other processes".into(),
                (self.kills.len() - killed).to_string(),
                "-".into(),
            ],
            ["recoveries of the lower layers".into(), recovered.to_string(), "10,701".into()],
            ["recovery, median".into(), seconds(all.median_us), "0.22 s".into()],
            ["recovery, maximum".into(), seconds(all.max_us), "6.5 s".into()],
            [
                "logs replayed".into(),
                count(&|kill| kill.replayed > 0),
                "all but those below".into(),
            ],
            ["recovery with a replay, median".into(), seconds(replays.median_us), "0.22 s".into()],
            ["recovery with a replay, maximum".into(), seconds(replays.max_us), "6.5 s".into()],
            ["transactions in the largest replay".into(), transactions.to_string(), "-".into()],
            [
                "logs dropped, as the stores had the checkpoint".into(),
                share(dropped, recovered),
                "85 (0.8 %)".into(),
            ],
            [
                "stores opened at their penultimate checkpoint".into(),
                share(penultimate, opened * self.stores),
                "88 (0.8 %)".into(),
            ],
        ];
        let columns = [words(""), numbers("this volume"), numbers("paper")];
        tabulate(&columns, rows.map(|row| row.to_vec())) + "\n"
    }

    fn by_process(&self) -> String {
        let columns = [
            words("killed"),
            numbers("kills"),
            numbers("aimed at a checkpoint"),
            numbers("pause of names"),
            numbers("pause of syncs"),
            numbers("stores open again"),
        ];
        let all =
            [Target::Store, Target::Cache, Target::Namespace, Target::Supervisor, Target::Keeper];
        let rows = all.into_iter().filter_map(|target| {
            let kills: Vec<&Kill> =
                self.kills.iter().filter(|kill| kill.target == target).collect();
            let of = |what: fn(&Kill) -> Option<u64>| {
                Spread::of(kills.iter().filter_map(|kill| what(kill))).to_string()
            };
            (!kills.is_empty()).then(|| {
                vec![
                    target.to_string(),
                    kills.len().to_string(),
                    kills.iter().filter(|kill| kill.aimed).count().to_string(),
                    of(|kill| Some(kill.pause_us)),
                    of(|kill| Some(kill.sync_pause_us)),
                    of(|kill| kill.serving_us),
                ]
            })
        });
        let mut text = tabulate(&columns, rows);
        text += &format!(
            "\nTimes are median / p99 / max. Blackout of the namespace module, by belay's own count: {}. The applications have done {} \
             operations and {} syncs.\n",
            self.blackout, self.operations, self.syncs
        );
        let module = self.kills.iter().filter(|kill| kill.target == Target::Namespace);
        let pauses: Vec<u64> = module.map(|kill| kill.pause_us).collect();
        let short = pauses.iter().filter(|us| **us as f64 <= BLACKOUT).count();
        text += &format!(
            "Of the {} pauses of names by deaths of the namespace module, {short} took at most {:.0} ms.\n",
            pauses.len(),
            BLACKOUT / 1000.0
        );
        if self.unseen > 0 {
            text += &format!("{} recoveries were not looked at in time.\n", self.unseen);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_fixtures::table::unpadded;

    #[test]
    fn a_replay_counts_as_the_recovery() {
        let store = Kill { serving_us: Some(4000), penultimate: 1, ..Kill::default() };
        let replayed = Kill { replay_us: Some(600_000), replayed: 12, ..store.clone() };
        let module = Kill { target: Target::Namespace, ..Kill::default() };
        let mut results = Results {
            version: 1,
            command: "belay-chaos study loris --seed 1".into(),
            seed: 1,
            work: "a program".into(),
            every_ms: 100,
            stores: 2,
            builds: 3,
            undisturbed_seconds: 1.0,
            seconds: 9.0,
            wrong: vec![],
            operations: 1,
            syncs: 1,
            unseen: 0,
            checkpoints: 4,
            blackout: Blackout::default(),
            kills: vec![store.clone(), store, module],
        };
        assert!(results.is_right() && results.is_fast());
        let dark = Blackout { median_us: Some(10_001.0), ..Blackout::default() };
        assert!(!Results { blackout: dark, ..results.clone() }.is_fast());
        results.kills.push(replayed);
        assert!(!results.is_fast());
        let page = unpadded(&results.page());
        for row in [
            "| recovery, maximum | 0.600 s | 6.5 s |",
            "| logs replayed | 1 |",
            "| stores opened at their penultimate checkpoint | 3 (50.0 %) | 88 (0.8 %) |",
            "| namespace module | 1 |",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
        results.wrong.push("a hash".into());
        assert!(!results.is_right() && results.summary().contains("--seed 1"));
    }
}
