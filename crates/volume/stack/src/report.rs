//! What the processes of a volume say of how they have recovered: a small file for each, beside its
//! pulse, which `belay status` shows.
//!
//! It is for people and studies: nothing is decided by it. So whatever goes wrong with it is no
//! reason to fail.

use crate::place::{Place, Role};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

/// The version of the JSON.
const VERSION: u32 = 1;
/// Of so many events each is told.
const RECENT: usize = 16;
/// Characters of a reason.
const TEXT: usize = 2048;
/// More than a report can be.
const LONGEST: u64 = 64 << 10;

/// The report of the process with the stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    version: u32,
    /// How often the stores were opened since the mount.
    pub openings: u64,
    /// Stores that were opened at their penultimate checkpoint, as not all of them had the last one
    /// (Loris VII-B).
    pub penultimate: u64,
    /// The last openings, the oldest first.
    pub recent: VecDeque<Opening>,
    /// Which image is not at its path any more; `None` if all are.
    #[serde(default)]
    pub missing: Option<Failing>,
}

/// The stores were opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// By which process.
    pub pid: u32,
    /// When they were open, in microseconds since 1970.
    pub at_us: u64,
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// Which checkpoint they are at.
    pub epoch: u64,
    /// How many of them have a newer one.
    pub penultimate: u64,
}

/// The report of the cache's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    version: u32,
    /// How often something was under way when a process died, and was done again since the mount.
    pub recoveries: u64,
    /// In how many of them the log was replayed.
    pub replays: u64,
    /// In how many of them it was not, as the stores had taken the checkpoint already (Loris VI-B).
    pub drops: u64,
    /// The last of them, the oldest first.
    pub recent: VecDeque<Recovery>,
    /// Why no checkpoint can be taken; `None` if one can.
    #[serde(default)]
    pub failing: Option<Failing>,
    /// Why the process has ended, or the mount has not begun; `None` as long as all is well.
    #[serde(default)]
    pub ended: Option<String>,
}

/// Something is not as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    /// Why.
    pub why: String,
    /// Since when, in microseconds since 1970.
    pub since_us: u64,
}

/// What was under way when a process died is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// By which process.
    pub pid: u32,
    /// When, in microseconds since 1970.
    pub at_us: u64,
    /// How long after the death was noticed, in microseconds: the start of a successor is part of
    /// that.
    pub took_us: u64,
    /// What it was.
    pub asked: Asked,
    /// How often the process with the stores died meanwhile; 0 if it was the cache's own.
    pub deaths: u32,
    /// How many transactions were replayed.
    pub replayed: u64,
    /// How many were not, as the stores had them already.
    pub dropped: u64,
}

/// What can be under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// A checkpoint.
    #[default]
    Checkpoint,
    /// Something is made durable before its checkpoint.
    Sync,
}

impl StoreReport {
    /// As former lives of this process have left it.
    pub fn of(place: &Place) -> Self {
        read(&place.report(Role::Store)).unwrap_or_default()
    }

    /// Adds an opening, and tells of it.
    pub fn add(&mut self, place: &Place, opening: Opening) {
        self.version = VERSION;
        self.openings += 1;
        self.penultimate += opening.penultimate;
        push(&mut self.recent, opening);
        tell(&place.report(Role::Store), self);
    }

    /// An image is not at its path, for `why`, or all are: tells of it if that is news. Whether it
    /// is.
    pub fn misses(&mut self, place: &Place, why: Option<&str>) -> bool {
        let is_news = set(&mut self.missing, why);
        if is_news {
            self.version = VERSION;
            tell(&place.report(Role::Store), self);
        }
        is_news
    }
}

impl CacheReport {
    /// As former lives of this process have left it.
    pub fn of(place: &Place) -> Self {
        read(&place.report(Role::Cache)).unwrap_or_default()
    }

    /// Adds a recovery, and tells of it.
    pub fn add(&mut self, place: &Place, recovery: Recovery) {
        self.version = VERSION;
        self.recoveries += 1;
        self.replays += u64::from(recovery.replayed > 0);
        self.drops += u64::from(recovery.dropped > 0);
        push(&mut self.recent, recovery);
        tell(&place.report(Role::Cache), self);
    }

    /// A checkpoint could be taken, or not: tells of it if that is news.
    pub fn taken(&mut self, place: &Place, taken: &Result<(), String>) {
        if set(&mut self.failing, taken.as_ref().err().map(String::as_str)) {
            self.version = VERSION;
            tell(&place.report(Role::Cache), self);
        }
    }

