//! Crash reports: what happened, what recovery did, how long it took; for people and programs.

use crate::autopsy::journal::Journal;
use crate::autopsy::{Frame, Site};
use crate::clock;
use crate::degraded::ReadOnly;
use crate::detection::Detection;
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::process::Exit;
use crate::text::{self, line as one_line};
use belay_recorder::control::Decision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Version of the JSON of a report. It grows by one when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// Reports kept for one mount; the oldest go first.
pub const KEPT: u64 = 1000;

/// What becomes of the mount when belay gives it up.
const GAVE_UP: &str = "gave up: the connection is aborted, as FUSE does when nobody serves it; callers that \
                       waited got ECONNABORTED, others get ENOTCONN until the mount is taken away";

/// One crash and its recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Number of this report, from 1.
    pub number: u64,
    /// Where the file system is mounted.
    pub mountpoint: String,
    /// The daemon's command line.
    pub command: String,
    /// When the end was noticed: RFC 3339, UTC.
    pub time: String,
    /// What the process was for, if it was one beside the daemon; `null` for a daemon.
    #[serde(default)]
    pub role: Option<String>,
    /// The generation that died, counted from 0; of a process beside the daemon, the daemon's.
    pub generation: u32,
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
    /// How that was noticed.
    pub detection: Detection,
    /// What came of it.
    pub outcome: Outcome,
    /// From the death to the first reply of the successor, or to its readiness if nobody waited
    /// for a reply; in microseconds. `null` if there was no recovery.
    pub blackout_us: Option<u64>,
    /// When the steps of the recovery were reached, in microseconds after the death.
    pub phases_us: Phases,
    /// What the crash looked like in the process; `null` if nothing was left that tells.
    pub crash: Option<Site>,
    /// The requests in flight at the death, with their arguments.
    pub in_flight: Vec<String>,
    /// What these had done outside of the daemon, where the policy has it logged.
    pub journals: Vec<Journal>,
    /// What recovery decided.
    pub decisions: Vec<Decided>,
    /// What recovery added to the recorder's counters; those that did not change are left out.
    pub counters: BTreeMap<String, u64>,
    /// Processes of the dead generation that did not end by themselves.
    pub killed: Vec<u32>,
    /// The daemon's last lines on standard error, oldest first.
    pub stderr: Vec<String>,
    /// With this crash the mount became read-only: why, and where what was acknowledged is kept.
    #[serde(default)]
    pub read_only: Option<ReadOnly>,
}

/// How a recovery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The successor serves.
    Recovered,
    /// The successor died before its recovery was complete; a later report goes on.
    Interrupted,
    /// Belay gave up on the mount.
    GaveUp,
}

/// Steps of a recovery, microseconds after the death; `null` if not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// The successor's process was there.
    pub spawned: Option<u64>,
    /// The shim in it held the lease.
    pub attached: Option<u64>,
    /// It read the device for the first time.
    pub first_read: Option<u64>,
    /// The negotiation with the kernel was settled.
    pub ready: Option<u64>,
    /// What was in flight was settled, new work was let in.
    pub open: Option<u64>,
    /// Its first reply.
    pub first_reply: Option<u64>,
}

/// One decision of recovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The generation that decided.
    pub generation: u32,
    /// The kind of request.
    pub request: String,
    /// The kernel's id of it.
    pub unique: u64,
    /// The kernel's node id.
    pub node: u64,
    /// Row of the decision table.
    pub row: u32,
    /// What the caller got: 0 or an errno.
    pub errno: i32,
    /// Arguments and reason.
    pub text: String,
}

impl From<Decision> for Decided {
    fn from(decision: Decision) -> Self {
        Self {
            generation: decision.generation,
            request: belay_wire::Opcode(decision.opcode).to_string(),
            unique: decision.unique,
            node: decision.node,
            row: decision.row,
            errno: decision.errno,
            // It comes from memory that the daemon could write to.
            text: decision.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        }
    }
}

