//! Fault studies: crashes brought about systematically, and what applications and file systems see of them.
//!
//! | module | question |
//! | --- | --- |
//! | `controlled` | a crash at every point of every operation: who notices? |
//! | `random` | crashes at any moment of real programs' work: is it survived? |

mod controlled;
mod random;

use anyhow::Result;

/// Arguments of `study`.
#[derive(Clone, Debug, clap::Args)]
pub struct StudyArgs {
    #[command(subcommand)]
    which: Which,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Which {
    /// Crash the daemon at every point of the request of every operation: bare, restarted only, and held
    Controlled(controlled::ControlledArgs),
    /// Crash the daemon at random moments of real programs' work
    Random(random::RandomArgs),
}

/// Runs a study; true if nothing speaks against belay.
pub fn run(args: &StudyArgs) -> Result<bool> {
    match &args.which {
        Which::Controlled(args) => controlled::run(args),
        Which::Random(args) => random::run(args),
    }
}
