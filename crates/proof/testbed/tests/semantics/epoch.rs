//! The policy `epoch` (docs/epochs.md), on daemons that keep in their own memory what they have acknowledged.

use crate::common::*;
use crate::custom::Custom;
use crate::disk::Disk;
use crate::journal::compile;
use belay_testbed::process::run;
use belay_testbed::{BedOptions, Kind, Signal};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, mknodat, setxattr};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Closes the file, unmounts, and expects an orderly end.
fn unmount(mut mount: Custom, file: File) {
    drop(file);
    mount.tool(&["umount"]);
    assert!(mount.end().success());
}

/// A mount by `blob.c`, and that program.
fn blob() -> (Custom, PathBuf) {
    blob_with(&[])
}

/// The same with variables in its environment.
fn blob_with(variables: &[(&str, &Path)]) -> (Custom, PathBuf) {
    blob_by(variables, &ARGUMENTS)
}

fn blob_by(variables: &[(&str, &Path)], arguments: &[&str]) -> (Custom, PathBuf) {
    let mut found = PathBuf::new();
    let mount = Custom::start_with(variables, arguments, |place| {
        let (program, image) = (place.dir.join("blob"), place.dir.join("image"));
        compile("blob.c", &program);
        File::create(&image).unwrap().set_len(5 << 20).unwrap();
        found.clone_from(&program);
        vec![program.into(), image.into(), place.mountpoint.into(), "-f".into()]
    });
    mount.wait_for("service", |status| status["state"] == "serving");
    (mount, found)
}

