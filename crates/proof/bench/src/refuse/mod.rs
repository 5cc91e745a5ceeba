//! What holding a daemon costs whole programs: the paper's Tables 6 and 7.
//!
//! Where `cost` takes single operations apart, with caches off, this does what the Re-FUSE study
//! (EuroSys 2011) did, on daemons as users run them: files written and read 4 KiB at a time,
//! created and deleted ([`micro`]), and three programs at work (`belay-workloads`). Three sides
//! take turns: bare, held, and a second bare one as control, whose ratio to the first shows the
//! noise of the method. Their order is another one in each session; [`crate::pairs`] makes one
//! ratio of it. The kernel's caches of a mount are emptied before each sample ([`cold`]).

pub mod cold;
pub mod membrane;
pub mod micro;
pub mod model;
pub mod table;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode};
use belay_workloads::{Name, Outcome, Scale, Watch, Workload};
use clap::Args;

use crate::begun::{Begun, Common};
use crate::fixtures::{Fixtures, belay_processes};
use crate::machine;
use crate::model::{Failure, Load, Pair};
use crate::nodes::raise_open_file_limit;
use crate::pages;
use crate::pairs::summarise;
use crate::run_file::Results;
use micro::{Micro, Sizes};
use model::{RefuseCase, RefuseFixture, RefuseRun};

/// Longer than any workload should take: it hangs then.
const LIMIT: Duration = Duration::from_secs(6 * 3600);

/// Arguments of `refuse`.
#[derive(Args, Clone, Debug)]
pub struct RefuseArgs {
    #[command(flatten)]
    common: Common,
    /// Daemons, separated by commas, or `all`
    #[arg(long, default_value = "ntfs-3g,sshfs,avfs")]
    fixtures: Fixtures,
    #[command(flatten)]
    work: Work,
}

/// How much is done, in this study and in Membrane's.
#[derive(Args, Clone, Debug)]
pub struct Work {
    /// Starts of the daemons, best a multiple of six, over which the rounds of the micro-benchmarks
    /// are spread
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..))]
    sessions: u16,
    /// Pairs of samples of each micro-benchmark; 0 for none
    #[arg(long, default_value_t = 12)]
    rounds: u16,
    /// Size of the file that is read and written, in MiB (1,024 in the papers)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    file_mib: u64,
    /// Files of 1 MB that are created and deleted (1,000 in the papers)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,
    /// Pairs of runs of each macro-benchmark, best a multiple of six; 0 for none
    #[arg(long, default_value_t = 6)]
    macro_rounds: u16,
    /// The same of the build, which takes by far the longest; it goes without a control [default:
    /// as of the others]
    #[arg(long)]
    build_rounds: Option<u16>,
    /// Macro-benchmarks, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    workloads: Vec<Name>,
    /// How much work they are
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    scale: Scale,
    /// Jobs of `make`
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// Leave the control out
    #[arg(long)]
    no_control: bool,
}

impl Work {
    /// Pairs of runs of a macro-benchmark, and whether there is a control.
    fn macro_rounds_of(&self, name: Name) -> (usize, bool) {
        match (name, self.build_rounds) {
            (Name::Openssh, Some(rounds)) => (rounds.into(), false),
            _ => (self.macro_rounds.into(), !self.no_control),
        }
    }
}

/// One of the two studies.
#[derive(Clone, Copy, Debug)]
struct Study<'a> {
    /// What its results are called.
    name: &'static str,
    work: &'a Work,
    /// How its daemons are held.
    held: &'a Mode,
    /// Belay's own process may run on any CPU, wherever the others are.
    belay_anywhere: bool,
    paper: &'static table::Paper,
    results: fn(RefuseRun) -> Results,
}

/// Which of the daemons of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Bare,
    Held,
    Control,
}

impl Side {
    /// The sides of a session, in the order in which they are set up and sampled. Whoever is first,
    /// or last, may be slower by some per cent for that alone, so in six sessions (two without a
    /// control) each side has each place equally often.
    fn order(session: usize, control: bool) -> Vec<Self> {
        let mut sides = vec![Self::Bare, Self::Held];
        if control {
            sides.push(Self::Control);
            sides.rotate_left(session / 2 % 3);
        }
        if session % 2 == 1 {
            sides.reverse();
        }
        sides
    }
}

/// The samples of one benchmark, in microseconds.
#[derive(Debug, Default)]
struct Samples {
    held: Vec<Pair>,
    control: Vec<Pair>,
}

impl Samples {
    /// Adds what the sides of a round took.
    fn add(&mut self, session: usize, times: &[(Side, Duration)]) -> Result<()> {
        let find = |side| times.iter().find(|(one, _)| *one == side).map(|(_, time)| us(*time));
        let bare_us = find(Side::Bare).context("the bare side was not sampled")?;
        let place = |side| times.iter().position(|(one, _)| *one == side);
        let held_first = place(Side::Held) < place(Side::Bare);
        let pair = |held_us| Pair { bare_us, held_us, session, held_first };
        self.held.extend(find(Side::Held).map(pair));
        self.control.extend(find(Side::Control).map(pair));
        Ok(())
    }

