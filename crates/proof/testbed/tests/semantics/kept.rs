//! S103: daemons that nobody knows, and that keep to themselves what they were given to write.

use crate::buffer::{Upload, Writer};
use crate::common::{LIMIT, until};
use crate::custom::{Custom, Place};
use crate::journal::compile;
use belay_testbed::Signal;
use belay_testbed::process::{kill, run};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

/// What the status says when it says so much: each loss is told by itself.
fn reasons(mount: &Custom, count: usize) -> Vec<(String, String)> {
    let told = |status: &Value| status["degraded_reasons"].as_array().unwrap().len() >= count;
    let status = mount.wait_for("word", told);
    let text = |reason: &Value, what: &str| reason[what].as_str().unwrap().to_owned();
    let list = status["degraded_reasons"].as_array().unwrap();
    list.iter().map(|reason| (text(reason, "kind"), text(reason, "what"))).collect()
}

/// Whether belay has said that the daemon keeps writes to itself.
fn warned(mount: &Custom) -> bool {
    let status = mount.status().unwrap();
    assert_ne!(status["policy"], "buffer", "{status}");
    let said = status["policy_reason"].as_str().unwrap().contains("--policy buffer");
    assert_eq!(said, mount.log().contains("keeps them to itself"), "{}", mount.log());
    said
}

/// S103: that it does is said while it lives, and when it dies, which file has lost something.
#[test]
fn s103_what_an_unknown_daemon_kept_is_told() {
    what_was_kept_is_told(&Upload::unknown());
}

/// S103: the same of what it has written to something that dies with it, and where somebody has chosen the policy.
#[test]
fn s103_what_dies_with_the_daemon_is_not_stored() {
    what_was_kept_is_told(&Upload::aside(&[]));
    what_was_kept_is_told(&Upload::aside(&["--policy", "journal"]));
}

/// S103: and under the policies that have no journal.
#[test]
fn s103_what_was_kept_is_told_without_a_journal() {
    for policy in WITHOUT_JOURNAL {
        what_was_kept_is_told(&Upload::unknown_under(&["--policy", policy]));
        what_was_kept_is_told(&Upload::aside(&["--policy", policy]));
    }
}

/// Under these, too, nothing of what a daemon acknowledges is on record.
const WITHOUT_JOURNAL: [&str; 2] = ["reconcile", "transaction"];

fn what_was_kept_is_told(upload: &Upload) {
    let mut writer = Writer::start(&upload.mount.mountpoint);
    writer.run("o file");
    assert!(!warned(&upload.mount));
    ["o kept", "o synced"].into_iter().for_each(|line| writer.run(line));
    ["w 0 more", "w 1 text", "w 2 text"].into_iter().for_each(|line| writer.run(line));
    let synced = File::options().write(true).open(upload.at("synced")).unwrap();
    synced.sync_all().unwrap();
    assert!(warned(&upload.mount), "{}", upload.mount.log());
    assert_eq!(upload.mount.status().unwrap()["degraded"], false);
    upload.mount.crash_and_recover();
    let mut told = reasons(&upload.mount, 2);
    told.sort();
    assert_eq!(told.len(), 2, "{told:?}");
    for ((kind, what), name) in told.iter().zip(["/file: ", "/kept: "]) {
        assert!(
            kind == "data" && what.starts_with(name) && what.contains("--policy buffer"),
            "{told:?}"
        );
    }
    // It is told once, and of what is stored nothing is.
    upload.mount.crash_and_recover();
    synced.write_all_at(b"anew", 0).unwrap();
    drop(synced);
    writer.run("c 2");
    upload.mount.crash_and_recover();
    assert_eq!(fs::read_to_string(upload.at("synced")).unwrap(), "anew");
    assert_eq!(reasons(&upload.mount, 2).len(), 2, "{:?}", reasons(&upload.mount, 2));
    writer.end();
}

