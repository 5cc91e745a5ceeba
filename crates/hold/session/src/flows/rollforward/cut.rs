//! Checkpoints in the middle of a roll-forward: so that daemons which die before they come to its
//! end get on all the same, each a little further.
//!
//! What the daemon has been given so far it is made to write, as for any checkpoint; it is given
//! nothing else meanwhile. The store that ends the epoch leaves in the op-log what comes behind,
//! see `belay_oplog`.
//!
//! A daemon that writes at its end only is ended for it: the log of the next epoch is prepared, and
//! if the daemon comes to a clean end, the supervisor's store makes that the log. Else nothing has
//! changed. As it costs a start, there is none before daemons were seen to die on the way. Then the
//! next one is ended when it has come half as far as the last; one that is ended so lets the next
//! go twice as far. So each gets on whose life is long enough for a start, a record and an end, and
//! when nobody kills them any more, few are ended.

use super::MOST;
use super::state::RollForward;
use crate::flows::step::Step;
use crate::parts::epochs::Flush;
use crate::session::Session;
use crate::work::Work;
use belay_memory::Memory;
use belay_oplog::{Oplog, Replay};
use belay_recorder::control::FlushBy;

impl RollForward {
    /// Whether there can be a checkpoint in front of the record that comes next.
    fn may_be_cut(&self) -> bool {
        self.cuts.get(self.replay.at()).is_some_and(|may| *may)
    }

    /// Whether the daemon has come so far that it is to be ended for a checkpoint.
    pub(super) fn is_far_enough(&self) -> bool {
        self.wanted && self.may_be_cut() && self.aim.is_some_and(|aim| self.replay.at() >= aim)
    }
}

impl<M: Memory> Session<M> {
    /// Whether a daemon is ended for each checkpoint.
    pub fn ends_for_checkpoints(&self) -> bool {
        self.control().checkpoint_settings().flush == FlushBy::Restart
    }

    /// Whether the daemon is to be ended for one on the way.
    pub fn is_to_be_cut(&self) -> bool {
        self.forward.as_ref().is_some_and(|forward| forward.aim.is_some())
    }

    /// Has a checkpoint made as soon as there can be one, if what was acknowledged is being
    /// replayed.
    pub fn want_cut(&mut self) {
        // Without an image there is no checkpoint.
        let may = self.holds_syncs() && !self.is_read_only();
        if let Some(forward) = self.forward.as_mut().filter(|_| may) {
            forward.wanted = true;
        }
    }

    /// In front of which record of `log` a daemon that writes at its end only is to be ended, if it
    /// is; of `cuts`, which may be.
    pub(super) fn aim(&self, log: &Oplog<M>, cuts: &[bool]) -> Option<usize> {
        let control = self.control();
        let now = self.epochs.current() as u32;
        let (epoch, before) = control.forward_aim();
        control.set_forward_aim(now, 0);
        let (dead, reached) = control.forward()?;
        let told = control.retiring() == Some(dead);
        let heads = log.heads();
        let records = if epoch == now {
            let (judged, blame) = control.blame();
            if told && judged == dead && blame.is_its_own() {
                return None; // it cannot end as it should
            }
            (reached as usize).saturating_sub(heads) / 2
        } else if told && epoch == now.wrapping_sub(1) {
            before as usize * 2
        } else {
            return None;
        };
        let records = records.max(1);
        control.set_forward_aim(now, u32::try_from(records).unwrap_or(u32::MAX));
        // The last one that is not too far, or else the first. In front of the first record nothing
        // is gained.
        let may = |at: &usize| *at > heads && cuts.get(*at).is_some_and(|may| *may);
        let far = heads.saturating_add(records).min(cuts.len());
        (heads..=far).rev().find(may).or_else(|| (far..cuts.len()).find(may))
    }

    /// The daemon is told that the mount has gone. What it has open is closed.
    fn end_step(&mut self, forward: &mut RollForward) -> Option<Step> {
        if !self.prepare(forward) {
            return None;
        }
        self.tasks.hand_out(Work::Retire);
        Some(Step::Blocked)
    }

    /// Between two records: what is to be done for a checkpoint that is wanted.
    pub(super) fn cut_step(&mut self, forward: &mut RollForward) -> Option<Step> {
        if self.ends_for_checkpoints() {
            return if forward.is_far_enough() { self.end_step(forward) } else { None };
        }
        if !forward.wanted || !forward.may_be_cut() {
            return None;
        }
        match self.epochs.flush() {
            Flush::Done => {
                // Handed out before this task is asked again.
                self.tasks.hand_out(Work::Seal);
                Some(Step::Blocked)
            }
            Flush::Failed(_) => {
                self.end_cut(forward);
                None
            }
            _ => match self.flush_step() {
                Step::Done => None,
                step => Some(step),
            },
        }
    }

    fn end_cut(&mut self, forward: &mut RollForward) {
        forward.wanted = false;
        self.epochs.set_flush(Flush::No);
    }

    /// All is written: prepares the log of the next epoch, before the store that ends this one.
    /// `false`: this one goes on.
    pub fn prepare_cut(&mut self) -> bool {
        let Some(mut forward) = self.forward.take() else { return true };
        let done = self.prepare(&mut forward);
        self.forward = Some(forward);
        done
    }

    fn prepare(&mut self, forward: &mut RollForward) -> bool {
        let done = match self.logged.log_mut() {
            Some(log) => log.prepare_cut(forward.replay.at(), forward.names.all()),
            None => Ok(false),
        };
        let done = done.unwrap_or(false);
        if !done {
            forward.cuts.clear(); // there is no room for it, and will not be
            self.end_cut(forward);
        }
        done
    }

    /// The epoch was not ended.
    pub(crate) fn abandon_cut(&mut self) {
        if let Some(log) = self.logged.log_mut() {
            log.cancel_cut();
        }
        if let Some(mut forward) = self.forward.take() {
            self.end_cut(&mut forward);
            self.forward = Some(forward);
        }
    }

    /// The epoch has ended: the log is what was not issued yet.
    pub(crate) fn finish_cut(&mut self) {
        let Some(mut forward) = self.forward.take() else { return };
        let heads = self.logged.log_mut().map(|log| (log.cut(), log.cuts(), log.length()));
        match heads {
            Some((Ok(Some(heads)), cuts, length)) => {
                forward.replay = Replay::starting_at(heads, MOST);
                // Where nothing was done since there is nothing to gain.
                forward.cuts = cuts;
                forward.cuts.iter_mut().take(heads + 1).for_each(|may| *may = false);
                self.control().set_forward_length(length as u64);
            }
            // What comes behind is lost, which is found, and said, at the next record.
            _ => forward.cuts.clear(),
        }
        self.end_cut(&mut forward);
        self.forward = Some(forward);
    }
}
