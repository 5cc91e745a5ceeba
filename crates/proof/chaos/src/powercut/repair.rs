//! `belay repair`, as it is called after a power failure.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use belay_fixtures::{Belay, process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// What it found in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Nothing, or there was none.
    Nothing,
    /// A commit that had not got as far as the image.
    Dropped,
    /// A commit, which is on the image now.
    Applied,
}

/// Repairs an image. `state_dir` is where belay would note that it has it.
pub fn repair(image: &Path, state_dir: &Path) -> Result<Done> {
    let mut command = Belay::find()?.command();
    command.args(["repair", "--json", "--state-dir"]).arg(state_dir).arg(image);
    let output = process::run_ok(command, LIMIT)?;
    let said: Value =
        serde_json::from_slice(&output.stdout).context("`belay repair --json` said no JSON")?;
    let journals =
        said["journals"].as_array().context("`belay repair --json` names no journals")?;
    let mut all = Done::Nothing;
    for journal in journals {
        all = match journal["done"].as_str() {
            Some("nothing") => all,
            Some("dropped") => Done::Dropped,
            Some("applied") => Done::Applied,
            other => bail!("`belay repair` has done {other:?}, which nobody wanted it to"),
        };
    }
    Ok(all)
}
