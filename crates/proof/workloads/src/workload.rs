//! Which workloads there are, how large they can be, and the steps of a run.

use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::build::{Build, Source};
use crate::outcome::Outcome;
use crate::postmark::PostMark;
use crate::program::Watch;
use crate::sort::Sort;
use crate::verified::Verified;

/// A kind of work.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    /// `sort` of generated text.
    Sort,
    /// OpenSSH: copied, unpacked, configured and made.
    Openssh,
    /// PostMark.
    Postmark,
    /// PostMark with verification of all that it does.
    Verified,
}

impl Name {
    /// All, in the order of the paper's tables.
    pub const ALL: [Self; 3] = [Self::Sort, Self::Openssh, Self::Postmark];
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Sort => "sort",
            Self::Openssh => "openssh",
            Self::Postmark => "postmark",
            Self::Verified => "verified",
        })
    }
}

/// How much work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// For tests: seconds at most. In place of OpenSSH a small generated program is built.
    Tiny,
    /// What a machine does in some minutes.
    Small,
    /// As in the paper, as far as it says: 100 MB to sort, 3,000 files of 4 KB to 4 MB, 60,000
    /// transactions.
    Paper,
}

impl std::fmt::Display for Scale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Paper => "paper",
        })
    }
}

impl Scale {
    /// Size of the text to sort.
    #[must_use]
    pub fn sort_bytes(self) -> u64 {
        match self {
            Self::Tiny => 3_000_000,
            Self::Small | Self::Paper => 100_000_000,
        }
    }

    fn postmark(self, seed: u64) -> PostMark {
        let (files, largest, transactions) = match self {
            Self::Tiny => (30, 64_000, 300),
            Self::Small => (200, 1_000_000, 2_000),
            Self::Paper => (3_000, 4_000_000, 60_000),
        };
        // PostMark takes the seed as a signed number.
        let seed = u32::try_from(seed % 0x7fff_ffff).unwrap_or(0);
        PostMark { files, smallest: 4_000, largest, transactions, seed }
    }

    /// As [`Self::postmark`], with files of 4 KB to 28 KB, as Loris has them.
    fn verified(self, seed: u64) -> PostMark {
        PostMark { largest: 28_000, ..self.postmark(seed) }
    }
}

/// Work that can be done on any mount, again and again.
#[derive(Debug)]
pub struct Workload {
    name: Name,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Sort(Sort),
    Build(Build),
    PostMark(PostMark),
    Verified(Verified),
}

/// What a run leaves outside of the mount.
#[derive(Debug)]
pub struct Done {
    said: String,
    /// Removed with this.
    _scratch: TempDir,
}

impl Workload {
    /// Makes ready what can be made before any mount is there. `jobs` is for `make -j`.
    ///
    /// # Errors
    /// When something is not installed (`scripts/setup-study` does that).
    pub fn new(name: Name, scale: Scale, seed: u64, jobs: u8) -> Result<Self> {
        let work = match name {
            Name::Sort => Work::Sort(Sort::new(scale.sort_bytes(), seed)?),
            Name::Openssh if scale == Scale::Tiny => {
                Work::Build(Build::new(Source::generated(12)?, jobs))
            }
            Name::Openssh => Work::Build(Build::new(Source::openssh()?, jobs)),
            Name::Postmark => Work::PostMark(scale.postmark(seed)),
            Name::Verified => Work::Verified(Verified { postmark: scale.verified(seed) }),
        };
        Ok(Self { name, work })
    }

    /// A sort of a size of its own.
    ///
    /// # Errors
    /// None in practice.
    pub fn sort(bytes: u64, seed: u64) -> Result<Self> {
        Ok(Self { name: Name::Sort, work: Work::Sort(Sort::new(bytes, seed)?) })
    }

    /// PostMark, of a size of its own.
    #[must_use]
    pub fn postmark(postmark: PostMark) -> Self {
        Self { name: Name::Postmark, work: Work::PostMark(postmark) }
    }

