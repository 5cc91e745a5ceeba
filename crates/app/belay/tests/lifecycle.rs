//! What a held mount needs, and what becomes of it when that is gone: belay's own files, the
//! daemon's program, all processes. These need root, bindfs and a built shim, and are skipped
//! without.

mod common;

use common::{Held, can_hold, copy, run, signal, text};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SHIM: &str = "libbelay_shim.so";

/// A copy of belay, to be damaged.
struct Installation(tempfile::TempDir);

impl Installation {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().expect("tempdir"));
        let built = Path::new(env!("CARGO_BIN_EXE_belay"));
        copy(built, &this.belay());
        copy(&built.with_file_name(SHIM), &this.shim());
        this
    }

    fn belay(&self) -> PathBuf {
        self.0.path().join("belay")
    }

    fn shim(&self) -> PathBuf {
        self.0.path().join(SHIM)
    }
}

/// Crashes each of the three processes, and the daemon in between.
fn crash_all(held: &Held) {
    for role in ["supervisor", "keeper"] {
        let old = held.pid(role);
        signal(old, Signal::KILL);
        held.wait_until("replaced", |status| {
            status[role]["pid"].as_i64().is_some_and(|pid| pid > 0 && pid != i64::from(old))
        });
        let output = held.ask(&["crash"]);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(held.read(), "content\n");
    }
}

/// S87: an installation that is removed, replaced, or written over.
#[test]
fn s87_a_held_mount_needs_nothing_of_the_installation() {
    if !can_hold() {
        return;
    }
    for how in ["removed", "replaced", "written over", "wiped"] {
        let installed = Installation::new();
        let held = Held::start_of(&installed.belay(), &[], &["-f"]);
        fs::remove_file(installed.belay()).expect("remove");
        match how {
            "removed" => fs::remove_file(installed.shim()).expect("remove"),
            "replaced" => {
                let other = installed.0.path().join("other");
                fs::write(&other, "not a library").expect("write");
                fs::rename(other, installed.shim()).expect("rename");
            }
            // Whoever maps that file dies of it.
            "written over" => fs::write(installed.shim(), "not a library").expect("write"),
            _ => fs::remove_dir_all(installed.0.path()).expect("remove"),
        }
        assert_eq!(held.read(), "content\n", "{how}");
        let output = held.ask(&["crash"]);
        assert!(output.status.success(), "{how}: {}", text(&output));
        crash_all(&held);
        let status = held.status();
        assert_eq!(status["crashes"], 3, "{how}: {status}");
        assert_eq!((&status["failed_starts"], &status["degraded"]), (&0.into(), &false.into()));
        let output = held.ask(&["stop"]);
        assert!(output.status.success(), "{how}: {}", text(&output));
    }
}

/// Puts another file into the place of the daemon's program; one that runs cannot be written to.
fn put_program(held: &Held, content: impl AsRef<[u8]>) {
    let new = held.daemon.with_extension("new");
    fs::write(&new, content).expect("write");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::rename(&new, &held.daemon).expect("rename");
}

fn program_reason(status: &Value) -> Option<String> {
    let reasons = status["degraded_reasons"].as_array()?;
    let one = reasons.iter().find(|reason| reason["kind"] == "program")?;
    one["what"].as_str().map(str::to_owned)
}

/// What is put into the place of the program, and what is said of it.
fn falls_back(corrupt: impl Fn(&Held), said: &str) {
    let held = Held::start(&[], &["-f"]);
    corrupt(&held);
    let begin = Instant::now();
    signal(held.pid("daemon"), Signal::KILL);
    assert_eq!(held.read(), "content\n");
    assert!(begin.elapsed() < Duration::from_secs(30), "only after {:?}", begin.elapsed());
    let status = held.wait_for("serving");
    let reason = program_reason(&status).unwrap_or_else(|| panic!("{status}\n{}", held.log()));
    assert!(reason.contains(said) && reason.contains("daemon"), "{reason}");
    assert!(text(&held.ask(&["status"])).contains("DEGRADED"));
    // What is known not to serve is not tried at each crash; nor does it matter who starts the next
    // one.
    let failed = status["failed_starts"].clone();
    crash_all(&held);
    let status = held.wait_for("serving");
    assert_eq!(status["failed_starts"], failed, "{status}");
    assert!(program_reason(&status).is_some());
    // Who asks for it gets it, and an answer.
    let restarted = held.ask(&["restart"]);
    let gone = !held.daemon.exists();
    assert_eq!(restarted.status.success(), gone, "{}", text(&restarted));
    assert!(gone || text(&restarted).contains(said), "{}", text(&restarted));
    assert_eq!(held.read(), "content\n");
    held.wait_for("serving");
    // A good one is used, and held.
    let new = held.daemon.with_extension("good");
    copy("/usr/bin/bindfs".as_ref(), &new);
    fs::rename(&new, &held.daemon).expect("rename");
    let output = held.ask(&["restart"]);
    assert!(output.status.success(), "{}\n{}", text(&output), held.log());
    let status = held.wait_until("mended", |status| status["degraded"] == false);
    assert_eq!(status["state"], "serving");
    fs::remove_file(&held.daemon).expect("remove");
    crash_all(&held);
    assert!(program_reason(&held.status()).is_some());
    assert!(held.ask(&["stop"]).status.success());
}

