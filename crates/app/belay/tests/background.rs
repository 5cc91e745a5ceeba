//! `belay run --background`, with a real daemon: skipped without root, bindfs or a built shim.

mod common;

use common::{belay, can_hold, run, text};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Directories of a mount, which is ended with them.
struct Scratch {
    dir: tempfile::TempDir,
    mount: PathBuf,
    state: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let base = dir.path().canonicalize().expect("canonical");
        let (mount, state) = (base.join("mount"), base.join("state"));
        for name in ["mount", "source"] {
            std::fs::create_dir(base.join(name)).expect("mkdir");
        }
        std::fs::write(base.join("source/file"), "content\n").expect("write");
        Self { dir, mount, state }
    }

    fn source(&self) -> PathBuf {
        self.mount.with_file_name("source")
    }

    fn start(&self, options: &[&str]) -> Output {
        let mut command = belay();
        command.args(["run", "--background"]).args(options);
        command.args(["--", "bindfs", "-f"]).arg(self.source()).arg(&self.mount);
        run(command.env("BELAY_STATE_DIR", &self.state))
    }

    fn ask(&self, words: &[&str]) -> Output {
        let mut command = belay();
        run(command.args(words).arg(&self.mount).env("BELAY_STATE_DIR", &self.state))
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.ask(&["status", "--json"]).stdout).unwrap_or(Value::Null)
    }

    fn read(&self) -> String {
        text(&run(Command::new("cat").arg(self.mount.join("file"))))
    }

    fn entries(&self) -> usize {
        let entries = std::fs::read_dir(&self.state).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().is_dir()).count()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.status() != Value::Null {
            self.ask(&["stop", "--force"]);
        }
        let _ = run(Command::new("umount").arg("-l").arg(&self.mount));
        let _ = &self.dir;
    }
}

/// The session that a process is in.
fn session(pid: &Value) -> String {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let (_, rest) = line.rsplit_once(')').expect("a name");
    rest.split_ascii_whitespace().nth(3).expect("a session").to_owned()
}

