//! S41 and S43: daemons that make several calls for a change, crashed at each point of it.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use belay_faults::{Fault, FaultSignal, Plan, Point, Report, Target, Tracer};
use belay_testbed::process::{Process, kill, run};
use belay_testbed::{Kind, Signal};
use belay_wire::Opcode;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::Value;

use crate::common::{LIMIT, call, held, names, number, until};
use crate::custom::{Custom, Place};

const JOURNAL: &[&str] = &["--policy", "journal", "--max-crashes", "0"];
/// Nobody knows the daemon, and nobody is told anything of it.
const UNKNOWN: &[&str] = &["--max-crashes", "0"];

/// Compiles a program from a source beside this one.
pub fn compile(source: &str, program: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics").join(source);
    let mut flags = Command::new("pkg-config");
    flags.args(["--cflags", "--libs", "fuse3"]);
    let flags = String::from_utf8(run(flags, LIMIT).unwrap().stdout).unwrap();
    let mut build = Command::new("cc");
    build.args(["-O1", "-Wall", "-Wextra", "-o"]).arg(program).arg(source);
    build.args(flags.split_whitespace());
    let output = run(build, LIMIT).unwrap();
    assert!(output.status.success(), "{output:?}");
}

pub fn dies_at(point: Point) -> Option<Fault> {
    Some(Fault { point, signal: FaultSignal::Kill })
}

/// The decisions in all reports about requests of one kind.
pub fn decisions(reports: &Path, request: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in fs::read_dir(reports).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let report: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            let list = report["decisions"].as_array().unwrap();
            found.extend(list.iter().filter(|decision| decision["request"] == request).cloned());
        }
    }
    found
}

/// A file system whose times are whole seconds. It goes with the value, so daemons on it end before.
struct Disk {
    root: PathBuf,
    _dir: tempfile::TempDir,
}

impl Disk {
    fn with_whole_seconds() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (image, root) = (dir.path().join("image"), dir.path().join("root"));
        fs::create_dir(&root).unwrap();
        File::create(&image).unwrap().set_len(4 << 20).unwrap();
        let disk = Self { root, _dir: dir };
        disk.tool(&["mkfs.ext2", "-q", "-I", "128"], &[&image]);
        disk.tool(&["mount", "-o", "loop"], &[&image, &disk.root]);
        disk
    }

    fn tool(&self, words: &[&str], paths: &[&Path]) {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(paths);
        let output = run(command, LIMIT).unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        belay_testbed::mounts::unmount_by_force(&self.root);
    }
}

/// A mount by a program of these tests, and the directory by which its daemons are controlled.
struct Steps {
    mount: Custom,
    control: PathBuf,
}

impl Steps {
    fn start(source: &str, files: &[&str], more: &[&str]) -> Self {
        Self::start_as(JOURNAL, source, files, more)
    }

    fn start_as(arguments: &[&str], source: &str, files: &[&str], more: &[&str]) -> Self {
        Self::start_on(None, arguments, source, files, more)
    }

