//! The status of the mount.

use super::Supervisor;
use crate::clock;
use crate::clock::SECOND;
use crate::degraded::Kind;
use crate::instances::REPORTS;
use crate::ledger;
use crate::orphans;
use crate::status::{
    Daemon, EffectCounts, ImageStatus, Process, Requests, Restored, SCHEMA_VERSION, State, Status,
    Wait,
};
use crate::text::OsText;
use belay_effects::area::Tally;
use belay_recorder::control::{Counter, Flags, Loss, Options};

/// What is said once of a daemon that was seen to do that.
const KEEPS_WRITES: &str = "this daemon answers changes and keeps them to itself: they are lost if it dies before it stores them; use --policy \
                            buffer, or let `belay qualify` find the policy";

impl Supervisor {
    /// Where the file system is, or will probably be, mounted; for people.
    pub(super) fn mountpoint(&self) -> String {
        self.place().map(OsText::show).unwrap_or_default()
    }

    pub(super) fn place(&self) -> Option<&OsText> {
        let known = self.book.mounts.held.as_ref().map(|mount| &mount.mountpoint);
        known.or(self.config.guessed_mountpoint.as_ref())
    }

    pub(super) fn state(&self) -> State {
        if self.book.tries.gave_up {
            State::GaveUp
        } else if self.book.stop.is_some() || self.life.ended().is_some() {
            State::Stopping
        } else if self.waiting().is_some() {
            State::Waiting
        } else if self.life.serves() && self.why_it_stays().is_none() {
            State::Serving
        } else if self.book.crash.is_some() || self.life.serves() {
            State::Recovering
        } else {
            State::Starting
        }
    }

    fn effect_counts(&self) -> EffectCounts {
        let area = self.recorder.area();
        EffectCounts {
            replayed: area.tally(Tally::Replayed),
            probed: area.tally(Tally::Probed),
            diverged: area.tally(Tally::Diverged),
            untagged: area.tally(Tally::Untagged),
            handed_over: area.tally(Tally::HandedOver),
            committed: area.tally(Tally::Committed),
            finished: area.tally(Tally::Finished),
            torn: area.tally(Tally::Torn),
        }
    }

    fn image_status(&self) -> Option<ImageStatus> {
        let image = self.config.image.as_ref()?;
        let overlay = self.recorder.overlay();
        Some(ImageStatus {
            path: image.path.show(),
            journal: image.journal.show(),
            at_start: image.at_start,
            epoch: overlay.epoch().unwrap_or(0),
            committed: overlay.committed().unwrap_or(0),
        })
    }

    fn wait_status(&self, waiting: &ledger::Waiting) -> Wait {
        let now = clock::now();
        let left = |at: u64| at.saturating_sub(now) / SECOND;
        Wait {
            reason: waiting.why.clone(),
            words: waiting.words.clone(),
            hint: waiting.hint.clone(),
            tries: waiting.tries,
            since_seconds: now.saturating_sub(waiting.since_ns) / SECOND,
            next_seconds: self.life.next_start().map(left),
            left_seconds: left(self.life.patient_until(waiting)),
        }
    }

    /// The mount is degraded from now on: `what` is lost, for good.
    pub(super) fn lost(&mut self, kind: Kind, what: &str) {
        if self.book.degraded.add(kind, what, &clock::rfc3339(clock::wall_ms())) {
            tracing::warn!("DEGRADED: {what}");
            self.keep_book();
        }
    }

    /// The mount is degraded as long as this fails: one reason of each kind, whose text may be
    /// brought up to date.
    pub(super) fn degrade(&mut self, kind: Kind, what: &str) {
        if self.book.degraded.set(kind, what, &clock::rfc3339(clock::wall_ms())) {
            tracing::warn!("DEGRADED: {what}");
            self.keep_book();
        }
    }

    /// What made the mount degraded does not fail any more.
    pub(super) fn restored(&mut self, kind: Kind) {
        if self.book.degraded.clear(kind) {
            self.keep_book();
        }
    }

    /// Carries over where the daemon writes on though the host forbids it.
    pub(super) fn hear_mirror(&mut self) {
        match self.helpers.mirror.told() {
            Some(what) => self.degrade(Kind::Mount, &what),
            None => self.restored(Kind::Mount),
        }
    }

