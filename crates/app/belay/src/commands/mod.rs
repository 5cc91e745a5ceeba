//! The commands, each a function from its options to an exit code.

mod background;
mod checkpoint;
mod crash;
mod manual;
pub(crate) mod mounts;
mod processes;
mod qualify;
mod repair;
mod run;
mod status;
mod stop;
mod volume;

use crate::cli::Command;
use anyhow::Result;

/// Runs a command; gives the exit code.
///
/// # Errors
/// What went wrong, for people.
pub fn run(command: Command) -> Result<i32> {
    match command {
        Command::Run(options) => run::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Stop(options) => stop::run(&options),
        Command::Crash(options) => crash::run(&options),
        Command::Restart(options) => crash::restart(&options),
        Command::Checkpoint(options) => checkpoint::run(&options),
        Command::Replay(options) => crate::replay::run(&options),
        Command::Qualify(options) => qualify::run(&options),
        Command::Repair(options) => repair::run(&options),
        Command::Volume(options) => volume::run(&options.command),
        Command::Doctor(options) => crate::doctor::run(&options),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { command, dir } => manual::run(&command, dir.as_deref()),
        Command::Supervise(_) => Ok(belay_supervisor::supervisor::run()?),
        Command::Autopsy => Ok(belay_supervisor::autopsy::apart::run()?),
        Command::Scout => Ok(belay_supervisor::scout::errand::run()?),
        Command::Relay { held, mountpoint, instead, program, command } => {
            let standin = mountpoint.zip(instead);
            let standin =
                standin.map(|(mountpoint, instead)| belay_relay::Standin { mountpoint, instead });
            match belay_relay::run(&belay_relay::Daemon { program, held, command, standin })? {}
        }
        Command::VolumeStore(options) => processes::store(options),
        Command::VolumeCache(options) => processes::cache(&options),
        Command::VolumeNamespace(options) => processes::namespace(&options),
        Command::Ask { parent, mount } => {
            belay_supervisor::asker::ask(parent, &mount)?;
            Ok(0)
        }
        Command::Keep(_) => Ok(belay_supervisor::keeper::run_inherited()?),
    }
}
