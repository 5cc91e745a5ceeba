//! `belay volume`: file systems of belay's own.

mod check;
mod create;
mod cut_log;
mod dump;
mod forget;
mod import;
mod list;
mod mount;
mod open;
pub(super) mod which;

pub use mount::place_of;

use super::{status, stop};
use crate::cli::volume::Command;
use crate::cli::{Status, Stop};
use anyhow::Result;

/// Runs it.
pub fn run(command: &Command) -> Result<i32> {
    match command {
        Command::Create(options) => create::run(options),
        Command::Import(options) => import::run(options),
        Command::Mount(options) => mount::run(options),
        Command::Umount(options) => umount(options),
        Command::Status(options) => show(options),
        Command::List(options) => list::run(options),
        Command::Check(options) => check::run(options),
        Command::CutLog(options) => cut_log::run(options),
        Command::Dump(options) => dump::run(options),
        Command::Forget(options) => forget::run(options),
    }
}

fn umount(options: &Stop) -> Result<i32> {
    let mount = which::mountpoint(&options.state, &options.mount)?;
    stop::run(&Stop { mount, ..options.clone() })
}

fn show(options: &Status) -> Result<i32> {
    let mount = options.mount.as_ref().map(|meant| which::mountpoint(&options.state, meant));
    status::run(&Status { mount: mount.transpose()?, ..options.clone() })
}
