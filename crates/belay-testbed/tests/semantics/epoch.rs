//! The policy `epoch` (docs/epochs.md), on daemons that keep in their own memory what they have acknowledged.

use crate::common::*;
use belay_testbed::Kind;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const KINDS: [Kind; 3] = [Kind::Fuse2fsExt2, Kind::Fuse2fsExt3, Kind::Fuse2fsExt4];

fn epochs(kind: Kind, options: &[&str]) -> Held {
    held(kind, options, &["--policy", "epoch", "--checkpoint-interval", "1h"])
}

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
    // The last one takes what is done again through a pipe.
    let ways = KINDS.map(|kind| (kind, &[][..]));
    for (kind, options) in ways.into_iter().chain([(Kind::Fuse2fsExt2, &["splice_read"][..])]) {
        let bed = epochs(kind, options);
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
            assert!(fs::read(bed.at("long")).unwrap() == expected, "{kind} {options:?}");
            open.write_all(b"here ").unwrap();
            assert_eq!(names(&top), ["a", "long", "lost+found"]);
        }
        assert_eq!(content(&open), "still here here here ");
        drop((open, long));
        bed.wait_until_closed();
        bed.bed.stop().unwrap(); // which has the image checked
    }
}
