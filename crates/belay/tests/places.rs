//! One place, several `belay run`: after each other, and at once.

mod common;

use common::{Held, belay, can_hold, run, text};
use std::process::{Command, Output, Stdio};

/// `belay run` on the same place as `held`.
fn again(held: &Held) -> Command {
    let mut command = belay();
    command.args(["run", "--"]).arg(&held.daemon).arg("-f").args([&held.source, &held.mount]);
    command.env("BELAY_STATE_DIR", &held.state).stdin(Stdio::null());
    command
}

/// What a unmounted place's belay has still to do is waited for by the next one, however long that takes it.
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
