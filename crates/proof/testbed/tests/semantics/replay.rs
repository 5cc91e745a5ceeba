//! S49: what was acknowledged and cannot be done again is kept, and `belay replay` does it later.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use belay_testbed::process::run;
use belay_testbed::{Kind, Signal, image};
use serde_json::Value;

use crate::common::{LIMIT, number};
use crate::custom::Custom;

const KIND: Kind = Kind::Fuse2fsExt4;

/// An image, and a fault that fuse2fs has as long as the test wants.
struct Faulty {
    dir: tempfile::TempDir,
}

impl Faulty {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("belay-replay-").tempdir_in("/dev/shm").unwrap();
        let faulty = Self { dir };
        image::make(KIND, &faulty.at("image"), 64).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/deadly.c");
        let mut build = Command::new("cc");
        build.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o"]);
        build.arg(faulty.at("deadly.so")).arg(source);
        let output = run(build, LIMIT).unwrap();
        assert!(output.status.success(), "{output:?}");
        faulty
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn mount(&self) -> Custom {
        let arguments = ["--policy", "epoch", "--checkpoint-interval", "1h"];
        let (library, armed) = (self.at("deadly.so"), self.at("armed"));
        let environment = [("LD_PRELOAD", &*library), ("BELAY_TEST_ARMED", &*armed)];
        let custom = Custom::start_with(&environment, &arguments, |place| {
            let words = ["fuse2fs", "-f", "-o", "fakeroot,default_permissions"];
            let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
            words.extend([self.at("image").into(), place.mountpoint.into()]);
            words
        });
        custom.wait_for("service", |status| status["state"] == "serving");
        custom
    }

    fn arm(&self, armed: bool) {
        if armed {
            File::create(self.at("armed")).unwrap();
        } else {
            fs::remove_file(self.at("armed")).unwrap();
        }
    }
}

/// What is there at the checkpoint.
fn before(top: &Path) {
    fs::create_dir(top.join("base")).unwrap();
    fs::write(top.join("base/kept"), "old").unwrap();
    fs::write(top.join("base/gone"), "to go").unwrap();
    fs::write(top.join("base/moved"), vec![3; 10_000]).unwrap();
}

/// What is acknowledged after it.
fn after(top: &Path) {
    let at = |name: &str| top.join("base").join(name);
    fs::write(at("kept"), "newer").unwrap();
    fs::create_dir(at("deadly")).unwrap();
    fs::write(at("deadly/new"), vec![7; 300_000]).unwrap();
    let file = OpenOptions::new().write(true).open(at("deadly/new")).unwrap();
    file.write_all_at(b"over", 100_000).unwrap();
    file.set_len(200_000).unwrap();
    drop(file);
    fs::rename(at("moved"), at("deadly/here")).unwrap();
    fs::hard_link(at("deadly/here"), at("link")).unwrap();
    fs::set_permissions(at("kept"), fs::Permissions::from_mode(0o4751)).unwrap();
    symlink("deadly/new", at("symlink")).unwrap();
    fs::remove_file(at("gone")).unwrap();
    let sub = at("deadly/sub");
    fs::create_dir(&sub).unwrap();
    std::os::unix::fs::chown(&sub, Some(1000), Some(1001)).unwrap();
    fs::write(sub.join("readonly"), "text").unwrap();
    fs::set_permissions(sub.join("readonly"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::rename(&sub, at("sub")).unwrap();
    rustix::fs::setxattr(at("kept"), "user.name", b"value", rustix::fs::XattrFlags::empty())
        .unwrap();
}

/// All that can be seen of a tree: path, mode, owner, links, content, time of change where `times`.
fn tree(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = vec![top.join("base")];
    while let Some(path) = rest.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let content = if stat.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else if stat.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            let bytes = fs::read(&path).unwrap();
            let sum = bytes.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            format!("{} bytes {sum:x}", bytes.len())
        };
        let links = if stat.is_dir() { 0 } else { stat.nlink() };
        let path = path.strip_prefix(top).unwrap().display().to_string();
        let (mode, uid, gid) = (stat.mode(), stat.uid(), stat.gid());
        found.push(format!("{path} {mode:o} {uid}:{gid} {links} {content}"));
    }
    found.sort();
    found
}

