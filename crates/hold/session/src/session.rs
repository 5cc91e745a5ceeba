//! The session's state and its way out to the shim.

use crate::decision::Progress;
use crate::flows::flow::{Errand, Flow};
use crate::flows::injection::Injection;
use crate::flows::rollforward::state::RollForward;
use crate::parts::epochs::Epochs;
use crate::parts::hidden::Hidden;
use crate::parts::life::{Life, Phase};
use crate::parts::logged::Logged;
use crate::parts::notice::Notice;
use crate::parts::questions::Questions;
use crate::parts::restored::Restored;
use crate::parts::scheduler::Scheduler;
use crate::parts::slots::Slots;
use crate::parts::stores::Stores;
use crate::parts::streams::Streams;
use crate::work::Work;
use belay_memory::{Memory, Overflow};
use belay_recorder::control::{Counter, Options};
use belay_recorder::{Control, Slot, SlotState, Store};
use belay_wire::Opcode;
use belay_wire::Unique;
use std::collections::HashMap;

pub use belay_wire::build::KICK;

/// What the kernel believes of a mount. See the crate's documentation.
#[derive(Debug)]
pub struct Session<M> {
    pub(crate) store: Store<M>,
    pub(crate) life: Life,
    pub(crate) slots: Slots,
    pub(crate) tasks: Scheduler<Flow>,
    pub(crate) questions: Questions<Injection>,
    pub(crate) restored: Restored,
    pub(crate) streams: Streams,
    pub(crate) hidden: Hidden,
    pub(crate) epochs: Epochs,
    pub(crate) logged: Logged<M>,
    pub(crate) stores: Stores,
    /// The roll-forward under way.
    pub(crate) forward: Option<Box<RollForward>>,
    pub(crate) notice: Notice,
    /// A buffer for requests that are looked at.
    scratch: Vec<u8>,
}

impl<M: Memory> Session<M> {
    /// Takes over the recorder for `generation`: undoes a half-done change and sorts out what
    /// the dead generation left. Generation 0 starts open, others start settling.
    ///
    /// # Errors
    /// If a change of the dead generation is cut off and not on record as a whole.
    pub fn attach(store: Store<M>, generation: u32) -> Result<Self, Overflow> {
        Self::attach_with(store, generation, Options::empty())
    }

    /// Like [`Session::attach`], with these [`Options`].
    ///
    /// # Errors
    /// As [`Session::attach`].
    pub fn attach_with(
        store: Store<M>,
        generation: u32,
        options: Options,
    ) -> Result<Self, Overflow> {
        Self::attach_knowing(store, generation, options, |_| HashMap::new())
    }

    /// Like [`Session::attach_with`]. `learn` is called when the store is whole, and tells how far
    /// the dead generation had come with requests that it had begun, as far as more is known of it.
    ///
    /// # Errors
    /// As [`Session::attach`].
    pub fn attach_knowing(
        store: Store<M>,
        generation: u32,
        options: Options,
        learn: impl FnOnce(&Store<M>) -> HashMap<u64, Progress>,
    ) -> Result<Self, Overflow> {
        store.recover()?;
        let known = learn(&store);
        if store.is_blank() {
            store.format();
        }
        let mut session = Self {
            life: Life::new(generation, options),
            slots: Slots::new(known),
            tasks: Scheduler::new(),
            questions: Questions::default(),
            restored: Restored::new(generation > 0 && !options.contains(Options::RECORDS)),
            streams: Streams::default(),
            hidden: Hidden::new(if generation > 0 { store.hidden() } else { Vec::new() }),
            epochs: Epochs::default(),
            logged: Logged::default(),
            stores: Stores::default(),
            forward: None,
            notice: Notice::default(),
            scratch: Vec::with_capacity(4096),
            store,
        };
        session.learn_dialect();
        session.sort_slots();
        if generation > 0 {
            session.sort_handles();
        }
        // Under the policy `epoch` they come back once it is known how far the dead generation was
        // with them.
        if session.keeps_copies() && !session.has_epochs() {
            session.requeue_copies();
        }
        Ok(session)
    }

    fn sort_slots(&mut self) {
        let used = self.store.slots_used();
        (used..self.store.slots()).rev().map(Slot).for_each(|slot| self.slots.add_free(slot));
        for slot in (0..used).rev().map(Slot) {
            match self.store.slot_request(slot) {
                Some(request) if request.state != SlotState::Reading => {
                    self.judge(slot);
                    self.slots.leave(request.unique, slot);
                }
                Some(_) if self.keeps_copies() => self.sort_unfinished_read(slot),
                Some(_) => {
                    self.slots.discard(slot, &self.store);
                }
                None => self.slots.add_free(slot),
            }
        }
    }

    fn sort_handles(&mut self) {
        let widened: Vec<_> =
            self.store.live_handles().filter(|h| self.store.widened(*h).is_some()).collect();
        for handle in widened {
            self.park_old(Flow::Narrow(Errand::new(handle)));
        }
        for lock in self.store.locks() {
            self.park_old(Flow::Relock(Errand::new(lock)));
        }
    }

