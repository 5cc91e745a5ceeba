//! Pages of single results files, which are beside them.

use std::path::PathBuf;

use anyhow::{Result, bail};
use belay_fixtures::page::write_or_check;
use clap::Args;

use crate::begun::describe;
use crate::model::Load;
use crate::recovery::table as recovery;
use crate::refuse::table::{self as refuse, MEMBRANE, REFUSE};
use crate::restart::table as restart;
use crate::run_file::{Results, RunFile};
use crate::{blackout, layouts};

/// Arguments of `page`.
#[derive(Args, Clone, Debug)]
pub struct PageArgs {
    /// Results of `layouts`, `blackout`, `refuse`, `membrane`, `restart` or `recovery`; the page is
    /// beside them, and ends in `.md`
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
    let Some(text) = page_of(&file) else {
        bail!("{results}: these results have no page of their own; `belay-bench report` shows them")
    };
    let path = args.results.with_extension("md");
    write_or_check(&path, &text, args.check, || format!("belay-bench page {results}"))
}

/// The page of these results, if they have one of their own.
pub fn page_of(file: &RunFile) -> Option<String> {
    Some(match &file.results {
        Results::Layouts(run) => layouts::page_of(file, run),
        Results::Blackout(run) => blackout::page_of(file, run),
        Results::Refuse(run) | Results::Membrane(run) => {
            let is_refuse = matches!(file.results, Results::Refuse(_));
            let loads = run.fixtures.iter().map(|one| (one.fixture.as_str(), one.load));
            let paper = if is_refuse { &REFUSE } else { &MEMBRANE };
            refuse::markdown(paper, run, &foot(file, loads))
        }
        Results::Restart(run) => {
            let loads = run.fixtures.iter().map(|one| (one.fixture.as_str(), one.load));
            restart::markdown(run, &foot(file, loads))
        }
        Results::Recovery(run) => {
            let loads = run.fixtures.iter().map(|one| (one.fixture.as_str(), one.load));
            recovery::markdown(run, &foot(file, loads))
        }
        Results::Cost(_) | Results::Path(_) | Results::Carry(_) | Results::Memory(_) => {
            return None;
        }
    })
}

/// Where, how and when something was measured, and how busy the machine was.
fn foot<'a>(file: &RunFile, loads: impl Iterator<Item = (&'a str, Load)>) -> String {
    let RunFile { machine, placement, started, command, .. } = file;
    let foot = describe(machine, *placement, "back ends in memory", started, command);
    let load =
        |(name, load): (&str, Load)| format!("{name} {:.1} to {:.1}", load.before, load.after);
    let loads: Vec<String> = loads.map(load).collect();
    format!("{foot}; load of the machine before and after: {}", loads.join(", "))
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
