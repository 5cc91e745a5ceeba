//! S34, S38, S107, S108, L48: daemons whose processes do not end as others do.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use belay_testbed::process::{kill, wait_for_exit};
use belay_testbed::{Belay, Signal, mounts};

use crate::common::{LIMIT, call, state_of, until};
use crate::custom::Custom;
use crate::journal::compile;
use crate::user::User;

/// Where in the recorder it says which process serves.
const LEASE: u64 = 16;

/// The processes that this program runs in, by their command lines: zombies have none.
fn running(program: &Path) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let start = format!("{}\0", program.display()).into_bytes();
    let is_one = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(&start))
    };
    pids.filter(is_one).collect()
}

/// Whether many looks find nothing that this program runs in: of a chain, one look may see only those that have ended.
fn has_ended(program: &Path) -> bool {
    (0..300).all(|_| running(program).is_empty())
}

/// A mount by `grim.c`.
struct Grim {
    mount: Custom,
    program: PathBuf,
}

impl Grim {
    fn start(arguments: &[&str]) -> Self {
        let grim = Self::start_by(Belay::find().unwrap().command(), arguments, "-f");
        grim.mount.serves();
        grim
    }

    /// By a belay that has no CAP_KILL.
    fn start_powerless(arguments: &[&str]) -> Self {
        let belay = Belay::find().unwrap().command();
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-kill", "--inh-caps", "-kill"]).arg(belay.get_program());
        command.envs(belay.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let grim = Self::start_by(command, arguments, "-f");
        grim.mount.serves();
        grim
    }

    /// By this command that runs belay, with that option of libfuse's.
    fn start_by(command: Command, arguments: &[&str], option: &str) -> Self {
        let mut program = PathBuf::new();
        let mount = Custom::start_by(command, arguments, |place| {
            program = place.dir.join("grim");
            compile("grim.c", &program);
            let over = place.dir.join("over");
            let words: [OsString; 3] =
                [program.clone().into(), over.into(), place.mountpoint.into()];
            words.into_iter().chain(["-f".into(), option.into()]).collect()
        });
        Self { mount, program }
    }

    fn does(&self, what: &str) {
        fs::create_dir(self.mount.at(what)).unwrap();
    }
}

impl Drop for Grim {
    fn drop(&mut self) {
        // What does not end for belay ends for this.
        let _ = fs::write(self.program.with_file_name("over"), "");
        until(|| running(&self.program).iter().all(|pid| Some(*pid) == self.daemon()));
    }
}

impl Grim {
    fn daemon(&self) -> Option<u32> {
        let pid = self.mount.status()?.pointer("/daemon/pid")?.as_u64()?;
        u32::try_from(pid).ok()
    }
}

/// S3: a fork, which makes all memory shared for a while, has no request fail that a thread takes when the daemon is killed.
#[test]
fn s03_a_daemon_that_has_forked_is_killed_while_it_takes_requests() {
    let grim = Grim::start(&["--max-crashes", "0"]);
    for round in 0..25 {
        grim.does("child");
        let daemon = grim.mount.pid("daemon");
        let path = grim.mount.at("file");
        kill(daemon, Signal::KILL).unwrap();
        let text = call(move || fs::read_to_string(path)).result();
        assert_eq!(text.ok().as_deref(), Some("text"), "round {round}\n{}", grim.mount.log());
        grim.mount.serves();
    }
    grim.mount.stop();
}

/// S38: processes that start the next one and end, faster than anybody can look, are gone before a successor answers.
#[test]
fn s38_a_chain_of_forks_ends_with_its_generation() {
    let grim = Grim::start(&["--max-crashes", "0"]);
    for _ in 0..4 {
        grim.does("forks");
        grim.mount.crash_and_recover();
        grim.mount.serves();
        assert_eq!(running(&grim.program), [grim.mount.pid("daemon")], "{}", grim.mount.log());
    }
    grim.does("forks");
    grim.mount.crash_and_recover();
    grim.mount.stop();
    assert!(has_ended(&grim.program), "{}", grim.mount.log());
}

/// S34: what a daemon has started ends with it if it is killed at the end, though nothing of it was ever fenced.
#[test]
fn s34_a_chain_of_forks_ends_with_a_daemon_that_is_killed_at_the_end() {
    let mut grim = Grim::start(&[]);
    grim.does("forks");
    assert!(until(|| running(&grim.program).len() > 1));
    grim.mount.signal("daemon", Signal::STOP);
    // A second wish, a moment after the first one, ends all patience.
    let belay = grim.mount.pid("supervisor");
    assert!(until(|| {
        let _ = kill(belay, Signal::TERM);
        grim.mount.exited().is_some()
    }));
    assert!(has_ended(&grim.program), "{}", grim.mount.log());
}

/// S34, S36: the same if belay gives the mount up.
#[test]
fn s34_a_chain_of_forks_ends_with_a_mount_that_is_given_up() {
    let mut grim = Grim::start(&["--max-crashes", "1", "--poison-after", "0"]);
    grim.does("mortal");
    assert!(fs::read(grim.mount.at("file")).is_err());
    assert_eq!(grim.mount.end().code(), Some(1), "{}", grim.mount.log());
    assert!(has_ended(&grim.program), "{}", grim.mount.log());
}

/// S38: the same for an ordinary user, whose successors have no namespace to be told by.
#[test]
fn s38_a_users_chain_of_forks_ends_with_its_generation() {
    let mut user = User::new();
    let built = user.home.join("grim");
    compile("grim.c", &built);
    let program = user.program(&built);
    let over = user.home.join("over");
    let words: [OsString; 4] =
        [program.clone().into(), over.clone().into(), user.mountpoint.clone().into(), "-f".into()];
    user.start(&["--max-crashes", "0"], &words);
    user.serves();
    for _ in 0..2 {
        let path = user.at("forks");
        user.does(move || fs::create_dir(path).unwrap());
        user.crash();
        let path = user.at("file");
        assert_eq!(user.does(move || fs::read_to_string(path).unwrap()), "text");
        let left = running(&program);
        if left != [user.pid("daemon")] {
            fs::write(&over, "").unwrap();
            panic!("{left:?} are there\n{}", user.log());
        }
    }
    user.stops_cleanly();
}

/// S107: a process of its own traces the daemon and keeps it in its death. It is dead all the same.
#[test]
fn s107_a_daemon_that_its_child_keeps_is_dead() {
    let grim = Grim::start(&[]);
    grim.does("traced");
    let daemon = grim.mount.signal("daemon", Signal::KILL);
    // A thread that is killed while it takes a request, to a buffer that a fork has made shared, has the kernel fail that.
    let threads = || fs::read_dir(format!("/proc/{daemon}/task")).unwrap().count();
    assert!(until(|| state_of(daemon) == 't' && threads() == 1), "{}", grim.mount.log());
    let path = grim.mount.at("file");
    let read = call(move || fs::read_to_string(path)).result();
    assert_eq!(read.ok().as_deref(), Some("text"), "{}", grim.mount.log());
    assert!(wait_for_exit(daemon, LIMIT).unwrap(), "{}", grim.mount.log());
    assert!(grim.mount.log().contains("traces it"), "{}", grim.mount.log());
    grim.mount.serves();
    assert_eq!(running(&grim.program), [grim.mount.pid("daemon")], "{}", grim.mount.log());
    grim.mount.stop();
}

/// S107: the same when the daemon exits by itself, in which nobody sees that it is dead: belay can be stopped by force.
#[test]
fn s107_a_daemon_that_its_child_keeps_can_be_stopped() {
    // By its first thread, which is the one that is traced.
    let mut grim = Grim::start_by(Belay::find().unwrap().command(), &[], "-s");
    grim.mount.serves();
    grim.does("traced");
    let daemon = grim.mount.pid("daemon");
    let path = grim.mount.at("quits");
    let caller = call(move || fs::create_dir(path));
    assert!(until(|| state_of(daemon) == 't'), "{}", grim.mount.log());
    Custom::belay(&["stop".as_ref(), "--force".as_ref(), grim.mount.mountpoint.as_os_str()]);
    assert!(caller.result().is_err());
    grim.mount.end();
    assert!(wait_for_exit(daemon, LIMIT).unwrap(), "{}", grim.mount.log());
    assert!(grim.mount.log().contains("which does not end: it is killed"), "{}", grim.mount.log());
    assert!(!grim.mount.is_mounted());
}

/// S107: somebody else keeps it, whom belay does not end. One that exits by itself is found to be dead when it is to be ended.
#[test]
fn s107_a_daemon_that_somebody_keeps_is_dead() {
    let arguments = ["--hang-timeout", "1s", "--max-crashes", "0"];
    let grim = Grim::start_by(Belay::find().unwrap().command(), &arguments, "-s");
    grim.mount.serves();
    let over = grim.program.with_file_name("over");
    for exits in [false, true] {
        let daemon = grim.mount.pid("daemon");
        let mut tracer = Command::new(&grim.program);
        tracer.arg(&over).args(["trace", &daemon.to_string()]).stdout(Stdio::piped());
        let mut tracer = tracer.spawn().unwrap();
        assert_eq!(tracer.stdout.take().unwrap().read(&mut [0]).unwrap(), 1);
        if exits {
            let path = grim.mount.at("quits");
            assert!(call(move || fs::create_dir(path)).result().is_err(), "{}", grim.mount.log());
        } else {
            kill(daemon, Signal::KILL).unwrap();
        }
        let path = grim.mount.at("file");
        assert_eq!(call(move || fs::read_to_string(path).unwrap()).result(), "text");
        assert_ne!(grim.mount.pid("daemon"), daemon);
        assert_eq!(state_of(daemon), 't', "{}", grim.mount.log());
        assert_eq!(grim.mount.log().matches("traces it").count(), 1 + usize::from(exits));
        tracer.kill().unwrap();
        tracer.wait().unwrap();
        assert!(wait_for_exit(daemon, LIMIT).unwrap(), "{}", grim.mount.log());
    }
    grim.mount.serves();
    grim.mount.stop();
}

/// S107: the core of a dead daemon goes to its own mount, where only its successor can take it.
#[test]
fn s107_a_core_that_goes_to_the_own_mount() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['|', '/', '@']) {
        // Another pattern is for the whole machine, so that a test does not set one.
        eprintln!("skipped: cores go to {pattern}");
        return;
    }
    let grim = Grim::start(&["--max-crashes", "0"]);
    grim.does("core");
    let daemon = grim.mount.signal("daemon", Signal::SEGV);
    let path = grim.mount.at("file");
    assert_eq!(call(move || fs::read_to_string(path).unwrap()).result(), "text");
    assert!(wait_for_exit(daemon, LIMIT).unwrap(), "{}", grim.mount.log());
    let log = grim.mount.log();
    assert!(log.contains("its core is being written") && log.contains("SIGSEGV"), "{log}");
    grim.mount.serves();
    grim.mount.stop();
}

