//! The figures as a page for docs/fault-study.md and those of volumes, and as JSON beside it.

use std::path::Path;

use anyhow::{Context, Result};
use belay_fixtures::{Kind, table};

use super::counts::Counts;
use serde::{Deserialize, Serialize};

/// The column with what `belay repair` has found.
const JOURNALS: usize = 6;

/// What came of power failures.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// Of this format.
    version: u32,
    /// How it was done, in words.
    how: String,
    /// By which command.
    command: String,
    rows: Vec<(Kind, Counts)>,
}

/// Writes the page, and the results as JSON beside it.
pub fn write(path: &Path, how: &str, command: &str, rows: &[(Kind, Counts)]) -> Result<()> {
    let [how, command] = [how, command].map(str::to_owned);
    let results = Results { version: 1, how, command, rows: rows.to_vec() };
    write_both(path, &results.page(), &results)
}

/// Writes a page, and the results that it is made of as JSON beside it.
pub fn write_both(path: &Path, page: &str, results: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(results).context("encoding the figures")? + "\n";
    for (path, text) in [(path, page), (&path.with_extension("json"), &json)] {
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

impl Results {
    /// The page: how it was done, by which command, and a row for each fixture.
    pub fn page(&self) -> String {
        let Self { how, command, rows, .. } = self;
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
        let mut total = Counts::default();
        rows.iter().for_each(|(_, counts)| total.add(counts));
        let kinds = rows.iter().map(|(kind, counts)| row(kind.to_string(), counts));
        let rows = kinds.chain([row("total".to_owned(), &total)]);
        let columns = columns.map(str::to_owned).into_iter().enumerate().filter(is_told);
        let columns: Vec<_> = columns.map(|(_, title)| table::words(title)).collect();
        text += &table::tabulate(&columns, rows);
        text
    }
}
