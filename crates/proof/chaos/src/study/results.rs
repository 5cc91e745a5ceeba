//! What the studies of single operations have in common: how far they have come, and where their
//! results go.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// How far a study has come, for those who wait at a terminal: the fixture in `width` columns, and
/// what is done there.
pub fn spinner(width: usize) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template(&format!(
        "{{spinner}} {{prefix:{width}}} {{elapsed}} {{msg}}"
    ));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}

/// Where results go: to `out`, else to target/study if `whole`, else nowhere.
pub fn folder(out: Option<&PathBuf>, whole: bool) -> Option<PathBuf> {
    out.cloned().or_else(|| whole.then(|| PathBuf::from("target/study")))
}

/// Writes `name.json` and `name.md` into a directory.
///
/// # Errors
/// When that cannot be done.
pub fn write(dir: &Path, name: &str, results: &impl Serialize, page: &str) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let json = serde_json::to_string_pretty(results).context("encoding the results")? + "\n";
    for (kind, text) in [("json", json.as_str()), ("md", page)] {
        let path = dir.join(format!("{name}.{kind}"));
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
