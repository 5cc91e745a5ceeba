//! The figures as a page for docs/fault-study.md.

use std::path::Path;

use anyhow::{Context, Result};
use belay_fixtures::Kind;

use super::counts::Counts;

/// Writes a page: how it was done, by which command, and a row for each fixture.
pub fn write(path: &Path, how: &str, command: &str, rows: &[(Kind, Counts)]) -> Result<()> {
    let mut text = format!("{how}\n\n    belay-chaos {command}\n\n");
    text += "| image | machines killed | of them after an orderly end | losses tried besides | of all, with writes not yet synced | \
             losses in repairs | journals applied, dropped, empty | different images checked | steps known to be durable, all \
             there | steps there | wrong |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
    let mut total = Counts::default();
    for (kind, counts) in rows {
        total.add(counts);
        text += &format!("| {kind} {}\n", counts.cells());
    }
    text += &format!("| total {}\n", total.cells());
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
