//! S66: the disk behind the image neither works nor fails, but gives no answer for a while, as a network disk does.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use belay_testbed::process::{Process, kill, run};
use belay_testbed::{Belay, Kind, Signal, image, mounts};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Caller, LIMIT, call, until};
use crate::custom::Custom;
use crate::disk::{Disk, FOLDER};

/// A file system that can be made to give no answer.
struct Stalling {
    server: Process,
    mountpoint: PathBuf,
    _dir: TempDir,
}

impl Stalling {
    /// With an image on it.
    fn with_image() -> Self {
        let dir = tempfile::Builder::new().prefix("belay-stall-").tempdir_in("/dev/shm").unwrap();
        let path = dir.path().canonicalize().unwrap();
        let (behind, mountpoint) = (path.join("back"), path.join("mnt"));
        fs::create_dir(&behind).unwrap();
        fs::create_dir(&mountpoint).unwrap();
        image::make(Kind::Fuse2fsExt4, &behind.join("image"), 16).unwrap();
        let mut bindfs = Command::new("bindfs");
        bindfs.arg("-f").args([&behind, &mountpoint]);
        let server = Process::start(bindfs, &path.join("log")).unwrap();
        let stalling = Self { server, mountpoint, _dir: dir };
        assert!(until(|| mounts::find(&stalling.mountpoint).unwrap().is_some()), "no bindfs");
        stalling
    }

    fn image(&self) -> PathBuf {
        self.mountpoint.join("image")
    }

    fn stall(&self) {
        kill(self.server.pid(), Signal::STOP).unwrap();
    }

    fn go_on(&self) {
        kill(self.server.pid(), Signal::CONT).unwrap();
    }

    /// Starts belay on the image. Where the journal lies elsewhere, the image alone gives no answer.
    fn hold(&self, journal: Option<&Path>) -> Custom {
        let journal = journal.map(|path| ["--journal", path.to_str().unwrap()]);
        let mut arguments = vec!["--fsync-timeout", "1s"];
        arguments.extend(journal.iter().flatten());
        let mount = Disk::serving(Disk::start_on(&self.image(), &[], &arguments));
        // What fuse2fs reads of its image is near by now.
        fs::write(mount.at("before"), "before").unwrap();
        File::open(mount.at("before")).unwrap().sync_all().unwrap();
        fs::write(mount.at("data"), "").unwrap();
        mount
    }

    fn repair(&self, journal: Option<&Path>) -> Output {
        let mut command = Belay::find().unwrap().command();
        command.arg("repair").env(FOLDER, self.mountpoint.with_file_name("folder"));
        command.args(journal.map(|path| ["--journal", path.to_str().unwrap()]).iter().flatten());
        command.arg(self.image());
        run(command, LIMIT).unwrap()
    }
}

impl Drop for Stalling {
    fn drop(&mut self) {
        self.go_on();
        mounts::unmount_by_force(&self.mountpoint);
    }
}

fn hangs(status: &Value) -> bool {
    let reasons = status["degraded_reasons"].as_array().unwrap();
    status["degraded"] == true
        && reasons.iter().any(|reason| {
            let what = reason["what"].as_str().unwrap();
            reason["kind"] == "commit" && what.contains("has given no answer since")
        })
}

fn sync(mount: &Custom) -> Caller<std::io::Result<()>> {
    let path = mount.at("data");
    call(move || OpenOptions::new().write(true).open(path)?.sync_all())
}

fn fails(synced: Caller<std::io::Result<()>>, mount: &Custom) {
    assert!(until(|| synced.is_done()), "{:?}\n{}", mount.status(), mount.log());
    let error = synced.result().expect_err("it cannot be safe");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{}", mount.log());
}

/// Whoever waits is told, nothing is lost, and when the disk gives answers again all is as before.
fn waits_for_the_disk(journal: Option<&Path>) {
    let disk = Stalling::with_image();
    let mut mount = disk.hold(journal);
    disk.stall();
    fs::write(mount.at("data"), "data").unwrap();
    let synced = sync(&mount);
    let asked = {
        let place = mount.mountpoint.clone();
        call(move || Custom::belay(&["checkpoint".as_ref(), place.as_os_str()]))
    };
    fails(synced, &mount);
    let status = mount.wait_for("the reason", hangs);
    assert_eq!(status["state"], "serving", "{status}");
    let place = disk.mountpoint.to_str().unwrap();
    assert!(status["degraded_reasons"].to_string().contains(place), "what hangs: {status}");
    // Those who come later are told as well, and whoever asks for a checkpoint then, at once.
    fails(sync(&mount), &mount);
    let later = Custom::belay(&["checkpoint".as_ref(), mount.mountpoint.as_os_str()]);
    for asked in [asked.result(), later] {
        assert!(!asked.status.success());
        let said = String::from_utf8_lossy(&asked.stderr).into_owned();
        assert!(said.contains("has given no answer since"), "{said}");
    }
    assert_eq!(fs::read_to_string(mount.at("data")).unwrap(), "data");
    disk.go_on();
    mount.wait_for("the end of it", |status| status["degraded"] == false);
    sync(&mount).result().unwrap();
    mount.kill_all(None);
    // What the fsync that succeeded promised is there though belay was killed then.
    assert!(disk.repair(journal).status.success());
    image::check(Kind::Fuse2fsExt4, &disk.image()).unwrap();
    assert_eq!(shown(&disk.image(), "data"), "data");
}

fn shown(image: &Path, name: &str) -> String {
    let mut command = Command::new("/sbin/debugfs");
    command.arg("-R").arg(format!("cat {name}")).arg(image);
    String::from_utf8(run(command, LIMIT).unwrap().stdout).unwrap()
}

#[test]
fn s66_an_image_that_hangs_is_said_and_waited_for() {
    let journals = tempfile::tempdir().unwrap();
    waits_for_the_disk(Some(&journals.path().join("journal")));
}

#[test]
fn s66_a_journal_that_hangs_is_said_and_waited_for() {
    waits_for_the_disk(None);
}

/// S66, S96: a disk that gives no answer keeps nobody from the end, and what is not on the image is said.
#[test]
fn s66_a_disk_that_hangs_can_be_let_go() {
    let disk = Stalling::with_image();
    let mut mount = disk.hold(None);
    disk.stall();
    fs::write(mount.at("data"), "data").unwrap();
    fails(sync(&mount), &mount);
    mount.wait_for("the reason", hangs);
    let stopped = {
        let place = mount.mountpoint.clone();
        call(move || Custom::belay(&["stop".as_ref(), "--force".as_ref(), place.as_os_str()]))
    };
    // Whoever asks how it is gets an answer until it is over.
    while !stopped.is_done() {
        let asked = Custom::belay(&["status".as_ref(), "--json".as_ref()]);
        assert!(asked.status.success(), "{asked:?}");
    }
    let stopped = stopped.result();
    assert_eq!(stopped.status.code(), Some(1), "{stopped:?}\n{}", mount.log());
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(said.contains("has given no answer since") && said.contains("belay repair"), "{said}");
    assert!(!mount.is_mounted());
    assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
    disk.go_on();
    assert!(disk.repair(None).status.success());
    image::check(Kind::Fuse2fsExt4, &disk.image()).unwrap();
    assert_eq!(shown(&disk.image(), "before"), "before");
}