    /// The same on a disk of its own.
    fn start_on(
        disk: Option<&Disk>,
        arguments: &[&str],
        source: &str,
        files: &[&str],
        more: &[&str],
    ) -> Self {
        let mut control = PathBuf::new();
        let mut mount = Custom::start(arguments, |place: &Place<'_>| {
            let behind = disk.map_or(place.behind, |disk| &disk.root);
            let program = place.dir.join("daemon");
            compile(source, &program);
            control = place.dir.join("control");
            fs::create_dir(&control).unwrap();
            for file in files {
                fs::write(control.join(file), "").unwrap();
            }
            fs::write(behind.join("count"), "").unwrap();
            fs::write(behind.join("file"), "text").unwrap();
            let mut words = vec![program.into(), behind.into(), control.clone().into()];
            words.push(place.mountpoint.into());
            words.extend(more.iter().map(Into::into));
            words
        });
        mount.wait_for("service", |status| status["state"] == "serving");
        if let Some(disk) = disk {
            mount.behind.clone_from(&disk.root);
        }
        Self { mount, control }
    }

    fn high_level(files: &[&str]) -> Self {
        Self::high_level_as(JOURNAL, files)
    }

    fn high_level_as(arguments: &[&str], files: &[&str]) -> Self {
        let steps = Self::start_as(arguments, "journal.c", files, &["-f"]);
        steps.mount.serves();
        steps
    }

    /// From now on successors wait until they are let in.
    fn shut_the_gate(&self) {
        mknodat(CWD, self.control.join("gate"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
    }

    /// The successor that waits at the gate.
    fn waiting(&self) -> u32 {
        let here = self.control.join("here");
        assert!(until(|| here.is_symlink()), "no successor comes\n{}", self.mount.log());
        let pid = fs::read_link(&here).unwrap();
        fs::remove_file(here).unwrap();
        pid.to_str().unwrap().parse().unwrap()
    }

    fn let_in(&self) {
        let gate = self.control.join("gate");
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || rustix::fs::open(&gate, flags, Mode::empty()).is_ok();
        assert!(until(open), "nobody waits at the gate\n{}", self.mount.log());
    }

    fn at_rest(&self) -> Value {
        self.mount.wait_for("rest", |status| {
            status["state"] == "serving"
                && status["requests"]["in_flight"] == 0
                && status["open_handles"] == 0
        })
    }

    fn tally(&self, name: &str) -> u64 {
        number(&self.at_rest(), &format!("/effects/{name}"))
    }

    /// errno stayed what the daemon had made it, wherever nothing failed.
    fn assert_errno(&self) {
        assert!(!self.control.join("errno").exists(), "a call that succeeded changed errno");
    }
}

/// A kind of request, on a file `NAME` of its own.
struct Case {
    opcode: Opcode,
    /// How many calls with effects the daemon makes for it.
    effects: u32,
    /// What there is before, behind the mount.
    prepare: fn(&Path, &str),
    act: fn(&Path, &str) -> io::Result<()>,
    /// Behind the mount: it was done, once, and nothing is left over. The number says how many times in all.
    check: fn(&Path, &str, u64),
}

const MKDIR: Case = Case {
    opcode: Opcode::MKDIR,
    effects: 3,
    prepare: |_, _| {},
    act: |dir, name| fs::create_dir(dir.join(name)),
    check: |dir, name, _| {
        let made = fs::symlink_metadata(dir.join(name)).unwrap();
        assert!(made.is_dir());
        assert_eq!(made.permissions().mode() & 0o7777, 0o751);
        assert_eq!(fs::read_link(dir.join(format!("{name}.mark"))).unwrap(), Path::new("made"));
        assert_eq!(beside(dir, name), [name.to_owned(), format!("{name}.mark")]);
    },
};

const RENAME: Case = Case {
    opcode: Opcode::RENAME,
    effects: 2,
    prepare: |dir, name| fs::write(dir.join(name), name).unwrap(),
    act: |dir, name| fs::rename(dir.join(name), dir.join(format!("{name}.new"))),
    check: |dir, name, _| {
        let new = format!("{name}.new");
        assert_eq!(fs::read_to_string(dir.join(&new)).unwrap(), name);
        assert_eq!(fs::metadata(dir.join(&new)).unwrap().nlink(), 1);
        assert_eq!(beside(dir, name), [new]);
    },
};

const CREATE: Case = Case {
    opcode: Opcode::CREATE,
    effects: 2,
    prepare: |_, _| {},
    act: |dir, name| {
        let file =
            fs::File::options().read(true).write(true).create_new(true).open(dir.join(name))?;
        // Its handle leads to the file.
        assert_eq!(crate::common::content(&file), "HEADER!\n");
        Ok(())
    },
    check: |dir, name, _| {
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), "HEADER!\n");
        assert_eq!(beside(dir, name), [name]);
    },
};

const UNLINK: Case = Case {
    opcode: Opcode::UNLINK,
    effects: 2,
    prepare: |dir, name| fs::write(dir.join(name), name).unwrap(),
    act: |dir, name| fs::remove_file(dir.join(name)),
    check: |dir, name, _| assert_eq!(beside(dir, name), [""; 0]),
};

const SYMLINK: Case = Case {
    opcode: Opcode::SYMLINK,
    effects: 2,
    prepare: |_, _| {},
    act: |dir, name| std::os::unix::fs::symlink("target", dir.join(name)),
    check: |dir, name, times| {
        assert_eq!(fs::read_link(dir.join(name)).unwrap(), Path::new("target"));
        assert_eq!(fs::metadata(dir.join("count")).unwrap().len(), times);
    },
};

/// The names that begin with one.
fn beside(dir: &Path, name: &str) -> Vec<String> {
    names(dir).into_iter().filter(|found| found.starts_with(name)).collect()
}

