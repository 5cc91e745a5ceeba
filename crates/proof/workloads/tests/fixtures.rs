//! The workloads on real mounts: they come out as on a plain directory, and what is corrupt is
//! noticed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode};
use belay_workloads::{Name, Outcome, Scale, Watch, Workload};

/// Whether daemons can be mounted here; says so if not.
fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    can
}

fn fixture(kind: Kind) -> Fixture {
    Fixture::start(kind, &Mode::Bare, &FixtureOptions::default()).unwrap()
}

fn done_on(fixture: &Fixture, workload: &Workload) -> Outcome {
    workload.setup(fixture.root()).unwrap();
    let done = workload.work(fixture.root(), &Watch::limit(Duration::from_secs(120))).unwrap();
    let outcome = workload.look(fixture.root(), &done).unwrap();
    workload.verify(&outcome).unwrap();
    assert!(!outcome.is_empty());
    outcome
}

#[test]
fn a_mount_gives_what_a_directory_gives() {
    if !can_mount() {
        return;
    }
    for name in Name::ALL {
        // Only the studies need it.
        if name == Name::Postmark && Command::new("postmark").arg("/dev/null").output().is_err() {
            eprintln!("skipped: postmark is not installed (scripts/setup-study installs it)");
            continue;
        }
        let workload = Workload::new(name, Scale::Tiny, 5, 2).unwrap();
        let (plain, mounted) = (fixture(Kind::Dir), fixture(Kind::Bindfs));
        let expected = done_on(&plain, &workload);
        let differences = expected.differences(&done_on(&mounted, &workload));
        assert!(differences.is_empty(), "{name}: {differences:?}");
        // And again at the same place.
        workload.again(mounted.root()).unwrap();
        let done = workload.work(mounted.root(), &Watch::limit(Duration::from_secs(120))).unwrap();
        let differences = expected.differences(&workload.look(mounted.root(), &done).unwrap());
        assert!(differences.is_empty(), "{name}, again: {differences:?}");
        mounted.stop().unwrap();
    }
}

/// What the kernel has cached may be right where what the daemon has is not.
#[test]
fn what_is_corrupt_behind_the_mount_is_noticed() {
    if !can_mount() {
        return;
    }
    let workload = Workload::sort(2_000_000, 5).unwrap();
    let fixture = fixture(Kind::Bindfs);
    workload.setup(fixture.root()).unwrap();
    let done = workload.work(fixture.root(), &Watch::limit(Duration::from_secs(120))).unwrap();
    workload.verify(&workload.look(fixture.root(), &done).unwrap()).unwrap();
    let output = fixture.backing().join("sort/output");
    let file = File::options().read(true).write(true).open(output).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1_000_000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 1_000_000).unwrap();
    let corrupt = workload.look(fixture.root(), &done).unwrap();
    assert!(workload.verify(&corrupt).is_err());
    fixture.stop().unwrap();
}

#[test]
fn a_daemon_that_dies_at_work_is_an_error() {
    if !can_mount() {
        return;
    }
    let workload = Workload::new(Name::Openssh, Scale::Tiny, 1, 2).unwrap();
    let fixture = fixture(Kind::Bindfs);
    workload.setup(fixture.root()).unwrap();
    let configured = fixture.backing().join("build/program-1.0/config.h");
    // Killed when it has come so far.
    let stop = || {
        if configured.exists() {
            let _ = fixture.kill_daemon(belay_fixtures::Signal::KILL);
        }
        false
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    assert!(workload.work(fixture.root(), &Watch { deadline, stop: &stop }).is_err());
}
