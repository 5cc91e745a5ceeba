//! S3 and S5 when a daemon dies by its own signal: what its other threads were doing is finished and put on record, and
//! the report tells what the crash looked like.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use belay_testbed::process::run;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, kill_process};
use serde_json::Value;

use crate::common::{Caller, LIMIT, call, state_of, until};
use crate::custom::Custom;

const JOURNAL: [&str; 2] = ["--policy", "journal"];

/// A mount by `dying.c`, and the directory by which its daemons are controlled.
struct Dying {
    mount: Custom,
    control: PathBuf,
}

impl Dying {
    fn start(arguments: &[&str], files: &[&str]) -> Self {
        Self::start_with(arguments, files, None)
    }

    /// The same, with debug information of these tests' own.
    fn start_with(arguments: &[&str], files: &[&str], debug: Option<&str>) -> Self {
        let mut control = PathBuf::new();
        let mount = Custom::start(arguments, |place| {
            let program = place.dir.join("dying");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/dying.c");
            let mut flags = Command::new("pkg-config");
            flags.args(["--cflags", "--libs", "fuse3"]);
            let flags = String::from_utf8(run(flags, LIMIT).unwrap().stdout).unwrap();
            let mut build = Command::new("cc");
            build.args([
                "-O1",
                "-g",
                "-rdynamic",
                "-fno-optimize-sibling-calls",
                "-Wall",
                "-Wextra",
            ]);
            build.arg("-Wno-infinite-recursion").arg("-o").arg(&program).arg(source);
            if let Some(text) = debug {
                let file = place.dir.join("debug.s");
                fs::write(&file, text).unwrap();
                build.arg("-g0").arg(file);
            }
            build.args(flags.split_whitespace());
            let output = run(build, LIMIT).unwrap();
            assert!(output.status.success(), "{output:?}");
            control = place.dir.join("control");
            fs::create_dir(&control).unwrap();
            for file in files {
                fs::write(control.join(file), "").unwrap();
            }
            for dir in ["a", "b"] {
                fs::create_dir(place.behind.join(dir)).unwrap();
            }
            vec![
                program.into(),
                place.behind.into(),
                control.clone().into(),
                place.mountpoint.into(),
                "-f".into(),
            ]
        });
        mount.serves();
        Self { mount, control }
    }

    /// Makes a directory below one of the two: of two callers in one, one would wait for the other.
    fn mkdir(&self, name: &str) -> Caller<io::Result<()>> {
        let path = self.mount.at(name);
        call(move || fs::create_dir(path))
    }

    /// The first report, as soon as it is as wanted.
    fn report(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let status = self.mount.wait_for("report", |status| status["reports"] != 0);
        let path = Path::new(status["report_dir"].as_str().unwrap()).join("0001.json");
        let mut last = Value::Null;
        let read = || -> Option<Value> { serde_json::from_slice(&fs::read(&path).ok()?).ok() };
        let found = until(|| {
            last = read().unwrap_or_default();
            wanted(&last)
        });
        assert!(found, "{last:#}");
        last
    }

    /// The report of a crash in `name`, with its backtrace.
    fn crash_in(&self, name: &str) -> Value {
        self.mkdir(name).result().unwrap();
        assert!(self.mount.behind.join(name).is_dir());
        self.report(|report| report["crash"]["backtrace"].is_array())
    }

    /// Threads of a process that have SIGSEGV blocked, as those have that are in its handler or stopped by it.
    fn stopped_threads(&self, daemon: u32) -> usize {
        self.threads(daemon, "status", |text| {
            let mask = text.lines().find_map(|line| line.strip_prefix("SigBlk:"));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask & 1 << (libc::SIGSEGV - 1) != 0)
        })
    }

    fn threads(&self, daemon: u32, file: &str, is: impl Fn(&str) -> bool) -> usize {
        let Ok(tasks) = fs::read_dir(format!("/proc/{daemon}/task")) else { return 0 };
        let text =
            |task: fs::DirEntry| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        tasks.flatten().map(text).filter(|text| is(text)).count()
    }
}

fn functions(report: &Value) -> Vec<&str> {
    let frames = report["crash"]["backtrace"].as_array().unwrap();
    frames.iter().map(|frame| frame["function"].as_str().unwrap_or("?")).collect()
}

/// These functions are in the backtrace, in this order, with nothing between them.
fn assert_in_order(report: &Value, wanted: &[&str]) {
    let functions = functions(report);
    let found = functions.windows(wanted.len()).any(|window| window == wanted);
    assert!(found, "{wanted:?} are not in {report:#}");
}

