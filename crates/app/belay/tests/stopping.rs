//! `belay stop`: what is in use goes on unless that is not wanted.

mod common;

use common::{Held, can_hold, run, text};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Tells that it is refused, with all of `parts`, and that the mount goes on.
fn is_refused(held: &Held, parts: &[&str]) {
    let output = held.ask(&["stop"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts.iter().chain(&["it is in use, and goes on", "--lazy", "--force"]) {
        assert!(said.contains(part), "{part:?} is missing in: {said}");
    }
    assert_eq!(held.status()["state"], "serving");
    assert_eq!(held.read(), "content\n");
}

/// A process, ended by the test.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn s81_a_busy_mount_is_not_stopped_and_its_users_are_named() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let me = format!("process {} (", std::process::id());
    let file = File::open(held.mount.join("file")).expect("open");
    let shown = format!("open file {}/file", held.mount.display());
    is_refused(&held, &[&me, &shown]);
    drop(file);

    // Nobody but the command itself, to which it was left open.
    let (stop, mut shell) = (held.belay(&["stop"]), Command::new("sh"));
    shell.args(["-c", r#"exec 9<"$1"; shift; exec "$@""#, "sh"]).arg(held.mount.join("file"));
    shell.arg(stop.get_program()).args(stop.get_args()).arg(&held.mount);
    shell.envs(stop.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let said = text(&run(&shell));
    assert!(said.contains("file; that is this command, which was started with it"), "{said}");
    assert_eq!(held.status()["state"], "serving");

    let mut sleep = Command::new("sleep");
    let child = Other(sleep.arg("600").current_dir(&held.mount).spawn().expect("sleep"));
    let shown =
        format!("process {} (sleep): working directory {}", child.0.id(), held.mount.display());
    is_refused(&held, &[&shown]);
    drop(child);

    let program = held.mount.join("program");
    common::copy("/usr/bin/sleep".as_ref(), &program);
    let child = Other(Command::new(&program).arg("600").spawn().expect("program"));
    let id = format!("process {} (program): program {}", child.0.id(), program.display());
    is_refused(&held, &[&id]);
    drop(child);

    std::fs::create_dir(held.mount.join("below")).expect("mkdir");
    let below = held.mount.join("below");
    assert!(run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&below)).status.success());
    is_refused(&held, &[&format!("the mount {}", below.display())]);
    assert!(run(Command::new("umount").arg(&below)).status.success());

    assert!(held.ask(&["stop"]).status.success());
    assert_eq!(held.exit_code(), Some(0));
    assert!(!held.is_mounted());
}

/// Who looks for the users must not hang itself: of a daemon that is stopped, nothing can be had.
#[test]
fn users_are_named_without_touching_the_mount() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&[], &["-f"]);
    let mut sleep = Command::new("sleep");
    let child = Other(sleep.arg("600").current_dir(&held.mount).spawn().expect("sleep"));
    let daemon = held.pid("daemon");
    common::signal(daemon, rustix::process::Signal::STOP);
    let output = held.ask(&["stop"]);
    common::signal(daemon, rustix::process::Signal::CONT);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("process {} (sleep)", child.0.id())), "{said}");
}