/// S75: a file that was made and never stored is not there for the successor, which is said.
#[test]
fn s75_a_file_that_is_not_there_any_more_is_told() {
    let upload = Upload::unknown();
    let daemon = upload.mount.pid("daemon");
    // No program is started from here to the crash: it would close the file in passing, which flushes it.
    let file = File::create_new(upload.at("new")).unwrap();
    kill(daemon, Signal::KILL).unwrap();
    assert_eq!(file.write_at(b"text", 0).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    let told = reasons(&upload.mount, 1);
    let gone = told.iter().filter(|(kind, what)| kind == "handle" && what.starts_with("/new: "));
    assert_eq!(gone.count(), 1, "{told:?}");
}

/// S103: nothing is said of daemons that store what they answer, however they do it, as far as belay can know.
#[test]
fn s103_nothing_is_said_of_what_is_stored() {
    for (policy, how) in ["auto", "reconcile", "transaction"]
        .into_iter()
        .flat_map(|policy| ["at once", "map", "later"].map(|how| (policy, how)))
    {
        let arguments = ["--max-crashes", "0", "--policy", policy];
        let mount = Custom::start(&arguments, |place: &Place<'_>| {
            let (program, control) = (place.dir.join("daemon"), place.dir.join("control"));
            compile("stores.c", &program);
            fs::create_dir(&control).unwrap();
            fs::write(control.join(how), "").unwrap();
            let words = [program, place.behind.into(), control, place.mountpoint.into()];
            // Of a request in which it starts a thread of its pool nothing is known (L45).
            words.into_iter().map(Into::into).chain(["-f", "-s"].map(Into::into)).collect()
        });
        mount.serves();
        let file = File::options().read(true).write(true).open(mount.at("file")).unwrap();
        for byte in [b"A", b"B"] {
            file.write_all_at(byte, 0).unwrap();
            // What is stored later is stored when the write has been answered.
            let store = mount.behind.with_file_name("control").join("store");
            fs::write(&store, "").unwrap();
            let behind = mount.behind.join("file");
            let stored = || fs::read(&behind).unwrap().starts_with(byte);
            assert!(crate::common::until(stored), "{how} within {LIMIT:?}");
            fs::remove_file(store).unwrap();
            mount.crash_and_recover();
            let status = mount.status().unwrap();
            assert_eq!(status["degraded"], false, "{policy} {how}: {status}");
        }
        // What is stored later is kept until then, and that is said.
        assert_eq!(warned(&mount), how == "later", "{policy} {how}");
    }
}

/// A program under a name that no profile knows.
fn unknown(program: &str, place: &Place<'_>) -> PathBuf {
    let copy = place.dir.join(format!("copy-of-{program}"));
    let find = |dir: PathBuf| Some(dir.join(program)).filter(|path| path.is_file());
    let path = std::env::var_os("PATH").unwrap();
    fs::copy(std::env::split_paths(&path).find_map(find).unwrap(), &copy).unwrap();
    copy
}

/// An archive in which there is `file` (see [`Custom`]), made by `program WORDS archive file`.
fn archive(place: &Place<'_>, words: &[&str]) -> OsString {
    let mut command = Command::new(words[0]);
    command.current_dir(place.behind).args(&words[1..]).args(["archive.zip", "file"]);
    assert!(run(command, LIMIT).unwrap().status.success());
    place.behind.join("archive.zip").into()
}

/// An archiver in the place of one that nobody knows.
fn archiver(program: &str, words: &[&str]) -> Custom {
    let mount = Custom::start(&["--max-crashes", "0"], |place: &Place<'_>| {
        let archive = archive(place, words);
        vec![unknown(program, place).into(), "-f".into(), archive, place.mountpoint.into()]
    });
    mount.serves();
    mount
}

const ARCHIVERS: [(&str, &[&str]); 2] =
    [("archivemount", &["tar", "-cf"]), ("fuse-zip", &["zip", "-q"])];

/// All of these are told, each by its path, as lost with the daemon.
fn told_of(mount: &Custom, paths: &[&str]) {
    let told = reasons(mount, paths.len());
    let is_told = |path: &&&str| {
        let it_is = |(kind, what): &&(String, String)| {
            kind == "data" && what.starts_with(&format!("{path}: ")) && what.contains("buffer")
        };
        told.iter().filter(it_is).count() == 1
    };
    let missing: Vec<_> = paths.iter().filter(|path| !is_told(path)).collect();
    assert!(missing.is_empty() && told.len() == paths.len(), "{missing:?} {told:?}");
}

fn is_well(mount: &Custom, what: &str) {
    let status = mount.status().unwrap();
    assert_eq!(status["degraded"], false, "{what}: {status}\n{}", mount.log());
}

fn closed(mount: &Custom) {
    mount.wait_for("release", |status| {
        status["open_handles"] == 0 && status["requests"]["in_flight"] == 0
    });
}

