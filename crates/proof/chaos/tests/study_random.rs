//! The study of random crashes, in little, with the real belay: what is survived counts, what is
//! not is told.

use std::path::Path;
use std::process::{Command, Output};

use belay_fixtures::table::unpadded;

fn study(args: &str, out: &Path) -> Option<(Output, serde_json::Value)> {
    let program = Path::new(env!("CARGO_BIN_EXE_belay-chaos"));
    if !program.with_file_name("belay").is_file() && std::env::var_os("BELAY_BIN").is_none() {
        eprintln!("skipped: no belay beside {}; build the workspace", program.display());
        return None;
    }
    let mut command = Command::new(program);
    command.args(["study", "random"]).args(args.split_whitespace()).arg("--out").arg(out);
    let output = command.output().unwrap();
    let json = std::fs::read(out.join("random.json"));
    let json = json.unwrap_or_else(|error| panic!("{error}; {output:?}"));
    Some((output, serde_json::from_slice(&json).unwrap()))
}

#[test]
fn crashes_are_survived_held_and_not_bare() {
    let dir = tempfile::tempdir().unwrap();
    let args = "--fixtures bindfs,avfs --workloads sort,openssh --scale tiny --crashes 5 --seed 3";
    let Some((output, json)) = study(args, dir.path()) else { return };
    assert!(output.status.success(), "{output:?}");
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        let runs = cell["runs"].as_array().unwrap();
        let crashes: u64 = runs.iter().map(|run| run["crashes"].as_u64().unwrap()).sum();
        assert_eq!(crashes, 5, "{cell}");
        // belay's own count, which nobody of the study told it.
        let counted: f64 = runs.iter().map(|run| run["counted_by_belay"].as_f64().unwrap()).sum();
        assert!((counted - 5.0).abs() < 0.5, "{cell}");
        let control = &cell["control"];
        let wrong = control["wrong"].as_array().unwrap();
        assert!(control["crashes"] == 0 || !wrong.is_empty(), "{control}");
    }
    let table = unpadded(&std::fs::read_to_string(dir.path().join("random.md")).unwrap());
    assert!(table.contains("| bindfs | 5 of 5 | - | 5 of 5 | - |"), "{table}");
    assert!(table.contains("| avfs | 5 of 5 | 100 of 100 | 5 of 5 | 100 of 100 |"), "{table}");
}

/// A daemon that is asked to end unmounts, and belay ends with it: the study must tell a wrong end,
/// and how to repeat it.
#[test]
fn what_is_not_survived_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let args = "--fixtures bindfs --workloads openssh --scale tiny --crashes 40 --seed 3 --no-control \
                --patience 1 --signals TERM";
    let Some((output, json)) = study(args, dir.path()) else { return };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let run = &json["cells"][0]["runs"][0];
    assert!(!run["wrong"].as_array().unwrap().is_empty(), "{run}");
    let replay = run["replay"].as_str().unwrap();
    assert!(replay.contains("--seed 3") && replay.contains("--signals TERM"), "{replay}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("DIVERGENCE") && said.contains(replay), "{said}");
}
