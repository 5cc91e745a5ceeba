//! S34: how a mount ends.

use std::fs::{self, File};
use std::process::Command;

use belay_testbed::process::{Process, wait_for_exit};
use belay_testbed::{Belay, Signal, mounts};

use crate::common::{LIMIT, content, until};
use crate::custom::{Custom, Place, low_level_program};

/// S34: a daemon that ends by itself has ended: it is not started again.
#[test]
fn s34_the_daemons_own_clean_end() {
    for crashes in 0..2 {
        let mut mount = Custom::low_level(&[], &[]);
        for _ in 0..crashes {
            mount.crash_and_recover();
        }
        let daemon = mount.signal("daemon", Signal::TERM);
        // What passthrough_ll says after a signal, also without belay.
        assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
        assert!(!mount.is_mounted());
        assert!(wait_for_exit(daemon, LIMIT).unwrap());
        assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
    }
}

/// S34: the exit status is the daemon's own, here that of a stop with a file still open: as without belay.
#[test]
fn s34_the_exit_status_is_the_daemons() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().canonicalize().unwrap().join(name);
    fs::create_dir(place("mnt")).unwrap();
    fs::create_dir(place("back")).unwrap();
    fs::write(place("back").join("file"), "text").unwrap();
    let mut bare = Command::new(low_level_program());
    bare.args(["-f", "-o", &format!("source={},cache=never", place("back").display())]);
    bare.arg(place("mnt"));
    let mut bare = Process::start(bare, &place("log")).unwrap();
    mounts::wait(&place("mnt"), true, LIMIT, || bare.must_run()).unwrap();
    let file = File::open(place("mnt").join("file")).unwrap();
    bare.signal(Signal::TERM).unwrap();
    let expected = bare.wait(LIMIT).unwrap().expect("it hangs");
    drop(file);
    mounts::unmount_by_force(&place("mnt"));
    for crashes in 0..2 {
        let mut mount = Custom::low_level(&[], &[]);
        let file = File::open(mount.at("file")).unwrap();
        for _ in 0..crashes {
            mount.crash_and_recover();
        }
        mount.signal("daemon", Signal::TERM);
        assert_eq!(mount.end().code(), expected.code(), "{}", mount.log());
        assert!(!mount.is_mounted());
        assert!(file.metadata().is_err(), "whoever still has a file open gets an error");
    }
}

/// S34: umount(8) ends it, in every generation.
#[test]
fn s34_unmounted_by_the_user() {
    for crashes in 0..3 {
        for tool in [&["umount"][..], &["fusermount3", "-u"]] {
            let mut mount = Custom::low_level(&[], &[]);
            for _ in 0..crashes {
                mount.crash_and_recover();
            }
            mount.tool(tool);
            assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
            assert!(!mount.is_mounted());
        }
    }
}

/// S34: after a lazy unmount, open files live on, also through crashes, and the last close ends all.
#[test]
fn s34_lazy_unmount() {
    let mut mount = Custom::low_level(&[], &[]);
    let file = File::options().read(true).write(true).open(mount.at("file")).unwrap();
    let daemon = mount.pid("daemon");
    mount.tool(&["umount", "-l"]);
    assert!(!mount.is_mounted());
    assert_eq!(content(&file), "text");
    belay_testbed::process::kill(daemon, Signal::KILL).unwrap();
    assert_eq!(content(&file), "text");
    file.set_len(2).unwrap();
    assert_eq!(fs::read_to_string(mount.behind.join("file")).unwrap(), "te");
    drop(file);
    assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
}

/// S34: unmounted during the blackout.
#[test]
fn s34_unmounted_in_the_blackout() {
    let mut mount = Custom::low_level(&[], &[]);
    let supervisor = mount.pid("supervisor");
    let daemon = mount.pid("daemon");
    belay_testbed::process::kill(supervisor, Signal::STOP).unwrap();
    assert!(until(|| crate::common::state_of(supervisor) == 'T'));
    belay_testbed::process::kill(daemon, Signal::KILL).unwrap();
    assert!(wait_for_exit(daemon, LIMIT).unwrap());
    mount.tool(&["umount", "-l"]);
    belay_testbed::process::kill(supervisor, Signal::CONT).unwrap();
    mount.end();
    assert!(!mount.is_mounted());
}

/// S34: SIGTERM and SIGINT to belay unmount.
#[test]
fn s34_signals_to_belay() {
    for signal in [Signal::TERM, Signal::INT] {
        for role in ["keeper", "supervisor"] {
            let mut mount = Custom::low_level(&[], &[]);
            mount.crash_and_recover();
            mount.signal(role, signal);
            assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
            assert!(!mount.is_mounted());
        }
    }
}

/// The signals that do not come to process `pid`.
fn blocked(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

/// S34: also if whoever starts belay lets no signal come; its daemon has it as it would be without belay.
#[test]
fn s34_signals_that_whoever_starts_belay_has_blocked() {
    for role in ["keeper", "supervisor"] {
        let mut command = Command::new("env");
        command.arg("--block-signal=HUP,INT,TERM,CHLD,BUS");
        command.arg(Belay::find().unwrap().command().get_program());
        let words = |place: &Place<'_>| Custom::low_level_words(place, &[]);
        let mut mount = Custom::start_by(command, &[], words);
        mount.serves();
        let signals = [Signal::HUP, Signal::INT, Signal::TERM, Signal::CHILD, Signal::BUS];
        let all = signals.iter().fold(0, |set, signal| set | 1_u64 << (signal.as_raw() - 1));
        for _ in 0..2 {
            assert_eq!(blocked(mount.pid("daemon")) & all, all);
            assert_eq!(blocked(mount.pid("keeper")) & all, 0);
            assert_eq!(blocked(mount.pid("supervisor")) & all, 0);
            mount.crash_and_recover();
        }
        mount.signal(role, Signal::TERM);
        assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
        assert!(!mount.is_mounted());
    }
}

/// S34: an abort of the connection ends it with errors, not with a hang.
#[test]
fn s34_aborted_through_sysfs() {
    mounts::ensure_control_files().unwrap();
    let mut mount = Custom::low_level(&[], &[]);
    mount.crash_and_recover();
    let file = File::open(mount.at("file")).unwrap();
    let minor = mounts::find(&mount.mountpoint).unwrap().unwrap().device.1;
    fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1").unwrap();
    assert!(file.metadata().is_err());
    drop(file);
    mount.end();
}

/// S34: a mount that another daemon's successor has a copy of can be unmounted all the same.
#[test]
fn s34_copies_in_other_namespaces_do_not_hold_a_mount() {
    let mut unmounted = Custom::low_level(&[], &[]);
    let mut stopped = Custom::low_level(&[], &[]);
    let other = Custom::low_level(&[], &[]);
    other.crash_and_recover(); // in a namespace with copies of the first two
    let copied = |custom: &Custom| {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", other.pid("daemon"))).unwrap();
        table.contains(custom.mountpoint.to_str().unwrap())
    };
    assert!(copied(&unmounted) && copied(&stopped));
    unmounted.tool(&["umount"]);
    assert_eq!(unmounted.end().code(), Some(0), "{}", unmounted.log());
    assert!(!copied(&unmounted) && copied(&stopped));
    stopped.signal("keeper", Signal::TERM);
    assert_eq!(stopped.end().code(), Some(0), "{}", stopped.log());
    other.serves();
}
