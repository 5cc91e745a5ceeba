//! What holding a daemon costs each operation: held against bare, in pairs.
//!
//! Both mounts are up at the same time, and samples are taken strictly in turn, bare, held, bare,
//! held, so that a slow change of the machine touches both alike and every sample finds the CPU's
//! caches as the other side left them. (With bare, held, held, bare, each second sample would find
//! them warm: seen to be 15 % faster where much data is moved.) The two samples of a pair give one
//! ratio; [`crate::pairs`] makes the result of these. Each sample is one batch of the operation,
//! long enough that the clock and the start of threads do not matter. As the chance placement of a
//! process in memory stays with it for life, both daemons are started anew several times
//! ("sessions") in the course of the rounds, and take turns in who is first.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use belay_fixtures::{Fixture, Kind};

use crate::clients::{Worker, sample};
use crate::fixtures;
use crate::machine;
use crate::model::{CostCase, CostFixture, Failure, Load, Pair};
use crate::ops::{Op, SharedBuffer, buffers};
use crate::pairs::summarise;
use crate::procmem::io_calls;
use crate::stats::geometric_mean;

/// How to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Operations, in order.
    pub ops: Vec<Op>,
    /// Numbers of client threads.
    pub threads: Vec<usize>,
    /// Pairs of each case.
    pub rounds: usize,
    /// Starts of both daemons over which the rounds are spread.
    pub sessions: usize,
    /// Aimed length of a sample.
    pub batch: Duration,
    /// The "held" daemon is bare too.
    pub aa: bool,
}

/// One operation with one number of threads, while it is being measured.
struct Case {
    op: Op,
    threads: usize,
    batch: Option<u64>,
    calls: Option<[f64; 2]>,
    pairs: Vec<Pair>,
    failed: bool,
}

/// Measures one daemon. What fails is part of the result.
pub fn measure(kind: Kind, plan: &Plan) -> CostFixture {
    let mut fixture = CostFixture {
        fixture: kind.to_string(),
        daemon_cpus: [String::new(), String::new()],
        load: Load { before: machine::load(), after: 0.0 },
        geometric_mean: None,
        cases: Vec::new(),
        failures: Vec::new(),
    };
    let mut cases: Vec<Case> = plan
        .ops
        .iter()
        .flat_map(|op| plan.threads.iter().map(|threads| (*op, *threads)))
        .map(|(op, threads)| Case {
            op,
            threads,
            batch: None,
            calls: None,
            pairs: Vec::new(),
            failed: false,
        })
        .collect();
    for number in 0..plan.sessions {
        if let Err(error) = session(kind, plan, number, &mut cases, &mut fixture) {
            fixture.failures.push(Failure::new(format!("{kind}, session {}", number + 1), &error));
        }
    }
    fixture.load.after = machine::load();
    fixture.cases = cases.into_iter().filter_map(finish).collect();
    let ratios: Vec<f64> = fixture.cases.iter().map(|c| c.estimate.ratio).collect();
    fixture.geometric_mean = geometric_mean(&ratios);
    fixture
}

fn finish(case: Case) -> Option<CostCase> {
    let mut result = summarise(case.op.to_string(), case.threads, case.batch?, case.pairs)?;
    result.daemon_calls_per_op = case.calls;
    Some(result)
}

/// The share of `rounds` that falls to session `number` of `sessions`.
fn share(rounds: usize, sessions: usize, number: usize) -> usize {
    rounds * (number + 1) / sessions - rounds * number / sessions
}

fn session(
    kind: Kind,
    plan: &Plan,
    number: usize,
    cases: &mut [Case],
    result: &mut CostFixture,
) -> Result<()> {
    // Whoever starts first may get the better place in memory: take turns.
    let (bare, held) = if number.is_multiple_of(2) {
        let bare = fixtures::start(kind, false, 0)?;
        (bare, fixtures::start(kind, !plan.aa, 0)?)
    } else {
        let held = fixtures::start(kind, !plan.aa, 0)?;
        (fixtures::start(kind, false, 0)?, held)
    };
    result.daemon_cpus =
        [machine::allowed_cpus(bare.daemon_pid()?), machine::allowed_cpus(held.daemon_pid()?)];
    for case in cases.iter_mut().filter(|c| !c.failed) {
        if let Err(error) = measure_case(case, plan, number, [&bare, &held]) {
            case.failed = true;
            result.failures.push(Failure::new(
                format!("{kind}, {} by {} threads", case.op, case.threads),
                &error,
            ));
            bare.check()?;
            held.check()?;
        } else if number + 1 == plan.sessions {
            print_case(kind, case);
        }
    }
    let crashes = fixtures::crashes(&held)?;
    ensure!(
        crashes == 0,
        "belay counted {crashes} crashes of the daemon in the course of the measurement"
    );
    bare.stop()?;
    held.stop()
}

fn print_case(kind: Kind, case: &Case) {
    let pairs = case.pairs.clone();
    let Some(done) = summarise(case.op.to_string(), case.threads, 0, pairs) else {
        return;
    };
    println!(
        "{kind:<15} {:<22} x{}  bare {:>9.2} us  held {:>9.2} us  ratio {:.3}  (95 % CI {:.3}-{:.3}, IQR \
         {:.3}-{:.3}, range {:.3}-{:.3}, {} pairs)",
        done.op,
        done.threads,
        done.bare_us,
        done.held_us,
        done.estimate.ratio,
        done.estimate.ci_low,
        done.estimate.ci_high,
        done.ratios.q1,
        done.ratios.q3,
        done.ratios.min,
        done.ratios.max,
        done.ratios.count,
    );
}

