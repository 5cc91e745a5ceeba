//! S39: how an ordinary user's mounts begin and end, and what is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use belay_testbed::Signal;
use belay_testbed::process::{kill, run};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use crate::common::{LIMIT, call, until};
use crate::custom::Custom;
use crate::unprivileged::words;
use crate::user::{User, text};

/// S39, S34: every way to end leaves nothing, in every generation.
#[test]
fn s39_all_ends() {
    for crashes in 0..2 {
        for end in ["stop", "fusermount3 -u", "fusermount3 -u -z", "daemon", "keeper", "ctrl-c"] {
            let mut user = User::low_level(&[]);
            for _ in 0..crashes {
                user.crash();
            }
            let mut code = Some(0);
            match end {
                "stop" => drop(user.says(&["stop"])),
                "daemon" => {
                    user.signal("daemon", Signal::TERM);
                    code = Some(1); // what passthrough_ll says after a signal, also without belay
                }
                "keeper" => drop(user.signal("keeper", Signal::TERM)),
                "ctrl-c" => {
                    let mut kill = Command::new("kill");
                    kill.args(["-INT", "--", &format!("-{}", user.group())]);
                    assert!(run(kill, LIMIT).unwrap().status.success());
                    code = None; // of belay's wish and the daemon's own end, either may come first
                }
                tool => user.tool(&tool.split(' ').collect::<Vec<_>>()),
            }
            let status = user.end();
            assert!(code.is_none() || status.code() == code, "{end}: {status}\n{}", user.log());
            user.left_nothing();
        }
    }
}

/// S39, S32, S33: supervisor and keeper die, then the daemon; and all at one instant.
#[test]
fn s39_belays_own_deaths() {
    let mut user = User::low_level(&[]);
    for role in ["supervisor", "keeper", "supervisor"] {
        let pid = user.signal(role, Signal::KILL);
        user.wait_for("replacement", |s| s[role]["pid"] != pid && s["state"] == "serving");
        user.crash();
    }
    let (supervisor, daemon) = (user.pid("supervisor"), user.pid("daemon"));
    kill(supervisor, Signal::KILL).unwrap();
    kill(daemon, Signal::KILL).unwrap();
    let path = user.at("file");
    assert_eq!(user.does(move || fs::read_to_string(path).unwrap()), "text");
    user.says(&["stop"]);
    user.left_nothing();
    // Stopped by hand, so that the replaced keeper is not looked at.
    assert!(user.end().code().is_some() || !user.is_mounted());
}

/// S39: fusermount itself stays for `auto_unmount`, survives the daemon and goes in the end.
#[test]
fn s39_auto_unmount() {
    for crashes in [0, 3] {
        let mut user = User::low_level(&["-o", "auto_unmount"]);
        let helpers = || user.processes_with("fusermount");
        let first = helpers();
        assert_eq!(first.len(), 1, "{first:?}");
        for _ in 0..crashes {
            user.crash();
        }
        assert_eq!(helpers(), first, "the same one, and no other");
        // S30: it has nothing of belay's but its end of the mailbox.
        let process = format!("/proc/{}", first[0].0);
        let variables = fs::read_to_string(format!("{process}/environ")).unwrap();
        assert!(
            !variables.contains("BELAY_SHIM") && !variables.contains("LD_PRELOAD"),
            "{variables}"
        );
        for entry in fs::read_dir(format!("{process}/fd")).unwrap().flatten() {
            let target = fs::read_link(entry.path()).unwrap().display().to_string();
            assert!(!target.contains("memfd") && !target.contains("/dev/fuse"), "{target}");
        }
        let path = user.at("file");
        assert_eq!(user.does(move || fs::read_to_string(path).unwrap()), "text");
        user.says(&["stop"]);
        assert_eq!(user.end().code(), Some(0), "{}", user.log());
        user.left_nothing();
    }
}

/// S39: it hears of it when belay and the daemon are gone. What it does then is its own affair: that of libfuse 3.14
/// unmounts only what root may look at.
#[test]
fn s39_auto_unmount_when_all_are_dead() {
    let user = User::low_level(&["-o", "auto_unmount"]);
    user.crash();
    // Stopped first, or one of them replaces another. Children before their parents: the kernel sends what is stopped
    // SIGHUP and SIGCONT when its parent dies, and the daemon would end by itself.
    let all = ["daemon", "supervisor", "keeper"].map(|role| user.pid(role));
    for signal in [Signal::STOP, Signal::KILL] {
        all.iter().for_each(|pid| kill(*pid, signal).unwrap());
    }
    assert!(until(|| user.processes_with("fusermount").is_empty()), "{}", user.log());
    user.left_no_process();
}

/// S39: `auto_unmount` asks fusermount for root as well.
#[test]
fn s39_auto_unmount_for_root() {
    let mut mount = Custom::low_level(&[], &["-o", "auto_unmount"]);
    for _ in 0..2 {
        mount.crash_and_recover();
        assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "text");
    }
    mount.signal("keeper", Signal::TERM);
    assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
    assert!(!mount.is_mounted());
}

