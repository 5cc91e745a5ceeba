//! S29, S35 to S37: starts of all kinds.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use belay_testbed::Signal;
use belay_testbed::process::{kill, run, wait_for_exit};

use crate::common::{LIMIT, call, until};
use crate::custom::{Custom, Place, low_level_program};
use crate::journal::compile;

fn in_background(place: &Place<'_>) -> Vec<OsString> {
    let source = format!("source={},cache=never,timeout=0", place.behind.display());
    vec![low_level_program().into(), "-o".into(), source.into(), place.mountpoint.into()]
}

/// passthrough_ll under a name of its own, so that it can be taken away.
fn copied(place: &Place<'_>) -> Vec<OsString> {
    let program = place.dir.join("daemon");
    fs::copy(low_level_program(), &program).unwrap();
    let mut words = in_background(place);
    words[0] = program.into();
    words.insert(1, "-f".into());
    words
}

/// S29: daemons that go into the background, of libfuse 3 and libfuse 2.
#[test]
fn s29_daemons_in_the_background() {
    let bindfs = |place: &Place<'_>| -> Vec<OsString> {
        vec!["bindfs".into(), place.behind.into(), place.mountpoint.into()]
    };
    for mut mount in [Custom::start(&[], in_background), Custom::start(&[], bindfs)] {
        mount.serves();
        let file = fs::File::open(mount.at("file")).unwrap();
        for _ in 0..3 {
            mount.crash_and_recover();
            assert_eq!(crate::common::content(&file), "text");
        }
        let pid = mount.signal("daemon", Signal::SEGV);
        assert_eq!(crate::common::content(&file), "text");
        mount.wait_for("successor", |status| {
            status["state"] == "serving" && status["daemon"]["pid"] != pid
        });
        drop(file);
        mount.tool(&["umount"]);
        assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
    }
}

/// S35: a daemon that fails at its first start: its own words, its own exit status, no second start.
#[test]
fn s35_a_daemon_that_fails_at_its_start() {
    let mut mount = Custom::start(&[], |place| {
        let mut words = copied(place);
        words.extend(["-o".into(), "no_such_option".into()]);
        words
    });
    assert!(!mount.end().success());
    let log = mount.log();
    assert_eq!(log.matches("unknown option").count(), 1, "started once: {log}");
    assert!(
        log.contains("no_such_option") && log.contains("before it had mounted anything"),
        "{log}"
    );
    assert!(!mount.is_mounted());
}

/// S35: no such program, and a program that is no FUSE daemon.
#[test]
fn s35_no_daemon_at_all() {
    for (words, part) in [
        (vec!["/no/such/daemon".into()], "/no/such/daemon"),
        (vec![OsString::from("true")], "did not mount anything"),
    ] {
        let mut mount = Custom::start(&[], |_| words);
        assert!(!mount.end().success(), "{}", mount.log());
        assert!(mount.log().contains(part), "{}", mount.log());
    }
}

/// S36: a crash loop ends; whoever waits gets an error then.
#[test]
fn s36_a_crash_loop_is_given_up() {
    let mut mount = Custom::start(&["--retry-for", "2s"], copied);
    mount.serves();
    let open = fs::File::open(mount.at("file")).unwrap();
    // Its source is gone, so it does not start.
    fs::rename(&mount.behind, mount.behind.with_extension("away")).unwrap();
    mount.signal("daemon", Signal::KILL);
    let path = mount.at("file");
    let callers =
        [call(move || fs::read_to_string(path).map(drop)), call(move || open.metadata().map(drop))];
    assert_eq!(mount.end().code(), Some(1));
    for caller in callers {
        assert!(caller.result().is_err());
    }
    // The supervisor says it last, and may be behind the end of the keeper.
    assert!(until(|| mount.log().contains("giving up")), "{}", mount.log());
}

/// May not be run by anybody, or may again.
fn allow(program: &Path, mode: u32) {
    fs::set_permissions(program, fs::Permissions::from_mode(mode)).unwrap();
}

/// S37: a program that cannot be started again is named; if it can be later, the mount goes on.
#[test]
fn s37_a_missing_program() {
    let mount = Custom::start(&["--max-crashes", "0"], copied);
    mount.serves();
    let program = mount.mountpoint.with_file_name("daemon");
    allow(&program, 0o644);
    mount.signal("daemon", Signal::KILL);
    let path = mount.at("file");
    let caller = call(move || fs::read_to_string(path));
    let name = program.display().to_string();
    assert!(
        until(|| mount.log().contains(&format!("{name} cannot be started"))),
        "{}",
        mount.log()
    );
    assert!(!caller.is_done());
    allow(&program, 0o755);
    assert_eq!(caller.result().unwrap(), "text");
}

/// S37: and given up if it stays so.
#[test]
fn s37_a_program_that_stays_away() {
    let mut mount = Custom::start(&["--retry-for", "1s"], copied);
    mount.serves();
    allow(&mount.mountpoint.with_file_name("daemon"), 0o644);
    mount.signal("daemon", Signal::KILL);
    assert_eq!(mount.end().code(), Some(1));
    assert!(mount.log().contains("could not be started again within"), "{}", mount.log());
    assert!(fs::metadata(mount.at("file")).is_err());
}