/// S88: the program is replaced by one that ends with an error.
#[test]
fn s88_a_new_program_that_fails() {
    if can_hold() {
        let script = "#!/bin/sh\necho out of order >&2\nexit 3\n";
        falls_back(
            |held| put_program(held, script),
            "exited with code 3; its last words: out of order",
        );
    }
}

/// S88: by one that cannot be run at all.
#[test]
fn s88_a_new_program_that_is_none() {
    if can_hold() {
        falls_back(|held| put_program(held, [0x7f, b'E', b'L', b'F', 0, 0]), "does not serve");
        falls_back(
            |held| {
                put_program(held, "x");
                let none = fs::Permissions::from_mode(0o644);
                fs::set_permissions(&held.daemon, none).expect("chmod");
            },
            "Permission denied",
        );
    }
}

/// S88: by nothing.
#[test]
fn s88_a_program_that_is_gone() {
    if can_hold() {
        falls_back(|held| fs::remove_file(&held.daemon).expect("remove"), "is gone");
    }
}

/// S88: by one that does not serve, which is removed then.
#[test]
fn s88_a_new_program_that_fails_and_goes() {
    if can_hold() {
        falls_back(
            |held| {
                put_program(held, "#!/bin/sh\nrm -f \"$0\"\nexit 3\n");
            },
            "was changed, did not serve, and is gone: it exited with code 3",
        );
    }
}

/// S88: by one that runs, and that belay's library cannot be loaded into. Nothing waits for it.
#[test]
fn s88_a_new_program_that_cannot_be_held() {
    if !can_hold() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, program) = (dir.path().join("a.c"), dir.path().join("a"));
    fs::write(&source, "#include <unistd.h>\nint main(void) { for (;;) pause(); }").expect("write");
    for option in ["-static", "-static-pie"] {
        let built = run(Command::new("cc").arg(option).arg("-o").arg(&program).arg(&source));
        if !built.status.success() {
            eprintln!("skipped: no compiler that can link with {option}");
            continue;
        }
        falls_back(
            |held| put_program(held, fs::read(&program).expect("read")),
            "runs without belay's library",
        );
    }
}

/// Kills keeper, supervisor and daemon, none of which sees another one go.
fn kill_all(held: &Held) {
    let status = held.status();
    let pid = |of: &str| status[of]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pids: Vec<i32> = ["keeper", "supervisor", "daemon"].into_iter().filter_map(pid).collect();
    for pid in &pids {
        signal(*pid, Signal::STOP);
    }
    for pid in &pids {
        signal(*pid, Signal::KILL);
    }
    // The first thread of a process looks ended while others have its files open yet.
    let gone = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        stat.is_empty() || (stat.contains(") Z ") && threads <= 1)
    };
    let end = Instant::now() + Duration::from_secs(30);
    while !pids.iter().all(gone) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// S89: keeper, supervisor and daemon are killed at once: it is said, and cleared away by whoever
