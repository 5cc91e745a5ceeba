//! S56 to S59: other users of the machine, who own folders on the way to what belay holds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use belay_testbed::process::{Process, kill, run, wait_for_exit};
use belay_testbed::{Belay, Kind, Signal, image, mounts};
use rustix::fs::{
    CWD, FileType, FlockOperation, Mode, RenameFlags, XattrFlags, flock, mknodat, removexattr,
    renameat_with, setxattr,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{LIMIT, await_status, names, number, until};
use crate::custom::{Custom, low_level_program};
use crate::disk::{Disk, FOLDER, Loop};
use crate::user::{User, copy};

/// A folder that a stranger owns, with the held mount in it, and a link that the stranger puts in its place.
struct Swapped {
    belay: Process,
    victim: PathBuf,
    mountpoint: PathBuf,
    log: PathBuf,
    over: Arc<AtomicBool>,
    swaps: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Swapped {
    /// `crashes`: the daemon is killed meanwhile.
    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("belay-paths-").tempdir_in("/dev/shm").unwrap();
        let path = dir.path().canonicalize().unwrap();
        let (victim, own) = (path.join("victim"), path.join("own"));
        for folder in ["victim/mnt", "own/mnt", "back"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        mount("tmpfs", victim.join("mnt"), "tmpfs", MountFlags::empty(), None).unwrap();
        let (mountpoint, log) = (own.join("mnt"), path.join("log"));
        let mut command = Belay::find().unwrap().command();
        command.args(["run", "-vv", "--"]).arg(low_level_program()).args(["-f", "-o"]);
        command.arg(format!("source={},cache=never,timeout=0", path.join("back").display()));
        command.arg(&mountpoint).env("BELAY_STATE_DIR", path.join("state"));
        let belay = Process::start(command, &log).unwrap();
        let is_served = || mounts::find(&mountpoint).unwrap().is_some();
        assert!(until(is_served), "{}", fs::read_to_string(&log).unwrap_or_default());
        fs::metadata(&mountpoint).unwrap();
        let swap = path.join("swap");
        symlink(&victim, &swap).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let swaps = {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Relaxed) {
                    renameat_with(CWD, &own, CWD, &swap, RenameFlags::EXCHANGE).unwrap();
                }
                if own.is_symlink() {
                    renameat_with(CWD, &own, CWD, &swap, RenameFlags::EXCHANGE).unwrap();
                }
            })
        };
        let (victim, swaps) = (victim.join("mnt"), Some(swaps));
        Self { belay, victim, mountpoint, log, over, swaps, _dir: dir }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn stop_swapping(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(swaps) = self.swaps.take() {
            swaps.join().unwrap();
        }
    }
}

impl Drop for Swapped {
    fn drop(&mut self) {
        self.stop_swapping();
        let _ = self.belay.signal(Signal::KILL);
        let _ = self.belay.wait(LIMIT);
        mounts::unmount_by_force(&self.mountpoint);
        let _ = unmount(&self.victim, UnmountFlags::DETACH);
    }
}

/// S56: whoever owns a folder on the way to the mountpoint cannot have another mount taken away instead, and not keep the
/// held one either.
#[test]
fn s56_no_other_mount_is_taken_away() {
    for _ in 0..6 {
        let mut swapped = Swapped::start();
        swapped.belay.signal(Signal::TERM).unwrap();
        let code = swapped.belay.wait(LIMIT).unwrap().map(|status| status.code());
        swapped.stop_swapping();
        assert!(mounts::find(&swapped.victim).unwrap().is_some(), "{}", swapped.said());
        assert!(mounts::find(&swapped.mountpoint).unwrap().is_none(), "{}", swapped.said());
        assert_eq!(code, Some(Some(0)), "{}", swapped.said());
    }
}

