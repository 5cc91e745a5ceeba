//! What a qualification finds. The JSON is an interface, described in docs/qualify.md.

use super::daemon::Tallies;
use super::options::Tried;
use crate::profile::InodeNumbers;
use belay_study::{Crash, DryRun};
use belay_supervisor::text::count;
use serde::Serialize;

/// Version of the JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Qualification {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// belay's version.
    pub belay: String,
    /// When it began.
    pub date: String,
    /// The kernel's version.
    pub kernel: String,
    /// The daemon's command line.
    pub command: Vec<String>,
    /// Its program's name.
    pub program: String,
    /// The user that operations were done as; none: whoever ran this.
    pub user: Option<u32>,
    /// The image of which copies were used.
    pub image: Option<String>,
    /// They change from life to life, as was found out; none: they do not, or a profile knows.
    pub inode_numbers: Option<InodeNumbers>,
    /// What was done.
    pub operations: Vec<Learnt>,
    /// Under which policies.
    pub policies: Vec<Column>,
    /// Each operation once under each policy, without a crash.
    pub dry_runs: Vec<Observed>,
    /// The crashes.
    pub experiments: Vec<Experiment>,
    /// What kept it from being whole, under any policy.
    pub troubles: Vec<String>,
    /// The first right policy, if there is one and nothing went wrong.
    pub certified: Option<Tried>,
    /// That in words.
    pub verdict: String,
    /// The profile that was written.
    pub profile: Option<String>,
}

/// An operation on the bare daemon.
#[derive(Clone, Debug, Serialize)]
pub struct Learnt {
    /// Its name.
    pub name: &'static str,
    /// Whether it works there.
    pub supported: bool,
    /// What it comes to.
    pub outcome: String,
}

/// A policy.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Which.
    pub policy: Tried,
    /// Whether nothing went wrong under it.
    pub right: bool,
    /// Experiments that were made under it.
    pub experiments: usize,
    /// Those that went well.
    pub all_right: usize,
    /// It was left before its end: at its first failure, or when too much could not be made.
    pub left_early: bool,
    /// What could not be made under it.
    pub troubles: Vec<String>,
    /// What belay counted meanwhile.
    pub tallies: Tallies,
}

/// An operation under a policy, undisturbed.
#[derive(Clone, Debug, Serialize)]
pub struct Observed {
    /// The operation.
    pub operation: &'static str,
    /// The policy.
    pub policy: Tried,
    /// What it did.
    #[serde(flatten)]
    pub run: DryRun,
}

/// A crash, and what it led to.
#[derive(Clone, Debug, Serialize)]
pub struct Experiment {
    /// The operation.
    pub operation: &'static str,
    /// The policy.
    pub policy: Tried,
    /// What was found.
    #[serde(flatten)]
    pub crash: Crash,
    /// The command that does it again.
    pub replay: String,
}

impl Experiment {
    /// Whether it speaks against its policy.
    pub fn failed(&self) -> bool {
        self.crash.went_wrong()
    }
}

impl Qualification {
    /// The experiments under a policy that were made.
    pub fn of(&self, policy: Tried) -> impl Iterator<Item = &Experiment> {
        self.experiments.iter().filter(move |e| e.policy == policy && e.crash.reached)
    }

    /// How a policy has done. One under which something could not be made is not known to be right.
    pub fn column(
        &self,
        policy: Tried,
        tallies: Tallies,
        left_early: bool,
        troubles: Vec<String>,
    ) -> Column {
        let experiments = self.of(policy).count();
        let all_right = self.of(policy).filter(|e| !e.failed()).count();
        let disturbed = self.dry_runs.iter().any(|o| o.policy == policy && o.run.differs());
        let whole = !left_early && troubles.is_empty();
        let right = experiments > 0 && experiments == all_right && !disturbed && whole;
        Column { policy, right, experiments, all_right, left_early, troubles, tallies }
    }

    /// Forgets what was found under a policy, which is tried once more in another way.
    pub fn forget(&mut self, policy: Tried) {
        self.experiments.retain(|e| e.policy != policy);
        self.dry_runs.retain(|o| o.policy != policy);
        self.policies.retain(|column| column.policy != policy);
    }

    /// What could not be made.
    fn trouble(&self) -> Option<&String> {
        let columns = self.policies.iter().flat_map(|column| &column.troubles);
        self.troubles.iter().chain(columns).next()
    }

    /// Chooses the policy: the first right one, unless the study is incomplete.
    pub fn choose(&mut self) {
        let right = self.policies.iter().filter(|column| column.right).map(|column| column.policy);
        self.certified = right.min().filter(|_| self.troubles.is_empty());
        self.verdict = self.say();
    }

