//! `belay-volume-sim`: simulates volumes until so many operations were compared, and says what came
//! of it.
#![forbid(unsafe_code)]

mod page;

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::page::write_or_check;
use belay_seeds::{Plan, Share, simulate};
use belay_volume_sim::sabotage::Sabotage;
use belay_volume_sim::scenario::{Scenario, first_found};
use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use page::{Counts, Found, Results};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Seeds that are looked through for what is done wrong on purpose.
const SEEDS: u64 = 200;

/// Simulates volumes whose processes die at any step, whose power fails at any write, and whose
/// disks do everything wrong
///
/// What is read is compared with a plain directory, or with a model. The seed decides everything; a
/// run that goes wrong prints the command that repeats it.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// Go on until so many operations were compared
    #[arg(long, default_value_t = 10_000_000)]
    operations: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What is simulated; all, unless some are given
    #[arg(long, value_parser = PossibleValuesParser::new(Scenario::ALL.map(Scenario::name)).map(named))]
    scenario: Vec<Scenario>,
    /// Threads that simulate; by default, as many as there are CPUs
    #[arg(long)]
    jobs: Option<usize>,
    /// Write what was simulated to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page about it to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Simulate nothing: look whether the page is what these results, written by `--json` before,
    /// come to
    #[arg(long, value_name = "RESULTS", requires = "page", conflicts_with = "json")]
    check: Option<PathBuf>,
    /// Simulate nothing: write the page from these results, written by `--json` before
    #[arg(long, value_name = "RESULTS", requires = "page", conflicts_with_all = ["json", "check"])]
    from: Option<PathBuf>,
}

fn named(name: String) -> Scenario {
    let found = Scenario::ALL.into_iter().find(|scenario| scenario.name() == name);
    found.expect("the parser takes no other name")
}

/// How the page is written.
const AGAIN: &str = "belay-volume-sim --from RESULTS --page PAGE";

/// Writes a page as results say it, or looks whether it is so.
fn write_page(results: &Path, page: &Path, looks: bool) -> Result<()> {
    let text = std::fs::read_to_string(results);
    let text = text.with_context(|| format!("reading {}", results.display()))?;
    let found = serde_json::from_str(&text);
    let found = found.with_context(|| format!("reading {}", results.display()))?;
    let is_true = write_or_check(page, &page::render(&found)?, looks, || AGAIN.to_owned())?;
    ensure!(is_true, "{} is not what {} says", page.display(), results.display());
    Ok(())
}

fn run(cli: &Cli) -> Result<()> {
    if let (Some(results), Some(page)) = (&cli.check, &cli.page) {
        return write_page(results, page, true);
    }
    if let (Some(results), Some(page)) = (&cli.from, &cli.page) {
        return write_page(results, page, false);
    }
    let scenarios = if cli.scenario.is_empty() { &Scenario::ALL[..] } else { &cli.scenario };
    let plan = Plan { operations: cli.operations, first_seed: cli.seed, threads: cli.jobs };
    let (shares, is_right) = simulate(plan, scenarios, |scenario, seed, why| {
        let name = scenario.name();
        format!(
            "belay-volume-sim: seed {seed} of {name}: {why}\nagain: belay-volume-sim --scenario {name} --seed {seed} \
             --operations 1 --jobs 1"
        )
    })?;
    let (first_seed, asked) = (cli.seed, cli.operations);
    let mut results = Results { schema_version: 1, first_seed, asked, ..Results::default() };
    for Share { scenario, seeds, tally: outcome, .. } in shares {
        let name = scenario.name();
        println!("{name}: {} operations with {seeds} seeds", outcome.operations);
        results.operations += outcome.operations;
        results.scenarios.insert(name.to_owned(), Counts { seeds, outcome });
    }
    if !is_right {
        bail!("something differs from what it must be");
    }
    println!("{} operations: all as they should be", results.operations);
    if cli.json.is_none() && cli.page.is_none() {
        return Ok(());
    }
    for sabotage in Sabotage::ALL {
        let Some((seed, why)) = first_found(Some(sabotage), SEEDS) else {
            bail!("this was done wrong on purpose, and not found: {}", sabotage.words());
        };
        let said = why.lines().next().unwrap_or_default().chars().take(60).collect();
        results.on_purpose.push(Found { what: sabotage.words().to_owned(), seed, said });
    }
    if let Some(path) = &cli.json {
        write(path, &(serde_json::to_string_pretty(&results)? + "\n"))?;
    }
    match &cli.page {
        Some(path) => write(path, &page::render(&results)?),
        None => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("belay-volume-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