/// A case on a mount, again and again.
struct Trials<'a> {
    steps: &'a Steps,
    case: &'a Case,
    done: u64,
}

impl Trials<'_> {
    /// One request, and the points at which each generation in turn dies of it. Gives what the tracers saw.
    fn run(&mut self, points: &[Point]) -> Vec<Report> {
        let name = format!("f{:03}", self.done);
        self.done += 1;
        let (steps, case) = (self.steps, self.case);
        (case.prepare)(&steps.mount.behind, &name);
        let attach = |daemon, fault| {
            let target = Target::any(&[case.opcode]).containing(name.as_bytes());
            Tracer::attach(daemon, Plan { target, fault }).unwrap()
        };
        let mut faults = points.iter().map(|point| dies_at(*point));
        let first = attach(steps.mount.pid("daemon"), faults.next().flatten());
        let caller = call({
            let (dir, name, act) = (steps.mount.mountpoint.clone(), name.clone(), case.act);
            move || act(&dir, &name)
        });
        let mut reports = Vec::new();
        let mut tracer = Some(first);
        for _ in points {
            // Its end ends the tracing, and the next one comes to the gate.
            let successor = steps.waiting();
            reports.extend(tracer.take().map(|tracer| tracer.finish().unwrap()));
            tracer = faults.next().map(|fault| attach(successor, fault));
            steps.let_in();
        }
        let what = format!("{:?} {points:?}", case.opcode);
        caller.result().unwrap_or_else(|error| panic!("{what}: {error}\n{}", steps.mount.log()));
        reports.extend(tracer.map(|tracer| tracer.finish().unwrap()));
        steps.at_rest();
        let (behind, check, done) = (&steps.mount.behind, case.check, self.done);
        let checked = std::panic::catch_unwind(|| check(behind, &name, done));
        assert!(checked.is_ok(), "{what}: see above; {reports:?}\n{}", steps.mount.log());
        assert!(
            points.is_empty() || reports.iter().all(|report| report.crashed),
            "{what}: {reports:?}"
        );
        reports
    }

    fn at_every_point(&mut self) {
        for point in Point::all(self.case.effects) {
            self.run(&[point]);
        }
        // What is left to be done after that, and the answer. A reply that is ready is on record: nobody does it again.
        for first in Point::all(self.case.effects) {
            let left = match first {
                Point::Received => self.case.effects,
                Point::BeforeEffect(k) => self.case.effects + 1 - k,
                Point::AfterEffect(k) => self.case.effects - k,
                Point::BeforeReply | Point::AfterReply => continue,
            };
            for second in Point::all(left) {
                self.run(&[first, second]);
            }
        }
    }
}

fn crashed_everywhere(case: &Case) {
    crashed_everywhere_as(JOURNAL, case);
}

fn crashed_everywhere_as(arguments: &[&str], case: &Case) {
    let steps = Steps::high_level_as(arguments, &["pipe"]);
    steps.shut_the_gate();
    let mut trials = Trials { steps: &steps, case, done: 0 };
    let seen = trials.run(&[]).pop().unwrap().request.unwrap();
    assert_eq!(seen.effects.len(), case.effects as usize, "{seen:?}");
    trials.at_every_point();
    let status = steps.at_rest();
    assert_eq!(status["effects"]["diverged"], 0, "{status}");
    assert_eq!(status["effects"]["untagged"], 0, "{status}");
    assert!(number(&status, "/effects/replayed") > 0, "{status}");
    assert!(number(&status, "/effects/probed") > 0, "{status}");
    steps.assert_errno();
}

/// S41: three calls for a directory.
#[test]
fn s41_crashed_everywhere_mkdir() {
    crashed_everywhere(&MKDIR);
}

/// S41: what was made is told from what was there before also where times are whole seconds, so that nearly all that is made
/// looks older than the call that made it.
#[test]
fn s41_on_a_disk_with_coarse_times() {
    let disk = Disk::with_whole_seconds();
    for case in [&MKDIR, &CREATE, &SYMLINK] {
        let steps = Steps::start_on(Some(&disk), JOURNAL, "journal.c", &[], &["-f"]);
        steps.mount.serves();
        steps.shut_the_gate();
        let mut trials = Trials { steps: &steps, case, done: 0 };
        for point in Point::all(case.effects) {
            trials.run(&[point]);
        }
        assert!(steps.tally("probed") > 0);
        assert_eq!(steps.tally("diverged"), 0);
        steps.mount.stop();
        for name in names(&disk.root) {
            let path = disk.root.join(&name);
            fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
        }
    }
}

