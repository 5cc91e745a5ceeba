//! Real mounts, real crashes: the daemon, the supervisor and the keeper are killed, and the mount
//! goes on. These need root, bindfs and a built shim, and are skipped without.

mod common;

use common::{Held, can_hold, run, signal, text};
use rustix::process::Signal;
use std::process::Command;

#[test]
fn the_mount_outlives_its_daemon() {
    if !can_hold() {
        return;
    }
    for daemon_options in [["-f"].as_slice(), &[]] {
        let mut held = Held::start(&[], daemon_options);
        assert_eq!(held.read(), "content\n");
        let output = held.ask(&["crash", "--count", "3", "--every", "1ms"]);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(held.read(), "content\n");
        signal(held.pid("daemon"), Signal::SEGV);
        let status = held.wait_until("recovered", |status| {
            status["crashes"] == 4 && status["state"] == "serving"
        });
        assert_eq!(status["planned"], 3);
        assert_eq!(status["generation"], 4);
        assert_eq!(status["blackout_us"]["count"], 4);
        assert_eq!(held.read(), "content\n");
        let report = held.report(4);
        assert!(report.contains("killed by SIGSEGV"), "{report}");
        assert!(held.ask(&["stop"]).status.success());
        assert_eq!(held.exit_code(), Some(0));
        assert!(!held.is_mounted());
    }
}

#[test]
fn a_restart_is_no_crash_of_the_daemon() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&["--max-crashes", "1"], &["-f"]);
    for _ in 0..3 {
        let output = held.ask(&["restart"]);
        assert!(output.status.success(), "{}", text(&output));
    }
    assert_eq!(held.status()["planned"], 3);
    assert!(held.report(1).contains("`belay restart`"));
}

#[test]
fn supervisor_and_keeper_may_be_killed() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let daemon = held.pid("daemon");
    for round in 0..3 {
        for role in ["supervisor", "keeper"] {
            let old = held.pid(role);
            signal(old, Signal::KILL);
            let status = held.wait_until("replaced", |status| {
                status[role]["pid"].as_i64().is_some_and(|pid| pid > 0 && pid != i64::from(old))
            });
            assert_eq!(status["state"], "serving");
            assert_eq!(held.read(), "content\n", "round {round}, {role}");
        }
    }
    assert_eq!(held.pid("daemon"), daemon, "nothing happened to the daemon");
    assert_eq!(held.status()["takeovers"], 3);
    assert!(held.ask(&["crash"]).status.success());
    assert_eq!(held.read(), "content\n");
    assert!(held.ask(&["stop"]).status.success());
    held.exit_code();
    assert!(!held.is_mounted());
}

#[test]
fn daemon_and_supervisor_may_be_killed_together() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&["--max-crashes", "0"], &["-f"]);
    for round in 0..10 {
        let (daemon, supervisor) = (held.pid("daemon"), held.pid("supervisor"));
        let order = if round % 2 == 0 { [daemon, supervisor] } else { [supervisor, daemon] };
        for pid in order {
            signal(pid, Signal::KILL);
        }
        assert_eq!(held.read(), "content\n", "round {round}");
        held.wait_until("recovered", |status| {
            status["state"] == "serving" && status["daemon"]["pid"] != daemon
        });
    }
}

#[test]
fn an_unmount_or_a_signal_ends_it_cleanly() {
    if !can_hold() {
        return;
    }
    for generation in [0, 1] {
        for how in ["umount", "term", "int", "supervisor"] {
            let mut held = Held::start(&[], &["-f"]);
            if generation > 0 {
                assert!(held.ask(&["crash"]).status.success());
            }
            match how {
                "umount" => {
                    let output = run(Command::new("umount").arg(&held.mount));
                    assert!(output.status.success(), "{}", text(&output));
                }
                "term" => signal(held.pid("keeper"), Signal::TERM),
                "int" => signal(held.pid("keeper"), Signal::INT),
                _ => signal(held.pid("supervisor"), Signal::TERM),
            }
            assert_eq!(held.exit_code(), Some(0), "{how} in generation {generation}");
            assert!(!held.is_mounted(), "{how} in generation {generation}");
        }
    }
}