    /// The process ends, and has not done all that it was there for.
    pub fn ends(&mut self, place: &Place, why: &str) {
        self.version = VERSION;
        self.ended = Some(short(why));
        tell(&place.report(Role::Cache), self);
    }
}

/// Has it be so for `why`, since now if it was not so before, or not be so. Whether that is news.
fn set(failing: &mut Option<Failing>, why: Option<&str>) -> bool {
    let since = failing.as_ref().map(|before| before.since_us);
    let now = why.map(|why| Failing { why: short(why), since_us: since.unwrap_or_else(now_us) });
    let is_news = now != *failing;
    *failing = now;
    is_news
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Forgets what the processes of an earlier mount have told.
///
/// # Errors
/// Those of unlink(2).
pub fn forget(place: &Place) -> io::Result<()> {
    for role in [Role::Store, Role::Cache] {
        match fs::remove_file(place.report(role)) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
    }
    Ok(())
}

/// As much as a report has room for.
fn short(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

fn push<T>(recent: &mut VecDeque<T>, one: T) {
    while recent.len() >= RECENT {
        recent.pop_front();
    }
    recent.push_back(one);
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn tell(path: &Path, report: &impl Serialize) {
    if let Err(why) = write(path, report) {
        tracing::warn!("cannot write {}: {why}", path.display());
    }
}

/// Writes it as a whole: whoever reads meanwhile sees the one before.
fn write(path: &Path, report: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension("report.new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(report)?)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_goes_on_and_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::at(dir.path()).unwrap();
        for epoch in 1..=40 {
            // Each life reads what the one before has left.
            let opening = Opening { pid: 7, epoch, penultimate: epoch % 2, ..Opening::default() };
            StoreReport::of(&place).add(&place, opening);
        }
        let report = StoreReport::of(&place);
        assert_eq!((report.version, report.openings, report.penultimate), (VERSION, 40, 20));
        let epochs: Vec<u64> = report.recent.iter().map(|one| one.epoch).collect();
        assert_eq!(epochs, (25..=40).collect::<Vec<_>>());
        fs::write(place.report(Role::Store), "{").unwrap();
        assert_eq!(StoreReport::of(&place), StoreReport::default());
        forget(&place).unwrap();
        forget(&place).unwrap();
        assert!(!place.report(Role::Store).exists());
    }

    #[test]
    fn it_is_told_since_when_checkpoints_fail() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::at(dir.path()).unwrap();
        let mut report = CacheReport::of(&place);
        report.taken(&place, &Ok(()));
        assert!(!place.report(Role::Cache).exists(), "no news");
        report.taken(&place, &Err("no room".to_owned()));
        let first = CacheReport::of(&place).failing.unwrap();
        report.taken(&place, &Err("é".repeat(99_999)));
        let second = CacheReport::of(&place).failing.unwrap();
        assert_eq!((first.why.as_str(), first.since_us), ("no room", second.since_us));
        assert_eq!(second.why.chars().count(), TEXT);
        report.ends(&place, "asked to");
        report.taken(&place, &Ok(()));
        let last = CacheReport::of(&place);
        assert_eq!((last.failing, last.ended.as_deref()), (None, Some("asked to")));
    }

    #[test]
    fn an_image_that_is_away_is_told_of_once_and_in_later_lives() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::at(dir.path()).unwrap();
        let mut report = StoreReport::of(&place);
        assert!(!report.misses(&place, None) && !place.report(Role::Store).exists(), "no news");
        assert!(report.misses(&place, Some("moved")) && !report.misses(&place, Some("moved")));
        let first = StoreReport::of(&place).missing.unwrap();
        let mut report = StoreReport::of(&place);
        report.add(&place, Opening::default());
        assert!(!report.misses(&place, Some("moved")) && report.misses(&place, Some("removed")));
        let second = StoreReport::of(&place).missing.unwrap();
        assert_eq!((second.why.as_str(), second.since_us), ("removed", first.since_us));
        assert!(report.misses(&place, None) && StoreReport::of(&place).missing.is_none());
        assert_eq!(StoreReport::of(&place).openings, 1);
    }

    #[test]
    fn replays_and_dropped_logs_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::at(dir.path()).unwrap();
        let mut report = CacheReport::of(&place);
        for (replayed, dropped) in [(3, 0), (0, 0), (0, 5), (2, 9)] {
            report.add(&place, Recovery { replayed, dropped, ..Recovery::default() });
        }
        assert_eq!(CacheReport::of(&place), report);
        assert_eq!((report.recoveries, report.replays, report.drops), (4, 2, 2));
    }
}