/// S104: calls that are made by syscall(2) are seen as those by libc's functions; openat2 has none.
#[test]
fn s104_calls_by_their_numbers() {
    for case in [&MKDIR, &CREATE] {
        let steps = Steps::high_level(&["by-number"]);
        steps.shut_the_gate();
        let mut trials = Trials { steps: &steps, case, done: 0 };
        for point in Point::all(case.effects) {
            trials.run(&[point]);
        }
        assert!(steps.tally("replayed") > 0);
        assert_eq!((steps.tally("diverged"), steps.tally("untagged")), (0, 0));
        steps.assert_errno();
    }
}

/// S41: a name is moved in two calls.
#[test]
fn s41_crashed_everywhere_rename() {
    crashed_everywhere(&RENAME);
}

/// S41: a file that must be new, and what is written to it first.
#[test]
fn s41_crashed_everywhere_create() {
    crashed_everywhere(&CREATE);
}

/// S41: a file is moved aside before it is removed.
#[test]
fn s41_crashed_everywhere_unlink() {
    crashed_everywhere(&UNLINK);
}

/// S41: what a call does depends on what was read before, which that call changes.
#[test]
fn s41_crashed_everywhere_read_and_change() {
    crashed_everywhere(&SYMLINK);
}

/// S41: the same, when the first life had read what the second does not, and no more.
#[test]
fn s41_what_a_successor_reads_is_on_record_too() {
    let steps = Steps::high_level(&["die"]);
    steps.shut_the_gate();
    let (dir, act) = (steps.mount.mountpoint.clone(), SYMLINK.act);
    let caller = call(move || act(&dir, "new"));
    let successor = steps.waiting();
    let target = Target::any(&[SYMLINK.opcode]).containing("new");
    let plan = Plan { target, fault: dies_at(Point::AfterEffect(1)) };
    let tracer = Tracer::attach(successor, plan).unwrap();
    steps.let_in();
    steps.waiting();
    let report = tracer.finish().unwrap();
    let effects = report.request.unwrap().effects;
    assert!(report.crashed && effects[0].call == "ftruncate", "{effects:?}");
    steps.let_in();
    caller.result().unwrap();
    (SYMLINK.check)(&steps.mount.behind, "new", 1);
    assert_eq!(steps.tally("diverged"), 0);
}

fn error_of<T: Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// S41, L50: a successor that does something else for the request, behind an effect of the dead one.
#[test]
fn s41_who_does_something_else_fails() {
    let steps = Steps::high_level(&["pid"]);
    let daemon = steps.mount.pid("daemon");
    let target = Target::any(&[Opcode::MKDIR]).containing("new");
    let plan = Plan { target, fault: dies_at(Point::AfterEffect(1)) };
    let tracer = Tracer::attach(daemon, plan).unwrap();
    let path = steps.mount.at("new");
    let caller = call(move || fs::create_dir(path));
    // The tracer ends with the daemon.
    assert!(until(|| steps.mount.status().is_some_and(|status| status["crashes"] == 1)));
    assert!(tracer.finish().unwrap().crashed);
    assert_eq!(error_of(caller.result()), libc::EIO);
    let status = steps.at_rest();
    assert_eq!(status["effects"]["diverged"], 1, "{status}");
    // It is said at once, and stays in the status.
    let reason = &status["degraded_reasons"][0];
    assert_eq!(
        (&reason["kind"], reason["what"].is_string()),
        (&"request".into(), true),
        "{status}"
    );
    let what = reason["what"].as_str().unwrap();
    for part in ["MKDIR", "\"new\"", "EIO", "another way", "mkdir"] {
        assert!(what.contains(part), "{part}: {what}");
    }
    assert!(
        steps.mount.log().contains(&format!("warning: DEGRADED: {what}")),
        "{}",
        steps.mount.log()
    );
    // What the first one made is there, and nothing of the second.
    assert_eq!(beside(&steps.mount.behind, "new"), [format!("new.{daemon}")]);
    let reports = PathBuf::from(status["report_dir"].as_str().unwrap());
    let mut found = Vec::new();
    let told = until(|| {
        found = decisions(&reports, "MKDIR");
        found.iter().any(|decision| decision["errno"] == libc::EIO)
    });
    assert!(told, "{found:?}");
    let decision = found.iter().find(|decision| decision["errno"] == libc::EIO).unwrap();
    let text = decision["text"].as_str().unwrap();
    assert!(text.contains("diverges") && text.contains("mkdir"), "{text}");
    // The mount serves on.
    fs::create_dir(steps.mount.at("other")).unwrap();
    assert!(steps.mount.behind.join("other").is_dir());
    assert_eq!(fs::read_to_string(steps.mount.at("file")).unwrap(), "text");
    steps.mount.crash_and_recover();
    assert_eq!(fs::read_to_string(steps.mount.at("file")).unwrap(), "text");
    assert_eq!(steps.tally("diverged"), 1);
}

