//! S60, S100: mounts whose daemon does not start again come to their end when somebody wants that: nothing of belay's own is in
//! the way. S101: starts that leave a mount behind which nobody holds.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use belay_testbed::process::{Process, kill, run, run_ok};
use belay_testbed::{Belay, Signal, cache_dir, mounts};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::common::{LIMIT, call, drop_caches, start, state_of, until};
use crate::custom::Custom;

/// The daemon of `daemons/late.c`.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/daemons/late.c");
        let scratch = tempfile::tempdir_in(cache_dir().unwrap()).unwrap();
        let (fresh, program) = (scratch.path().join("late"), cache_dir().unwrap().join("late"));
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-I/usr/include/fuse3"]).arg(here).args(["-lfuse3", "-o"]);
        run_ok(
            {
                cc.arg(&fresh);
                cc
            },
            Duration::from_secs(120),
        )
        .unwrap();
        fs::rename(&fresh, &program).unwrap();
        program
    })
}

/// A mount, and the folder that says what keeps its daemon from starting.
struct Late {
    mount: Custom,
    says: tempfile::TempDir,
}

impl Late {
    fn serves(first: &[&str]) -> Self {
        let says = tempfile::Builder::new().prefix("belay-late-").tempdir_in("/dev/shm").unwrap();
        for word in first {
            fs::write(says.path().join(word), "").unwrap();
        }
        let mount = Custom::start_with(&[("LATE", says.path())], &[], |place| {
            vec![program().into(), "-f".into(), place.mountpoint.into()]
        });
        mount.wait_for("service", |status| status["state"] == "serving");
        fs::metadata(&mount.mountpoint).unwrap();
        // The kernel knows nothing but the root.
        drop_caches();
        Self { mount, says }
    }

    fn say(&self, word: &str) {
        fs::write(self.says.path().join(word), "").unwrap();
    }

    fn unsay(&self, word: &str) {
        fs::remove_file(self.says.path().join(word)).unwrap();
    }

    /// The daemon is dead, and the next one waits for long; belay has tried to wake it.
    fn starts_slowly(&self) {
        self.say("slow");
        self.mount.signal("daemon", Signal::KILL);
        assert!(until(|| self.mount.log().contains("the server is slow")), "{}", self.mount.log());
        std::thread::sleep(Duration::from_millis(300));
    }

    fn waits(&self) -> serde_json::Value {
        self.mount.wait_for("wait", |status| status["state"] == "waiting")
    }

    /// Processes that ask this mount for something.
    fn askers(&self) -> usize {
        let name = self.mount.mountpoint.as_os_str().as_encoded_bytes();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines
            .filter(|line| line.starts_with(b"stat\0"))
            .filter(|line| line.windows(name.len()).any(|part| part == name))
            .count()
    }
}

/// Unmounts it as a tool does. umount(8) itself may ask the daemon before. Another test's child may have it open for a moment,
/// and belay asks the mount for something now and then.
fn unmount(mount: &Custom, flags: UnmountFlags) {
    let mut last = Ok(());
    let done = until(|| {
        last = rustix::mount::unmount(&mount.mountpoint, flags | UnmountFlags::NOFOLLOW);
        last != Err(Errno::BUSY)
    });
    assert!(done && last.is_ok(), "{last:?}: {}", mount.log());
}

/// S100: while a successor starts slowly on a mount of which the kernel knows no file.
#[test]
fn s100_a_slow_start_can_be_ended() {
    for flags in [UnmountFlags::empty(), UnmountFlags::DETACH] {
        let mut late = Late::serves(&[]);
        late.starts_slowly();
        unmount(&late.mount, flags);
        late.mount.end();
        assert!(!late.mount.is_mounted());
    }
    for words in [&["stop"][..], &["stop", "--lazy"], &["stop", "--force"]] {
        let mut late = Late::serves(&[]);
        late.starts_slowly();
        late.mount.ask(words);
        late.mount.end();
        assert!(!late.mount.is_mounted());
    }
}

/// S100: while another start is waited for, after one that was slow and failed: nobody asks the mount any more.
#[test]
fn s100_a_wait_can_be_ended() {
    for flags in [Some(UnmountFlags::empty()), Some(UnmountFlags::DETACH), None] {
        let mut late = Late::serves(&[]);
        late.starts_slowly();
        late.say("away");
        late.unsay("slow");
        late.waits();
        assert!(until(|| late.askers() == 0), "the mount is asked for something");
        match flags {
            Some(flags) => unmount(&late.mount, flags),
            None => late.mount.stop(),
        }
        late.mount.end();
        assert!(!late.mount.is_mounted());
    }
}

/// S60: the log says what is waited for, for how long, and what the daemon itself has said; the status has its words too.
#[test]
fn s60_the_log_says_what_is_waited_for() {
    let late = Late::serves(&[]);
    late.say("away");
    late.mount.signal("daemon", Signal::KILL);
    let status = late.waits();
    assert_eq!(status["waiting"]["words"], serde_json::json!(["late: the server is away"]));
    let log = late.mount.log();
    let place = late.mount.mountpoint.display();
    let told = log.lines().find(|line| line.contains("does not start:"));
    let told = told.unwrap_or_else(|| panic!("nothing is said: {log}"));
    let words = "it exited with code 1; its last words: late: the server is away. Applications wait; try 2 is in 1s";
    assert!(told.contains(&format!("{place}: the daemon does not start: {words}")), "{told}");
    // The time that is left of --retry-for, which is ten minutes.
    let left = told.split("belay gives up in ").nth(1).unwrap_or_default();
    assert!(left.starts_with("10m (") || left.starts_with("9m "), "{told}");
    late.unsay("away");
    late.mount.ask(&["restart"]);
    let again = || late.mount.log().contains("the daemon has started again, after");
    assert!(until(again), "{}", late.mount.log());
    late.mount.stop();
}

