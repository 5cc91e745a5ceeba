//! The figures as a page for docs/fault-study.md and those of volumes, and as JSON beside it.

use std::path::Path;

use anyhow::{Context, Result};
use belay_fixtures::{Kind, table};

use super::counts::Counts;
use serde::Serialize;

/// The column with what `belay repair` has found.
const JOURNALS: usize = 6;

#[derive(Serialize)]
struct Results<'a> {
    /// Of this format.
    version: u32,
    command: &'a str,
    rows: &'a [(Kind, Counts)],
}

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
    // A volume has no journal that `belay repair` would find.
    let is_volume = rows.iter().all(|(kind, _)| kind.is_volume());
    let is_told = |(column, _): &(usize, String)| !is_volume || *column != JOURNALS;
    let row = |name: String, counts: &Counts| -> Vec<String> {
        let cells = [vec![name], counts.cells()].concat();
        cells.into_iter().enumerate().filter(is_told).map(|(_, cell)| cell).collect()
    };
    let results = Results { version: 1, command, rows };
    let json = serde_json::to_string_pretty(&results).context("encoding the figures")? + "\n";
    let beside = path.with_extension("json");
    std::fs::write(&beside, json).with_context(|| format!("writing {}", beside.display()))?;
    let mut total = Counts::default();
    rows.iter().for_each(|(_, counts)| total.add(counts));
    let kinds = rows.iter().map(|(kind, counts)| row(kind.to_string(), counts));
    let rows = kinds.chain([row("total".to_owned(), &total)]);
    let columns = columns.map(str::to_owned).into_iter().enumerate().filter(is_told);
    let columns: Vec<_> = columns.map(|(_, title)| table::words(title)).collect();
    text += &table::tabulate(&columns, rows);
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