/// S94: what a life writes of its own (a random number, the time) is written anew, whole, wherever the life before died;
/// what is said to nobody does not count.
#[test]
fn s94_bytes_that_are_others_in_each_life_are_written_over() {
    // The making of log and file, a write to each place of the file, one to the log and two to nowhere.
    for effect in 1..=7 {
        for point in [Point::BeforeEffect(effect), Point::AfterEffect(effect)] {
            let steps = Steps::high_level(&["seal"]);
            let daemon = steps.mount.pid("daemon");
            let target = Target::any(&[Opcode::MKDIR]).containing("new");
            let tracer = Tracer::attach(daemon, Plan { target, fault: dies_at(point) }).unwrap();
            let path = steps.mount.at("new");
            let caller = call(move || fs::create_dir(path));
            assert!(until(|| steps.mount.status().is_some_and(|status| status["crashes"] == 1)));
            assert!(tracer.finish().unwrap().crashed);
            // There is no directory, which the kernel finds out when it looks at what it is given.
            let _ = caller.result();
            let status = steps.at_rest();
            assert_eq!(status["effects"]["diverged"], 0, "{point:?}: {status}");
            let successor = i32::try_from(steps.mount.pid("daemon")).unwrap();
            let sealed = fs::read(steps.mount.behind.join("new.sealed")).unwrap();
            assert_eq!(sealed, [successor.to_ne_bytes(); 2].concat(), "{point:?}");
            let log = fs::read_to_string(steps.mount.behind.join("log")).unwrap();
            assert_eq!(log, format!("made by {successor:010}\n"), "{point:?}");
            steps.assert_errno();
        }
    }
}

/// A write to "file", which holds "text", whose daemon dies behind its first call with an effect.
fn write_that_is_cut(files: &[&str], offset: u64) -> (Steps, io::Result<()>) {
    let steps = Steps::high_level(files);
    let file = File::options().write(true).open(steps.mount.at("file")).unwrap();
    fs::write(steps.control.join("die"), "").unwrap();
    let written = call(move || file.write_all_at(b"more", offset)).result();
    assert!(!steps.control.join("die").exists());
    steps.assert_errno();
    (steps, written)
}

/// S41: who fills up the last block of a file only where it is short goes on from there.
#[test]
fn s41_a_write_goes_on_from_what_it_had_filled_up() {
    let (steps, written) = write_that_is_cut(&[], 20);
    written.unwrap();
    assert_eq!(steps.tally("diverged"), 0);
    let found = fs::read(steps.mount.behind.join("file")).unwrap();
    assert_eq!(found, [&b"text"[..], &[0; 16], b"more"].concat());
}

/// S41: who writes behind what is there, as it finds it, does not write twice.
#[test]
fn s41_who_appends_to_what_it_finds_fails() {
    // With other bytes in each life (a time, a number), and for any place in the file that is shown: the daemon's own is
    // another one.
    for (files, offset) in [
        (&["append"][..], 4),
        (&["append", "stamp"], 4),
        (&["append", "stamp"], 9),
        (&["append", "stamp"], 4096),
    ] {
        let (steps, written) = write_that_is_cut(files, offset);
        assert_eq!(error_of(written), libc::EIO, "{files:?} at {offset}");
        let found = fs::read(steps.mount.behind.join("file")).unwrap();
        assert_eq!(found.len(), 8, "{files:?} at {offset}: {found:?}");
        assert_eq!(found == b"textmore", files.len() == 1);
        assert_eq!(steps.tally("diverged"), 1);
    }
}

