//! What layouts of a volume cost, and what they survive: Loris's Tables I and II.
//!
//! All layouts take turns in each round, and each benchmark has a new volume: its layout is all
//! that differs. What they survive is what the simulation says ([`belay_volume_sim::survival`]).

pub mod files;
pub mod model;
mod paper;
pub mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, VOLUME_MEMORY};
use belay_volume_sim::layout::Layout;
use belay_volume_sim::survival;
use belay_workloads::postmark::PostMark;
use belay_workloads::{Name, Outcome, Scale, Watch, Workload};
use clap::{Args, ValueEnum};

use crate::begun::{Begun, Common, describe};
use crate::machine;
use crate::model::{Failure, Load};
use crate::pages;
use crate::refuse::cold;
use crate::run_file::{Results, RunFile};
use crate::stats::Spread;
use files::{Part, Sizes};
use model::{Benchmark, Cost, LayoutsRun, Sample, Survived};

/// Longer than any workload should take: it hangs then.
const LIMIT: Duration = Duration::from_secs(6 * 3600);
/// What others are compared with: no twins.
const BASE: Layout = Layout::Twins(0);

/// Arguments of `layouts`.
#[derive(Args, Clone, Debug)]
pub struct LayoutsArgs {
    #[command(flatten)]
    common: Common,
    /// Rounds; in as many as there are layouts, ten, each is once first
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Benchmarks, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "postmark,openssh,files")]
    benchmarks: Vec<Which>,
    /// Files of PostMark, of 4 KB to 28 KB (40,000 in the paper)
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    postmark_files: u64,
    /// Its transactions (80,000 in the paper)
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    transactions: u64,
    /// How much is built; `tiny`: a small generated program in place of OpenSSH
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    scale: Scale,
    /// Jobs of `make`
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// Size of the file that is written, read and overwritten, in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    file_mib: u64,
    /// Blocks of it that are overwritten
    #[arg(long, default_value_t = 4096)]
    overwrites: usize,
    /// Seeds of the simulation that are tried with each layout
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// Where images are made: on a real disk
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    workdir: PathBuf,
}

/// A benchmark, or several on one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Many small files, with the paper's sizes
    Postmark,
    /// OpenSSH is unpacked, configured and built
    Openssh,
    /// One large file is written, read and overwritten
    Files,
}

/// Measures, and writes `layouts.json` and `layouts.md`; false where something could not be
/// measured.
pub fn run(args: &LayoutsArgs) -> Result<bool> {
    let begun = Begun::new(&args.common, "layouts")?;
    let mut run = LayoutsRun {
        rounds: args.rounds.into(),
        memory: VOLUME_MEMORY.to_owned(),
        workdir: args.workdir.display().to_string(),
        load: Load { before: machine::load(), after: 0.0 },
        benchmarks: Vec::new(),
        survival: Layout::ALL.iter().map(|layout| survived(*layout, args.seeds)).collect(),
        failures: Vec::new(),
    };
    for survived in &run.survival {
        println!("{}", table::survival_line(survived));
    }
    let mut plan = Vec::new();
    for which in &args.benchmarks {
        match Prepared::new(*which, args) {
            Ok(prepared) => plan.push(prepared),
            Err(error) => run.failures.push(Failure::new(format!("{which:?}"), &error)),
        }
    }
    for round in 0..usize::from(args.rounds) {
        for prepared in &plan {
            for layout in order(round) {
                match prepared.sample(args, layout) {
                    Ok(found) => add(&mut run, prepared, layout, round, &found),
                    Err(error) => {
                        let what =
                            format!("{:?}, layout {layout}, round {round}", prepared.which());
                        run.failures.push(Failure::new(what, &error));
                    }
                }
            }
        }
        summarise(&mut run);
        run.load.after = machine::load();
        begun.write_with_page(Results::Layouts(run.clone()), pages::page_of)?;
        println!("round {} of {}", round + 1, args.rounds);
    }
    run.benchmarks.iter().for_each(|benchmark| println!("{}", table::lines(benchmark)));
    println!("results: {}", begun.path().display());
    Ok(run.failures.is_empty())
}