/// What an ioctl has changed is on record, of files and of directories.
#[test]
fn what_an_ioctl_has_changed_is_done_again() {
    let (mut mount, program) = blob();
    let mark = |path: &str, number: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("mark").arg(mount.at(path)).args(number);
        let output = run(command, LIMIT).unwrap();
        assert!(output.status.success(), "{path} {number:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    mark("f", &["17"]);
    mark("", &["4"]);
    mark("f", &["18"]);
    for _ in 0..2 {
        mount.crash_and_recover();
        assert_eq!((mark("f", &[]), mark("", &[])), ("18".into(), "4".into()));
    }
    let failed = mount.status().unwrap()["requests"]["failed"].as_u64();
    assert_eq!(failed, Some(0), "{}", mount.log());
    mount.tool(&["umount"]);
    assert!(mount.end().success());
}

/// The data of writes that are done again come to a daemon as those of others do: here through a pipe.
#[test]
fn what_is_done_again_comes_through_a_pipe_if_the_daemon_takes_it_so() {
    let (mount, _) = blob();
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
    unmount(mount, file);
}

/// Whatever call a daemon makes to talk to the kernel, what it has acknowledged is on record.
#[test]
fn what_was_acknowledged_by_rare_calls_is_done_again() {
    for way in ["head", "pipe", "offset"] {
        let (mut mount, _) = blob_with(&[("REPLY_BY", Path::new(way))]);
        let file = OpenOptions::new().read(true).write(true).open(mount.at("f")).unwrap();
        let mut expected = Vec::new();
        for life in 0..3u8 {
            let data = vec![b'a' + life; 50_000];
            file.write_all_at(&data, u64::from(life) * 50_000).unwrap();
            expected.extend(data);
            mount.crash_and_recover();
            assert!(fs::read(mount.at("f")).unwrap() == expected, "{way}: {}", mount.log());
            let mut end = [0; 8];
            file.read_exact_at(&mut end, expected.len() as u64 - 8).unwrap();
            assert_eq!(end, [b'a' + life; 8], "{way}: the handle");
        }
        let failed = mount.status().unwrap()["requests"]["failed"].as_u64();
        assert_eq!(failed, Some(0), "{way}: {}", mount.log());
        drop(file);
        mount.tool(&["umount"]);
        assert!(mount.end().success(), "{way}");
    }
}

/// A read that libfuse splices, and that finds less than was asked for since the file ends: libfuse says so in the header
/// that is in the pipe already.
#[test]
fn a_spliced_read_may_come_short() {
    let (mount, _) = blob_with(&[("SPLICE", Path::new("1"))]);
    let file = OpenOptions::new().read(true).write(true).open(mount.at("f")).unwrap();
    let data: Vec<u8> = (0..20_000u32).map(|at| (at % 253) as u8).collect();
    file.write_all_at(&data, 0).unwrap();
    for _ in 0..2 {
        assert!(fs::read(mount.at("f")).unwrap() == data, "{}", mount.log());
        let mut end = [0; 1000];
        assert_eq!(file.read_at(&mut end, 19_900).unwrap(), 100);
        assert!(end[..100] == data[19_900..]);
        mount.crash_and_recover();
    }
    assert_eq!(number(&mount.status().unwrap(), "/crashes"), 2, "{}", mount.log());
    unmount(mount, file);
}

/// What a daemon that is controlled by a directory does on its image.
fn controlled() -> (Custom, tempfile::TempDir) {
    let control = tempfile::tempdir().unwrap();
    let (mount, _) = blob_with(&[("CONTROL", control.path())]);
    (mount, control)
}

/// All crash reports of a mount, in their order.
fn reports(mount: &Custom) -> Vec<Value> {
    let status = mount.wait_for("service", |status| status["state"] == "serving");
    let dir = PathBuf::from(status["report_dir"].as_str().unwrap());
    let read = |number| {
        let text = fs::read(dir.join(format!("{number:04}.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    (1..=number(&status, "/reports")).map(read).collect()
}

/// What comes out otherwise when it is done again is reported, with what was asked; the mount goes on.
#[test]
fn a_difference_is_a_divergence_that_is_reported() {
    let (mount, control) = controlled();
    let file = OpenOptions::new().write(true).open(mount.at("f")).unwrap();
    file.write_all_at(b"twelve bytes", 0).unwrap();
    fs::write(control.path().join("short"), "").unwrap();
    mount.crash_and_recover();
    fs::remove_file(control.path().join("short")).unwrap();
    let failed = mount.status().unwrap()["requests"]["failed"].as_u64();
    assert_eq!(failed, Some(1), "{}", mount.log());
    let found = reports(&mount);
    let decisions = found[0]["decisions"].as_array().unwrap();
    let told = decisions.iter().map(|decision| decision.to_string());
    let told: Vec<_> = told.filter(|text| text.contains("from the op-log")).collect();
    assert!(told.len() == 1 && told[0].contains("not all was written"), "{found:#?}");
    assert!(told[0].contains("WRITE"), "{told:?}");
    file.write_all_at(b"twelve bytes", 0).unwrap();
    assert_eq!(fs::read_to_string(mount.at("f")).unwrap(), "twelve bytes");
    unmount(mount, file);
}

/// S48: a node of another type than it was is a fault of a daemon that nobody else works with.
#[test]
fn s48_a_node_of_another_type_than_it_was() {
    let (mount, control) = controlled();
    let file = OpenOptions::new().write(true).open(mount.at("f")).unwrap();
    file.write_all_at(b"text", 0).unwrap();
    fs::write(control.path().join("type"), "").unwrap();
    assert!(file.metadata().unwrap().is_file(), "{}", mount.log());
    assert!(!control.path().join("type").exists(), "nobody has asked the daemon");
    let found = reports(&mount);
    assert_eq!(found.len(), 1, "{}", mount.log());
    assert_eq!(found[0]["detection"]["by"], "violation", "{found:#?}");
    assert!(found[0]["detection"]["rule"].as_str().unwrap().contains("type"), "{found:#?}");
    assert_eq!(fs::read_to_string(mount.at("f")).unwrap(), "text");
    unmount(mount, file);
}

/// S65: while a successor is given what was acknowledged, the status says how far that is.
#[test]
fn s65_how_far_a_roll_forward_is_is_said() {
    let (mount, control) = controlled();
    let said = |mount: &Custom| mount.ask(&["status"]).contains("rolling forward");
    let file = OpenOptions::new().write(true).open(mount.at("f")).unwrap();
    // Not one behind the other, which would be one record.
    for at in 0..3 {
        file.write_all_at(b"text", at * 10_000).unwrap();
    }
    let status = mount.status().unwrap();
    assert!(status["epoch"]["rolling_forward"].is_null() && !said(&mount), "{status}");
    // The successor is held in the first of the writes: two are behind it.
    let hold = control.path().join("hold");
    fs::write(&hold, "").unwrap();
    mount.signal("daemon", Signal::KILL);
    let forward = |status: &Value| status["epoch"]["rolling_forward"].clone();
    let status = mount.wait_for("roll-forward", |status| {
        let at = |name: &str| forward(status)[name].as_u64();
        at("record").is_some_and(|record| Some(record + 3) == at("of"))
    });
    assert_ne!(status["state"], "serving", "{status}");
    let all = number(&status, "/epoch/rolling_forward/of");
    let text = mount.ask(&["status"]);
    let expected = format!("rolling forward: {} of {all} requests", all - 3);
    assert!(text.contains(&expected), "{text}");
    fs::remove_file(&hold).unwrap();
    let status = mount.wait_for("service", |status| status["state"] == "serving");
    assert!(forward(&status).is_null() && !said(&mount), "{status}");
    let found = fs::read(mount.at("f")).unwrap();
    assert_eq!((found.len(), &found[10_000..10_004]), (20_004, &b"text"[..]));
    unmount(mount, file);
}

/// S46, S65: a daemon that ends as it should, by a signal, in the middle of a roll-forward has not been given all: what is left
/// is done by another one, and is on the image in the end.
#[test]
fn s65_a_daemon_that_is_stopped_on_the_way_loses_nothing() {
    let control = tempfile::tempdir().unwrap();
    let variables = [("CONTROL", control.path()), ("LATE", Path::new("1"))];
    let (mut mount, program) = blob_by(&variables, &ARGUMENTS);
    let image = File::open(program.with_file_name("image")).unwrap();
    let file = OpenOptions::new().write(true).open(mount.at("f")).unwrap();
    for at in 0..3 {
        file.write_all_at(b"text", at * 10_000).unwrap();
    }
    drop(file);
    mount.wait_for("its close", |status| status["open_handles"] == 0);
    let hold = control.path().join("hold");
    fs::write(&hold, "").unwrap();
    mount.signal("daemon", Signal::KILL);
    mount.wait_for("roll-forward", |status| !status["epoch"]["rolling_forward"].is_null());
    mount.tool(&["umount", "--lazy"]);
    mount.signal("daemon", Signal::TERM);
    fs::remove_file(&hold).unwrap();
    assert!(mount.end().success(), "{}", mount.log());
    // As `blob.c` has it: a length, two numbers, the data.
    let mut found = vec![0; 16 + 20_004];
    image.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(u64::from_ne_bytes(found[..8].try_into().unwrap()), 20_004, "{}", mount.log());
    for at in 0..3 {
        assert_eq!(&found[16 + at * 10_000..][..4], b"text", "{}", mount.log());
    }
}

/// S115: daemons that end one after the other before they have answered anything, while a request waits: that is said, with how
/// far each came, until one is answered.
#[test]
fn s115_daemons_that_come_to_answer_nothing_are_told() {
    let (mut mount, control) = controlled();
    let file = OpenOptions::new().write(true).open(mount.at("f")).unwrap();
    for at in 0..3 {
        file.write_all_at(b"text", at * 10_000).unwrap();
    }
    let hold = control.path().join("hold");
    fs::write(&hold, "").unwrap();
    mount.signal("daemon", Signal::KILL);
    let asked = mount.at("f");
    let waiting = call(move || fs::metadata(asked).map(|found| found.len()));
    let held = |status: &Value| !status["epoch"]["rolling_forward"].is_null();
    let told = |mount: &Custom| mount.log().matches("a request waits, and").count();
    for kills in 1..=4 {
        let status = mount.wait_for("a life that does it again", held);
        assert_eq!(status["stalled"].is_null(), kills < 4, "{kills}: {status}");
        assert_eq!(told(&mount), usize::from(kills == 4), "{}", mount.log());
        let generation = number(&status, "/generation");
        mount.signal("daemon", Signal::KILL);
        mount.wait_for("the next", |status| number(status, "/generation") > generation);
    }
    let status = mount.wait_for("a life that does it again", held);
    let stalled = &status["stalled"];
    assert_eq!(stalled["lives"], 4, "{status}");
    let ends = stalled["ends"].as_array().unwrap();
    assert_eq!(ends.len(), 4, "{status}");
    for end in ends {
        assert_eq!(end["doing"], "rolling-forward", "{status}");
        let at = |name: &str| end["operation"][name].as_u64().unwrap();
        assert!(at("record") + 3 == at("of"), "{status}");
    }
    let text = mount.ask(&["status"]);
    assert!(text.contains("STALLED") && text.contains("belay stop"), "{text}");
    assert!(!waiting.is_done());
    fs::remove_file(&hold).unwrap();
    assert_eq!(waiting.result().unwrap(), 20_004);
    let status = mount.wait_for("its end", |status| status["stalled"].is_null());
    assert_eq!(number(&status, "/requests/failed"), 0, "{status}");
    // Not more often than that, and its end once.
    assert_eq!(told(&mount), 1, "{}", mount.log());
    assert_eq!(mount.log().matches("come to answer requests").count(), 1, "{}", mount.log());
    drop(file);
    mount.tool(&["umount"]);
    assert!(mount.end().success(), "{}", mount.log());
}

/// S65: a daemon that writes at its end only, as belay takes one that nobody knows to do. No life of it does more than a part of
/// what was acknowledged, as each is killed then; all of it is done even so, by lives that are ended on the way.
#[test]
fn s65_each_life_gains_where_a_checkpoint_is_a_restart() {
    let control = tempfile::tempdir().unwrap();
    let (most, stuck) = (control.path().join("most"), control.path().join("stuck"));
    let variables = [("CONTROL", control.path()), ("LATE", Path::new("1"))];
    let arguments = [&ARGUMENTS[..], &["--flush", "restart", "--checkpoint-early", "0"]].concat();
    let (mut mount, _) = blob_by(&variables, &arguments);
    let serves = |status: &Value| status["state"] == "serving";
    let file = OpenOptions::new().write(true).open(mount.at("f")).unwrap();
    let (writes, part) = (30_u64, 8);
    for write in 0..writes {
        file.write_all_at(format!("write {write}").as_bytes(), write * 10_000).unwrap();
    }
    let epoch = |mount: &Custom| number(&mount.status().unwrap(), "/image/epoch");
    let before = epoch(&mount);
    fs::write(&most, part.to_string()).unwrap();
    let mut kills = 1;
    mount.signal("daemon", Signal::KILL);
    loop {
        let status = mount.wait_for("a life that comes no further, or service", |status| {
            stuck.exists() || serves(status)
        });
        if serves(&status) {
            break;
        }
        assert!(kills < 30, "it stands still: {status}\n{}", mount.log());
        kills += 1;
        let generation = number(&status, "/generation");
        let _ = mount.signal("daemon", Signal::KILL);
        mount.wait_for("the next life", |status| number(status, "/generation") > generation);
        fs::remove_file(&stuck).unwrap(); // one that comes no further makes it again
    }
    fs::remove_file(&most).unwrap();
    assert!(kills > 1, "this tests nothing: {}", mount.log());
    assert!(epoch(&mount) > before + 1, "{}", mount.log());
    // That a daemon was ended on the way is no crash, and the report of one is not lost by it.
    let status = mount.wait_for("the checkpoint that follows", |status| {
        serves(status) && status["epoch"]["log_records"] == 0
    });
    assert_eq!(number(&status, "/crashes"), kills, "{status}\n{}", mount.log());
    assert_eq!(number(&status, "/blackout_us/count"), 1, "{status}");
    assert_eq!(number(&status, "/requests/failed"), 0, "{status}");
    assert_eq!(number(&status, "/epoch/failed"), 0, "{status}");
    assert_eq!(status["read_only"], Value::Null, "{status}");
    let found = fs::read(mount.at("f")).unwrap();
    for write in 0..writes {
        let text = format!("write {write}");
        assert_eq!(&found[write as usize * 10_000..][..text.len()], text.as_bytes());
    }
    drop(file);
    mount.tool(&["umount"]);
    assert!(mount.end().success(), "{}", mount.log());
}

/// What few programs ask for is on record as well, however long it is.
#[test]
fn what_is_rarely_asked_for_is_done_again_too() {
    for kind in KINDS {
        // Large enough for blocks of 4 KiB, so that there is room for long attributes and links.
        let options = BedOptions { image_mib: 600, ..BedOptions::default() };
        let bed = held_with(kind, &options, &ARGUMENTS);
        fs::write(bed.at("file"), "content").unwrap();
        let value: Vec<u8> = (0..3900).map(|at| b'a' + (at % 23) as u8).collect();
        setxattr(bed.at("file"), "user.long", &value, XattrFlags::empty()).unwrap();
        let target = "a/".repeat(2000);
        symlink(&target, bed.at("link")).unwrap();
        // One file has the other's inode number, and nothing else of it.
        fs::write(bed.at("old"), vec![b'o'; 4096]).unwrap();
        let number = fs::metadata(bed.at("old")).unwrap().ino();
        fs::remove_file(bed.at("old")).unwrap();
        mknodat(CWD, bed.at("new"), FileType::RegularFile, Mode::from(0o644), 0).unwrap();
        assert_eq!(fs::metadata(bed.at("new")).unwrap().ino(), number, "this tests nothing");
        OpenOptions::new().write(true).open(bed.at("new")).unwrap().write_all(b"new").unwrap();
        for _ in 0..2 {
            bed.crash_and_recover();
            let mut found = vec![0; 5000];
            let length = getxattr(bed.at("file"), "user.long", &mut found).unwrap();
            assert!(found[..length] == value, "{kind}: {length} bytes");
            assert!(fs::read_link(bed.at("link")).unwrap().as_os_str() == &*target, "{kind}");
            assert!(fs::read(bed.at("new")).unwrap() == b"new", "{kind}");
            assert_eq!(bed.number("/requests/failed"), 0, "{kind}");
        }
        bed.bed.stop().unwrap();
    }
}

/// S76: a daemon without a profile, with a disk image among its arguments, that writes late: what it had acknowledged and kept
/// in its memory is there after a crash, and the image is clean.
#[test]
fn s76_an_unknown_daemon_on_an_image() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let program = disk.at("unknown");
    fs::copy("/usr/bin/fuse2fs", &program).unwrap();
    let mut mount = Disk::serving(Custom::start(&[], |place| {
        let options = "allow_other,default_permissions,fakeroot";
        let words = [program.as_os_str(), "-f".as_ref(), "-o".as_ref(), options.as_ref()];
        let more = [disk.image().into_os_string(), place.mountpoint.into()];
        words.into_iter().map(Into::into).chain(more).collect()
    }));
    let status = mount.status().unwrap();
    assert_eq!(status["policy"], "epoch", "{status}");
    let why = status["policy_reason"].as_str().unwrap();
    assert!(why.starts_with("auto: ") && why.contains("disk image (ext)"), "{why}");
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("dir/late"), "late").unwrap();
    mount.crash_and_recover();
    assert_eq!(fs::read_to_string(mount.at("dir/late")).unwrap(), "late");
    // An fsync is a checkpoint, and that a restart.
    let file = File::create(mount.at("synced")).unwrap();
    (&file).write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    mount.crash_and_recover();
    assert_eq!(fs::read_to_string(mount.at("synced")).unwrap(), "synced");
    drop(file);
    mount.tool(&["umount"]);
    assert!(mount.end().success(), "{}", mount.log());
    disk.check();
}
