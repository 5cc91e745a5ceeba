//! How long applications wait when a daemon dies, beside how long the bare daemon takes to start.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use belay_fixtures::process::{self, Process};
use belay_fixtures::{Fixture, Kind, Signal, mounts, table};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::begun::describe;
use crate::fixtures;
use crate::machine;
use crate::model::{BlackoutFixture, BlackoutRun, Failure, Load};
use crate::nodes::{NodeTree, SAMPLE};
use crate::probe::{Kill, Probe, Seen, gaps, make_file};
use crate::run_file::RunFile;
use crate::stats::Spread;

/// How long a mount may stay silent after a kill until the measurement is given up.
const LIMIT: Duration = Duration::from_secs(60);

/// Answers after a kill that show that the mount works again.
const ANSWERS: usize = 200;

/// Files that the probe goes round when there are many.
pub const PROBED: u64 = 64;

/// What a volume's pause is to stay within, in microseconds.
const AIM_US: f64 = 10_000.0;

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Kills of the held daemon.
    pub kills: usize,
    /// Starts of the bare daemon.
    pub starts: usize,
    /// Nodes to be cached.
    pub nodes: u64,
    /// Files to be open.
    pub open_files: u64,
    /// Seed of the times between kills.
    pub seed: u64,
}

/// Measures one daemon; `held` false leaves the kills out. Where holding it fails, that goes to
/// `failures`, and the figures of the bare daemon are returned all the same.
pub fn measure(
    kind: Kind,
    plan: &Plan,
    held: bool,
    failures: &mut Vec<Failure>,
) -> Result<BlackoutFixture> {
    let (nodes, open_files) = fixtures::capped(kind, plan.nodes, plan.open_files)?;
    // Files that are open are nodes too.
    let tree = NodeTree::of_nodes(nodes.max(open_files + open_files.div_ceil(500)));
    let tree = if nodes == 0 && open_files == 0 { NodeTree::of_nodes(0) } else { tree };
    let mut result = BlackoutFixture {
        fixture: kind.to_string(),
        nodes: NodeTree::nodes_with(tree.files()),
        open_files,
        load: Load { before: machine::load(), after: 0.0 },
        ..BlackoutFixture::default()
    };
    // Half of the starts before the kills and half after, so that a change of the machine shows in
    // both.
    let half = plan.starts.div_ceil(2);
    result.bare_start_us = bare_starts(kind, half)?;
    if held && let Err(error) = kill_held(kind, plan, tree, &mut result) {
        failures.push(Failure::new(format!("{kind}, held"), &error));
    }
    result.bare_start_us.extend(bare_starts(kind, plan.starts - half)?);
    result.bare_start = Spread::of(&result.bare_start_us);
    result.load.after = machine::load();
    Ok(result)
}

