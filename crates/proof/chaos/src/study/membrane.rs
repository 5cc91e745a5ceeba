//! File systems on disk images, under daemons that keep changes in memory: every operation, every
//! step of a checkpoint and of its commit, a crash at each point, and who notices. What Membrane's
//! Table 3 shows for ext2, VFAT and ext3 in the kernel (FAST 2010, section 5.1).
//!
//! Before each experiment there are changes that were acknowledged and that nobody has asked to be
//! made safe, so that a daemon that dies has something to lose.
//!
//! | module | question |
//! | --- | --- |
//! | `rows` | what is crashed, and during what |
//! | `model` | words and results |
//! | `table` | how is it shown |

mod model;
mod rows;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use belay_faults::{Fault, FaultSignal};
use belay_fixtures::{Kind, mounts};
use belay_study::{Names, Stock, Undisturbed};
use indicatif::ProgressBar;

use super::arguments::Common;
use super::column::Column;
use super::observing::observed;
use super::results;
use super::subject::Fixtures;
use crate::{interrupt, report};
use model::{Experiment, LeftOut, Observed, Only, Study};
use rows::{Group, Row};

/// The file systems of the study.
const FIXTURES: [Kind; 4] =
    [Kind::Fuse2fsExt2, Kind::Fusefat, Kind::Fuse2fsExt3, Kind::Fuse2fsExt4];
/// So many experiments that cannot be made end a study.
const TROUBLES: usize = 10;

/// Arguments of `study membrane`.
#[derive(Clone, Debug, clap::Args)]
pub struct MembraneArgs {
    /// Daemons, by name, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = FIXTURES)]
    fixtures: Vec<Kind>,
    /// What is crashed, separated by commas: names of operations, or `flush` and `commit` with a
    /// point [default: all; `--list` names them]
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Names all rows, and does nothing
    #[arg(long)]
    list: bool,
    /// What the daemons die of under belay
    #[arg(long, value_delimiter = ',', default_value = "SEGV,ABRT,KILL")]
    signals: Vec<FaultSignal>,
    /// What they die of on their own, and where they are only restarted
    #[arg(long, value_delimiter = ',', default_value = "SEGV")]
    other_signals: Vec<FaultSignal>,
    /// Every so many of the points of a row, its first one always
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    /// Just this experiment, in all of the columns
    #[arg(long, value_name = "FIXTURE/ROW/POINT/SIGNAL")]
    only: Option<Only>,
    /// The policy with which belay holds them
    #[arg(long, default_value = "epoch")]
    policy: String,
    #[command(flatten)]
    common: Common,
}

impl MembraneArgs {
    fn rows(&self) -> Result<Vec<Row>> {
        if let Some(only) = &self.only {
            return Ok(vec![Row::parse(&only.row)?]);
        }
        if self.rows.is_empty() {
            return Ok(Row::all());
        }
        self.rows.iter().map(|name| Row::parse(name)).collect()
    }

    fn signals(&self, column: Column, row: &Row) -> Vec<FaultSignal> {
        if self.only.is_some() {
            return vec![FaultSignal::Segv, FaultSignal::Abrt, FaultSignal::Kill];
        }
        match (column, row.group) {
            // belay's own processes do not fault at a commit: they are killed.
            (_, Group::Commit) => vec![FaultSignal::Kill],
            (Column::Belay, _) => self.signals.clone(),
            (Column::Bare | Column::Restart, _) => self.other_signals.clone(),
        }
    }

    fn write(&self, study: &Study) -> Result<()> {
        results::folder(self.common.out.as_ref(), self.only.is_none())
            .map_or(Ok(()), |dir| results::write(&dir, "membrane", study, &table::markdown(study)))
    }
}

/// Runs a study; true if nothing speaks against belay.
pub fn run(args: &MembraneArgs) -> Result<bool> {
    let rows = args.rows()?;
    if args.list {
        rows.iter().for_each(|row| println!("{}", row.name));
        return Ok(true);
    }
    mounts::ensure_control_files()?;
    let mut lab = Lab {
        args,
        rows,
        bar: results::spinner(12),
        interrupted: interrupt::flag()?,
        study: Study {
            version: 1,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            command: report::command_line(),
            columns: args.common.columns.clone(),
            dry_runs: Vec::new(),
            experiments: Vec::new(),
            left_out: Vec::new(),
            troubles: Vec::new(),
        },
    };
    let fixtures =
        args.only.as_ref().map_or_else(|| args.fixtures.clone(), |only| vec![only.fixture]);
    for kind in fixtures {
        lab.bar.set_prefix(kind.name());
        if let Err(error) = lab.fixture(kind) {
            lab.trouble(format!("{kind}: {error:#}"));
        }
        // Also half of them: the next file system may take an hour.
        args.write(&lab.study)?;
    }
    lab.bar.finish_and_clear();
    let study = lab.study;
    print!(
        "{}",
        if args.only.is_some() { table::summary(&study) } else { table::markdown(&study) }
    );
    Ok(study.is_good() || args.common.no_verdict)
}

