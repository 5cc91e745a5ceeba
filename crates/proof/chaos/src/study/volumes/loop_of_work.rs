//! One run of a workload after the other, each compared with an undisturbed one.

use crate::interrupt::Stop;
use anyhow::{Context, Result};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, mounts};
use belay_workloads::{Outcome, Watch, Workload};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// So many differences of a run are told.
const TOLD: usize = 10;

/// What an undisturbed run in a plain directory gave, and how long it took.
pub struct Oracle {
    outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// How long it took.
    pub seconds: f64,
    /// What did not come out as it should: not more than the first few.
    pub wrong: Vec<String>,
    /// It was cut short.
    pub cut_short: bool,
}

impl Oracle {
    /// Does the work in a plain directory.
    ///
    /// # Errors
    /// When it fails.
    pub fn new(
        workload: &Workload,
        workdir: Option<PathBuf>,
        interrupted: &AtomicBool,
    ) -> Result<Self> {
        let options = FixtureOptions { workdir, ..FixtureOptions::default() };
        let plain = Fixture::start(Kind::Dir, &Mode::Bare, &options)?;
        workload.setup(plain.root())?;
        let stop = || interrupted.load(Ordering::Relaxed);
        let begin = Instant::now();
        let deadline = begin + Duration::from_secs(3600);
        let watch = Watch { deadline, stop: &stop };
        let done = workload.work(plain.root(), &watch)?;
        let took = begin.elapsed();
        let outcome = workload.look(plain.root(), &done)?;
        workload.verify(&outcome)?;
        workload.prove(plain.root(), &watch)?;
        Ok(Self { outcome, took })
    }

    /// Does the work again and again on a mount, until it is to stop or a run was wrong. A run that
    /// was begun before is ended, unless somebody interrupts.
    pub fn work(
        &self,
        workload: &Workload,
        fixture: &Fixture,
        stop: &Stop,
        interrupted: &AtomicBool,
        mut each: impl FnMut(&Run),
    ) -> Vec<Run> {
        let mut runs = Vec::new();
        while !stop.asked() && !interrupted.load(Ordering::Relaxed) {
            let begin = Instant::now();
            let found = self.once(workload, fixture, !runs.is_empty(), interrupted);
            let cut_short = interrupted.load(Ordering::Relaxed);
            let wrong = match found {
                _ if cut_short => Vec::new(),
                Ok(wrong) => wrong,
                Err(why) => vec![format!("{why:#}")],
            };
            let run = Run { seconds: begin.elapsed().as_secs_f64(), wrong, cut_short };
            each(&run);
            let over = !run.wrong.is_empty();
            runs.push(run);
            if over {
                break;
            }
        }
        runs
    }

    fn once(
        &self,
        workload: &Workload,
        fixture: &Fixture,
        again: bool,
        interrupted: &AtomicBool,
    ) -> Result<Vec<String>> {
        let root = fixture.root();
        // Each death costs time, and the machine may be slow; beyond this it hangs.
        let deadline = Instant::now() + self.took * 60 + Duration::from_secs(300);
        let stop = || interrupted.load(Ordering::Relaxed);
        let watch = Watch { deadline, stop: &stop };
        let over = Stop::default();
        std::thread::scope(|scope| {
            // Who waits in this process for a mount that hangs cannot be killed: the mount is taken
            // away.
            scope.spawn(|| {
                let left = deadline + Duration::from_secs(60);
                if !over.wait(left.saturating_duration_since(Instant::now())) {
                    mounts::unmount_by_force(fixture.mountpoint());
                }
            });
            let found: Result<Vec<String>> = (|| {
                if again {
                    workload.again(root)?;
                } else {
                    workload.setup(root)?;
                }
                let done = workload.work(root, &watch)?;
                let outcome = workload.look(root, &done)?;
                let mut wrong = self.outcome.differences(&outcome);
                wrong.truncate(TOLD);
                workload.prove(root, &watch)?;
                Ok(wrong)
            })();
            over.ask();
            found.with_context(|| format!("{}", workload.name()))
        })
    }
}