/// S41: a thread that is started for a request works on that request.
#[test]
fn s41_threads_that_are_started_for_a_request() {
    let steps = Steps::high_level(&["thread", "pipe"]);
    for round in 1..=3 {
        let name = format!("new{round}");
        fs::write(steps.control.join("die"), "").unwrap();
        let path = steps.mount.at(&name);
        call(move || fs::create_dir(path)).result().unwrap();
        let status = steps.at_rest();
        assert_eq!(status["crashes"], round, "{status}");
        (MKDIR.check)(&steps.mount.behind, &name, round);
        assert!(
            number(&status, "/effects/replayed") + number(&status, "/effects/probed") > 0,
            "{status}"
        );
        assert_eq!(status["effects"]["untagged"], 0, "{status}");
        assert_eq!(status["effects"]["diverged"], 0, "{status}");
    }
    assert!(steps.tally("replayed") > 0);
    steps.assert_errno();
}

/// One request whose effect a thread of a pool makes, which then dies.
fn dies_in_a_pool(files: &[&str]) -> Steps {
    let steps = Steps::start("pool.c", files, &[]);
    fs::write(steps.control.join("die"), "").unwrap();
    let path = steps.mount.at("new");
    call(move || fs::create_dir(path)).result().unwrap();
    let status = steps.at_rest();
    assert_eq!(status["crashes"], 1, "{status}");
    assert!(number(&status, "/effects/untagged") > 0, "{status}");
    assert!(steps.mount.behind.join("new").is_dir());
    // It is reconciled: found done.
    let reports = PathBuf::from(status["report_dir"].as_str().unwrap());
    assert!(until(|| !decisions(&reports, "MKDIR").is_empty()), "{}", steps.mount.log());
    let rows: Vec<_> = decisions(&reports, "MKDIR").iter().map(|d| d["row"].clone()).collect();
    assert_eq!(rows, [8], "{}", steps.mount.log());
    steps
}

/// S43: a thread of a pool works for the one that has the request.
#[test]
fn s43_a_pool_voids_journals() {
    for files in [&[][..], &["late"]] {
        let steps = dies_in_a_pool(files);
        assert_eq!(steps.tally("handed_over"), 0);
    }
}

/// S43: a thread of a pool that answers, too.
#[test]
fn s43_a_pool_that_answers_voids_journals() {
    let steps = dies_in_a_pool(&["answer"]);
    fs::create_dir(steps.mount.at("other")).unwrap();
    assert!(steps.tally("handed_over") > 0);
    // Also for what comes later.
    fs::write(steps.control.join("die"), "").unwrap();
    let path = steps.mount.at("third");
    call(move || fs::create_dir(path)).result().unwrap();
    assert_eq!(steps.at_rest()["crashes"], 2);
}

/// S43: sshfs. What has not been sent has not happened; what has is asked for.
#[test]
fn s43_what_was_not_sent_is_issued_again() {
    let bed = held(Kind::Sshfs, &["dir_cache=no"], &["--policy", "auto", "--max-crashes", "0"]);
    let points = [Point::Received, Point::BeforeEffect(1), Point::AfterEffect(1)];
    for (point, crashes) in points.into_iter().zip(1..) {
        let name = format!("new{crashes}");
        let target = Target::any(&[Opcode::MKDIR]).containing(name.as_bytes());
        let plan = Plan { target, fault: dies_at(point) };
        let tracer = Tracer::attach(bed.bed.daemon_pid().unwrap(), plan).unwrap();
        let path = bed.at(&name);
        let caller = call(move || fs::create_dir(path));
        let status = bed.wait_for("crash", |status| status["crashes"] == crashes);
        assert!(tracer.finish().unwrap().crashed);
        caller.result().unwrap_or_else(|error| panic!("{point}: {error}"));
        assert!(bed.behind(&name).is_dir());
        let reports = PathBuf::from(status["report_dir"].as_str().unwrap());
        let mine = || -> Vec<u64> {
            let all = decisions(&reports, "MKDIR");
            let mine = all.iter().filter(|d| d["text"].as_str().unwrap().contains(&name));
            mine.map(|decision| number(decision, "/row")).collect()
        };
        assert!(until(|| !mine().is_empty()), "{point}: no decision");
        match point {
            // belay's part of the daemon has not seen it yet.
            Point::Received => assert_eq!(mine(), [2], "{point}"),
            // The intent to send is on record: whether it was, nobody knows.
            _ => assert!(mine().iter().all(|row| matches!(row, 7 | 8)), "{point}: {:?}", mine()),
        }
        bed.wait_until_closed();
    }
    bed.stop();
}

