//! Belay waits for what passes: kills that hit the same request again and again, and disks that cannot be written for a
//! while. Nobody gets an error for it that no daemon gave, and what is wrong is said.

use crate::common::*;
use crate::custom::Custom;
use crate::disk::{Disk, Loop};
use belay_testbed::process::{kill, run_ok};
use belay_testbed::{Kind, Signal, image};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Kills the daemon, each time another one, so many times and after so many milliseconds of its life.
fn kill_daemons(bed: &Held, times: u64, life: impl Fn(u64) -> u64) {
    let mut last = 0;
    for time in 0..times {
        let status = bed.wait_for("another daemon", |status| {
            status["daemon"]["pid"].as_u64().is_some_and(|pid| pid != last)
        });
        last = number(&status, "/daemon/pid");
        sleep(Duration::from_millis(life(time)));
        // It may have been found dead meanwhile.
        let _ = kill(u32::try_from(last).unwrap(), Signal::KILL);
    }
}

/// S64: a request on the way to a file 150 directories deep, under kills from outside at every stage of that way.
#[test]
fn s64_no_request_fails_for_kills_from_outside() {
    let bed = held(Kind::Fuse2fsExt4, &[], &["--policy", "epoch"]);
    let mut deep = bed.at("");
    for _ in 0..150 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let looker = {
        let (deep, over, done) = (deep.clone(), Arc::clone(&over), Arc::clone(&done));
        call(move || {
            while !over.load(Ordering::Relaxed) {
                fs::metadata(&deep)?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            std::io::Result::Ok(())
        })
    };
    kill_daemons(&bed, 30, |time| 5 + time * 7 % 60);
    let before = done.load(Ordering::Relaxed);
    assert!(until(|| done.load(Ordering::Relaxed) > before), "it hangs");
    over.store(true, Ordering::Relaxed);
    looker.result().unwrap();
    let status = bed.wait_for("service", |status| status["state"] == "serving");
    assert_eq!(number(&status, "/requests/failed"), 0, "{status}");
    assert_eq!(number(&status, "/requests/poisoned"), 0);
    bed.bed.stop().unwrap();
}

/// S114, S64: under kills without end, of which several hit each look, who looks at a directory 150 deep gets on.
#[test]
fn s114_looks_get_on_under_kills_without_end() {
    let bed = held(Kind::Fuse2fsExt4, &[], &["--policy", "epoch"]);
    let mut deep = bed.at("");
    for _ in 0..150 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let looker = {
        let over = Arc::clone(&over);
        call(move || {
            let (mut longest, mut done, mut last) = (Duration::ZERO, 0, Instant::now());
            while !over.load(Ordering::Relaxed) {
                fs::metadata(&deep)?;
                assert_eq!(fs::read_dir(&deep)?.count(), 0);
                (longest, done) = (longest.max(last.elapsed()), done + 1);
                last = Instant::now();
            }
            std::io::Result::Ok((longest, done))
        })
    };
    let (begun, mut kills) = (Instant::now(), 0_u64);
    while begun.elapsed() < LASTS {
        sleep(Duration::from_millis(100 + kills * 37 % 200));
        // It may have ended meanwhile, or not begun.
        let daemon =
            bed.bed.belay_status().ok().and_then(|status| status["daemon"]["pid"].as_u64());
        let daemon = daemon.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        kills += u64::from(daemon.is_some_and(|pid| kill(pid, Signal::KILL).is_ok()));
    }
    over.store(true, Ordering::Relaxed);
    let (longest, done) = looker.result().unwrap();
    let status = bed.wait_for("service", |status| status["state"] == "serving");
    eprintln!("{kills} kills, {done} looks, {} ms between two at most", longest.as_millis());
    assert!(longest < GAP, "{kills} kills, {done} looks, {longest:?} between two\n{status}");
    assert_eq!(number(&status, "/requests/failed"), 0, "{status}");
    bed.bed.stop().unwrap();
}

/// How long these kills go on.
const LASTS: Duration = Duration::from_secs(15);

/// The longest time between two answers.
const GAP: Duration = Duration::from_secs(10);

/// A tmpfs of so many KiB, for as long as this lives.
struct Small(tempfile::TempDir);

impl Small {
    fn new(kib: u64) -> Self {
        let dir = tempfile::Builder::new().prefix("belay-small-").tempdir_in("/dev/shm").unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "none"]).arg(dir.path());
        run_ok(command, LIMIT).unwrap();
        Self(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut file = File::create(self.at("filler")).unwrap();
        while file.write(&[1; 4096]).is_ok() {}
    }

    fn clear(&self) {
        fs::remove_file(self.at("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        command.arg("--lazy").arg(self.0.path());
        let _ = run_ok(command, LIMIT);
    }
}

fn fails_to_commit(status: &Value) -> bool {
    let reasons = status["degraded_reasons"].as_array().unwrap();
    let commits = reasons.iter().any(|reason| {
        reason["kind"] == "commit" && reason["what"].as_str().unwrap().contains("do not reach")
    });
    commits && status["degraded"] == true
}

/// Acknowledged data that cannot be made safe: fsync fails, nothing is lost, and when it can be again it is.
fn waits_for_the_disk(mut mount: Custom, corrupt: impl Fn(), mend: impl Fn()) {
    fs::write(mount.at("before"), "before").unwrap();
    File::open(mount.at("before")).unwrap().sync_all().unwrap();
    corrupt();
    let data: Vec<u8> = (0..900_000u32).map(|at| (at % 253) as u8).collect();
    fs::write(mount.at("data"), &data).unwrap();
    let file = OpenOptions::new().write(true).open(mount.at("data")).unwrap();
    let synced = file.sync_all().expect_err("it cannot be safe");
    assert_eq!(synced.raw_os_error(), Some(libc::EIO), "{}", mount.log());
    let status = mount.wait_for("the reason", fails_to_commit);
    assert_eq!(status["state"], "serving", "{status}");
    assert!(number(&status, "/requests/failed") > 0, "{status}");
    let text = mount.ask(&["status"]);
    assert!(text.contains("DEGRADED"), "{text}");
    let asked = Custom::belay(&["checkpoint".as_ref(), mount.mountpoint.as_os_str()]);
    assert!(!asked.status.success());
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(said.contains("do not reach the image"), "{said}");
    // Not lost with the daemon, either.
    mount.crash_and_recover();
    assert!(fs::read(mount.at("data")).unwrap() == data);
    mend();
    mount.wait_for("the end of it", |status| !fails_to_commit(status));
    let file = OpenOptions::new().write(true).open(mount.at("data")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(mount.status().unwrap()["degraded"], false);
    mount.kill_all(None);
}

/// S66: the disk with the journal is full for a while.
#[test]
fn s66_a_journal_without_room_is_said_and_waited_for() {
    let (disk, small) = (Disk::new(Kind::Fuse2fsExt4), Small::new(4096));
    let journal = small.at("journal");
    let arguments = ["--fsync-timeout", "1s", "--journal", journal.to_str().unwrap()];
    let mount = disk.hold(&arguments);
    waits_for_the_disk(mount, || small.fill(), || small.clear());
    // What the fsync that succeeded promised is there though belay was killed then.
    let journal = journal.to_str().unwrap();
    assert!(disk.repair(&["--journal", journal]).status.success());
    disk.check();
    assert_eq!(disk.files()["data"].len(), 900_000);
}

/// S66: the disk behind the image is.
#[test]
fn s66_an_image_that_cannot_be_written_is_said_and_waited_for() {
    let small = Small::new(4096);
    let sparse = small.at("image");
    image::make(Kind::Fuse2fsExt4, &sparse, 16).unwrap();
    let Some(device) = Loop::attach(&sparse) else {
        eprintln!("skipped: no loop devices");
        return;
    };
    let journals = tempfile::tempdir().unwrap();
    let journal = journals.path().join("journal");
    let arguments = ["--fsync-timeout", "1s", "--journal", journal.to_str().unwrap()];
    let mount = Disk::serving(Disk::start_on(&device.0, &[], &arguments));
    waits_for_the_disk(mount, || small.fill(), || small.clear());
    drop(device);
    let shown = debugfs_length(&sparse);
    assert_eq!(shown, 900_000);
}

/// S66: belay's own limit of file size (`ulimit -f`) is what keeps it from writing.
#[test]
fn s66_a_limit_of_file_size_is_said_and_waited_for() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let mount = disk.hold(&["--fsync-timeout", "1s"]);
    let belay = ["supervisor", "keeper"].map(|role| mount.pid(role));
    let limit = |bytes| {
        for pid in belay {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let limit = Rlimit { current: bytes, maximum: None };
            prlimit(pid, Resource::Fsize, limit).unwrap();
        }
    };
    let lives = |mount: &Custom| ["supervisor", "keeper"].map(|role| mount.pid(role)) == belay;
    assert!(lives(&mount));
    waits_for_the_disk(mount, || limit(Some(64 << 10)), || limit(None));
    assert!(disk.repair(&[]).status.success());
    disk.check();
    assert_eq!(disk.files()["data"].len(), 900_000);
}

fn debugfs_length(image: &Path) -> u64 {
    let mut command = Command::new("/sbin/debugfs");
    command.arg("-R").arg("cat data").arg(image);
    run_ok(command, LIMIT).unwrap().stdout.len() as u64
}

/// S65: each daemon that dies while it is given the op-log has got on: the next one begins at a later checkpoint.
#[test]
fn s65_each_life_gains_in_a_roll_forward() {
    let arguments = ["--policy", "epoch", "--checkpoint-interval", "1h", "--checkpoint-early", "0"];
    let bed = held(Kind::Fuse2fsExt4, &[], &arguments);
    let files = 2500;
    for number in 0..files {
        fs::write(bed.at(&format!("file{number}")), number.to_string()).unwrap();
    }
    let epoch = |status: &Value| number(status, "/image/epoch");
    let records = |status: &Value| number(status, "/epoch/log_records");
    let first = bed.bed.belay_status().unwrap();
    let (mut last, mut gained, mut left) = (epoch(&first), 0, records(&first));
    bed.crash();
    loop {
        let status = bed.wait_for("a checkpoint or service", |status| {
            epoch(status) > last || status["state"] == "serving"
        });
        if status["state"] == "serving" {
            break;
        }
        let pid = u32::try_from(status["daemon"]["pid"].as_u64().unwrap()).unwrap();
        last = epoch(&status);
        let _ = kill(pid, Signal::KILL);
        gained += 1;
    }
    // As many as a roll-forward has room for: it takes some 300 ms, and one is made each 30 ms at most.
    assert!(gained > 1, "{}\n{}", bed.bed.last_words(), bed.bed.belay_status().unwrap());
    let after = bed.wait_for("service", |status| status["state"] == "serving");
    assert_eq!(number(&after, "/requests/failed"), 0, "{after}");
    assert_eq!(after["read_only"], Value::Null);
    left = left.saturating_sub(records(&after));
    assert!(left > 0, "nothing was gained");
    for number in (0..files).step_by(97) {
        let text = fs::read_to_string(bed.at(&format!("file{number}"))).unwrap();
        assert_eq!(text, number.to_string());
    }
    assert_eq!(names(bed.bed.root()).len(), files + 1);
    bed.bed.stop().unwrap(); // which has the image checked
}
