//! Checkpoints (docs/epochs.md): every way in which a daemon writes to its image, and every way to have it write what it
//! holds.

use crate::common::*;
use crate::custom::Custom;
use crate::journal::compile;
use belay_testbed::process::run;
use belay_testbed::{Belay, Kind};
use std::fs::{self, File};
use std::path::PathBuf;

/// Ways that end up in the image, and what of it they fill.
const WRITES: &str = "psvwqcdobkxy";
/// One that makes it longer.
const APPENDS: char = 'e';
/// Ways that change nothing, or must be refused.
const OTHERS: &str = "tmzhfnlirgau";
const SIZE: usize = 1 << 20;

/// What the image is to be like when each way was gone once.
fn expected() -> Vec<u8> {
    let mut image = vec![0; SIZE];
    for way in WRITES.chars().chain(OTHERS.chars()).chain([APPENDS]) {
        image[way as usize] = way as u8;
    }
    for way in WRITES.chars() {
        let at = 4096 * way as usize + 100;
        image[at..at + 700].fill(way as u8);
    }
    image.extend([APPENDS as u8; 700]);
    image
}

/// Nothing that a daemon writes, in whichever way, reaches the image before a checkpoint, and all of it does then; it is
/// read again before and after, also by a successor; and what cannot be followed is refused.
#[test]
fn s50_every_way_to_write_is_kept_back_until_a_checkpoint() {
    let mut image = PathBuf::new();
    let arguments = ["--policy", "epoch", "--checkpoint-interval", "1h"];
    let mut mount = Custom::start(&arguments, |place| {
        let program = place.dir.join("ways");
        compile("ways.c", &program);
        image = place.dir.join("image");
        File::create(&image).unwrap().set_len(SIZE as u64).unwrap();
        vec![program.into(), image.clone().into(), place.mountpoint.into(), "-f".into()]
    });
    mount.wait_for("service", |status| status["state"] == "serving");
    let all: Vec<char> = WRITES.chars().chain(OTHERS.chars()).chain([APPENDS]).collect();
    for way in &all {
        let made = fs::create_dir(mount.at(&way.to_string()));
        made.unwrap_or_else(|error| panic!("{way}: {error}\n{}", mount.log()));
    }
    let there = |mount: &Custom| {
        for way in &all {
            fs::metadata(mount.at(&way.to_string())).unwrap();
        }
    };
    assert!(fs::read(&image).unwrap() == vec![0; SIZE], "something has reached the image");
    mount.crash_and_recover();
    there(&mount);
    // After a crash a checkpoint follows by itself; this one comes after it, or is it.
    assert!(mount.ask(&["checkpoint"]).contains("is on the image"));
    assert!(fs::read(&image).unwrap() == expected(), "the image is not what was written");
    mount.crash_and_recover();
    there(&mount);
    assert!(mount.log().contains("maps its image into memory"), "{}", mount.log());
    mount.tool(&["umount"]);
    assert!(mount.end().success());
    assert!(fs::read(&image).unwrap() == expected(), "the image has changed");
    let left: Vec<_> = fs::read_dir(image.parent().unwrap()).unwrap().flatten().collect();
    let journal = left.iter().any(|entry| entry.file_name().to_string_lossy().contains("journal"));
    assert!(!journal, "{left:?}");
}

/// S95: what children of vfork do in the daemon's memory changes nothing of what belay knows of its image, nor of its handlers
/// of signals; the position of an open file is theirs as well.
#[test]
fn s95_children_of_vfork_change_nothing_of_the_daemon() {
    let mut image = PathBuf::new();
    let arguments = ["--policy", "epoch", "--checkpoint-interval", "1h"];
    let mount = Custom::start(&arguments, |place| {
        let program = place.dir.join("ways");
        compile("ways.c", &program);
        image = place.dir.join("image");
        File::create(&image).unwrap().set_len(SIZE as u64).unwrap();
        vec![program.into(), image.clone().into(), place.mountpoint.into(), "-f".into()]
    });
    mount.wait_for("service", |status| status["state"] == "serving");
    for way in ["S", "V"] {
        let made = fs::create_dir(mount.at(way));
        made.unwrap_or_else(|error| panic!("{way}: {error}\n{}", mount.log()));
    }
    assert!(fs::read(&image).unwrap() == vec![0; SIZE], "something has reached the image");
    assert!(mount.ask(&["checkpoint"]).contains("is on the image"));
    let at = 4096 * usize::from(b'V') + 100;
    assert!(fs::read(&image).unwrap()[at..at + 700] == [b'V'; 700]);
    assert_eq!(number(&mount.status().unwrap(), "/crashes"), 0, "{}", mount.log());
    mount.stop();
}

/// Does a few things on a mount, with a file that stays open, in two halves around `between`.
fn work(bed: &Held, between: impl FnOnce()) {
    fs::create_dir(bed.at("dir")).unwrap();
    fs::write(bed.at("dir/one"), vec![1; 3000]).unwrap();
    between();
    fs::write(bed.at("dir/two"), vec![2; 3000]).unwrap();
    fs::rename(bed.at("dir/one"), bed.at("three")).unwrap();
    assert_eq!(names(&bed.at("dir")), ["two"]);
    assert!(fs::read(bed.at("three")).unwrap() == vec![1; 3000]);
}