fn is_read_only<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|why| why.raw_os_error() == Some(libc::EROFS))
}

/// S49: the mount shows the checkpoint and refuses changes; the file, applied later, gives what was acknowledged; nothing
/// is applied twice; the image is clean at each end.
#[test]
fn s49_what_cannot_be_done_again_is_kept_and_replayed() {
    let faulty = Faulty::new();
    let reference = tempfile::tempdir().unwrap();
    before(reference.path());
    let old = tree(reference.path());
    after(reference.path());
    let new = tree(reference.path());

    let mut mount = faulty.mount();
    before(&mount.mountpoint);
    File::open(mount.at("base/kept")).unwrap().sync_all().unwrap();
    after(&mount.mountpoint);
    assert_eq!(tree(&mount.mountpoint), new, "before any crash");
    let mtime = fs::metadata(mount.at("base/deadly/new")).unwrap().modified().unwrap();
    faulty.arm(true);
    mount.signal("daemon", Signal::KILL);
    let status = mount.wait_for("the end of all attempts", |status| {
        status["read_only"].is_object() && status["state"] == "serving"
    });
    assert_eq!(number(&status, "/crashes"), 3, "{}", mount.log());
    assert_eq!(tree(&mount.mountpoint), old);
    assert!(is_read_only(fs::create_dir(mount.at("base/more"))));
    assert!(is_read_only(File::create(mount.at("base/more"))));
    assert!(is_read_only(OpenOptions::new().append(true).open(mount.at("base/kept"))));
    assert!(is_read_only(fs::remove_file(mount.at("base/kept"))));
    assert!(is_read_only(fs::rename(mount.at("base/kept"), mount.at("x"))));
    assert!(is_read_only(File::open(mount.at("base/kept")).unwrap().sync_all()));
    // One more crash, on the read-only mount.
    mount.crash_and_recover();
    assert_eq!(tree(&mount.mountpoint), old);

    let file = PathBuf::from(status["read_only"]["oplog"].as_str().unwrap());
    assert_eq!(file, faulty.at("image.belay-oplog"));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    let reason = status["read_only"]["reason"].as_str().unwrap();
    assert!(reason.contains("2 times") && reason.contains("base/deadly"), "{reason}");
    let dir = Path::new(status["report_dir"].as_str().unwrap());
    let reports: Vec<Value> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
        .collect();
    let named = |report: &&Value| report["read_only"]["oplog"] == file.to_str().unwrap();
    assert_eq!(reports.iter().filter(named).count(), 1, "{reports:#?}");
    let stop = Custom::belay(&[OsStr::new("stop"), mount.mountpoint.as_os_str()]);
    assert!(stop.status.success(), "{stop:?}\n{}", mount.log());
    mount.end();
    image::check(KIND, &faulty.at("image")).unwrap();

    faulty.arm(false);
    let mut mount = faulty.mount();
    assert_eq!(tree(&mount.mountpoint), old, "the image is at the checkpoint");
    let told = format!("`belay replay {} MOUNTPOINT`", file.display());
    assert!(mount.log().contains(&told), "who mounts it is told of what it lacks: {}", mount.log());
    let replay = |more: &[&str]| {
        let mut words = vec![OsStr::new("replay"), file.as_os_str(), mount.mountpoint.as_os_str()];
        words.extend(more.iter().map(OsStr::new));
        Custom::belay(&words)
    };
    let dry = replay(&["--dry-run"]);
    assert!(dry.status.success(), "{dry:?}");
    assert_eq!(tree(&mount.mountpoint), old, "nothing is done");
    assert!(String::from_utf8_lossy(&dry.stdout).contains("would be applied to"), "{dry:?}");
    let done = replay(&[]);
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("nothing is left to do"), "{done:?}");
    assert_eq!(tree(&mount.mountpoint), new, "{done:?}");
    let status = mount.status().unwrap();
    assert_eq!(number(&status, "/epoch/log_records"), 0, "it is not part of a checkpoint");
    let now = fs::metadata(mount.at("base/deadly/new")).unwrap().modified().unwrap();
    assert_eq!(now, mtime);
    let mut value = [0; 16];
    let size = rustix::fs::getxattr(mount.at("base/kept"), "user.name", &mut value[..]).unwrap();
    assert_eq!(&value[..size], b"value");
    // Once more: nothing is left to be applied, and nothing is.
    fs::remove_file(mount.at("base/link")).unwrap();
    let again = replay(&["--json"]);
    let last: Value = serde_json::from_slice(
        again.stdout.trim_ascii_end().rsplit(|b| *b == b'\n').next().unwrap(),
    )
    .unwrap();
    assert_eq!((&last["applied"], &last["left"]), (&0.into(), &0.into()), "{last}");
    assert!(!mount.at("base/link").exists());
    let stop = Custom::belay(&[OsStr::new("stop"), mount.mountpoint.as_os_str()]);
    assert!(stop.status.success(), "{stop:?}\n{}", mount.log());
    assert!(mount.end().success(), "{}", mount.log());
    image::check(KIND, &faulty.at("image")).unwrap();

    let mut mount = faulty.mount();
    assert!(!mount.log().contains(&told), "all of it is applied: {}", mount.log());
    let stop = Custom::belay(&[OsStr::new("stop"), mount.mountpoint.as_os_str()]);
    assert!(stop.status.success(), "{stop:?}\n{}", mount.log());
    assert!(mount.end().success(), "{}", mount.log());
}

