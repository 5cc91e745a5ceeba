//! S68: daemons that wait for their device in poll, select or epoll are held like those that read it and wait there. L33: those
//! that wait by other means.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use belay_testbed::process::run_ok;
use belay_testbed::{Belay, Signal, cache_dir, mounts};

use crate::common::{Trap, When, call, until};
use crate::custom::Custom;

/// The example daemon with other loops, see `daemons/waiting.c`.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/daemons/waiting.c");
        let scratch = tempfile::tempdir_in(cache_dir().unwrap()).unwrap();
        let (fresh, program) =
            (scratch.path().join("waiting"), cache_dir().unwrap().join("waiting"));
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-w", "-I/usr/share/doc/libfuse3-dev/examples"])
            .args(["-DHAVE_SETXATTR", "-DHAVE_UTIMENSAT", "-DHAVE_POSIX_FALLOCATE"])
            .args(["-DHAVE_COPY_FILE_RANGE", "-DHAVE_FDATASYNC", "-DHAVE_STRUCT_STAT_ST_ATIM"])
            .arg(here)
            .args(["-I/usr/include/fuse3", "-lfuse3", "-luring", "-o"])
            .arg(&fresh);
        run_ok(cc, Duration::from_secs(120)).unwrap();
        fs::rename(&fresh, &program).unwrap();
        program
    })
}

fn waiting(how: &str, arguments: &[&str], foreground: bool, beats: &Beats) -> Custom {
    let custom = start(how, arguments, foreground, beats);
    custom.serves();
    beats.beat(&custom, how);
    custom
}

fn start(how: &str, arguments: &[&str], foreground: bool, beats: &Beats) -> Custom {
    mounts::ensure_control_files().unwrap();
    let variables = [("WAITING_LOOP", Path::new(how)), ("WAITING_BEATS", &beats.0)];
    Custom::start_with(&variables, arguments, |place| {
        let source = format!("source={},cache=never,timeout=0", place.behind.display());
        let mut words: Vec<OsString> = vec![program().into()];
        words.extend(foreground.then(|| "-f".into()));
        words.extend(["-o".into(), source.into(), place.mountpoint.into()]);
        words
    })
}

/// Where the daemon's loop says that it goes on.
struct Beats(PathBuf, #[expect(dead_code, reason = "removes it")] tempfile::TempDir);

impl Beats {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("belay-beats-").tempdir_in("/dev/shm").unwrap();
        Self(dir.path().join("beats"), dir)
    }

    /// The daemon's loop must answer what it waits for besides its device: it does not if it is stuck in a read of that.
    fn beat(&self, custom: &Custom, how: &str) {
        fs::write(&self.0, "").unwrap();
        custom.signal("daemon", Signal::USR1);
        assert!(
            until(|| fs::read(&self.0).unwrap() == b"b"),
            "{how}: its loop hangs\n{}",
            custom.log()
        );
    }
}

/// Every way to wait that the C library has, and not to wait, but to try again and again.
const LOOPS: [&str; 22] = [
    "poll",
    "poll timeout",
    "poll nonblock",
    "ppoll",
    "ppoll timeout dup",
    "select",
    "select timeout fionbio",
    "pselect",
    "epoll",
    "epoll timeout nonblock",
    "epoll once",
    "epoll once nonblock pwait",
    "epoll edge nonblock",
    "epoll edge nonblock writable",
    "epoll edge fionbio pwait2",
    "epoll pwait dup",
    "poll later",
    "epoll later",
    "epoll twice",
    "select short later",
    "naps nonblock",
    "naps fionbio",
];

/// Runs `test` for each of `loops`, two at a time.
fn for_each(loops: &'static [&'static str], test: fn(&str)) {
    let (even, odd): (Vec<_>, Vec<_>) = loops.iter().enumerate().partition(|(at, _)| at % 2 == 0);
    std::thread::scope(|scope| {
        for half in [even, odd] {
            scope.spawn(move || half.into_iter().for_each(|(_, how)| test(how)));
        }
    });
}

