//! Reports of crashes: what is on record of one is put together, and written.

use super::Supervisor;
use crate::autopsy::{self, Site};
use crate::clock;
use crate::companions::End;
use crate::detection::Detection;
use crate::handover::Descriptors;
use crate::inflight::Requests;
use crate::instances::REPORTS;
use crate::ledger::Crash;
use crate::process::ended_child;
use crate::report::{self, Decided, Outcome, Phases, Report, SCHEMA_VERSION};
use crate::text;
use belay_effects::remains::{self, Remains};
use belay_recorder::Layout;
use belay_recorder::control::{COUNTER_NAMES, Instant};
use rustix::fd::AsFd;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

impl Supervisor {
    /// Writes the report of a crash; gives its path, unless it could not be written.
    pub(super) fn write_report(
        &mut self,
        crash: &Crash,
        outcome: Outcome,
        blackout_us: Option<u64>,
    ) -> Option<PathBuf> {
        let number = self.book.tally.reported();
        let mut report = self.make_report(crash, number, outcome, blackout_us);
        // A supervisor that took over has not read them yet.
        let left = || Self::remains_of(&self.fds, &self.recorder.layout(), crash.generation);
        let remains = crash.remains.clone().or_else(left);
        report.crash = remains.as_ref().map(|remains| Site {
            message: autopsy::message(&remains.message, &crash.stderr),
            ..Site::from(&remains.head)
        });
        let reports = self.folder.child(REPORTS);
        let poisoned = report.counters.get("poisoned").copied().unwrap_or(0);
        let written = reports.and_then(|reports| Ok((report.write(&reports)?, reports)));
        match written {
            Ok((path, reports)) => {
                if let Some(remains) = remains {
                    self.helpers.backtraces.add(report, *remains, reports);
                }
                if poisoned > 0 {
                    tracing::warn!(
                        "requests that one daemon after another died of have failed: {poisoned}; \
                         {} names them",
                        path.display()
                    );
                }
                Some(path)
            }
            Err(error) => {
                // Said once: the next one fails of the same.
                if self.book.tally.not_written() {
                    tracing::warn!(
                        "{error}; further reports that cannot be written are only counted (`belay status`)"
                    );
                }
                None
            }
        }
    }

    /// What that generation has left. It stays until the next crash.
    pub(super) fn remains_of(
        fds: &Descriptors,
        layout: &Layout,
        generation: u32,
    ) -> Option<Box<Remains>> {
        let requests = Requests::new(fds.recorder.as_fd(), *layout);
        remains::read(&requests.view(), layout, generation).map(Box::new)
    }

    /// Tells how processes beside the daemon have ended, each with a report.
    pub(super) fn hear_companions(&mut self) {
        self.hear_of_companions(false);
    }

    /// The same at the end, when nobody is told later.
    pub(super) fn hear_last_of_companions(&mut self) {
        self.hear_of_companions(true);
    }

    fn hear_of_companions(&mut self, at_the_end: bool) {
        // The status of a child of this process may not have been taken yet.
        let exit_of = |pid| self.exits.of(pid).or_else(|| ended_child(pid));
        for end in self.companions.take_ends(at_the_end, exit_of) {
            let report = self.companion_report(&end);
            let written = self.folder.child(REPORTS).and_then(|reports| report.write(&reports));
            let shown = match written {
                Ok(path) => format!("; report {}", path.display()),
                Err(error) => {
                    self.book.tally.not_written();
                    format!("; no report: {error}")
                }
            };
            let next = match end.next {
                Some((pid, _)) => format!("process {pid} takes its place"),
                None => "nothing is in its place".to_owned(),
            };
            let End { role, pid, exit, .. } = end;
            tracing::warn!("{role} process {pid} {}; {next}{shown}", exit.told());
            self.keep_book();
        }
    }

    fn companion_report(&mut self, end: &End) -> Report {
        let companion = self.config.companions.iter().find(|one| one.role == end.role);
        let words = companion.map(|one| one.words.as_slice()).unwrap_or_default();
        let command = [OsStr::new("belay")].into_iter().chain(words.iter().map(|word| &*word.0));
        let spawned = end.next.and_then(|(_, at)| report::phase(end.died_ns, at));
        let death = |silence_ms| Detection::Stuck { silence_ms };
        Report {
            schema_version: SCHEMA_VERSION,
            number: self.book.tally.reported(),
            mountpoint: self.mountpoint(),
            command: text::command_line(command),
            time: clock::rfc3339(end.died_wall_ms),
            role: Some(end.role.clone()),
            generation: self.book.generation,
            pid: end.pid,
            exit: end.exit,
            detection: end.silence_ms.map_or(Detection::Death, death),
            outcome: if end.next.is_some() { Outcome::Recovered } else { Outcome::Interrupted },
            blackout_us: None,
            phases_us: Phases { spawned, ..Phases::default() },
            crash: None,
            in_flight: Vec::new(),
            journals: Vec::new(),
            decisions: Vec::new(),
            counters: BTreeMap::new(),
            killed: Vec::new(),
            stderr: Vec::new(),
            read_only: None,
        }
    }

    fn make_report(
        &self,
        crash: &Crash,
        number: u64,
        outcome: Outcome,
        blackout_us: Option<u64>,
    ) -> Report {
        let control = self.control();
        let died = crash.died_ns;
        let phase = |instant| report::phase(died, control.instant(instant));
        // Of an interrupted recovery, the instants are those of its successor already.
        let phases_us = if outcome == Outcome::Interrupted {
            Phases { spawned: report::phase(died, crash.spawned_ns), ..Phases::default() }
        } else {
            Phases {
                spawned: report::phase(died, crash.spawned_ns),
                attached: phase(Instant::Attached),
                first_read: phase(Instant::FirstRead),
                ready: phase(Instant::Ready),
                open: phase(Instant::Open),
                first_reply: phase(Instant::FirstReply),
            }
        };
        let decisions = control.decisions_since(crash.decision_top);
        let grown = |(i, (_, now)): (usize, (&str, u64))| {
            let before = crash.counters.get(i).copied().unwrap_or(0);
            let name = COUNTER_NAMES.get(i)?;
            (now > before).then(|| ((*name).to_owned(), now - before))
        };
        Report {
            schema_version: SCHEMA_VERSION,
            number,
            mountpoint: self.mountpoint(),
            command: self.config.command_line(),
            time: clock::rfc3339(crash.died_wall_ms),
            role: None,
            generation: crash.generation,
            pid: crash.pid,
            exit: crash.exit,
            detection: crash.detection.clone(),
            outcome,
            blackout_us,
            phases_us,
            crash: None,
            in_flight: crash.in_flight.clone(),
            journals: crash.journals.clone(),
            decisions: decisions.into_iter().map(Decided::from).collect(),
            counters: control.counters().enumerate().filter_map(grown).collect(),
            killed: crash.killed.clone(),
            stderr: crash.stderr.clone(),
            read_only: crash.read_only.clone(),
        }
    }
}