/// Whether a thread of a process waits in writev.
fn is_writing(process: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let call = |task: fs::DirEntry| fs::read_to_string(task.path().join("syscall"));
    let mut calls = tasks.flatten().flat_map(call);
    calls.any(|call| call.starts_with(&format!("{} ", libc::SYS_writev)))
}

/// S43: sshfs. A request that waits for its turn to be sent when sshfs dies is reissued, without a question.
#[test]
fn s43_what_waits_to_be_sent_is_issued_again() {
    let options = ["dir_cache=no", "max_conns=1", "entry_timeout=3600", "attr_timeout=3600"];
    let bed = held(Kind::Sshfs, &options, &["--policy", "auto", "--max-crashes", "0"]);
    // A process of its own has the file: whoever starts one while he has it himself waits for a FLUSH.
    let mut cat = Command::new("cat");
    cat.stdin(Stdio::piped()).stdout(fs::File::create(bed.at("file")).unwrap());
    let mut writer = Process::adopt(cat.spawn().unwrap(), "cat");
    drop(cat);
    fs::write(bed.at("old"), "text").unwrap();
    // The kernel knows what it is, so the next that it asks for is to remove it.
    fs::metadata(bed.at("old")).unwrap();
    bed.wait_for("rest", |status| {
        status["requests"]["in_flight"] == 0 && status["open_handles"] == 1
    });
    let ssh = crate::processes::ssh(&bed);
    kill(ssh, Signal::STOP).unwrap();
    // More than fits into the way to ssh: the last of it is in the middle of being sent.
    let content: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
    let mut input = writer.child().stdin.take().unwrap();
    let feeder = call({
        let content = content.clone();
        move || input.write_all(&content)
    });
    let daemon = bed.pid("daemon");
    assert!(until(|| is_writing(daemon)), "the way to ssh is not full");
    writer.must_run().unwrap();
    let waiting = bed.number("/requests/in_flight");
    let path = bed.at("old");
    let remover = call(move || fs::remove_file(path));
    bed.wait_for("request", |status| number(status, "/requests/in_flight") > waiting);
    bed.crash();
    kill(ssh, Signal::CONT).unwrap();
    remover.result().unwrap();
    feeder.result().unwrap();
    assert!(writer.wait(LIMIT).unwrap().is_some_and(|status| status.success()));
    assert!(!bed.behind("old").exists());
    bed.wait_until_closed();
    assert!(fs::read(bed.behind("file")).unwrap() == content);
    let reports = PathBuf::from(bed.bed.belay_status().unwrap()["report_dir"].as_str().unwrap());
    let report = || fs::read_to_string(reports.join("0001.json")).unwrap_or_default();
    assert!(until(|| !decisions(&reports, "UNLINK").is_empty()), "{}", report());
    let rows: Vec<_> = decisions(&reports, "UNLINK").iter().map(|d| d["row"].clone()).collect();
    assert_eq!(rows, [12]);
    bed.wait_until_closed();
    bed.stop();
}

/// S76: a daemon without a profile, several calls for each request.
#[test]
fn s76_a_daemon_that_nobody_knows_mkdir() {
    crashed_everywhere_as(UNKNOWN, &MKDIR);
}

/// S76: the same, and a name in between.
#[test]
fn s76_a_daemon_that_nobody_knows_rename() {
    crashed_everywhere_as(UNKNOWN, &RENAME);
}

/// S76: the same, and a file with the wrong bytes in between.
#[test]
fn s76_a_daemon_that_nobody_knows_create() {
    crashed_everywhere_as(UNKNOWN, &CREATE);
}

/// S76: what belay cannot see (system calls without the C library) is asked for, as nobody has said that it sees all.
#[test]
fn s76_effects_that_are_not_seen_are_asked_for() {
    let steps = Steps::high_level_as(UNKNOWN, &["unseen", "die"]);
    let path = steps.mount.at("new");
    call(move || fs::create_dir(path)).result().unwrap();
    let status = steps.at_rest();
    assert_eq!((&status["crashes"], &status["policy"]), (&1.into(), &"journal".into()), "{status}");
    let reports = PathBuf::from(status["report_dir"].as_str().unwrap());
    assert!(until(|| !decisions(&reports, "MKDIR").is_empty()), "{}", steps.mount.log());
    let rows: Vec<_> = decisions(&reports, "MKDIR").iter().map(|d| d["row"].clone()).collect();
    assert_eq!(rows, [8], "{}", steps.mount.log());
}

