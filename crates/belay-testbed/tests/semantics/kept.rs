//! S103: daemons that nobody knows, and that keep to themselves what they were given to write.

use crate::buffer::{Upload, Writer};
use crate::common::LIMIT;
use crate::custom::{Custom, Place};
use crate::journal::compile;
use belay_testbed::Signal;
use belay_testbed::process::kill;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

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
    assert_eq!(status["policy"], "journal", "{status}");
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

fn what_was_kept_is_told(upload: &Upload) {
    let mut writer = Writer::start(&upload.mount.mountpoint);
    ["o file", "o kept", "o synced"].into_iter().for_each(|line| writer.run(line));
    assert!(!warned(&upload.mount));
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
    for how in ["at once", "map", "later"] {
        let mount = Custom::start(&["--max-crashes", "0"], |place: &Place<'_>| {
            let (program, control) = (place.dir.join("daemon"), place.dir.join("control"));
            compile("stores.c", &program);
            fs::create_dir(&control).unwrap();
            fs::write(control.join(how), "").unwrap();
            let words = [program, place.behind.into(), control, place.mountpoint.into()];
            words.into_iter().map(Into::into).chain(["-f".into()]).collect()
        });
        mount.serves();
        let file = File::options().read(true).write(true).open(mount.at("file")).unwrap();
        for byte in [b"A", b"B"] {
            file.write_all_at(byte, 0).unwrap();
            let behind = mount.behind.join("file");
            let stored = || fs::read(&behind).unwrap().starts_with(byte);
            assert!(crate::common::until(stored), "{how} within {LIMIT:?}");
            mount.crash_and_recover();
            let status = mount.status().unwrap();
            assert_eq!(status["degraded"], false, "{how}: {status}");
        }
        // What is stored later is kept until then, and that is said.
        assert_eq!(warned(&mount), how == "later", "{how}");
    }
}
