//! The fault study on real daemons: it finds what is known to be there.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Mounting takes root and the device.
fn can_mount() -> bool {
    let ok = File::options().read(true).write(true).open("/dev/fuse").is_ok()
        && std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    if !ok {
        eprintln!("skipped: mounting takes root and /dev/fuse");
    }
    ok
}

fn study(args: &str, out: &Path) -> (Output, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belay-chaos"));
    command.args(["study", "controlled"]).args(args.split_whitespace());
    let output = command.arg("--out").arg(out).output().unwrap();
    let json = std::fs::read(out.join("controlled.json")).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    (output, serde_json::from_slice(&json).unwrap())
}

/// The experiments of a study, as `operation point signal`, for which something holds.
fn which(study: &Value, holds: impl Fn(&Value) -> bool) -> Vec<String> {
    let experiments = study["experiments"].as_array().unwrap().iter();
    let text = |e: &Value, key: &str| e[key].as_str().unwrap().to_owned();
    experiments
        .filter(|e| holds(e))
        .map(|e| [text(e, "operation"), text(e, "point"), text(e, "signal")].join(" "))
        .collect()
}

#[test]
fn a_bare_daemon_survives_nothing() {
    if !can_mount() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let args = "--beds bindfs --ops mkdir,stat --columns bare --signals KILL,SEGV";
    let (output, study) = study(args, out.path());
    // Nothing here speaks against belay.
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(study["troubles"].as_array().unwrap().len(), 0, "{}", study["troubles"]);
    // Two effects for mkdir, none for stat, two signals.
    assert_eq!(which(&study, |e| e["reached"] == true).len(), 2 * (7 + 3));
    assert_eq!(which(&study, |e| e["usable"] == true), Vec::<String>::new());
    let unaware = which(&study, |e| e["operation"] == "mkdir" && e["application"] == "ok");
    assert_eq!(unaware, ["mkdir after-reply KILL", "mkdir after-reply SEGV"]);
    // The directory is made and not yet its owner's.
    let torn = which(&study, |e| e["consistent"] == false);
    let points = ["after-1 KILL", "after-1 SEGV", "before-2 KILL", "before-2 SEGV"];
    assert_eq!(torn, points.map(|point| format!("mkdir {point}")));
    let page = std::fs::read_to_string(out.path().join("controlled.md")).unwrap();
    assert!(
        page.contains("| mkdir | MKDIR: mkdir, chown | √ 2, × 12 | √ 10, × 4 | × 14 |"),
        "{page}"
    );
}

/// Needs belay beside this program, as `make test` builds it.
#[test]
fn a_restart_alone_repeats_what_was_done() {
    if !can_mount()
        || !Path::new(env!("CARGO_BIN_EXE_belay-chaos")).with_file_name("belay").exists()
    {
        eprintln!("skipped: no belay beside belay-chaos");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let args = "--beds bindfs --ops rename,append --columns restart,belay";
    let (output, study) = study(args, out.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(which(&study, |e| e["reached"] == false), Vec::<String>::new());
    let wrong = which(&study, |e| e["application"] != "ok" || e["consistent"] == false);
    let mut known: Vec<String> = Vec::new();
    for operation in ["rename", "append"] {
        for point in ["after-1", "before-reply"] {
            known.extend(["SEGV", "KILL"].map(|signal| format!("{operation} {point} {signal}")));
        }
    }
    // All of them in the first column: belay's has none.
    assert_eq!(wrong, known);
    assert_eq!(which(&study, |e| e["column"] == "belay").len(), 20);
    let (again, one) =
        self::study("--columns restart --only bindfs/rename/after-1/KILL", &out.path().join("one"));
    assert!(again.status.success());
    assert_eq!(which(&one, |e| e["application"] == "wrong"), ["rename after-1 KILL"]);
}

#[test]
fn bad_names_are_explained() {
    for (args, word) in [
        ("--only bindfs/rename/after-1", "BED/OPERATION/POINT/SIGNAL"),
        ("--only bindfs/sync/received/KILL", "rename-exchange"),
        ("--ops sync", "rename-exchange"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belay-chaos"));
        command.args(["study", "controlled"]).args(args.split_whitespace());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(word), "{text}");
    }
}
