//! Who serves another file system does not answer: nobody waits for that but who has to do with it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use belay_testbed::process::{Process, kill, run};
use belay_testbed::{Belay, Signal, mounts};
use serde_json::Value;
use tempfile::TempDir;

use crate::authority::{Forger, Words, forged_epoch};
use crate::common::{LIMIT, number, until};
use crate::custom::{Custom, Place, low_level_program};
use crate::journal::compile;

/// A folder that a daemon shows which belay does not hold, and which may cease to answer.
pub struct Elsewhere {
    server: Process,
    pub place: PathBuf,
    _dir: TempDir,
}

impl Elsewhere {
    pub fn start() -> Self {
        Self::start_of(None)
    }

    /// One that shows another folder, and has to wait if that does not answer.
    pub fn start_on(behind: &Path) -> Self {
        Self::start_of(Some(behind))
    }

    fn start_of(other: Option<&Path>) -> Self {
        let dir =
            tempfile::Builder::new().prefix("belay-elsewhere-").tempdir_in("/dev/shm").unwrap();
        let path = dir.path().canonicalize().unwrap();
        let (behind, place) = (path.join("behind"), path.join("place"));
        fs::create_dir(&behind).unwrap();
        fs::create_dir(&place).unwrap();
        let behind = other.unwrap_or(&behind);
        // What the kernel keeps of it would hide that nobody answers. It answers FLUSH, so each close waits.
        let source = format!("source={},cache=never,timeout=0", behind.display());
        let mut server = Command::new(low_level_program());
        server.args(["-f", "-o", &source]).arg(&place);
        let server = Process::start(server, &path.join("log")).unwrap();
        let elsewhere = Self { server, place, _dir: dir };
        assert!(until(|| mounts::find(&elsewhere.place).unwrap().is_some()), "no mount");
        elsewhere
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    pub fn falls_silent(&self) {
        kill(self.server.pid(), Signal::STOP).unwrap();
    }

    /// Whether a request that it has read makes it wait in a system call on a path.
    pub fn looks_for_a_name(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.server.pid())).unwrap();
        let calls = [libc::SYS_openat, libc::SYS_newfstatat, libc::SYS_fstat, libc::SYS_statx];
        tasks.flatten().any(|task| {
            let call = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
            let number = call.split(' ').next().and_then(|number| number.parse().ok());
            number.is_some_and(|number| calls.contains(&number))
        })
    }

    pub fn answers(&self) {
        kill(self.server.pid(), Signal::CONT).unwrap();
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.answers();
        mounts::unmount_by_force(&self.place);
        let _ = self.server.wait(LIMIT);
    }
}

/// An image with a file in each of two directories, of which fuseiso tells another number in each life.
fn make_image(dir: &Path, image: &Path) {
    let sample = dir.join("sample");
    for dir in ["a", "b"] {
        fs::create_dir_all(sample.join(dir)).unwrap();
        fs::write(sample.join(dir).join("name"), dir).unwrap();
    }
    let mut make = Command::new("genisoimage");
    make.args(["-quiet", "-R", "-o"]).arg(image).arg(&sample);
    let made = run(make, LIMIT).unwrap();
    assert!(made.status.success(), "{made:?}");
}

fn serving(mount: Custom) -> Custom {
    mount.wait_for("service", |status| status["state"] == "serving");
    mount
}

/// Kills the daemon. Whoever waits for a file system does not answer from then on.
fn kill_daemon(mount: &Custom) {
    mount.signal("daemon", Signal::KILL);
}

/// It may take all the times together that are given to a daemon, and to what it has left.
fn stop_by_force(mount: &Custom) {
    let mut command = Belay::find().unwrap().command();
    command.args(["stop", "--force"]).arg(&mount.mountpoint);
    run(command, 3 * LIMIT).unwrap();
}

/// The supervisor answers.
fn answers(mount: &Custom, what: &str, wanted: impl Fn(&Value) -> bool) {
    for _ in 0..3 {
        mount.wait_for(what, &wanted);
    }
}

/// S84, S60: the image is below the place that it is mounted at, where nobody sees it then.
#[test]
fn s84_an_image_below_its_own_mount() {
    let mount = serving(Custom::start(&[], |place| {
        let image = place.mountpoint.join("image");
        make_image(place.dir, &image);
        let words = ["fuseiso".into(), "-n".into(), image.into(), place.mountpoint.into()];
        words.into_iter().chain(["-f".into(), "-o".into(), "nonempty".into()]).collect()
    }));
    // The numbers are given in this order, and then in the other.
    let b = File::open(mount.at("b/name")).unwrap();
    let a = File::open(mount.at("a/name")).unwrap();
    let reads = |file: &File, wanted: &[u8]| {
        let mut text = [0];
        file.read_exact_at(&mut text, 0).unwrap_or_else(|why| panic!("{why}\n{}", mount.log()));
        assert_eq!(&text, wanted);
    };
    kill_daemon(&mount);
    mount.wait_for("service", |s| s["state"] == "serving" && s["generation"] == 1);
    reads(&a, b"a");
    // Another supervisor, which never had another way to the image than the one that it is handed.
    let supervisor = mount.signal("supervisor", Signal::KILL);
    mount.wait_for("takeover", |status| number(status, "/supervisor/pid") != u64::from(supervisor));
    mount.crash_and_recover();
    reads(&b, b"b");
    let status = mount.status().unwrap();
    assert_eq!(status["degraded"], false, "{status}");
    mount.stop();
}