/// Waits for the end of a process.
fn end(mut child: Child) -> Option<i32> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return status.code();
        }
        assert!(Instant::now() < limit, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// S112: when it has returned, the mount serves; it is held like any other, and `belay stop` says
/// that it has ended it.
#[test]
fn s112_it_returns_when_the_mount_serves() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let output = scratch.start(&[]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("mounted at {}", scratch.mount.display())), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(scratch.read(), "content\n");
    let status = scratch.status();
    assert_eq!(status["state"], "serving", "{status}");
    // No process of it is in the session of whoever has started it.
    let own = session(&std::process::id().into());
    for of in ["daemon", "supervisor", "keeper"] {
        assert_ne!(session(&status[of]["pid"]), own, "{of}: {status}");
    }
    for (of, role) in [("supervisor", "supervise"), ("keeper", "keep")] {
        let line = std::fs::read(format!("/proc/{}/cmdline", status[of]["pid"])).expect("a line");
        let expected = format!("belay\0{role}\0{}\0", scratch.mount.display());
        assert_eq!(String::from_utf8_lossy(&line), expected);
    }
    let output = scratch.ask(&["crash"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(scratch.read(), "content\n");
    let log = PathBuf::from(status["log"].as_str().expect("a log"));
    let told = std::fs::read_to_string(&log).expect("the log");
    assert!(told.contains("killed by SIGKILL") && told.contains("mounted at"), "{told}");
    let output = scratch.ask(&["restart"]);
    assert!(output.status.success(), "{}", text(&output));
    let status = scratch.status();
    assert_eq!(
        (&status["crashes"], &status["planned"], &status["restarts"]),
        (&2.into(), &2.into(), &1.into())
    );
    assert!(text(&scratch.ask(&["status"])).contains("1 (1 asked for), besides 1 restart"));
    let output = scratch.ask(&["stop"]);
    assert_eq!(text(&output), format!("stopped: {} (bindfs)\n", scratch.mount.display()));
    // What has ended is known to have been there.
    let said = text(&scratch.ask(&["status"]));
    assert!(
        said.contains("has ended")
            && said.contains(log.parent().and_then(Path::to_str).expect("a folder")),
        "{said}"
    );
    assert!(log.exists());
}

/// A mount whose belay does not answer is named by its mountpoint, wherever its state is.
#[test]
fn a_mount_that_says_nothing_is_named() {
    if !can_hold() {
        return;
    }
    let held = common::Held::start(&[], &["-f"]);
    let supervisor = held.pid("supervisor");
    common::signal(supervisor, Signal::STOP);
    let output = run(&held.belay(&["status"]));
    common::signal(supervisor, Signal::CONT);
    let said = text(&output);
    let named = format!("warning: the supervisor of {} ", held.mount.display());
    assert!(said.contains(&named) && said.contains("no answer within 5s"), "{said}");
}

/// S112: a start that fails is told as in the foreground, and leaves nothing.
#[test]
fn s112_a_start_that_fails_is_told() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    std::fs::remove_dir_all(scratch.source()).expect("remove");
    let output = scratch.start(&[]);
    let mut command = belay();
    command.args(["run", "--", "bindfs", "-f"]).arg(scratch.source()).arg(&scratch.mount);
    let foreground = run(command.env("BELAY_STATE_DIR", &scratch.state));
    assert!(!output.status.success(), "{}", text(&output));
    assert_eq!(output.status.code(), foreground.status.code());
    assert_eq!(text(&output), text(&foreground));
    assert!(text(&output).contains("Not started again"), "{}", text(&output));
    assert_eq!(scratch.entries(), 0);
    // What is refused before is so at once.
    let mut command = belay();
    command.args(["run", "--background", "--", "no-such-daemon"]);
    let output = run(command.env("BELAY_STATE_DIR", &scratch.state));
    assert!(!output.status.success() && text(&output).contains("no such program"));
}

/// S112: a terminal that is closed ends what was started on it, but for this.
#[test]
fn s112_it_outlives_its_terminal() {
    if !can_hold() || run(Command::new("script").arg("--version")).stdout.is_empty() {
        return;
    }
    let scratch = Scratch::new();
    let log = scratch.mount.with_file_name("log of it");
    std::fs::write(&log, "from before\n").expect("write");
    let words = [
        env!("CARGO_BIN_EXE_belay"),
        "run",
        "--background",
        "--log-file",
        &format!("'{}'", log.display()),
        "-- bindfs",
        &scratch.source().display().to_string(),
        &scratch.mount.display().to_string(),
    ];
    // script(1) has a terminal of its own for what it starts, and closes it when the shell there
    // has ended.
    let mut command = Command::new("script");
    command.args(["-qec", &words.join(" "), "/dev/null"]).env("BELAY_STATE_DIR", &scratch.state);
    let output = run(&command);
    assert!(output.status.success() && text(&output).contains("mounted at"), "{}", text(&output));
    assert!(!text(&output).contains("from before"), "{}", text(&output));
    assert_eq!(scratch.read(), "content\n");
    let status = scratch.status();
    assert_eq!(status["log"], log.display().to_string(), "{status}");
    let terminal = format!("/proc/{}/stat", status["keeper"]["pid"]);
    let line = std::fs::read_to_string(terminal).expect("a process");
    let (_, rest) = line.rsplit_once(')').expect("a name");
    assert_eq!(rest.split_ascii_whitespace().nth(4), Some("0"), "a terminal: {line}");
    let output = scratch.ask(&["stop"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(scratch.entries(), 0);
    let told = std::fs::read_to_string(&log).expect("the log");
    assert!(told.starts_with("from before\n") && told.contains("mounted at"), "{told}");
}

/// Starts `belay run --background` of what never mounts, and waits until that is started. Gives it
/// with the status of the mount.
fn start_of_nothing(scratch: &Scratch) -> (Child, Value) {
    let mut command = belay();
    command
        .args(["run", "--background", "--", "sleep", "1000"])
        .env("BELAY_STATE_DIR", &scratch.state);
    let said = std::fs::File::create(scratch.mount.with_file_name("said")).expect("a file");
    let child = command.stdout(Stdio::null()).stderr(said).spawn().expect("belay");
    let limit = Instant::now() + Duration::from_secs(60);
    let status = || {
        let all =
            text(&run(belay().args(["status", "--json"]).env("BELAY_STATE_DIR", &scratch.state)));
        let all: Value = serde_json::from_str(&all).unwrap_or(Value::Null);
        all["mounts"][0].clone()
    };
    let mut now = status();
    while !now["daemon"]["pid"].is_u64() {
        assert!(Instant::now() < limit, "it does not start");
        now = status();
    }
    (child, now)
}

fn said(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.mount.with_file_name("said")).expect("what was said")
}

/// S112: Ctrl-C while the daemon starts means the mount that is to be. Nothing serves then, and the
/// exit status says so.
#[test]
fn s112_a_start_is_broken_off() {
    if !can_hold() {
        return;
    }
    for (signal, code, name) in [
        (rustix::process::Signal::INT, 130, "SIGINT"),
        (rustix::process::Signal::TERM, 143, "SIGTERM"),
    ] {
        let scratch = Scratch::new();
        let (child, _) = start_of_nothing(&scratch);
        common::signal(i32::try_from(child.id()).expect("a pid"), signal);
        assert_eq!(end(child), Some(code));
        let said = said(&scratch);
        assert!(said.contains(&format!("interrupted by {name}")), "{said}");
        assert_eq!(scratch.entries(), 0);
    }
}

/// S112: a keeper that is killed at that moment passes nothing on, and another one takes its place.
#[test]
fn s112_a_start_is_broken_off_whose_keeper_is_killed() {
    if !can_hold() {
        return;
    }
    for _ in 0..3 {
        let scratch = Scratch::new();
        let (child, status) = start_of_nothing(&scratch);
        let keeper = i32::try_from(status["keeper"]["pid"].as_i64().expect("a pid"));
        common::signal(keeper.expect("a pid"), rustix::process::Signal::KILL);
        common::signal(i32::try_from(child.id()).expect("a pid"), rustix::process::Signal::INT);
        assert_eq!(end(child), Some(130), "{}", said(&scratch));
        assert_eq!(scratch.entries(), 0);
    }
}

/// S112: so does a start whose belay is killed, or that another ends: it serves nothing, and what
/// happened is said.
#[test]
fn s112_a_start_whose_belay_has_ended_is_told() {
    if !can_hold() {
        return;
    }
    let pid = |status: &Value, of: &str| {
        i32::try_from(status[of]["pid"].as_i64().expect("a pid")).expect("a pid")
    };
    let scratch = Scratch::new();
    let (child, status) = start_of_nothing(&scratch);
    let (keeper, supervisor) = (pid(&status, "keeper"), pid(&status, "supervisor"));
    for process in [keeper, supervisor] {
        common::signal(process, rustix::process::Signal::STOP);
    }
    for process in [keeper, supervisor, pid(&status, "daemon")] {
        common::signal(process, rustix::process::Signal::KILL);
    }
    assert_eq!(end(child), Some(1));
    let told = said(&scratch);
    assert!(told.contains("killed by SIGKILL") && told.contains("nothing serves"), "{told}");
    assert_eq!(scratch.entries(), 0);

    let scratch = Scratch::new();
    let (child, status) = start_of_nothing(&scratch);
    common::signal(pid(&status, "supervisor"), rustix::process::Signal::TERM);
    assert_eq!(end(child), Some(1));
    let told = said(&scratch);
    assert!(told.contains("ended before it served"), "{told}");
    assert_eq!(scratch.entries(), 0);
}

/// S112: a log is a file that the user has named: what was in it stays, and what is no such file is
/// refused.
#[test]
fn s112_a_log_is_appended_to_and_no_link() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let at = |name: &str| scratch.mount.with_file_name(name);
    std::fs::write(at("theirs"), "theirs\n").expect("write");
    std::os::unix::fs::symlink(at("theirs"), at("link")).expect("link");
    let link = at("link").display().to_string();
    for (log, why) in [(link.as_str(), "symbolic link"), ("/dev/null", "no regular file")] {
        let output = scratch.start(&["--log-file", log]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.contains("--log-file"), "{said}");
    }
    assert_eq!(std::fs::read_to_string(at("theirs")).expect("read"), "theirs\n");
    assert_eq!(scratch.entries(), 0);
    // More than a log of belay's own has.
    let before = "from before\n".repeat(500_000);
    std::fs::write(at("log"), &before).expect("write");
    let log = at("log").display().to_string();
    let output = scratch.start(&["--log-file", &log]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(scratch.ask(&["crash"]).status.success() && scratch.ask(&["stop"]).status.success());
    let told = std::fs::read_to_string(at("log")).expect("read");
    let rest = told.strip_prefix(&before).expect("what was there before");
    assert!(rest.contains("mounted at") && rest.contains("killed by SIGKILL"), "{rest}");
}

/// S112: nothing is at a daemon's standard input, whatever is at that of who has started it; its
/// directory and umask are as there.
#[test]
fn s112_what_the_daemon_has_of_who_starts_it() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let mut command = Command::new("sh");
    let script = "cd \"$1\"; umask 027; shift; echo words | exec \"$@\"";
    command.args(["-c", script, "sh"]).arg(scratch.source());
    command.arg(env!("CARGO_BIN_EXE_belay")).args(["run", "--background", "--", "bindfs", "-f"]);
    command.arg(scratch.source()).arg(&scratch.mount).env("BELAY_STATE_DIR", &scratch.state);
    let output = run(&command);
    assert!(output.status.success(), "{}", text(&output));
    for life in 0..2 {
        let status = scratch.status();
        let proc = PathBuf::from(format!("/proc/{}", status["daemon"]["pid"]));
        let link = |name: &str| std::fs::read_link(proc.join(name)).expect("a link");
        assert_eq!(link("fd/0"), Path::new("/dev/null"), "life {life}");
        assert_eq!(link("cwd"), scratch.source(), "life {life}");
        assert!(scratch.ask(&["crash"]).status.success());
    }
    assert!(scratch.ask(&["stop"]).status.success());
}

/// A start that is refused when its keeper is there already says why, and the keeper nothing of its
/// own.
#[test]
fn s112_a_keeper_that_is_not_needed_says_nothing() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let log = scratch.mount.with_file_name("log");
    let mut command = belay();
    command.args(["run", "--background", "--log-file"]).arg(&log).args(["--", "bindfs", "-f"]);
    // Each is as long as an argument may be, all of them are longer than what is noted.
    command.args((0..10).map(|_| format!("-o{}", "x".repeat(120_000))));
    command.arg(scratch.source()).arg(&scratch.mount).env("BELAY_STATE_DIR", &scratch.state);
    let output = run(&command);
    assert!(!output.status.success() && text(&output).contains("the command line"));
    assert_eq!(std::fs::read_to_string(&log).expect("the log"), "");
    assert_eq!(scratch.entries(), 0);
}