/// S5: signal, address, registers, and which functions had called which, with the lines of their sources.
#[test]
fn s05_a_backtrace_names_the_functions() {
    for arguments in [&[][..], &JOURNAL] {
        let dying = Dying::start(arguments, &["once"]);
        let report = dying.crash_in("a/null");
        let crash = &report["crash"];
        assert_eq!((&crash["signal"], &crash["code"]), (&"SIGSEGV".into(), &1.into()), "{crash:#}");
        assert_eq!(crash["address"], "0x0");
        assert_eq!(crash["sender"], Value::Null);
        assert_in_order(&report, &["strike_inner", "strike_outer", "make_dir"]);
        assert_eq!(functions(&report)[0], "strike_inner");
        let inner = &crash["backtrace"][0];
        assert!(inner["file"].as_str().unwrap().ends_with("dying.c"), "{inner}");
        let source = include_str!("dying.c").lines();
        let line = source.zip(1..).find(|(text, _)| text.contains("*nowhere = 1;")).unwrap().1;
        assert_eq!(inner["line"], line);
        let registers = crash["registers"].as_object().unwrap();
        assert!(registers.values().any(|value| *value == inner["address"]), "{crash:#}");
        if !arguments.is_empty() {
            assert_eq!(crash["request"]["request"], "MKDIR");
        }
    }
}

/// Debug information that stands for 60 million lines of source.
const HUGE: &str = r#"
    .section .note.GNU-stack,"",%progbits
    .section .debug_abbrev,"",%progbits
.Labbrev: .byte 1, 0x11, 0,  0x10, 0x17,  0x11, 0x01,  0x12, 0x07,  0, 0,  0
    .section .debug_info,"",%progbits
    .long .Lend - .Lbegin
.Lbegin: .short 4
    .long .Labbrev
    .byte 8, 1
    .long .Lline
    .quad strike_inner
    .quad 0x8000000
.Lend:
    .section .debug_line,"",%progbits
.Lline: .long .Lline_end - .Lline_begin
.Lline_begin: .short 4
    .long .Lprogram - .Lheader
.Lheader: .byte 1, 1, 1, 251, 14, 13,  0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1,  0
    .asciz "huge.c"
    .byte 0, 0, 0,  0
.Lprogram: .byte 0, 9, 2
    .quad strike_inner
    .fill 60000000, 1, 0x20
    .byte 0, 1, 1
.Lline_end:
"#;

/// The most memory that a process has had at a time, in bytes.
fn most_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// S5: what is read for a backtrace is read in a process apart, which has limits: debug information that takes more memory
/// than there is costs the lines of sources, and nothing else.
#[test]
fn s05_a_backtrace_takes_no_memory_of_belays() {
    let dying = Dying::start_with(&[], &["once"], Some(HUGE));
    let report = dying.crash_in("a/null");
    assert_in_order(&report, &["strike_inner", "strike_outer", "make_dir"]);
    assert_eq!(report["crash"]["backtrace"][0]["file"], Value::Null, "{report:#}");
    let most = most_memory(dying.mount.pid("supervisor"));
    assert!(most < 200 << 20, "{most} bytes");
    // It goes on, and has backtraces of further crashes too.
    fs::write(dying.control.join("once"), "").unwrap();
    dying.mkdir("b/abort").result().unwrap();
    dying.mount.wait_for("second report", |status| status["reports"] == 2);
}

/// Debug information that names 40,000 units, and a million times for each that it has no code: minutes of reading, in little
/// memory.
const LONG: &str = r#"
    .section .note.GNU-stack,"",%progbits
    .section .debug_line,"",%progbits
    .byte 0
    .section .debug_abbrev,"",%progbits
.Labbrev: .byte 1, 0x11, 0,  0x55, 0x17,  0, 0,  0
    .section .debug_info,"",%progbits
    .rept 40000
    .long 12
    .short 4
    .long .Labbrev
    .byte 8, 1
    .long .Lranges
    .endr
    .section .debug_ranges,"",%progbits
.Lranges: .fill 2000000, 8, 1
    .quad 0, 0
"#;

/// The process in which a backtrace is made, as long as it is: one that this supervisor has started.
struct Autopsy(u32);

impl Autopsy {
    fn find(supervisor: u32) -> Self {
        let parent = format!("PPid:\t{supervisor}");
        let is_one = |pid: &u32| {
            let text = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
            text("cmdline").is_ok_and(|line| line.starts_with("belay\0autopsy\0"))
                && text("status").is_ok_and(|status| status.lines().any(|line| line == parent))
        };
        let mut found = None;
        let begun = until(|| {
            let pids = fs::read_dir("/proc").unwrap().flatten();
            let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            found = pids.find(is_one);
            found.is_some()
        });
        assert!(begun, "no process makes a backtrace");
        Self(found.unwrap())
    }

