//! What can be asked of `belay qualify`.

use crate::profile::checkpoint::FlushName;
use belay_faults::{FaultSignal, Point};
use belay_study::Operation;
use belay_supervisor::Policy;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Policies that a daemon can be certified for, the one that costs least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Tried {
    /// Ask the successor.
    Reconcile,
    /// Log system calls.
    Journal,
    /// Make image writes all or nothing.
    Transaction,
    /// Keep image writes back until a checkpoint.
    Epoch,
    /// Replay what was acknowledged and not stored.
    Buffer,
}

impl Tried {
    /// The name as in options and profiles.
    pub fn name(self) -> &'static str {
        Policy::from(self).effective()
    }
}

impl From<Tried> for Policy {
    fn from(policy: Tried) -> Self {
        match policy {
            Tried::Reconcile => Self::Reconcile,
            Tried::Journal => Self::Journal,
            Tried::Transaction => Self::Transaction,
            Tried::Epoch => Self::Epoch,
            Tried::Buffer => Self::Buffer,
        }
    }
}

/// One experiment, as it is named on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Only {
    /// What is done.
    pub operation: &'static Operation,
    /// Where the daemon dies.
    pub point: Point,
    /// Of what.
    pub signal: FaultSignal,
}

impl FromStr for Only {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<_> = text.split('/').collect();
        let [operation, point, signal] = parts.as_slice() else {
            anyhow::bail!("an experiment is OPERATION/POINT/SIGNAL, such as mkdir/after-1/KILL");
        };
        Ok(Self {
            operation: Operation::parse(operation)?,
            point: point.parse()?,
            signal: signal.parse()?,
        })
    }
}

/// `belay qualify`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Operations to try, by name, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_parser = operation, value_name = "LIST")]
    pub ops: Vec<&'static Operation>,
    /// Policies to try, separated by commas [default: reconcile,journal; with a disk image also
    /// transaction, and epoch if none of these works; without an image buffer if none works]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub policies: Vec<Tried>,
    /// How to make the daemon write out all that it holds, for the policy `epoch` [default: as in
    /// the daemon's profile, else fsyncdir]
    #[arg(long, value_enum, value_name = "HOW")]
    pub flush: Option<FlushName>,
    /// Signals to kill the daemon with.
    #[arg(long, value_delimiter = ',', default_value = "SEGV,KILL", value_name = "LIST")]
    pub signals: Vec<FaultSignal>,
    /// Run only this experiment, and write no profile.
    #[arg(long, value_name = "OPERATION/POINT/SIGNAL")]
    pub only: Option<Only>,
    /// Give up a policy at its first wrong experiment.
    #[arg(long)]
    pub quick: bool,
    /// Write all results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where to write the profile [default: PROGRAM.toml in the first folder of profiles]
    #[arg(long, value_name = "FILE", conflicts_with = "no_profile")]
    pub profile: Option<PathBuf>,
    /// Write no profile.
    #[arg(long)]
    pub no_profile: bool,
    /// Replace a profile that was not written by `belay qualify`.
    #[arg(long)]
    pub force: bool,
    /// The directory below the mountpoint to work in, if the daemon's root is not writable or is
    /// the root of the machine.
    #[arg(long, value_name = "SUBDIR")]
    pub dir: Option<PathBuf>,
    /// The mountpoint [default: the last argument of CMD that is a directory]
    #[arg(long, value_name = "DIR")]
    pub mountpoint: Option<PathBuf>,
    /// The directory that the daemon exposes, to inspect it without the daemon as well.
    #[arg(long, value_name = "DIR")]
    pub behind: Option<PathBuf>,
    /// The disk image in CMD: qualify works on copies of it [default: the argument that is a file]
    #[arg(long, value_name = "FILE", conflicts_with = "no_image")]
    pub image: Option<PathBuf>,
    /// No file in CMD is a disk image.
    #[arg(long)]
    pub no_image: bool,
    /// Work on the block device in CMD itself: its contents may be lost.
    #[arg(long)]
    pub use_device: bool,
    /// A command that checks the unmounted image, `{}` standing for it, and fails if something is
    /// wrong, such as 'ntfsfix -n {}'.
    #[arg(long, value_name = "COMMAND")]
    pub check: Option<String>,
    /// Whom operations are done as; 0: oneself [default for root: 1234, if that user can use the
    /// mount]
    #[arg(long, value_name = "UID")]
    pub as_user: Option<u32>,
    /// How long an operation may take before it counts as hanging.
    #[arg(long, value_name = "DURATION", default_value = "30s",
        value_parser = humantime::parse_duration)]
    pub op_timeout: Duration,
    /// The daemon and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

fn operation(name: &str) -> Result<&'static Operation, String> {
    Operation::parse(name).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    #[test]
    fn experiments_have_names() {
        let only: Only = "rename-over/after-12/SEGV".parse().unwrap();
        assert_eq!(only.operation.name, "rename-over");
        assert_eq!((only.point, only.signal), (Point::AfterEffect(12), FaultSignal::Segv));
        for bad in ["", "mkdir", "mkdir/received", "sync/received/KILL", "mkdir/x/KILL", "a/b/c/d"]
        {
            assert!(bad.parse::<Only>().is_err(), "{bad}");
        }
    }

    #[test]
    fn options_are_parsed() {
        let words =
            "belay qualify --ops mkdir,create --policies journal,reconcile --signals kill -- d /x";
        let Command::Qualify(options) = Cli::parse_from(words.split(' ')).command else { panic!() };
        let names: Vec<_> = options.ops.iter().map(|op| op.name).collect();
        assert_eq!(names, ["mkdir", "create"]);
        assert_eq!(options.policies, [Tried::Journal, Tried::Reconcile]);
        assert_eq!(options.signals, [FaultSignal::Kill]);
        for bad in ["--ops sync", "--policies auto", "--profile x --no-profile", "--signals HUP"] {
            let words = format!("belay qualify {bad} -- d /x");
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{bad}");
        }
    }
}