/// comes next.
#[test]
fn s89_a_dead_mount_is_shown_and_taken_away() {
    if !can_hold() {
        return;
    }
    for crashes in [0, 1] {
        let mut held = Held::start(&[], &["-f"]);
        for _ in 0..crashes {
            assert!(held.ask(&["crash"]).status.success());
        }
        let open = fs::File::open(held.mount.join("file")).expect("open");
        kill_all(&held);
        held.exit_code();
        assert!(held.is_mounted(), "nobody has unmounted it");
        assert!(held.read().contains("not connected"), "{}", held.read());
        let status = held.status();
        assert_eq!(status["state"], "dead", "{status}");
        assert_eq!(status["daemon"]["pid"], Value::Null);
        let shown = text(&run(&held.belay(&["status"])));
        assert!(shown.contains("DEAD") && shown.contains("belay stop"), "{shown}");
        // To look at others cleans up nothing of it.
        let other = held.source.parent().expect("a folder").join("other");
        fs::create_dir(&other).expect("mkdir");
        let mut run_other = held.belay(&["run", "--", "bindfs", "-f"]);
        let mut run_other = run_other.arg(&held.source).arg(&other).spawn().expect("belay");
        let end = Instant::now() + Duration::from_secs(30);
        while !other.join("file").exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(held.status()["state"], "dead");
        let stopped = run(held.belay(&["stop"]).arg(&other));
        assert!(stopped.status.success(), "{}", text(&stopped));
        run_other.wait().expect("wait");
        let stopped = held.ask(&["stop"]);
        assert!(stopped.status.success(), "{}", text(&stopped));
        assert!(!held.is_mounted());
        assert_eq!(held.status(), Value::Null);
        drop(open);
    }
}

/// S89: a new `belay run` on the same place takes the dead mount away first.
#[test]
fn s89_a_new_start_clears_its_place() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    kill_all(&held);
    held.exit_code();
    let mut command = held.belay(&["run", "--"]);
    command.arg(&held.daemon).arg("-f").args([&held.source, &held.mount]);
    let log = held.log_file();
    let child = command.stdout(log.try_clone().expect("dup")).stderr(log).spawn().expect("belay");
    held.go_on_with(child);
    held.wait_for("serving");
    assert_eq!(held.read(), "content\n");
    assert!(held.log().contains("removed the dead mount"), "{}", held.log());
    assert!(held.ask(&["crash"]).status.success());
    assert!(held.ask(&["stop"]).status.success());
    assert!(!held.is_mounted());
}

/// S89: what is at the place by then is somebody else's mount, of the same kind; it stays.
#[test]
fn s89_the_mount_of_somebody_else_stays() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    kill_all(&held);
    held.exit_code();
    assert!(run(Command::new("umount").arg(&held.mount)).status.success());
    // It gets the numbers of the one that has gone, but for those that no other ever gets.
    assert!(run(Command::new("bindfs").args([&held.source, &held.mount])).status.success());
    assert_eq!(held.read(), "content\n");
    assert_eq!(held.status(), Value::Null);
    assert!(!held.ask(&["stop"]).status.success());
    let mut command = held.belay(&["run", "--"]);
    let started = run(command.arg(&held.daemon).arg("-f").args([&held.source, &held.mount]));
    assert!(text(&started).contains("it is busy"), "{}", text(&started));
    assert_eq!(held.read(), "content\n");
    assert!(run(Command::new("umount").arg(&held.mount)).status.success());
}

