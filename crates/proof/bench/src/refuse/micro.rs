//! The paper's micro-benchmarks.

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Bytes of each read and write.
const BLOCK: usize = 4096;
/// What `cp` writes at once.
const COPY: usize = 128 << 10;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Of the file that is read and written.
    pub file: u64,
    /// Files that are created and deleted.
    pub files: u64,
    /// The size of each.
    pub each: u64,
}

impl Sizes {
    /// All that is in the file system at a time.
    pub fn bytes(self) -> u64 {
        self.file + self.files * self.each
    }

    /// Blocks that are read or written at random: a tenth of the file, as in the paper.
    fn random_blocks(self) -> usize {
        (self.file / BLOCK as u64 / 10).max(1) as usize
    }
}

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Micro {
    /// A new file is written from its begin to its end.
    SequentialWrite,
    /// It is read.
    SequentialRead,
    /// A tenth of its blocks are read, in random order.
    RandomRead,
    /// A tenth of its blocks are written, in random order.
    RandomWrite,
    /// Files are copied into the file system.
    Create,
    /// They are removed.
    Delete,
}

/// The paper's rows.
const ROWS: [&str; 6] =
    ["Sequential read", "Sequential write", "Random read", "Random write", "Create", "Delete"];

/// The place of a benchmark in the paper's table; others come after.
pub fn row(name: &str) -> usize {
    ROWS.iter().position(|row| *row == name).unwrap_or(ROWS.len())
}

impl fmt::Display for Micro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SequentialRead => "Sequential read",
            Self::SequentialWrite => "Sequential write",
            Self::RandomRead => "Random read",
            Self::RandomWrite => "Random write",
            Self::Create => "Create",
            Self::Delete => "Delete",
        })
    }
}

impl Micro {
    /// All, each after the one whose files it needs.
    pub const ALL: [Self; 6] = [
        Self::SequentialWrite,
        Self::SequentialRead,
        Self::RandomRead,
        Self::RandomWrite,
        Self::Create,
        Self::Delete,
    ];

    /// What is done, for a report.
    pub fn parameters(self, sizes: Sizes) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        match self {
            Self::SequentialRead | Self::SequentialWrite => {
                format!("{} MiB, 4 KiB at a time", mib(sizes.file))
            }
            Self::RandomRead | Self::RandomWrite => format!(
                "{:.1} of {} MiB, 4 KiB at a time",
                mib((sizes.random_blocks() * BLOCK) as u64),
                mib(sizes.file)
            ),
            Self::Create | Self::Delete => {
                format!("{} files of {} MB", sizes.files, sizes.each as f64 / 1e6)
            }
        }
    }

    /// Does it below `root`, and says how long it took, from the opening of the first file to the
    /// closing of the last.
    pub fn run(self, root: &Path, sizes: Sizes) -> Result<Duration> {
        let file = root.join("micro");
        let dir = root.join("files");
        if self == Self::SequentialWrite && file.exists() {
            fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
        }
        if self == Self::Create {
            fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        }
        let offsets = offsets(sizes);
        let content = vec![0x5a; usize::try_from(sizes.each).context("the files are too large")?];
        let begin = Instant::now();
        match self {
            Self::SequentialWrite => write_through(&file, sizes.file),
            Self::SequentialRead => read_through(&file, sizes.file),
            Self::RandomRead => read_at(&file, &offsets),
            Self::RandomWrite => write_at(&file, &offsets),
            Self::Create => names(&dir, sizes).try_for_each(|path| copy(&content, &path)),
            Self::Delete => names(&dir, sizes).try_for_each(fs::remove_file),
        }
        .with_context(|| format!("{self} below {}", root.display()))?;
        Ok(begin.elapsed())
    }
}

fn offsets(sizes: Sizes) -> Vec<u64> {
    let mut offsets: Vec<u64> = (0..sizes.file).step_by(BLOCK).collect();
    // A fixed seed: all sides visit the same blocks in the same order.
    offsets.shuffle(&mut StdRng::seed_from_u64(6));
    offsets.truncate(sizes.random_blocks());
    offsets
}

fn names(dir: &Path, sizes: Sizes) -> impl Iterator<Item = PathBuf> {
    (0..sizes.files).map(move |number| dir.join(format!("f{number:05}")))
}

fn write_through(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    let block = [0xa5; BLOCK];
    for _ in 0..bytes / BLOCK as u64 {
        file.write_all(&block)?;
    }
    Ok(())
}

fn read_through(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut block = [0; BLOCK];
    for _ in 0..bytes / BLOCK as u64 {
        file.read_exact(&mut block)?;
    }
    Ok(())
}

fn read_at(path: &Path, offsets: &[u64]) -> std::io::Result<()> {
    let file = File::open(path)?;
    let mut block = [0; BLOCK];
    offsets.iter().try_for_each(|offset| file.read_exact_at(&mut block, *offset))
}

fn write_at(path: &Path, offsets: &[u64]) -> std::io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let block = [0x3c; BLOCK];
    offsets.iter().try_for_each(|offset| file.write_all_at(&block, *offset))
}

fn copy(content: &[u8], path: &Path) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    content.chunks(COPY).try_for_each(|part| file.write_all(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaves_what_the_next_needs() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let sizes = Sizes { file: 1 << 20, files: 3, each: 300_000 };
        for round in 0..2 {
            for micro in Micro::ALL {
                micro.run(dir.path(), sizes)?;
                let data = fs::read(dir.path().join("micro"))?;
                let written = data.iter().filter(|byte| **byte == 0x3c).count();
                match micro {
                    Micro::SequentialWrite => {
                        assert!(data.len() == 1 << 20 && data.iter().all(|byte| *byte == 0xa5));
                    }
                    Micro::RandomWrite => assert_eq!(written, 25 * BLOCK, "round {round}"),
                    Micro::Create => {
                        let last = fs::metadata(dir.path().join("files/f00002"))?;
                        assert_eq!(last.len(), 300_000);
                    }
                    Micro::Delete => {
                        assert_eq!(fs::read_dir(dir.path().join("files"))?.count(), 0);
                    }
                    Micro::SequentialRead | Micro::RandomRead => assert_eq!(written, 0),
                }
            }
        }
        assert!(Micro::ALL.iter().all(|micro| row(&micro.to_string()) < ROWS.len()));
        Ok(())
    }
}