/// S108: a daemon that has changed its user, and a belay that may not end it: that is said, and nobody waits for it.
#[test]
fn s108_a_daemon_that_belay_may_not_end() {
    let mut grim = Grim::start_powerless(&["--hang-timeout", "1s"]);
    assert!(grim.mount.log().contains("has no CAP_KILL"), "{}", grim.mount.log());
    grim.does("user");
    let daemon = grim.mount.pid("daemon");
    grim.mount.wait_for("reason", |status| status["degraded_reasons"][0]["kind"] == "kill");
    let crash = Custom::belay(&["crash".as_ref(), grim.mount.mountpoint.as_os_str()]);
    let said = String::from_utf8_lossy(&crash.stderr);
    assert!(!crash.status.success() && said.contains("not permitted"), "{said}");
    // It would end by itself, as it is unmounted.
    kill(daemon, Signal::STOP).unwrap();
    Custom::belay(&["stop".as_ref(), "--force".as_ref(), grim.mount.mountpoint.as_os_str()]);
    assert_eq!(grim.mount.end().code(), Some(1), "{}", grim.mount.log());
    let told = format!("process {daemon}, the daemon, lives on");
    assert!(grim.mount.log().contains(&told), "{}", grim.mount.log());
    assert!(!grim.mount.is_mounted());
    kill(daemon, Signal::KILL).unwrap();
    assert!(wait_for_exit(daemon, LIMIT).unwrap());
}

