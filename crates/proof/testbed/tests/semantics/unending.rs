//! S110: daemons that a SIGKILL does not end for now: it is said, nobody waits for them without a word, and all goes on when they have
//! ended.

use std::fs;
use std::path::{Path, PathBuf};

use belay_testbed::Signal;
use belay_testbed::process::{kill, wait_for_exit};
use serde_json::Value;

use crate::common::{LIMIT, call, number, until};
use crate::custom::Custom;
use crate::elsewhere::Elsewhere;

/// The reason of that kind.
fn reason(status: &Value) -> Option<&str> {
    let reasons = status["degraded_reasons"].as_array()?;
    reasons.iter().find(|reason| reason["kind"] == "kill")?["what"].as_str()
}

/// What `belay WORDS MOUNTPOINT` says as it fails.
fn fails(mount: &Custom, words: &[&str]) -> String {
    let words = words.iter().map(AsRef::as_ref);
    let words: Vec<_> = words.chain([mount.mountpoint.as_os_str()]).collect();
    let output = Custom::belay(&words);
    assert!(!output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The daemon does not end for that reason once it `is_held`, by the next call at the latest; then it does.
fn is_said(
    mount: &Custom,
    why: &str,
    hold: impl FnOnce(u32),
    is_held: impl FnMut() -> bool,
    let_go: impl FnOnce(),
) {
    let daemon = mount.pid("daemon");
    hold(daemon);
    let path = mount.at("file");
    let caller = call(move || fs::read_to_string(path));
    assert!(until(is_held), "{}", mount.log());
    // Who has it killed is told, and so is who asks later.
    let said = fails(mount, &["crash"]);
    assert!(said.contains("has not ended") && said.contains(why), "{said}");
    let status = mount.wait_for("ticks", |status| {
        // Whoever is killed by a limit besides is so once.
        reason(status)
            .is_some_and(|what| what.starts_with("daemon") && what.contains("killed 6s ago"))
    });
    assert_eq!(status["state"], "recovering", "{status}");
    assert_eq!(status["degraded"], true, "{status}");
    assert_eq!(number(&status, "/crashes"), 0, "{status}");
    let told = mount.log();
    assert_eq!(told.matches("has not ended").count(), 1, "{told}");
    assert!(told.contains("DEGRADED") && told.contains(why), "{told}");
    for words in [&["crash"][..], &["restart"], &["stop"]] {
        let said = fails(mount, words);
        assert!(said.contains("has not ended") && said.contains(why), "{words:?}: {said}");
    }
    let_go();
    assert_eq!(caller.result().unwrap(), "text", "{}", mount.log());
    assert!(wait_for_exit(daemon, LIMIT).unwrap());
    let status = mount.wait_for("recovery", |status| {
        status["state"] == "serving" && status["crashes"] == 1 && status["degraded"] == false
    });
    let report = PathBuf::from(status["report_dir"].as_str().unwrap()).join("0001.json");
    let mut detection = Value::Null;
    assert!(until(|| {
        let report = fs::read(&report).unwrap_or_default();
        let report = serde_json::from_slice::<Value>(&report).unwrap_or_default();
        detection = report["detection"].clone();
        detection != Value::Null
    }));
    assert_eq!(detection["by"], "requested", "{detection}");
    let signal = detection["signal"].as_str().unwrap();
    assert_eq!(signal.matches("then a hang").count(), 1, "{signal}");
    mount.serves();
    mount.stop();
}

/// S110: it waits in the kernel for another file system, whose server has read what it asks for and does not answer.
#[test]
fn s110_a_daemon_in_uninterruptible_sleep() {
    let far = Elsewhere::start();
    let near = Elsewhere::start_on(&far.place);
    let mount = Custom::start(&["--hang-timeout", "1s"], |place| {
        let place = crate::custom::Place { behind: &near.place, ..*place };
        fs::write(near.at("file"), "text").unwrap();
        Custom::low_level_words(&place, &[])
    });
    mount.serves();
    let silent = |_| far.falls_silent();
    is_said(&mount, "uninterruptible sleep", silent, || near.looks_for_a_name(), || far.answers());
}

/// S110: it is frozen. Only the freezer of cgroup v1 holds one that was killed.
#[test]
fn s110_a_frozen_daemon() {
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    if !freezer.join("cgroup.procs").is_file() {
        eprintln!(
            "skipped: no freezer of cgroup v1 (the test above holds a daemon in another way)"
        );
        return;
    }
    let group = Group(freezer.join(format!("belay-test-{}", std::process::id())));
    fs::create_dir(&group.0).unwrap();
    let mount = Custom::low_level(&["--hang-timeout", "1s"], &[]);
    let freeze = |daemon: u32| {
        fs::write(group.0.join("cgroup.procs"), daemon.to_string()).unwrap();
        group.becomes("FROZEN");
        let state = || fs::read_to_string(group.0.join("freezer.state")).unwrap();
        assert!(until(|| state().trim() == "FROZEN"));
    };
    is_said(&mount, "cgroup freezer", freeze, || true, || group.becomes("THAWED"));
}

/// S110: it is stopped, and so takes no other signal than SIGKILL.
#[test]
fn s110_a_signal_to_a_stopped_daemon() {
    let mount = Custom::low_level(&[], &[]);
    let daemon = mount.pid("daemon");
    kill(daemon, Signal::STOP).unwrap();
    assert!(until(|| state_of(daemon) == "T"));
    let said = fails(&mount, &["crash", "--signal", "SEGV"]);
    assert!(said.contains("SIGSEGV was sent") && said.contains("it is stopped"), "{said}");
    assert_eq!(number(&mount.status().unwrap(), "/crashes"), 0);
    // Then it acts on it.
    kill(daemon, Signal::CONT).unwrap();
    mount.wait_for("recovery", |status| status["state"] == "serving" && status["crashes"] == 1);
    mount.serves();
    mount.stop();
}

/// S110: with a limit for hangs that ends it, also where nobody else asks for anything.
#[test]
fn s110_a_signal_to_a_stopped_daemon_that_hangs_then() {
    let mount = Custom::low_level(&["--hang-timeout", "1s"], &[]);
    let daemon = mount.pid("daemon");
    kill(daemon, Signal::STOP).unwrap();
    assert!(until(|| state_of(daemon) == "T"));
    mount.ask(&["crash", "--signal", "SEGV"]);
    assert_eq!(number(&mount.status().unwrap(), "/crashes"), 1, "{}", mount.log());
    mount.serves();
    mount.stop();
}

/// S110: it is frozen by cgroup v2, which lets only those go that are killed.
#[test]
fn s110_a_signal_to_a_daemon_that_is_frozen_until_it_is_killed() {
    let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let Some(root) = root.into_iter().find(|root| root.join("cgroup.controllers").is_file()) else {
        eprintln!("skipped: no cgroup v2");
        return;
    };
    let group = root.join(format!("belay-test-signal-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&group) {
        eprintln!("skipped: no group of processes can be made: {error}");
        return;
    }
    let mount = Custom::low_level(&[], &[]);
    let daemon = mount.pid("daemon");
    fs::write(group.join("cgroup.procs"), daemon.to_string()).unwrap();
    fs::write(group.join("cgroup.freeze"), "1").unwrap();
    let events = || fs::read_to_string(group.join("cgroup.events")).unwrap();
    assert!(until(|| events().contains("frozen 1")));
    let said = fails(&mount, &["crash", "--signal", "SEGV"]);
    assert!(said.contains("SIGSEGV was sent") && said.contains("it is frozen"), "{said}");
    fs::write(group.join("cgroup.freeze"), "0").unwrap();
    mount.wait_for("recovery", |status| status["state"] == "serving" && status["crashes"] == 1);
    mount.serves();
    mount.stop();
    assert!(until(|| fs::remove_dir(&group).is_ok()));
}

fn state_of(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.chars().take(1).collect()
}

/// A group of processes to freeze.
struct Group(PathBuf);

impl Group {
    fn becomes(&self, state: &str) {
        fs::write(self.0.join("freezer.state"), state).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.becomes("THAWED");
        until(|| fs::remove_dir(&self.0).is_ok());
    }
}
