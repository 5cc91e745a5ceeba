//! Pages of single results files, which are beside them.

use std::path::PathBuf;

use anyhow::{Result, bail};
use belay_fixtures::page::write_or_check;
use clap::Args;

use crate::run_file::{Results, RunFile};
use crate::{blackout, layouts};

/// Arguments of `page`.
#[derive(Args, Clone, Debug)]
pub struct PageArgs {
    /// Results of `layouts` or `blackout`; the page is beside them, and ends in `.md`
    #[arg(value_name = "FILE")]
    results: PathBuf,
    /// Write nothing; fail if the page is not as it would be written
    #[arg(long)]
    check: bool,
}

/// Writes the page of results anew, or looks whether it is true.
pub fn run(args: &PageArgs) -> Result<bool> {
    let file = RunFile::read(&args.results)?;
    let results = args.results.display();
    let text = match &file.results {
        Results::Layouts(run) => layouts::page_of(&file, run),
        Results::Blackout(run) => blackout::page_of(&file, run),
        _ => bail!("{results}: `belay-bench page` shows results of `layouts` and `blackout` only"),
    };
    let path = args.results.with_extension("md");
    write_or_check(&path, &text, args.check, || format!("belay-bench page {results}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_page_is_what_its_results_say() -> Result<()> {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/volumes");
        for name in ["layouts", "blackout-unpinned"] {
            let dir = tempfile::tempdir()?;
            let results = dir.path().join("results.json");
            let path = results.with_extension("md");
            fs::copy(docs.join(name).with_extension("json"), &results)?;
            fs::copy(docs.join(name).with_extension("md"), &path)?;
            let checked = |check| run(&PageArgs { results: results.clone(), check });
            assert!(checked(true)?, "{name}: it was written of these");
            fs::write(&path, fs::read_to_string(&path)?.replace("max", "most") + "more")?;
            assert!(!checked(true)?, "{name}: somebody has changed it");
            assert!(checked(false)? && checked(true)?, "{name}: it was written again");
            fs::write(&results, "{}")?;
            assert!(checked(true).is_err(), "that is no results file");
        }
        Ok(())
    }
}