/// The page of these results.
pub fn page_of(file: &RunFile, run: &LayoutsRun) -> String {
    let back_ends = format!("images in files below {}", run.workdir);
    let RunFile { machine, placement, started, command, .. } = file;
    let Load { before, after } = run.load;
    let foot = describe(machine, *placement, &back_ends, started, command);
    table::markdown(run, &format!("{foot}; load {before:.1} before, {after:.1} after"))
}

/// The order of a round: who was first is last in the next one.
fn order(round: usize) -> [Layout; Layout::ALL.len()] {
    let count = Layout::ALL.len();
    std::array::from_fn(|place| Layout::ALL[(place + round) % count])
}

fn survived(layout: Layout, seeds: u64) -> Survived {
    let found = survival::of(layout.parameters().small(), seeds);
    let (first_seed, said) = found.first.unzip();
    Survived {
        layout: layout.to_string(),
        seeds,
        power_failures: found.power_failures,
        torn: found.torn,
        losses: found.losses,
        first_seed,
        said,
    }
}

/// A benchmark that can be run.
enum Prepared {
    /// A program at work, and what comes of it in a plain directory.
    Program(Box<Workload>, Outcome),
    Files(Sizes),
}

/// What was measured at a time: benchmark, what was done, and how long it took.
type Found = Vec<(String, String, Duration)>;

impl Prepared {
    fn new(which: Which, args: &LayoutsArgs) -> Result<Self> {
        let workload = match which {
            Which::Files => {
                let most = usize::try_from(args.file_mib << 8).unwrap_or(usize::MAX);
                let overwrites = args.overwrites.min(most);
                return Ok(Self::Files(Sizes { file_mib: args.file_mib, overwrites }));
            }
            Which::Openssh => Workload::new(Name::Openssh, args.scale, 1, args.jobs)?,
            Which::Postmark => Workload::postmark(PostMark {
                files: args.postmark_files,
                smallest: 4_000,
                largest: 28_000,
                transactions: args.transactions,
                seed: 1,
            }),
        };
        // It also finds the programs themselves on a cold disk.
        let options =
            FixtureOptions { workdir: Some(args.workdir.clone()), ..FixtureOptions::default() };
        let plain = Fixture::start(Kind::Dir, &Mode::Bare, &options)?;
        workload.setup(plain.root())?;
        let (_, right) = work(&workload, plain.root()).context("in a plain directory")?;
        Ok(Self::Program(Box::new(workload), right))
    }

    fn which(&self) -> Which {
        match self {
            Self::Program(workload, _) if workload.name() == Name::Openssh => Which::Openssh,
            Self::Program(..) => Which::Postmark,
            Self::Files(_) => Which::Files,
        }
    }

    /// Runs it on a new volume with that layout, which must be whole in the end.
    fn sample(&self, args: &LayoutsArgs, layout: Layout) -> Result<Found> {
        let image_mib = match self {
            Self::Program(workload, _) => workload.image_mib(),
            Self::Files(sizes) => 256 + sizes.file_mib * 2,
        };
        let options = FixtureOptions {
            workdir: Some(args.workdir.clone()),
            image_mib,
            create_args: layout.create_args(),
            before_mount: layout.before_mount(),
            ..FixtureOptions::default()
        };
        let fixture = Fixture::start(Kind::Volume, &Mode::held(), &options)?;
        let mut found = Found::new();
        match self {
            Self::Program(workload, right) => {
                workload.setup(fixture.root())?;
                cold::empty_caches(&fixture)?;
                let (time, outcome) = work(workload, fixture.root())?;
                let differences = right.differences(&outcome);
                if let Some(first) = differences.first() {
                    bail!("it came out otherwise in {} places, first: {first}", differences.len());
                }
                found.push((workload.name().to_string(), workload.describe(), time));
            }
            Self::Files(sizes) => {
                for part in Part::ALL {
                    let time = part.run(&fixture, *sizes)?;
                    found.push((part.to_string(), part.parameters(*sizes), time));
                }
            }
        }
        let crashes = crate::fixtures::crashes(&fixture)?;
        ensure!(crashes == 0, "belay counted {crashes} crashes during the measurement");
        fixture.stop()?;
        Ok(found)
    }
}

