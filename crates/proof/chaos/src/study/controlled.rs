//! Every operation, a crash at every point, and what the application and the file system see of it:
//! the paper's Table 4.
//!
//! | module | question |
//! | --- | --- |
//! | `belay_study` | which operations, on which tree; how is one experiment made and judged |
//! | `model` | words and results |
//! | `table` | how is it shown |

mod model;
mod table;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use belay_faults::{Fault, FaultSignal};
use belay_fixtures::{Kind, mounts};
use belay_study::{Aim, Names, OPERATIONS, Operation, Stock, Undisturbed};
use indicatif::ProgressBar;

use super::arguments::Common;
use super::column::Column;
use super::observing::observed;
use super::results;
use super::subject::Fixtures;
use crate::interrupt;
pub use model::Study;
use model::{Experiment, Observed, Only};
pub use table::markdown;

/// Daemons of the study.
const FIXTURES: [Kind; 5] = [Kind::Sshfs, Kind::Ntfs3g, Kind::Avfs, Kind::Bindfs, Kind::Mergerfs];
/// So many experiments that cannot be made end a study.
const TROUBLES: usize = 5;

/// Arguments of `study controlled`.
#[derive(Clone, Debug, clap::Args)]
pub struct ControlledArgs {
    /// Daemons, by name, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = FIXTURES)]
    fixtures: Vec<Kind>,
    /// Operations, by name, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    ops: Vec<String>,
    /// What the daemons die of
    #[arg(long, value_delimiter = ',', default_value = "SEGV,KILL")]
    signals: Vec<FaultSignal>,
    /// Just this experiment, in all of the columns
    #[arg(long, value_name = "FIXTURE/OPERATION/POINT/SIGNAL")]
    only: Option<Only>,
    #[command(flatten)]
    common: Common,
}

/// Runs a study; true if nothing speaks against belay.
pub fn run(args: &ControlledArgs) -> Result<bool> {
    let chosen = args.ops.iter().map(|name| Operation::parse(name));
    let mut ops: Vec<&'static Operation> = chosen.collect::<Result<_>>()?;
    let mut fixtures = args.fixtures.clone();
    if let Some(only) = &args.only {
        fixtures = vec![only.fixture];
        ops = vec![only.operation];
    } else if ops.is_empty() {
        ops = OPERATIONS.iter().collect();
    }
    mounts::ensure_control_files()?;
    let mut lab = Lab {
        args,
        ops,
        bar: results::spinner(10),
        interrupted: interrupt::flag()?,
        study: Study {
            version: 1,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            columns: args.common.columns.clone(),
            dry_runs: Vec::new(),
            experiments: Vec::new(),
            troubles: Vec::new(),
        },
    };
    for kind in fixtures {
        lab.bar.set_prefix(kind.name());
        if let Err(error) = lab.fixture(kind) {
            lab.study.troubles.push(format!("{kind}: {error:#}"));
        }
    }
    lab.bar.finish_and_clear();
    let mut study = lab.study;
    if args.only.is_some() && study.experiments.is_empty() && study.troubles.is_empty() {
        study.troubles.push("the request has no such point".to_owned());
    }
    let page = table::markdown(&study);
    if args.only.is_none() {
        println!("{page}");
    } else {
        print!("{}", table::summary(&study));
    }
    if let Some(dir) = results::folder(args.common.out.as_ref(), args.only.is_none()) {
        results::write(&dir, "controlled", &study, &page)?;
    }
    let good = study.troubles.is_empty()
        && !study.experiments.iter().any(|e| table::failed(e) || !e.crash.reached)
        && !study.dry_runs.iter().any(|o| o.column == Column::Belay && o.run.differs());
    Ok(good || args.common.no_verdict)
}

/// Everything that a study has while it runs.
struct Lab<'a> {
    args: &'a ControlledArgs,
    ops: Vec<&'static Operation>,
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    study: Study,
}

