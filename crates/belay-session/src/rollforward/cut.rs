//! Checkpoints in the middle of a roll-forward: so that daemons which die before they come to its end get on all the same,
//! each a little further.
//!
//! What the daemon has been given so far it is made to write, as for any checkpoint; it is given nothing else meanwhile. The
//! store that ends the epoch leaves in the op-log what comes behind, see `belay_oplog`.

use super::{MOST, RollForward};
use crate::checkpoint::Flush;
use crate::session::{Session, Work};
use crate::task::Step;
use belay_oplog::Replay;
use belay_recorder::Memory;
use belay_recorder::control::FlushBy;

impl<M: Memory> Session<M> {
    /// Has a checkpoint made as soon as there can be one, if what was acknowledged is being issued again.
    pub fn want_cut(&mut self) {
        // One that writes at its end only would have to be ended for it; and without an image there is no checkpoint.
        let ends = self.control().checkpoints().flush == FlushBy::Restart;
        let may = self.holds_syncs() && !ends && !self.is_read_only();
        if let Some(forward) = self.forward.as_mut().filter(|_| may) {
            forward.wanted = true;
        }
    }

    /// Between two records: what is to be done for a checkpoint that is wanted.
    pub(super) fn cut_step(&mut self, forward: &mut RollForward) -> Option<Step> {
        let at = forward.replay.at();
        if !forward.wanted || !forward.cuts.get(at).is_some_and(|may| *may) {
            return None;
        }
        match self.epochs.flush {
            Flush::Done => {
                // Handed out before this task is asked again.
                self.outbox.push_back(Work::Seal);
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
        self.epochs.flush = Flush::No;
    }

    /// All is written: prepares the log of the next epoch, before the store that ends this one. `false`: this one goes on.
    pub fn prepare_cut(&mut self) -> bool {
        let Some(mut forward) = self.forward.take() else { return true };
        let done = match &mut self.log {
            Some(log) => log.prepare_cut(forward.replay.at(), forward.names.all()),
            None => Ok(false),
        };
        let done = done.unwrap_or(false);
        if !done {
            forward.cuts.clear(); // there is no room for it, and will not be
            self.end_cut(&mut forward);
        }
        self.forward = Some(forward);
        done
    }

    /// The epoch was not ended.
    pub(crate) fn abandon_cut(&mut self) {
        if let Some(log) = &mut self.log {
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
        let heads = self.log.as_mut().map(|log| (log.cut(), log.cuts(), log.length()));
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