/// S31: killed again and again from its very first start on, before INIT is answered as well.
#[test]
fn s31_killed_before_it_has_said_anything() {
    for round in 0..6 {
        let mount = Custom::start(&["--max-crashes", "0"], copied);
        let first = || mount.status().and_then(|status| status["daemon"]["pid"].as_u64());
        assert!(until(|| first().is_some()));
        let pid = u32::try_from(first().unwrap()).unwrap();
        if round > 0 {
            // Once it has mounted; INIT is answered a moment later, or a moment before.
            assert!(until(|| mount.is_mounted()));
        }
        let _ = kill(pid, Signal::KILL);
        if mount.is_mounted() {
            assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "text", "round {round}");
        }
    }
}

/// A daemon of this project's tests with several readers.
fn readers(arguments: &[&str], more: &[&str]) -> Custom {
    Custom::start(arguments, |place| {
        let program = place.dir.join("two_readers");
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/two_readers.c");
        let mut build = Command::new("cc");
        build.args(["-O1", "-Wall", "-pthread", "-o"]).arg(&program).arg(here);
        let output = run(build, LIMIT).unwrap();
        assert!(output.status.success(), "{output:?}");
        let words = [program.into(), place.dir.join("lives").into(), place.mountpoint.into()];
        words.into_iter().chain(more.iter().map(OsString::from)).collect()
    })
}

/// S31: libfuse starts a second thread while the first still has INIT in hand. What that thread took
/// from the device then would be missing when the first collects what was in flight at the crash.
#[test]
fn s31_a_second_thread_waits_for_init() {
    let mut custom = readers(&[], &[]);
    custom.wait_for("service", |status| status["state"] == "serving");
    let mountpoint = custom.mountpoint.clone();
    let caller = call(move || std::fs::metadata(mountpoint).map(drop));
    custom.wait_for("a request", |status| status["requests"]["in_flight"] == 1);
    custom.signal("daemon", Signal::KILL);
    caller.result().unwrap();
    // What the daemon says comes through the supervisor, which may be behind its answers.
    assert!(until(|| custom.log().contains("it waits for INIT")), "{}", custom.log());
    assert!(!custom.log().contains("it reads before INIT"), "{}", custom.log());
    custom.tool(&["umount"]);
    custom.end();
}

/// S31: what a thread takes that has slept in its read since before INIT was answered is on record as well.
#[test]
fn s31_a_thread_that_reads_before_init_is_answered() {
    for arguments in [&[][..], &["--no-resend"]] {
        let mut custom = readers(arguments, &["early"]);
        custom.wait_for("service", |status| status["state"] == "serving");
        assert!(until(|| custom.log().contains("it reads before INIT")), "{}", custom.log());
        let mountpoint = custom.mountpoint.clone();
        let caller = call(move || std::fs::metadata(mountpoint).map(drop));
        custom.wait_for("a request", |status| status["requests"]["in_flight"] == 1);
        custom.signal("daemon", Signal::KILL);
        caller.result().unwrap();
        custom.tool(&["umount"]);
        custom.end();
        // What is no message is no fault: the kernel has nothing of it, as without belay.
        assert!(!custom.log().contains("of nothing is taken"), "{}", custom.log());
    }
}

/// S31: threads that begin to read at the same instant, in a process that has gone into the background: one of them
/// takes the lease, and one is given INIT.
#[test]
fn s31_of_threads_that_read_at_once_one_gets_init() {
    let mut custom = readers(&[], &["at-once"]);
    for _ in 0..40 {
        custom.wait_for("service", |status| status["state"] == "serving");
        custom.crash_and_recover();
        std::fs::metadata(&custom.mountpoint).unwrap();
    }
    let status = custom.status().unwrap();
    assert_eq!(status["degraded"], false, "{status}");
    assert!(!custom.log().contains("INIT came twice"), "{}", custom.log());
    assert_eq!(status["generation"], 40, "{}", custom.log());
    custom.tool(&["umount"]);
    custom.end();
}

