//! When checkpoints are made (docs/epochs.md), each reason alone; and that they are committed while the mount serves on.

use crate::common::*;
use crate::custom::Custom;
use crate::disk::Disk;
use crate::repair::{CALLS, committer};
use belay_testbed::Kind;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;

/// No reason but the end, and those that follow.
const NEVER: [&str; 10] = [
    "--policy",
    "epoch",
    "--checkpoint-interval",
    "1h",
    "--checkpoint-early",
    "0",
    "--checkpoint-dirty",
    "40M",
    "--checkpoint-log",
    "40M",
];

fn committed(status: &Value) -> u64 {
    number(status, "/image/committed")
}

/// A mount with only the reasons that `arguments` give, on which nothing has been done since its last checkpoint.
fn with(arguments: &[&str]) -> (Held, u64) {
    let kept = NEVER.chunks(2).filter(|pair| !arguments.contains(&pair[0])).flatten();
    let arguments: Vec<&str> = kept.chain(arguments).copied().collect();
    let bed = held(Kind::Fuse2fsExt4, &[], &arguments);
    checkpoint(bed.bed.mountpoint());
    let before = committed(&bed.bed.belay_status().unwrap());
    (bed, before)
}

fn checkpoint(mount: &Path) {
    let output = Custom::belay(&[OsStr::new("checkpoint"), mount.as_os_str()]);
    assert!(output.status.success(), "{output:?}");
}

fn now(bed: &Held) -> u64 {
    committed(&bed.bed.belay_status().unwrap())
}

#[test]
fn a_checkpoint_is_made_after_some_time() {
    let (bed, before) = with(&["--checkpoint-interval", "200ms"]);
    fs::create_dir(bed.at("dir")).unwrap();
    bed.wait_for("a checkpoint", |status| committed(status) > before);
    bed.bed.stop().unwrap();
}

/// Of what a daemon has written, or the op-log holds: not below the limit, and soon above it.
#[test]
fn a_checkpoint_is_made_when_much_has_collected() {
    for what in ["--checkpoint-dirty", "--checkpoint-log"] {
        let (bed, before) = with(&[what, "2M"]);
        fs::write(bed.at("one"), vec![1; 1 << 20]).unwrap();
        assert_eq!(now(&bed), before, "{what}");
        fs::write(bed.at("two"), vec![2; 2 << 20]).unwrap();
        bed.wait_for("a checkpoint", |status| committed(status) > before);
        bed.bed.stop().unwrap();
    }
}

/// An fsync has one made, or waits for one that somebody else has made.
#[test]
fn a_checkpoint_is_made_for_an_fsync_or_waited_for() {
    let (bed, before) = with(&[]);
    let file = File::create(bed.at("file")).unwrap();
    file.sync_all().unwrap();
    assert!(now(&bed) > before);
    drop(file);
    bed.wait_until_closed();
    bed.bed.stop().unwrap();

    let (bed, before) = with(&["--checkpoint-fsync", "wait"]);
    let path = bed.at("file");
    let caller = call(move || File::create(path)?.sync_all());
    bed.wait_for_requests(1);
    assert!(!caller.is_done());
    assert_eq!(now(&bed), before);
    checkpoint(bed.bed.mountpoint());
    caller.result().unwrap();
    bed.wait_until_closed();
    bed.bed.stop().unwrap();
}

/// Linux tells no daemon but virtiofs of sync(2) and syncfs(2) (fs/fuse/inode.c, fuse_sync_fs): they make nothing durable
/// on any FUSE mount, and no checkpoint. An fsync of any file or directory does.
#[test]
fn sync_is_not_heard_of_and_fsync_of_a_directory_is() {
    let (bed, before) = with(&[]);
    fs::create_dir(bed.at("dir")).unwrap();
    let top = File::open(bed.bed.mountpoint()).unwrap();
    rustix::fs::syncfs(&top).unwrap();
    assert_eq!(
        now(&bed),
        before,
        "if this fails the kernel has learned it: say so in docs/epochs.md"
    );
    top.sync_all().unwrap();
    assert!(now(&bed) > before);
    drop(top);
    bed.wait_until_closed();
    bed.bed.stop().unwrap();
}

/// While an epoch is on its way to the image the next one runs: requests of all kinds are served, and nothing of either is
/// on the image before its commit. The commit is held before its first step.
#[test]
fn an_epoch_is_committed_while_the_next_one_runs() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let mount = disk.hold(&[]);
    fs::write(mount.at("old"), "old").unwrap();
    File::open(mount.at("old")).unwrap().sync_all().unwrap();
    let image = fs::read(disk.image()).unwrap();
    let trap = Trap::set_for_one(committer(&mount), CALLS, 1, When::Before);
    fs::write(mount.at("new"), vec![9; 300_000]).unwrap();
    let path = mount.at("new");
    let caller = call(move || File::open(path)?.sync_all());
    trap.await_catch();
    fs::write(mount.at("next"), vec![7; 200_000]).unwrap();
    fs::rename(mount.at("old"), mount.at("older")).unwrap();
    assert!(fs::read(mount.at("new")).unwrap() == [9; 300_000]);
    assert!(fs::read(mount.at("next")).unwrap() == [7; 200_000]);
    assert!(!caller.is_done(), "it is not on the image");
    assert!(fs::read(disk.image()).unwrap() == image, "something is on the image");
    drop(trap);
    caller.result().unwrap();
    let found = disk.files();
    assert!(found["new"] == [9; 300_000], "fsync has said that it is there");
    assert!(!found.contains_key("next"), "it is of the next epoch");
    let mut mount = mount;
    mount.tool(&["umount"]);
    assert!(mount.end().success());
    let found = disk.files();
    assert!(found["next"] == [7; 200_000] && found["older"] == b"old", "{:?}", found.keys());
    disk.check();
}
