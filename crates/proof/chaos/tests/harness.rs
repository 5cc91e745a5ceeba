//! The harness itself: it agrees where nothing is wrong, and it notices what is.

use std::path::Path;
use std::process::{Command, Output};

fn chaos(args: &str) -> Output {
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-belay");
    let mut command = Command::new(env!("CARGO_BIN_EXE_belay-chaos"));
    command.args(args.split_whitespace()).env("BELAY_BIN", fake).output().unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_daemon_equals_itself() {
    let output = chaos(
        "soak --subject bare --kills 0 --ops 3000 --seed 11 --fixtures passthrough-ll,passthrough-hl,ntfs-3g",
    );
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains(" 0 divergences"), "{}", text(&output));
}

#[test]
fn a_plain_directory_is_an_oracle() {
    let output = chaos(
        "soak --subject bare --kills 0 --ops 5000 --seed 12 --oracle dir --procs 3 --fixtures passthrough-ll",
    );
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn an_unprotected_crash_is_noticed() {
    let output = chaos("soak --subject bare --kills 1 --every 5ms --seed 13 --fixtures bindfs");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let text = text(&output);
    assert!(
        text.contains("DIVERGENCE")
            && text.contains("replay: belay-chaos soak --seed 13 --fixtures bindfs"),
        "{text}"
    );
}

#[test]
fn kills_are_dealt_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("report.json");
    for (fixture, kills) in [("passthrough-ll", 12), ("ntfs-3g", 5)] {
        let output = chaos(&format!(
            "soak --kills {kills} --every 10ms --seed 14 --fixtures {fixture} --json {}",
            json.display()
        ));
        assert!(output.status.success(), "{}", text(&output));
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(report["kills"], kills);
        assert_eq!(report["divergences"], 0);
        assert_eq!(report["fixtures"][0]["blackout"]["max_us"], 1100.0);
    }
}

#[test]
fn the_demo_counts_crashes_and_finds_no_difference() {
    let output = chaos("demo --kills 8 --size-mb 3 --every 10ms");
    assert!(output.status.success(), "{}", text(&output));
    let text = text(&output);
    assert!(text.contains("crashes:     8") && text.contains("errors seen: 0"), "{text}");
}

#[test]
fn bad_input_is_explained() {
    let output = chaos("soak --fixtures zfs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("sshfs"), "{}", text(&output));
}
