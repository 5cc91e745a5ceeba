//! The policy `epoch` (docs/epochs.md), on daemons that keep in their own memory what they have acknowledged.

use crate::common::*;
use crate::custom::Custom;
use crate::journal::compile;
use belay_testbed::Kind;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const KINDS: [Kind; 3] = [Kind::Fuse2fsExt2, Kind::Fuse2fsExt3, Kind::Fuse2fsExt4];

const ARGUMENTS: [&str; 4] = ["--policy", "epoch", "--checkpoint-interval", "1h"];

/// What stat(2) says that must not change, by path.
fn look(top: &Path, paths: &[&str]) -> Vec<(String, u64, u32, u64, i64, i64)> {
    let one = |path: &&str| {
        let stat = fs::symlink_metadata(top.join(path)).unwrap();
        let (time, nanos) = (stat.mtime(), stat.mtime_nsec());
        ((*path).to_owned(), stat.ino(), stat.mode(), stat.size(), time, nanos)
    };
    paths.iter().map(one).collect()
}

/// Whatever was acknowledged is there after a crash, with its inode numbers and times, though the daemon had written
/// none of it; and the image is clean at the end.
#[test]
fn what_a_daemon_had_in_memory_only_is_done_again() {
    for kind in KINDS {
        let bed = held(kind, &[], &ARGUMENTS);
        let mut expected: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        let top = bed.bed.root().to_path_buf();
        fs::create_dir(bed.at("a")).unwrap();
        fs::write(bed.at("a/one"), "one").unwrap();
        fs::create_dir(bed.at("a/deep")).unwrap();
        fs::rename(bed.at("a/one"), bed.at("a/deep/uno")).unwrap();
        fs::write(bed.at("long"), &expected).unwrap();
        let options = OpenOptions::new().read(true).write(true).create_new(true).clone();
        let mut open = options.open(bed.at("open")).unwrap();
        open.write_all(b"still ").unwrap();
        fs::remove_file(bed.at("open")).unwrap();
        let long = OpenOptions::new().write(true).open(bed.at("long")).unwrap();
        long.write_all_at(b"over", 100_000).unwrap();
        long.set_len(200_000).unwrap();
        expected[100_000..100_004].copy_from_slice(b"over");
        expected.truncate(200_000);
        let paths = ["a", "a/deep", "a/deep/uno", "long"];
        for _ in 0..3 {
            let before = look(&top, &paths);
            bed.crash_and_recover();
            assert_eq!(look(&top, &paths), before, "{kind}");
            assert_eq!(fs::read(bed.at("a/deep/uno")).unwrap(), b"one");
            assert!(fs::read(bed.at("long")).unwrap() == expected, "{kind}");
            open.write_all(b"here ").unwrap();
            assert_eq!(names(&top), ["a", "long", "lost+found"]);
        }
        assert_eq!(content(&open), "still here here here ");
        drop((open, long));
        bed.wait_until_closed();
        bed.bed.stop().unwrap(); // which has the image checked
    }
}

/// The data of writes that are done again come to a daemon as those of others do: here through a pipe.
#[test]
fn what_is_done_again_comes_through_a_pipe_if_the_daemon_takes_it_so() {
    let mut mount = Custom::start(&ARGUMENTS, |place| {
        let (program, image) = (place.dir.join("blob"), place.dir.join("image"));
        compile("blob.c", &program);
        File::create(&image).unwrap().set_len(5 << 20).unwrap();
        vec![program.into(), image.into(), place.mountpoint.into(), "-f".into()]
    });
    mount.wait_for("service", |status| status["state"] == "serving");
    let file = OpenOptions::new().read(true).write(true).open(mount.at("f")).unwrap();
    let mut expected = vec![0; 1_500_000];
    // Long ones, one that no page begins or ends with, and one that is too short for a pipe.
    for (offset, length) in [(0, 1_000_000), (1_200_007, 299_993), (500_001, 100)] {
        let data: Vec<u8> = (0..length).map(|at| ((at * 7 + offset) % 251) as u8).collect();
        file.write_all_at(&data, offset).unwrap();
        expected[offset as usize..][..data.len()].copy_from_slice(&data);
    }
    let piped = |mount: &Custom| mount.log().matches("by a pipe").count();
    for _ in 0..3 {
        let before = piped(&mount);
        mount.crash_and_recover();
        assert!(piped(&mount) > before, "{}", mount.log());
        let found = fs::read(mount.at("f")).unwrap();
        let differs = found.iter().zip(&expected).position(|(one, other)| one != other);
        assert_eq!((found.len(), differs), (expected.len(), None), "{}", mount.log());
        // The checkpoint that follows a crash has come when this one has; what is written then is to be done again.
        assert!(mount.ask(&["checkpoint"]).contains("is on the image"));
        file.write_all_at(&expected[..200_000], 0).unwrap();
    }
    drop(file);
    mount.tool(&["umount"]);
    assert!(mount.end().success());
}
