//! `belay-chaos`: the differential soak, the demo and the test suites, all under fire.
#![forbid(unsafe_code)]

mod compare;
mod demo;
mod exec;
mod generate;
mod interrupt;
mod killer;
mod ops;
mod pool;
mod report;
mod soak;
mod study;
mod suite;
mod worker;

use std::process::ExitCode;

use anyhow::Result;
use belay_study::tree;
use clap::{Parser, Subcommand};

/// Kills the daemons of held mounts and checks that nobody notices.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Drive the same random operations against a held mount under fire and against an oracle, and compare
    ///
    /// Every result is compared as it comes, and the trees at the end. The sequence depends on seed and number of
    /// processes alone, so a divergence can be replayed; the moments of the kills are new each time.
    Soak(soak::SoakArgs),
    /// Show it: real work on a real sshfs whose daemon is killed again and again
    Demo(demo::DemoArgs),
    /// Run a file system test suite on the bare daemon and on the held mount under fire, and compare test by test
    Suite(suite::SuiteArgs),
    /// Crash daemons systematically, and tabulate what applications and file systems see of it
    Study(study::StudyArgs),
    /// Carry out operations for a soak (started by it)
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

fn main() -> ExitCode {
    let result: Result<bool> = match Cli::parse().command {
        Command::Soak(args) => soak::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Suite(args) => suite::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Worker(args) => worker::serve(&args).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("belay-chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}
