//! The benchmarks of the Re-FUSE and Membrane studies, in little: they run from end to end, and
//! their results can be read. No figure is judged here.

use std::path::Path;
use std::process::Command;

use belay_fixtures::table::unpadded;

fn bench(args: &str, out: &Path) -> Option<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_belay-bench"));
    if !program.with_file_name("belay").is_file() && std::env::var_os("BELAY_BIN").is_none() {
        eprintln!("skipped: no belay beside {}; build the workspace", program.display());
        return None;
    }
    let mut command = Command::new(program);
    command.args(args.split_whitespace()).arg("--out").arg(out);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{errors}");
    Some(said)
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_layout_of_a_volume_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let layouts = "layouts --rounds 1 --benchmarks files,postmark --postmark-files 20 --transactions 40 --file-mib 2 \
                   --overwrites 40 --seeds 20 --workdir /dev/shm --pin none";
    if bench(layouts, dir.path()).is_none() {
        return;
    }
    let run = json(&dir.path().join("layouts-unpinned.json"));
    let benchmarks = run["results"]["benchmarks"].as_array().unwrap();
    let names: Vec<_> = benchmarks.iter().map(|one| one["name"].as_str().unwrap()).collect();
    let files =
        ["Sequential write", "Sequential read", "Sequential overwrite", "Random overwrites"];
    assert_eq!(names, [&files[..], &["postmark"]].concat());
    let costs = benchmarks.iter().flat_map(|one| one["layouts"].as_array().unwrap());
    for cost in costs.clone() {
        assert!(cost["us"]["median"].as_f64().unwrap() > 0.0, "{cost}");
    }
    assert_eq!(costs.count(), 5 * 10);
    let page = std::fs::read_to_string(dir.path().join("layouts-unpinned.md")).unwrap();
    let page = unpadded(&page);
    assert!(page.contains("| TwinFS-16 | 1144 s | +3.9 % |"), "{page}");
    // With so few seeds, the baseline that is worst is found out.
    let survival = run["results"]["survival"].as_array().unwrap();
    let first: Vec<_> = survival.iter().map(|one| one["first_seed"].is_number()).collect();
    let wanted: Vec<bool> = (0..10).map(|layout| layout < 2).collect();
    assert_eq!(first, wanted);
}

#[test]
fn tables_come_out_of_short_runs() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = "refuse --fixtures avfs --sessions 2 --rounds 2 --file-mib 1 --files 2 --macro-rounds 2 \
                  --workloads sort --scale tiny --pin none";
    if bench(refuse, dir.path()).is_none() {
        return;
    }
    let run = json(&dir.path().join("refuse-unpinned.json"));
    for fixture in run["results"]["fixtures"].as_array().unwrap() {
        let cases = fixture["cases"].as_array().unwrap();
        let ops: Vec<_> = cases.iter().map(|case| case["result"]["op"].as_str().unwrap()).collect();
        assert_eq!(
            ops,
            [
                "Sequential read",
                "Sequential write",
                "Random read",
                "Random write",
                "Create",
                "Delete",
                "sort"
            ]
        );
        for case in cases {
            for side in ["result", "control"] {
                assert_eq!(case[side]["pairs"].as_array().unwrap().len(), 2, "{case}");
                assert!(case[side]["bare_us"].as_f64().unwrap() > 0.0, "{case}");
            }
        }
    }
    let restart =
        "restart --fixtures bindfs --crashes 3 --plain 2 --size-mb 3 --starts 2 --pin none";
    bench(restart, dir.path());
    let run = json(&dir.path().join("restart-unpinned.json"));
    let fixture = &run["results"]["fixtures"][0];
    let count = |name: &str| fixture[name].as_array().unwrap().len();
    assert_eq!(
        (count("crashes"), count("crashed_s"), count("bare_s"), count("held_s")),
        (3, 3, 2, 2)
    );
    for crash in fixture["crashes"].as_array().unwrap() {
        let phases = &crash["phases_us"];
        let at = |name: &str| phases[name].as_f64().unwrap();
        // Not `spawned`: that is when the supervisor came back from the start, and the successor
        // may be quicker.
        assert!(at("attached") <= at("first_read") && at("first_read") <= at("ready"), "{crash}");
        assert!(crash["blackout_us"].as_f64().unwrap() >= at("ready"), "{crash}");
    }
    // Daemons that buffer.
    let membrane = "membrane --fixtures fuse2fs-ext2 --sessions 2 --rounds 2 --file-mib 1 --files 2 --macro-rounds 2 \
                    --workloads sort --scale tiny --pin none";
    bench(membrane, dir.path());
    let run = json(&dir.path().join("membrane-unpinned.json"));
    assert_eq!(run["results"]["fixtures"][0]["cases"].as_array().unwrap().len(), 7, "{run}");
    let recovery = "recovery --fixtures fuse2fs-ext2 --crashes 2 --starts 2 --dirty-mb 2 --sessions 5 --records 300 --pin none";
    bench(recovery, dir.path());
    let run = json(&dir.path().join("recovery-unpinned.json"));
    let cases = run["results"]["fixtures"][0]["cases"].as_array().unwrap();
    let records = |series: &str| -> Vec<u64> {
        let case = cases.iter().find(|case| case["series"] == series).unwrap();
        case["crashes"].as_array().unwrap().iter().map(|c| c["records"].as_u64().unwrap()).collect()
    };
    for (series, expected) in [("empty", 0), ("sessions", 0), ("reads", 0), ("changes", 300)] {
        assert_eq!(records(series), [expected; 2], "{series}");
    }
    // Of writes to the same pages the last ones are left.
    assert!(records("rewrites").iter().all(|n| (1..=256).contains(n)), "{:?}", records("rewrites"));
    for case in cases {
        for crash in case["crashes"].as_array().unwrap() {
            let of = |name: &str| crash[name].as_f64().unwrap();
            assert!(
                of("daemon_us") <= of("settle_us") && of("settle_us") <= of("blackout_us"),
                "{case}"
            );
        }
    }
    for (page, row) in [
        ("refuse-unpinned.md", "| avfs | sort |"),
        ("restart-unpinned.md", "| bindfs |"),
        ("membrane-unpinned.md", "| fuse2fs-ext2 | sort |"),
        ("recovery-unpinned.md", "| 300 changes of times |"),
    ] {
        let text = unpadded(&std::fs::read_to_string(dir.path().join(page)).unwrap());
        assert!(text.contains(row), "{text}");
    }
    // Beside them, `report` finds its own results or none, but is not put off.
    let report = format!("report --in {}", dir.path().display());
    bench(&report, &dir.path().join("page"));
    let page = unpadded(&std::fs::read_to_string(dir.path().join("page/benchmarks.md")).unwrap());
    assert!(page.contains("Table 6") && page.contains("| fuse2fs-ext2 | sort |"), "{page}");
}