/// The same of a daemon of which the kernel knows a file for every number.
#[test]
fn s60_an_image_below_its_own_mount() {
    let mount = serving(Custom::start(&[], |place| {
        let (sample, image) = (place.dir.join("sample"), place.mountpoint.join("image"));
        fs::create_dir(&sample).unwrap();
        fs::write(sample.join("file"), "text").unwrap();
        let mut make = Command::new("mksquashfs");
        make.args([&sample, &image]).args(["-quiet", "-no-progress"]);
        let made = run(make, LIMIT).unwrap();
        assert!(made.status.success(), "{made:?}");
        ["squashfuse".into(), "-f".into(), image.into(), place.mountpoint.into()].into()
    }));
    kill_daemon(&mount);
    mount.wait_for("service", |s| s["state"] == "serving" && s["generation"] == 1);
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "text");
    mount.stop();
}

/// Nobody answers where a successor has to go: it is waited for until somebody does, and then once more.
fn waits_for_answers(elsewhere: &Elsewhere, mount: &Custom) {
    let waits = |status: &Value| {
        let why = status.pointer("/waiting/reason").and_then(Value::as_str).unwrap_or_default();
        status["state"] == "waiting" && why.contains("does not answer")
    };
    elsewhere.falls_silent();
    kill_daemon(mount);
    answers(mount, "wait", waits);
    elsewhere.answers();
    mount.serves();
    elsewhere.falls_silent();
    kill_daemon(mount);
    answers(mount, "wait", waits);
}

/// S60: the daemon's program is where nobody answers. That is waited for, and is said.
#[test]
fn s60_a_program_where_nobody_answers() {
    let elsewhere = Elsewhere::start();
    let program = elsewhere.at("daemon");
    fs::copy(low_level_program(), &program).unwrap();
    let mut mount = Custom::start(&[], |place| {
        let source = format!("source={},cache=never,timeout=0", place.behind.display());
        let words =
            [program.into(), "-f".into(), "-o".into(), source.into(), place.mountpoint.into()];
        words.into()
    });
    mount.serves();
    waits_for_answers(&elsewhere, &mount);
    mount.stop();
    mount.end();
}

/// S60: so is what the daemon works on. It waits for that itself, and nobody else does.
#[test]
fn s60_an_image_or_a_store_where_nobody_answers() {
    let start_image = |elsewhere: &Elsewhere| {
        let image = elsewhere.at("image");
        Custom::start(&[], |place| {
            make_image(place.dir, &image);
            let words = ["fuseiso".into(), "-n".into(), image.into(), place.mountpoint.into()];
            words.into_iter().chain(["-f".into()]).collect()
        })
    };
    let start_store = |elsewhere: &Elsewhere| {
        let store = elsewhere.at("store");
        Custom::start(&["--policy", "buffer"], |place: &Place<'_>| {
            let (program, control) = (place.dir.join("daemon"), place.dir.join("control"));
            compile("archive.c", &program);
            fs::create_dir(&control).unwrap();
            fs::write(&store, "old 4\ntext").unwrap();
            let words = [program, store, control, place.mountpoint.into()];
            words.into_iter().map(Into::into).chain(["-f".into()]).collect()
        })
    };
    for start in [&start_image as &dyn Fn(&Elsewhere) -> Custom, &start_store] {
        let elsewhere = Elsewhere::start();
        let mut mount = serving(start(&elsewhere));
        let supervisor = mount.pid("supervisor");
        elsewhere.falls_silent();
        kill_daemon(&mount);
        // A daemon that has a file there open is not dead before that is closed.
        answers(&mount, "answer", |status| status["supervisor"]["pid"] == supervisor);
        elsewhere.answers();
        mount.wait_for("service", |s| s["state"] == "serving" && s["generation"] == 1);
        mount.stop();
        assert!(mount.end().success(), "{}", mount.log());
    }
}

