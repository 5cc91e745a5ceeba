//! Fault studies: crashes brought about systematically, and what applications and file systems see
//! of them.
//!
//! | module | question |
//! | --- | --- |
//! | `controlled` | a crash at every point of every operation: who notices? |
//! | `membrane` | the same on disk images whose daemons buffer, and at each step of a checkpoint |
//! | `random` | crashes at any moment of real programs' work: is it survived? |
//! | `volumes` | volumes under fire while programs work on them, as the papers have it |
//! | `arguments` | what the first two are told alike |
//! | `column` | bare, restarted only, or held |
//! | `results` | how far a study has come, and where its results go |
//! | `subject`, `inspection` | fixtures as subjects of an experiment, and what is on an image without its daemon |

mod arguments;
mod column;
mod controlled;
mod inspection;
mod membrane;
mod observing;
mod random;
mod results;
mod subject;
mod volumes;

use anyhow::Result;

/// Results of a study. They are told by what is in them.
#[derive(serde::Deserialize)]
#[serde(untagged)]
pub enum Results {
    Controlled(controlled::Study),
    Loris(volumes::loris::Results),
    Table3(volumes::table3::Table),
}

impl Results {
    /// The page in Markdown.
    pub fn page(&self) -> String {
        match self {
            Self::Controlled(study) => controlled::markdown(study),
            Self::Loris(results) => results.page(),
            Self::Table3(table) => table.page(),
        }
    }
}

/// Arguments of `study`.
#[derive(Clone, Debug, clap::Args)]
pub struct StudyArgs {
    #[command(subcommand)]
    which: Which,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Which {
    /// Crash the daemon at every point of the request of every operation: bare, restarted only, and
    /// held
    Controlled(controlled::ControlledArgs),
    /// The same on disk images whose daemons keep changes in memory, and at every step of a
    /// checkpoint and its commit
    Membrane(membrane::MembraneArgs),
    /// Crash the daemon at random moments of real programs' work
    Random(random::RandomArgs),
    /// Build OpenSSH in a loop on a volume, and kill its lower layers: how long does their recovery
    /// take?
    Loris(volumes::loris::LorisArgs),
    /// Kill the namespace module of a volume, and corrupt its code, while programs work on it
    Table3(volumes::table3::Table3Args),
}

/// Runs a study; true if nothing speaks against belay.
pub fn run(args: &StudyArgs) -> Result<bool> {
    match &args.which {
        Which::Controlled(args) => controlled::run(args),
        Which::Membrane(args) => membrane::run(args),
        Which::Random(args) => random::run(args),
        Which::Loris(args) => volumes::loris::run(args),
        Which::Table3(args) => volumes::table3::run(args),
    }
}