    fn lives(&self) -> bool {
        !matches!(state_of(self.0), 'Z' | 'X')
    }

    /// The processor time that it has taken, in seconds; 0 if it is gone.
    fn seconds(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        ticks.sum::<u64>() / rustix::param::clock_ticks_per_second()
    }

    /// Waits for its end, for much longer than it may take; the processor time that it has taken.
    fn end(&self) -> u64 {
        let (end, mut most) = (Instant::now() + 6 * LIMIT, 0);
        while self.lives() {
            assert!(Instant::now() < end, "it goes on, after {most} s");
            most = most.max(self.seconds());
            sleep(Duration::from_millis(20));
        }
        most
    }
}

/// S5: nor does it take longer than it may: its process has ten seconds of a processor. Applications wait for nothing of that, and
/// what was found out until then is in the report.
#[test]
fn s05_a_backtrace_takes_no_longer_than_it_may() {
    let dying = Dying::start_with(&[], &["once"], Some(LONG));
    dying.mkdir("a/null").result().unwrap();
    let supervisor = dying.mount.pid("supervisor");
    let autopsy = Autopsy::find(supervisor);
    dying.mount.crash_and_recover();
    dying.mkdir("a/meanwhile").result().unwrap();
    assert!(autopsy.lives(), "it was over too soon to show anything");
    let taken = autopsy.end();
    assert!(taken < 12, "{taken} s");
    let report = dying.report(|report| report["crash"]["backtrace"].is_array());
    assert_in_order(&report, &["strike_inner", "strike_outer", "make_dir"]);
    assert_eq!(report["crash"]["backtrace"][0]["file"], Value::Null, "{report:#}");
    assert_eq!(dying.mount.pid("supervisor"), supervisor);
}

/// S5: nor is one waited for that does nothing: it is ended after half a minute.
#[test]
fn s05_a_backtrace_that_does_not_get_on_is_given_up() {
    let dying = Dying::start_with(&[], &["once"], Some(LONG));
    dying.mkdir("a/null").result().unwrap();
    let supervisor = dying.mount.pid("supervisor");
    let autopsy = Autopsy::find(supervisor);
    belay_testbed::process::kill(autopsy.0, belay_testbed::Signal::STOP).unwrap();
    dying.mount.crash_and_recover();
    autopsy.end();
    assert_eq!(dying.mount.pid("supervisor"), supervisor);
    // The next one is not kept from its turn.
    fs::write(dying.control.join("once"), "").unwrap();
    dying.mkdir("b/abort").result().unwrap();
    Autopsy::find(supervisor);
}

/// S5: whatever it dies of.
#[test]
fn s05_crashes_of_other_kinds() {
    let dying = Dying::start(&[], &["once"]);
    let report = dying.crash_in("a/abort");
    assert_eq!(report["crash"]["signal"], "SIGABRT");
    assert_eq!(report["exit"]["signal"], libc::SIGABRT);
    assert_in_order(&report, &["abort", "strike_inner", "strike_outer", "make_dir"]);

    let dying = Dying::start(&[], &["once"]);
    let report = dying.crash_in("a/overflow");
    assert_eq!(report["exit"]["signal"], libc::SIGSEGV);
    assert_in_order(&report, &["sink_deeper", "sink_deeper", "sink_deeper"]);

    let dying = Dying::start(&[], &["once"]);
    let report = dying.crash_in("a/call");
    assert_eq!(report["crash"]["backtrace"][0]["address"], "0x0");
    assert_in_order(&report, &["?", "strike_inner", "strike_outer", "make_dir"]);
}

/// S5: a signal that somebody else has sent is told from one of the daemon's own.
#[test]
fn s05_a_signal_from_outside() {
    for arguments in [&[][..], &JOURNAL] {
        let dying = Dying::start(arguments, &[]);
        let daemon = dying.mount.pid("daemon");
        belay_testbed::process::kill(daemon, belay_testbed::Signal::SEGV).unwrap();
        let report = dying.report(|report| report["crash"].is_object());
        assert_eq!(report["crash"]["sender"], std::process::id());
        assert_eq!(report["exit"]["signal"], libc::SIGSEGV);
        dying.mkdir("a/new").result().unwrap();
    }
}

/// A daemon's own handler stays in place.
#[test]
fn s05_a_daemon_that_handles_its_signals() {
    for arguments in [&[][..], &JOURNAL] {
        let dying = Dying::start(arguments, &["once", "handler"]);
        dying.mkdir("a/null").result().unwrap();
        let report = dying.report(|report| report["exit"]["code"] == 7);
        assert_eq!(report["crash"], Value::Null);
    }
}