/// `belay checkpoint`; what it said if it failed.
fn checkpoint(bed: &Held) -> Result<(), String> {
    let mut command = Belay::find().unwrap().command();
    command.arg("checkpoint").arg(bed.bed.mountpoint());
    let output = run(command, LIMIT).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

fn epoch(bed: &Held, field: &str) -> u64 {
    number(&bed.bed.belay_status().unwrap(), &format!("/epoch/{field}"))
}

/// The daemon writes what it holds in the way that is said of it; what a checkpoint has is not done again after a crash.
#[test]
fn s51_daemons_are_made_to_write_in_their_own_way() {
    let ways = [
        (Kind::Fuse2fsExt4, "fsyncdir"),
        (Kind::Fusefat, "flush"),
        (Kind::Fuse2fsExt2, "restart"),
        (Kind::Fusefat, "restart"),
    ];
    // No checkpoint but the one that is asked for: another one by restart would end the daemon that is to be killed.
    let rarely = ["--checkpoint-interval", "1h", "--checkpoint-early", "0"];
    for (kind, flush) in ways {
        let bed = held(kind, &[], &[&["--flush", flush], &rarely[..]].concat());
        assert_eq!(bed.bed.belay_status().unwrap()["policy"], "epoch", "by its profile");
        work(&bed, || {
            let before = number(&bed.bed.belay_status().unwrap(), "/image/epoch");
            assert!(epoch(&bed, "log_records") > 0, "{kind}");
            checkpoint(&bed).unwrap();
            assert_eq!(
                number(&bed.bed.belay_status().unwrap(), "/image/committed"),
                before,
                "{kind} by {flush}"
            );
            assert_eq!((epoch(&bed, "log_records"), epoch(&bed, "failed")), (0, 0), "{kind}");
        });
        let generation = number(&bed.bed.belay_status().unwrap(), "/generation");
        assert_eq!(generation > 0, flush == "restart", "{kind} by {flush}");
        assert_eq!(
            number(&bed.bed.belay_status().unwrap(), "/crashes"),
            0,
            "an end for a checkpoint is no crash"
        );
        bed.crash_and_recover();
        assert_eq!(names(&bed.at("dir")), ["two"], "{kind} by {flush}");
        assert!(fs::read(bed.at("dir/two")).unwrap() == vec![2; 3000]);
        bed.wait_until_closed();
        bed.bed.stop().unwrap(); // which has the image checked
    }
}

/// A file that is open, and one that is open and has no name, outlive the end of a daemon for a checkpoint; an fsync
/// that waits for it is answered by it.
#[test]
fn s51_open_files_outlive_a_checkpoint_by_restart() {
    use std::io::Write;
    let bed = held(
        Kind::Fuse2fsExt4,
        &[],
        &["--flush", "restart", "--checkpoint-interval", "1h", "--checkpoint-early", "0"],
    );
    let options = fs::OpenOptions::new().read(true).write(true).create_new(true).clone();
    let mut kept = options.open(bed.at("kept")).unwrap();
    let mut nameless = options.open(bed.at("nameless")).unwrap();
    fs::remove_file(bed.at("nameless")).unwrap();
    for round in 0..3 {
        kept.write_all(b"kept ").unwrap();
        nameless.write_all(b"nameless ").unwrap();
        let before = number(&bed.bed.belay_status().unwrap(), "/generation");
        kept.sync_all().unwrap();
        assert_eq!(
            number(&bed.bed.belay_status().unwrap(), "/generation"),
            before + 1,
            "round {round}"
        );
    }
    assert_eq!(content(&kept), "kept kept kept ");
    assert_eq!(content(&nameless), "nameless nameless nameless ");
    drop((kept, nameless));
    bed.wait_until_closed();
    bed.bed.stop().unwrap();
}

/// A daemon that does not do what it is to write by: who asks hears of that, and the mount goes on.
#[test]
fn s51_a_daemon_that_cannot_write_fails_who_waits_for_it() {
    // fusefat answers ENOSYS.
    let arguments = ["--flush", "fsyncdir", "--checkpoint-interval", "1h"];
    let bed = held(Kind::Fusefat, &[], &arguments);
    fs::write(bed.at("file"), "text").unwrap();
    let said = checkpoint(&bed).unwrap_err();
    assert!(said.contains("did not write what it holds"), "{said}");
    let file = File::open(bed.at("file")).unwrap();
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    drop(file);
    assert!(epoch(&bed, "failed") >= 2);
    // Nothing is lost for that.
    bed.crash_and_recover();
    assert_eq!(fs::read(bed.at("file")).unwrap(), b"text");
    bed.wait_until_closed();
}

/// Where a checkpoint costs little, one is made long before it must be; and none is where that is not wanted.
#[test]
fn s51_a_checkpoint_is_made_early_where_it_costs_little() {
    const SIZE: usize = 3 << 20;
    for (early, is_wanted) in [("1M", true), ("0", false)] {
        let bed = held(
            Kind::Fuse2fsExt2,
            &[],
            &["--checkpoint-early", early, "--checkpoint-interval", "1h"],
        );
        fs::write(bed.at("file"), vec![7; SIZE]).unwrap();
        if is_wanted {
            bed.wait_for("an early checkpoint", |status| number(status, "/image/committed") > 0);
            assert!(epoch(&bed, "log_bytes") < SIZE as u64);
        } else {
            // All of it has been answered, so whatever would have made one has been seen.
            assert_eq!(number(&bed.bed.belay_status().unwrap(), "/image/committed"), 0);
            assert!(epoch(&bed, "log_bytes") >= SIZE as u64);
        }
        bed.crash_and_recover();
        assert!(fs::read(bed.at("file")).unwrap() == vec![7; SIZE]);
        bed.wait_until_closed();
        bed.bed.stop().unwrap();
    }
}
