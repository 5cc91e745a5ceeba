//! What is counted of a mount, for `belay status`.

use crate::blackout::Blackouts;
use serde::{Deserialize, Serialize};

/// Counts since `belay run`, over all supervisors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    crashes: u64,
    planned: u64,
    restarts: u64,
    takeovers: u64,
    failed_starts: u64,
    reports: u64,
    unwritten: u64,
    /// As (microseconds, how often).
    blackouts: Vec<(u64, u64)>,
    last_blackout_us: u64,
}

impl Tally {
    /// A daemon has crashed, or was made to.
    pub(crate) fn crashed(&mut self) {
        self.crashes += 1;
    }

    /// That was asked for.
    pub(crate) fn planned(&mut self) {
        self.planned += 1;
    }

    /// That was a restart.
    pub(crate) fn restarted(&mut self) {
        self.planned += 1;
        self.restarts += 1;
    }

    /// A new supervisor took over.
    pub(crate) fn taken_over(&mut self) {
        self.takeovers += 1;
    }

    /// A start has failed.
    pub(crate) fn not_started(&mut self) {
        self.failed_starts += 1;
    }

    /// A report is about to be written: its number.
    pub(crate) fn reported(&mut self) -> u64 {
        self.reports += 1;
        self.reports
    }

    /// It could not be. Whether it is the first.
    pub(crate) fn not_written(&mut self) -> bool {
        self.unwritten += 1;
        self.unwritten == 1
    }

    /// A blackout is over, after so many microseconds: these are all of them.
    pub(crate) fn blackout(&mut self, last_us: u64, all: &Blackouts) {
        self.last_blackout_us = last_us;
        self.blackouts = all.pairs();
    }

    /// Blackouts as they were kept.
    pub(crate) fn blackouts(&self) -> Blackouts {
        Blackouts::from_pairs(&self.blackouts, self.last_blackout_us)
    }

    /// Crashes so far, planned ones included.
    pub(crate) fn crashes(&self) -> u64 {
        self.crashes
    }

    /// Of these: those that the user asked for, and of these again: restarts.
    pub(crate) fn asked_for(&self) -> (u64, u64) {
        (self.planned, self.restarts)
    }

    /// How often a new supervisor took over.
    pub(crate) fn takeovers(&self) -> u64 {
        self.takeovers
    }

    /// Starts that have failed.
    pub(crate) fn failed_starts(&self) -> u64 {
        self.failed_starts
    }

    /// Reports that were written, and that could not be.
    pub(crate) fn reports(&self) -> (u64, u64) {
        (self.reports.saturating_sub(self.unwritten), self.unwritten)
    }
}