/// S108: such a daemon that nobody can tell from another any more, as the lease names somebody else, is given up.
#[test]
fn s108_a_daemon_gone_mad_that_belay_may_not_end() {
    let mut grim = Grim::start_powerless(&[]);
    grim.does("user");
    let daemon = grim.mount.pid("daemon");
    let lease = u64::from(std::process::id()); // generation 0
    grim.mount.recorder().write_all_at(&lease.to_ne_bytes(), LEASE).unwrap();
    assert_eq!(grim.mount.end().code(), Some(1), "{}", grim.mount.log());
    let told = format!("process {daemon}, the daemon, lives on");
    assert!(grim.mount.log().contains(&told), "{}", grim.mount.log());
    kill(daemon, Signal::KILL).unwrap();
    assert!(wait_for_exit(daemon, LIMIT).unwrap());
    mounts::unmount_by_force(&grim.mount.mountpoint);
}

/// L48: a daemon in a PID namespace of its own is refused at its first start.
#[test]
fn l48_a_pid_namespace_of_its_own_is_refused() {
    let mut belay = Belay::find().unwrap().command();
    belay.env("GRIM_NEWPID", "1");
    let mut grim = Grim::start_by(belay, &[], "-f");
    assert_eq!(grim.mount.end().code(), Some(1), "{}", grim.mount.log());
    let log = grim.mount.log();
    assert!(log.contains("PID namespace of its own") && !log.contains("generation 1"), "{log}");
    assert!(!grim.mount.is_mounted());
    assert!(until(|| running(&grim.program).is_empty()), "{log}");
}