/// A child's crash is its own.
#[test]
fn s05_a_child_that_crashes() {
    for arguments in [&[][..], &JOURNAL] {
        let dying = Dying::start(arguments, &[]);
        dying.mkdir("a/child").result().unwrap();
        assert_eq!(dying.mount.status().unwrap()["crashes"], 0);
        dying.mount.crash_and_recover();
        let report = dying.report(Value::is_object);
        assert_eq!(report["crash"], Value::Null, "{report:#}");
    }
}

/// A request whose daemon waits in an effectful call until somebody reads from a pipe.
struct Slow {
    dying: Dying,
    daemon: u32,
    /// The thread that waits.
    thread: u32,
    caller: Caller<io::Result<()>>,
}

impl Slow {
    fn start() -> Self {
        let dying = Dying::start(&JOURNAL, &["once"]);
        let (pipe, mode) = (dying.control.join("pipe"), Mode::from_raw_mode(0o600));
        mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        let daemon = dying.mount.pid("daemon");
        let caller = dying.mkdir("a/slow");
        let opening = format!("{} ", libc::SYS_openat);
        let mut found = None;
        let waits = || {
            let tasks = fs::read_dir(format!("/proc/{daemon}/task")).unwrap().flatten();
            found = tasks.map(|task| task.path()).find(|task| {
                fs::read_to_string(task.join("syscall"))
                    .is_ok_and(|call| call.starts_with(&opening))
            });
            found.is_some()
        };
        assert!(until(waits), "nobody opens the pipe");
        let thread = found.unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap();
        Self { dying, daemon, thread, caller }
    }

    fn read_pipe(&self) -> fs::File {
        let pipe = self.dying.control.join("pipe");
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(pipe).unwrap()
    }

    /// The one call that the request had made, when all is over, and it has been done once.
    fn end(self, reader: fs::File) -> (Value, Value) {
        self.caller.result().unwrap();
        drop(reader);
        assert_eq!(fs::read_to_string(self.dying.control.join("log")).unwrap(), "x");
        let report = self.dying.report(|report| report["crash"]["backtrace"].is_array());
        assert_eq!(report["exit"]["signal"], libc::SIGSEGV, "{report:#}");
        let journals = report["journals"].as_array().unwrap();
        let calls = |journal: &Value| journal["calls"].as_array().unwrap().clone();
        let slow = journals.iter().find(|journal| !calls(journal).is_empty()).expect("a journal");
        assert_eq!(calls(slow).len(), 1, "it ran on: {report:#}");
        assert_eq!(calls(slow)[0]["call"], "open");
        (calls(slow)[0]["result"].clone(), report)
    }
}

/// S3: a thread that is in an effectful call when another one crashes finishes it, and does nothing after it; what came of
/// it is on record, and the successor goes on from there.
#[test]
fn s03_calls_of_other_threads_are_finished() {
    let slow = Slow::start();
    let crash = slow.dying.mkdir("b/null");
    // The one that crashed, and another: they are being stopped.
    let stopped = || slow.dying.stopped_threads(slow.daemon) >= 2;
    assert!(until(stopped), "nobody is stopped");
    let reader = slow.read_pipe();
    crash.result().unwrap();
    let (result, report) = slow.end(reader);
    assert!(result.as_i64().is_some_and(|fd| fd > 0), "{report:#}");
}

/// S3: the same for the call into which a signal from outside comes.
#[test]
fn s03_a_call_that_a_signal_comes_into_is_finished() {
    let slow = Slow::start();
    // To a process, by way of a thread: that one gets it.
    let thread = slow.thread;
    let pid = Pid::from_raw(i32::try_from(thread).unwrap()).unwrap();
    kill_process(pid, belay_testbed::Signal::SEGV).unwrap();
    assert!(until(|| slow.dying.stopped_threads(slow.daemon) >= 1), "nobody is stopped");
    let reader = slow.read_pipe();
    let (result, report) = slow.end(reader);
    assert!(result.as_i64().is_some_and(|fd| fd > 0), "{report:#}");
    assert_eq!(report["crash"]["sender"], std::process::id());
    assert_eq!(report["crash"]["thread"], thread);
}

/// S3: a call that does not end does not hold up the recovery.
#[test]
fn s03_a_call_that_does_not_end_is_cut_off() {
    let slow = Slow::start();
    let crash = slow.dying.mkdir("b/null");
    slow.dying.mount.wait_for("crash", |status| status["crashes"] == 1);
    let reader = slow.read_pipe();
    crash.result().unwrap();
    let (result, _) = slow.end(reader);
    assert_eq!(result, Value::Null);
}