/// S49: an operation that does not come out as it did stops the replay there; it can be left out.
#[test]
fn s49_a_replay_stops_where_something_differs() {
    let faulty = Faulty::new();
    let mut mount = faulty.mount();
    before(&mount.mountpoint);
    File::open(mount.at("base/kept")).unwrap().sync_all().unwrap();
    for name in ["one", "deadly", "three"] {
        fs::create_dir(mount.at(&format!("base/{name}"))).unwrap();
    }
    faulty.arm(true);
    mount.signal("daemon", Signal::KILL);
    let status = mount.wait_for("read-only service", |status| {
        status["read_only"].is_object() && status["state"] == "serving"
    });
    let file = PathBuf::from(status["read_only"]["oplog"].as_str().unwrap());
    Custom::belay(&[OsStr::new("stop"), mount.mountpoint.as_os_str()]);
    mount.end();
    // Applied to a plain directory, in which one of them is there already.
    let place = tempfile::tempdir().unwrap();
    before(place.path());
    fs::create_dir(place.path().join("base/deadly")).unwrap();
    let words = [OsStr::new("replay"), file.as_os_str(), place.path().as_os_str()];
    // Which must be said: an image that is not mounted is easily forgotten.
    let refused = Custom::belay(&words);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("nothing is mounted at"),
        "{refused:?}"
    );
    assert!(!place.path().join("base/one").exists());
    let words = [&words[..], &[OsStr::new("--anywhere")]].concat();
    let stopped = Custom::belay(&words);
    assert_eq!(stopped.status.code(), Some(1), "{stopped:?}");
    assert!(place.path().join("base/one").is_dir() && !place.path().join("base/three").exists());
    let told = String::from_utf8_lossy(&stopped.stderr).into_owned();
    let again = format!("`belay replay --anywhere {} {}", file.display(), place.path().display());
    let skipping = format!("{again} --skip`");
    for part in [
        "mkdir base/deadly",
        "cannot make the directory: File exists",
        &again,
        &skipping,
        "not applied",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let list = Custom::belay(&[OsStr::new("replay"), OsStr::new("--list"), file.as_os_str()]);
    let list = String::from_utf8(list.stdout).unwrap();
    for part in ["base/one: applied", "base/deadly: failed", "base/three: waits"] {
        assert!(list.contains(part), "{list}");
    }
    let on = Custom::belay(&[&words[..], &[OsStr::new("--skip")]].concat());
    assert!(on.status.success(), "{on:?}");
    assert!(place.path().join("base/three").is_dir());
    // Another file is none.
    fs::write(&file, "something else").unwrap();
    let none = Custom::belay(&words);
    assert_eq!(none.status.code(), Some(1));
    let told = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(told.contains("no op-log") && told.contains("`belay status`"), "{told}");
}
