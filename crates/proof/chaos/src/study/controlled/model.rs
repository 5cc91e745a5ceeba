//! The words and results of the study.

use std::borrow::Cow;
use std::str::FromStr;

use anyhow::{Context, Result};
use belay_faults::{FaultSignal, Point};
use belay_fixtures::Kind;
use belay_study::{Crash, DryRun, Operation};
use serde::{Deserialize, Serialize};

use crate::study::column::Column;

/// One experiment, as it can be named on the command line.
#[derive(Clone, Debug)]
pub struct Only {
    pub fixture: Kind,
    pub operation: &'static Operation,
    pub point: Point,
    pub signal: FaultSignal,
}

impl FromStr for Only {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next().context("an experiment is FIXTURE/OPERATION/POINT/SIGNAL");
        Ok(Self {
            fixture: next()?.parse()?,
            operation: Operation::parse(next()?)?,
            point: next()?.parse()?,
            signal: next()?.parse()?,
        })
    }
}

/// What one crash led to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Experiment {
    pub fixture: Kind,
    pub operation: Cow<'static, str>,
    pub column: Column,
    #[serde(flatten)]
    pub crash: Crash,
    /// The command that does it again.
    pub replay: String,
}

/// What an undisturbed run of an operation showed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    pub fixture: Kind,
    pub operation: Cow<'static, str>,
    pub column: Column,
    #[serde(flatten)]
    pub run: DryRun,
}

/// All of a study.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Study {
    /// Of this format.
    pub version: u32,
    pub kernel: String,
    pub columns: Vec<Column>,
    pub dry_runs: Vec<Observed>,
    pub experiments: Vec<Experiment>,
    /// What kept the study from being whole.
    pub troubles: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_have_names() {
        let only: Only = "ntfs-3g/rename-over/after-12/SEGV".parse().unwrap();
        assert_eq!(only.fixture, Kind::Ntfs3g);
        assert_eq!(only.operation.name, "rename-over");
        assert_eq!((only.point, only.signal), (Point::AfterEffect(12), FaultSignal::Segv));
        for bad in ["", "sshfs", "sshfs/mkdir", "sshfs/mkdir/received", "sshfs/sync/received/KILL"]
        {
            assert!(bad.parse::<Only>().is_err(), "{bad}");
        }
    }
}