impl Report {
    /// The report as text, at most some hundred lines.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.render_to(&mut out);
        out
    }

    fn render_to(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "belay crash report {}", self.number)?;
        writeln!(out, "mount:      {}", one_line(&self.mountpoint))?;
        writeln!(out, "command:    {}", one_line(&self.command))?;
        writeln!(out, "time:       {}", self.time)?;
        let (pid, exit) = (self.pid, self.exit.show());
        match &self.role {
            None => {
                writeln!(out, "daemon:     generation {}, process {pid}, {exit}", self.generation)?
            }
            Some(role) => writeln!(out, "beside it:  {}, process {pid}, {exit}", one_line(role))?,
        }
        writeln!(out, "noticed by: {}", one_line(&show_detection(&self.detection)))?;
        let outcome = match self.outcome {
            Outcome::Recovered if self.role.is_some() => "another process was started",
            Outcome::Interrupted if self.role.is_some() => "no other process could be started yet",
            Outcome::Recovered => "recovered",
            Outcome::Interrupted => "interrupted by the death of the successor",
            Outcome::GaveUp => GAVE_UP,
        };
        writeln!(out, "outcome:    {outcome}")?;
        if let Some(ReadOnly { reason, oplog, operations }) = &self.read_only {
            let kept = match oplog {
                Some(path) => {
                    let kept = text::acknowledged_since(*operations);
                    format!("the {kept} kept in {path}")
                }
                None => "what was acknowledged since could not be kept".to_owned(),
            };
            let why = one_line(&format!("{reason}; {kept}")).into_owned();
            writeln!(out, "read-only:  from now on, as at the last checkpoint: {why}")?;
        }
        match self.blackout_us {
            Some(us) => writeln!(out, "blackout:   {us} us")?,
            // Who needs it waits, and who does not notices nothing.
            None if self.role.is_some() => {}
            None => writeln!(out, "blackout:   not over")?,
        }
        let p = &self.phases_us;
        let steps = [
            ("spawned", p.spawned),
            ("attached", p.attached),
            ("first read", p.first_read),
            ("ready", p.ready),
            ("open", p.open),
            ("first reply", p.first_reply),
        ];
        write!(out, "phases:    ")?;
        for (name, us) in steps {
            match us {
                Some(us) => write!(out, " {name} {us} us;")?,
                None => write!(out, " {name} -;")?,
            }
        }
        writeln!(out)?;
        let crash = self.crash.as_ref();
        section(out, "crash", &crash.map(Site::lines).unwrap_or_default())?;
        if let Some(frames) = crash.and_then(|crash| crash.backtrace.as_ref()) {
            let frames: Vec<String> = frames.iter().map(Frame::line).collect();
            section(out, "backtrace", &frames)?;
        }
        section(out, "requests in flight", &self.in_flight)?;
        let journals: Vec<String> = self.journals.iter().flat_map(Journal::lines).collect();
        section(out, "what these had done", &journals)?;
        let decisions: Vec<String> = self.decisions.iter().map(show_decision).collect();
        section(out, "decisions", &decisions)?;
        let counters: Vec<String> =
            self.counters.iter().map(|(name, by)| format!("{name} +{by}")).collect();
        section(out, "counters", &counters)?;
        let killed: Vec<String> = self.killed.iter().map(u32::to_string).collect();
        section(out, "processes of the dead daemon that were killed", &killed)?;
        section(out, "last lines of the daemon", &self.stderr)
    }

    /// Writes the report as `NNNN.txt` and `NNNN.json` into `folder`, each whole or not at all, and
    /// drops the oldest beyond [`KEPT`]. Gives the path of the text.
    ///
    /// # Errors
    /// Those of writing a file.
    pub fn write(&self, folder: &Folder) -> Result<PathBuf> {
        let json = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::refused("crash report", error.to_string(), ""))?;
        let text = name(self.number, "txt");
        folder.put(&name(self.number, "json"), &json)?;
        folder.put(&text, self.render().as_bytes())?;
        if let Some(old) = self.number.checked_sub(KEPT).filter(|old| *old > 0) {
            folder.remove(&name(old, "json"));
            folder.remove(&name(old, "txt"));
        }
        Ok(folder.path().join(text))
    }
}

fn name(number: u64, kind: &str) -> String {
    format!("{number:04}.{kind}")
}

fn section(out: &mut String, title: &str, lines: &[String]) -> std::fmt::Result {
    if lines.is_empty() {
        return writeln!(out, "{title}: none");
    }
    writeln!(out, "{title}:")?;
    // Names and words in it are the daemon's, or of who uses the mount: none of them begins a line
    // of its own.
    lines.iter().try_for_each(|line| writeln!(out, "  {}", one_line(line)))
}

fn show_decision(decision: &Decided) -> String {
    let result = match decision.errno {
        0 => "answered".to_owned(),
        errno => format!("errno {errno}"),
    };
    format!(
        "{} unique {} node {}: row {}, {result}; {}",
        decision.request, decision.unique, decision.node, decision.row, decision.text
    )
}

/// How an end was noticed, for people.
pub fn show_detection(detection: &Detection) -> String {
    match detection {
        Detection::Death => "the end of its process".to_owned(),
        Detection::NotStarted { why } => format!("the start, which failed: {why}"),
        Detection::Hang { request } => format!("a request in flight for too long: {request}"),
        Detection::Stuck { silence_ms } => format!(
            "its not getting on for {} (--hang-timeout)",
            text::span(Duration::from_millis(*silence_ms))
        ),
        Detection::Memory { bytes, limit } => {
            let [bytes, limit] = [bytes, limit].map(|number| text::bytes(*number));
            format!("its memory: {bytes}, which is more than {limit} (--memory-limit)")
        }
        Detection::Recorder { bytes, on_record } => format!(
            "the memory that it shares with belay: {}, of which {} can be on record",
            text::bytes(*bytes),
            text::bytes(*on_record)
        ),
        Detection::Unheld { why } => format!("its being held by nobody: {why}"),
        Detection::GaveUp => "its unmounting and ending, which nobody had asked for".to_owned(),
        Detection::StartTimeout => "the start, which took too long".to_owned(),
        Detection::Requested { signal } => format!("`belay crash`: {signal}"),
        Detection::Restart => "`belay restart`".to_owned(),
        Detection::Checkpoint => "a checkpoint, made by its end".to_owned(),
        Detection::Takeover => "a new supervisor".to_owned(),
        Detection::Violation { rule, request, reply } => {
            format!("a reply that was not passed on, as {rule}: {request}; reply {reply}")
        }
    }
}

