//! The program `belay`, which holds the mount of a FUSE daemon through the daemon's crashes. It is
//! a library as well so that what reads the files of others can be fuzzed.
//!
//! | module | answers |
//! | --- | --- |
//! | [`cli`] | what can be asked for |
//! | [`commands`] | each command |
//! | [`profile`] | which policy a daemon needs |
//! | [`preflight`] | whether a daemon can be held, before it is started |
//! | [`qualify`] | which policy a daemon needs, found out by crashing it |
//! | [`image_preparation`] | the disk image of a daemon that buffers, and its journal |
//! | [`replay`] | applying an op-log that was kept in a file |
//! | [`signature`] | what is on a disk that is to become a store |
//! | [`doctor`] | what this machine, user and daemon allow |
//! | [`messages`] | how belay talks on standard error |
//! | [`usage`] | what to write instead of a command line that is none |
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod doctor;
mod image_preparation;
mod messages;
mod preflight;
pub mod profile;
mod qualify;
mod replay;
pub mod signature;
mod size;
#[cfg(test)]
mod testing;
mod usage;

use signal_hook::consts::SIGPIPE;
use std::ffi::OsString;
use std::process::ExitCode;

/// The exit status of a command line that is none.
const USAGE: u8 = 2;

/// Does what the command line asks for; gives the exit status.
#[must_use]
pub fn run() -> ExitCode {
    if let Err(error) = preflight::machine::check_stack() {
        messages::say(&format!("belay: error: {error}\n"));
        belay_supervisor::outgoing::finish();
        return ExitCode::FAILURE;
    }
    // One that was started by `/proc/self/exe` is called after that, and `ps -C belay` does not
    // find it.
    let _ = rustix::thread::set_name(c"belay");
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli = match cli::Cli::of(&words) {
        Ok(cli) => cli,
        Err(refused) => {
            let Some(remedy) = usage::remedy(&words, &refused) else { refused.exit() };
            messages::say(&format!("belay: error: {remedy}\n"));
            belay_supervisor::outgoing::finish();
            return ExitCode::from(USAGE);
        }
    };
    messages::start(cli.command.verbose());
    let code = belay_supervisor::signals::survive_size_limit()
        .map_err(anyhow::Error::from)
        .and_then(|()| commands::run(cli.command));
    let code = match code {
        // It ends as others do of whom nobody reads: by SIGPIPE, which shells do not tell.
        Err(_) if messages::is_unheard() => {
            belay_supervisor::outgoing::finish();
            belay_supervisor::signals::end_by(SIGPIPE);
            ExitCode::FAILURE
        }
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            messages::say(&format!("belay: error: {error:#}\n"));
            ExitCode::FAILURE
        }
    };
    belay_supervisor::outgoing::finish();
    code
}
