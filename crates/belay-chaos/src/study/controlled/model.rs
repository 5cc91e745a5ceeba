//! The words and results of the study.

use std::fmt;
use std::io;
use std::str::FromStr;

use anyhow::{Context, Result};
use belay_faults::{Effect, FaultSignal, Point};
use belay_testbed::{Kind, Mode};
use rustix::io::Errno;
use serde::Serialize;

use super::ops::Operation;

/// How the daemon is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Column {
    /// On its own.
    Bare,
    /// Held, and requests in flight are issued again without a thought: what a restart alone gives.
    Restart,
    /// Held, with the policy that belay chooses.
    Belay,
}

impl Column {
    /// How a bed is run for this column.
    pub fn mode(self) -> Mode {
        let policy = match self {
            Self::Bare => return Mode::Bare,
            Self::Restart => "blind",
            Self::Belay => "auto",
        };
        Mode::Held { extra_args: vec!["--policy".to_owned(), policy.to_owned()] }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Restart => "restart",
            Self::Belay => "belay",
        }
    }
}

/// What an application got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done(String),
    Failed { errno: Option<i32>, text: String },
    Hung,
}

impl Outcome {
    /// What a call came to; nothing means that it did not end.
    pub fn of(result: Option<io::Result<String>>) -> Self {
        match result {
            Some(Ok(value)) => Self::Done(value),
            Some(Err(error)) => {
                Self::Failed { errno: error.raw_os_error(), text: error.to_string() }
            }
            None => Self::Hung,
        }
    }

    /// How good that is, compared with what it should be.
    pub fn judge(&self, expected: &Self) -> Application {
        let dead = [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
        match self {
            _ if self == expected => Application::Ok,
            Self::Failed { errno: Some(errno), .. } if dead.contains(errno) => Application::Aborted,
            _ => Application::Wrong,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(value) => f.write_str(value),
            Self::Failed { text, .. } => f.write_str(text),
            Self::Hung => f.write_str("it did not end"),
        }
    }
}

/// What a crash was for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Application {
    /// Nothing.
    Ok,
    /// The error of a file system that has gone.
    Aborted,
    /// Another error, a wrong result, or waiting without end.
    Wrong,
}

/// One experiment, as it can be named on the command line.
#[derive(Clone, Debug)]
pub struct Only {
    pub bed: Kind,
    pub operation: &'static Operation,
    pub point: Point,
    pub signal: FaultSignal,
}

impl FromStr for Only {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next().context("an experiment is BED/OPERATION/POINT/SIGNAL");
        Ok(Self {
            bed: next()?.parse()?,
            operation: Operation::parse(next()?)?,
            point: next()?.parse()?,
            signal: next()?.parse()?,
        })
    }
}

/// What one crash led to.
#[derive(Clone, Debug, Serialize)]
pub struct Experiment {
    pub bed: Kind,
    pub operation: &'static str,
    pub column: Column,
    pub point: String,
    /// The call before or after which the daemon died.
    pub call: Option<&'static str>,
    pub signal: FaultSignal,
    /// Whether the daemon came to that point, and so died there.
    pub reached: bool,
    pub application: Application,
    pub outcome: String,
    pub expected: String,
    pub consistent: bool,
    /// What was not as it should be.
    pub differences: String,
    pub usable: bool,
    /// Why it could not be used.
    pub trouble: String,
    pub seconds: f64,
    /// The command that does it again.
    pub replay: String,
}

impl Experiment {
    /// Whether nobody could tell.
    pub fn is_all_right(&self) -> bool {
        self.application == Application::Ok && self.consistent && self.usable
    }
}

/// What an undisturbed run of an operation showed.
#[derive(Clone, Debug, Serialize)]
pub struct DryRun {
    pub bed: Kind,
    pub operation: &'static str,
    pub column: Column,
    /// The request, if the daemon is asked at all.
    pub request: Option<String>,
    pub effects: Vec<Effect>,
    /// What was not as with an undisturbed bare daemon.
    pub differences: String,
}

/// All of a study.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// Of this format.
    pub version: u32,
    pub kernel: String,
    pub columns: Vec<Column>,
    pub dry_runs: Vec<DryRun>,
    pub experiments: Vec<Experiment>,
    /// What kept the study from being whole.
    pub troubles: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_judged() {
        let of = |errno| Outcome::of(Some(Err(io::Error::from_raw_os_error(errno))));
        let done = Outcome::of(Some(Ok("done".to_owned())));
        assert_eq!(done.judge(&done), Application::Ok);
        assert_eq!(of(95).judge(&of(95)), Application::Ok);
        assert_eq!(of(103).judge(&done), Application::Aborted);
        assert_eq!(of(107).judge(&done), Application::Aborted);
        assert_eq!(of(17).judge(&done), Application::Wrong);
        assert_eq!(Outcome::of(None).judge(&done), Application::Wrong);
        assert_eq!(Outcome::Done("other".to_owned()).judge(&done), Application::Wrong);
    }

    #[test]
    fn experiments_have_names() {
        let only: Only = "ntfs-3g/rename-over/after-12/SEGV".parse().unwrap();
        assert_eq!(only.bed, Kind::Ntfs3g);
        assert_eq!(only.operation.name, "rename-over");
        assert_eq!((only.point, only.signal), (Point::AfterEffect(12), FaultSignal::Segv));
        for bad in ["", "sshfs", "sshfs/mkdir", "sshfs/mkdir/received", "sshfs/sync/received/KILL"]
        {
            assert!(bad.parse::<Only>().is_err(), "{bad}");
        }
    }
}