/// Microseconds from `died` to `at`; `None` if it was not reached, or not after the death.
pub fn phase(died: u64, at: u64) -> Option<u64> {
    (at > died).then(|| clock::micros(died, at))
}

#[cfg(test)]
pub(crate) fn example() -> Report {
    Report {
        schema_version: SCHEMA_VERSION,
        number: 7,
        mountpoint: "/mnt/data".into(),
        command: "sshfs -f host:/data /mnt/data".into(),
        time: clock::rfc3339(1_700_000_000_123),
        role: None,
        generation: 6,
        pid: 4242,
        exit: Exit::Signal(11),
        detection: Detection::Death,
        outcome: Outcome::Recovered,
        blackout_us: Some(4200),
        phases_us: Phases { spawned: Some(700), open: Some(4300), ..Phases::default() },
        crash: Some(Site {
            signal: "SIGSEGV".into(),
            code: 1,
            meaning: Some("nothing is mapped at the address".into()),
            address: Some("0x10".into()),
            sender: None,
            thread: 4243,
            request: Some(crate::autopsy::Work { unique: 8, request: "UNLINK".into() }),
            registers: BTreeMap::from([("rip".to_owned(), "0x5555".to_owned())]),
            message: Some("Assertion `x' failed".into()),
            backtrace: Some(vec![Frame {
                address: "0x5555".into(),
                module: Some("/usr/bin/daemon".into()),
                offset: Some("0x555".into()),
                function: Some("remove_entry".into()),
                file: Some("daemon.c".into()),
                line: Some(40),
            }]),
        }),
        in_flight: vec!["UNLINK unique=8 node=1 \"a\"".into()],
        journals: vec![Journal {
            unique: 8,
            calls: vec![crate::autopsy::journal::Call {
                call: "unlink".into(),
                result: Some(-1),
                errno: Some(13),
            }],
            more: false,
            whole: false,
        }],
        decisions: vec![Decided {
            generation: 7,
            request: "UNLINK".into(),
            unique: 8,
            node: 1,
            row: 6,
            errno: 0,
            text: "\"a\" is gone: it was done".into(),
        }],
        counters: BTreeMap::from([("reconciled".to_owned(), 1)]),
        killed: vec![],
        stderr: vec!["assertion failed".into()],
        read_only: Some(ReadOnly {
            reason: "it failed".into(),
            oplog: Some("/image.belay-oplog".into()),
            operations: 3,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snapbox::{assert_data_eq, file};

    #[test]
    fn what_others_say_stays_on_its_line() {
        let odd = "x\noutcome:    recovered\u{1b}[2J".to_owned();
        let plain = example();
        let mut report = plain.clone();
        report.mountpoint = odd.clone();
        report.detection = Detection::Hang { request: odd.clone() };
        for lines in [&mut report.in_flight, &mut report.stderr] {
            lines.push(odd.clone());
        }
        if let Some(crash) = &mut report.crash {
            crash.message = Some(odd.clone());
        }
        for decision in &mut report.decisions {
            decision.text.clone_from(&odd);
        }
        let text = report.render();
        assert_eq!(text.lines().filter(|line| line.starts_with("outcome:")).count(), 1, "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("x\\u000aoutcome:"), "{text}");
        assert_eq!(text.lines().count(), plain.render().lines().count() + 2);
    }

    #[test]
    fn reports_say_all_in_text_and_json() {
        let report = example();
        assert_data_eq!(report.render(), file!["../tests/snapshots/report.txt"].raw());
        let json = serde_json::to_string_pretty(&report).expect("json") + "\n";
        assert_data_eq!(json.as_str(), file!["../tests/snapshots/report.json": Text].raw());
        assert_eq!(serde_json::from_str::<Report>(&json).expect("parse"), report);
    }

    #[test]
    fn reports_are_written_whole_and_the_oldest_dropped() {
        let dir = tempfile::tempdir().expect("tempdir");
        let folder = Folder::own(dir.path()).expect("own");
        let mut report = example();
        for number in [1, 2, KEPT, KEPT + 1] {
            report.number = number;
            report.write(&folder).expect("write");
        }
        let mut names: Vec<String> = std::fs::read_dir(dir.path())
            .expect("list")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let kept = ["0002.json", "0002.txt", "1000.json", "1000.txt", "1001.json", "1001.txt"];
        assert_eq!(names, kept);
    }
}
