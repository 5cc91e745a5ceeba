//! `belay-bench`: what belay costs and how long a crash is felt, measured against the bare daemon in the same run.
//!
//! - `cost`: time of each operation, held against bare, in pairs ([`cost`]).
//! - `memory`: memory per cached node and fixed ([`memory`]).
//! - `blackout`: the pause that an application sees when the daemon is killed ([`blackout`]).
//! - `report`: tables, plots and CSV from the results of the others ([`report`]).
//!
//! The first three each write one results file, whose format [`model`] documents.
#![forbid(unsafe_code)]

mod beds;
mod blackout;
mod cli;
mod clients;
mod cost;
mod machine;
mod memory;
mod model;
mod nodes;
mod ops;
mod pairs;
mod probe;
mod procmem;
mod report;
mod stats;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("belay-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