/// The page of these results.
pub fn page_of(file: &RunFile, run: &BlackoutRun) -> String {
    let RunFile { machine, placement, started, command, .. } = file;
    let foot = describe(machine, *placement, "back ends in memory", started, command);
    let times = |spread: [Option<f64>; 3]| {
        let ms = spread.map(|us| us.map_or("-".to_owned(), |us| format!("{:.1}", us / 1e3)));
        ms.join(" / ") + " ms"
    };
    let rows = run.fixtures.iter().map(|one| {
        let pause = one.pause.as_ref();
        let pause = pause.map_or([None; 3], |pause| [pause.median, pause.p99, pause.max].map(Some));
        let own = one.belay.unwrap_or_default();
        let short = one.pause_us.iter().filter(|us| **us <= AIM_US).count();
        vec![
            one.fixture.clone(),
            one.pause_us.len().to_string(),
            one.errors.to_string(),
            times(pause),
            format!("{short} of {}", one.pause_us.len()),
            times([own.median_us, own.p99_us, own.max_us]),
            format!("{:.1} → {:.1}", one.load.before, one.load.after),
        ]
    });
    let columns = [
        "daemon",
        "kills",
        "errors",
        "pause",
        "at most 10 ms",
        "by belay's own count",
        "load before and after",
    ];
    let columns = columns.map(table::words);
    format!(
        "# The pause that an application sees\n\nThe daemon, or the namespace module of a volume, is killed again and again while a \
         program asks for a file. Its pause is the longest gap between two answers around a kill: median / p99 / max.\n\n{}\n{foot}\n",
        table::tabulate(&columns, rows)
    )
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Times `count` starts of the bare daemon: from the spawn of the process to the first answered
/// listing.
///
/// The back end is prepared once; then its daemon's own command line is run again and again.
pub fn bare_starts(kind: Kind, count: usize) -> Result<Vec<f64>> {
    // A volume has no daemon that would serve it alone.
    if count == 0 || kind.is_volume() {
        return Ok(Vec::new());
    }
    let fixture = fixtures::start(kind, false, 0)?;
    let pid = fixture.daemon_pid()?;
    let words = fixture.daemon_command();
    let (program, arguments) = words.split_first().context("the fixture has no daemon")?;
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_else(|_| program.into());
    unmount(&fixture, pid)?;
    let logs = tempfile::tempdir().context("make a directory for the daemon's output")?;
    let mut times = Vec::new();
    for _ in 0..count {
        let mut command = Command::new(&program);
        command.args(arguments);
        let start = Instant::now();
        let mut daemon = Process::start(command, &logs.path().join("log"))?;
        mounts::wait(fixture.mountpoint(), true, LIMIT, || daemon.must_run())?;
        let entries = fs::read_dir(fixture.root())
            .with_context(|| format!("list {}", fixture.root().display()))?
            .count();
        times.push(us(start.elapsed()));
        std::hint::black_box(entries);
        unmount(&fixture, daemon.pid())?;
    }
    // Its own daemon is gone, so the fixture is dropped and not stopped.
    Ok(times)
}

fn unmount(fixture: &Fixture, daemon: u32) -> Result<()> {
    mounts::unmount_clean(fixture.mountpoint(), LIMIT)?;
    ensure!(
        process::wait_for_exit(daemon, LIMIT)?,
        "the daemon did not end within {LIMIT:?} after the unmount"
    );
    Ok(())
}

/// Kills the held daemon again and again while the probe asks.
fn kill_held(kind: Kind, plan: &Plan, tree: NodeTree, result: &mut BlackoutFixture) -> Result<()> {
    let fixture = fixtures::start(kind, true, result.nodes)?;
    tree.build(if kind.backed_by_directory() { fixture.backing() } else { fixture.root() })?;
    NodeTree::look_up(fixture.root(), 0, tree.files())?;
    let open = NodeTree::open(fixture.root(), result.open_files)?;
    let probe = Probe::start(probed_files(&fixture, tree)?)?;
    let kills = match kill_often(&fixture, plan, &probe) {
        Ok(kills) => kills,
        Err(error) => {
            // A mount that hangs holds the probe: take it away before anything waits for it.
            let words = fixture.last_words();
            drop(fixture);
            drop(open);
            return Err(anyhow!("{error:#}{words}"));
        }
    };
    let seen = probe.finish()?;
    result.belay = Some(fixtures::own_figures(&fixture)?);
    drop(open);
    record(&seen, &kills, result);
    fixture.stop()
}

fn probed_files(fixture: &Fixture, tree: NodeTree) -> Result<Vec<PathBuf>> {
    let candidates = tree.files().min(SAMPLE);
    if candidates == 0 {
        return Ok(vec![make_file(fixture.root())?]);
    }
    let step = candidates.div_ceil(PROBED).max(1);
    Ok((0..candidates)
        .step_by(usize::try_from(step)?)
        .map(|i| fixture.root().join(NodeTree::path(i)))
        .collect())
}

fn kill_often(fixture: &Fixture, plan: &Plan, probe: &Probe) -> Result<Vec<Kill>> {
    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut kills = Vec::new();
    for number in 1..=plan.kills {
        // Asking belay costs time on the same CPU, so it is done while nothing is measured.
        let daemon = fixture.daemon_pid()?;
        probe
            .wait_for_answers(probe.now(), ANSWERS, LIMIT)
            .with_context(|| format!("before kill {number}"))?;
        std::thread::sleep(Duration::from_micros(random.random_range(5_000..25_000)));
        let at = probe.now();
        process::kill(daemon, Signal::KILL).with_context(|| format!("kill {number}"))?;
        ensure!(
            process::wait_for_exit(daemon, LIMIT)?,
            "process {daemon} did not die within {LIMIT:?}"
        );
        let dead = probe.now();
        probe
            .wait_for_answers(dead, ANSWERS, LIMIT)
            .with_context(|| format!("after kill {number}"))?;
        kills.push(Kill { at, until: probe.now() });
        wait_for_crash(fixture, number).with_context(|| format!("after kill {number}"))?;
    }
    Ok(kills)
}

/// Waits until belay has counted this many crashes: only then is its `daemon.pid` that of the
/// successor.
fn wait_for_crash(fixture: &Fixture, number: usize) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while fixtures::crashes(fixture)? < number as u64 {
        ensure!(Instant::now() < deadline, "belay did not count crash {number} within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn record(seen: &Seen, kills: &[Kill], result: &mut BlackoutFixture) {
    let found = gaps(&seen.answers, kills);
    result.pause_us = found.around_kills.iter().copied().map(us).collect();
    result.pause = Spread::of(&result.pause_us);
    let quiet: Vec<f64> = found.quiet.iter().copied().map(us).collect();
    result.quiet_us = Spread::of(&quiet);
    result.answers = seen.answers.len() as u64;
    result.errors = seen.errors;
    result.first_error.clone_from(&seen.first_error);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fusefat takes the `+` of `rw+` out of its own command line.
    #[test]
    fn daemons_that_change_their_command_line_are_started_again() -> Result<()> {
        assert_eq!(bare_starts(Kind::Fusefat, 2)?.len(), 2);
        Ok(())
    }

    #[test]
    fn pauses_and_quiet_gaps_are_told_apart() {
        let ms = Duration::from_millis;
        let seen =
            Seen { answers: [0, 1, 2, 9, 10, 11].map(ms).to_vec(), errors: 0, first_error: None };
        let mut result = BlackoutFixture::default();
        record(&seen, &[Kill { at: Duration::from_micros(2_500), until: ms(10) }], &mut result);
        assert_eq!(result.pause_us, [7_000.0]);
        assert_eq!(result.answers, 6);
        assert!(result.quiet_us.is_some_and(|q| q.max == 1_000.0));
    }
}