    /// Judges a single experiment, which certifies nothing; says whether it went well under all of
    /// the policies.
    pub fn judge_one(&mut self) -> bool {
        self.certified = None;
        let whole = self.trouble().is_none() && !self.policies.is_empty();
        let well = whole && self.policies.iter().all(|column| column.right);
        self.verdict = match self.trouble() {
            Some(trouble) => format!("the experiment could not be made: {trouble}"),
            None if well => "the experiment went well".to_owned(),
            None if self.experiments.iter().any(Experiment::failed) => {
                "the experiment went wrong".to_owned()
            }
            None => "there was nothing to judge: the daemon did not come to that point".to_owned(),
        };
        well
    }

    /// Whether something went wrong under each policy.
    fn all_wrong(&self) -> bool {
        self.policies.iter().all(|column| column.all_right < column.experiments)
    }

    fn say(&self) -> String {
        let program = &self.program;
        let Some(policy) = self.certified else {
            let why = if let Some(trouble) = self.troubles.first() {
                format!("the study is incomplete: {trouble}")
            } else if let (Some(trouble), false) = (self.trouble(), self.all_wrong()) {
                format!("not all could be tried: {trouble}")
            } else if self.experiments.iter().all(|e| !e.crash.reached) {
                "there was nothing to judge".to_owned()
            } else {
                "under each of the policies something went wrong".to_owned()
            };
            return format!("{program} is not certified: {why}");
        };
        let experiments: usize = self.policies.iter().map(|column| column.experiments).sum();
        let name = policy.name();
        let experiments = count(experiments as u64, "experiment");
        let mut text = format!("{program} is certified for policy {name} ({experiments})");
        if self.inode_numbers == Some(InodeNumbers::Volatile) {
            text += "\nits inode numbers change from life to life: they are taken to mean nothing";
        }
        let tallies = self.policies.iter().find(|c| c.policy == policy).map(|c| c.tallies);
        let tallies = tallies.unwrap_or_default();
        let mut but = |count: u64, what: &str| {
            if count > 0 {
                text += &format!("\nbut {what} ({count} times)");
            }
        };
        but(tallies.untagged, "threads without a request had effects, so that journals were void");
        but(
            tallies.handed_over,
            "requests were answered by another thread than took them, so that journals were void",
        );
        but(tallies.torn, "transactions were too long to be all or nothing");
        but(
            tallies.degraded,
            "mounts were degraded in the end: a further crash could not be hidden",
        );
        text
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use belay_faults::{Effect, FaultSignal};
    use belay_study::{Application, Judged, Told};
    use snapbox::{assert_data_eq, file};

    pub fn experiment(policy: Tried, point: &str, good: bool) -> Experiment {
        Experiment {
            operation: "mkdir",
            policy,
            crash: Crash {
                point: point.to_owned(),
                call: Some("chown".into()),
                signal: FaultSignal::Kill,
                reached: true,
                judged: Judged {
                    application: if good { Application::Ok } else { Application::Wrong },
                    outcome: if good { "done" } else { "File exists" }.to_owned(),
                    expected: "done".to_owned(),
                    consistent: true,
                    unseen: false,
                    differences: String::new(),
                    usable: true,
                    trouble: String::new(),
                },
                told: Told::default(),
                seconds: 0.1,
            },
            replay: format!("belay qualify --only mkdir/{point}/KILL"),
        }
    }

    pub fn qualification(experiments: Vec<Experiment>) -> Qualification {
        let run = |policy| Observed {
            operation: "mkdir",
            policy,
            run: DryRun {
                request: Some("MKDIR".to_owned()),
                effects: vec![Effect { call: "mkdir".into(), result: Some(0) }],
                differences: String::new(),
            },
        };
        let learnt = |name, supported| Learnt {
            name,
            supported,
            outcome: if supported { "done" } else { "Function not implemented (os error 38)" }
                .into(),
        };
        let mut all = Qualification {
            schema_version: SCHEMA_VERSION,
            belay: "0.1.0".to_owned(),
            date: "2026-01-01".to_owned(),
            kernel: "6".to_owned(),
            command: vec!["d".to_owned()],
            program: "d".to_owned(),
            user: None,
            image: None,
            inode_numbers: None,
            operations: vec![learnt("mkdir", true), learnt("fallocate", false)],
            policies: Vec::new(),
            dry_runs: vec![run(Tried::Reconcile), run(Tried::Journal)],
            experiments,
            troubles: Vec::new(),
            certified: None,
            verdict: String::new(),
            profile: None,
        };
        columns(&mut all);
        all
    }

    fn columns(all: &mut Qualification) {
        let policies = [Tried::Journal, Tried::Reconcile];
        all.policies = policies.map(|p| all.column(p, Tallies::default(), false, vec![])).to_vec();
        all.choose();
    }

    #[test]
    fn the_json_is_an_interface() {
        let all = qualification(vec![experiment(Tried::Reconcile, "received", false)]);
        let json = serde_json::to_string_pretty(&all).expect("JSON") + "\n";
        assert_data_eq!(json, file!["../../tests/snapshots/qualify.json": Text].raw());
    }

    #[test]
    fn the_first_right_policy_is_chosen() {
        let made = |reconcile, journal| {
            vec![
                experiment(Tried::Journal, "received", journal),
                experiment(Tried::Reconcile, "received", true),
                experiment(Tried::Reconcile, "after-1", reconcile),
            ]
        };
        assert_eq!(qualification(made(true, true)).certified, Some(Tried::Reconcile));
        assert_eq!(qualification(made(true, false)).certified, Some(Tried::Reconcile));
        let all = qualification(made(false, true));
        assert_eq!(all.certified, Some(Tried::Journal));
        assert!(all.verdict.contains("certified for policy journal (3 experiments)"));
        let all = qualification(made(false, false));
        assert_eq!(all.certified, None);
        assert!(all.verdict.contains("not certified: under each"), "{}", all.verdict);
    }

    #[test]
    fn what_was_not_made_certifies_nothing() {
        let all = qualification(Vec::new());
        assert_eq!(all.certified, None);
        assert!(all.verdict.contains("nothing to judge"), "{}", all.verdict);
        // Points that were not reached speak neither for nor against a policy.
        let mut missed = experiment(Tried::Reconcile, "after-1", false);
        missed.crash.reached = false;
        assert_eq!(qualification(vec![missed.clone()]).certified, None);
        let good = experiment(Tried::Reconcile, "received", true);
        assert_eq!(qualification(vec![missed, good.clone()]).certified, Some(Tried::Reconcile));
        let mut all = qualification(vec![good.clone()]);
        all.troubles.push("interrupted".to_owned());
        columns(&mut all);
        assert_eq!(all.certified, None);
        let mut all = qualification(vec![good.clone()]);
        all.dry_runs[0].run.differences = "it came to something else".to_owned();
        columns(&mut all);
        assert_eq!(all.certified, None);
        let all = qualification(vec![good]);
        assert!(!all.column(Tried::Reconcile, Tallies::default(), true, vec![]).right);
    }

    #[test]
    fn what_could_not_be_made_under_one_policy_says_nothing_of_the_next() {
        let good = |policy| experiment(policy, "received", true);
        let mut all = qualification(vec![good(Tried::Reconcile), good(Tried::Journal)]);
        let cannot = |all: &Qualification, policy| {
            all.column(policy, Tallies::default(), false, vec!["it does not start".to_owned()])
        };
        all.policies[1] = cannot(&all, Tried::Reconcile);
        all.choose();
        assert_eq!(all.certified, Some(Tried::Journal));
        all.policies[0] = cannot(&all, Tried::Journal);
        all.choose();
        assert_eq!(all.certified, None);
        assert!(all.verdict.contains("not all could be tried: it does not"), "{}", all.verdict);
        all.forget(Tried::Journal);
        assert_eq!((all.policies.len(), all.experiments.len()), (1, 1));
    }

    #[test]
    fn one_experiment_certifies_nothing() {
        let mut all = qualification(vec![experiment(Tried::Reconcile, "received", true)]);
        assert!(!all.judge_one(), "nothing was made under the other policy");
        all.policies.retain(|column| column.policy == Tried::Reconcile);
        assert!(all.judge_one());
        assert_eq!((all.certified, all.verdict.as_str()), (None, "the experiment went well"));
        let mut all = qualification(vec![experiment(Tried::Reconcile, "received", false)]);
        assert!(!all.judge_one());
        assert!(all.verdict.contains("went wrong"), "{}", all.verdict);
        let mut all = qualification(Vec::new());
        assert!(!all.judge_one());
        assert!(all.verdict.contains("nothing to judge"), "{}", all.verdict);
        all.troubles.push("interrupted".to_owned());
        assert!(!all.judge_one());
        assert!(all.verdict.contains("could not be made: interrupted"), "{}", all.verdict);
    }

    #[test]
    fn doubts_are_told() {
        let mut all = qualification(vec![experiment(Tried::Reconcile, "received", true)]);
        let tallies = Tallies { untagged: 3, torn: 2, ..Tallies::default() };
        all.policies = vec![all.column(Tried::Reconcile, tallies, false, vec![])];
        all.choose();
        assert!(all.verdict.contains("void (3 times)") && all.verdict.contains("(2 times)"));
    }
}
