//! The operations that are measured, and the clients that do them.

mod data;
mod meta;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};

use crate::clients::Worker;

pub use data::{AlignedBuffer, SharedBuffer};
pub use meta::open_dir;

/// How many entries the listed directory has.
pub const LISTING_ENTRIES: usize = 10_000;

/// What one operation of a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `stat` of a name that is not there.
    NegativeLookup,
    /// `stat` of a name that is there.
    Stat,
    /// `open` for reading and `close`.
    OpenClose,
    /// Exclusive creation of a file, and `close`.
    Create,
    /// Removal of a file.
    Unlink,
    /// Creation of a directory.
    Mkdir,
    /// Rename of a file within its directory.
    Rename,
    /// A complete listing of a directory of [`LISTING_ENTRIES`] entries.
    Readdir,
    /// One read or write of a file.
    Data(Access),
}

/// How a file's data are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Write instead of read.
    pub write: bool,
    /// Blocks in a random order instead of one after the other.
    pub random: bool,
    /// Bytes per call.
    pub block: usize,
    /// With `O_DIRECT`.
    pub direct: bool,
}

impl Op {
    /// All operations, in the order in which they are measured and reported.
    pub fn all() -> Vec<Self> {
        let mut ops = vec![
            Self::NegativeLookup,
            Self::Stat,
            Self::OpenClose,
            Self::Create,
            Self::Unlink,
            Self::Mkdir,
            Self::Rename,
            Self::Readdir,
        ];
        for direct in [false, true] {
            for (random, block) in
                [(false, 4 << 10), (false, 128 << 10), (false, 1 << 20), (true, 4 << 10)]
            {
                for write in [false, true] {
                    ops.push(Self::Data(Access { write, random, block, direct }));
                }
            }
        }
        ops
    }

    /// The largest batch of one worker, so that a sample stays far from a daemon's limit of inodes
    /// and of space.
    pub fn max_batch(self) -> u64 {
        match self {
            Self::Create | Self::Unlink | Self::Mkdir => 2_000,
            _ => 1 << 20,
        }
    }

    /// A client that does this operation in the tree at `root`; `index` tells the clients of one
    /// batch apart. `buffer` is one of [`buffers`] and is used by no other client of the batch.
    ///
    /// Files and directories that the client needs are made here, through `root` itself.
    pub fn worker(
        self,
        root: &Path,
        index: usize,
        buffer: &SharedBuffer,
    ) -> Result<Box<dyn Worker>> {
        let base = root.join("bench");
        let own = base.join(format!("{self}-{index}"));
        let make = |dir: &Path| {
            std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))
        };
        Ok(match self {
            Self::Readdir => {
                let dir = base.join("listing");
                make(&dir)?;
                Box::new(meta::Listing::new(&dir, LISTING_ENTRIES)?)
            }
            Self::Data(access) => {
                make(&base)?;
                let path = base.join(format!("data-{index}"));
                Box::new(data::Transfer::new(&path, access, Arc::clone(buffer))?)
            }
            _ => {
                make(&own)?;
                meta::worker(self, &own)?
            }
        })
    }
}

/// Buffers for the clients of a batch, one for each thread.
pub fn buffers(threads: usize) -> Vec<SharedBuffer> {
    let buffer = |_| Arc::new(Mutex::new(AlignedBuffer::new(data::LARGEST_BLOCK, 0xa5)));
    (0..threads).map(buffer).collect()
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::NegativeLookup => "negative-lookup",
            Self::Stat => "stat",
            Self::OpenClose => "open-close",
            Self::Create => "create",
            Self::Unlink => "unlink",
            Self::Mkdir => "mkdir",
            Self::Rename => "rename",
            Self::Readdir => "readdir-10000",
            Self::Data(access) => {
                let order = if access.random { "rand" } else { "seq" };
                let kind = if access.write { "write" } else { "read" };
                let direct = if access.direct { "-direct" } else { "" };
                let kib = access.block >> 10;
                let size = if kib >= 1024 { format!("{}m", kib >> 10) } else { format!("{kib}k") };
                return write!(f, "{order}-{kind}-{size}{direct}");
            }
        };
        f.write_str(name)
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::all().into_iter().find(|op| op.to_string() == name).ok_or_else(|| {
            let known: Vec<String> = Self::all().iter().map(ToString::to_string).collect();
            format!("no operation `{name}`; there are {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::sample;

    #[test]
    fn names_are_unique_and_parse_back() {
        let ops = Op::all();
        for (i, op) in ops.iter().enumerate() {
            assert_eq!(op.to_string().parse::<Op>().as_ref(), Ok(op));
            assert!(ops.iter().skip(i + 1).all(|other| other.to_string() != op.to_string()));
        }
        assert!("nonsense".parse::<Op>().is_err());
    }

    #[test]
    fn every_operation_runs_twice_on_a_plain_directory() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let buffers = buffers(2);
        // O_DIRECT is left out: a plain directory may be on a file system without it.
        let buffered = |op: &Op| !matches!(op, Op::Data(access) if access.direct);
        for op in Op::all().into_iter().filter(buffered) {
            for threads in [1, 2] {
                let mut workers: Vec<Box<dyn Worker>> = (0..threads)
                    .map(|i| op.worker(dir.path(), i, &buffers[i]))
                    .collect::<Result<_>>()?;
                for count in [3, 5] {
                    sample(&mut workers, count).with_context(|| format!("{op} by {threads}"))?;
                }
            }
        }
        Ok(())
    }
}
