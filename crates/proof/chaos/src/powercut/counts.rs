//! What was done, and what was seen, as numbers.

use std::fmt;

use belay_fixtures::Kind;
use indicatif::{ProgressBar, ProgressStyle};

use super::repair::Done;
use serde::{Deserialize, Serialize};

/// How far it has come, for those who wait at a terminal.
pub fn bar(kind: Kind, cuts: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {pos}/{len} {wide_bar} {eta}");
    let bar = ProgressBar::new(cuts).with_prefix(kind.name());
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

/// What was done, and what was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Machines that were killed.
    pub cuts: u64,
    /// Of them, those that had come to an orderly end before.
    pub ended: u64,
    /// Power failures that were tried on the records of those.
    pub also: u64,
    /// Of both: when something was written and not synced.
    pub undecided: u64,
    /// Power failures in a repair.
    pub in_repairs: u64,
    /// What the repairs said.
    applied: u64,
    dropped: u64,
    nothing: u64,
    /// Different images that the checker has seen after repairs.
    pub images: u64,
    /// Steps that were acknowledged as durable, and found to be there.
    pub durable: u64,
    /// Steps that were found to be there, durable or not.
    pub found: u64,
    /// Pages of volumes whose data are written in place that were torn, and could not be read.
    pub torn: u64,
    /// Lives in which something was wrong.
    pub wrong: u64,
}

impl Counts {
    /// Counts what a repair has done.
    pub fn note(&mut self, done: Done) {
        match done {
            Done::Nothing => self.nothing += 1,
            Done::Dropped => self.dropped += 1,
            Done::Applied => self.applied += 1,
        }
    }

    /// As cells of a table's row.
    pub fn cells(&self) -> Vec<String> {
        vec![
            self.cuts.to_string(),
            self.ended.to_string(),
            self.also.to_string(),
            self.undecided.to_string(),
            self.in_repairs.to_string(),
            format!("{}, {}, {}", self.applied, self.dropped, self.nothing),
            self.images.to_string(),
            self.durable.to_string(),
            self.found.to_string(),
            self.wrong.to_string(),
        ]
    }

    /// Adds those of another fixture.
    pub fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.ended += other.ended;
        self.also += other.also;
        self.undecided += other.undecided;
        self.in_repairs += other.in_repairs;
        self.applied += other.applied;
        self.dropped += other.dropped;
        self.nothing += other.nothing;
        self.torn += other.torn;
        self.images += other.images;
        self.durable += other.durable;
        self.found += other.found;
        self.wrong += other.wrong;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cuts ({} after an orderly end), and {} on their records ({} with writes not yet synced), {} in repairs; journals: {} applied, {} \
             dropped, {} empty; {} different images; {} durable steps there of {} found; {} pages torn in place; {} wrong",
            self.cuts,
            self.ended,
            self.also,
            self.undecided,
            self.in_repairs,
            self.applied,
            self.dropped,
            self.nothing,
            self.images,
            self.durable,
            self.found,
            self.torn,
            self.wrong
        )
    }
}
