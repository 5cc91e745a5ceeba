//! Arguments that both ways to lose power share.

use std::path::PathBuf;

use anyhow::{Context, Result};
use belay_fixtures::Kind;
use tempfile::TempDir;

const FIXTURES: [Kind; 4] =
    [Kind::Fuse2fsExt4, Kind::Fuse2fsExt2, Kind::Fuse2fsExt3, Kind::Fusefat];

/// On what, by whom and where.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Seed of the applications, the instants, and what the disk keeps [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Daemons on images, by name, separated by commas; `volume` for one of belay's own
    #[arg(long, value_delimiter = ',', default_values_t = FIXTURES, value_parser = known)]
    pub fixtures: Vec<Kind>,
    /// Applications at work at once
    #[arg(long, default_value_t = 2)]
    pub clients: usize,
    /// Where to put what is needed [default: /dev/shm]
    #[arg(long)]
    workdir: Option<PathBuf>,
    /// Write the figures here, as a page in Markdown
    #[arg(long)]
    pub page: Option<PathBuf>,
    /// Leave the files of a life behind in which something was wrong
    #[arg(long)]
    keep: bool,
}

impl Common {
    /// The seed that was given, or a random one.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()))
    }

    /// A new directory for a fixture, which goes when it is dropped unless it is to be kept.
    pub fn directory(&self, prefix: &str) -> Result<TempDir> {
        let parent = self.workdir.clone().unwrap_or_else(|| PathBuf::from("/dev/shm"));
        tempfile::Builder::new()
            .prefix(prefix)
            .disable_cleanup(self.keep)
            .tempdir_in(&parent)
            .with_context(|| format!("making a directory in {}", parent.display()))
    }
}

/// A daemon whose image can be read without it.
fn known(name: &str) -> Result<Kind> {
    let kind: Kind = name.parse()?;
    let is_known = FIXTURES.contains(&kind) || kind.is_volume();
    anyhow::ensure!(is_known, "{kind} has no image that is known to be read here");
    Ok(kind)
}
