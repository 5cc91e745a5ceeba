//! S109: what the host forbids on a mount later (`mount -o remount,bind,ro`), or allows again, holds for successors too, though
//! they have mount namespaces of their own (L11).

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use belay_testbed::process::{kill, run_ok, wait_for_exit};
use belay_testbed::{Bed, BedOptions, Belay, Kind, Mode, Signal, mounts};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, mount_remount};
use serde_json::Value;

use crate::common::{Held, LIMIT, caching, held, until};
use crate::namespaces::{Places, Stopped, mount, tool};
use crate::user::User;

/// A mount in the folder behind a held one.
struct Disk(PathBuf);

impl Disk {
    fn behind(bed: &Held) -> Self {
        Self::at(bed.behind("disk"))
    }

    fn at(path: PathBuf) -> Self {
        mount(&path);
        Self(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        mounts::unmount_by_force(&self.0);
    }
}

/// `mount -o remount,bind,...`.
fn remount(path: &Path, options: &str) {
    tool(&["mount", "-o", &format!("remount,bind,{options}")], path);
}

/// What a process sees of the uppermost mount at `path`: its options.
fn options(pid: u32, path: &Path) -> Vec<String> {
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let mut lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.rfind(|words| words.get(4).copied() == path.to_str());
    let words = line.and_then(|words| words.get(5).copied()).unwrap_or_default();
    words.split(',').map(ToOwned::to_owned).collect()
}

/// Waits until a process sees the mount at `path` with these options.
fn await_options(pid: u32, path: &Path, wanted: &[&str]) {
    let has = |seen: &[String]| wanted.iter().all(|word| seen.iter().any(|other| other == word));
    let there = until(|| has(&options(pid, path)));
    assert!(there, "{wanted:?}, but: {:?}", options(pid, path));
}

fn restart(bed: &Held) {
    let mut restart = Belay::find().unwrap().command();
    restart.arg("restart").arg(bed.bed.mountpoint());
    run_ok(restart, LIMIT).unwrap();
}

fn refused(path: &Path) -> Option<ErrorKind> {
    fs::write(path, "text").err().map(|error| error.kind())
}

/// What the status says of copies that did not follow, if it names this one.
fn told(status: &Value, place: &Path) -> Option<String> {
    let reasons = status["degraded_reasons"].as_array()?;
    let reason = reasons.iter().find(|reason| reason["kind"] == "mount")?;
    let what = reason["what"].as_str()?;
    what.contains(place.to_str()?).then(|| what.to_owned())
}

/// Waits until the status says that of this one, and gives what it says.
fn await_told(bed: &Held, place: &Path) -> String {
    told(&bed.wait_for("reason", |status| told(status, place).is_some()), place).unwrap()
}

fn await_untold(bed: &Held, place: &Path) {
    bed.wait_for("end of the reason", |status| told(status, place).is_none());
}

/// S109: read-only and back, by all ways, and the other prohibitions.
#[test]
fn s109_what_a_mount_forbids_reaches_successors() {
    let places = Places::new();
    let own = places.path("own");
    mount(&own);
    let bed = held(Kind::Bindfs, &[], &[]);
    let disk = Disk::behind(&bed);
    bed.crash_and_recover();
    let pid = bed.pid("daemon");
    let file = bed.at("disk/file");
    assert_eq!(refused(&file), None);
    // What a successor has changed itself is its own affair.
    let number = pid.to_string();
    tool(&["nsenter", "-t", &number, "-m", "mount", "-o", "remount,bind,noexec"], &own);
    for (forbid, allow) in [("bind,ro", "bind,rw"), ("ro", "rw")] {
        bed.wait_until_closed();
        tool(&["mount", "-o", &format!("remount,{forbid}")], &disk.0);
        await_options(pid, &disk.0, &["ro"]);
        assert_eq!(refused(&file), Some(ErrorKind::ReadOnlyFilesystem));
        tool(&["mount", "-o", &format!("remount,{allow}")], &disk.0);
        await_options(pid, &disk.0, &["rw"]);
        assert_eq!(refused(&file), None);
    }
    remount(&disk.0, "nosuid,nodev,noexec,nosymfollow");
    await_options(pid, &disk.0, &["rw", "nosuid", "nodev", "noexec", "nosymfollow"]);
    remount(&disk.0, "nosuid,nodev,exec,nosymfollow");
    assert!(until(|| !options(pid, &disk.0).contains(&"noexec".to_owned())));
    await_options(pid, &disk.0, &["rw", "nosuid", "nodev", "nosymfollow"]);
    assert!(options(pid, &own).contains(&"noexec".to_owned()));
    bed.wait_until_closed();
    // In the next generation, and after a change of which its namespace was made.
    remount(&disk.0, "ro");
    bed.crash_and_recover();
    assert_eq!(refused(&file), Some(ErrorKind::ReadOnlyFilesystem));
    remount(&disk.0, "rw");
    await_options(bed.pid("daemon"), &disk.0, &["rw"]);
    assert_eq!(refused(&file), None);
    drop(disk);
    bed.stop();
}

/// S109: what a successor has open for writing keeps its copy as it was; that is told, and made up for as soon as it can be.
#[test]
fn s109_a_successor_that_writes_on_is_told() {
    let bed = held(Kind::Bindfs, &[], &[]);
    let disk = Disk::behind(&bed);
    let path = bed.at("disk/file");
    bed.crash_and_recover();
    let open = || OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let mut file = open();
    remount(&disk.0, "ro,noexec");
    let what = await_told(&bed, &disk.0);
    assert!(what.contains("belay restart"), "{what}");
    await_options(bed.pid("daemon"), &disk.0, &["rw", "noexec"]);
    file.write_all(b"text").unwrap();
    drop(file);
    await_untold(&bed, &disk.0);
    await_options(bed.pid("daemon"), &disk.0, &["ro", "noexec"]);
    remount(&disk.0, "rw");
    await_options(bed.pid("daemon"), &disk.0, &["rw"]);
    // What is allowed again before it could be forbidden.
    let file = open();
    remount(&disk.0, "ro");
    await_told(&bed, &disk.0);
    remount(&disk.0, "rw");
    await_untold(&bed, &disk.0);
    // By a restart.
    remount(&disk.0, "ro");
    await_told(&bed, &disk.0);
    restart(&bed);
    await_untold(&bed, &disk.0);
    assert!(options(bed.pid("daemon"), &disk.0).contains(&"ro".to_owned()));
    drop(file);
    drop(disk);
    bed.stop();
}

/// S109, S32: also what is forbidden while there is no supervisor, and what a dead one could not forbid.
#[test]
fn s109_what_a_mount_forbids_without_a_supervisor() {
    let (places, bed) = (Places::new(), held(Kind::Bindfs, &[], &[]));
    let (disk, other) = (Disk::behind(&bed), places.path("other"));
    mount(&other);
    bed.crash_and_recover();
    let file = File::create(bed.at("disk/file")).unwrap();
    let (daemon, supervisor) = (bed.pid("daemon"), bed.pid("supervisor"));
    remount(&disk.0, "ro");
    await_told(&bed, &disk.0);
    let (keeper, stopped) = (Stopped::new(bed.pid("keeper")), Stopped::new(supervisor));
    remount(&other, "ro,noexec");
    kill(supervisor, Signal::KILL).unwrap();
    assert!(wait_for_exit(supervisor, LIMIT).unwrap());
    assert!(!options(daemon, &other).contains(&"ro".to_owned()), "somebody was quicker");
    drop((keeper, stopped));
    await_options(daemon, &other, &["ro", "noexec"]);
    await_told(&bed, &disk.0);
    drop(file);
    await_options(daemon, &disk.0, &["ro"]);
    await_untold(&bed, &disk.0);
    drop(disk);
    bed.stop();
}

/// S109: where mounts are shared, a new mount reaches successors as it was in its first instant: mount(8) forbids later.
#[test]
fn s109_new_mounts_that_forbid_reach_successors() {
    let (places, bed) = (Places::new(), caching());
    let shared = places.path("shared");
    mount(&shared);
    tool(&["mount", "--make-shared"], &shared);
    let [from, to] = ["from", "to"].map(|name| shared.join(name));
    for path in [&from, &to] {
        fs::create_dir(path).unwrap();
    }
    bed.crash_and_recover();
    let pid = bed.pid("daemon");
    tool(&["mount", "--bind", "-o", "ro,noexec", from.to_str().unwrap()], &to);
    await_options(pid, &to, &["ro", "noexec"]);
    assert!(options(pid, &shared).contains(&"rw".to_owned()));
    bed.stop();
}

/// S109: nobody waits on the way to a copy, for another daemon that hangs. What the kernel knows it gets to; else that is said.
#[test]
fn s109_a_copy_behind_a_daemon_that_hangs_is_said() {
    let (places, bed) = (Places::new(), caching());
    let other = |options: [&str; 2]| {
        let daemon_opts = options.map(ToOwned::to_owned).to_vec();
        let options = BedOptions { daemon_opts, ..BedOptions::default() };
        Bed::start(Kind::PassthroughLl, &Mode::Bare, &options).unwrap()
    };
    let known = other(["cache=always", "timeout=86400"]);
    let unknown = other(["cache=never", "timeout=0"]);
    let disk = places.path("disk");
    mount(&disk);
    let [near, far] = [&known, &unknown].map(|other| other.root().join("inner"));
    let roots = [&near, &far].map(|inner| {
        mount(inner);
        let mut way = OpenOptions::new();
        way.read(true).custom_flags(OFlags::PATH.bits() as i32).open(inner).unwrap()
    });
    bed.crash_and_recover();
    let pid = bed.pid("daemon");
    let hang = [&known, &unknown].map(|other| Stopped::new(other.daemon_pid().unwrap()));
    for root in &roots {
        let link = format!("/proc/self/fd/{}", root.as_raw_fd());
        mount_remount(link, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    }
    let words = |place: &Path| format!("the mount {} (ro)", place.display());
    let said = |place: &Path| bed.bed.last_words().contains(&words(place));
    assert!(until(|| said(&far)), "{}", bed.bed.last_words());
    assert!(!said(&near), "{}", bed.bed.last_words());
    await_options(pid, &near, &["ro"]);
    assert!(options(pid, &far).contains(&"rw".to_owned()));
    remount(&disk, "ro");
    await_options(pid, &disk, &["ro"]);
    drop(hang);
    restart(&bed);
    await_options(bed.pid("daemon"), &far, &["ro"]);
    drop(roots);
    for inner in [&near, &far] {
        tool(&["umount"], inner);
    }
    bed.stop();
    for other in [known, unknown] {
        other.stop().unwrap();
    }
}

/// S109, S39: successors of ordinary users have no mounts of their own, so all holds at once.
#[test]
fn s109_ordinary_users_have_no_copies() {
    let mut user = User::low_level(&[]);
    let disk = Disk::at(user.behind.join("disk"));
    fs::set_permissions(&disk.0, fs::Permissions::from_mode(0o777)).unwrap();
    user.crash();
    let writes = || {
        let file = user.at("disk/file");
        user.does(move || refused(&file))
    };
    assert_eq!(writes(), None);
    // A file is closed after its last close: until then the daemon may write.
    user.wait_for("end of all work", |status| status["open_handles"] == 0);
    remount(&disk.0, "ro");
    assert_eq!(writes(), Some(ErrorKind::ReadOnlyFilesystem));
    remount(&disk.0, "rw");
    assert_eq!(writes(), None);
    drop(disk);
    user.stops_cleanly();
}
