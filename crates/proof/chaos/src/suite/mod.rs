//! Test suites for file systems, on the bare daemon and on the held mount under fire.

mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, Signal, parse_signal};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use crate::killer::{self, Plan, Toll};
use crate::report::Blackout;

/// Which suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// pjdfstest, the Rust one: what POSIX says of names, rights and times.
    Pjdfstest,
    /// fsx: random reads, writes, maps and truncations of one file, checked against memory.
    Fsx,
}

/// Arguments of `suite`.
#[derive(Clone, Debug, clap::Args)]
pub struct SuiteArgs {
    /// The suite
    #[arg(long, value_enum)]
    suite: Suite,
    /// Daemons, by name, separated by commas
    #[arg(long = "fixtures", alias = "fixture", value_delimiter = ',', default_values_t = Kind::SIX)]
    fixtures: Vec<Kind>,
    /// How often to run it on each side
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// fsx: operations per run
    #[arg(long, default_value_t = 10_000)]
    ops: u64,
    /// Seed of fsx's operations and of the kills
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mean time between a successor's first answer and its death
    #[arg(long, value_parser = humantime::parse_duration, default_value = "50ms")]
    every: Duration,
    /// Signals to kill with
    #[arg(long, value_delimiter = ',', value_parser = parse_signal, default_value = "KILL,SEGV,ABRT")]
    signals: Vec<Signal>,
    /// Do not kill
    #[arg(long)]
    no_kills: bool,
    /// Compare the bare daemon with itself, without kills
    #[arg(long, conflicts_with = "belay_args")]
    bare: bool,
    /// How long one run may take
    #[arg(long, value_parser = humantime::parse_duration, default_value = "15m")]
    timeout: Duration,
    /// Where to make the fixtures [default: /dev/shm]
    #[arg(long)]
    workdir: Option<PathBuf>,
    /// Further argument for `belay run` (repeatable)
    #[arg(long = "belay-arg", allow_hyphen_values = true)]
    belay_args: Vec<String>,
}

/// How often the bare daemon is asked again about a test that differs.
const SECOND_LOOKS: u32 = 20;

/// What each test came to, in each run.
type Results = BTreeMap<String, BTreeSet<String>>;

/// Runs a suite on both sides of each fixture; true if they agree.
pub fn run(args: &SuiteArgs) -> Result<bool> {
    let tools = tools::Tools::ready()?;
    let mut agree = true;
    for kind in &args.fixtures {
        let options = FixtureOptions { workdir: args.workdir.clone(), ..FixtureOptions::default() };
        let fixture = Fixture::start(*kind, &undisturbed(args, *kind), &options)?;
        let mut bare = repeat(args, &tools, &fixture, "bare")?;
        fixture.stop()?;
        if kind.is_volume() {
            // Nobody else's quirks are in it: what fails is its own fault.
            let is_fine = |result: &String| {
                ["ok", "skipped"].iter().any(|fine| result.eq_ignore_ascii_case(fine))
            };
            for (test, results) in bare.iter().filter(|(_, results)| !results.iter().all(is_fine)) {
                println!("  {test}: {results:?}, though nobody is killed");
                agree = false;
            }
        }
        let mode = if args.bare { Mode::Bare } else { killer::held(&args.belay_args) };
        let before = Instant::now();
        let fixture = Fixture::start(*kind, &mode, &options)?;
        let (held, toll) = under_fire(args, &tools, &fixture, before.elapsed())?;
        let blackout =
            fixture.belay_status().map(|status| Blackout::of(&status)).unwrap_or_default();
        let words = fixture.last_words();
        if args.suite == Suite::Pjdfstest {
            second_look(args, &tools, *kind, &options, &mut bare, &held)?;
        }
        let (better, found): (Vec<_>, Vec<_>) = differences(&bare, &held)
            .into_iter()
            .partition(|(test, _)| only_better(&bare, &held, test));
        let found: Vec<_> = found.iter().map(|(test, how)| format!("{test}: {how}")).collect();
        let passed = bare.values().filter(|seen| seen.contains("ok")).count();
        println!(
            "{:?} on {kind}: {} tests, {passed} pass bare; held: {} kills, {} differences; blackout {blackout}",
            args.suite,
            bare.len(),
            toll.kills(),
            found.len(),
        );
        for line in &found {
            println!("  {line}");
        }
        for (test, _) in &better {
            // Such as files that are open and unlinked, which belay keeps better than some daemons.
            let times =
                if held.get(test).is_some_and(|seen| seen.len() > 1) { " at times" } else { "" };
            println!("  {test}: fails bare, passes held{times}");
        }
        if let Some(why) = toll.failure() {
            println!("  the killer gave up: {why}{words}");
        }
        if found.is_empty() && toll.failure().is_none() {
            fixture.stop()?;
        } else {
            agree = false;
        }
    }
    Ok(agree)
}

/// The side that is compared with: the bare daemon, or a volume of which nobody kills anything.
fn undisturbed(args: &SuiteArgs, kind: Kind) -> Mode {
    match kind {
        Kind::Volume | Kind::VolumeInPlace => killer::held(&args.belay_args),
        _ => Mode::Bare,
    }
}

