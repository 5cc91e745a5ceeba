//! The layouts that the paper compares (Loris VII-A): some with twins, and its baselines, which do
//! not survive crashes.
//!
//! `belay volume create` makes all of them but one: it has no switch by which blocks that are freed
//! are used again at once. What a store says of itself can say so, and so a store that was made by
//! the command is made again here, before it is mounted.

use crate::SECRET;
use anyhow::{Context, Result, ensure};
use belay_disk::FileDisk;
use belay_logical::Logical;
use belay_posix::Caller;
use belay_store::{DataMode, Parameters, root};
use std::fmt;
use std::path::Path;

/// Where the blocks of a volume go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Metadata are written in place, and blocks that are freed are used again at once.
    FreedAtOnce,
    /// The twins of a block of metadata are so many blocks apart, and data are written out of
    /// place. With 0, metadata are written in place.
    Twins(u64),
    /// As [`Layout::Twins`], but data are written in place, after the resynchronization log.
    InPlace(u64),
}

impl Layout {
    /// All that are compared, the baselines first.
    pub const ALL: [Self; 10] = [
        Self::FreedAtOnce,
        Self::Twins(0),
        Self::Twins(4),
        Self::Twins(8),
        Self::Twins(16),
        Self::Twins(32),
        Self::InPlace(4),
        Self::InPlace(8),
        Self::InPlace(16),
        Self::InPlace(32),
    ];

    /// The same as a store takes it.
    #[must_use]
    pub fn parameters(self) -> Parameters {
        let defaults = Parameters::default();
        match self {
            Self::FreedAtOnce => Parameters { twin_offset: 0, frees_at_once: true, ..defaults },
            Self::Twins(twin_offset) => Parameters { twin_offset, ..defaults },
            Self::InPlace(twin_offset) => {
                Parameters { twin_offset, data: DataMode::InPlace, ..defaults }
            }
        }
    }

    /// What `belay volume create` is to be told.
    #[must_use]
    pub fn create_args(self) -> Vec<String> {
        let Parameters { twin_offset, data, .. } = self.parameters();
        let mut words = vec!["--twin-offset".to_owned(), twin_offset.to_string()];
        if data == DataMode::InPlace {
            words.extend(["--data", "in-place"].map(str::to_owned));
        }
        words
    }

    /// What is to be done to the one store of a volume, which nobody has open, besides.
    #[must_use]
    pub fn before_mount(self) -> Option<fn(&Path) -> Result<()>> {
        (self == Self::FreedAtOnce).then_some(free_at_once)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FreedAtOnce => f.pad("0, freed at once"),
            Self::Twins(offset) => f.pad(&offset.to_string()),
            Self::InPlace(offset) => f.pad(&format!("{offset}, in place")),
        }
    }
}

/// Makes the volume on that store, its only one, again: as [`Layout::FreedAtOnce`], empty, under
/// the same ids.
fn free_at_once(path: &Path) -> Result<()> {
    let told = || format!("making {} again", path.display());
    let disk = FileDisk::open(path).with_context(told)?;
    let found = root::checkpoints(&disk).with_context(told)?;
    let identity = found.first().map(|newest| newest.identity.clone()).with_context(told)?;
    ensure!(identity.members.len() == 1, "{} is one of several stores", path.display());
    let parameters = Layout::FreedAtOnce.parameters();
    let mut volume = Logical::format(identity.volume, vec![(identity.store, &disk)], parameters)
        .with_context(told)?;
    belay_posix::format(&mut volume, Caller::own(), SECRET).with_context(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_made_again_as_the_baseline_under_its_ids() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let disk = FileDisk::create(&path, 16 << 20).unwrap();
        let parameters = Layout::Twins(0).parameters();
        drop(Logical::format([1; 16], vec![([2; 16], &disk)], parameters).unwrap());
        drop(disk);
        free_at_once(&path).unwrap();
        let disk = FileDisk::open(&path).unwrap();
        let found = root::checkpoints(&disk).unwrap();
        assert_eq!(found[0].identity.volume, [1; 16]);
        assert_eq!(found[0].identity.store, [2; 16]);
        assert_eq!(found[0].geometry.parameters, Layout::FreedAtOnce.parameters());
        let mut volume = Logical::open_own([1; 16], vec![&disk]).unwrap();
        assert!(volume.check(&mut |_| {}).unwrap().findings.is_empty());
    }

    #[test]
    fn the_command_is_told_of_each_layout() {
        assert_eq!(Layout::Twins(8).create_args(), ["--twin-offset", "8"]);
        assert_eq!(
            Layout::InPlace(16).create_args(),
            ["--twin-offset", "16", "--data", "in-place"]
        );
        assert!(Layout::ALL.iter().filter(|one| one.before_mount().is_some()).count() == 1);
    }
}