/// S39, S31: killed from the very first start on, also while fusermount works.
#[test]
fn s39_killed_at_the_start() {
    for round in 0..12 {
        let mut user = User::new();
        let program = user.program(&crate::custom::low_level_program());
        let source = format!("source={}", user.behind.display());
        let mut line = words(&["-f", "-o", &source, "MNT"], &user);
        line.insert(0, program.into());
        user.start(&["--max-crashes", "0"], &line);
        let pid = user.pid("daemon");
        if round % 2 == 0 {
            assert!(until(|| user.is_mounted()), "{}", user.log());
        } else {
            std::thread::sleep(Duration::from_micros(300 * round));
        }
        let _ = kill(pid, Signal::KILL);
        if round % 2 == 0 || user.status().is_some_and(|s| s["state"] == "serving") {
            let path = user.at("file");
            assert_eq!(
                user.does(move || fs::read_to_string(path).unwrap()),
                "text",
                "round {round}"
            );
            user.says(&["stop"]);
        } else {
            user.wait_for_end_or_service();
        }
    }
}

/// S90: no process and no thread is to be had when a mount ends: it does not stay behind for that.
#[test]
fn s90_the_end_of_a_users_mount_waits_for_processes() {
    let own = getrlimit(Resource::Nproc);
    for how in [&["stop"][..], &["stop", "--lazy"], &["stop", "--force"], &[]] {
        let mut user = User::low_level(&[]);
        user.crash();
        let belay = ["supervisor", "keeper"].map(|role| user.pid(role));
        // As this user, whose processes they are.
        let limit = |most| {
            let limits = Rlimit { current: most, ..own };
            user.does(move || {
                for pid in belay {
                    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap());
                    prlimit(pid, Resource::Nproc, limits).unwrap();
                }
            });
        };
        limit(Some(0));
        let mut asked = None;
        if how.is_empty() {
            user.signal("keeper", Signal::TERM);
        } else {
            let mut command = user.command(user.home.join("bin/belay"));
            command.args(how).arg(&user.mountpoint);
            asked = Some(call(move || run(command, LIMIT).unwrap()));
        }
        let waits = || user.log().contains("waiting until it can be");
        assert!(until(waits), "{how:?}: {}", user.log());
        assert!(user.is_mounted(), "{how:?}: {}", user.log());
        limit(own.current);
        if let Some(asked) = asked {
            let output = asked.result();
            assert!(output.status.success(), "{how:?}: {}\n{}", text(&output), user.log());
        }
        assert_eq!(user.end().code(), Some(0), "{how:?}: {}", user.log());
        user.left_nothing();
    }
}

/// S39: what cannot be done is said before the start.
#[test]
fn s39_refusals() {
    let user = User::new();
    let belay = user.home.join("bin/belay");
    let bare = user.home.join("bin").display().to_string();
    let check = |mut command: Command, parts: &[&str]| {
        command.args(["run", "--", "/usr/bin/bindfs", "back", "mnt"]);
        let output = run(command, LIMIT).unwrap();
        let said = text(&output);
        assert!(!output.status.success(), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    };
    check(user.command_with(&[], &belay, &bare), &["fusermount3", "install the package fuse3"]);
    let path = std::env::var("PATH").unwrap();
    check(user.command_with(&["--no-new-privs"], &belay, &path), &["no_new_privs"]);
    let bounded = ["--bounding-set", "-sys_admin"];
    check(user.command_with(&bounded, &belay, &path), &["CAP_SYS_ADMIN", "--cap-add"]);
    user.program(Path::new("/usr/bin/fusermount3"));
    check(user.command_with(&[], &belay, &bare), &["not set-uid root", "chmod u+s"]);
    assert!(!user.home.join("run/belay").exists());
    user.left_no_process();
}

/// S39, S35: what fusermount refuses is said in its own words, once, and nothing is left.
#[test]
fn s39_fusermounts_own_refusals() {
    let mut user = User::new();
    fs::set_permissions(&user.mountpoint, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&user.mountpoint, Some(0), Some(0)).unwrap();
    let line = words(&["bindfs", "--no-allow-other", "-f", "BACK", "MNT"], &user);
    user.start(&[], &line);
    assert!(!user.end().success());
    let log = user.log();
    assert_eq!(log.matches("no write access to mountpoint").count(), 1, "{log}");
    assert!(log.contains("Not started again"), "{log}");
    user.left_nothing();
}

/// S39: what `belay doctor` tells an ordinary user.
#[test]
fn s39_doctor() {
    let user = User::new();
    let mut command = user.command(user.home.join("bin/belay"));
    command.args(["doctor", "--", "bindfs", "--no-allow-other", "back", "mnt"]);
    let output = run(command, LIMIT).unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for part in ["fusermount3 mounts for this user", "allow_other", "connections:"] {
        assert!(said.contains(part), "{said}");
    }
    // A daemon that cannot mount is no daemon that belay can work with.
    for daemon in [&["bindfs", "back", "mnt"][..], &["sshfs", "-o", "ro,allow_other", "a:", "mnt"]]
    {
        let mut command = user.command(user.home.join("bin/belay"));
        command.args(["doctor", "--"]).args(daemon);
        let said = text(&run(command, LIMIT).unwrap());
        let allowed = said.contains("/etc/fuse.conf allows");
        assert_ne!(allowed, said.contains("MISSING  other users: this daemon asks"), "{said}");
    }
    let path = user.home.join("bin").display().to_string();
    let mut command = user.command_with(&[], user.home.join("bin/belay"), &path);
    command.arg("doctor");
    let output = run(command, LIMIT).unwrap();
    assert!(!output.status.success() && text(&output).contains("MISSING  right to mount"));
}
