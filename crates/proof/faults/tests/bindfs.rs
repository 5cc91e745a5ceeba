//! A real daemon, crashed at each point of a real request.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use belay_faults::{Fault, FaultSignal, Plan, Point, Report, Target, Tracer};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, mounts};

const LIMIT: Duration = Duration::from_secs(30);

/// Mounting takes root and the device.
fn can_mount() -> bool {
    let ok = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok()
        && std::fs::metadata("/proc/self")
            .is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if !ok {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    ok
}

fn fixture() -> Fixture {
    fixture_of(Kind::Bindfs)
}

fn fixture_of(kind: Kind) -> Fixture {
    let options = FixtureOptions { repeatable: true, ..FixtureOptions::default() };
    Fixture::start(kind, &Mode::Bare, &options).unwrap()
}

fn mkdir() -> Target {
    Target::any(&[belay_wire::Opcode::MKDIR]).containing("new")
}

/// Makes a directory by the mount while the daemon is traced; the call's error and what was seen.
fn make(fixture: &Fixture, name: &str, plan: Plan) -> (Option<i32>, Report) {
    let tracer = Tracer::attach(fixture.daemon_pid().unwrap(), plan).unwrap();
    let path = fixture.root().join(name);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(std::fs::create_dir(path)));
    let result = told.recv_timeout(LIMIT);
    if result.is_err() {
        // So that nobody hangs, this test included.
        mounts::unmount_by_force(fixture.mountpoint());
    }
    let report = tracer.finish().unwrap();
    (result.expect("it hangs").err().and_then(|e| e.raw_os_error()), report)
}

#[test]
fn a_dry_run_tells_the_effects() {
    if !can_mount() {
        return;
    }
    let fixture = fixture();
    for round in 0..3 {
        let plan = Plan { target: mkdir(), fault: None };
        let (error, report) = make(&fixture, &format!("new{round}"), plan);
        assert_eq!(error, None);
        assert!(!report.crashed && report.end.is_none(), "{report:?}");
        let request = report.request.unwrap();
        assert!(request.replied && request.opcode == "MKDIR");
        let calls: Vec<_> = request.effects.iter().map(|e| e.call.as_ref()).collect();
        assert_eq!(calls.iter().filter(|c| c.starts_with("mkdir")).count(), 1, "{calls:?}");
        // bindfs gives what it makes to the caller.
        assert!(calls.iter().any(|c| c.contains("chown")), "{calls:?}");
        assert!(request.effects.iter().all(|e| e.result == Some(0)), "{:?}", request.effects);
    }
    // It was let go: it serves, and ends as asked.
    assert!(fixture.backing().join("new0").is_dir());
    fixture.stop().unwrap();
}

#[test]
fn others_requests_pass() {
    if !can_mount() {
        return;
    }
    let fixture = fixture();
    let fault = Some(Fault { point: Point::Received, signal: FaultSignal::Kill });
    let (error, report) = make(&fixture, "other", Plan { target: mkdir(), fault });
    assert_eq!(error, None);
    assert!(!report.crashed && report.request.is_none());
    assert!(report.opcodes.iter().any(|o| o == "MKDIR"), "{report:?}");
    fixture.stop().unwrap();
}

#[test]
fn each_point_is_where_it_says() {
    if !can_mount() {
        return;
    }
    for signal in [FaultSignal::Segv, FaultSignal::Kill] {
        for (point, made, failed) in [
            (Point::Received, false, true),
            (Point::BeforeEffect(1), false, true),
            (Point::AfterEffect(1), true, true),
            (Point::BeforeReply, true, true),
            (Point::AfterReply, true, false),
        ] {
            let fixture = fixture();
            let plan = Plan { target: mkdir(), fault: Some(Fault { point, signal }) };
            let (error, report) = make(&fixture, "new", plan);
            let what = format!("{point} {signal}: {error:?} {report:?}");
            assert!(report.crashed, "{what}");
            assert_eq!(report.end, Some(format!("signal SIG{signal}")), "{what}");
            assert_eq!(error.is_some(), failed, "{what}");
            let there: PathBuf = fixture.backing().join("new");
            assert_eq!(there.is_dir(), made, "{what}");
            // Nobody else took note of its end, so its owner can.
            assert!(
                fixture.daemon_pid().unwrap_err().to_string().contains("ended early"),
                "{what}"
            );
        }
    }
}

/// mergerfs's threads block every signal that can be blocked; a fault of their own kills them all
/// the same.
#[test]
fn a_blocked_signal_does_not_help() {
    if !can_mount() {
        return;
    }
    let fixture = fixture_of(Kind::Mergerfs);
    let fault = Fault { point: Point::AfterEffect(1), signal: FaultSignal::Segv };
    let (error, report) = make(&fixture, "new", Plan { target: mkdir(), fault: Some(fault) });
    assert!(error.is_some(), "{report:?}");
    assert_eq!(report.end.as_deref(), Some("signal SIGSEGV"), "{report:?}");
    assert!(fixture.backing().join("new").is_dir());
}

#[test]
fn a_dropped_tracer_lets_go() {
    if !can_mount() {
        return;
    }
    let fixture = fixture();
    let plan = Plan { target: mkdir(), fault: None };
    drop(Tracer::attach(fixture.daemon_pid().unwrap(), plan.clone()).unwrap());
    std::fs::create_dir(fixture.root().join("new")).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", fixture.daemon_pid().unwrap()));
    assert!(status.unwrap().contains("TracerPid:\t0"));
    fixture.stop().unwrap();
    let error = Tracer::attach(u32::MAX, plan).unwrap_err().to_string();
    assert!(error.contains("no process id"), "{error}");
}