/// S103: an archiver keeps files also when they are closed, or synced: that is told when it dies, and of names as well.
#[test]
fn s103_what_an_archiver_kept_is_told() {
    for (program, words) in ARCHIVERS {
        let mount = archiver(program, words);
        assert!(!warned(&mount), "{program}");
        fs::write(mount.at("closed"), "closed").unwrap();
        let mut synced = File::create(mount.at("synced")).unwrap();
        synced.write_all(b"synced").unwrap();
        // Some have no fsync.
        let _ = synced.sync_all();
        drop(synced);
        closed(&mount);
        assert!(warned(&mount), "{program}");
        is_well(&mount, program);
        mount.crash_and_recover();
        assert!(
            until(|| !mount.at("closed").exists() && !mount.at("synced").exists()),
            "{program}"
        );
        told_of(&mount, &["/closed", "/synced"]);
    }
}

/// S103: the same of names alone.
#[test]
fn s103_what_an_archiver_did_to_names_is_told() {
    for (program, words) in ARCHIVERS {
        let mount = archiver(program, words);
        fs::create_dir(mount.at("dir")).unwrap();
        assert!(warned(&mount), "{program}");
        fs::rename(mount.at("file"), mount.at("renamed")).unwrap();
        mount.crash_and_recover();
        // The kernel believes in names for a second.
        let undone = || !mount.at("dir").exists() && mount.at("file").exists();
        assert!(until(undone), "{program}");
        told_of(&mount, &["/dir", "/renamed"]);
        fs::remove_file(mount.at("file")).unwrap();
        mount.crash_and_recover();
        assert!(until(|| mount.at("file").exists()), "{program}");
        told_of(&mount, &["/dir", "/renamed", "/file"]);
    }
}

/// S103: what is made and removed again is not lost, and neither is what had its name meanwhile.
#[test]
fn s103_what_is_taken_back_is_not_lost() {
    for (program, words) in ARCHIVERS {
        let mount = archiver(program, words);
        fs::create_dir(mount.at("dir")).unwrap();
        fs::write(mount.at("dir/new"), "new").unwrap();
        closed(&mount);
        fs::rename(mount.at("dir/new"), mount.at("dir/newer")).unwrap();
        fs::remove_file(mount.at("dir/newer")).unwrap();
        fs::remove_dir(mount.at("dir")).unwrap();
        // Removed while it is open, it is gone at its close.
        let open = File::create(mount.at("open")).unwrap();
        fs::remove_file(mount.at("open")).unwrap();
        drop(open);
        closed(&mount);
        assert!(warned(&mount), "{program}");
        mount.crash_and_recover();
        is_well(&mount, program);
    }
}

fn names(how: &str, policy: &str) -> Custom {
    let arguments = ["--max-crashes", "0", "--policy", policy];
    let mount = Custom::start(&arguments, |place: &Place<'_>| {
        let (program, control) = (place.dir.join("daemon"), place.dir.join("control"));
        compile("names.c", &program);
        fs::create_dir(&control).unwrap();
        fs::write(control.join(how), "").unwrap();
        let words = [program, place.behind.into(), control, place.mountpoint.into()];
        // Of a request in which it starts a thread of its pool nothing is known (L45).
        words.into_iter().map(Into::into).chain(["-f".into(), "-s".into()]).collect()
    });
    mount.serves();
    mount
}

/// S103: directories that are in a daemon's memory only; of many, some are named and the others are counted.
#[test]
fn s103_names_that_are_only_in_memory_are_told() {
    let mount = names("memory", "auto");
    fs::write(mount.at("stored"), "stored").unwrap();
    assert!(!warned(&mount), "{}", mount.log());
    fs::create_dir(mount.at("taken back")).unwrap();
    fs::create_dir(mount.at("one")).unwrap();
    fs::remove_dir(mount.at("taken back")).unwrap();
    fs::write(mount.at("stored too"), "stored").unwrap();
    assert!(warned(&mount));
    mount.crash_and_recover();
    told_of(&mount, &["/one"]);
    (0..100).for_each(|n| fs::create_dir(mount.at(&format!("many {n}"))).unwrap());
    mount.crash_and_recover();
    let told = mount.wait_for("word", |status| {
        let list = status["degraded_reasons"].as_array().unwrap();
        list.iter().any(|reason| reason["what"].as_str().unwrap().contains(" more: "))
    });
    let named = told["degraded_reasons"].as_array().unwrap().len() - 2;
    let text = told["degraded_reasons"].to_string();
    assert!(named >= 10 && text.contains(&format!("{} more: ", 100 - named)), "{told}");
}

