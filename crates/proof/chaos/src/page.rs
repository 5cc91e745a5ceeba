//! Pages made of results again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use belay_fixtures::page::write_or_check;
use serde::Deserialize;

use crate::{powercut, report, study};

/// Arguments of `page`.
#[derive(Clone, Debug, clap::Args)]
pub struct PageArgs {
    /// Results, as JSON
    #[arg(required = true, value_name = "FILE")]
    results: Vec<PathBuf>,
    /// The page, if it is not the file beside the results that ends in `.md`
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Write nothing; fail if a page is not as it would be written
    #[arg(long)]
    check: bool,
}

/// Results of which a page can be made. They are told by what is in them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Results {
    Soak(report::Report),
    Powercut(powercut::Results),
    PowercutBuild(powercut::build::Results),
    Study(Box<study::Results>),
}

/// Writes the pages, or looks whether they are true.
///
/// # Errors
/// When a file cannot be read, written or understood.
pub fn run(args: &PageArgs) -> Result<bool> {
    ensure!(args.page.is_none() || args.results.len() == 1, "one page is of one file of results");
    let mut all_true = true;
    for results in &args.results {
        let path = args.page.clone().unwrap_or_else(|| results.with_extension("md"));
        let again = || format!("belay-chaos page {}", results.display());
        all_true &= write_or_check(&path, &render(results)?, args.check, again)?;
    }
    Ok(all_true)
}

fn render(results: &Path) -> Result<String> {
    let what = || format!("reading {}", results.display());
    let text = std::fs::read(results).with_context(what)?;
    let found = serde_json::from_slice(&text);
    let found = found.context("no page can be made of this").with_context(what)?;
    Ok(match found {
        Results::Soak(report) => report.page(),
        Results::Powercut(results) => results.page(),
        Results::PowercutBuild(results) => results.page(),
        Results::Study(results) => results.page(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(results: &Path) -> Result<bool> {
        run(&PageArgs { results: vec![results.to_owned()], page: None, check: true })
    }

    #[test]
    fn a_page_is_what_its_results_say() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let results = dir.path().join("soak.json");
        std::fs::write(&results, "{}")?;
        let what = format!("{:#}", checked(&results).expect_err("nothing is in it"));
        assert!(what.contains("soak.json: no page can be made of this"), "{what}");
        let page = dir.path().join("soak.md");
        report::Report::new(Vec::new()).write_page(&page)?;
        assert!(checked(&results)?, "it was written together with them");
        std::fs::write(&page, std::fs::read_to_string(&page)?.replace("total", "all"))?;
        assert!(!checked(&results)?, "somebody has changed it");
        run(&PageArgs { results: vec![results.clone()], page: None, check: false })?;
        assert!(checked(&results)?, "it was written again");
        Ok(())
    }
}