/// What the kernel knows of a mount that nobody has used for long: its root.
fn crash_idle(custom: &Custom, times: u32) {
    for _ in 0..times {
        crate::common::drop_caches();
        custom.crash_and_recover();
    }
}

/// S68: on a mount that nobody uses the kernel has nothing for a successor; it serves all the same, and its loop goes on.
#[test]
fn s68_idle_mounts_of_daemons_that_poll() {
    for_each(&LOOPS, |how| {
        let beats = Beats::new();
        let custom = waiting(how, &["--policy", "reconcile"], true, &beats);
        crash_idle(&custom, 20);
        beats.beat(&custom, how);
        assert_eq!(fs::read_to_string(custom.at("file")).unwrap(), "text", "{how}");
        custom.stop();
    });
}

/// S68: an epoll set that was made before the daemon went into the background.
#[test]
fn s68_polling_in_the_background() {
    let beats = Beats::new();
    let custom = waiting("epoll early", &[], false, &beats);
    crash_idle(&custom, 5);
    beats.beat(&custom, "in the background");
    custom.stop();
}

/// S68: what was in flight and what waits is answered as by any other daemon, under each policy.
#[test]
fn s68_requests_of_daemons_that_poll() {
    for_each(&DIFFERENT, |how| {
        let beats = Beats::new();
        let policy = if how.len() % 2 == 0 { "reconcile" } else { "journal" };
        let custom = waiting(how, &["--policy", policy], true, &beats);
        let file = File::options().read(true).write(true).create_new(true).open(custom.at("open"));
        let file = file.unwrap();
        waiting_requests(&custom, &file);
        beats.beat(&custom, how);
        request_in_flight(&custom);
        beats.beat(&custom, how);
        // While somebody works on it.
        let root = custom.mountpoint.clone();
        let worker = call(move || work(&root, 20));
        while !worker.is_done() {
            custom.crash_and_recover();
        }
        worker.result();
        beats.beat(&custom, how);
        drop(file);
        custom.stop();
    });
}

/// One of each way to wait, and of each of the kernel's ways to say that there is something.
const DIFFERENT: [&str; 7] = [
    "poll",
    "poll nonblock",
    "ppoll timeout dup",
    "select",
    "epoll once",
    "epoll edge nonblock writable",
    "naps nonblock",
];

/// Lets a stopped process go on, whatever happens.
struct Stopped(u32);

impl Stopped {
    fn stop(pid: u32) -> Self {
        belay_testbed::process::kill(pid, Signal::STOP).unwrap();
        let stopped = Self(pid);
        assert!(until(|| crate::common::state_of(pid) == 'T'), "process {pid} does not stop");
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = belay_testbed::process::kill(self.0, Signal::CONT);
    }
}

/// Calls that come while there is no daemon. None of them needs a lock of the kernel that another of them holds.
fn waiting_requests(custom: &Custom, file: &File) {
    let place = custom.at("place");
    fs::create_dir(&place).unwrap();
    let place = File::open(place).unwrap();
    let within = PathBuf::from(format!("/proc/self/fd/{}/new", place.as_raw_fd()));
    let copy = file.try_clone().unwrap();
    let daemon = custom.pid("daemon");
    let stopped = Stopped::stop(custom.pid("supervisor"));
    belay_testbed::process::kill(daemon, Signal::KILL).unwrap();
    let callers = [
        call(move || assert_eq!(copy.write_at(b"written", 0).unwrap(), 7)),
        call(move || fs::write(within, "new").unwrap()),
    ];
    let waiting = || mounts::requests_waiting(&custom.mountpoint).unwrap();
    assert!(until(|| waiting() >= 2), "{} requests wait", waiting());
    drop(stopped);
    for caller in callers {
        caller.result();
    }
    let mut bytes = [0; 7];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 7);
    assert_eq!(&bytes, b"written");
    assert_eq!(fs::read_to_string(custom.at("place/new")).unwrap(), "new");
}

