//! Held beds, crashes at chosen instants, and waiting for events.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use belay_testbed::process::{Process, kill, wait_for_exit};
use belay_testbed::{Bed, BedOptions, Kind, Mode, Signal, mounts};
use serde_json::Value;

/// Nothing takes this long unless it hangs.
pub const LIMIT: Duration = Duration::from_secs(20);

/// A held bed.
pub struct Held {
    pub bed: Bed,
}

/// passthrough_ll with these `-o` options.
pub fn low_level(options: &[&str]) -> Held {
    held(Kind::PassthroughLl, options, &[])
}

/// passthrough_ll as its users run it: everything is cached for ever.
pub fn caching() -> Held {
    low_level(&["cache=always"])
}

/// passthrough_ll without any cache: every call reaches the daemon.
pub fn uncached() -> Held {
    low_level(&["cache=never", "timeout=0"])
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

/// Any kind, with `-o` options for the daemon and arguments for `belay run`.
pub fn held(kind: Kind, options: &[&str], arguments: &[&str]) -> Held {
    let options = BedOptions { daemon_opts: words(options), ..BedOptions::default() };
    held_with(kind, &options, arguments)
}

/// The same, with more to choose.
pub fn held_with(kind: Kind, options: &BedOptions, arguments: &[&str]) -> Held {
    mounts::ensure_control_files().unwrap();
    let mode = Mode::Held { extra_args: words(arguments) };
    Held { bed: Bed::start(kind, &mode, options).unwrap() }
}

impl Held {
    /// A path on the mount.
    pub fn at(&self, name: &str) -> PathBuf {
        self.bed.root().join(name)
    }

    /// The same in the backing directory.
    pub fn behind(&self, name: &str) -> PathBuf {
        self.bed.backing().join(name)
    }

    /// Kills the daemon. What the mount is asked next waits for the successor.
    pub fn crash(&self) -> u32 {
        self.bed.kill_daemon(Signal::KILL).unwrap()
    }

    /// Kills the daemon and waits until its successor has settled everything.
    pub fn crash_and_recover(&self) {
        let crashes = self.number("/crashes");
        self.crash();
        self.wait_for("recovery", |status| {
            number(status, "/crashes") > crashes && status["state"] == "serving"
        });
    }

    pub fn number(&self, pointer: &str) -> u64 {
        number(&self.bed.belay_status().unwrap(), pointer)
    }

    pub fn pid(&self, role: &str) -> u32 {
        u32::try_from(self.number(&format!("/{role}/pid"))).unwrap()
    }

    /// Waits until belay's status is as wanted.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        await_status(what, || self.bed.belay_status().ok(), wanted, || self.bed.last_words())
    }

    /// Kills the daemon and holds its successor back until the blackout is ended (or dropped).
    pub fn blackout(&self) -> Blackout<'_> {
        self.blackout_of(None)
    }

    /// The same for a daemon in a trap: a tracer must be gone before the end of its tracee is seen.
    pub fn blackout_of(&self, trap: Option<Trap>) -> Blackout<'_> {
        let supervisor = self.pid("supervisor");
        let daemon = self.bed.daemon_pid().unwrap();
        kill(supervisor, Signal::STOP).unwrap();
        assert!(until(|| state_of(supervisor) == 'T'), "the supervisor does not stop");
        let blackout = Blackout { supervisor, _held: std::marker::PhantomData };
        kill(daemon, Signal::KILL).unwrap();
        drop(trap);
        assert!(wait_for_exit(daemon, LIMIT).unwrap());
        blackout
    }

    /// Waits until so many requests are waiting in the kernel.
    pub fn wait_for_requests(&self, count: u64) {
        let waiting = || mounts::requests_waiting(self.bed.mountpoint()).unwrap();
        assert!(until(|| waiting() >= count), "{} requests, not {count}", waiting());
    }

    /// Waits until nothing is open on the mount as far as belay knows: releases come after `close`.
    pub fn wait_until_closed(&self) {
        self.wait_for("release", |status| {
            status["open_handles"] == 0 && status["requests"]["in_flight"] == 0
        });
    }

    /// Unmounts and checks that everything ends well.
    pub fn stop(self) {
        self.bed.stop().unwrap();
    }
}

/// A time without a daemon.
pub struct Blackout<'a> {
    _held: std::marker::PhantomData<&'a Held>,
    supervisor: u32,
}

impl Blackout<'_> {
    /// Lets the successor come.
    pub fn end(self) {}

    pub fn supervisor(&self) -> u32 {
        self.supervisor
    }
}

impl Drop for Blackout<'_> {
    fn drop(&mut self) {
        let _ = kill(self.supervisor, Signal::CONT);
    }
}