    /// Whether requests are copied because the kernel cannot send them again.
    pub fn keeps_copies(&self) -> bool {
        self.life.has(Options::NO_RESEND)
    }

    /// INIT has shown that the kernel cannot send requests again: they are copied from now on.
    pub fn keep_copies(&mut self) {
        self.life.keep_copies();
    }

    /// How far this generation is.
    pub fn phase(&self) -> Phase {
        self.life.phase()
    }

    /// Whether a reader that sleeps in the kernel should be woken: there may be work for it.
    /// Reading it clears it.
    pub fn take_kick(&mut self) -> bool {
        self.tasks.take_kick()
    }

    /// Whether something was noted that the supervisor is to say. Reading it clears it.
    pub fn take_told(&mut self) -> bool {
        self.notice.take_told()
    }

    /// Whether there is nothing but normal requests: [`Session::work`] would give `None`.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.tasks.is_outbox_empty() && self.tasks.is_empty() && self.life.is_open()
    }

    /// Whether something waits for a slot to become free. Readers must not sleep meanwhile: not all
    /// replies come by here.
    #[inline]
    pub fn is_starved(&self) -> bool {
        self.slots.are_exhausted() && !self.tasks.is_empty()
    }

    /// Whether the recorder overflowed, so that a further crash cannot be held exactly.
    pub fn is_full(&self) -> bool {
        self.notice.has_overflowed()
    }

    /// Control block of the recorder.
    pub fn control(&self) -> Control<'_, M> {
        Control::new(self.store.memory(), *self.store.layout())
    }

    /// The recorder's records.
    pub fn store(&self) -> &Store<M> {
        &self.store
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.control().count_alone(counter); // the session's lock is held
    }

    /// Notes that the request in a filled slot is in the daemon's hands, or about to be answered.
    pub(crate) fn activate(&mut self, unique: u64, slot: Slot) {
        let opcode = self.store.slot_request(slot).map_or(0, |request| request.opcode);
        self.slots.begin(unique, slot, Opcode(opcode));
    }

    /// The slot of the reply for which [`Session::on_reply`] wants to hear of the delivery. Whoever
    /// wrote that reply may free it with [`belay_recorder::free_slot`], without the session's lock,
    /// and have [`Session::reap`] called later, instead of calling [`Session::on_delivered`].
    #[inline]
    pub fn take_sending(&mut self) -> Option<Slot> {
        self.slots.take_sending()
    }

    /// The slot of a request that the daemon has, or is about to get.
    #[inline]
    pub fn slot_in_hand(&self, unique: u64) -> Option<Slot> {
        self.slots.find(Unique::unmarked(unique)).map(|(_, slot)| slot)
    }

    /// The opcode of a request that the daemon has.
    pub fn opcode_in_hand(&self, unique: u64) -> Option<Opcode> {
        let (index, _) = self.slots.find(unique)?;
        self.slots.get(index).map(|active| active.opcode)
    }

    /// The requests that the daemon has.
    pub fn in_hand(&self) -> impl Iterator<Item = (u64, Slot, Opcode)> + '_ {
        self.slots.iter().map(|active| (active.unique, active.slot, active.opcode))
    }

    /// Takes back the slots that were freed without the session.
    pub fn reap(&mut self) {
        self.slots.reap(&self.store);
    }

    /// The reply to `unique` (as the daemon gave it) was written to the kernel.
    pub fn on_delivered(&mut self, unique: u64) {
        if let Some((index, _)) = self.slots.find(Unique::unmarked(unique)) {
            self.slots.end(index, &self.store);
        }
    }

    /// Has the daemon forget nodes (its id, how many lookups), but not before it has answered what
    /// belay asks: the kernel sends no FORGET of a node that it has a request for, and knows
    /// nothing of belay's.
    pub(crate) fn forget_later(&mut self, forgets: Vec<(u64, u64)>) {
        let now = self.questions.withhold(forgets);
        self.forget_now(now);
    }

    /// Lets go of what was withheld for questions that have been answered since.
    pub(crate) fn forget_withheld(&mut self) {
        let now = self.questions.release();
        self.forget_now(now);
    }

    /// What is on record under that number is needed still, and one daemon or another takes any
    /// FORGET for the last: it is told when that goes.
    fn forget_now(&mut self, forgets: Vec<(u64, u64)>) {
        for (id, count) in forgets {
            if let Some(node) = self.store.node_by_id(self.life.ids(), id) {
                self.store.add_daemon_count(node, count);
                continue;
            }
            let ids = self.questions.ids(id);
            self.tasks.hand_out(Work::Deliver(belay_wire::build::forget(ids, count)));
            self.tasks.kick();
        }
    }

    /// What follows the header of the request in a slot; to be put back when it was looked at.
    #[inline]
    pub(crate) fn take_body(&mut self, slot: Slot) -> Vec<u8> {
        let mut body = std::mem::take(&mut self.scratch);
        self.store.slot_body_into(slot, &mut body);
        body
    }

    /// Puts that back.
    #[inline]
    pub(crate) fn put_body(&mut self, body: Vec<u8>) {
        self.scratch = body;
    }
}