/// S56: nor are successors, which take the mount out of a mount table of their own, misled into waiting for themselves.
#[test]
fn s56_successors_find_their_mount() {
    let swapped = Swapped::start();
    let status = || -> Option<Value> {
        let mut command = Belay::find().unwrap().command();
        command.args(["status", "--json", "--state-dir"]).arg(swapped.log.with_file_name("state"));
        let all: Value = serde_json::from_slice(&run(command, LIMIT).unwrap().stdout).ok()?;
        Some(all["mounts"][0].clone())
    };
    for round in 0..8 {
        let serves = |status: &Value| status["state"] == "serving" && status["crashes"] == round;
        let status = await_status("service", status, serves, || swapped.said());
        kill(u32::try_from(number(&status, "/daemon/pid")).unwrap(), Signal::KILL).unwrap();
    }
    let serves = |status: &Value| status["state"] == "serving" && status["crashes"] == 8;
    await_status("service", status, serves, || swapped.said());
    assert!(!swapped.said().contains("too long"), "{}", swapped.said());
}

/// S57: whoever owns the folder of a journal cannot have root write to, or remove, what is in another.
#[test]
fn s57_a_journals_folder_is_the_one_of_the_start() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let (own, victim) = (disk.at("own"), disk.at("victim"));
    fs::create_dir(&own).unwrap();
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("journal"), "theirs").unwrap();
    let asked = own.join("journal").display().to_string();
    let mut mount = disk.hold(&["--journal", &asked]);
    fs::write(mount.at("file"), "text").unwrap();
    fs::rename(&own, disk.at("moved")).unwrap();
    symlink(&victim, &own).unwrap();
    mount.ask(&["checkpoint"]);
    assert_eq!(fs::read_to_string(victim.join("journal")).unwrap(), "theirs", "{}", mount.log());
    mount.stop();
    assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
    assert_eq!(fs::read_to_string(victim.join("journal")).unwrap(), "theirs", "{}", mount.log());
    assert!(names(&disk.at("moved")).is_empty());
    disk.check();
}

/// S57: a journal that somebody removes comes back with its lock: nobody else gets the image.
#[test]
fn s57_a_removed_journal_comes_back_locked() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let mount = disk.hold(&[]);
    for role in ["daemon", "supervisor", "keeper"] {
        fs::remove_file(disk.journal()).unwrap();
        fs::write(mount.at(role), "text").unwrap();
        mount.ask(&["checkpoint"]);
        assert!(disk.journal().exists(), "{}", mount.log());
        mount.signal(role, Signal::KILL);
        fs::metadata(&mount.mountpoint).unwrap();
        mount.wait_for("service", |status| status["state"] == "serving");
        // Another state directory: only the lock tells.
        let state = disk.at("state");
        let mut second = disk.start(&[("BELAY_STATE_DIR", &state)], &[]);
        assert_eq!(second.end().code(), Some(1), "{}", second.log());
        assert!(second.log().contains("is held by a belay that runs"), "{}", second.log());
    }
    mount.stop();
    assert!(!disk.journal().exists(), "{}", mount.log());
    disk.check();
}

/// S57: an image is the file that its path led to at the start. Whoever exchanges that file, or its folder, has nothing
/// written to another one, whichever of belay's processes, and of the daemon's lives, comes after.
#[test]
fn s57_an_image_is_the_one_of_the_start() {
    for what in ["the name", "the folder"] {
        let disk = Disk::new(Kind::Fuse2fsExt4);
        let (own, other) = (disk.at("own"), disk.at("other"));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&other).unwrap();
        image::make(Kind::Fuse2fsExt4, &other.join("image"), 16).unwrap();
        let theirs = fs::read(other.join("image")).unwrap();
        fs::rename(disk.image(), own.join("image")).unwrap();
        let mount = Disk::serving(Disk::start_on(&own.join("image"), &[], &[]));
        fs::write(mount.at("before"), "text").unwrap();
        let exchange = |one: &Path, two: &Path| {
            renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE).unwrap();
        };
        // Where the file of the start is then, and the other one.
        let (image, victim) = if what == "the name" {
            exchange(&own.join("image"), &other.join("image"));
            (other.join("image"), own.join("image"))
        } else {
            exchange(&own, &other);
            (other.join("image"), own.join("image"))
        };
        let untouched = |when: &str| {
            let same = fs::read(&victim).unwrap() == theirs;
            assert!(same, "{what}, {when}: another file was written to\n{}", mount.log());
        };
        mount.ask(&["checkpoint"]);
        untouched("at a checkpoint");
        for role in ["daemon", "supervisor", "keeper"] {
            fs::write(mount.at(&format!("before {role}")), "text").unwrap();
            mount.signal(role, Signal::KILL);
            fs::write(mount.at(&format!("after {role}")), "text").unwrap();
            mount.wait_for("service", |status| status["state"] == "serving");
            mount.ask(&["checkpoint"]);
            untouched(role);
        }
        fs::write(mount.at("last"), "text").unwrap();
        // The process that took the keeper's place ends with it.
        let keeper = mount.pid("keeper");
        mount.stop();
        assert!(wait_for_exit(keeper, LIMIT).unwrap(), "{what}: {}", mount.log());
        assert!(fs::read(&victim).unwrap() == theirs, "{what}, at the end\n{}", mount.log());
        fs::rename(&image, disk.image()).unwrap();
        disk.check();
        let roles = ["daemon", "supervisor", "keeper"].into_iter();
        let wanted = roles.flat_map(|role| [format!("before {role}"), format!("after {role}")]);
        let wanted = wanted.chain(["before".into(), "last".into()]);
        let wanted: BTreeMap<_, _> = wanted.map(|name| (name, b"text".to_vec())).collect();
        assert_eq!(disk.files(), wanted, "{what}");
        assert!(names(&own).iter().chain(&names(&other)).all(|name| name == "image"));
    }
}

