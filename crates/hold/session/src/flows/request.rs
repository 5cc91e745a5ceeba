//! A parked request: everything that has to be so before it can go to the daemon, or is answered
//! without it.

use crate::flows::flow::Parked;
use crate::flows::restore::missing::{Missed, Missing};
use crate::flows::step::Step;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::SlotState;
use belay_wire::errno::ESTALE;
use belay_wire::{Request, Unique, build};

impl<M: Memory> Session<M> {
    /// What a parked request needs next. `task`: the number of its task; `old`: whether that comes
    /// before new work.
    pub(crate) fn request_step(&mut self, task: u64, old: &mut bool, parked: &mut Parked) -> Step {
        if let Some(step) = self.first_step(parked) {
            return step;
        }
        if let Some(errno) = parked.failed {
            return self.fail(parked, errno);
        }
        let message = parked.message().to_vec();
        let Ok(request) = Request::parse(&message) else { return Step::Done };
        if let Some(step) = self.forbid_step(parked, &request) {
            return step;
        }
        if let Some(step) = self.sync_step(parked, &request) {
            return step;
        }
        if self.is_held_up(parked, &request) {
            *old = false; // the checkpoint comes when what was in flight is settled
            return Step::Blocked;
        }
        if let Some(relock) = self.relock_for(&request) {
            return Step::After(relock);
        }
        if let Some(step) = self.settle_early(parked, &request) {
            return step;
        }
        if self.releases_unbound(&request) {
            return self.answer(parked, &build::reply_ok(request.header.unique));
        }
        match self.resolve(&message) {
            // The kernel keeps what it asks about until it is answered, so this copy is of a
            // request that was.
            Err(Missing::Gone) if self.keeps_copies() && parked.resent.is_some() => {
                self.unclaim(parked.slot.take());
                return Step::Done;
            }
            Err(missing) => match self.restore(missing) {
                Missed::Step(step) => return step,
                Missed::Failed(errno) => return self.fail(parked, errno),
                Missed::Nameless => {
                    parked.answered = true;
                    return self.fail(parked, ESTALE);
                }
            },
            Ok(_) if self.is_excluded_for(&request, task) => return Step::Blocked,
            Ok(_) => {}
        }
        if let Some(step) = self.settle_late(parked, &request) {
            return step;
        }
        if let Some(step) = self.lead_step(parked, &request) {
            return step;
        }
        if self.root_unmet(&request)
            && let Some(step) = self.meet_root()
        {
            return step;
        }
        if let Some(step) = self.meet_step(parked, &request) {
            return step;
        }
        if let Some(step) = self.hide_step(task, parked, &request) {
            return step;
        }
        if let Some(step) = self.presence_step(parked, &request) {
            return step;
        }
        if let Some(step) = self.listing_step(&request) {
            if matches!(step, Step::Answer(_)) && self.keeps_copies() {
                // The kernel may have it from now on, see `Session::list_again`.
                if !self.record_start(&message, parked.slot) {
                    return Step::Blocked;
                }
                if let Some((_, slot)) = self.slots.find(Unique::unmarked(request.header.unique)) {
                    self.store.slot_advance(slot, SlotState::Replied);
                }
            }
            return step;
        }
        let waits = self.awaits_turn(&request) || self.shows_wide_mode();
        if waits { Step::Blocked } else { Step::Deliver }
    }
}