#[test]
fn a_daemon_that_does_not_stop_is_stopped() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    signal(held.pid("daemon"), Signal::STOP);
    let keeper = held.pid("keeper");
    signal(keeper, Signal::TERM);
    held.wait_for("stopping");
    // Close repetitions count as one wish.
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(keeper, Signal::TERM);
    assert_eq!(held.exit_code(), Some(0));
    assert!(!held.is_mounted());
}

#[test]
fn a_crash_loop_ends_with_errors_instead_of_a_hang() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&["--retry-for", "2s"], &["-f"]);
    // From now on the daemon fails at once, whichever program it is.
    std::fs::rename(&held.source, held.source.with_extension("away")).expect("rename");
    signal(held.pid("daemon"), Signal::KILL);
    assert_eq!(held.exit_code(), Some(1));
    let log = held.log();
    assert!(log.contains("giving up") && log.contains("umount"), "{log}");
    let said = held.read();
    assert!(said.contains("not connected"), "an error, not a hang: {said}");
    let status = held.status();
    assert_eq!(status["state"], "gave-up");
    assert!(held.report(1).contains("interrupted"));
    assert!(run(Command::new("umount").arg(&held.mount)).status.success());
    assert_eq!(held.status(), serde_json::Value::Null, "cleaned up, nothing is shown");
}

#[test]
fn a_mountpoint_is_held_once() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&[], &["-f"]);
    let mut second = held.belay(&["run", "--"]);
    second.arg(&held.daemon).arg("-f").args([&held.source, &held.mount]);
    let output = run(&second);
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output);
    assert!(
        text.contains(&format!("belay process {} holds it already", held.pid("keeper"))),
        "{text}"
    );
    assert!(text.contains("belay stop"), "{text}");
}

#[test]
fn a_missing_mountpoint_is_the_daemons_to_tell() {
    if !can_hold() {
        return;
    }
    let state = tempfile::tempdir().expect("tempdir");
    let mut command = common::belay();
    command.args(["run", "--", "bindfs", "-f", "/etc", "/no/such/mountpoint"]);
    command.env("BELAY_STATE_DIR", state.path());
    let output = run(&command);
    assert!(!output.status.success());
    let text = text(&output);
    assert!(text.contains("/no/such/mountpoint"), "{text}");
    assert!(text.contains("before it had mounted anything"), "{text}");
}

/// A daemon that mounts before it finds that it cannot serve.
#[test]
fn a_daemon_that_fails_behind_its_mount_is_not_started_again() {
    if !can_hold() {
        return;
    }
    let (state, mount) =
        (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("mount"));
    let mut command = common::belay();
    command.args(["run", "--", "bindfs", "-f", "-o", "nosuchopt", "/etc"]).arg(mount.path());
    command.env("BELAY_STATE_DIR", state.path());
    let output = run(&command);
    assert!(!output.status.success());
    let text = text(&output);
    assert!(text.contains("what it says itself is above. Not started again"), "{text}");
}

/// What becomes the daemon is not held: it is said so, and nothing is started without being held.
#[test]
fn programs_that_become_the_daemon_are_refused() {
    if !can_hold() {
        return;
    }
    let state = tempfile::tempdir().expect("tempdir");
    let place = tempfile::tempdir().expect("tempdir");
    let place = place.path().to_str().expect("a name in UTF-8");
    // It says itself what it cannot do.
    let mut command = common::belay();
    command.args(["run", "--", "setarch", "no-such-daemon", place]);
    command.env("BELAY_STATE_DIR", state.path());
    let said = text(&run(&command));
    assert!(said.contains("setarch") && !said.contains("it becomes"), "{said}");
    let start = |wrapper: &[&str]| {
        let mut command = common::belay();
        command.args(["run", "--"]).args(wrapper).args(["bindfs", "-f", "/etc", place]);
        command.env("BELAY_STATE_DIR", state.path());
        let output = run(&command);
        assert_eq!(output.status.code(), Some(1), "{wrapper:?}: {}", text(&output));
        text(&output)
    };
    // Those that are known are not even started.
    for wrapper in [&["nice"][..], &["env", "A=B"], &["env", "-i"], &["taskset", "1"]] {
        let text = start(wrapper);
        let call = format!("`{} belay run -- bindfs -f /etc {place}`", wrapper.join(" "));
        assert!(text.contains("starts another program, which would not be held"), "{text}");
        assert!(text.contains(&call), "{call}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    // Of the others it is said once what they do, and once what to write instead.
    for wrapper in [&["setarch", "-R"][..], &["prlimit", "--nofile=20000"]] {
        let text = start(wrapper);
        let call = format!("start belay by it: {} belay run -- bindfs", wrapper.join(" "));
        for part in ["it becomes bindfs, which would not be held", "nothing is mounted", &call] {
            assert!(text.contains(part), "{wrapper:?}: {part}: {text}");
        }
        assert!(!text.contains("it says nothing itself"), "{text}");
    }
}

#[test]
fn a_hanging_daemon_is_restarted() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&["--hang-timeout", "1s"], &["-f"]);
    signal(held.pid("daemon"), Signal::STOP);
    // Answered by the successor, not by the daemon that sleeps.
    assert_eq!(held.read(), "content\n");
    let report = held.report(1);
    assert!(report.contains("in flight for too long"), "{report}");
}

