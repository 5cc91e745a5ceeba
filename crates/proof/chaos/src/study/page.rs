//! The page of a controlled study, made of its results again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::controlled;

/// Arguments of `study page`.
#[derive(Clone, Debug, clap::Args)]
pub struct PageArgs {
    /// What `study controlled` has written
    #[arg(long, value_name = "FILE")]
    results: PathBuf,
    /// The page
    #[arg(long, value_name = "FILE")]
    page: PathBuf,
    /// Write nothing; fail if the page is not as it would be written
    #[arg(long)]
    check: bool,
}

/// Writes the page, or looks whether it is true.
pub fn run(args: &PageArgs) -> Result<bool> {
    let text = render(&args.results)?;
    let page = args.page.display();
    if args.check {
        let there = std::fs::read_to_string(&args.page);
        let there = there.with_context(|| format!("reading {page}"))?;
        if there != text {
            println!("{page} is not what {} says", args.results.display());
        }
        return Ok(there == text);
    }
    std::fs::write(&args.page, text).with_context(|| format!("writing {page}"))?;
    Ok(true)
}

fn render(results: &Path) -> Result<String> {
    let what = || results.display().to_string();
    let text = std::fs::read(results).with_context(what)?;
    Ok(controlled::markdown(&serde_json::from_slice(&text).with_context(what)?))
}
