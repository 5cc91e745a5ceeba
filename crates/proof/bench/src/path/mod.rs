//! What belay itself adds to a request: nanoseconds and instructions, without kernel, daemon or
//! shim.
//!
//! The host that ships is driven as the shim drives it, by requests and replies that are data. What
//! it takes to make these is measured alone ("bare") and taken off. Instructions are counted by
//! callgrind, in a run of this program for each figure: from one machine to the next they are the
//! same, which nanoseconds are not.

mod count;
mod driver;
pub mod model;
mod requests;
mod step;
mod still;

use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use self::driver::{Driver, Side};
use self::model::{PathCase, PathRun};
use self::requests::Kind;
use crate::begun::{Begun, Common};
use crate::model::Failure;
use crate::run_file::Results;
use crate::stats::Spread;

/// How often the nanoseconds of each kind are measured, bare and held in turn.
const ROUNDS: usize = 15;

/// The arguments of `belay-bench path`.
#[derive(Args)]
pub struct PathArgs {
    #[command(flatten)]
    common: Common,
    /// Operations of each kind in one sample
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Nanoseconds alone; for instructions valgrind must be installed
    #[arg(long)]
    no_instructions: bool,
}

/// The arguments of a run of this program whose instructions are counted.
#[derive(Args)]
pub struct CountedArgs {
    kind: Kind,
    side: Side,
    operations: u64,
}

/// Does so many operations, and nothing else.
pub fn run_counted(args: &CountedArgs) -> Result<bool> {
    let mut driver = Driver::new(args.kind, args.side)?;
    for number in 0..args.operations {
        driver.operate(number);
    }
    Ok(true)
}

/// Whether an operation of this name changes something; `None` if there is none.
pub fn changes(operation: &str) -> Option<bool> {
    Kind::from_str(operation, false).ok().map(Kind::changes)
}

/// Measures all kinds of requests.
pub fn run(args: &PathArgs) -> Result<bool> {
    let begun = Begun::new(&args.common, "path")?;
    let mut run =
        PathRun { count: args.count, rounds: ROUNDS, cases: Vec::new(), failures: Vec::new() };
    println!("{:<20} {:>8} {:>12} {:>14}", "operation", "requests", "ns/request", "instr./request");
    for kind in Kind::all() {
        let instructions = match args.no_instructions {
            true => None,
            false => match count::instructions(kind) {
                Ok(instructions) => Some(instructions / f64::from(kind.requests())),
                Err(error) => {
                    run.failures.push(Failure::new(kind, &error));
                    None
                }
            },
        };
        let ns = nanoseconds(kind, args.count)?;
        let shown = instructions.map_or("-".to_owned(), |count| format!("{count:.0}"));
        println!("{:<20} {:>8} {:>12.0} {shown:>14}", kind.to_string(), kind.requests(), ns.median);
        run.cases.push(PathCase {
            operation: kind.to_string(),
            requests: kind.requests(),
            ns,
            instructions,
        });
        begun.write(Results::Path(run.clone()))?;
    }
    for Failure { what, error } in &run.failures {
        eprintln!("belay-bench: {what}: {error}");
    }
    println!("results: {}", begun.path().display());
    Ok(run.failures.is_empty())
}

/// What belay adds to a request of this kind, in nanoseconds.
fn nanoseconds(kind: Kind, count: u64) -> Result<Spread> {
    let mut sides = [Driver::new(kind, Side::Bare)?, Driver::new(kind, Side::Held)?];
    let mut added = Vec::new();
    // The first round brings memory and caches to where they stay.
    for round in 0..=ROUNDS as u64 {
        let [bare, held] = sides.each_mut().map(|driver| {
            let start = Instant::now();
            for number in round * count..(round + 1) * count {
                driver.operate(number);
            }
            start.elapsed().as_nanos() as f64
        });
        if round > 0 {
            added.push((held - bare) / (count as f64 * f64::from(kind.requests())));
        }
    }
    Spread::of(&added).context("no samples")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_of_each_kind_is_served() -> Result<()> {
        for kind in Kind::all() {
            let mut driver = Driver::new(kind, Side::Held)?;
            for number in 0..300 {
                driver.operate(number);
            }
            let (made, served) = driver.served();
            // LOOKUP and OPEN come before, and FORGETs are not counted.
            assert_eq!(made, 300 * u64::from(kind.requests()) + 2, "{kind}");
            let forgets = matches!(kind, Kind::CreateUnlink | Kind::MkdirRmdir);
            assert_eq!(served, Some(made - if forgets { 300 } else { 0 }), "{kind}");
        }
        Ok(())
    }
}