#[test]
fn s81_a_busy_mount_is_stopped_by_force() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let file = File::open(held.mount.join("file")).expect("open");
    let output = held.ask(&["stop", "--force"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(held.exit_code(), Some(0));
    assert!(!held.is_mounted());
    assert!(file.metadata().is_err());
}

#[test]
fn s81_a_busy_mount_is_served_to_the_end_after_a_lazy_stop() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let file = File::options().read(true).write(true).open(held.mount.join("file")).expect("open");
    let output = held.ask(&["stop", "--lazy"]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
    assert!(!held.is_mounted());
    common::signal(held.pid("daemon"), rustix::process::Signal::KILL);
    file.set_len(3).expect("served");
    assert_eq!(std::fs::read_to_string(held.source.join("file")).expect("read"), "con");
    let again = held.ask(&["stop"]);
    assert_eq!(again.status.code(), Some(1), "{}", text(&again));
    assert!(text(&again).contains("it is unmounted, and served on"), "{}", text(&again));
    drop(file);
    assert_eq!(held.exit_code(), Some(0), "{}", held.log());
}

/// Tells that it is unmounted and goes on for others, with all of `parts`.
fn is_served_on(held: &Held, parts: &[&str]) {
    let output = held.ask(&["stop"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts.iter().chain(&["it is unmounted, and served on", "--force"]) {
        assert!(said.contains(part), "{part:?} is missing in: {said}");
    }
    assert!(!held.is_mounted());
    assert_eq!(held.status()["state"], "serving");
}

#[test]
fn s81_what_is_mounted_elsewhere_as_well_is_served_on() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let place = tempfile::tempdir().expect("tempdir");
    let bound = Bound::new(&held.mount, place.path());
    let other = format!("the mount {}", bound.0.display());
    is_served_on(&held, &[&other]);
    assert!(held.ask(&["crash"]).status.success(), "{}", held.log());
    assert_eq!(std::fs::read_to_string(bound.0.join("file")).expect("served"), "content\n");
    // Who asks once more is told the same.
    is_served_on(&held, &[&other]);
    drop(bound);
    assert_eq!(held.exit_code(), Some(0), "{}", held.log());
}

/// A bind mount, which ends with it.
struct Bound(std::path::PathBuf);

impl Bound {
    fn new(from: &Path, to: &Path) -> Self {
        let to = to.canonicalize().expect("canonical");
        assert!(run(Command::new("mount").arg("--bind").arg(from).arg(&to)).status.success());
        Self(to)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(&self.0));
    }
}

/// A process in a mount namespace of its own that nothing of the host's reaches, as in a container.
/// It says when it is there.
fn contained(held: &Held, script: &str) -> Other {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-c", script, "-"]);
    command.arg(held.mount.join("file")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Other(command.spawn().expect("unshare"));
    let mut word = [0; 6];
    child.0.stdout.as_mut().expect("a pipe").read_exact(&mut word).expect("it is there");
    assert_eq!(&word, b"there\n");
    child
}

#[test]
fn s81_users_in_another_mount_namespace_are_named() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let child = contained(&held, "exec 9>>$1; echo there; read; echo more >&9 && echo done; read");
    let shown = format!("process {} (bash): open file {}/file", child.0.id(), held.mount.display());
    is_refused(&held, &[&shown]);
    drop(child);
    assert!(held.ask(&["stop"]).status.success());
    assert_eq!(held.exit_code(), Some(0));
}

#[test]
fn s81_a_mount_in_another_mount_namespace_is_served_on() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let mut child = contained(&held, "echo there; read; cat $1; read");
    is_served_on(&held, &[&format!("the mount namespace of process {} (bash)", child.0.id())]);
    writeln!(child.0.stdin.as_mut().expect("a pipe")).expect("asked");
    let mut content = [0; 8];
    child.0.stdout.as_mut().expect("a pipe").read_exact(&mut content).expect("served");
    assert_eq!(&content, b"content\n");
    drop(child);
    assert_eq!(held.exit_code(), Some(0), "{}", held.log());
}

/// Successors have mount namespaces of their own: the kernel does not count what they use.
#[test]
fn s81_a_mount_that_a_successor_of_another_works_on_is_not_stopped() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let mut upper = held.start_on_top();
    for _ in 0..2 {
        is_refused(&held, &[&format!("process {} (daemon): ", upper.pid("daemon"))]);
        assert!(upper.ask(&["crash"]).status.success(), "{}", upper.log());
        assert_eq!(upper.read(), "content\n");
    }
    assert!(upper.ask(&["stop"]).status.success());
    assert_eq!(upper.exit_code(), Some(0));
    assert!(held.ask(&["stop"]).status.success());
    assert_eq!(held.exit_code(), Some(0));
}

/// Of a daemon that a stop finds dead, those who wait get their answers first.
#[test]
fn a_stop_in_a_blackout_waits_for_the_recovery() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    for round in 0..5 {
        let mut cat = Command::new("cat");
        cat.arg(held.mount.join("file")).stdout(Stdio::piped());
        let (supervisor, daemon) = (held.pid("supervisor"), held.pid("daemon"));
        common::signal(supervisor, rustix::process::Signal::STOP);
        common::signal(daemon, rustix::process::Signal::KILL);
        let cat = cat.spawn().expect("cat");
        let mut stop = held.belay(&["stop"]);
        let stop = stop.arg(&held.mount).stderr(Stdio::piped()).spawn().expect("stop");
        common::signal(supervisor, rustix::process::Signal::CONT);
        let output = cat.wait_with_output().expect("cat");
        assert_eq!(text(&output), "content\n", "round {round}");
        let stopped = stop.wait_with_output().expect("stop");
        if stopped.status.success() {
            assert_eq!(held.exit_code(), Some(0));
            return;
        }
        // It found the reader there.
        assert!(text(&stopped).contains("in use"), "{}", text(&stopped));
    }
    assert!(held.ask(&["stop"]).status.success());
}
