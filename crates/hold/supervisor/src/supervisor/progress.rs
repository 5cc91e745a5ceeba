//! Whether daemons come to answer anything at all before they end, and how far they come.

use super::Supervisor;
use crate::clock;
use crate::detection::Detection;
use crate::mounts;
use crate::process::Exit;
use crate::stalled::{Doing, Ended, Part};
use crate::status::Forward;
use crate::verdict::Worth;
use belay_recorder::Capacity;
use belay_recorder::control::{Counter, Instant};

impl Supervisor {
    /// What the current generation, which has ended, was at. Only to be shown: all of it may be the
    /// daemon's word.
    pub(super) fn life_that_ended(&self, exit: Exit, died_ns: u64) -> Ended {
        let (control, life) = (self.control(), &self.book.life);
        let generation = self.book.generation;
        let since = |counter, before| control.counter(counter).wrapping_sub(before);
        let store = self.recorder.store();
        let forward = control.forward().filter(|(other, _)| *other == generation);
        let of = control.forward_length().min(u32::MAX.into());
        let doing = match (control.instant(Instant::Ready), control.instant(Instant::Open)) {
            (0, _) => Doing::Starting,
            _ if forward.is_some() => Doing::RollingForward,
            (_, 0) => Doing::Restoring,
            _ => Doing::Serving,
        };
        let forward = forward.filter(|_| doing == Doing::RollingForward);
        let nodes = since(Counter::NodesRestored, life.restored.0);
        let handles = since(Counter::HandlesRestored, life.restored.1);
        Ended {
            generation,
            lived_ms: died_ns.saturating_sub(life.started_ns) / 1_000_000,
            exit,
            doing,
            operation: forward.map(|(_, record)| Forward { record: u64::from(record).min(of), of }),
            nodes: Part::new(nodes, store.nodes_live(), Capacity::MOUNT.nodes as u64),
            handles: Part::new(handles, store.handles_live(), Capacity::MOUNT.handles as u64),
            locks: Part { done: since(Counter::LocksRestored, life.restored.2), of: 0 },
        }
    }

    /// Counts a life that has answered nobody while somebody waits. `asked`: the daemon had
    /// requests, or was to have some.
    pub(super) fn count_stalled(
        &mut self,
        mut ended: Ended,
        worth: Worth,
        detection: &Detection,
        asked: bool,
    ) {
        // An end for a checkpoint is progress, and for a start that fails there are words already.
        if *detection == Detection::Checkpoint || self.waiting().is_some() {
            return;
        }
        let waits = || {
            asked
                || mounts::waiting(self.book.mounts.held.as_ref(), self.device())
                    .is_some_and(|n| n > 0)
        };
        // Of the first life it is not noted what it has answered.
        let first = ended.generation == 0;
        if first || worth != Worth::Nothing || !waits() {
            if !self.book.stalled.is_empty() {
                self.end_stalled();
                self.keep_book();
            }
            return;
        }
        let store = self.recorder.store();
        let locks = store.locks().len() as u64;
        ended.locks = Part::new(ended.locks.done, locks, locks);
        let now = clock::now();
        if self.book.stalled.add(ended, now)
            && let Some(stalled) = self.book.stalled.shown(&self.mountpoint(), now)
        {
            tracing::warn!("{}: {}", self.mountpoint(), stalled.tell());
        }
        if self.life.ended().is_none() {
            self.keep_book();
        }
    }

    /// Looks whether the current generation has answered something.
    pub(super) fn look_for_progress(&mut self) {
        if !self.book.stalled.is_empty()
            && self.daemon.holder().is_some()
            && self.control().instant(Instant::FirstReply) != 0
        {
            self.end_stalled();
            self.keep_book();
        }
    }

    fn end_stalled(&mut self) {
        if let Some(lives) = self.book.stalled.end() {
            let place = self.mountpoint();
            tracing::info!(
                "{place}: a daemon has come to answer requests, after {lives} that did not"
            );
        }
    }
}
