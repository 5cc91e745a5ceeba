//! docs/failure-classes.md names, for each class of failure, the tests that exclude it: all of them
//! exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Names of all functions below `dir` that carry a test attribute, and of fuzz targets.
fn collect(dir: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, tests);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let mut marked = false;
            for line in text.lines().map(str::trim_start) {
                if line.starts_with("#[test]") || line.starts_with("proptest! {") {
                    marked = true;
                } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| marked) {
                    let name = rest.split(['(', '<']).next().unwrap_or_default();
                    tests.insert(name.to_owned());
                    marked = false;
                }
            }
        }
    }
}

#[test]
fn every_class_of_failure_names_tests_that_exist() {
    let mut tests = BTreeSet::new();
    collect(&root().join("crates"), &mut tests);
    let page = fs::read_to_string(root().join("docs/failure-classes.md")).expect("the page");
    let mut missing = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 3, "three cells, none with a bar in it: {row}");
        if cells[2] == "tests" {
            continue;
        }
        let named: Vec<&str> = cells[2].split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test is named: {row}");
        missing.extend(named.into_iter().filter(|name| !tests.contains(*name)).map(str::to_owned));
    }
    assert!(
        missing.is_empty(),
        "docs/failure-classes.md names tests that do not exist: {missing:?}"
    );
}
