//! `belay qualify`.

use crate::qualify::{self, options::Options};
use anyhow::Result;

/// Runs it.
pub fn run(options: &Options) -> Result<i32> {
    qualify::run(options)
}
