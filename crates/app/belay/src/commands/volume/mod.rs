//! `belay volume`: file systems of belay's own.

mod check;
mod create;
mod cut_log;
mod dump;
mod forget;
mod list;
mod mount;
mod open;
mod signature;

pub use mount::place_of;

use super::{status, stop};
use crate::cli::volume::Command;
use anyhow::Result;

/// Runs it.
pub fn run(command: &Command) -> Result<i32> {
    match command {
        Command::Create(options) => create::run(options),
        Command::Mount(options) => mount::run(options),
        Command::Umount(options) => stop::run(options),
        Command::Status(options) => status::run(options),
        Command::List(options) => list::run(options),
        Command::Check(options) => check::run(options),
        Command::CutLog(options) => cut_log::run(options),
        Command::Dump(options) => dump::run(options),
        Command::Forget(options) => forget::run(options),
    }
}
