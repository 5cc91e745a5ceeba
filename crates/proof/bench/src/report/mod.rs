//! Turns results files into a page of tables, an HTML page with plots, and CSV figures.
//!
//! Every word that judges is computed from the results: see [`view`].

mod cost_view;
mod figures;
mod goals;
mod judged;
mod path_view;
mod plot;
mod view;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use belay_fixtures::page::write_or_check;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};

use crate::run_file::RunFile;
use view::View;

pub use view::Holder;

/// A results file with its name.
#[derive(Clone, Debug)]
pub struct Named {
    /// Name of the file, without its directory.
    pub name: String,
    /// Its content.
    pub run: RunFile,
}

/// Reads the results in `input` and writes `benchmarks.md`, `benchmarks.html` and
/// `benchmarks/*.csv` below `output`. Returns what was written.
pub fn write(input: &Path, output: &Path, holder: Holder) -> Result<Vec<PathBuf>> {
    let files = render(input, output, holder)?;
    for (path, text) in &files {
        let dir = path.parent().context("a report needs a directory")?;
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

/// Whether the page below `output`, and what else of these is there, is as it would be written.
pub fn is_true(input: &Path, output: &Path, holder: Holder) -> Result<bool> {
    let mut is_true = true;
    for (number, (path, text)) in render(input, output, holder)?.iter().enumerate() {
        // The page must be there; who keeps no plots and figures has none that are wrong.
        if number == 0 || path.exists() {
            let (from, to) = (input.display(), output.display());
            let relay = if holder == Holder::Relay { " --relay" } else { "" };
            let again = || format!("belay-bench report{relay} --in {from} --out {to}");
            is_true &= write_or_check(path, text, true, again)?;
        }
    }
    Ok(is_true)
}

/// The page, which is the first, the plots and the figures, and where each is to be.
fn render(input: &Path, output: &Path, holder: Holder) -> Result<Vec<(PathBuf, String)>> {
    let runs = read_all(input)?;
    let view = View::new(&runs, holder);
    let mut files = vec![
        (output.join("benchmarks.md"), markdown(&view)?),
        (output.join("benchmarks.html"), html(&view)?),
    ];
    for (name, text) in figures::csv_files(&runs)? {
        files.push((output.join("benchmarks").join(name), text));
    }
    Ok(files)
}

/// All results files of a directory, by name.
fn read_all(input: &Path) -> Result<Vec<Named>> {
    let mut runs = Vec::new();
    let entries = fs::read_dir(input).with_context(|| format!("list {}", input.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", input.display()))?.path();
        if path.extension().is_some_and(|e| e == "json") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            runs.push(Named { name, run: RunFile::read(&path)? });
        }
    }
    ensure!(
        !runs.is_empty(),
        "{} holds no results (*.json): run `belay-bench cost`, `memory` or `blackout` with `--out {0}` first",
        input.display()
    );
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(runs)
}

fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment.set_auto_escape_callback(|name| {
        if name.ends_with(".html") { AutoEscape::Html } else { AutoEscape::None }
    });
    environment.add_template("benchmarks.md", include_str!("benchmarks.md.jinja"))?;
    environment.add_template("benchmarks.html", include_str!("benchmarks.html.jinja"))?;
    Ok(environment)
}

fn markdown(view: &View) -> Result<String> {
    let text = environment()?.get_template("benchmarks.md")?.render(view)?;
    // A table cell that is empty, or a list that is not there, must not leave runs of empty lines
    // behind.
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|a, b| a.is_empty() && b.is_empty());
    Ok(lines.join("\n").trim_end().to_owned() + "\n")
}

