//! The file: what is in it, and how far it has come.

use anyhow::{Context, Result, bail, ensure};
use belay_oplog::kept::{FIXED, Kept, Malformed, Start, State, decode};
use belay_supervisor::outside::{self, From};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The largest that is read: what an op-log can hold, with much room.
const MOST: u64 = 4 << 30;

/// An op-log in a file.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    file: fs::File,
    /// What was read, with the progress that was noted since.
    pub kept: Kept,
}

impl File {
    /// Reads it. Unless it is only to be looked at, nobody else can have it open to apply it meanwhile.
    pub fn open(path: &Path, look: bool) -> Result<Self> {
        let access = if look { OFlags::RDONLY } else { OFlags::RDWR };
        let shown = path.display();
        let opened = outside::open_regular_for(path, From::Anybody, access);
        let mut file = opened.with_context(|| format!("cannot open {shown}"))?;
        if !look && flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("{shown}: another `belay replay` is at work with it; wait for its end");
        }
        let reading = || format!("reading {shown}");
        let length = file.metadata().with_context(reading)?.len();
        let mut bytes = Vec::new();
        (&mut file).take(FIXED as u64).read_to_end(&mut bytes).with_context(reading)?;
        let refused = || format!("{shown}: it cannot be applied; is there another copy?");
        // Nothing else is read of what is none.
        let start = bytes.first_chunk().ok_or(Malformed::Other).with_context(refused)?;
        Start::parse(start, length).with_context(refused)?;
        ensure!(length <= MOST, "{shown}: it is too large for an op-log");
        (&mut file).take(length - FIXED as u64).read_to_end(&mut bytes).with_context(reading)?;
        let kept = decode(&bytes).with_context(refused)?;
        Ok(Self { path: path.to_owned(), file, kept })
    }

    /// Notes how far an operation has come.
    pub fn mark(&mut self, number: usize, state: State) -> Result<()> {
        let at = self.kept.states_at + number as u64;
        self.file
            .write_all_at(&[state.byte()], at)
            .with_context(|| format!("cannot note progress in {}", self.path.display()))?;
        if let Some(place) = self.kept.states.get_mut(number) {
            *place = state;
        }
        Ok(())
    }

    /// Makes durable what was noted.
    pub fn settle(&self) -> Result<()> {
        self.file.sync_all().with_context(|| format!("cannot sync {}", self.path.display()))
    }

    /// How many operations are not applied, and not left out.
    pub fn left(&self) -> usize {
        self.kept.states.iter().filter(|state| state.is_left()).count()
    }
}