/// A tracer that delays one kind of system call of the daemon for so long that it can be killed in it.
pub struct Trap {
    strace: Process,
    traced: u32,
    log: tempfile::TempDir,
    nth: u32,
}

/// Where in the system call the daemon is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before it has any effect.
    Before,
    /// When it has taken effect, and the daemon does not know yet.
    After,
}

impl Trap {
    /// Holds the `nth` call (from 1) of those that `calls` (strace's regular expression) describes.
    pub fn set(daemon: u32, calls: &str, nth: u32, when: When) -> Self {
        Self::hold(&["-f"], daemon, calls, nth, when)
    }

    /// The same with the first thread of a process alone, and not with what it starts.
    pub fn set_for_one(pid: u32, calls: &str, nth: u32, when: When) -> Self {
        Self::hold(&[], pid, calls, nth, when)
    }

    fn hold(whom: &[&str], pid: u32, calls: &str, nth: u32, when: When) -> Self {
        let side = if when == When::Before { "delay_enter" } else { "delay_exit" };
        let dir = tempfile::tempdir().unwrap();
        let mut strace = Command::new("strace");
        strace
            .args(whom)
            .args(["-e", &format!("trace=/{calls}")])
            .args(["-e", &format!("inject=/{calls}:{side}=60000000:when={nth}")])
            .args(["-p", &pid.to_string()]);
        let log = dir.path().join("log");
        let strace = Process::start(strace, &log).unwrap();
        let attached = || std::fs::read_to_string(&log).unwrap().contains("attached");
        assert!(until(attached), "strace cannot attach: {}", strace.tail());
        Self { strace, traced: pid, log: dir, nth }
    }

    /// Waits until the call is held. (That a request is in flight is not enough: it may be one before.)
    pub fn await_catch(&self) {
        assert!(until(|| self.has_caught()), "the call did not come");
    }

    /// Whether the call is held, or was.
    pub fn has_caught(&self) -> bool {
        let log = std::fs::read_to_string(self.log.path().join("log")).unwrap();
        let calls = log.lines().filter(|line| !line.starts_with("strace: ") && line.contains('('));
        calls.count() as u32 >= self.nth
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        // Asked to end, it hands on the signals that it has in hand; killed, it takes them along: a daemon lived on. But it
        // waits for ever for the first thread of a process that has died while another is held at its end: then there is
        // nothing to be taken along any more.
        let end = Instant::now() + LIMIT;
        let _ = self.strace.signal(Signal::TERM);
        while matches!(self.strace.wait(Duration::from_millis(20)), Ok(None))
            && Instant::now() < end
        {
            if matches!(state_of(self.traced), 'Z' | 'X') {
                let _ = self.strace.signal(Signal::KILL);
            }
        }
    }
}

/// Runs something in a thread whose end can be awaited with a limit: a hang is a failure, not a hang of the tests.
pub struct Caller<T> {
    thread: JoinHandle<T>,
}

pub fn call<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Caller<T> {
    Caller { thread: spawn(work) }
}

impl<T> Caller<T> {
    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    pub fn result(self) -> T {
        assert!(until(|| self.thread.is_finished()), "a caller hangs");
        self.thread.join().unwrap()
    }
}

/// Looks again and again, for events that nothing announces; false when it never came.
pub fn until(mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + LIMIT;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(2));
    }
}

/// Waits until the status that `ask` gets is as `wanted`; `words` tells more if it never is.
pub fn await_status(
    what: &str,
    ask: impl Fn() -> Option<Value>,
    wanted: impl Fn(&Value) -> bool,
    words: impl Fn() -> String,
) -> Value {
    let mut last = None;
    let done = until(|| {
        last = ask();
        last.as_ref().is_some_and(&wanted)
    });
    assert!(done, "no {what}: {last:?}\n{}", words());
    last.unwrap()
}

pub fn number(status: &Value, pointer: &str) -> u64 {
    let value = status.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no number {pointer} in {status}"))
}

/// A process's state letter; `X` when it is gone.
pub fn state_of(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('X')
}

/// Has the kernel drop clean caches: pages, dentries, inodes.
pub fn drop_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

/// The names in a directory, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The first bytes of an open file, wherever its offset is.
pub fn content(file: &File) -> String {
    let mut bytes = vec![0; 4096];
    let count = file.read_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

/// A child that is killed when dropped.
pub fn start(command: &mut Command) -> Process {
    let what = belay_testbed::process::describe(command);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    Process::adopt(child, what)
}

/// Reads what a child writes up to the byte 1, its sign that it is ready.
pub fn wait_for_sign(process: &mut Process) {
    let out = process.child().stdout.as_mut().unwrap();
    let mut byte = [0];
    while byte != [1] {
        out.read_exact(&mut byte).unwrap();
    }
}