#[test]
fn a_hanging_supervisor_is_replaced() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&["--hang-timeout", "1s"], &["-f"]);
    let (supervisor, daemon) = (held.pid("supervisor"), held.pid("daemon"));
    signal(supervisor, Signal::STOP);
    signal(daemon, Signal::KILL);
    assert_eq!(held.read(), "content\n");
    assert_ne!((held.pid("supervisor"), held.pid("daemon")), (supervisor, daemon));
}

/// No timeout is no time of none.
#[test]
fn a_hang_timeout_of_zero_means_never() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&["--hang-timeout", "0"], &["-f"]);
    assert_eq!(held.read(), "content\n");
    let output = held.ask(&["crash", "--signal", "STOP"]);
    assert!(text(&output).contains("started without --hang-timeout"), "{}", text(&output));
}

#[test]
fn a_daemon_that_uses_too_much_memory_is_restarted() {
    if !can_hold() {
        return;
    }
    // Every daemon is larger than this.
    let held = Held::start(&["--memory-limit", "64K"], &["-f"]);
    held.wait_until("restarted", |status| status["crashes"].as_u64().is_some_and(|n| n > 0));
    assert_eq!(held.read(), "content\n");
    assert!(held.report(1).contains("its memory"), "{}", held.report(1));
}

/// A stop is asked for like any other death, but nothing dies of it: the hang is noticed all the
/// same.
#[test]
fn a_daemon_that_was_stopped_on_request_is_restarted() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&["--hang-timeout", "1s"], &["-f"]);
    let file = std::fs::File::open(held.mount.join("file")).expect("open");
    for number in 1..=3 {
        let output = held.ask(&["crash", "--signal", "STOP"]);
        assert!(output.status.success(), "{}", text(&output));
        let report = held.report(number);
        assert!(report.contains("`belay crash`: SIGSTOP, then a hang"), "{report}");
        assert!(file.metadata().is_ok(), "no request is to blame");
    }
    assert_eq!(held.status()["planned"], 3);
    assert_eq!(held.status()["requests"]["failed"], 0);
    for signal in ["CONT", "TSTP", "WINCH"] {
        let output = held.ask(&["crash", "--signal", signal]);
        assert!(text(&output).contains("ends no daemon"), "{}", text(&output));
    }
}

/// Of a signal that was asked for, and has ended nobody yet, no limit is switched off.
#[test]
fn a_daemon_that_hangs_after_a_signal_on_request_is_restarted() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&["--hang-timeout", "1s"], &["-f"]);
    let file = std::fs::File::open(held.mount.join("file")).expect("open");
    let daemon = held.pid("daemon");
    signal(daemon, Signal::STOP);
    let mut crash = held.belay(&["crash", "--signal", "USR1"]);
    let mut crash = crash.arg(&held.mount).spawn().expect("crash");
    let pending = || {
        let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).expect("status");
        let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("signals");
        u64::from_str_radix(mask.trim(), 16).expect("a mask") & 1 << 9 != 0
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !pending() {
        assert!(std::time::Instant::now() < end, "no signal was sent");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(file.metadata().is_ok());
    assert!(crash.wait().expect("wait").success());
}

#[test]
fn a_stop_that_nothing_would_end_is_refused() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&[], &["-f"]);
    let output = held.ask(&["crash", "--signal", "STOP"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("started without --hang-timeout"), "{}", text(&output));
    assert_eq!(held.read(), "content\n");
}
