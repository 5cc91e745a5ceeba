//! `belay`: holds the mount of a FUSE daemon through the daemon's crashes.
//!
//! | module | answers |
//! | --- | --- |
//! | [`cli`] | what can be asked for |
//! | [`commands`] | each command |
//! | [`profile`] | which policy a daemon needs |
//! | [`preflight`] | whether a daemon can be held, before it is started |
//! | [`qualify`] | which policy a daemon needs, found out by crashing it |
//! | [`image`] | the disk image of a daemon that buffers, and its journal |
//! | [`replay`] | applying an op-log that was kept in a file |
//! | [`doctor`] | what this machine, user and daemon allow |
//! | [`messages`] | how belay talks on standard error |
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod doctor;
mod image;
mod messages;
mod preflight;
mod profile;
mod qualify;
mod replay;
mod size;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    messages::start(&cli.command);
    match commands::run(cli.command) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            messages::say(&format!("belay: error: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}
