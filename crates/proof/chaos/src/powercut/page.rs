//! The figures as a page for docs/fault-study.md.

use std::path::Path;

use anyhow::{Context, Result};
use belay_fixtures::{Kind, table};

use super::counts::Counts;

/// Writes a page: how it was done, by which command, and a row for each fixture.
pub fn write(path: &Path, how: &str, command: &str, rows: &[(Kind, Counts)]) -> Result<()> {
    let mut text = format!("{how}\n\n    belay-chaos {command}\n\n");
    let columns = [
        "image",
        "machines killed",
        "of them after an orderly end",
        "losses tried besides",
        "of all, with writes not yet synced",
        "losses in repairs",
        "journals applied, dropped, empty",
        "different images checked",
        "steps known to be durable, all there",
        "steps there",
        "wrong",
    ];
    let row = |name: String, counts: &Counts| [vec![name], counts.cells()].concat();
    let mut total = Counts::default();
    rows.iter().for_each(|(_, counts)| total.add(counts));
    let kinds = rows.iter().map(|(kind, counts)| row(kind.to_string(), counts));
    let rows = kinds.chain([row("total".to_owned(), &total)]);
    text += &table::tabulate(&columns.map(table::words), rows);
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