/// S89: the daemon alone is left: it serves on, and is not taken away unasked.
#[test]
fn s89_a_daemon_that_is_left_alone() {
    if !can_hold() {
        return;
    }
    let mut held = Held::start(&[], &["-f"]);
    let (keeper, supervisor) = (held.pid("keeper"), held.pid("supervisor"));
    for pid in [keeper, supervisor] {
        signal(pid, Signal::STOP);
    }
    for pid in [keeper, supervisor] {
        signal(pid, Signal::KILL);
    }
    held.exit_code();
    assert_eq!(held.read(), "content\n");
    let status = held.wait_for("unheld");
    assert!(status["daemon"]["pid"].is_u64(), "{status}");
    let mut command = held.belay(&["run", "--"]);
    let started = run(command.arg(&held.daemon).arg("-f").args([&held.source, &held.mount]));
    assert!(text(&started).contains("it is busy"), "{}", text(&started));
    let output = held.ask(&["stop"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(!held.is_mounted());
}

/// A group of processes that may be no more than these, if this machine has such groups.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Option<Self> {
        let root = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
        let has = |root: &&Path| root.join("cgroup.procs").exists();
        let dir = root.into_iter().find(has)?.join(format!("belay-{name}-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let this = Self(dir);
        if !this.0.join("pids.max").exists() {
            let _ = fs::write(this.0.with_file_name("cgroup.subtree_control"), "+pids");
        }
        this.0.join("pids.max").exists().then_some(this)
    }

    fn limit(&self, most: &str) {
        fs::write(self.0.join("pids.max"), most).expect("pids.max");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.limit("max");
        let end = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// S90: no process and no thread is to be had for a while, in which whoever is given dies.
#[test]
fn s90_processes_that_cannot_be_had_are_waited_for() {
    if !can_hold() {
        return;
    }
    let Some(group) = Group::new("s90") else {
        eprintln!("skipped: no groups that limit processes");
        return;
    };
    let held = Held::start(&["--max-crashes", "1", "--retry-for", "1h"], &["-f"]);
    for role in ["keeper", "supervisor", "daemon"] {
        fs::write(group.0.join("cgroup.procs"), held.pid(role).to_string()).expect("cgroup.procs");
    }
    // More than there are: some starts come further than others.
    for (most, whom) in [
        ("0", &["daemon"][..]),
        ("0", &["supervisor"]),
        ("0", &["keeper"]),
        ("0", &["supervisor", "daemon"]),
        ("3", &["supervisor", "daemon"]),
        ("4", &["supervisor"]),
        ("5", &["supervisor", "daemon"]),
    ] {
        let before = held.status();
        let pids: Vec<i32> = whom.iter().map(|role| held.pid(role)).collect();
        group.limit(most);
        for pid in pids {
            signal(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(1500));
        group.limit("max");
        assert_eq!(held.read(), "content\n", "{most} {whom:?}\n{}", held.log());
        let replaced = |status: &Value| {
            let other = |role: &str| {
                status[role]["pid"].is_u64()
                    && status[role]["pid"] != 0
                    && status[role]["pid"] != before[role]["pid"]
            };
            status["state"] == "serving" && whom.iter().all(|role| other(role))
        };
        let status = held.wait_until("replaced", replaced);
        assert_eq!(status["degraded"], false, "{status}");
    }
    // Nor at the end.
    group.limit("0");
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| held.ask(&["stop"]));
        let end = Instant::now() + Duration::from_secs(20);
        let waits = "cannot start a thread that unmounts: ";
        while !held.log().contains(waits) && !stopped.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        group.limit("max");
        let stopped = stopped.join().expect("stop");
        assert!(stopped.status.success(), "{}", text(&stopped));
    });
}

/// S90: the same for the very first start.
#[test]
fn s90_the_first_start_waits_as_well() {
    if !can_hold() {
        return;
    }
    let Some(group) = Group::new("s90-first") else {
        eprintln!("skipped: no groups that limit processes");
        return;
    };
    let dir = tempfile::tempdir().expect("tempdir");
    let (mount, state) = (dir.path().join("mount"), dir.path().join("state"));
    fs::create_dir(&mount).expect("mkdir");
    // A shell that goes into the group, and becomes belay there.
    let script = "echo $$ > \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(group.0.join("cgroup.procs"));
    command.arg(env!("CARGO_BIN_EXE_belay")).args(["run", "--", "bindfs", "-f"]);
    command.arg(dir.path()).arg(&mount).env("BELAY_STATE_DIR", &state);
    group.limit("2");
    let mut child = command.spawn().expect("sh");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().expect("wait").is_none(), "it gave up");
    group.limit("max");
    let belay = |word: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
        run(command.arg(word).arg(&mount).env("BELAY_STATE_DIR", &state))
    };
    let end = Instant::now() + Duration::from_secs(60);
    while !text(&belay("status")).contains("serving") && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let stopped = belay("stop");
    assert!(stopped.status.success(), "{}", text(&stopped));
    assert!(child.wait().expect("wait").success());
}

/// S90: descriptors that the supervisor cannot have for a while.
#[test]
fn s90_descriptors_that_cannot_be_had_are_waited_for() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&["--max-crashes", "1"], &["-f"]);
    let limit = |pid: i32, soft: &str| {
        let limited = run(Command::new("prlimit").args(["--pid", &pid.to_string()]).arg(soft));
        assert!(limited.status.success(), "{}", text(&limited));
    };
    for role in ["supervisor", "keeper"] {
        let (pid, daemon) = (held.pid(role), held.pid("daemon"));
        let supervisor = held.pid("supervisor");
        // It holds more than that: it gets none.
        limit(pid, "--nofile=5:4096");
        signal(daemon, Signal::KILL);
        if role == "keeper" {
            signal(supervisor, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(1200));
        limit(pid, "--nofile=1024:4096");
        assert_eq!(held.read(), "content\n", "{role}\n{}", held.log());
        let status = held.wait_until("served", |status| {
            status["state"] == "serving" && status["daemon"]["pid"] != daemon
        });
        assert_eq!(status["degraded"], false, "{status}");
    }
    assert!(held.ask(&["stop"]).status.success());
}
