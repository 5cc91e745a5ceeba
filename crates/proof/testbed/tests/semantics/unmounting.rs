//! S46: how a mount under the policy `epoch` ends, and what is on its image then.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use belay_recorder::{Capacity, Layout};
use belay_testbed::process::{kill, run};
use belay_testbed::{Kind, Signal};

use crate::common::{LIMIT, Trap, When};
use crate::custom::Custom;
use crate::disk::{Disk, EPOCH};

const KINDS: [Kind; 3] = [Kind::Fuse2fsExt2, Kind::Fuse2fsExt3, Kind::Fuse2fsExt4];

/// How a mount is ended.
#[derive(Clone, Copy, Debug)]
enum Way {
    Tool(&'static [&'static str]),
    Signal(&'static str),
    Stop,
    /// Somebody has a file open: the daemon is asked to give the mount up.
    Busy,
    Aborted,
}

const WAYS: [Way; 7] = [
    Way::Tool(&["umount"]),
    Way::Tool(&["fusermount", "-u"]),
    Way::Signal("keeper"),
    Way::Signal("daemon"),
    Way::Stop,
    Way::Busy,
    Way::Aborted,
];

/// Leaves something that no checkpoint has.
fn work(mount: &Custom) {
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("one"), "one").unwrap();
    fs::rename(mount.at("one"), mount.at("two")).unwrap();
    File::create(mount.at("long")).unwrap().write_all(&[5; 300_000]).unwrap();
    // A release comes after its close, and makes fuse2fs write.
    mount.wait_for("release", |status| {
        status["open_handles"] == 0 && status["requests"]["in_flight"] == 0
    });
}

fn end(mount: &mut Custom, way: Way) -> Option<i32> {
    let (mut open, mut stopped) = (None, None);
    match way {
        Way::Tool(words) => mount.tool(words),
        Way::Signal(role) => {
            mount.signal(role, Signal::TERM);
        }
        Way::Stop => {
            let words = ["stop".as_ref(), mount.mountpoint.as_os_str()];
            stopped = Some(Custom::belay(&words));
        }
        Way::Busy => {
            open = Some(File::open(mount.at("two")).unwrap());
            mount.signal("keeper", Signal::TERM);
        }
        Way::Aborted => {
            belay_testbed::mounts::ensure_control_files().unwrap();
            let found = belay_testbed::mounts::find(&mount.mountpoint).unwrap().unwrap();
            let control = format!("/sys/fs/fuse/connections/{}/abort", found.device.1);
            fs::write(control, "1").unwrap();
        }
    }
    let code = mount.end().code();
    drop(open);
    if let Some(output) = stopped {
        // It says the same as belay itself.
        assert_eq!(output.status.success(), code == Some(0), "{output:?}");
    }
    code
}

/// All that was acknowledged is on the image, which is clean, and nothing of belay is left there.
fn is_whole(disk: &Disk, context: &str) {
    assert_eq!(disk.beside(), ["image"], "{context}");
    disk.check();
    let files = disk.files();
    assert_eq!(files.get("two").map(Vec::as_slice), Some(&b"one"[..]), "{context}");
    assert!(files.get("long").is_some_and(|long| *long == [5; 300_000]), "{context}");
    assert!(!files.contains_key("one"), "{context}");
}

/// S46: however the mount ends.
#[test]
fn s46_what_was_acknowledged_is_on_the_image_at_the_end() {
    for (i, way) in WAYS.into_iter().enumerate() {
        let disk = Disk::new(KINDS[i % 3]);
        let mut mount = disk.hold(&[]);
        work(&mount);
        assert_eq!(end(&mut mount, way), Some(0), "{way:?}: {}", mount.log());
        assert!(!mount.is_mounted());
        is_whole(&disk, &format!("{way:?}"));
    }
}

/// The library that dies at the end of fuse2fs.
fn compile(path: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/ends.c");
    let mut build = Command::new("cc");
    build.args(["-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o"]).arg(path).arg(source);
    let output = run(build, LIMIT).unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A mount whose daemons die where `deaths` says, one after the other. `dir` is for what that needs.
fn dies(dir: &Path, way: Way, kind: Kind, deaths: &[&str]) -> (Disk, Option<i32>, String) {
    let library = dir.join("ends.so");
    if !library.is_file() {
        compile(&library);
    }
    let disk = Disk::new(kind);
    let variables = [("LD_PRELOAD", library.as_path()), ("BELAY_TEST_DIES", dir)];
    let mut mount = disk.hold_with(&variables, &[]);
    work(&mount);
    for (i, place) in deaths.iter().enumerate() {
        File::create(dir.join(format!("{place}-{i}"))).unwrap();
    }
    let code = end(&mut mount, way);
    for (i, place) in deaths.iter().enumerate() {
        assert!(!dir.join(format!("{place}-{i}")).exists(), "nothing died in {place}");
    }
    assert!(!mount.is_mounted());
    (disk, code, mount.log())
}

/// S46: a daemon that dies while it ends loses nothing: another one does it again, without a mount.
#[test]
fn s46_a_daemon_that_dies_at_its_end_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (i, way) in WAYS.into_iter().enumerate() {
        for deaths in [&["end"][..], &["flush"], &["flush", "end"], &["flush", "flush"]] {
            let (disk, code, log) = dies(dir.path(), way, KINDS[i % 3], deaths);
            let context = format!("{way:?}, {deaths:?}: {log}");
            assert_eq!(code, Some(0), "{context}");
            assert!(log.contains("another one is started"), "{context}");
            is_whole(&disk, &context);
        }
    }
}