fn work(workload: &Workload, root: &Path) -> Result<(Duration, Outcome)> {
    let begin = Instant::now();
    let done = workload.work(root, &Watch::limit(LIMIT))?;
    let time = begin.elapsed();
    let outcome = workload.look(root, &done)?;
    workload.verify(&outcome)?;
    Ok((time, outcome))
}

/// Adds what was found to what there is.
fn add(run: &mut LayoutsRun, prepared: &Prepared, layout: Layout, round: usize, found: &Found) {
    for (name, parameters, time) in found {
        let at = run.benchmarks.iter().position(|one| one.name == *name).unwrap_or_else(|| {
            let cost = |layout: &Layout| Cost {
                layout: layout.to_string(),
                samples: Vec::new(),
                us: None,
                ratio: None,
            };
            run.benchmarks.push(Benchmark {
                name: name.clone(),
                parameters: parameters.clone(),
                layouts: Layout::ALL.iter().map(cost).collect(),
            });
            run.benchmarks.len() - 1
        });
        println!("{:?} {name:<17} {layout:<16} {:>9.3} s", prepared.which(), time.as_secs_f64());
        let place = Layout::ALL.iter().position(|one| *one == layout);
        let cost = place.and_then(|place| run.benchmarks[at].layouts.get_mut(place));
        if let Some(cost) = cost {
            cost.samples.push(Sample { round, us: time.as_secs_f64() * 1e6 });
        }
    }
}

/// Makes the summaries of all samples anew.
fn summarise(run: &mut LayoutsRun) {
    for benchmark in &mut run.benchmarks {
        let base = BASE.to_string();
        let base = benchmark.layouts.iter().find(|cost| cost.layout == base);
        let base = base.map(|cost| cost.samples.clone()).unwrap_or_default();
        for cost in &mut benchmark.layouts {
            let us: Vec<f64> = cost.samples.iter().map(|sample| sample.us).collect();
            let ratio = |sample: &Sample| {
                let other = base.iter().find(|other| other.round == sample.round)?;
                Some(sample.us / other.us)
            };
            let ratios: Vec<f64> = cost.samples.iter().filter_map(ratio).collect();
            cost.us = Spread::of(&us);
            cost.ratio = Spread::of(&ratios);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layout_has_each_place_in_a_round() {
        for layout in Layout::ALL {
            let place = |round| order(round).iter().position(|one| *one == layout);
            let places: std::collections::BTreeSet<_> = (0..7).map(place).collect();
            assert_eq!(places.len(), 7);
        }
    }

    #[test]
    fn ratios_are_of_one_round() {
        let sample = |round, us| Sample { round, us };
        let cost = |layout: Layout, samples| Cost {
            layout: layout.to_string(),
            samples,
            us: None,
            ratio: None,
        };
        let mut run = table::sample();
        run.benchmarks = vec![Benchmark {
            name: "postmark".into(),
            parameters: "few".into(),
            layouts: vec![
                cost(Layout::Twins(16), vec![sample(0, 20.0), sample(1, 300.0), sample(2, 7.0)]),
                cost(BASE, vec![sample(0, 10.0), sample(1, 100.0)]),
            ],
        }];
        summarise(&mut run);
        let ratio = run.benchmarks[0].layouts[0].ratio.expect("two rounds");
        assert_eq!((ratio.count, ratio.min, ratio.max), (2, 2.0, 3.0));
    }
}
