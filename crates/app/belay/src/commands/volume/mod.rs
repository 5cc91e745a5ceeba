//! `belay volume`: file systems of belay's own.

mod check;
mod create;
mod dump;
mod forget;
mod list;
mod open;
mod signature;

use crate::cli::volume::Command;
use anyhow::Result;

/// Runs it.
pub fn run(command: &Command) -> Result<i32> {
    match command {
        Command::Create(options) => create::run(options),
        Command::List(options) => list::run(options),
        Command::Check(options) => check::run(options),
        Command::Dump(options) => dump::run(options),
        Command::Forget(options) => forget::run(options),
    }
}