/// S76: an image that no argument names is seen when the daemon has it open, and what helps is said, once. What is no file system,
/// or is only open because somebody has opened it on the mount, is none.
#[test]
fn s76_an_image_that_no_argument_names_is_told() {
    let file = |place: &Place<'_>, magic: &[u8]| {
        let mut head = vec![0; 4096];
        head[3..3 + magic.len()].copy_from_slice(magic);
        let path = place.dir.join("image");
        fs::write(&path, &head).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(4096 + (70 << 20)).unwrap();
        path
    };
    let dir = tempfile::Builder::new().prefix("belay-image-").tempdir_in("/dev/shm").unwrap();
    let image = dir.path().join("image");
    for (magic, arguments) in
        [(&b"NTFS    "[..], &[][..]), (b"NTFS    ", &["--policy", "journal"]), (b"no image", &[])]
    {
        let mount = Custom::start_with(&[("IMAGE", &image)], arguments, |place| {
            let program = place.dir.join("unknown");
            compile("image.c", &program);
            fs::rename(file(place, magic), &image).unwrap();
            vec![program.into(), "-e".into(), place.mountpoint.into(), "-f".into()]
        });
        let status = mount.wait_for("service", |status| status["state"] == "serving");
        let why = status["policy_reason"].as_str().unwrap();
        assert_eq!(status["policy"], "journal", "{status}");
        assert!(!arguments.is_empty() || why.contains("no disk image in its arguments"), "{why}");
        fs::create_dir(mount.at("a")).unwrap();
        let is_told = magic == b"NTFS    " && arguments.is_empty();
        if is_told {
            let status = mount.wait_for("the reason", |status| status["degraded"] == true);
            let reasons = status["degraded_reasons"].as_array().unwrap();
            let what = reasons[0]["what"].as_str().unwrap();
            assert_eq!((reasons.len(), &reasons[0]["kind"]), (1, &"policy".into()), "{status}");
            for part in [image.to_str().unwrap(), "NTFS", "--image", "--policy epoch"] {
                assert!(what.contains(part), "{part}: {what}");
            }
        }
        for _ in 0..2 {
            mount.crash_and_recover();
        }
        let status = mount.status().unwrap();
        assert_eq!(status["degraded"], is_told, "{status}");
        let told = mount.log().matches("DEGRADED").count();
        assert_eq!(told, usize::from(is_told), "{}", mount.log());
        mount.stop();
    }
}

/// S76: an image that somebody uses on the mount is not the daemon's own.
#[test]
fn s76_an_image_on_the_mount_is_not_the_daemons() {
    let mount = Custom::start(&[], |place| {
        let program = place.dir.join("unknown");
        fs::copy("/usr/bin/bindfs", &program).unwrap();
        let mut head = vec![0; 4096];
        head[3..11].copy_from_slice(b"NTFS    ");
        fs::write(place.behind.join("image"), head).unwrap();
        vec![program.into(), "-f".into(), place.behind.into(), place.mountpoint.into()]
    });
    let mut file = None;
    assert!(until(|| {
        file = File::options().read(true).write(true).open(mount.at("image")).ok();
        file.is_some()
    }));
    let file = file.unwrap();
    for _ in 0..2 {
        std::thread::sleep(std::time::Duration::from_millis(1500)); // nothing is to come
        mount.crash_and_recover();
        (&file).write_all(b"x").unwrap();
    }
    let status = mount.status().unwrap();
    assert_eq!((&status["policy"], &status["degraded"]), (&"journal".into(), &false.into()));
    assert!(!mount.log().contains("DEGRADED"), "{}", mount.log());
    drop(file);
    mount.stop();
}

/// S76: the status says which policy was chosen, and why.
#[test]
fn s76_status_says_why() {
    let steps = Steps::high_level_as(UNKNOWN, &[]);
    let status = steps.at_rest();
    assert_eq!(status["policy"], "journal");
    let why = status["policy_reason"].as_str().unwrap();
    assert!(why.starts_with("auto: ") && why.contains("no disk image in its arguments"), "{why}");
    let chosen = Steps::high_level(&[]);
    assert_eq!(chosen.at_rest()["policy_reason"], "--policy");
}
