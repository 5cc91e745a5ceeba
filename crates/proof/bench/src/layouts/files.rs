//! What is done with one large file: written from begin to end, read, overwritten from begin to
//! end, and in places.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belay_fixtures::Fixture;
use belay_workloads::outcome::forget_pages;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::refuse::cold;

/// Bytes of each overwrite.
const BLOCK: usize = 4096;
/// Bytes that are read or written at once from begin to end.
const CHUNK: usize = 128 << 10;
/// Overwrites between two syncs.
const SYNC_EVERY: usize = 32;
/// What is written at first, and what it is overwritten with, as a whole and in places.
const BYTES: [u8; 3] = [0xa5, 0x5a, 0x3c];

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// MiB of the file.
    pub file_mib: u64,
    /// Blocks of it that are overwritten; no more than it has.
    pub overwrites: usize,
}

/// One part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The file is made, written and synced.
    Write,
    /// It is read, and nobody has any of it cached.
    Read,
    /// All of it is overwritten, and synced.
    Rewrite,
    /// Some of its blocks are overwritten, in random order, and it is synced now and then.
    Overwrite,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Write => "Sequential write",
            Self::Read => "Sequential read",
            Self::Rewrite => "Sequential overwrite",
            Self::Overwrite => "Random overwrites",
        })
    }
}

impl Part {
    /// All, each after the one that it builds on.
    pub const ALL: [Self; 4] = [Self::Write, Self::Read, Self::Rewrite, Self::Overwrite];

    /// What is done, for a report.
    pub fn parameters(self, sizes: Sizes) -> String {
        let Sizes { file_mib, .. } = sizes;
        match self {
            Self::Write | Self::Rewrite => format!("{file_mib} MiB, then a sync"),
            Self::Read => format!("{file_mib} MiB, with nothing of it in the kernel's caches"),
            Self::Overwrite => format!(
                "{} blocks of 4 KiB in a file of {file_mib} MiB, with a sync behind every {SYNC_EVERY}, which brings them to a log; \
                 what checkpoints bring to its place behind the last one is not in the time",
                sizes.overwrites
            ),
        }
    }

    /// Does it, and says how long it took. A read that finds something else than what was written
    /// is an error.
    pub fn run(self, fixture: &Fixture, sizes: Sizes) -> Result<Duration> {
        let path = fixture.root().join("file");
        self.run_at(&path, sizes, || {
            cold::empty_caches(fixture)?;
            // What the store reads is not to be in memory either.
            fixture.stores().iter().try_for_each(|store| forget_pages(&File::open(store)?))
        })
        .with_context(|| format!("{self} at {}", path.display()))
    }

    fn run_at(
        self,
        path: &Path,
        sizes: Sizes,
        forget: impl FnOnce() -> Result<()>,
    ) -> Result<Duration> {
        let chunks = (sizes.file_mib << 20) / CHUNK as u64;
        let byte = if self == Self::Rewrite { BYTES[1] } else { BYTES[0] };
        let mut chunk = vec![byte; CHUNK];
        match self {
            Self::Write | Self::Rewrite => {
                let begin = Instant::now();
                let mut options = File::options();
                let mut file = options.write(true).create_new(self == Self::Write).open(path)?;
                (0..chunks).try_for_each(|_| file.write_all(&chunk))?;
                file.sync_all()?;
                Ok(begin.elapsed())
            }
            Self::Read => {
                forget()?;
                let begin = Instant::now();
                let mut file = File::open(path)?;
                for number in 0..chunks {
                    file.read_exact(&mut chunk)?;
                    let is_right = chunk.iter().all(|byte| *byte == BYTES[0]);
                    ensure!(is_right, "wrong data in the {CHUNK} bytes with number {number}");
                }
                Ok(begin.elapsed())
            }
            Self::Overwrite => {
                let offsets = offsets(sizes);
                let file = File::options().write(true).open(path)?;
                let begin = Instant::now();
                for some in offsets.chunks(SYNC_EVERY) {
                    let mut all = some.iter();
                    all.try_for_each(|offset| file.write_all_at(&[BYTES[2]; BLOCK], *offset))?;
                    file.sync_data()?;
                }
                Ok(begin.elapsed())
            }
        }
    }
}

/// Where it is overwritten: the same on all layouts.
fn offsets(sizes: Sizes) -> Vec<u64> {
    let mut offsets: Vec<u64> = (0..sizes.file_mib << 20).step_by(BLOCK).collect();
    offsets.shuffle(&mut StdRng::seed_from_u64(7));
    offsets.truncate(sizes.overwrites);
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_leaves_what_it_should() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("file");
        let sizes = Sizes { file_mib: 2, overwrites: 100 };
        for part in Part::ALL {
            part.run_at(&path, sizes, || Ok(()))?;
        }
        let data = std::fs::read(&path)?;
        assert_eq!(data.len(), 2 << 20);
        let count = |what| data.iter().filter(|byte| **byte == what).count();
        assert_eq!(BYTES.map(count), [0, (2 << 20) - 100 * BLOCK, 100 * BLOCK]);
        let wrong = Part::Read.run_at(&path, sizes, || Ok(()));
        assert!(wrong.expect_err("it was overwritten").to_string().contains("wrong data"));
        Ok(())
    }
}
