//! All random tests of the crates keep a case that fails where the next run finds it: each takes
//! its configuration from `cases!`.

use std::fs;
use std::path::Path;

fn without(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            without(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for (at, line) in lines.iter().enumerate().filter(|(_, line)| **line == "proptest! {") {
                let next = lines.get(at + 1).copied().unwrap_or_default();
                if !next.starts_with("#![proptest_config(belay_seeds::cases!(") {
                    found.push(format!("{}:{}: {line}", path.display(), at + 1));
                }
            }
        }
    }
}

#[test]
fn all_random_tests_keep_what_fails() {
    let mut found = Vec::new();
    without(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &mut found);
    assert!(found.is_empty(), "no belay_seeds::cases!: {found:#?}");
}
