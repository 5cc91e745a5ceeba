//! `belay repair`, as it is called after a loss of power.

use std::path::Path;

use anyhow::{Result, bail};
use belay_image::journal::{HostFile, How, Recovered, beside, recover};

/// What it found in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Nothing.
    Nothing,
    /// A commit that had not got as far as the image.
    Dropped,
    /// A commit, which is on the image now.
    Applied,
}

/// Repairs an image.
pub fn repair(path: &Path) -> Result<Done> {
    let image = HostFile::image(path)?;
    let Some(journal) = HostFile::journal(&beside(path))? else { return Ok(Done::Nothing) };
    Ok(match recover(&journal, &image, How::default(), &mut |_| {})? {
        Recovered::Nothing => Done::Nothing,
        Recovered::Dropped => Done::Dropped,
        Recovered::Applied(_) => Done::Applied,
        Recovered::Discarded(_) => bail!("a repair discarded what nobody wanted it to"),
    })
}