/// S53: a daemon leaves a file in the mailboxes that it shares with belay; whoever has received it waits for its file system when
/// it is closed.
#[test]
fn s53_what_is_left_in_a_mailbox_holds_nobody_up() {
    // Where it is left, and whether the end has to do with what is there.
    for (order, policy) in
        [("post", "reconcile"), ("post", "epoch"), ("leave", "transaction"), ("leave", "epoch")]
    {
        let elsewhere = Elsewhere::start();
        let file = elsewhere.at("file");
        fs::write(&file, "text").unwrap();
        let variables = [("FORGE_LEAVES", file.as_path()), ("FORGE_READS", Path::new("1"))];
        let forges = (order, policy) == ("leave", "epoch");
        let words = |_: &Path| if forges { forged_epoch() } else { Words::default() };
        let mut forger = Forger::start_with(&variables, &["--policy", policy], words);
        forger.order(order);
        if forges {
            forger.order("words");
        }
        elsewhere.falls_silent();
        if order == "post" {
            forger.mount.crash_and_recover();
            let supervisor = forger.mount.signal("supervisor", Signal::KILL);
            let another =
                |status: &Value| number(status, "/supervisor/pid") != u64::from(supervisor);
            forger.mount.wait_for("takeover", another);
            forger.mount.crash_and_recover();
            forger.mount.tool(&["umount"]);
        } else {
            stop_by_force(&forger.mount);
        }
        forger.mount.end();
        if order == "leave" {
            forger.says("does not answer");
        }
    }
}

/// S53: a successor that takes what was left there for its image cannot even be killed; belay ends without it.
#[test]
fn s53_a_successor_that_cannot_be_killed_is_left_behind() {
    let elsewhere = Elsewhere::start();
    let file = elsewhere.at("file");
    fs::write(&file, "text").unwrap();
    let variables = [("FORGE_LEAVES", file.as_path()), ("FORGE_READS", Path::new("1"))];
    let arguments = ["--policy", "transaction"];
    let mut forger = Forger::start_with(&variables, &arguments, |_: &Path| Words::default());
    forger.order("leave");
    elsewhere.falls_silent();
    kill_daemon(&forger.mount);
    answers(&forger.mount, "successor", |status| status["generation"] == 1);
    stop_by_force(&forger.mount);
    forger.mount.end();
    forger.says("cannot be killed");
}

/// passthrough_ll, held on a place that somebody else serves.
fn mounted_there(elsewhere: &Elsewhere) -> Custom {
    let mountpoint = elsewhere.at("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let mut mount = Custom::start(&[], |place| {
        let place = Place { mountpoint: &mountpoint, ..*place };
        Custom::low_level_words(&place, &[])
    });
    mount.mountpoint = mountpoint;
    mount.serves();
    mount
}

/// What `belay stop WORDS` says of a mount where it is, and whether it succeeds.
fn stops(mount: &Custom, words: &[&str]) -> (bool, String) {
    let mut command = Belay::find().unwrap().command();
    command.arg("stop").args(words).arg(&mount.mountpoint);
    let output = run(command, 3 * LIMIT).unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Nobody answers on the way to the mount. What is left of it is dead, and goes when somebody does.
fn is_left(elsewhere: &Elsewhere, mount: &Custom) {
    assert!(mount.log().contains("does not answer"), "{}", mount.log());
    elsewhere.answers();
    assert!(mount.is_mounted(), "{}", mount.log());
    let (done, said) = stops(mount, &[]);
    assert!(done && !mount.is_mounted(), "{said}\n{}", mount.log());
}

/// S53, S60: the mountpoint is where nobody answers. A successor is waited for; belay itself answers, and can be ended.
#[test]
fn s60_a_mountpoint_where_nobody_answers() {
    let elsewhere = Elsewhere::start();
    let mut mount = mounted_there(&elsewhere);
    waits_for_answers(&elsewhere, &mount);
    let (done, said) = stops(&mount, &["--force"]);
    assert!(!done && said.contains("not unmounted yet"), "{said}");
    mount.end();
    is_left(&elsewhere, &mount);
}

/// S53: so it is while the daemon serves.
#[test]
fn s53_a_mountpoint_where_nobody_answers_holds_up_no_end() {
    let elsewhere = Elsewhere::start();
    let mut mount = mounted_there(&elsewhere);
    elsewhere.falls_silent();
    let (done, said) = stops(&mount, &[]);
    assert!(!done && said.contains("does not answer"), "{said}");
    let (done, said) = stops(&mount, &["--force"]);
    assert!(!done && said.contains("not unmounted yet"), "{said}");
    mount.end();
    is_left(&elsewhere, &mount);
    fs::remove_dir(&mount.mountpoint).unwrap();
    let mut mount = mounted_there(&elsewhere);
    // What the daemon does at its end waits there, too.
    elsewhere.falls_silent();
    mount.signal("daemon", Signal::STOP);
    mount.signal("keeper", Signal::TERM);
    answers(&mount, "answer", |status| status["state"] == "stopping");
    // Those that come close together are one wish.
    std::thread::sleep(Duration::from_millis(400));
    mount.signal("keeper", Signal::TERM);
    mount.end();
    is_left(&elsewhere, &mount);
}
