//! Requests that daemons die of: one that has killed enough of them is given to no other.
//!
//! Invariants: nobody is suspected for having been in flight among others. While what was in flight
//! at a crash is settled, the daemon has one request at a time (its own, or what belay asks in its
//! name), and the slot says so before the daemon can see anything of it. Fresh requests, and those
//! that wait for others (SETLKW), are never alone in that sense.

use crate::decision::Row;
use crate::flows::flow::Parked;
use crate::flows::step::Step;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::Counter;
use belay_recorder::{Slot, SlotState, Solo};
use belay_wire::errno::EIO;
use belay_wire::{Request, Unique, build};

impl<M: Memory> Session<M> {
    /// What the last death says of a request that the dead generation had alone.
    pub(crate) fn judge(&self, slot: Slot) {
        let (dead, blame) = self.control().blame();
        let solo = self.store.slot_solo(slot);
        let judged = solo.judged(dead, blame);
        if judged != solo {
            self.store.slot_set_solo(slot, judged);
        }
    }

    /// The daemon is about to be given a task's request: if all others wait for that, it is on
    /// trial.
    pub(crate) fn try_alone(&self, old: bool, parked: &mut Parked) {
        let tried = parked.solo.is_tried_by(self.life.generation()) && !parked.solo.is_asked_only();
        if !tried && self.is_alone(old, parked) {
            parked.solo = parked.solo.begin(self.life.generation());
        }
    }

    /// The daemon is about to be asked something for the sake of a task's request. It may be long
    /// on the way to its file: what ends it meanwhile need have nothing to do with the request.
    pub(crate) fn ask_alone(&self, old: bool, parked: &mut Parked) {
        if !parked.solo.is_tried_by(self.life.generation()) && self.is_alone(old, parked) {
            parked.solo = parked.solo.begin_asking(self.life.generation());
        }
    }

    fn is_alone(&self, old: bool, parked: &Parked) -> bool {
        let alone = self.life.is_settling() && old && !parked.message().is_empty();
        alone && self.control().poison_after() > 0
    }

    /// Puts on record what speaks against a task's request.
    pub(crate) fn keep_trial(&mut self, parked: &mut Parked) {
        if parked.solo == Solo::default() {
            return;
        }
        let unique = Unique::unmarked(parked.unique());
        let active = self.slots.find(unique).map(|(_, slot)| slot);
        let kept = active.or(parked.slot).filter(|slot| {
            // Not one that the dead generation was reading into.
            self.store
                .slot_request(*slot)
                .is_some_and(|kept| kept.unique == unique && kept.state != SlotState::Reading)
        });
        // There is none if the dead generation had read the request and not begun with it.
        let slot = kept.or_else(|| self.take_down(parked));
        if let Some(slot) = slot {
            self.store.slot_set_solo(slot, parked.solo);
        }
    }

    fn take_down(&mut self, parked: &mut Parked) -> Option<Slot> {
        let request = Request::parse(parked.message()).ok()?;
        let slot = parked.slot.or_else(|| self.slots.take_free())?;
        self.fill(&request, slot, SlotState::Taken);
        parked.slot = Some(slot);
        Some(slot)
    }

    /// The request on trial has taken so long that the daemon gets others as well: from now on only
    /// that it hangs could be its fault.
    pub(crate) fn end_trial(&mut self) {
        if let Some(mut task) = self.tasks.take(0) {
            let tried = |parked: &&mut Parked| parked.solo.is_tried_by(self.life.generation());
            if let Some(parked) = task.flow.request_mut().filter(tried) {
                parked.solo.late = true;
                self.keep_trial(parked);
            }
            self.tasks.insert(0, task);
        }
    }

    /// The daemon is through with a request on trial. Its slot may stay in use until the kernel has
    /// the reply, and what kills the daemon in the meantime is another request.
    pub(crate) fn acquit(&mut self, unique: u64) {
        if let Some((_, slot)) = self.slots.find(unique) {
            let solo = self.store.slot_solo(slot);
            if solo.is_tried_by(self.life.generation()) {
                self.store.slot_set_solo(slot, solo.acquitted());
            }
        }
    }

    /// Fails what daemons die of; what was begun of it is undone first, then `None`.
    pub(crate) fn fail_for_good(&mut self, parked: &mut Parked, row: &Row) -> Option<Step> {
        if !self.begin_undo(parked, -EIO) {
            return Some(self.set_aside(parked, row, EIO));
        }
        parked.resent = None;
        self.count(Counter::Failed);
        self.count(Counter::Poisoned);
        self.report(parked, row.id, EIO, row.reason);
        None
    }

    /// Answers what daemons die of, without a daemon.
    pub(crate) fn set_aside(&mut self, parked: &mut Parked, row: &Row, errno: i32) -> Step {
        let unique = parked.unique();
        let reply = match errno {
            0 => build::reply_ok(unique),
            _ => build::reply_error(unique, errno),
        };
        let step = self.answer(parked, &reply);
        if !matches!(step, Step::Blocked) {
            if errno != 0 {
                self.count(Counter::Failed);
                self.count(Counter::Poisoned);
            }
            self.report(parked, row.id, errno, row.reason);
        }
        step
    }
}