/// S60: callers that wait for a daemon can be killed, and then nobody uses the mount.
#[test]
fn s60_callers_are_killed_while_the_daemon_is_waited_for() {
    let mut late = Late::serves(&[]);
    late.say("away");
    late.mount.signal("daemon", Signal::KILL);
    late.waits();
    let caller = start(Command::new("ls").arg(&late.mount.mountpoint));
    let pid = caller.pid();
    assert!(until(
        || state_of(pid) != 'R' && mounts::requests_waiting(&late.mount.mountpoint).unwrap() > 0
    ));
    kill(pid, Signal::KILL).unwrap();
    let ended = || matches!(state_of(pid), 'Z' | 'X');
    assert!(until(ended), "it cannot be killed: {}", state_of(pid));
    drop(caller);
    unmount(&late.mount, UnmountFlags::empty());
    late.mount.end();
}

/// S100: `belay stop` says what it waits for, if somebody waits for an answer.
#[test]
fn s100_a_stop_in_a_recovery_says_what_it_waits_for() {
    let late = Late::serves(&[]);
    late.starts_slowly();
    let place = late.mount.at("none");
    let caller = call(move || fs::metadata(place).map(drop));
    assert!(until(|| mounts::requests_waiting(&late.mount.mountpoint).unwrap() > 0));
    let log = late.says.path().join("stop");
    let mut command = Belay::find().unwrap().command();
    command.arg("stop").arg(&late.mount.mountpoint);
    let mut stop = Process::start(command, &log).unwrap();
    let said = || fs::read_to_string(&log).unwrap_or_default();
    assert!(until(|| said().contains("which is being started again")), "{}", said());
    assert!(!caller.is_done());
    late.unsay("slow");
    assert_eq!(caller.result().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(stop.wait(LIMIT).unwrap().is_some_and(|status| status.success()), "{}", said());
}

/// S60: a daemon that asks for a password again, and one in whose way a file of the dead one is.
#[test]
fn s60_what_is_in_the_way_of_a_start_is_said() {
    let late = Late::serves(&["once"]);
    late.say("password");
    late.mount.signal("daemon", Signal::KILL);
    let status = late.mount.wait_for("its words", |status| {
        status["waiting"]["words"].to_string().contains("no password")
    });
    assert!(status["waiting"]["hint"].is_null(), "{status}");
    late.unsay("password");
    let asked = |words: &[&str]| {
        let mut command = Belay::find().unwrap().command();
        command.args(words).arg(&late.mount.mountpoint);
        run(command, LIMIT).unwrap()
    };
    let restarted = asked(&["restart"]);
    assert!(!restarted.status.success(), "{restarted:?}");
    let status = late.mount.wait_for("the file", |status| {
        status["waiting"]["hint"].as_str().is_some_and(|hint| hint.contains("/pid holds"))
    });
    assert_eq!(status["state"], "waiting");
    late.unsay("pid");
    let restarted = asked(&["restart"]);
    assert!(restarted.status.success(), "{restarted:?}");
    fs::metadata(&late.mount.mountpoint).unwrap();
    late.mount.stop();
}

/// S101: a program that is no daemon and starts one leaves no mount behind, whether it waits for that or not, and also if both
/// stay.
#[test]
fn s101_what_starts_a_daemon_leaves_no_mount() {
    const STARTER: &str = "import subprocess, sys
stays = ['-f'] if sys.argv[1] == 'stays' else []
child = subprocess.Popen(['bindfs'] + stays + sys.argv[2:])
if sys.argv[1] != 'ends': child.wait()
";
    for how in ["waits", "ends", "stays"] {
        let mut mount = Custom::start(&[], |place| {
            let words = ["/usr/bin/python3", "-c", STARTER, how].map(OsString::from);
            words.into_iter().chain([place.behind.into(), place.mountpoint.into()]).collect()
        });
        assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
        let said = || mount.log().contains("and belay has unmounted it");
        assert!(until(said), "{how}: {}", mount.log());
        assert!(!mount.is_mounted(), "{how}: {}", mount.log());
    }
}

/// S101: the same of a program that is there to start others, and waits for them.
#[test]
fn s101_a_starter_that_stays_is_refused_at_once() {
    let mut mount = Custom::start(&[], |place| {
        let lock = place.dir.join("lock");
        let words = ["/usr/bin/flock".into(), lock.into(), "bindfs".into(), "-f".into()];
        words.into_iter().chain([place.behind.into(), place.mountpoint.into()]).collect()
    });
    assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
    let log = mount.log();
    assert!(log.contains("flock") && log.contains("and belay has unmounted it"), "{log}");
    assert!(!mount.is_mounted(), "{log}");
    // Nobody is left who could mount it once more.
    let name = mount.mountpoint.as_os_str().as_encoded_bytes();
    let serves = || {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let mut lines = lines.filter(|line| line.starts_with(b"bindfs\0"));
        lines.any(|line| line.windows(name.len()).any(|part| part == name))
    };
    assert!(until(|| !serves()), "{log}");
}