    fn case(self, table: u8, name: &str, parameters: String) -> Option<RefuseCase> {
        Some(RefuseCase {
            table,
            parameters,
            control: summarise(name.to_owned(), 1, 1, self.control),
            result: summarise(name.to_owned(), 1, 1, self.held)?,
        })
    }
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Measures, and writes `refuse.json` and `refuse.md`; false where something could not be measured.
pub fn run(args: &RefuseArgs) -> Result<bool> {
    let study = Study {
        name: "refuse",
        work: &args.work,
        held: &Mode::held(),
        belay_anywhere: false,
        paper: &table::REFUSE,
        results: Results::Refuse,
    };
    study.run(&args.common, &args.fixtures)
}

impl Study<'_> {
    fn run(&self, common: &Common, fixtures: &Fixtures) -> Result<bool> {
        let args = self.work;
        let names =
            if args.workloads.is_empty() { Name::ALL.to_vec() } else { args.workloads.clone() };
        let mut workloads = Vec::new();
        if args.macro_rounds > 0 {
            for name in names {
                workloads.push(Workload::new(name, args.scale, 1, args.jobs)?);
            }
        }
        let begun = Begun::new(common, self.name)?;
        let mut run = RefuseRun {
            scale: args.scale,
            rounds: args.rounds.into(),
            sessions: args.sessions.into(),
            macro_rounds: args.macro_rounds.into(),
            belay_anywhere: self.belay_anywhere,
            fixtures: Vec::new(),
        };
        let mut page = String::new();
        for kind in &fixtures.0 {
            let mut fixture = RefuseFixture {
                fixture: kind.to_string(),
                load: Load { before: machine::load(), after: 0.0 },
                cases: Vec::new(),
                unable: Vec::new(),
                failures: Vec::new(),
            };
            if let Err(error) = self.measure(*kind, &workloads, &mut fixture) {
                fixture.failures.push(Failure::new(kind, &error));
            }
            fixture.load.after = machine::load();
            fixture.cases.iter().for_each(|case| println!("{kind:<10} {}", table::line(case)));
            run.fixtures.push(fixture);
            page = begun.write_with_page((self.results)(run.clone()), pages::page_of)?;
        }
        println!("{page}\nresults: {}", begun.path().display());
        Ok(run.fixtures.iter().all(|fixture| fixture.failures.is_empty()))
    }

    fn measure(
        &self,
        kind: Kind,
        workloads: &[Workload],
        fixture: &mut RefuseFixture,
    ) -> Result<()> {
        if self.work.rounds > 0 {
            self.measure_micro(kind, fixture)?;
        }
        for workload in workloads {
            let what = format!("{kind}, {}", workload.name());
            let rounds = self.work.macro_rounds_of(workload.name());
            // Not counted: it finds the programs themselves on a cold disk. Its outcome is every
            // later one's oracle.
            let right = match self.once(kind, Side::Bare, workload).context("the first run, bare") {
                Ok((_, right)) => right,
                // There are daemons that do not do what every program takes for granted.
                Err(error) if kind.work() == belay_fixtures::zoo::Work::WholeFiles => {
                    fixture.unable.push(Failure::new(what, &error));
                    continue;
                }
                Err(error) => {
                    fixture.failures.push(Failure::new(what, &error));
                    continue;
                }
            };
            match self.measure_macro(kind, rounds, workload, &right) {
                Ok(case) => fixture.cases.extend(case),
                Err(error) => fixture.failures.push(Failure::new(what, &error)),
            }
        }
        Ok(())
    }

    fn start(&self, kind: Kind, side: Side, image_mib: u64) -> Result<Fixture> {
        raise_open_file_limit()?;
        // As users run it: with its own caches, and the kernel's.
        let options = FixtureOptions { image_mib, ..FixtureOptions::default() };
        let mode = if side == Side::Held { self.held } else { &Mode::Bare };
        let fixture = Fixture::start(kind, mode, &options)?;
        if self.belay_anywhere
            && let Some(belay) = belay_processes(&fixture)?.supervisor
        {
            machine::unpin(belay)?;
        }
        Ok(fixture)
    }