/// A request that the daemon has carried out when it dies, and not answered.
fn request_in_flight(custom: &Custom) {
    let daemon = custom.pid("daemon");
    let trap = Trap::set(daemon, "mkdirat", 1, When::After);
    let path = custom.at("once");
    let maker = call(move || fs::create_dir(path).unwrap());
    trap.await_catch();
    belay_testbed::process::kill(daemon, Signal::KILL).unwrap();
    drop(trap);
    maker.result();
    assert!(custom.behind.join("once").is_dir());
}

/// Does things that succeed once only.
fn work(root: &Path, times: u32) {
    for n in 0..times {
        let at = |what: &str| root.join(format!("{what}{n}"));
        fs::write(at("work"), n.to_string()).unwrap();
        fs::create_dir(at("place")).unwrap();
        fs::rename(at("work"), at("place").join("moved")).unwrap();
        assert_eq!(fs::read_to_string(at("place").join("moved")).unwrap(), n.to_string());
        fs::remove_file(at("place").join("moved")).unwrap();
        fs::remove_dir(at("place")).unwrap();
    }
}

/// S68: a child that uses its parent's memory, as of vfork, closes descriptors of its own only.
#[test]
fn s68_children_of_vfork_close_nothing_of_the_daemon() {
    for how in ["poll vfork", "epoll vfork"] {
        let beats = Beats::new();
        let custom = waiting(how, &[], true, &beats);
        crash_idle(&custom, 2);
        beats.beat(&custom, how);
        custom.stop();
    }
}

/// S68: O_NONBLOCK, which belongs to what all generations share, is not handed on to one that has not set it: this one takes
/// EAGAIN for an error.
#[test]
fn s68_nonblocking_is_not_inherited() {
    let beats = Beats::new();
    let custom = start("plain inherited", &[], true, &beats);
    custom.serves();
    crash_idle(&custom, 2);
    custom.serves();
    custom.stop();
}

/// L33: a daemon that waits in a ring of io_uring is woken by requests.
#[test]
fn l33_waiting_in_io_uring() {
    let beats = Beats::new();
    let custom = waiting("uring nonblock", &[], true, &beats);
    crash_idle(&custom, 5);
    beats.beat(&custom, "io_uring");
    custom.stop();
}

/// L33: what reads the device by other means than the C library's functions is ended with a message.
#[test]
fn l33_reading_without_the_c_library() {
    let beats = Beats::new();
    let mut custom = start("plain raw", &[], true, &beats);
    let status = custom.end();
    let log = custom.log();
    assert!(!status.success() && log.contains("by other means than the C library's"), "{log}");
    assert!(!custom.is_mounted());
}

fn event_loop() -> OsString {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/daemons/event_loop.py").into()
}

/// S68: an event loop of Python's: trio's, which waits in epoll for the device of pyfuse3 and for a socket pair of its own.
#[test]
fn s68_an_event_loop_of_python() {
    let custom = Custom::start(&[], |place| {
        vec!["/usr/bin/python3".into(), event_loop(), place.mountpoint.into()]
    });
    custom.serves();
    crash_idle(&custom, 5);
    custom.serves();
    custom.stop();
}

/// S68: an event loop of Rust's: tokio's, which reads the device without waiting when epoll says so.
#[test]
fn s68_an_event_loop_of_rust() {
    let custom = Custom::start(&[], |place| {
        let belay = PathBuf::from(Belay::find().unwrap().command().get_program());
        let program = belay.with_file_name("belay-tokio-mirror");
        vec![program.into(), place.behind.into(), place.mountpoint.into()]
    });
    custom.serves();
    crash_idle(&custom, 5);
    custom.serves();
    custom.stop();
}

/// S69: for a script its interpreter is held, as the kernel would start it.
#[test]
fn s69_a_script_that_is_a_daemon() {
    let custom = Custom::start(&[], |place| vec![event_loop(), place.mountpoint.into()]);
    custom.serves();
    let program = fs::read_link(format!("/proc/{}/exe", custom.pid("daemon"))).unwrap();
    assert!(program.file_name().unwrap().to_string_lossy().starts_with("python3"), "{program:?}");
    crash_idle(&custom, 2);
    custom.serves();
    custom.stop();
}