/// S46: also if no daemon comes to a clean end, as long as it can be made to write.
#[test]
fn s46_daemons_that_always_die_at_their_end_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, code, log) =
        dies(dir.path(), Way::Tool(&["umount"]), Kind::Fuse2fsExt4, &["end"; 3]);
    assert_eq!(code, Some(137), "{log}"); // the daemon's own end
    assert!(log.contains("with all that was acknowledged"), "{log}");
    is_whole(&disk, &log);
}

/// S46: what cannot be had on the image is kept beside it and that is said, and belay's exit status is no success.
#[test]
fn s46_what_is_not_on_the_image_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, code, log) = dies(dir.path(), Way::Stop, Kind::Fuse2fsExt4, &["flush"; 3]);
    assert_ne!(code, Some(0), "{log}");
    assert!(log.contains("requests) is kept in"), "{log}");
    disk.check();
    assert_eq!(disk.beside(), ["image", "image.belay-oplog"]);
}

/// S46: also if the supervisor dies in the last commit.
#[test]
fn s46_a_supervisor_that_dies_in_the_last_commit() {
    for step in [1, 2, 3, 5, 8] {
        let disk = Disk::new(Kind::Fuse2fsExt4);
        let mut mount = disk.hold(&[]);
        work(&mount);
        let supervisor = mount.pid("supervisor");
        let trap = Trap::set(supervisor, "^(fsync|unlink)$", step, When::Before);
        mount.tool(&["umount"]);
        trap.await_catch();
        kill(supervisor, Signal::KILL).unwrap();
        drop(trap);
        assert_eq!(mount.end().code(), Some(0), "step {step}: {}", mount.log());
        is_whole(&disk, &format!("step {step}"));
    }
}

/// S99: what was written over can be brought to the image by nobody, so nobody is waited for.
#[test]
fn s99_an_overlay_that_was_written_over_is_not_waited_for() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let mut mount = disk.hold(&[]);
    work(&mount);
    let recorder = mount.recorder();
    // The number of the last epoch that is on the image.
    let place = (Layout::new(Capacity::MOUNT).epochs as u64 + 8) * 8;
    assert_eq!(recorder.write_at(&u64::MAX.to_ne_bytes(), place).unwrap(), 8);
    mount.signal("keeper", Signal::TERM);
    assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
    assert!(mount.log().contains("written over by something else"), "{}", mount.log());
    assert!(!mount.log().contains("another one is started"), "{}", mount.log());
}

/// S46: a daemon that has its image read-only has nothing to write: checkpoints are made of that, and it ends as any other.
#[test]
fn s46_read_only_images_stay_as_they_are() {
    for (kind, program, options) in
        [(Kind::Fuse2fsExt4, "fuse2fs", "ro,fakeroot"), (Kind::Fusefat, "fusefat", "ro")]
    {
        let disk = Disk::new(kind);
        let before = fs::read(disk.image()).unwrap();
        let mut mount = Custom::start(&EPOCH, |place| {
            let words = [program, "-f", "-s", "-o", options].map(std::ffi::OsString::from);
            words.into_iter().chain([disk.image().into(), place.mountpoint.into()]).collect()
        });
        mount.wait_for("service", |status| status["state"] == "serving");
        fs::read_dir(&mount.mountpoint).unwrap().for_each(drop);
        for _ in 0..2 {
            assert!(mount.ask(&["checkpoint"]).contains("is on the image"), "{kind}");
        }
        File::open(&mount.mountpoint).unwrap().sync_all().unwrap();
        mount.tool(&["umount"]);
        let code = mount.end().code();
        // fusefat comes to a bad end there without belay too.
        assert!(kind == Kind::Fusefat || code == Some(0), "{code:?}: {}", mount.log());
        assert!(!mount.log().contains("written over"), "{}", mount.log());
        assert_eq!(disk.beside(), ["image"], "{}", mount.log());
        assert!(fs::read(disk.image()).unwrap() == before, "{kind}");
    }
}