    /// Why it is this policy, and what was seen of the daemon since that speaks against it.
    fn policy_reason(&self) -> String {
        let chosen = &self.config.policy_reason;
        if self.book.content.keeps_writes {
            format!("{chosen}; {KEEPS_WRITES}")
        } else {
            chosen.clone()
        }
    }

    /// Carries over what shims have told of.
    pub(super) fn hear_losses(&mut self) {
        if !self.book.content.keeps_writes && self.control().has(Flags::KEEPS_WRITES) {
            self.book.content.keeps_writes = true;
            tracing::warn!("{KEEPS_WRITES}");
            self.keep_book();
        }
        let losses = self.book.degraded.hear(&self.recorder.control(), clock::now());
        for (loss, what) in losses {
            if loss == Loss::Second {
                self.hear_of_second(&what);
            } else if loss != Loss::Stored {
                self.lost(loss.into(), &what);
            } else if self.book.degraded.stored(&what) {
                tracing::info!("no longer so: {what}");
                self.keep_book();
            }
        }
    }

    /// Notes what is known, for when belay is killed with all that is its.
    pub(super) fn note_mount(&mut self) {
        if let Some(mount) = self.book.mounts.held.clone() {
            let status = self.status();
            orphans::note(&self.folder, &mount, status);
        }
    }

    pub(super) fn status(&mut self) -> Status {
        self.hear_losses();
        self.hear_companions();
        self.look_for_progress();
        let control = self.control();
        let count = |counter| control.counter(counter);
        let store = self.recorder.store();
        let (planned, restarts) = self.book.tally.asked_for();
        let (reports, reports_failed) = self.book.tally.reports();
        let companions = self.companions.statuses();
        let mut degraded_reasons = self.book.degraded.list().to_vec();
        degraded_reasons.extend(self.companions.wrong(&companions));
        Status {
            schema_version: SCHEMA_VERSION,
            mountpoint: self.mountpoint(),
            mountpoint_bytes: self.place().and_then(OsText::odd_bytes),
            state: self.state(),
            generation: self.book.generation,
            crashes: self.book.tally.crashes(),
            planned,
            restarts,
            blackout_us: self.kept.blackouts(),
            requests: Requests {
                in_flight: self.requests().count(),
                total: count(Counter::Requests),
                reissued: count(Counter::Reissued),
                reconciled: count(Counter::Reconciled),
                recorded: count(Counter::Recorded),
                failed: count(Counter::Failed),
                poisoned: count(Counter::Poisoned),
            },
            restored: Restored {
                nodes: count(Counter::NodesRestored),
                handles: count(Counter::HandlesRestored),
                locks: count(Counter::LocksRestored),
                streams: count(Counter::StreamsRestored),
                renumbered: count(Counter::Renumbered),
            },
            effects: self.effect_counts(),
            image: self.image_status(),
            epoch: self.epoch_status(),
            nodes_cached: store.nodes_live(),
            open_handles: store.handles_live(),
            policy: self.config.policy.effective().to_owned(),
            policy_reason: self.policy_reason(),
            daemon: Daemon {
                pid: self.process().map(|process| process.pid),
                command: self.config.command_line(),
                exit: self.book.last_exit,
            },
            supervisor: Process { pid: std::process::id() },
            keeper: Process { pid: self.keeper.pid() },
            takeovers: self.book.tally.takeovers(),
            uptime_seconds: clock::now().saturating_sub(self.book.started_ns) / SECOND,
            report_dir: self.folder.path().join(REPORTS).display().to_string(),
            reports,
            reports_failed,
            log: self.config.log.as_ref().map(OsText::show),
            degraded: !degraded_reasons.is_empty(),
            degraded_reasons,
            degraded_unlisted: self.book.degraded.unlisted(),
            resend: !self.options().contains(Options::NO_RESEND),
            read_only: self.book.content.read_only.clone(),
            failed_starts: self.book.tally.failed_starts(),
            waiting: self.waiting().map(|waiting| self.wait_status(waiting)),
            companions,
            standby: self.standby.pid().map(|pid| Process { pid }),
            stalled: self.book.stalled.shown(&self.mountpoint(), clock::now()),
        }
    }
}
