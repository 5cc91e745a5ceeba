//! `belay volume`: each command a module.

mod create;
mod mount;

use super::{status, stop};
use crate::cli::Volume;
use anyhow::Result;

/// Runs one of them.
pub fn run(command: &Volume) -> Result<i32> {
    match command {
        Volume::Create { name, store } => create::run(name, store),
        Volume::Mount(options) => mount::run(options),
        Volume::Umount(options) => stop::run(options),
        Volume::Status(options) => status::run(options),
    }
}
