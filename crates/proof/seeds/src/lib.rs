//! One seed after the other is simulated, on all CPUs, until enough was compared: what the programs
//! of the simulations have in common. And how random tests are configured, see [`cases!`].

#![forbid(unsafe_code)]

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// The configuration of a random test of proptest: how many cases it has (by default, as many as
/// proptest has), few in Miri, and where a case that fails is kept: in `proptest-regressions`, a
/// tracked folder of the test's crate. It comes first in later runs.
///
/// Proptest's own choice of that file needs a `lib.rs` or `main.rs` above the test, which `tests`
/// has not, and in a workspace it writes the file elsewhere than it reads it.
#[macro_export]
macro_rules! cases {
    () => {
        $crate::cases!(proptest::test_runner::Config::default().cases)
    };
    ($cases:expr) => {
        proptest::test_runner::Config {
            cases: if cfg!(miri) { 2 } else { $cases },
            failure_persistence: Some(Box::new(
                proptest::test_runner::FileFailurePersistence::Direct(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/proptest-regressions/",
                    module_path!(),
                    ".txt"
                )),
            )),
            ..proptest::test_runner::Config::default()
        }
    };
}

/// Something that can be simulated with any seed.
pub trait Scenario: Copy + Send + Sync + std::panic::RefUnwindSafe {
    /// What comes of it.
    type Tally: Tally;

    /// How large its part of all operations is, beside those of the others.
    fn share(self) -> u64 {
        1
    }

    /// Runs it with this seed.
    ///
    /// # Errors
    /// The first thing that is wrong. It may panic instead.
    fn run(self, seed: u64) -> Result<Self::Tally, String>;
}

/// What came of simulations.
pub trait Tally: Default + Send {
    /// Operations whose results were compared.
    fn operations(&self) -> u64;

    /// Adds another one.
    fn join(&mut self, other: &Self);
}

/// How much is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Until so many operations were compared.
    pub operations: u64,
    /// The first seed of each scenario.
    pub first_seed: u64,
    /// On so many threads; by default, as many as there are CPUs.
    pub threads: Option<usize>,
}

/// What was simulated of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Share<S: Scenario> {
    /// The scenario.
    pub scenario: S,
    /// With how many seeds, from the first on.
    pub seeds: u64,
    /// What came of it.
    pub tally: S::Tally,
    /// Operations that runs which are under way will have done, as far as is known.
    under_way: u64,
}

/// What the threads share.
struct Work<'w, S: Scenario> {
    plan: Plan,
    failed: AtomicBool,
    shares: Mutex<Vec<Share<S>>>,
    bar: ProgressBar,
    wrong: &'w (dyn Fn(S, u64, &str) -> String + Sync),
}

/// Simulates in fair shares. Gives what was simulated, and whether all of it was as it should be.
/// What is not is told by `wrong`, of a scenario, a seed, and what is wrong; it goes to standard
/// error.
///
/// # Errors
/// Those of the progress that is shown.
pub fn simulate<S: Scenario>(
    plan: Plan,
    scenarios: &[S],
    wrong: impl Fn(S, u64, &str) -> String + Sync,
) -> Result<(Vec<Share<S>>, bool)> {
    let style =
        ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} operations, {eta} left")?;
    let share = |scenario: &S| {
        let (scenario, tally) = (*scenario, S::Tally::default());
        Share { scenario, seeds: 0, tally, under_way: 0 }
    };
    let work = Work {
        plan,
        failed: AtomicBool::new(false),
        shares: Mutex::new(scenarios.iter().map(share).collect()),
        bar: ProgressBar::new(plan.operations).with_style(style),
        wrong: &wrong,
    };
    let threads = plan.threads.or_else(|| thread::available_parallelism().ok().map(usize::from));
    thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1).max(1) {
            scope.spawn(|| work.pursue());
        }
    });
    work.bar.finish_and_clear();
    let is_right = !work.failed.load(Ordering::Relaxed);
    Ok((work.shares.into_inner().unwrap_or_else(PoisonError::into_inner), is_right))
}