fn measure_case(case: &mut Case, plan: &Plan, number: usize, sides: [&Fixture; 2]) -> Result<()> {
    let result = measure_sides(case, plan, number, sides);
    // Keeps the number of nodes small: some daemons hold a descriptor for each.
    for side in sides {
        for index in 0..case.threads {
            let own = side.root().join("bench").join(format!("{}-{index}", case.op));
            if own.is_dir() {
                std::fs::remove_dir_all(&own)
                    .with_context(|| format!("remove {}", own.display()))?;
            }
        }
    }
    result
}

fn measure_sides(case: &mut Case, plan: &Plan, number: usize, sides: [&Fixture; 2]) -> Result<()> {
    // Whose files are made first is as much a matter of turns as whose daemon is.
    let held_first = number % 2 == 1;
    let buffers = buffers(case.threads);
    let prepare_bare =
        || workers(case, sides[0].root(), &buffers).context("prepare the bare mount");
    let prepare_held =
        || workers(case, sides[1].root(), &buffers).context("prepare the held mount");
    let (mut bare, mut held) = if held_first {
        let held = prepare_held()?;
        (prepare_bare()?, held)
    } else {
        let bare = prepare_bare()?;
        (bare, prepare_held()?)
    };
    let limit = (case.op.max_batch() / case.threads as u64).max(1);
    let batch = match case.batch {
        Some(batch) => batch,
        None => *case.batch.insert(calibrate(&mut bare, plan.batch, limit)?),
    };
    // One batch for each side is not counted: it warms up, and shows how often the daemon is asked.
    sample(&mut bare, batch).context("warm up the bare mount")?;
    sample(&mut held, batch).context("warm up the held mount")?;
    if case.calls.is_none() {
        let counted =
            [calls_per_op(&mut bare, batch, sides[0])?, calls_per_op(&mut held, batch, sides[1])?];
        case.calls = counted[0].zip(counted[1]).map(|(b, h)| [b, h]);
    }
    let operations = batch * case.threads as u64;
    for _ in 0..share(plan.rounds, plan.sessions, number) {
        let time = |workers: &mut [Box<dyn Worker>], side: &str| -> Result<f64> {
            let elapsed = sample(workers, batch).with_context(|| format!("on the {side} mount"))?;
            Ok(elapsed.as_secs_f64() * 1e6 / operations as f64)
        };
        let (bare_us, held_us) = if held_first {
            let held_us = time(&mut held, "held")?;
            (time(&mut bare, "bare")?, held_us)
        } else {
            let bare_us = time(&mut bare, "bare")?;
            (bare_us, time(&mut held, "held")?)
        };
        case.pairs.push(Pair { bare_us, held_us, session: number, held_first });
    }
    Ok(())
}

fn workers(case: &Case, root: &Path, buffers: &[SharedBuffer]) -> Result<Vec<Box<dyn Worker>>> {
    let buffers = buffers.iter().enumerate();
    buffers.map(|(index, buffer)| case.op.worker(root, index, buffer)).collect()
}

/// Finds the batch of each worker that takes about as long as `aim`.
fn calibrate(workers: &mut [Box<dyn Worker>], aim: Duration, limit: u64) -> Result<u64> {
    let mut batch = 1;
    loop {
        let elapsed = sample(workers, batch).context("calibrate the batch")?;
        if elapsed >= aim || batch >= limit {
            return Ok(batch.min(limit));
        }
        let wanted = aim.as_secs_f64() / elapsed.as_secs_f64().max(1e-9) * batch as f64 * 1.1;
        // Grow by bounded steps: the first samples are cold and slow to no purpose, or too short to
        // tell.
        batch = (wanted.ceil() as u64).clamp(batch + 1, batch * 8).min(limit);
    }
}

/// The daemon's `read` and `write` calls for one operation of the first worker's.
fn calls_per_op(
    workers: &mut [Box<dyn Worker>],
    batch: u64,
    fixture: &Fixture,
) -> Result<Option<f64>> {
    let pid = fixture.daemon_pid()?;
    let worker = workers.first_mut().context("a case needs a worker")?;
    worker.prepare(batch)?;
    let before = io_calls(pid);
    worker.run(batch)?;
    let after = io_calls(pid);
    worker.finish(batch)?;
    Ok(before.zip(after).map(|(b, a)| a.saturating_sub(b) as f64 / batch as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_spread_over_the_sessions() {
        for (rounds, sessions) in [(15, 3), (16, 3), (2, 3), (7, 1)] {
            let total: usize = (0..sessions).map(|n| share(rounds, sessions, n)).sum();
            assert_eq!(total, rounds);
        }
    }

    #[test]
    fn batches_are_long_enough_and_bounded() -> Result<()> {
        struct Sleeper;
        impl Worker for Sleeper {
            fn run(&mut self, count: u64) -> Result<()> {
                std::thread::sleep(Duration::from_micros(100 * count));
                Ok(())
            }
        }
        let mut workers: Vec<Box<dyn Worker>> = vec![Box::new(Sleeper)];
        let aim = Duration::from_millis(10);
        let batch = calibrate(&mut workers, aim, 1_000)?;
        assert!(sample(&mut workers, batch)? >= aim / 2, "batch {batch}");
        assert_eq!(calibrate(&mut workers, aim, 3)?, 3);
        Ok(())
    }
}
