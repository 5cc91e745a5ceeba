//! What the report shows, as text ready for the templates.
//!
//! The limits in [`super::goals`] are the project's aims; whether a figure meets its aim is
//! computed here and in [`super::cost_view`], from the results.

use serde::Serialize;

use super::cost_view::{CostView, cost_view, noise_of};
use super::judged::{or_dash, verdict};
use super::path_view::{PathView, path_view};
use super::{Named, goals, plot};
use crate::begun::describe;
use crate::blackout::PROBED;
use crate::carry::model::CarryRun;
use crate::model::{BlackoutFixture, BlackoutRun, Failure, Load, Machine, MemoryFixture};
use crate::run_file::{Results, RunFile};
use crate::stats::Spread;
use crate::{recovery, refuse};

/// What holds the daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Holder {
    /// The shim in their processes, whose cost has aims.
    Shim,
    /// The relay between them and the device. There is no aim for its cost.
    Relay,
}

/// Everything that the templates show.
#[derive(Debug, Serialize)]
pub struct View {
    probed: u64,
    /// The aims of cost are for the shim alone.
    holder: Holder,
    goals: GoalsView,
    machines: Vec<Machine>,
    runs: Vec<RunView>,
    warnings: Vec<String>,
    cost: Vec<CostView>,
    path: Vec<PathView>,
    carry: Vec<CarryView>,
    memory: Vec<MemoryView>,
    blackout: Vec<BlackoutView>,
    sections: Vec<SectionView>,
    failures: Vec<FailureView>,
}

#[derive(Debug, Serialize)]
struct GoalsView {
    cost_mean: f64,
    cost_each: f64,
    request_ns: u64,
    changing_request_ns: u64,
    bytes_per_node: u64,
    belay_fixed_mib: u64,
    daemon_fixed_mib: u64,
    pause_ms: u64,
    pause_loaded_ms: u64,
}

#[derive(Debug, Serialize)]
struct RunView {
    file: String,
    command: String,
    started: String,
    finished: String,
    placement: String,
}

#[derive(Debug, Serialize)]
struct FailureView {
    file: String,
    what: String,
    error: String,
}

/// What comes with its own tables.
#[derive(Debug, Serialize)]
struct SectionView {
    title: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
struct CarryView {
    file: String,
    cases: Vec<CarryCaseView>,
}

#[derive(Debug, Serialize)]
struct CarryCaseView {
    message: &'static str,
    kib: usize,
    copied: String,
    spliced: String,
    ratio: String,
    interval: String,
    pieces: usize,
}

#[derive(Debug, Serialize)]
struct MemoryView {
    file: String,
    aa: bool,
    fixtures: Vec<MemoryFixtureView>,
    plot: String,
}

#[derive(Debug, Serialize)]
struct MemoryFixtureView {
    fixture: String,
    nodes: u64,
    open_files: u64,
    belay_per_node: String,
    belay_per_node_verdict: &'static str,
    belay_fixed: String,
    belay_fixed_verdict: &'static str,
    daemon_fixed: String,
    daemon_fixed_verdict: &'static str,
    daemon_per_node: String,
    bare_daemon_per_node: String,
    per_open_file: String,
}

#[derive(Debug, Serialize)]
struct BlackoutView {
    file: String,
    placement: String,
    nodes: u64,
    open_files: u64,
    fixtures: Vec<BlackoutFixtureView>,
    plot: String,
}

#[derive(Debug, Serialize)]
struct BlackoutFixtureView {
    fixture: String,
    nodes: u64,
    open_files: u64,
    kills: usize,
    start: String,
    pause: String,
    quiet: String,
    over: String,
    verdict: &'static str,
    own: String,
    answers: u64,
    errors: u64,
}

/// The first line of an error; a daemon's last words below it are in the results file.
fn headline(error: &str) -> String {
    error.lines().next().unwrap_or_default().chars().take(300).collect()
}

fn mib(bytes: i64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 20))
}

/// `median / p99 / max` in milliseconds.
fn three_ms(spread: Option<&Spread>) -> String {
    spread.map_or_else(
        || "–".to_owned(),
        |s| format!("{:.2} / {:.2} / {:.2}", s.median / 1e3, s.p99 / 1e3, s.max / 1e3),
    )
}

