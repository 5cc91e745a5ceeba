//! Power failures: that which must be noticed is.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// A disk that forgets what it has promised to keep makes belay break its own promises.
#[test]
fn a_disk_that_lies_is_noticed() {
    let can_mount = File::options().read(true).write(true).open("/dev/fuse").is_ok()
        && std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    let belay = std::path::Path::new(env!("CARGO_BIN_EXE_belay-chaos")).with_file_name("belay");
    if !can_mount || !belay.is_file() {
        eprintln!(
            "skipped: mounting needs root and /dev/fuse, and holding needs {}",
            belay.display()
        );
        return;
    }
    // A build that is said to be durable and was not synced makes the judge say so: a disk that
    // lies is noticed by the disk itself there.
    let ways = [
        (
            "powercut --fixtures fuse2fs-ext4 --cuts 10 --also 0 --lying-disk",
            "replay: belay-chaos powercut --seed 4",
        ),
        (
            "powercut --fixtures volume --cuts 10 --also 0 --lying-disk",
            "replay: belay-chaos powercut --seed 4",
        ),
        (
            "powercut-build --scale tiny --memory lost --life 300ms --cuts 60 --lying-builder",
            "stages of the build are durable, and",
        ),
    ];
    for (way, why) in ways {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belay-chaos"));
        command.args(way.split(' ')).args(["--seed", "4"]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{way}: {text}{said}");
        assert!(
            text.contains("WRONG")
                && text.contains("replay: belay-chaos powercut")
                && text.contains("--seed 4")
                && text.contains(why),
            "{way}: {text}"
        );
    }
}
