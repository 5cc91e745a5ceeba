//! The fault study on real daemons: it finds what is known to be there.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use belay_fixtures::table::unpadded;
use serde_json::Value;

/// Mounting takes root and the device.
fn can_mount() -> bool {
    let ok = File::options().read(true).write(true).open("/dev/fuse").is_ok()
        && std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    if !ok {
        eprintln!("skipped: mounting needs root and /dev/fuse");
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
    let args = "--fixtures bindfs --ops mkdir,stat --columns bare --signals KILL,SEGV";
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
    let page = unpadded(&std::fs::read_to_string(out.path().join("controlled.md")).unwrap());
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
    let args = "--fixtures bindfs --ops rename,append --columns restart,belay";
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
        ("--only bindfs/rename/after-1", "FIXTURE/OPERATION/POINT/SIGNAL"),
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

/// A daemon that keeps changes in its memory, followed by its accesses to the image and in the
/// flush of a checkpoint, and the supervisor in its commit. Needs belay beside this program, as
/// `make test` builds it.
#[test]
fn checkpoints_keep_what_daemons_buffer() {
    if !can_mount()
        || !Path::new(env!("CARGO_BIN_EXE_belay-chaos")).with_file_name("belay").exists()
    {
        eprintln!("skipped: no belay beside belay-chaos");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_belay-chaos"));
    let args = "study membrane --fixtures fuse2fs-ext2 --every 8 \
                --rows rename,rename:accesses,flush:FSYNCDIR,commit:supervisor,commit:both";
    command.args(args.split_whitespace()).arg("--out").arg(out.path());
    let output = command.output().unwrap();
    let said = [&output.stderr[..], &output.stdout].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{said}");
    let json = std::fs::read(out.path().join("membrane.json")).unwrap();
    let study: Value = serde_json::from_slice(&json).unwrap();
    let run = |row: &str, column: &str| {
        let runs = study["dry_runs"].as_array().unwrap();
        runs.iter().find(|r| r["row"] == row && r["column"] == column).unwrap().clone()
    };
    let calls = |run: &Value| -> Vec<String> {
        let effects = run["effects"].as_array().unwrap();
        effects.iter().map(|e| e["call"].as_str().unwrap().to_owned()).collect()
    };
    // The bare daemon writes everything to the disk at a rename. Under belay it does the same, and
    // nothing of it is a system call.
    let writes = |calls: &[String]| calls.iter().filter(|call| call.contains("write")).count();
    for (row, column) in [("rename", "bare"), ("rename:accesses", "belay")] {
        let run = run(row, column);
        assert!(writes(&calls(&run)) > 4, "{run}");
    }
    assert_eq!(calls(&run("rename", "belay")), [] as [String; 0]);
    assert!(writes(&calls(&run("flush:FSYNCDIR", "belay"))) > 4);
    // Journal and image, each made durable.
    let commit = calls(&run("commit:supervisor", "belay"));
    assert_eq!(commit.iter().filter(|call| *call == "fsync").count(), 2, "{commit:?}");
    let experiments = study["experiments"].as_array().unwrap();
    let wrong = |column: &str| {
        let of = experiments.iter().filter(|e| e["column"] == column);
        of.filter(|e| e["consistent"] == false || e["checked"] != true).count()
    };
    assert_eq!(wrong("belay"), 0);
    // What was not safe is lost with the daemon's memory, and with part of it the rest makes no
    // sense.
    assert!(wrong("bare") > 0 && wrong("restart") > 0);
}
