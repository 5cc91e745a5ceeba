//! The file: what is in it, and how far it has come.

use anyhow::{Context, Result, bail};
use belay_oplog::kept::{Kept, State, decode};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
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
        // Whatever it is, its reader does not wait for it.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let shown = path.display();
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let mut file = fs::File::from(opened.with_context(|| format!("cannot open {shown}"))?);
        let about = file.metadata().with_context(|| format!("cannot look at {shown}"))?;
        if !about.is_file() || about.len() > MOST {
            bail!("{shown}: it is no op-log: no file, or too large for one");
        }
        if !look && flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("{shown}: another `belay replay` is at work with it; wait for its end");
        }
        let mut bytes = Vec::new();
        (&mut file)
            .take(MOST)
            .read_to_end(&mut bytes)
            .with_context(|| format!("reading {shown}"))?;
        let kept = decode(&bytes)
            .with_context(|| format!("{shown}: it cannot be applied; is there another copy?"))?;
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
        let over = |state: &&State| !matches!(state, State::Applied | State::Skipped);
        self.kept.states.iter().filter(over).count()
    }
}