/// S57: a loop device that shows a whole file is that file, whatever limit it was made with; one that shows a part of what
/// somebody has is refused.
#[test]
fn s57_loop_devices_with_a_limit_are_their_file() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let length = fs::metadata(disk.image()).unwrap().len();
    let Some(device) = Loop::attach_with(&disk.image(), &["--sizelimit", &length.to_string()])
    else {
        eprintln!("skipped: no loop devices");
        return;
    };
    let mount = disk.hold(&[]);
    let state = disk.at("state");
    let mut second = Disk::start_on(&device.0, &[("BELAY_STATE_DIR", &state)], &[]);
    assert_eq!(second.end().code(), Some(1), "{}", second.log());
    assert!(second.log().contains("is held by a belay that runs"), "{}", second.log());
    drop(second);
    drop(device);
    let half = (length / 2).to_string();
    let device = Loop::attach_with(&disk.image(), &["--sizelimit", &half]).unwrap();
    let mut third = Disk::start_on(&device.0, &[], &[]);
    assert_eq!(third.end().code(), Some(1), "{}", third.log());
    assert!(third.log().contains("holds it already"), "{}", third.log());
    drop(mount);
}

/// S45: however many names an image has, and whichever state directories, one belay has it.
#[test]
fn s45_one_belay_has_an_image_by_whatever_name() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let length = fs::metadata(disk.image()).unwrap().len();
    let half = (length / 2).to_string();
    fs::hard_link(disk.image(), disk.at("link")).unwrap();
    let attach = |file: &Path, options: &[&str]| Loop::attach_with(file, options);
    let Some(outer) = attach(&disk.image(), &[]) else {
        eprintln!("skipped: no loop devices");
        return;
    };
    let inner = attach(&outer.0, &[]).unwrap();
    let part = attach(&inner.0, &["--offset", &half]).unwrap();
    let (state, folder) = (disk.at("state"), disk.at("journals"));
    let elsewhere = [("BELAY_STATE_DIR", state.as_path()), (FOLDER, folder.as_path())];
    let refused = |image: &Path, variables: &[(&str, &Path)]| {
        let mut second = Disk::start_on(image, variables, &[]);
        assert_eq!(second.end().code(), Some(1), "{}: {}", image.display(), second.log());
        let said = second.log();
        let known = ["holds it already", "is held by a belay", "is in use: another belay"];
        assert!(known.iter().any(|part| said.contains(part)), "{}: {said}", image.display());
    };
    let names = [disk.image(), disk.at("link"), outer.0.clone(), inner.0.clone(), part.0.clone()];
    for held in names.get(..4).unwrap() {
        let mount = Disk::serving(Disk::start_on(held, &[], &[]));
        for role in ["daemon", "supervisor", "keeper"] {
            names.iter().for_each(|name| refused(name, &elsewhere));
            // What keeps the others away outlives each of belay's processes.
            mount.signal(role, Signal::KILL);
            fs::metadata(&mount.mountpoint).unwrap();
            mount.wait_for("service", |status| status["state"] == "serving");
        }
        names.iter().for_each(|name| refused(name, &[]));
        names.iter().for_each(|name| refused(name, &elsewhere));
        mount.stop();
    }
    drop((part, inner, outer));
    disk.check();
}