impl Lab<'_> {
    fn fixture(&mut self, kind: Kind) -> Result<()> {
        let mut stock = self.stock(kind, Column::Bare);
        let mut expected = Vec::new();
        for op in self.ops.clone() {
            self.bar.set_message(format!("{}, undisturbed", op.name));
            self.bar.tick();
            let undisturbed = stock.undisturbed(op, true);
            expected.push(undisturbed.with_context(|| format!("{} undisturbed", op.name))?);
        }
        stock.close()?;
        for column in self.args.common.columns.clone() {
            let mut stock = self.stock(kind, column);
            for (op, expected) in self.ops.clone().into_iter().zip(&expected) {
                if self.interrupted.load(Ordering::Relaxed) {
                    self.study.troubles.push("interrupted".to_owned());
                    return Ok(());
                }
                let what = || format!("{} {}", column.name(), op.name);
                self.operation(&mut stock, op, expected).with_context(what)?;
            }
            stock.close().with_context(|| format!("after {}", column.name()))?;
            self.tell(kind, column);
        }
        Ok(())
    }

    fn stock(&self, kind: Kind, column: Column) -> Stock<Fixtures> {
        let fixtures = Fixtures {
            kind,
            column,
            best: vec!["--policy".to_owned(), "auto".to_owned()],
            workdir: self.args.common.workdir.clone(),
            limit: self.args.common.op_timeout,
        };
        Stock::new(fixtures, Names::default(), self.args.common.op_timeout)
    }

    /// A line for those who wait, also where no progress can be drawn.
    fn tell(&self, kind: Kind, column: Column) {
        let of = |e: &&Experiment| e.fixture == kind && e.column == column;
        let all = self.study.experiments.iter().filter(of);
        let good = all.clone().filter(|e| e.crash.judged.is_all_right()).count();
        let line = format!(
            "{kind:<10} {:<8} {} experiments, {good} all right",
            column.name(),
            all.count()
        );
        self.bar.suspend(|| eprintln!("{line}"));
    }

    fn operation(
        &mut self,
        stock: &mut Stock<Fixtures>,
        op: &'static Operation,
        expected: &Undisturbed,
    ) -> Result<()> {
        let (kind, column) = (stock.source().kind, stock.source().column);
        self.bar.set_message(format!("{} {}, undisturbed", column.name(), op.name));
        self.bar.tick();
        let run = observed(stock, op, &Aim::of(op), expected)?;
        let points = run.points();
        self.study.dry_runs.push(Observed {
            fixture: kind,
            operation: op.name.into(),
            column,
            run,
        });
        for (point, call) in points {
            for signal in self.args.signals.clone() {
                let only = self.args.only.as_ref();
                if only.is_some_and(|o| (o.point, o.signal) != (point, signal)) {
                    continue;
                }
                if self.interrupted.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.bar.set_message(format!("{} {} {point} {signal}", column.name(), op.name));
                self.bar.tick();
                let fault = Fault { point, signal };
                let call = call.clone();
                let experiment = match self.experiment(stock, op, fault, call, expected) {
                    Ok(experiment) => experiment,
                    // Not judged, and no reason to leave out the others; unless nothing goes.
                    Err(error) => {
                        let at = format!("{kind} {} {} {point} {signal}", column.name(), op.name);
                        let trouble = format!("{at}: {error:#}");
                        ensure!(self.study.troubles.len() < TROUBLES, "{trouble}");
                        self.bar.suspend(|| eprintln!("{trouble}"));
                        self.study.troubles.push(trouble);
                        continue;
                    }
                };
                if table::failed(&experiment) && only.is_none() {
                    self.bar.suspend(|| eprintln!("{}", table::account(&experiment)));
                }
                self.study.experiments.push(experiment);
            }
        }
        Ok(())
    }

    fn experiment(
        &mut self,
        stock: &mut Stock<Fixtures>,
        op: &'static Operation,
        fault: Fault,
        call: Option<Cow<'static, str>>,
        expected: &Undisturbed,
    ) -> Result<Experiment> {
        let (kind, column) = (stock.source().kind, stock.source().column);
        let crash = stock.disturbed(op, fault, call, expected)?;
        let replay = format!(
            "belay-chaos study controlled --columns {} --only {kind}/{}/{}/{}",
            column.name(),
            op.name,
            fault.point,
            fault.signal
        );
        Ok(Experiment { fixture: kind, operation: op.name.into(), column, crash, replay })
    }
}
