//! Every kind of bed can be started bare, used, killed and stopped.

use std::time::Duration;

use belay_testbed::{Bed, BedOptions, Kind, Mode, Signal, mounts, process};

fn use_it(kind: Kind) {
    let bed = Bed::start(kind, &Mode::Bare, &BedOptions::default()).unwrap();
    let file = bed.root().join("hello");
    std::fs::write(&file, "world").unwrap_or_else(|error| panic!("{kind}: {error}"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "world");
    if kind.backed_by_directory() {
        assert_eq!(std::fs::read_to_string(bed.backing().join("hello")).unwrap(), "world");
    }
    let mountpoint = bed.mountpoint().to_path_buf();
    assert_eq!(mounts::find(&mountpoint).unwrap().is_some(), kind != Kind::Dir);
    bed.stop().unwrap();
    assert!(mounts::find(&mountpoint).unwrap().is_none());
    assert!(!mountpoint.exists());
}

#[test]
fn every_kind_works_bare() {
    for kind in Kind::all() {
        use_it(kind);
    }
}

#[test]
fn a_killed_daemon_leaves_nothing_behind() {
    let bed = Bed::start(Kind::PassthroughLl, &Mode::Bare, &BedOptions::default()).unwrap();
    let pid = bed.kill_daemon(Signal::SEGV).unwrap();
    assert!(process::wait_for_exit(pid, Duration::from_secs(10)).unwrap());
    assert!(std::fs::write(bed.root().join("new"), "x").is_err());
    let mountpoint = bed.mountpoint().to_path_buf();
    drop(bed);
    assert!(mounts::find(&mountpoint).unwrap().is_none());
    assert!(!mountpoint.exists());
}

#[test]
fn a_daemon_that_cannot_start_is_quoted() {
    let options =
        BedOptions { daemon_opts: vec!["no_such_option".into()], ..BedOptions::default() };
    let error =
        format!("{:#}", Bed::start(Kind::PassthroughLl, &Mode::Bare, &options).unwrap_err());
    assert!(error.contains("no_such_option"), "{error}");
}