impl View {
    /// Prepares the results for the templates.
    pub fn new(runs: &[Named], holder: Holder) -> Self {
        let mut view = Self {
            probed: PROBED,
            holder,
            goals: GoalsView {
                cost_mean: goals::COST_MEAN,
                cost_each: goals::COST_EACH,
                request_ns: goals::REQUEST_NS as u64,
                changing_request_ns: goals::CHANGING_REQUEST_NS as u64,
                bytes_per_node: goals::BYTES_PER_NODE as u64,
                belay_fixed_mib: goals::BELAY_FIXED as u64 >> 20,
                daemon_fixed_mib: goals::DAEMON_FIXED as u64 >> 20,
                pause_ms: goals::PAUSE_OVER_START_US as u64 / 1000,
                pause_loaded_ms: goals::PAUSE_OVER_START_LOADED_US as u64 / 1000,
            },
            machines: Vec::new(),
            runs: Vec::new(),
            warnings: Vec::new(),
            cost: Vec::new(),
            path: Vec::new(),
            carry: Vec::new(),
            memory: Vec::new(),
            blackout: Vec::new(),
            sections: Vec::new(),
            failures: Vec::new(),
        };
        for named in runs {
            view.add(named, runs);
        }
        view
    }

    fn add(&mut self, named: &Named, all: &[Named]) {
        let Named { name, run } = named;
        if !self.machines.contains(&run.machine) {
            self.machines.push(run.machine.clone());
        }
        if run.machine.profile != "release" {
            self.warnings
                .push(format!("{name} was measured with a {} build.", run.machine.profile));
        }
        self.runs.push(RunView {
            file: name.clone(),
            command: run.command.clone(),
            started: run.started.clone(),
            finished: run.finished.clone(),
            placement: run.placement.to_string(),
        });
        let in_memory = "back ends in memory";
        let foot = describe(&run.machine, run.placement, in_memory, &run.started, &run.command);
        match &run.results {
            Results::Cost(cost) => {
                let noise = noise_of(run, cost, all);
                if noise.is_none() && !cost.aa {
                    self.warnings.push(format!(
                        "{name} has no bare-against-bare run with the same placement beside it (`cost --aa`): \
                         the noise of its ratios is unknown."
                    ));
                }
                self.warn_of_load(name, cost.fixtures.iter().map(|b| b.load), run.machine.cpus);
                for fixture in &cost.fixtures {
                    self.fail(name, &fixture.failures);
                }
                let has_aims = self.holder == Holder::Shim;
                self.cost.push(cost_view(name, run, cost, noise, has_aims));
            }
            Results::Carry(carry) => self.carry.push(carry_view(name, carry)),
            Results::Path(path) => {
                self.fail(name, &path.failures);
                let beside = all.iter().filter_map(|other| match &other.run.results {
                    Results::Path(path) => Some((other.name.as_str(), path)),
                    _ => None,
                });
                self.path.extend(path_view(name, path, &beside.collect::<Vec<_>>()));
            }
            Results::Memory(memory) => {
                self.fail(name, &memory.failures);
                self.memory.push(MemoryView {
                    file: name.clone(),
                    aa: memory.aa,
                    fixtures: memory.fixtures.iter().map(memory_fixture_view).collect(),
                    plot: plot::memory(&memory.fixtures),
                });
            }
            Results::Blackout(blackout) => {
                self.fail(name, &blackout.failures);
                self.warn_of_load(name, blackout.fixtures.iter().map(|b| b.load), run.machine.cpus);
                for fixture in &blackout.fixtures {
                    if let Some(error) = &fixture.first_error {
                        let what =
                            format!("{}: the probe saw {} errors", fixture.fixture, fixture.errors);
                        self.fail(name, &[Failure { what, error: error.clone() }]);
                    }
                }
                self.blackout.push(blackout_view(name, run, blackout));
            }
            // Its tables are a part of another page, that of the fault study.
            Results::Refuse(refuse) => {
                self.warn_of_load(name, refuse.fixtures.iter().map(|b| b.load), run.machine.cpus);
                refuse.fixtures.iter().for_each(|fixture| self.fail(name, &fixture.failures));
            }
            Results::Membrane(membrane) => {
                self.warn_of_load(name, membrane.fixtures.iter().map(|b| b.load), run.machine.cpus);
                let title = "Cost of holding daemons that buffer (Membrane's Tables 4 and 5)";
                let text = refuse::table::markdown(&refuse::table::MEMBRANE, membrane, &foot);
                self.sections.push(SectionView { title, text });
            }
            // They have a page of their own.
            Results::Layouts(layouts) => self.fail(name, &layouts.failures),
            Results::Restart(restart) => {
                self.warn_of_load(name, restart.fixtures.iter().map(|b| b.load), run.machine.cpus);
                self.fail(name, &restart.failures);
            }
            Results::Recovery(recovery) => {
                self.warn_of_load(name, recovery.fixtures.iter().map(|b| b.load), run.machine.cpus);
                let title = "Recovery of daemons that buffer (Membrane's Table 6)";
                let text = recovery::table::markdown(recovery, &foot);
                self.sections.push(SectionView { title, text });
            }
        }
    }

