//! One place, several `belay run`: after each other, and at once.

mod common;

use common::{Held, belay, can_hold, run, text};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `belay run` on the same place as `held`.
fn again(held: &Held) -> Command {
    let mut command = belay();
    command.args(["run", "--"]).arg(&held.daemon).arg("-f").args([&held.source, &held.mount]);
    command.env("BELAY_STATE_DIR", &held.state).stdin(Stdio::null());
    command
}

/// What a unmounted place's belay has still to do is waited for by the next one, however long that
/// takes it.
#[test]
fn s80_a_place_is_free_as_soon_as_it_is_unmounted() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    for round in 0..60 {
        let how: &[&str] = if round % 2 == 0 { &["umount"] } else { &["fusermount3", "-u"] };
        let mut unmount = Command::new(how[0]);
        let output = run(unmount.args(&how[1..]).arg(&held.mount));
        assert!(output.status.success(), "round {round}: {}", text(&output));
        let next = again(&held).stderr(held.log_file()).spawn().expect("belay");
        assert_eq!(held.go_on_with(next), Some(0), "round {round}");
        held.wait_until("serving again", |status| {
            status["state"] == "serving" && status["keeper"]["pid"] == held.child.id()
        });
        assert_eq!(held.read(), "content\n", "round {round}");
    }
}

#[test]
fn s80_a_place_is_free_as_soon_as_it_is_stopped() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    for round in 0..5 {
        let output = held.ask(&["stop"]);
        assert!(output.status.success(), "round {round}: {}", text(&output));
        let next = again(&held).stderr(held.log_file()).spawn().expect("belay");
        assert_eq!(held.go_on_with(next), Some(0), "round {round}");
        held.wait_for("serving");
        assert_eq!(held.read(), "content\n", "round {round}");
    }
}

/// Somebody who waits is told for whom, and is not let in while the other one lives.
#[test]
fn s80_an_end_that_takes_long_is_waited_for_with_a_message() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let open = std::fs::File::open(held.mount.join("file")).expect("open");
    let output = run(Command::new("umount").arg("-l").arg(&held.mount));
    assert!(output.status.success(), "{}", text(&output));
    let keeper = held.child.id();
    let mut next = again(&held).stderr(held.log_file()).spawn().expect("belay");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let message = format!("waiting for belay process {keeper}");
    while !held.log().contains(&message) {
        assert!(next.try_wait().expect("wait").is_none(), "{}", held.log());
        assert!(std::time::Instant::now() < end, "it says nothing: {}", held.log());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(open);
    assert_eq!(held.go_on_with(next), Some(0));
    held.wait_until("serving again", |status| {
        status["state"] == "serving" && status["keeper"]["pid"] == held.child.id()
    });
    assert_eq!(held.read(), "content\n");
}

/// Exactly one has it; all others are told who.
#[test]
fn s80_of_several_at_once_one_has_the_place() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    for round in 0..5 {
        assert!(held.ask(&["stop"]).status.success());
        assert_eq!(held.exit_code(), Some(0), "round {round}");
        let start = |_| again(&held).stderr(Stdio::piped()).spawn().expect("belay");
        let mut all: Vec<_> = (0..4).map(start).collect();
        held.wait_for("serving");
        let keeper = held.status()["keeper"]["pid"].as_u64().expect("a keeper");
        let winner = all.iter().position(|child| u64::from(child.id()) == keeper);
        held.child = all.remove(winner.expect("one of them"));
        for other in all {
            let output: Output = other.wait_with_output().expect("wait");
            let text = text(&output);
            assert_eq!(output.status.code(), Some(1), "round {round}: {text}");
            let part = format!("belay process {keeper} holds it already");
            assert!(text.contains(&part), "round {round}: {text}");
        }
        assert_eq!(held.read(), "content\n", "round {round}");
    }
}

/// A file system whose daemon is stopped: whoever asks it for something waits.
struct Silent {
    dir: tempfile::TempDir,
    daemon: std::process::Child,
}

impl Silent {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        for name in ["source", "mount"] {
            std::fs::create_dir(dir.path().join(name)).expect("mkdir");
        }
        std::fs::write(dir.path().join("source/image"), "none").expect("write");
        let mut command = Command::new("bindfs");
        command.args(["-f", "-o", "attr_timeout=0,entry_timeout=0"]);
        command.args([dir.path().join("source"), dir.path().join("mount")]);
        let silent = Self { dir, daemon: command.spawn().expect("bindfs") };
        let end = Instant::now() + Duration::from_secs(60);
        while !silent.image().exists() {
            assert!(Instant::now() < end, "bindfs does not mount");
        }
        silent
    }

    fn image(&self) -> std::path::PathBuf {
        self.dir.path().join("mount/image")
    }

    /// From now on nobody is answered; gives the connection's count of those who wait.
    fn stop(&self) -> std::path::PathBuf {
        let device = std::os::unix::fs::MetadataExt::dev(&self.image().metadata().expect("stat"));
        let connections = std::path::Path::new("/sys/fs/fuse/connections");
        let waiting = connections.join(rustix::fs::minor(device).to_string()).join("waiting");
        if !waiting.exists() {
            // Nobody has mounted it on this machine yet.
            let mut mount = Command::new("mount");
            let _ = run(mount.args(["-t", "fusectl", "fusectl"]).arg(connections));
            assert!(waiting.exists(), "the kernel's list of connections is not at {connections:?}");
        }
        let pid = i32::try_from(self.daemon.id()).expect("a pid");
        common::signal(pid, rustix::process::Signal::STOP);
        waiting
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = run(Command::new("umount").arg("-l").arg(self.dir.path().join("mount")));
    }
}

/// S80: a start that waits for a file system which does not answer keeps nobody from the place that
/// it names.
#[test]
fn s80_what_does_not_answer_is_waited_for_without_the_place() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    assert!(held.ask(&["stop"]).status.success());
    assert_eq!(held.exit_code(), Some(0));
    for options in
        [&["--policy", "journal", "--inode-numbers", "stable"][..], &["--policy", "auto"]]
    {
        let silent = Silent::start();
        let waiting = silent.stop();
        let mut command = belay();
        // A program without a profile, with a file among its arguments.
        command.args(["run"]).args(options).arg("--").arg(&held.daemon);
        command.args([silent.image().as_path(), &held.mount]).env("BELAY_STATE_DIR", &held.state);
        let mut first = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("belay");
        let end = Instant::now() + Duration::from_secs(60);
        let asks = || std::fs::read_to_string(&waiting).is_ok_and(|count| count.trim() != "0");
        while !asks() {
            assert!(first.try_wait().expect("wait").is_none(), "it asks nothing");
            assert!(Instant::now() < end, "it asks nothing");
        }
        let next = again(&held).stderr(held.log_file()).spawn().expect("belay");
        let _ = held.go_on_with(next);
        held.wait_until("serving", |status| {
            status["state"] == "serving" && status["keeper"]["pid"] == held.child.id()
        });
        assert!(first.try_wait().expect("wait").is_none(), "it has not waited");
        first.kill().expect("kill");
        drop(silent);
        first.wait().expect("its end");
        assert!(!held.log().contains("waiting for"), "{}", held.log());
        assert!(held.ask(&["stop"]).status.success());
        assert_eq!(held.exit_code(), Some(0));
    }
}