impl<S: Scenario> Work<'_, S> {
    /// Takes the next seed of the scenario that is least done, until enough is done or something
    /// has gone wrong.
    fn pursue(&self) {
        while let Some((at, scenario, seed, guess)) = self.next() {
            let ran = catch_unwind(|| scenario.run(seed));
            let tally = match ran.unwrap_or_else(|_| Err("it panics".to_owned())) {
                Ok(tally) => tally,
                Err(why) => {
                    self.failed.store(true, Ordering::Relaxed);
                    let said = (self.wrong)(scenario, seed, &why);
                    self.bar.suspend(|| eprintln!("{said}"));
                    return;
                }
            };
            self.bar.inc(tally.operations());
            if let Some(share) = self.shares().get_mut(at) {
                share.tally.join(&tally);
                share.under_way -= guess;
            }
        }
    }

    /// Which scenario, of which number, with which seed, and how many operations it is going to do,
    /// as far as is known.
    fn next(&self) -> Option<(usize, S, u64, u64)> {
        let mut shares = self.shares();
        let done: u64 = shares.iter().map(|share| share.tally.operations()).sum();
        if done >= self.plan.operations || self.failed.load(Ordering::Relaxed) {
            return None;
        }
        let all = shares.iter_mut().enumerate();
        let is = |share: &Share<S>| share.tally.operations() + share.under_way;
        let (at, share) = all.min_by_key(|(_, share)| is(share) / share.scenario.share())?;
        let guess = share.tally.operations() / share.seeds.max(1);
        let seed = self.plan.first_seed.wrapping_add(share.seeds);
        share.seeds += 1;
        share.under_way += guess;
        Some((at, share.scenario, seed, guess))
    }

    fn shares(&self) -> MutexGuard<'_, Vec<Share<S>>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many operations a seed; all seeds are right but one.
    #[derive(Clone, Copy)]
    struct Counted(u64, u64);

    impl Tally for (u64, u64) {
        fn operations(&self) -> u64 {
            self.0
        }
        fn join(&mut self, other: &Self) {
            self.0 += other.0;
            self.1 += other.1;
        }
    }

    impl Scenario for Counted {
        type Tally = (u64, u64);
        fn share(self) -> u64 {
            self.1
        }
        fn run(self, seed: u64) -> Result<Self::Tally, String> {
            assert_ne!(seed, 1000, "this seed panics");
            if seed == 2000 { Err("wrong".to_owned()) } else { Ok((self.0, seed)) }
        }
    }

    fn plan(first_seed: u64, threads: usize) -> Plan {
        Plan { operations: 10_000, first_seed, threads: Some(threads) }
    }

    #[test]
    fn each_scenario_has_its_share_and_each_seed_is_taken_once() {
        for threads in [1, 4] {
            let scenarios = [Counted(10, 1), Counted(40, 2), Counted(5, 1)];
            let (shares, is_right) =
                simulate(plan(3, threads), &scenarios, |_, _, _| unreachable!()).unwrap();
            assert!(is_right);
            for share in &shares {
                let Counted(operations, weight) = share.scenario;
                assert_eq!(share.tally.0, operations * share.seeds);
                assert_eq!(share.tally.1, (3..3 + share.seeds).sum::<u64>());
                let wanted = 10_000 * weight / 4;
                assert!(share.tally.0.abs_diff(wanted) <= 400, "{}", share.tally.0);
            }
        }
    }

    #[test]
    fn what_is_wrong_ends_it_and_is_told() {
        for (first_seed, what) in [(990, "it panics"), (1990, "wrong")] {
            let told = Mutex::new(Vec::new());
            let wrong = |_, seed, why: &str| {
                told.lock().unwrap().push((seed, why.to_owned()));
                String::new()
            };
            let (shares, is_right) =
                simulate(plan(first_seed, 1), &[Counted(10, 1)], wrong).unwrap();
            assert!(!is_right);
            assert_eq!(shares[0].seeds, 11);
            assert_eq!(*told.lock().unwrap(), [(first_seed + 10, what.to_owned())]);
        }
    }
}