    fn measure_micro(&self, kind: Kind, result: &mut RefuseFixture) -> Result<()> {
        let args = self.work;
        let sizes = Sizes { file: args.file_mib << 20, files: args.files, each: 1_000_000 };
        let mut samples: Vec<(Micro, Samples)> =
            Micro::ALL.iter().map(|micro| (*micro, Samples::default())).collect();
        let (rounds, sessions) = (usize::from(args.rounds), usize::from(args.sessions));
        for session in 0..sessions {
            let order = Side::order(session, !args.no_control);
            let fixtures: Vec<(Side, Fixture)> = order
                .iter()
                .map(|side| {
                    Ok((*side, self.start(kind, *side, 256 + (sizes.bytes() >> 20) * 5 / 4)?))
                })
                .collect::<Result<_>>()?;
            // The first round warms the daemons up and is not counted.
            for round in 0..=rounds * (session + 1) / sessions - rounds * session / sessions {
                for (micro, samples) in &mut samples {
                    let mut times = Vec::new();
                    for (side, fixture) in &fixtures {
                        cold::empty_caches(fixture)?;
                        let time = micro.run(fixture.root(), sizes);
                        times.push((
                            *side,
                            time.with_context(|| format!("{micro} on the {side:?} mount"))?,
                        ));
                    }
                    if round > 0 {
                        samples.add(session, &times)?;
                    }
                }
            }
            for (_, fixture) in fixtures {
                let crashes = crate::fixtures::crashes(&fixture)?;
                ensure!(crashes == 0, "belay counted {crashes} crashes during the measurement");
                fixture.stop()?;
            }
        }
        let cases = samples.into_iter().filter_map(|(micro, samples)| {
            samples.case(self.paper.micro, &micro.to_string(), micro.parameters(sizes))
        });
        result.cases.extend(cases);
        result.cases.sort_by_key(|case| micro::row(&case.result.op));
        Ok(())
    }

    /// A round of a macro-benchmark is a session of its own: it leaves a file system in which it
    /// cannot be repeated.
    fn measure_macro(
        &self,
        kind: Kind,
        (rounds, control): (usize, bool),
        workload: &Workload,
        right: &Outcome,
    ) -> Result<Option<RefuseCase>> {
        let mut samples = Samples::default();
        for session in 0..rounds {
            let mut times = Vec::new();
            for side in Side::order(session, control) {
                let (time, outcome) = self
                    .once(kind, side, workload)
                    .with_context(|| format!("round {}, {side:?}", session + 1))?;
                let found = right.differences(&outcome);
                if let Some(first) = found.first() {
                    bail!("{side:?} came out otherwise in {} places, first: {first}", found.len());
                }
                times.push((side, time));
            }
            samples.add(session, &times)?;
            let told: Vec<_> = times
                .iter()
                .map(|(side, time)| format!("{side:?} {:.2} s", time.as_secs_f64()))
                .collect();
            println!(
                "{kind:<10} {:<10} round {}: {}",
                workload.name(),
                session + 1,
                told.join(", ")
            );
        }
        Ok(samples.case(self.paper.whole, &workload.name().to_string(), workload.describe()))
    }

    fn once(&self, kind: Kind, side: Side, workload: &Workload) -> Result<(Duration, Outcome)> {
        let fixture = self.start(kind, side, workload.image_mib())?;
        workload.setup(fixture.root())?;
        cold::empty_caches(&fixture)?;
        let begin = Instant::now();
        let done = workload.work(fixture.root(), &Watch::limit(LIMIT))?;
        let time = begin.elapsed();
        let outcome = workload.look(fixture.root(), &done)?;
        workload.verify(&outcome)?;
        let crashes = crate::fixtures::crashes(&fixture)?;
        ensure!(crashes == 0, "belay counted {crashes} crashes during the measurement");
        fixture.stop()?;
        Ok((time, outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns() {
        assert_eq!(Side::order(0, true), [Side::Bare, Side::Held, Side::Control]);
        assert_eq!(Side::order(1, true), [Side::Control, Side::Held, Side::Bare]);
        assert_eq!(Side::order(3, false), [Side::Held, Side::Bare]);
        for side in [Side::Bare, Side::Held, Side::Control] {
            for place in 0..3 {
                let there = |session: &usize| Side::order(*session, true).get(place) == Some(&side);
                assert_eq!((0..6).filter(there).count(), 2, "{side:?} in place {place}");
            }
        }
    }

    #[test]
    fn samples_become_ratios_to_the_bare_side_of_their_round() {
        let ms = Duration::from_millis;
        let mut samples = Samples::default();
        for (session, bare) in [(0, 100), (1, 200)] {
            let times = [
                (Side::Bare, ms(bare)),
                (Side::Held, ms(bare + bare / 10)),
                (Side::Control, ms(bare)),
            ];
            samples.add(session, &times).unwrap();
        }
        let case = samples.case(7, "sort", String::new()).unwrap();
        assert!((case.result.estimate.ratio - 1.1).abs() < 1e-9);
        assert!((case.control.unwrap().estimate.ratio - 1.0).abs() < 1e-9);
        assert!(Samples::default().add(0, &[(Side::Held, ms(1))]).is_err());
    }
}