/// S45: a loop device is known by its file, also when that has no more the name by which it was attached.
#[test]
fn s45_a_renamed_file_behind_a_loop_device_is_the_same() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    fs::hard_link(disk.image(), disk.at("first")).unwrap();
    let Some(device) = Loop::attach(&disk.at("first")) else {
        eprintln!("skipped: no loop devices");
        return;
    };
    // Another file has its name by now, and a good one.
    fs::remove_file(disk.at("first")).unwrap();
    fs::copy(disk.image(), disk.at("first")).unwrap();
    let mount = disk.hold(&[]);
    let mut second = Disk::start_on(&device.0, &[], &[]);
    assert_eq!(second.end().code(), Some(1), "{}", second.log());
    assert!(second.log().contains("holds it already"), "{}", second.log());
    drop(mount);
}

/// S45: two parts of one file are two images, and all of it is held by nobody then.
#[test]
fn s45_two_parts_of_one_file_are_two_images() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let length = fs::metadata(disk.image()).unwrap().len();
    let (both, size) = (disk.at("both"), length.to_string());
    fs::write(&both, fs::read(disk.image()).unwrap().repeat(2)).unwrap();
    let Some(first) = Loop::attach_with(&both, &["--sizelimit", &size]) else {
        eprintln!("skipped: no loop devices");
        return;
    };
    let second = Loop::attach_with(&both, &["--offset", &size]).unwrap();
    let (state, folder) = (disk.at("state"), disk.at("journals"));
    let one = Disk::serving(Disk::start_on(&first.0, &[], &[]));
    let two = Disk::serving(Disk::start_on(&second.0, &[(FOLDER, &folder)], &[]));
    let elsewhere = [("BELAY_STATE_DIR", state.as_path()), (FOLDER, state.as_path())];
    for image in [&both, &first.0, &second.0] {
        let mut third = Disk::start_on(image, &elsewhere, &[]);
        assert_eq!(third.end().code(), Some(1), "{}", third.log());
    }
    two.stop();
    one.stop();
    let all = Disk::serving(Disk::start_on(&both, &elsewhere[..0], &[]));
    let mut third = Disk::start_on(&second.0, &elsewhere, &[]);
    assert_eq!(third.end().code(), Some(1), "{}", third.log());
    assert!(third.log().contains("is in use: another belay has"), "{}", third.log());
    all.stop();
}

/// A state directory with one folder in it, as a hostile user would make it.
fn forged(owner: Option<u32>) -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::Builder::new().prefix("belay-paths-").tempdir_in("/dev/shm").unwrap();
    let state = dir.path().canonicalize().unwrap().join("state");
    let folder = state.join("mnt.1");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("lock"), "").unwrap();
    chown(&state, owner, owner).unwrap();
    (dir, state, folder)
}

fn belay(state: &Path, words: &[&str]) -> (i32, Vec<u8>) {
    let mut command = Belay::find().unwrap().command();
    command.args(words).arg("--state-dir").arg(state);
    let Output { status, stdout, stderr } = run(command, LIMIT).unwrap();
    (status.code().unwrap_or(-1), [stdout, stderr].concat())
}