/// S103: nothing is concluded of a daemon that stores by a stream, of which nothing is seen.
#[test]
fn s103_nothing_is_said_of_names_in_a_stream() {
    for policy in ["auto", "reconcile", "transaction"] {
        let mount = names("stream", policy);
        fs::create_dir(mount.at("one")).unwrap();
        mount.crash_and_recover();
        assert!(!warned(&mount), "{policy}");
        is_well(&mount, policy);
    }
}

/// S103: names that are in memory only are told without a journal as well.
#[test]
fn s103_names_are_told_without_a_journal() {
    for policy in WITHOUT_JOURNAL {
        let mount = names("memory", policy);
        fs::write(mount.at("stored"), "stored").unwrap();
        assert!(!warned(&mount), "{policy}: {}", mount.log());
        fs::create_dir(mount.at("one")).unwrap();
        assert!(warned(&mount), "{policy}");
        mount.crash_and_recover();
        told_of(&mount, &["/one"]);
    }
}

/// All that is done to names, sizes and attributes.
fn work(mount: &Custom) {
    let at = |name: &str| mount.at(name);
    for round in 0..2 {
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/file"), "text").unwrap();
        let write = |name: &str| fs::write(at(name), "text");
        write("other").unwrap();
        fs::set_permissions(at("other"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(at("other"), fs::Permissions::from_mode(0o644)).unwrap();
        let file = File::options().write(true).open(at("other")).unwrap();
        [9, 9, 4].into_iter().for_each(|length| file.set_len(length).unwrap());
        file.set_modified(std::time::SystemTime::now()).unwrap();
        file.sync_all().unwrap();
        drop(file);
        File::options().append(true).create(true).open(at("other")).unwrap();
        symlink("other", at("symlink")).unwrap();
        fs::rename(at("dir/file"), at("dir/renamed")).unwrap();
        fs::rename(at("other"), at("dir/renamed")).unwrap();
        File::create(at("empty")).unwrap();
        let fifo = Command::new("mkfifo").arg(at("fifo")).status().unwrap();
        assert!(fifo.success());
        let open = File::create(at("open")).unwrap();
        fs::remove_file(at("open")).unwrap();
        drop(open);
        closed(mount);
        if round == 0 {
            ["dir/renamed", "symlink", "empty", "fifo"]
                .into_iter()
                .for_each(|name| fs::remove_file(at(name)).unwrap());
            fs::remove_dir(at("dir")).unwrap();
        }
    }
}

/// S103: nothing is said of real daemons that store what is done to names, under names that nobody knows.
#[test]
fn s103_nothing_is_said_of_names_that_are_stored() {
    type Words = fn(&Place<'_>) -> Vec<OsString>;
    let daemons: [(&str, Words); 3] = [
        ("bindfs", |place| vec!["-f".into(), place.behind.into()]),
        ("unionfs", |place| {
            let dirs = format!("{}=RW", place.behind.display());
            vec!["-f".into(), "-o".into(), "cow".into(), dirs.into()]
        }),
        ("mhddfs", |place| {
            let other = place.dir.join("other");
            fs::create_dir(&other).unwrap();
            let dirs = format!("{},{}", place.behind.display(), other.display());
            vec!["-f".into(), dirs.into()]
        }),
    ];
    for (program, words) in daemons {
        says_nothing("auto", program, words);
        says_nothing("reconcile", program, words);
    }
}

fn says_nothing(policy: &str, program: &str, words: impl Fn(&Place<'_>) -> Vec<OsString>) {
    let arguments = ["--max-crashes", "0", "--policy", policy];
    let mount = Custom::start(&arguments, |place: &Place<'_>| {
        let program = unknown(program, place);
        let mut all = vec![program.into()];
        all.extend(words(place));
        all.push(place.mountpoint.into());
        all
    });
    mount.serves();
    work(&mount);
    mount.crash_and_recover();
    assert!(!warned(&mount), "{policy} {program}");
    is_well(&mount, program);
}

/// S103: a file that is stored by its last close, and not by the flush before, is not lost by a later death; and neither is
/// one that was stored with another.
#[test]
fn s103_nothing_is_said_of_what_a_close_stores() {
    for policy in ["auto", "reconcile", "transaction"] {
        a_close_stores(&Upload::unknown_by_close(&["--policy", policy]));
    }
}

fn a_close_stores(upload: &Upload) {
    fs::write(upload.at("one"), "one").unwrap();
    fs::write(upload.at("two"), "two").unwrap();
    closed(&upload.mount);
    assert!(until(|| warned(&upload.mount)));
    upload.mount.crash_and_recover();
    assert_eq!(fs::read_to_string(upload.at("two")).unwrap(), "two");
    is_well(&upload.mount, "closed");
}