/// What was stopped is named as it is called, not as it is quoted.
#[test]
fn what_is_stopped_is_named_as_it_is_called() {
    if !can_hold() {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.mount.with_file_name("a dir");
    std::fs::create_dir(&dir).expect("mkdir");
    let daemon = dir.join("some one's daemon");
    common::copy("/usr/bin/bindfs".as_ref(), &daemon);
    let mut command = belay();
    command.args(["run", "--background", "--"]).arg(&daemon).arg("-f").arg(scratch.source());
    let output = run(command.arg(&scratch.mount).env("BELAY_STATE_DIR", &scratch.state));
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&scratch.ask(&["stop"]));
    assert_eq!(said, format!("stopped: {} (some one's daemon)\n", scratch.mount.display()));
}

/// In the foreground the same is said, once.
#[test]
fn in_the_foreground_it_is_said_when_the_mount_serves() {
    if !can_hold() {
        return;
    }
    let held = common::Held::start(&["-v"], &["-f"]);
    let line = format!("belay: mounted at {}: daemon is held\n", held.mount.display());
    assert!(held.log().contains(&line), "{}", held.log());
    assert!(!held.log().contains("Some("), "{}", held.log());
    assert!(held.ask(&["crash"]).status.success());
    assert_eq!(
        held.log().matches("mounted at").count(),
        2,
        "once, and once with -v: {}",
        held.log()
    );
}
