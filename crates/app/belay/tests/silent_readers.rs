//! Standard error that nobody reads, limits of file size, and directories without room.

mod common;

use common::{Held, can_hold, run, signal, text};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A daemon that says so much that no pipe or terminal takes it.
const TALK: &[&str] = &["-d"];

/// The mount is used and its daemon killed, while nobody reads what they say.
fn works_unheard(held: &mut Held) {
    for round in 0..3 {
        for number in 0..1500 {
            assert!(std::fs::metadata(held.mount.join(format!("no{number}"))).is_err());
        }
        assert_eq!(held.read(), "content\n", "round {round}");
        let crashes = held.status()["crashes"].as_u64();
        signal(held.pid("daemon"), Signal::KILL);
        assert_eq!(held.read(), "content\n", "round {round}");
        held.wait_until("recovered", |status| {
            status["crashes"].as_u64() > crashes && status["state"] == "serving"
        });
    }
}

/// Belay's own processes are killed as well.
fn dies_unheard(held: &mut Held) {
    for role in ["supervisor", "keeper"] {
        let old = held.pid(role);
        signal(old, Signal::KILL);
        held.wait_until("replaced", |status| {
            status[role]["pid"].as_i64().is_some_and(|pid| pid > 0 && pid != i64::from(old))
        });
    }
    assert_eq!(held.read(), "content\n");
}

/// A reader that is stopped: the pipe fills up.
#[test]
fn s82_a_full_pipe_holds_up_nobody() {
    if !can_hold() {
        return;
    }
    let (mut reader, writer) = std::io::pipe().expect("pipe");
    let mut held = Held::start_heard_by(writer.into(), TALK);
    works_unheard(&mut held);
    let read = std::thread::spawn(move || {
        let mut said = Vec::new();
        reader.read_to_end(&mut said).map(|_| String::from_utf8_lossy(&said).into_owned())
    });
    assert!(held.ask(&["stop"]).status.success());
    drop(held);
    let said = read.join().expect("reader").expect("read");
    assert!(said.contains("lines are missing here: nobody has read standard error"), "{said}");
}

/// Ctrl-S at a terminal.
#[test]
fn s82_a_halted_terminal_holds_up_nobody() {
    if !can_hold() {
        return;
    }
    // Somebody at a terminal: tells its name, and halts it when told to.
    let person_text = "import os, pty, sys\nscreen, user = pty.openpty()\nprint(os.ttyname(user), flush=True)\n\
                  for line in sys.stdin: print(os.write(screen, b'\\x13'), flush=True)";
    let mut person = Command::new("python3");
    let person = person.args(["-c", person_text]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut person = person.spawn().expect("python3");
    let mut said = BufReader::new(person.stdout.take().expect("a pipe")).lines();
    let name = said.next().expect("a line").expect("a name");
    let terminal = std::fs::File::options().write(true).open(&name).expect("a terminal");
    let mut held = Held::start_heard_by(terminal.into(), TALK);
    person.stdin.as_mut().expect("a pipe").write_all(b"halt\n").expect("write");
    assert_eq!(said.next().expect("a line").expect("done"), "1");
    works_unheard(&mut held);
    dies_unheard(&mut held);
    assert!(held.ask(&["stop"]).status.success());
    held.exit_code();
    drop(person.stdin.take());
    person.wait().expect("wait");
}

/// A limit of file size ends nothing without a word.
#[test]
fn a_limit_of_file_size_is_said() {
    if !can_hold() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let mut command = Command::new("bash");
    let (mountpoint, state) = (dir.path().join("mnt"), dir.path().join("state"));
    std::fs::create_dir(&mountpoint).expect("mkdir");
    let script = r#"ulimit -f 1000; exec "$0" run -- bindfs -f /etc "$1""#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_belay")]).arg(&mountpoint);
    command.env("BELAY_STATE_DIR", &state);
    let output = run(&command);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ulimit -f unlimited"), "{said}");
    assert_eq!(folders(&state).count(), 0);
}

/// Has no file that a process writes to become longer than `bytes`; `None`: as long as it may.
fn limit_files(pid: i32, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Pid::from_raw(pid), Resource::Fsize, limit).expect("prlimit");
}

/// Nor does one that comes when the mount is served: what cannot be written any more is counted and
/// said, and both of belay's processes live, go on with their work, and have successors.
#[test]
fn a_limit_of_file_size_ends_nothing_later() {
    if !can_hold() {
        return;
    }
    // A file would have a limit too.
    let (mut reader, writer) = std::io::pipe().expect("pipe");
    let mut held = Held::start_heard_by(writer.into(), &["-f"]);
    let read = std::thread::spawn(move || {
        let mut said = Vec::new();
        reader.read_to_end(&mut said).map(|_| String::from_utf8_lossy(&said).into_owned())
    });
    let (supervisor, keeper) = (held.pid("supervisor"), held.pid("keeper"));
    for role in [supervisor, keeper] {
        limit_files(role, Some(64));
    }
    for failed in 1..3 {
        assert!(held.ask(&["crash"]).status.success());
        assert_eq!(held.read(), "content\n");
        held.wait_until("counted", |status| status["reports_failed"] == failed);
    }
    assert_eq!((held.pid("supervisor"), held.pid("keeper")), (supervisor, keeper));
    // Each is replaced by one that has the limit from its start.
    for role in ["supervisor", "keeper"] {
        let old = held.pid(role);
        signal(old, Signal::KILL);
        held.wait_until("replaced", |status| {
            status[role]["pid"].as_i64().is_some_and(|pid| pid > 0 && pid != i64::from(old))
        });
        assert!(held.ask(&["crash"]).status.success());
        assert_eq!(held.read(), "content\n");
    }
    // What a supervisor has counted it cannot write down for the next one either.
    held.wait_until("counted", |status| status["reports_failed"] != 0);
    for role in ["supervisor", "keeper"] {
        limit_files(held.pid(role), None);
    }
    assert!(held.ask(&["crash"]).status.success());
    held.wait_until("written", |status| status["reports"] != 0);
    assert!(held.ask(&["stop"]).status.success());
    held.exit_code();
    drop(held);
    let said = read.join().expect("reader").expect("read");
    assert!(said.contains("cannot write") && said.contains("File too large"), "{said}");
}

/// The folders of mounts in a state directory.
fn folders(state: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(state).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir())
}

/// A full state directory costs the reports, which are counted, and leaves nothing half written.
#[test]
fn a_full_state_directory_is_said_once() {
    if !can_hold() {
        return;
    }
    let held = Held::start(&[], &["-f"]);
    let instance = folders(&held.state).next().expect("one");
    let reports = instance.join("reports");
    let mount = |words: &[&str]| {
        let output = run(Command::new(words[0]).args(&words[1..]).arg(&reports));
        assert!(output.status.success(), "{}", text(&output));
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=16k,nr_inodes=64", "none"]);
    let fill = std::fs::write(reports.join("full"), [1; 1 << 20]);
    assert!(fill.is_err());
    for _ in 0..3 {
        assert!(held.ask(&["crash"]).status.success());
    }
    let status = held.wait_until("counted", |status| status["reports_failed"] == 3);
    let left: Vec<_> = std::fs::read_dir(&reports)
        .expect("list")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    mount(&["umount"]);
    assert_eq!(status["reports"], 0);
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(held.log().matches("cannot write").count(), 1, "{}", held.log());
    assert!(held.ask(&["crash"]).status.success());
    let status = held.wait_until("written", |status| status["reports"] == 1);
    assert_eq!(status["reports_failed"], 3);
}
