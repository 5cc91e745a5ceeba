//! The status of the mount.

use super::{SECOND, Supervisor};
use crate::clock;
use crate::status::{
    Daemon, Effects, Image, Process, Requests, Restored, SCHEMA_VERSION, State, Status,
};
use belay_effects::area::{Area, Tally};
use belay_image::overlay::{self, Overlay};
use belay_recorder::Store;
use belay_recorder::control::{Counter, flags, options};
use std::sync::Arc;

impl Supervisor {
    /// Where the file system is, or will probably be, mounted; for people.
    pub(super) fn mountpoint(&self) -> String {
        let known = self.book.mount.as_ref().map(|mount| &mount.mountpoint);
        let place = known.or(self.config.guessed_mountpoint.as_ref());
        place.map(|place| place.show()).unwrap_or_default()
    }

    pub(super) fn state(&self) -> State {
        if self.book.gave_up {
            State::GaveUp
        } else if self.book.stop.is_some() {
            State::Stopping
        } else if self.complete {
            State::Serving
        } else if self.book.crash.is_some() {
            State::Recovering
        } else {
            State::Starting
        }
    }

    fn effects(&self) -> Effects {
        let area = Area::new(&*self.memory, self.layout);
        Effects {
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

    fn image(&self) -> Option<Image> {
        let image = self.config.image.as_ref()?;
        let overlay = Overlay::new(&*self.memory, self.layout.epochs, overlay::Capacity::MOUNT);
        Some(Image {
            path: image.path.show(),
            journal: image.journal.show(),
            at_start: image.at_start,
            epoch: overlay.epoch().unwrap_or(0),
            committed: overlay.committed().unwrap_or(0),
        })
    }

    pub(super) fn status(&self) -> Status {
        let control = self.control();
        let count = |counter| control.counter(counter);
        let store = Store::new(Arc::clone(&self.memory), self.layout);
        Status {
            schema_version: SCHEMA_VERSION,
            mountpoint: self.mountpoint(),
            state: self.state(),
            generation: self.book.generation,
            crashes: self.book.crashes,
            planned: self.book.planned,
            blackout_us: self.blackouts.summary(),
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
            },
            effects: self.effects(),
            image: self.image(),
            epoch: self.epoch_facts(),
            nodes_cached: store.nodes_live(),
            open_handles: store.handles_live(),
            policy: self.config.policy.effective().to_owned(),
            daemon: Daemon {
                pid: self.daemon.as_ref().or(self.spawned.as_ref()).map(|process| process.pid),
                command: self.config.command_line(),
                exit: self.book.last_exit,
            },
            supervisor: Process { pid: std::process::id() },
            keeper: Process { pid: self.keeper_pid },
            takeovers: self.book.takeovers,
            uptime_seconds: clock::now().saturating_sub(self.book.started_ns) / SECOND,
            report_dir: self.config.instance.join("reports").display().to_string(),
            reports: self.book.reports,
            degraded: control.has(flags::DEGRADED) || control.has(flags::INIT_MISMATCH),
            resend: control.options() & options::NO_RESEND == 0 && self.book.resend != Some(false),
            read_only: self.book.read_only.clone(),
        }
    }
}
