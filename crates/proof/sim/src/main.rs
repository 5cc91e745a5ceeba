//! `belay-sim`: simulates until so many operations were compared, and says how many there were.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use belay_seeds::{Plan, Share, simulate};
use belay_sim::scenario::{Scenario, Tally};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Simulates applications, a kernel, and daemons that die at any step, around the host that ships
///
/// Each result that an application gets is compared with that of a file system in which nobody
/// dies. The seed decides everything; a run that goes wrong prints the command that repeats it.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// Go on until so many operations of applications were compared
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
    threads: Option<usize>,
    /// Write what was simulated to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn named(name: String) -> Scenario {
    let found = Scenario::ALL.into_iter().find(|scenario| scenario.name() == name);
    found.expect("the parser takes no other name")
}

/// What the result file holds.
#[derive(Debug, Default, Serialize)]
struct Results {
    schema_version: u32,
    first_seed: u64,
    operations: u64,
    scenarios: BTreeMap<&'static str, Counts>,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    seeds: u64,
    #[serde(flatten)]
    tally: Tally,
}

fn run(cli: &Cli) -> Result<()> {
    let scenarios = if cli.scenario.is_empty() { &Scenario::ALL[..] } else { &cli.scenario };
    let plan = Plan { operations: cli.operations, first_seed: cli.seed, threads: cli.threads };
    let (shares, is_right) = simulate(plan, scenarios, |scenario, seed, _| {
        let name = scenario.name();
        format!(
            "belay-sim: seed {seed} of {name} goes wrong; again: BELAY_TRACE=1 belay-sim --scenario {name} --seed {seed} \
             --operations 1 --threads 1"
        )
    })?;
    let mut results = Results { schema_version: 1, first_seed: cli.seed, ..Results::default() };
    for Share { scenario, seeds, tally, .. } in shares {
        let name = scenario.name();
        println!(
            "{name}: {} seeds, {} simulations, {} operations, {} crashes at one of {} steps",
            seeds, tally.simulations, tally.operations, tally.crashes, tally.steps
        );
        results.operations += tally.operations;
        results.scenarios.insert(name, Counts { seeds, tally });
    }
    if !is_right {
        bail!("what an application saw differs from what it would have seen without a crash");
    }
    println!("{} operations: all as they should be", results.operations);
    let Some(path) = &cli.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&results)? + "\n";
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn main() -> ExitCode {
    // Deaths of simulated daemons unwind without a hook; what this prints is wrong.
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("belay-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
