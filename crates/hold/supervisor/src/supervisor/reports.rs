//! Reports of crashes: what is on record of one is put together, and written.

use super::Supervisor;
use crate::autopsy::{self, Site};
use crate::clock;
use crate::handover::Descriptors;
use crate::inflight::Requests;
use crate::instances::REPORTS;
use crate::ledger::Crash;
use crate::report::{self, Decided, Outcome, Phases, Report, SCHEMA_VERSION};
use belay_effects::remains::{self, Remains};
use belay_recorder::Layout;
use belay_recorder::control::{COUNTER_NAMES, Instant};
use rustix::fd::AsFd;
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