/// S58: what somebody else has made is no state directory of this user's, root or not.
#[test]
fn s58_a_foreign_state_directory_is_not_believed() {
    let (_dir, state, folder) = forged(Some(65534));
    fs::write(folder.join("last-status.json"), "{}").unwrap();
    for words in [&["status"][..], &["stop", "/mnt"], &["status", "--json", "/mnt"]] {
        let (code, said) = belay(&state, words);
        let said = String::from_utf8_lossy(&said);
        assert!(code != 0 && said.contains("belongs to somebody else"), "{words:?}: {said}");
    }
    let (_dir, state, _) = forged(None);
    fs::set_permissions(state.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
    let (code, said) = belay(&state, &["status"]);
    assert!(code != 0 && String::from_utf8_lossy(&said).contains("others may exchange it"));
}

/// S58: nor is one that others could exchange, as an ACL or a group that is not this user's alone lets them write above it.
#[test]
fn s58_a_state_directory_that_an_acl_opens_is_refused() {
    let (_dir, state, _) = forged(None);
    let above = state.parent().unwrap();
    fs::set_permissions(above, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(belay(&state, &["status"]).0, 0);
    // As setfacl -m u:1000:rwx has it: the mode shows the mask of it in the place of the group.
    let entries = [(1_u16, 7_u16, !0_u32), (2, 7, 1000), (4, 5, !0), (16, 7, !0), (32, 5, !0)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, may, id) in entries {
        acl.extend([tag.to_le_bytes(), may.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    setxattr(above, "system.posix_acl_access", &acl, XattrFlags::empty()).unwrap();
    let refused = || {
        for words in [&["status"][..], &["run", "--", "bindfs", "-f", "/etc", "/mnt"]] {
            let mut command = Belay::find().unwrap().command();
            command.args(words).env("BELAY_STATE_DIR", &state);
            let output = run(command, LIMIT).unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains("others may exchange it"), "{said}");
        }
    };
    refused();
    removexattr(above, "system.posix_acl_access").unwrap();
    // The group of `nobody`, and of more.
    chown(above, None, Some(65534)).unwrap();
    fs::set_permissions(above, Permissions::from_mode(0o775)).unwrap();
    refused();
}

/// S58: whoever exchanges a state directory while a mount lives has nothing written elsewhere, by none of belay's processes.
#[test]
fn s58_what_is_written_goes_to_the_folder_of_the_start() {
    let dir = tempfile::Builder::new().prefix("belay-paths-").tempdir_in("/dev/shm").unwrap();
    let path = dir.path().canonicalize().unwrap();
    let (state, moved, victim) = (path.join("state"), path.join("moved"), path.join("victim"));
    let mut mount = Custom::start_with(&[("BELAY_STATE_DIR", &state)], &[], |place| {
        let source = format!("source={},cache=never,timeout=0", place.behind.display());
        let words = ["-f", "-o", &source].map(OsString::from);
        let program = std::iter::once(low_level_program().into());
        program.chain(words).chain([place.mountpoint.into()]).collect()
    });
    assert!(until(|| mount.is_mounted()), "{}", mount.log());
    fs::metadata(mount.at("file")).unwrap();
    let name = names(&state).into_iter().find(|name| state.join(name).is_dir()).unwrap();
    fs::rename(&state, &moved).unwrap();
    fs::write(&victim, "theirs").unwrap();
    let theirs = state.join(name.clone());
    fs::create_dir_all(theirs.join("reports")).unwrap();
    let files =
        (1..9).flat_map(|n| ["new", "json", "txt"].map(|kind| format!("reports/{n:04}.{kind}")));
    let files: Vec<_> =
        files.chain(["mount.new", "mount.json", "mounts", "config.json"].map(Into::into)).collect();
    for file in &files {
        symlink(&victim, theirs.join(file)).unwrap();
    }
    let place = mount.mountpoint.display().to_string();
    let status = || {
        let (_, said) = belay(&moved, &["status", "--json", &place]);
        serde_json::from_slice::<Value>(&said).ok()
    };
    let mut reports = 0;
    for role in ["daemon", "supervisor", "keeper"] {
        let serves = |status: &Value| status["state"] == "serving";
        let before = await_status("service", status, serves, || mount.log());
        let pid = number(&before, &format!("/{role}/pid"));
        kill(u32::try_from(pid).unwrap(), Signal::KILL).unwrap();
        let another = |now: &Value| serves(now) && now[role]["pid"] != pid && now[role]["pid"] != 0;
        await_status("another one", status, another, || mount.log());
        let (code, said) = belay(&moved, &["crash", &place]);
        assert_eq!(code, 0, "{}", String::from_utf8_lossy(&said));
        reports += 1 + u64::from(role == "daemon");
        let written = |now: &Value| number(now, "/reports") == reports;
        await_status("a report", status, written, || mount.log());
    }
    assert_eq!(belay(&moved, &["stop", &place]).0, 0, "{}", mount.log());
    mount.end();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs", "{}", mount.log());
    for file in &files {
        assert!(theirs.join(file).is_symlink(), "{file}");
    }
    let written = names(&moved.join(&name).join("reports"));
    assert_eq!(written.iter().filter(|file| file.ends_with(".txt")).count(), 4, "{written:?}");
    assert!(!moved.join(&name).join("control.sock").exists());
}

/// S58: pipes and endless files in the place of belay's own are no reason to wait, nor is a supervisor that answers without
/// end; and nothing of what is shown moves the reader's terminal.
#[test]
fn s58_nothing_waits_for_what_is_in_a_state_directory() {
    let (_dir, state, folder) = forged(None);
    mknodat(CWD, folder.join("config.json"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    symlink("/dev/zero", folder.join("last-status.json")).unwrap();
    assert_eq!(belay(&state, &["status"]).0, 0);
    fs::remove_file(folder.join("last-status.json")).unwrap();
    mknodat(CWD, folder.join("last-status.json"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(belay(&state, &["status"]).0, 0);

    let lock = File::open(folder.join("lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let listener = UnixListener::bind(folder.join("control.sock")).unwrap();
    let real = Custom::low_level(&[], &[]);
    let mut status = real.status().unwrap();
    status["mountpoint"] = "/mnt/\u{1b}]0;evil\u{7}\u{9b}2J".into();
    status["answer"] = "status".into();
    let answer = serde_json::to_vec(&status).unwrap();
    std::thread::spawn(move || {
        let mut asked = Vec::new();
        for (n, mut stream) in listener.incoming().flatten().enumerate() {
            asked.push(stream.try_clone());
            if n < 2 {
                let _ = stream.write_all(&answer).and_then(|()| stream.write_all(b"\n"));
            } else {
                while stream.write_all(&[b'x'; 65536]).is_ok() {}
            }
        }
    });
    for words in [&["status"][..], &["status", "--json"]] {
        let (_, said) = belay(&state, words);
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("evil"), "{said:?}");
        assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
    }
    let (code, said) = belay(&state, &["status"]);
    let said = String::from_utf8_lossy(&said);
    assert!(code != 0 && said.contains("its answer has more than"), "{said}");
}

/// S59: those who hold connections and ask for nothing keep nobody from stopping the mount.
#[test]
fn s59_idle_clients_do_not_shut_out_others() {
    let mut mount = Custom::low_level(&[], &[]);
    let socket = socket(&mount);
    let idle: Vec<_> = (0..200).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    mount.stop();
    assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
    drop(idle);
}

/// Not found by the keeper's id: dead mounts of older processes with that id may have left folders.
fn socket(mount: &Custom) -> PathBuf {
    let status = mount.status().unwrap();
    let reports = PathBuf::from(status["report_dir"].as_str().unwrap());
    reports.parent().unwrap().join("control.sock")
}

/// S59: who asks twice before the first answer has come gets both.
#[test]
fn s59_questions_may_come_before_answers() {
    use std::io::{BufRead, BufReader};
    let mount = Custom::low_level(&[], &[]);
    let mut client = UnixStream::connect(socket(&mount)).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client.write_all(b"{\"ask\":\"crash\",\"signal\":9}\n{\"ask\":\"status\"}\n").unwrap();
    let mut lines = BufReader::new(client).lines();
    assert!(lines.next().unwrap().unwrap().contains("recovered"), "{}", mount.log());
    assert!(lines.next().unwrap().unwrap().contains("generation"), "{}", mount.log());
}

/// A held mount that is shown at another place as well is belay's there, too: nobody is told to unmount it.
#[test]
fn a_mount_at_another_place_is_known() {
    let held = Custom::low_level(&[], &[]);
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut bind = Command::new("mount");
    bind.arg("--bind").arg(&held.mountpoint).arg(other.path());
    assert!(run(bind, LIMIT).unwrap().status.success());
    let output = Custom::belay(&["status".as_ref(), other.path().as_os_str()]);
    unmount(other.path(), UnmountFlags::DETACH).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let named = said.contains(held.mountpoint.to_str().unwrap()) && !said.contains("fusermount3");
    assert!(!output.status.success() && named, "{said}");
    held.stop();
}

/// S97: a mount that another one hides is not ended, by force either, which would leave a dead one below it.
#[test]
fn s97_a_mount_below_another_is_told() {
    let mut mount = Custom::low_level(&[], &[]);
    let mut cover = Command::new("mount");
    cover.args(["-t", "tmpfs", "none"]).arg(&mount.mountpoint);
    assert!(run(cover, LIMIT).unwrap().status.success());
    for how in ["--", "--lazy", "--force"] {
        let place = mount.mountpoint.as_os_str();
        let output = Custom::belay(&["stop".as_ref(), how.as_ref(), place]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("on top of it"), "{how}: {said}");
    }
    mount.tool(&["umount"]);
    mount.serves();
    mount.stop();
    assert_eq!(mount.end().code(), Some(0), "{}", mount.log());
}

/// S97: a signal ends it; what hides it is somebody else's, and stays.
#[test]
fn s97_a_signal_leaves_what_is_on_top() {
    let mut mount = Custom::low_level(&[], &[]);
    let mut cover = Command::new("mount");
    cover.args(["-t", "tmpfs", "none"]).arg(&mount.mountpoint);
    assert!(run(cover, LIMIT).unwrap().status.success());
    fs::write(mount.at("of others"), "text").unwrap();
    kill(mount.pid("keeper"), Signal::TERM).unwrap();
    mount.end();
    assert_eq!(fs::read_to_string(mount.at("of others")).unwrap(), "text", "{}", mount.log());
    assert!(mount.log().contains("on top of it"), "{}", mount.log());
    mount.tool(&["umount"]);
}

/// L12: a program that would run with the rights of others would run unheld: it is refused, the first time and later.
#[test]
fn l12_programs_with_other_rights_are_refused() {
    let dir = tempfile::Builder::new().prefix("belay-paths-").tempdir_in("/var/tmp").unwrap();
    let program = dir.path().canonicalize().unwrap().join("daemon");
    let start = || {
        let program = program.clone();
        Custom::start(&["--max-crashes", "3"], |place| {
            let source = format!("source={},cache=never,timeout=0", place.behind.display());
            let words = ["-f", "-o", &source].map(Into::into);
            let mut line: Vec<std::ffi::OsString> = vec![program.into()];
            line.extend(words);
            line.push(place.mountpoint.into());
            line
        })
    };
    fs::copy(low_level_program(), &program).unwrap();
    let give = || {
        chown(&program, Some(0), Some(65534)).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o2755)).unwrap();
    };
    give();
    let mut refused = start();
    assert_eq!(refused.end().code(), Some(1));
    assert!(refused.log().contains("set-gid for another group"), "{}", refused.log());
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let mount = start();
    mount.serves();
    give();
    mount.signal("daemon", Signal::KILL);
    assert!(until(|| mount.log().contains("set-gid for another group")), "{}", mount.log());
}

/// L12: nor is one started to which its file gives capabilities, which count for ordinary users.
#[test]
fn l12_programs_with_capabilities_are_refused() {
    // Where capabilities of files count; on a /dev/shm that is `nosuid` they do not.
    let dir = tempfile::Builder::new()
        .prefix("belay-paths-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in("/var/tmp")
        .unwrap();
    let program = dir.path().canonicalize().unwrap().join("daemon");
    copy(&low_level_program(), &program);
    let setcap = |words: &[&str]| {
        let mut command = Command::new("/sbin/setcap");
        command.args(words).arg(&program);
        let output = run(command, LIMIT).unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let words = "given capabilities by its file";
    let mut user = User::new();
    let source = format!("source={},cache=never,timeout=0", user.behind.display());
    let line = [
        program.clone().into(),
        "-f".into(),
        "-o".into(),
        source.into(),
        user.mountpoint.clone().into(),
    ];

    setcap(&["cap_net_raw+ep"]);
    user.start(&[], &line);
    assert_eq!(user.end().code(), Some(1), "{}", user.log());
    assert!(user.log().contains(words), "{}", user.log());
    assert!(!user.is_mounted());

    setcap(&["-r"]);
    user.start(&[], &line);
    user.serves();
    setcap(&["cap_net_raw+ep"]);
    user.signal("daemon", Signal::KILL);
    assert!(until(|| user.log().contains(words)), "{}", user.log());
    // It is waited for as any other program that cannot be started.
    setcap(&["-r"]);
    user.says(&["restart"]);
    let path = user.at("file");
    assert_eq!(user.does(move || fs::read_to_string(path).unwrap()), "text");
    user.stops_cleanly();
}