fn under_fire(
    args: &SuiteArgs,
    tools: &tools::Tools,
    fixture: &Fixture,
    start: Duration,
) -> Result<(Results, Toll)> {
    let plan = Plan {
        seed: args.seed,
        every: args.every,
        start,
        signals: args.signals.clone(),
        limit: None,
        progress: None,
    };
    let toll = Toll::default();
    let results = std::thread::scope(|scope| {
        if !(args.no_kills || args.bare) {
            scope.spawn(|| killer::run(fixture, &plan, &toll));
        }
        let results = repeat(args, tools, fixture, "held");
        toll.stop.ask();
        results
    });
    Ok((results?, toll))
}

/// Runs the suite as often as asked for.
fn repeat(
    args: &SuiteArgs,
    tools: &tools::Tools,
    fixture: &Fixture,
    side: &str,
) -> Result<Results> {
    let mut all = Results::new();
    let bar = ProgressBar::new(u64::from(args.repeat));
    let style = ProgressStyle::with_template("{prefix} {bar:20} {pos}/{len} runs {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(format!("{} {side}", fixture.kind()));
    for run in 0..args.repeat {
        bar.set_position(u64::from(run));
        let results = match args.suite {
            Suite::Pjdfstest => tools.pjdfstest(fixture.root(), None, args.timeout),
            Suite::Fsx => {
                tools.fsx(fixture.root(), args.seed + u64::from(run), args.ops, args.timeout)
            }
        };
        for (test, result) in
            results.with_context(|| format!("running {:?} on the {side} daemon", args.suite))?
        {
            all.entry(test).or_default().insert(result);
        }
    }
    bar.finish_and_clear();
    Ok(all)
}

/// Some tests come out now so, now otherwise on the bare daemon too (`open::etxtbsy` depends on
/// when the kernel releases a closed file). A test that differs is run on the bare daemon some more
/// times before it counts.
fn second_look(
    args: &SuiteArgs,
    tools: &tools::Tools,
    kind: Kind,
    options: &FixtureOptions,
    bare: &mut Results,
    held: &Results,
) -> Result<()> {
    let doubtful = differences(bare, held);
    if doubtful.is_empty() {
        return Ok(());
    }
    let fixture = Fixture::start(kind, &undisturbed(args, kind), options)?;
    for (test, _) in &doubtful {
        for _ in 0..SECOND_LOOKS {
            for (name, result) in tools.pjdfstest(fixture.root(), Some(test), args.timeout)? {
                bare.entry(name).or_default().insert(result);
            }
        }
    }
    fixture.stop()
}

/// Tests that came out on the held mount as they never did on the bare one.
fn differences(bare: &Results, held: &Results) -> Vec<(String, String)> {
    let none = BTreeSet::new();
    let tests: BTreeSet<&String> = bare.keys().chain(held.keys()).collect();
    let mut found = Vec::new();
    for test in tests {
        let (bare, held) = (bare.get(test).unwrap_or(&none), held.get(test).unwrap_or(&none));
        if held.is_empty() || !held.is_subset(bare) {
            found.push((test.clone(), format!("bare {bare:?}, held {held:?}")));
        }
    }
    found
}

/// Whether a test came out on the held mount as on the bare one, or passed. On sshfs, which knows
/// whole seconds only, tests of times pass if a blackout happens to take them over the end of one.
fn only_better(bare: &Results, held: &Results, test: &str) -> bool {
    let known = |result: &String| bare.get(test).is_some_and(|seen| seen.contains(result));
    held.get(test).is_some_and(|seen| seen.iter().all(|result| result == "ok" || known(result)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(list: &[(&str, &[&str])]) -> Results {
        list.iter()
            .map(|(k, v)| ((*k).to_owned(), v.iter().map(|s| (*s).to_owned()).collect()))
            .collect()
    }

    #[test]
    fn differences_are_what_bare_never_showed() {
        let bare = results(&[
            ("a", &["ok"]),
            ("b", &["FAILED"]),
            ("c", &["ok", "FAILED"]),
            ("d", &["ok"]),
        ]);
        assert!(differences(&bare, &bare).is_empty());
        let held = results(&[("a", &["ok", "FAILED"]), ("b", &["FAILED"]), ("c", &["ok"])]);
        let found = differences(&bare, &held);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].0 == "a" && found[1].0 == "d");
    }

    #[test]
    fn what_passes_held_is_only_better() {
        let bare = results(&[("a", &["FAILED"]), ("b", &["FAILED"]), ("c", &["skipped"])]);
        let held = results(&[("a", &["FAILED", "ok"]), ("b", &["ok"]), ("c", &["FAILED", "ok"])]);
        assert_eq!(differences(&bare, &held).len(), 3);
        assert!(only_better(&bare, &held, "a") && only_better(&bare, &held, "b"));
        assert!(!only_better(&bare, &held, "c"));
        assert!(!only_better(&bare, &Results::new(), "a"), "a test that is missing");
    }
}