fn html(view: &View) -> Result<String> {
    Ok(environment()?.get_template("benchmarks.html")?.render(view)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::model::{PathCase, PathRun};
    use crate::run_file::Results;
    use crate::stats::Spread;

    const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");

    #[test]
    fn a_report_is_rendered_from_sample_results() -> Result<()> {
        let out = tempfile::tempdir()?;
        let written = write(Path::new(SAMPLES), out.path(), Holder::Shim)?;
        let names: Vec<String> = written
            .iter()
            .map(|p| p.strip_prefix(out.path()).unwrap_or(p).display().to_string())
            .collect();
        for name in [
            "benchmarks.md",
            "benchmarks.html",
            "benchmarks/cost.csv",
            "benchmarks/memory.csv",
            "benchmarks/blackout.csv",
        ] {
            assert!(names.iter().any(|n| n == name), "{name} is missing from {names:?}");
        }
        let path = out.path().join("benchmarks.md");
        let page = fs::read_to_string(&path)?;
        let checked = || is_true(Path::new(SAMPLES), out.path(), Holder::Shim);
        assert!(checked()?, "it has just been written");
        fs::write(&path, page.replace("1.044", "1.004"))?;
        assert!(!checked()?, "somebody has made a figure better");
        fs::remove_file(&path)?;
        assert!(checked().is_err(), "there is no page");
        fs::write(&path, &page)?;
        let figures = out.path().join("benchmarks/cost.csv");
        fs::remove_file(&figures)?;
        assert!(checked()?, "nobody needs the figures");
        fs::write(&figures, "")?;
        assert!(!checked()?, "but if they are there, they are right");
        // The two cases' median ratios are 1.01 and 1.08: geometric mean 1.0444.
        for expected in [
            "1.044",
            "1.080",
            "belay-bench cost --fixtures bindfs",
            "6.18.0-test",
            "not met",
            "pinned to CPU 1",
        ] {
            assert!(page.contains(expected), "no {expected:?} in the page:\n{page}");
        }
        let html = fs::read_to_string(out.path().join("benchmarks.html"))?;
        assert!(html.contains("<svg") && html.contains("</svg>") && html.contains("</html>"));
        assert!(
            !html.contains("src=\"http") && !html.contains("href=\"http"),
            "the page must need no other file"
        );
        assert!(html.contains("no &lt;such&gt; file"), "errors are escaped");
        Ok(())
    }

    fn sample() -> Result<RunFile> {
        RunFile::read(&Path::new(SAMPLES).join("cost.json"))
    }

    #[test]
    fn the_relay_is_not_judged_by_the_aims_of_the_shim() -> Result<()> {
        let runs = [Named { name: "cost.json".to_owned(), run: sample()? }];
        let [shim, relay] = [Holder::Shim, Holder::Relay]
            .map(|holder| markdown(&View::new(&runs, holder)).expect("a page"));
        for judged in ["Aims: geometric mean at most 1.03,", "| not met |", "each ≤ 1.05"] {
            assert!(shim.contains(judged) && !relay.contains(judged), "{judged}: {relay}");
        }
        assert!(relay.contains("| 1.080 |"), "{relay}");
        Ok(())
    }

    #[test]
    fn requests_are_judged_and_shown_beside_those_of_earlier_code() -> Result<()> {
        let sample = sample()?;
        let case = |operation: &str, ns: f64| PathCase {
            operation: operation.to_owned(),
            requests: 1,
            ns: Spread::of(&[ns; 3]).expect("samples"),
            instructions: Some(10.0 * ns),
        };
        let path = |name: &str, ns: f64| {
            let cases = vec![case("getattr", ns), case("write", ns)];
            let run = PathRun { count: 1, rounds: 3, cases, failures: Vec::new() };
            let run = RunFile { results: Results::Path(run), ..sample.clone() };
            Named { name: name.to_owned(), run }
        };
        let both = [path("path-before.json", 400.0), path("path.json", 200.0)];
        let page = markdown(&View::new(&both, Holder::Shim))?;
        for row in [
            "| getattr | 1 | 4000 | 2000 | 400 | 200 | 200–200 | 200–200 | 150 | not met |",
            "| write | 1 | 4000 | 2000 | 400 | 200 | 200–200 | 200–200 | 300 | met |",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
        assert!(!page.contains("### path-before.json"), "{page}");
        let page = markdown(&View::new(&both[1..], Holder::Shim))?;
        let row = "| getattr | 1 | 2000 | 200 | 200–200 | 200–200 | 150 | not met |";
        assert!(page.contains(row), "{page}");
        Ok(())
    }

    #[test]
    fn an_empty_directory_says_what_to_do() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let error = write(dir.path(), dir.path(), Holder::Shim).expect_err("nothing to report");
        assert!(error.to_string().contains("belay-bench cost"), "{error}");
        Ok(())
    }
}