/// The processes that `pid`'s main thread has started, or got.
fn children_of(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// Kills the daemon, and all of belay as soon as there is a successor.
fn kill_belay_at_a_start(mount: &Custom) {
    let belay = ["supervisor", "keeper"].map(|role| mount.pid(role));
    let daemon = mount.pid("daemon");
    let before = [children_of(belay[0]), children_of(daemon)].concat();
    kill(daemon, Signal::KILL).unwrap();
    assert!(until(|| children_of(belay[0]).iter().any(|pid| !before.contains(pid))));
    for signal in [Signal::STOP, Signal::KILL] {
        for pid in belay {
            kill(pid, signal).unwrap();
        }
    }
}

/// S33: belay is killed while a successor starts, which waits for nobody then.
#[test]
fn s33_belay_is_killed_at_a_successors_start() {
    for round in 0..6 {
        let mut mount = Custom::low_level(&[], &[]);
        mount.serves();
        kill_belay_at_a_start(&mount);
        mount.end();
        let file = mount.at("absent");
        let caller = call(move || fs::metadata(file).map(drop));
        assert_eq!(caller.result().unwrap_err().kind(), ErrorKind::NotFound, "round {round}");
        let status = mount.wait_for("word", |status| status["state"] == "unheld");
        let daemon = u32::try_from(status["daemon"]["pid"].as_u64().unwrap()).unwrap();
        mount.ask(&["stop"]);
        assert!(wait_for_exit(daemon, LIMIT).unwrap());
    }
}

/// S33, L11: daemons whose belays are dead do not keep each other's mounts, though each has a copy of the other's in its mount
/// namespace.
#[test]
fn s33_daemons_without_their_belays_end_with_their_mounts() {
    let mut mounts = [(); 2].map(|()| Custom::low_level(&[], &[]));
    mounts.iter().for_each(Custom::crash_and_recover);
    for mount in &mut mounts {
        // In this order: a stopped process that its group's last parent leaves has the kernel hang up on all of the group.
        let belay = ["supervisor", "keeper"].map(|role| mount.pid(role));
        for signal in [Signal::STOP, Signal::KILL] {
            belay.iter().for_each(|pid| kill(*pid, signal).unwrap());
        }
        mount.end();
        mount.wait_for("word", |status| status["state"] == "unheld");
    }
    let daemons = mounts.each_ref().map(|mount| mount.pid("daemon"));
    for (mount, daemon) in mounts.iter().zip(daemons) {
        mount.ask(&["stop"]);
        assert!(wait_for_exit(daemon, LIMIT).unwrap(), "{}", mount.log());
    }
}

/// S33, S38: a successor that must wait for what the dead daemon left behind ends with its mount all the same.
#[test]
fn s33_belay_is_killed_with_children_left() {
    let mut mount = readers(&[], &["child"]);
    mount.wait_for("service", |status| status["state"] == "serving");
    kill_belay_at_a_start(&mount);
    mount.end();
    let status = mount
        .wait_for("word", |status| status["state"] == "unheld" && status["daemon"]["pid"].is_u64());
    let daemon = u32::try_from(status["daemon"]["pid"].as_u64().unwrap()).unwrap();
    mount.ask(&["stop"]);
    assert!(wait_for_exit(daemon, LIMIT).unwrap(), "it outlives its mount");
}

/// S29: what the daemon says is passed on, also if it tells of every request, and soon.
#[test]
fn s29_talkative_daemons_are_heard() {
    const TIMES: usize = 3000;
    let mut mount = Custom::low_level(&[], &["-d"]);
    let lookups = |mount: &Custom| mount.log().matches("opcode: LOOKUP").count();
    let before = lookups(&mount);
    for n in 0..TIMES {
        assert!(fs::metadata(mount.at(&format!("absent-{n}"))).is_err());
    }
    assert!(until(|| lookups(&mount) >= before + TIMES), "{} of {TIMES}", lookups(&mount) - before);
    mount.crash_and_recover();
    let at = mount.log().len();
    assert!(fs::metadata(mount.at("absent")).is_err());
    assert!(until(|| mount.log()[at..].contains("opcode: LOOKUP")), "it is not heard any more");
    mount.stop();
    assert!(mount.end().success());
}

/// A daemon that does nothing with so many words of so many letters.
fn wordy(count: usize, letter: &str, length: usize) -> impl FnOnce(&Place<'_>) -> Vec<OsString> {
    move |place| {
        let (program, image) = (place.dir.join("forge"), place.dir.join("image"));
        compile("forge.c", &program);
        for file in ["image", "image.orders"] {
            fs::write(place.dir.join(file), "").unwrap();
        }
        let words = [program, image, place.mountpoint.into(), "-f".into()];
        let more = (0..count).map(|_| OsString::from(format!("#{}", letter.repeat(length))));
        words.into_iter().map(OsString::from).chain(more).collect()
    }
}

/// S35, S89: a command line of any length that is accepted is shown, and its mount is found when all that knew of it is dead.
/// What makes most of itself when it is shown is a quote.
#[test]
fn s89_long_command_lines_are_shown_or_refused() {
    for (count, letter) in [(4, "a"), (7, "'")] {
        let mut mount = Custom::start(&[], wordy(count, letter, 130_000));
        let status = mount.wait_for("service", |status| status["state"] == "serving");
        let command = status["daemon"]["command"].as_str().unwrap();
        assert!(command.len() > count * 130_000, "{}", command.len());
        mount.crash_and_recover();
        let roles = ["supervisor", "keeper", "daemon"].map(|role| mount.pid(role));
        for signal in [Signal::STOP, Signal::KILL] {
            roles.iter().for_each(|pid| kill(*pid, signal).unwrap());
        }
        mount.end();
        mount.wait_for("dead mount", |status| status["state"] == "dead");
        mount.stop();
        assert!(!mount.is_mounted());
    }
    let mut mount = Custom::start(&[], wordy(9, "\u{1}", 100_000));
    assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
    assert!(mount.log().contains("the command line: belay would have to note"), "{}", mount.log());
    assert!(!mount.is_mounted());
}