    /// Client, daemon and belay take turns, and keep about one CPU busy. More work than CPUs comes
    /// from elsewhere.
    fn warn_of_load(&mut self, file: &str, loads: impl Iterator<Item = Load>, cpus: usize) {
        let most = loads.map(|l| l.before.max(l.after)).fold(0.0, f64::max);
        if most > cpus as f64 {
            self.warnings.push(format!(
                "{file}: the machine was busy with other work meanwhile: load up to {most:.1} on {cpus} CPUs."
            ));
        }
    }

    fn fail(&mut self, file: &str, failures: &[Failure]) {
        self.failures.extend(failures.iter().map(|f| FailureView {
            file: file.to_owned(),
            what: f.what.clone(),
            error: headline(&f.error),
        }));
    }
}

fn carry_view(file: &str, run: &CarryRun) -> CarryView {
    let cases = run.cases.iter().map(|case| CarryCaseView {
        message: case.direction.name(),
        kib: case.bytes >> 10,
        copied: format!("{:.2}", case.copied_us.median),
        spliced: format!("{:.2}", case.spliced_us.median),
        ratio: format!("{:.2}", case.ratio.median),
        interval: format!("{:.2}–{:.2}", case.ratio.ci_low, case.ratio.ci_high),
        pieces: case.pieces,
    });
    CarryView { file: file.to_owned(), cases: cases.collect() }
}

fn memory_fixture_view(fixture: &MemoryFixture) -> MemoryFixtureView {
    let s = &fixture.summary;
    MemoryFixtureView {
        fixture: fixture.fixture.clone(),
        nodes: fixture.nodes,
        open_files: fixture.open_files,
        belay_per_node: format!("{:.1}", s.belay_per_node),
        belay_per_node_verdict: verdict(Some(s.belay_per_node), goals::BYTES_PER_NODE),
        belay_fixed: mib(s.belay_fixed),
        belay_fixed_verdict: verdict(Some(s.belay_fixed as f64), goals::BELAY_FIXED),
        daemon_fixed: mib(s.daemon_fixed),
        daemon_fixed_verdict: verdict(Some(s.daemon_fixed as f64), goals::DAEMON_FIXED),
        daemon_per_node: format!("{:.1}", s.daemon_per_node),
        bare_daemon_per_node: format!("{:.1}", s.bare_daemon_per_node),
        per_open_file: or_dash(s.per_open_file, 1),
    }
}

fn blackout_view(name: &str, run: &RunFile, blackout: &BlackoutRun) -> BlackoutView {
    BlackoutView {
        file: name.to_owned(),
        placement: run.placement.to_string(),
        nodes: blackout.nodes,
        open_files: blackout.open_files,
        fixtures: blackout.fixtures.iter().map(blackout_fixture_view).collect(),
        plot: plot::blackout(&blackout.fixtures),
    }
}

fn blackout_fixture_view(fixture: &BlackoutFixture) -> BlackoutFixtureView {
    let loaded = fixture.nodes > 0 || fixture.open_files > 0;
    let limit = if loaded { goals::PAUSE_OVER_START_LOADED_US } else { goals::PAUSE_OVER_START_US };
    let over =
        fixture.pause.as_ref().zip(fixture.bare_start.as_ref()).map(|(p, s)| p.median - s.median);
    let own = fixture.belay.unwrap_or_default();
    let own = [own.median_us, own.p99_us, own.max_us].map(|v| or_dash(v.map(|us| us / 1e3), 2));
    BlackoutFixtureView {
        fixture: fixture.fixture.clone(),
        nodes: fixture.nodes,
        open_files: fixture.open_files,
        kills: fixture.pause_us.len(),
        start: three_ms(fixture.bare_start.as_ref()),
        pause: three_ms(fixture.pause.as_ref()),
        quiet: three_ms(fixture.quiet_us.as_ref()),
        over: or_dash(over.map(|us| us / 1e3), 2),
        verdict: verdict(over, limit),
        own: own.join(" / "),
        answers: fixture.answers,
        errors: fixture.errors,
    }
}