    /// PostMark with verification, of a size of its own.
    #[must_use]
    pub fn verified(postmark: PostMark) -> Self {
        Self { name: Name::Verified, work: Work::Verified(Verified { postmark }) }
    }

    /// Which one this is.
    #[must_use]
    pub fn name(&self) -> Name {
        self.name
    }

    /// Its parameters, for a report.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.work {
            Work::Sort(sort) => format!("{} MB of text", sort.bytes() as f64 / 1e6),
            Work::Build(build) => build.describe(),
            Work::PostMark(postmark) | Work::Verified(Verified { postmark }) => describe(postmark),
        }
    }

    /// Size in MiB of a file system that it fits in.
    #[must_use]
    pub fn image_mib(&self) -> u64 {
        let bytes = match &self.work {
            // Input, temporary files, output.
            Work::Sort(sort) => sort.bytes() * 3,
            Work::Build(_) => 400 << 20,
            Work::PostMark(postmark) | Work::Verified(Verified { postmark }) => postmark.bytes(),
        };
        256 + (bytes >> 20) * 5 / 4
    }

    /// Lays out the input below `root`, which is empty. Part of no measurement.
    ///
    /// # Errors
    /// When the mount does not take it.
    pub fn setup(&self, root: &Path) -> Result<()> {
        match &self.work {
            Work::Sort(sort) => sort.setup(root),
            Work::Build(build) => build.setup(root),
            Work::PostMark(postmark) => postmark.setup(root),
            Work::Verified(verified) => verified.setup(root),
        }
        .with_context(|| format!("preparing {}", self.name))
    }

    /// Does the work: what is timed, and what is done under fire.
    ///
    /// # Errors
    /// When one of its programs fails, complains, or does not end in time.
    pub fn work(&self, root: &Path, watch: &Watch<'_>) -> Result<Done> {
        let scratch = tempfile::tempdir().context("making a directory for logs")?;
        let said = match &self.work {
            Work::Sort(sort) => {
                sort.work(root, &scratch.path().join("log"), watch).map(|()| String::new())
            }
            Work::Build(build) => build.work(root, scratch.path(), watch).map(|()| String::new()),
            Work::PostMark(postmark) => postmark.work(root, scratch.path(), watch),
            Work::Verified(verified) => verified.work(root, watch),
        };
        Ok(Done { said: said?, _scratch: scratch })
    }

    /// What came of it. What the daemon has is compared, not what the kernel has cached.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look(&self, root: &Path, done: &Done) -> Result<Outcome> {
        match &self.work {
            Work::Sort(sort) => sort.look(root),
            Work::Build(build) => build.look(root),
            Work::PostMark(postmark) => postmark.look(root, &done.said),
            Work::Verified(verified) => verified.look(root, &done.said),
        }
        .with_context(|| format!("looking at what {} left", self.name))
    }

    /// An error if an outcome is not even right by itself.
    ///
    /// # Errors
    /// See above.
    pub fn verify(&self, outcome: &Outcome) -> Result<()> {
        match &self.work {
            Work::Sort(sort) => sort.verify(outcome),
            Work::Build(build) => build.verify(outcome),
            Work::PostMark(_) | Work::Verified(_) => Ok(()),
        }
    }

    /// An error if what was built does not run. Only builds are tried.
    ///
    /// # Errors
    /// See above.
    pub fn prove(&self, root: &Path, watch: &Watch<'_>) -> Result<()> {
        match &self.work {
            Work::Build(build) => build.prove(root, watch),
            _ => Ok(()),
        }
    }

    /// Takes away what the work left, so that it can be done again at the same place.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn again(&self, root: &Path) -> Result<()> {
        match &self.work {
            Work::Sort(sort) => sort.again(root),
            Work::Build(build) => build.again(root),
            // It removes everything itself.
            Work::PostMark(_) | Work::Verified(_) => Ok(()),
        }
    }
}

fn describe(postmark: &PostMark) -> String {
    let PostMark { files, smallest, largest, transactions, .. } = postmark;
    format!("{files} files of {smallest} to {largest} bytes, {transactions} transactions")
}
