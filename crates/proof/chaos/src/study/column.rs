//! The ways in which a study runs a daemon.

use belay_fixtures::Mode;
use serde::{Deserialize, Serialize};

/// How the daemon is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Column {
    /// On its own.
    Bare,
    /// Held, and requests in flight are reissued without a thought: what a restart alone gives.
    Restart,
    /// Held as it should be.
    Belay,
}

impl Column {
    /// How a fixture is run for this column; `best` are the arguments with which it is held as it
    /// should be.
    pub fn mode(self, best: &[String]) -> Mode {
        match self {
            Self::Bare => Mode::Bare,
            Self::Restart => {
                Mode::Held { extra_args: vec!["--policy".to_owned(), "blind".to_owned()] }
            }
            Self::Belay => Mode::Held { extra_args: best.to_vec() },
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Restart => "restart",
            Self::Belay => "belay",
        }
    }
}
