//! The words and results of the study.

use std::str::FromStr;

use anyhow::{Context, Result};
use belay_faults::{FaultSignal, Point};
use belay_fixtures::Kind;
use belay_study::{Crash, DryRun};
use serde::Serialize;

use super::rows::{Group, Row};
use crate::study::column::Column;

/// One experiment, as it can be named on the command line.
#[derive(Clone, Debug)]
pub struct Only {
    pub fixture: Kind,
    pub row: String,
    pub point: Point,
    pub signal: FaultSignal,
}

impl FromStr for Only {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next().context("an experiment is FIXTURE/ROW/POINT/SIGNAL");
        let (fixture, row) = (next()?.parse()?, Row::parse(next()?)?.name);
        Ok(Self { fixture, row, point: next()?.parse()?, signal: next()?.parse()? })
    }
}

/// What one crash led to.
#[derive(Clone, Debug, Serialize)]
pub struct Experiment {
    pub fixture: Kind,
    pub row: String,
    pub group: Group,
    pub column: Column,
    #[serde(flatten)]
    pub crash: Crash,
    /// The command that does it again.
    pub replay: String,
}

impl Experiment {
    /// Whether it speaks against belay.
    pub fn failed(&self) -> bool {
        let wrong = self.crash.went_wrong() || (self.crash.reached && !self.is_detected());
        self.column == Column::Belay && wrong
    }

    /// Whether belay has said what has happened: the signal that the daemon died of, or that its
    /// own process was replaced.
    pub fn is_detected(&self) -> bool {
        let noticed = self.crash.told.noticed.as_deref();
        let number = match self.crash.signal {
            FaultSignal::Segv => 11,
            FaultSignal::Abrt => 6,
            FaultSignal::Kill => 9,
        };
        let died = noticed == Some(&format!("signal {number}"));
        died || (self.group == Group::Commit && noticed == Some("takeover"))
    }
}

/// What an undisturbed run showed.
#[derive(Clone, Debug, Serialize)]
pub struct Observed {
    pub fixture: Kind,
    pub row: String,
    pub column: Column,
    #[serde(flatten)]
    pub run: DryRun,
}

/// What could not be studied.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    pub fixture: Kind,
    pub row: String,
    pub why: String,
}

/// All of a study.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// Of this format.
    pub version: u32,
    pub kernel: String,
    pub command: String,
    pub columns: Vec<Column>,
    pub dry_runs: Vec<Observed>,
    pub experiments: Vec<Experiment>,
    /// What the bare daemon does not do right even without a crash.
    pub left_out: Vec<LeftOut>,
    /// What kept the study from being whole.
    pub troubles: Vec<String>,
}

impl Study {
    /// Whether nothing speaks against belay, and the study is whole. How many words of the
    /// superblock fuse2fs writes depends on the time, so there may be points that are not there the
    /// next time.
    pub fn is_good(&self) -> bool {
        let missed = self.experiments.iter().filter(|e| !e.crash.reached).count();
        self.troubles.is_empty()
            && !self.experiments.is_empty()
            && missed * 20 <= self.experiments.len()
            && !self.experiments.iter().any(Experiment::failed)
    }
}
