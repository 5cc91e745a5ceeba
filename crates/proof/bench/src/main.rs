//! `belay-bench`: what belay costs and how long a crash is felt, measured against the bare daemon
//! in the same run.
//!
//! - `cost`: time of each operation, held against bare, in pairs ([`cost`]).
//! - `path`: what belay itself adds to a request, without a kernel ([`path`]).
//! - `carry`: what it costs to bring a message through a relay, copied and spliced ([`carry`]).
//! - `memory`: memory per cached node and fixed ([`memory`]).
//! - `blackout`: the pause that an application sees when the daemon is killed ([`blackout`]).
//! - `refuse`: time of whole programs, as in the paper's Tables 6 and 7 ([`refuse`]).
//! - `restart`: what one crash costs a program, as in its Table 8 ([`restart`]).
//! - `membrane`: the same of daemons that buffer, as in Membrane's Tables 4 and 5
//!   ([`refuse::membrane`]).
//! - `recovery`: how long a recovery takes by how much there is to be recovered, as in its Table 6
//!   ([`recovery`]).
//! - `layouts`: what layouts of volumes cost and survive, as in Loris's Tables I and II
//!   ([`layouts`]).
//! - `report`: tables, plots and CSV from the results of the others ([`report`]).
//!
//! All but the last each write one results file, whose format [`run_file`] documents.
#![forbid(unsafe_code)]

mod begun;
mod blackout;
mod carry;
mod cli;
mod clients;
mod cost;
mod fixtures;
mod layouts;
mod machine;
mod memory;
mod model;
mod nodes;
mod ops;
mod pages;
mod pairs;
mod path;
mod probe;
mod procmem;
mod recovery;
mod refuse;
mod report;
mod restart;
mod run_file;
mod stats;
mod words;

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
