//! The file: what is in it, and how far it has come.

use anyhow::{Context, Result, anyhow, bail, ensure};
use belay_oplog::kept::{FIXED, Kept, Malformed, Start, State, decode};
use belay_supervisor::outside::{self, From};
use belay_supervisor::text;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The largest that is read: what an op-log can hold, with much room.
const MOST: u64 = 4 << 30;

/// An op-log in a file.
#[derive(Debug)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    file: fs::File,
    /// What was read, with the progress that was noted since.
    pub kept: Kept,
}

impl File {
    /// Reads it. Unless it is only to be looked at, nobody else can have it open to apply it
    /// meanwhile.
    pub fn open(path: &Path, look: bool) -> Result<Self> {
        let access = if look { OFlags::RDONLY } else { OFlags::RDWR };
        let shown = path.display();
        let mut file = outside::open_regular_for(path, From::Anybody, access).map_err(|why| {
            let next = match (why.kind(), look) {
                (ErrorKind::NotFound, _) => "`belay status` and the crash report name the file",
                (ErrorKind::PermissionDenied, false) => {
                    "how far it has come is noted in it: run this as its owner, or on a copy of it"
                }
                _ => "name the file that `belay status` and the crash report name",
            };
            anyhow!("cannot open {shown}: {why}; {next}")
        })?;
        if !look && flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("{shown}: another `belay replay` is applying it; wait for the end of that one");
        }
        let reading = || format!("cannot read {shown}");
        let length = file.metadata().with_context(reading)?.len();
        let mut bytes = Vec::new();
        (&mut file).take(FIXED as u64).read_to_end(&mut bytes).with_context(reading)?;
        let refused = |why: Malformed| {
            let next = match why {
                Malformed::Other => "name the file that `belay status` and the crash report name",
                Malformed::Version(_) => "use a newer belay",
                Malformed::Damaged | Malformed::Operation(_) => {
                    "take another copy of it, if there is one"
                }
            };
            anyhow!("{shown} cannot be applied: {why}; {next}")
        };
        // Nothing else is read of what is none.
        let start = bytes.first_chunk().ok_or(Malformed::Other).map_err(refused)?;
        Start::parse(start, length).map_err(refused)?;
        ensure!(
            length <= MOST,
            "{shown} cannot be applied: it has {}, and no op-log of belay's has more than {}",
            text::bytes(length),
            text::bytes(MOST)
        );
        (&mut file).take(length - FIXED as u64).read_to_end(&mut bytes).with_context(reading)?;
        let kept = decode(&bytes).map_err(refused)?;
        Ok(Self { path: path.to_owned(), file, kept })
    }

    /// Notes how far an operation has come.
    pub fn mark(&mut self, number: usize, state: State) -> Result<()> {
        let at = self.kept.states_at + number as u64;
        self.file.write_all_at(&[state.byte()], at).with_context(|| {
            format!("cannot note in {} how far it has come", self.path.display())
        })?;
        if let Some(place) = self.kept.states.get_mut(number) {
            *place = state;
        }
        Ok(())
    }

    /// Makes durable what was noted.
    pub fn settle(&self) -> Result<()> {
        self.file.sync_all().with_context(|| {
            format!("cannot make durable in {} how far it has come", self.path.display())
        })
    }

    /// How many operations are not applied, and not left out.
    pub fn left(&self) -> usize {
        self.kept.states.iter().filter(|state| state.is_left()).count()
    }
}