/// Everything that a study has while it runs.
struct Lab<'a> {
    args: &'a MembraneArgs,
    rows: Vec<Row>,
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    study: Study,
}

impl Lab<'_> {
    fn fixture(&mut self, kind: Kind) -> Result<()> {
        let mut known: Vec<(Row, Undisturbed)> = Vec::new();
        for row in self.rows.clone().into_iter().filter(|row| row.is_for(kind)) {
            let same = known.iter().find(|(other, _)| other.op.name == row.op.name);
            if let Some((_, expected)) = same {
                known.push((row, expected.clone()));
                continue;
            }
            self.say(&format!("{}, undisturbed", row.op.name));
            let mut stock = self.stock(kind, Column::Bare);
            match stock.undisturbed(row.op, true) {
                Ok(expected) => known.push((row, expected)),
                // What goes wrong without any crash cannot be judged.
                Err(error) => self.study.left_out.push(LeftOut {
                    fixture: kind,
                    row: row.name,
                    why: format!("{error:#}").lines().next().unwrap_or_default().to_owned(),
                }),
            }
        }
        for column in self.args.common.columns.clone() {
            let before = self.study.experiments.len();
            for (row, expected) in known.iter().filter(|(row, _)| row.is_in(column)) {
                if self.interrupted.load(Ordering::Relaxed) {
                    self.study.troubles.push("interrupted".to_owned());
                    return Ok(());
                }
                if let Err(error) = self.row(kind, column, row, expected) {
                    self.trouble(format!("{kind} {} {}: {error:#}", column.name(), row.name));
                    ensure!(self.study.troubles.len() < TROUBLES, "too much goes wrong");
                }
            }
            let done = self.study.experiments.iter().skip(before);
            let good = done.clone().filter(|e| e.crash.judged.is_all_right()).count();
            let line = format!(
                "{kind:<12} {:<8} {} experiments, {good} all right",
                column.name(),
                done.count()
            );
            self.bar.suspend(|| eprintln!("{line}"));
        }
        Ok(())
    }

    fn stock(&self, kind: Kind, column: Column) -> Stock<Fixtures> {
        let best = ["--policy", &self.args.policy, "--checkpoint-interval", "1h"];
        let fixtures = Fixtures {
            kind,
            column,
            // No checkpoint but those that the experiment brings about.
            best: best.map(str::to_owned).to_vec(),
            workdir: self.args.common.workdir.clone(),
            limit: self.args.common.op_timeout,
        };
        Stock::new(fixtures, Names::default(), self.args.common.op_timeout).with_unsaved_changes()
    }

    fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.tick();
    }

    fn trouble(&mut self, what: String) {
        self.bar.suspend(|| eprintln!("{what}"));
        self.study.troubles.push(what);
    }

    fn row(&mut self, kind: Kind, column: Column, row: &Row, expected: &Undisturbed) -> Result<()> {
        self.say(&format!("{} {}, undisturbed", column.name(), row.name));
        let mut stock = self.stock(kind, column);
        let run = observed(&mut stock, row.op, &row.aim, expected)?;
        let points = run.points();
        let wrong = run.differs();
        self.study.dry_runs.push(Observed { fixture: kind, row: row.name.clone(), column, run });
        ensure!(
            column != Column::Belay || !wrong,
            "undisturbed: {}",
            self.study.dry_runs.last().map_or("", |o| o.run.differences.trim())
        );
        let points = points.into_iter().filter(|(point, _)| row.has(*point));
        for (number, (point, call)) in points.enumerate() {
            let every = usize::try_from(self.args.every).unwrap_or(1);
            let only = self.args.only.as_ref();
            for signal in self.args.signals(column, row) {
                let wanted = only.map_or(number.is_multiple_of(every), |only| {
                    (only.point, only.signal) == (point, signal)
                });
                if !wanted || self.interrupted.load(Ordering::Relaxed) {
                    continue;
                }
                self.say(&format!("{} {} {point} {signal}", column.name(), row.name));
                let fault = Fault { point, signal };
                let call = call.clone();
                let crash = stock.disturbed_at(row.op, &row.aim, (fault, call), expected)?;
                let replay = format!(
                    "belay-chaos study membrane --columns {} --only {kind}/{}/{point}/{signal}",
                    column.name(),
                    row.name,
                );
                let experiment = Experiment {
                    fixture: kind,
                    row: row.name.clone(),
                    group: row.group,
                    column,
                    crash,
                    replay,
                };
                if experiment.failed() && only.is_none() {
                    self.bar.suspend(|| eprintln!("{}", table::account(&experiment)));
                }
                self.study.experiments.push(experiment);
            }
        }
        Ok(())
    }
}
