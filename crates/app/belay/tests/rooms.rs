//! ARCHITECTURE.md: its drawing, which says which crate is in which room and which ones it uses, is
//! compared with what cargo says; the files that it names are looked for.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A crate's room and the crates that it uses.
type Crates = BTreeMap<String, (String, BTreeSet<String>)>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The drawing, and its crates in their order.
fn drawn() -> (Crates, Vec<String>) {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let (_, drawing) = page.split_once("```text\nroom ").expect("the drawing");
    let (drawing, _) = drawing.split_once("```").expect("its end");
    let (mut crates, mut order, mut room) = (Crates::new(), Vec::new(), String::new());
    for line in drawing.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        let mut words = line.split([' ', ',']).filter(|word| !word.is_empty());
        if !line.starts_with(' ') {
            room = words.next().expect("a room").to_owned();
        }
        let name = words.next().expect("a crate").to_owned();
        crates.insert(name.clone(), (room.clone(), words.map(str::to_owned).collect()));
        order.push(name);
    }
    (crates, order)
}

fn short(name: &str) -> String {
    name.strip_prefix("belay-").unwrap_or(name).to_owned()
}

/// The same from the manifests. What tests alone use is left out.
fn built() -> Crates {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let output = command.current_dir(root()).output().expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let known: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = known["packages"].as_array().expect("packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|one| one["name"].as_str()).collect();
    let one = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let folder = manifest.parent().and_then(Path::parent).and_then(Path::file_name);
        let uses = package["dependencies"].as_array().expect("dependencies").iter();
        let uses = uses.filter(|used| used["kind"] != "dev");
        let uses =
            uses.filter_map(|used| used["name"].as_str()).filter(|used| names.contains(used));
        let room = folder.expect("a room").to_string_lossy().into_owned();
        (short(package["name"].as_str().expect("a name")), (room, uses.map(short).collect()))
    };
    packages.iter().map(one).collect()
}

#[test]
fn the_drawing_shows_the_crates_and_what_they_use() {
    let ((drawn, _), built) = (drawn(), built());
    for (name, found) in &built {
        assert_eq!(drawn.get(name), Some(found), "{name}");
    }
    assert_eq!(drawn.keys().collect::<Vec<_>>(), built.keys().collect::<Vec<_>>());
}

#[test]
fn no_crate_uses_one_above_it_or_of_a_room_that_is_none_of_its_business() {
    let (crates, order) = drawn();
    let place = |name: &String| order.iter().position(|other| other == name);
    for (name, (room, uses)) in &crates {
        for used in uses {
            let there = &crates.get(used).unwrap_or_else(|| panic!("{used} is not drawn")).0;
            assert!(place(used) > place(name), "{name} uses {used}, which stands above it");
            let may = match (room.as_str(), there.as_str()) {
                (_, "base") | ("hold" | "app", "hold") | ("proof", "proof") => true,
                ("volume" | "app", "volume") => true,
                ("app", "proof") => ["study", "faults"].contains(&used.as_str()),
                // The simulation, and a benchmark, are built around what ships.
                ("proof", "hold") => ["sim", "bench"].contains(&name.as_str()),
                // Who kills a volume's processes aims by its memory, in which a checkpoint shows
                // that is under way.
                ("proof", "volume") => name == "volume-sim" || (name == "chaos" && used == "stack"),
                _ => false,
            };
            assert!(may, "{name} ({room}) uses {used} ({there})");
        }
    }
}

/// What lies below `folder`, and where.
fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&entry.path(), found);
        }
    }
}

#[test]
fn the_files_that_the_page_names_are_there() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let mut found = Vec::new();
    below(&root().join("crates"), &mut found);
    let crates: BTreeSet<String> = built().into_keys().collect();
    let is_there = |word: &str| match word.split_once('/') {
        Some((name, rest)) if crates.contains(name) => {
            let places = [Path::new(name).join("src").join(rest), Path::new(name).join(rest)];
            places.iter().any(|place| found.iter().any(|path| path.ends_with(place)))
        }
        _ => !word.ends_with(".rs") || found.iter().any(|path| path.ends_with(word)),
    };
    let words = page.split('`').skip(1).step_by(2).filter(|word| !word.contains([' ', '\n']));
    let gone: Vec<&str> = words.filter(|word| !is_there(word)).collect();
    assert!(gone.is_empty(), "{gone:?}");
}

/// Lines of a module without its tests.
const MOST_LINES: usize = 400;
/// Columns of a comment. One that cannot be broken, as a row of a table, may be wider.
const MOST_COLUMNS: usize = 100;

/// All sources in Rust, with what is in them.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    below(&root().join("crates"), &mut found);
    found.retain(|path| path.extension().is_some_and(|end| end == "rs"));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a source");
        (path, text)
    };
    let sources: Vec<_> = found.into_iter().map(read).collect();
    assert!(sources.len() > 300, "{} sources were looked at", sources.len());
    sources
}

/// A module that has grown long has parts of its own by then.
#[test]
fn no_module_is_long() {
    let mut long = Vec::new();
    for (path, text) in sources() {
        let is_module = path.components().any(|part| part.as_os_str() == "src")
            && path.file_stem().is_none_or(|stem| stem != "tests");
        let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").count();
        if is_module && lines > MOST_LINES {
            long.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert!(long.is_empty(), "longer than {MOST_LINES} lines: {long:#?}");
}

/// rustfmt wraps code, and leaves comments as they are.
#[test]
fn no_comment_is_wide() {
    let mut wide = Vec::new();
    for (path, text) in sources() {
        for (line, number) in text.lines().zip(1..) {
            let comment = line.trim_start().strip_prefix("//");
            let words = comment.map(|text| text.trim_start_matches(['/', '!']).trim_start());
            let may_break = |words: &str| !words.starts_with('|') && words.contains(' ');
            if line.chars().count() > MOST_COLUMNS && words.is_some_and(may_break) {
                wide.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert!(wide.is_empty(), "wider than {MOST_COLUMNS} columns: {wide:#?}");
}
