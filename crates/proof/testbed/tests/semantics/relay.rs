//! S116: daemons that no library can be loaded into, held by a relay.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use belay_testbed::process::{kill, run};
use belay_testbed::{Signal, static_example};

use crate::common::{LIMIT, call, content, names, until};
use crate::custom::{Custom, Place};
use crate::unprivileged::work;

/// passthrough_ll, linked statically.
fn words(place: &Place<'_>, more: &[&str]) -> Vec<OsString> {
    let source = format!("source={},cache=never,timeout=0", place.behind.display());
    let mut words = vec![static_example("passthrough_ll").unwrap().into()];
    words.extend(more.iter().map(OsString::from));
    words.extend(["-o".into(), source.into(), place.mountpoint.into()]);
    words
}

fn relayed(arguments: &[&str], more: &[&str]) -> Custom {
    let mount = Custom::start(arguments, |place| words(place, more));
    mount.serves();
    mount
}

/// The process behind the relay.
fn daemon(mount: &Custom) -> u32 {
    let relay = mount.pid("daemon");
    let mut found = Vec::new();
    assert!(until(|| {
        found.clear();
        for task in fs::read_dir(format!("/proc/{relay}/task")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        found.len() == 1
    }));
    found[0]
}

/// Works on the mount while `crash` kills who serves it, again and again; what must be there then is there.
fn holds_at_work(mount: &Custom, kills: u64, crash: impl Fn(&Custom, u64)) {
    let done = Arc::new(AtomicBool::new(false));
    let caller = {
        let (dir, done) = (mount.mountpoint.clone(), Arc::clone(&done));
        call(move || work(&dir, &done))
    };
    for round in 0..kills {
        std::thread::sleep(Duration::from_millis(30 + 7 * round));
        let crashes = mount.wait_for("service", |s| s["state"] == "serving")["crashes"].clone();
        crash(mount, round);
        mount.wait_for("recovery", |s| s["state"] == "serving" && s["crashes"] != crashes);
    }
    done.store(true, Relaxed);
    let expected = caller.result();
    let hidden = || names(&mount.behind).iter().any(|name| name.starts_with(".belay-hidden-"));
    assert!(until(|| !hidden()), "{:?}", names(&mount.behind));
    let read = |name: String| {
        let text = fs::read_to_string(mount.behind.join(&name)).unwrap();
        (name, text)
    };
    let found = names(&mount.behind).into_iter().filter(|name| name != "file").map(read);
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let status = mount.status().unwrap();
    assert_eq!((&status["degraded"], &status["requests"]["failed"]), (&false.into(), &0.into()));
}

/// S116: the daemon itself is killed, and its relay, at work.
#[test]
fn s116_a_static_daemon_is_killed_at_work() {
    let mut mount = relayed(&[], &["-f"]);
    let status = mount.status().unwrap();
    assert_eq!(status["policy"], "reconcile");
    assert!(status["policy_reason"].as_str().unwrap().contains("relay"), "{status}");
    holds_at_work(&mount, 9, |mount, round| {
        let pid = if round % 3 == 0 { mount.pid("daemon") } else { daemon(mount) };
        kill(pid, if round % 2 == 0 { Signal::KILL } else { Signal::SEGV }).unwrap();
    });
    mount.tool(&["umount"]);
    assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
}

/// S116: from copies, and with one thread.
#[test]
fn s116_a_static_daemon_without_resend_and_with_one_thread() {
    for (arguments, more) in [(&["--no-resend"][..], &["-f"][..]), (&[], &["-f", "-s"])] {
        let mount = relayed(arguments, more);
        holds_at_work(&mount, 4, |mount, _| kill(daemon(mount), Signal::KILL).unwrap());
    }
}

/// S116, S12, S14, S17: open files.
#[test]
fn s116_open_files_stay() {
    let mount = relayed(&[], &["-f"]);
    fs::write(mount.at("gone"), "gone").unwrap();
    let gone = File::options().read(true).write(true).open(mount.at("gone")).unwrap();
    let number = gone.metadata().unwrap().ino();
    fs::remove_file(mount.at("gone")).unwrap();
    let mut log = File::options().append(true).create(true).open(mount.at("log")).unwrap();
    for round in 0..5 {
        writeln!(log, "{round}").unwrap();
        kill(daemon(&mount), Signal::KILL).unwrap();
        assert_eq!(content(&gone), "gone");
        gone.write_all_at(b"GONE", 0).unwrap();
        gone.write_all_at(b"gone", 0).unwrap();
        let meta = gone.metadata().unwrap();
        assert_eq!((meta.ino(), meta.nlink()), (number, 0));
        let count = mount.status().unwrap()["crashes"].clone();
        assert!(count.as_u64().is_some_and(|count| count > round), "{count}");
    }
    drop((gone, log));
    assert_eq!(fs::read_to_string(mount.at("log")).unwrap(), "0\n1\n2\n3\n4\n");
    assert!(until(|| names(&mount.behind) == ["file", "log"]), "{:?}", names(&mount.behind));
}

/// S116: reads and writes of all sizes, larger than a message is.
#[test]
fn s116_large_files_come_through() {
    let mount = relayed(&[], &["-f"]);
    let bytes: Vec<u8> =
        (0..9_000_001_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(mount.at("large"), &bytes).unwrap();
    assert!(fs::read(mount.behind.join("large")).unwrap() == bytes);
    kill(daemon(&mount), Signal::KILL).unwrap();
    assert!(fs::read(mount.at("large")).unwrap() == bytes);
    let many: Vec<String> =
        (0..2000).map(|number| format!("a-name-of-some-length-{number:06}")).collect();
    fs::create_dir(mount.at("many")).unwrap();
    for name in &many {
        File::create(mount.behind.join("many").join(name)).unwrap();
    }
    assert_eq!(names(&mount.at("many")), many);
}

/// S116, S29: daemons that go into the background.
#[test]
fn s116_a_static_daemon_in_the_background() {
    let mut mount = relayed(&[], &[]);
    let file = File::open(mount.at("file")).unwrap();
    for _ in 0..3 {
        let crashes = mount.status().unwrap()["crashes"].clone();
        kill(daemon(&mount), Signal::KILL).unwrap();
        mount.wait_for("recovery", |s| s["state"] == "serving" && s["crashes"] != crashes);
        assert_eq!(content(&file), "text");
    }
    drop(file);
    mount.tool(&["umount"]);
    assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
}

/// S116, S34: all ends but a crash are the daemon's, and nothing is left.
#[test]
fn s116_ends() {
    let mut stopped = relayed(&[], &["-f"]);
    let process = daemon(&stopped);
    stopped.stop();
    assert_eq!(stopped.end().code(), Some(0), "{}", stopped.log());
    assert!(until(|| !Path::new(&format!("/proc/{process}")).exists()));
    // Whoever asks the daemon to end has it unmount.
    for asked in [false, true] {
        let mut mount = relayed(&[], &["-f"]);
        let pid = if asked { mount.pid("daemon") } else { daemon(&mount) };
        kill(pid, Signal::TERM).unwrap();
        // What passthrough_ll says after a signal, also without belay.
        assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
        assert!(!mount.is_mounted());
    }
    // Its own words, and its own exit status.
    let mut failed = Custom::start(&[], |place| {
        let mut words = words(place, &["-f"]);
        words.extend(["-o".into(), "no_such_option".into()]);
        words
    });
    assert_eq!(failed.end().code(), Some(1));
    let log = failed.log();
    assert_eq!(log.matches("unknown option").count(), 1, "started once: {log}");
}

/// S116, S30: it has nothing of belay's: no descriptor but its own end, no variable, no library.
#[test]
fn s116_a_static_daemon_gets_what_the_user_gave() {
    let mount = relayed(&[], &["-f"]);
    mount.crash_and_recover();
    let pid = daemon(&mount);
    let variables = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let variables = String::from_utf8_lossy(&variables).into_owned();
    for name in ["LD_PRELOAD", "BELAY_SHIM", "BELAY_PRELOAD", "BELAY_MOUNTPOINT"] {
        assert!(!variables.contains(&format!("{name}=")), "{variables}");
    }
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let link = fs::read_link(entry.path()).unwrap_or_default().display().to_string();
        for bad in ["memfd:", "/dev/fuse", "eventfd", "seccomp"] {
            assert!(!link.contains(bad), "{link}");
        }
    }
    let said = mount.ask(&["status"]);
    assert!(said.contains("reconcile") && said.contains("relay"), "{said}");
}

/// S116, S40: a request that daemons hang in.
#[test]
fn s116_a_static_daemon_that_hangs() {
    let mount = relayed(&["--hang-timeout", "1s"], &["-f"]);
    kill(daemon(&mount), Signal::STOP).unwrap();
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "text");
    assert_eq!(mount.status().unwrap()["crashes"], 1);
}

/// S116: what cannot be had is refused, with what can.
#[test]
fn s116_other_policies_are_refused() {
    let mut mount = Custom::start(&["--policy", "journal"], |place| words(place, &["-f"]));
    assert_eq!(mount.end().code(), Some(1));
    let log = mount.log();
    assert!(log.contains("linked statically") && log.contains("reconcile"), "{log}");
}

/// S116: a daemon that has given up its privileges cannot have the relay mount for it.
#[test]
fn s116_the_relay_gives_no_rights() {
    let mut mount = Custom::start(&[], |place| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/lowly.c");
        let program = place.dir.join("lowly");
        let mut build = Command::new("cc");
        build.args(["-static", "-O1", "-Wall", "-o"]).arg(&program).arg(source);
        let output = run(build, LIMIT).unwrap();
        assert!(output.status.success(), "{output:?}");
        vec![program.into(), place.mountpoint.into()]
    });
    assert_eq!(mount.end().code(), Some(3), "{}", mount.log());
    assert!(mount.log().contains("lowly: mount: Operation not permitted"), "{}", mount.log());
    assert!(!mount.is_mounted());
}
