//! Parked requests and belay's own errands, taken forward one step at a time.

use crate::decision::{Finding, Progress};
use crate::flows::checkpoint::state::SYNCS;
use crate::flows::flow::{Flow, Parked, Task};
use crate::flows::reconcile::state::Resent;
use crate::flows::step::Step;
use crate::parts::life::Phase;
use crate::parts::scheduler::Wait;
use crate::session::Session;
use crate::work::Work;
use belay_memory::Memory;
use belay_recorder::control::Counter;
use belay_recorder::{Slot, SlotState};
use belay_wire::{Opcode, Unique};

/// How long one request may hold up the others while those in flight are settled, in ns.
const SETTLE_LIMIT: u64 = 1_000_000_000;

impl<M: Memory> Session<M> {
    /// Parks a request of the kernel. `slot`: what was claimed for it, or where it is on record.
    pub(crate) fn park_fresh(&mut self, message: Vec<u8>, slot: Option<Slot>) {
        let task = self.tasks.make(Flow::of_request(message, slot));
        self.tasks.push(task);
    }

    /// A request that the daemon has answered goes to it once more, and nobody hears of that
    /// answer. The node with the key `first` is looked up before.
    pub(crate) fn put_again(&mut self, unique: u64, message: Vec<u8>, slot: Slot, first: u64) {
        if let Some(id) = self.tasks.awaiting(unique) {
            self.with_parked(id, |parked| parked.looked.first = Some(first));
        } else {
            let mut parked = Parked::new(message, Some(slot));
            parked.looked.first = Some(first);
            let task = self.tasks.make(Flow::Request(parked));
            self.tasks.push(task);
        }
        self.tasks.kick();
    }

    /// Parks an errand, for which a reader is woken.
    pub(crate) fn park_errand(&mut self, flow: Flow) {
        let task = self.tasks.make(flow);
        self.tasks.push(task);
        self.tasks.kick();
    }

    /// Parks an errand that comes before new work.
    pub(crate) fn park_old(&mut self, flow: Flow) {
        let mut task = self.tasks.make(flow);
        task.old = true;
        self.tasks.push(task);
    }

    /// A request that the dead generation may have had; they are taken in order of issue.
    pub(crate) fn park_resent(&mut self, message: Vec<u8>, slot: Option<Slot>) {
        self.note_append(&message);
        let mut parked = Parked::new(message, slot);
        let unique = Unique::unmarked(parked.unique());
        let left = self.slots.take_leftover(unique);
        let state = left.and_then(|slot| self.store.slot_request(slot)).map(|r| r.state);
        if let (Some(claimed), Some(left)) = (slot, left)
            && claimed != left
        {
            self.unclaim(Some(claimed));
        }
        parked.slot = left.or(slot);
        // A slot that was being read into holds what was there before.
        if let (Some(left), Some(_)) = (left, state.filter(|state| *state != SlotState::Reading)) {
            parked.solo = self.store.slot_solo(left);
        }
        let poison = parked.solo.is_poison(self.control().poison_after());
        parked.resent = Some(Resent {
            progress: match state {
                Some(SlotState::Replied) => Progress::Replied,
                _ if poison => Progress::Poison,
                Some(SlotState::Started) => {
                    self.slots.take_known(unique).unwrap_or(Progress::Started)
                }
                _ => Progress::Unseen,
            },
            finding: Finding::NotAsked,
        });
        // A request that waits for others must not hold them up.
        let waits = self.holds_syncs() && SYNCS.has(parked.opcode());
        let old = parked.opcode() != Opcode::SETLKW && !waits;
        // What has held up the others before does so last.
        let place = (parked.solo.late, unique);
        let at = self.tasks.iter().position(|other| {
            other.wait == Wait::Ready
                && other.flow.request().is_some_and(|request| {
                    !other.old || (request.solo.late, Unique::unmarked(request.unique())) > place
                })
        });
        let at = if old { at.unwrap_or(self.tasks.len()) } else { self.tasks.len() };
        let last = self.tasks.get(at).is_none_or(|next| !next.old);
        let at = if old && last { self.before_relocks(at) } else { at };
        let mut task = self.tasks.make(Flow::Request(parked));
        task.old = old;
        self.tasks.insert(at, task);
    }

    /// The next thing to do, if any. To be asked before each read of the device and after each
    /// message that was taken.
    pub fn work(&mut self, now: u64) -> Option<Work> {
        let work = self.whole_work(now);
        // Each injection is a task's, which waits for the daemon then.
        let parked = self.tasks.len().saturating_sub(self.questions.len());
        self.control().set_parked(parked as u64);
        let work = work?;
        Some(if self.life.dialect().is_whole() { work } else { self.in_dialect(work) })
    }

    fn whole_work(&mut self, now: u64) -> Option<Work> {
        let mut tried = 0;
        loop {
            if let Some(work) = self.tasks.next_work() {
                return Some(work);
            }
            if self.life.is_settling() {
                match self.tasks.get(0) {
                    Some(front) if front.old => {
                        if front.wait != Wait::Ready {
                            return None;
                        }
                    }
                    _ => {
                        self.open_up();
                        continue;
                    }
                }
            }
            if self.life.is_quiescing()
                && let Some(work) = self.checkpoint_step(now)
            {
                return Some(work);
            }
            let from = if self.life.is_settling() { 0 } else { tried };
            let index = self.tasks.next_ready(from, |task| self.may_go_on(task))?;
            let mut task = self.tasks.take(index)?;
            match self.advance(&mut task) {
                Step::Inject(mut message, injection) => {
                    if let Some(parked) = task.flow.request_mut() {
                        self.ask_alone(task.old, parked);
                        self.keep_trial(parked);
                    }
                    self.note_asked(&task, injection.clone(), &mut message);
                    let work = self.with_data(message, &injection);
                    task.wait = Wait::Injected;
                    task.since = now;
                    self.tasks.insert(index, task);
                    self.count(Counter::Injected);
                    return Some(self.hand_on(work));
                }
                Step::Deliver => {
                    if let Some(parked) = task.flow.request_mut() {
                        self.try_alone(task.old, parked);
                    }
                    if let Some(work) = self.deliver(task, index, now) {
                        return Some(self.hand_on(work));
                    }
                    if self.life.is_settling() {
                        return None;
                    }
                    tried = index + 1;
                }
                Step::Answer(reply) => {
                    self.tasks.end_exclusive(task.id);
                    self.give_back_of(&task);
                    let unique = Unique::unmarked(task.flow.unique());
                    let slot = task.flow.request().and_then(|parked| parked.slot);
                    if let (Some(slot), None) = (slot, self.slots.find(unique)) {
                        // Answered without the daemon: the slot goes once the kernel has it.
                        self.activate(unique, slot);
                    }
                    self.acquit(unique);
                    let reply = self.answer_in_dialect(task.flow.opcode(), reply);
                    return Some(self.hand_on(Work::Answer(reply)));
                }
                Step::Blocked if self.life.is_settling() && !task.old => {
                    self.tasks.push(task); // behind those that are settled
                }
                Step::Blocked => {
                    self.tasks.insert(index, task);
                    if self.life.is_settling() {
                        return None;
                    }
                    tried = index + 1;
                }
                Step::After(other) => {
                    self.tasks.insert(index, task);
                    if !self.tasks.put_before(index, other) {
                        tried = index + 1;
                    }
                }
                Step::Done => self.give_back_of(&task),
            }
        }
    }

    /// If more tasks could go on, another reader is woken for them.
    fn hand_on(&mut self, work: Work) -> Work {
        let ready = self.life.is_open() && self.tasks.iter().any(|t| t.wait == Wait::Ready);
        self.tasks.kick_if(ready || !self.tasks.is_outbox_empty());
        work
    }

    fn deliver(&mut self, mut task: Task, index: usize, now: u64) -> Option<Work> {
        let parked = task.flow.request_mut()?;
        let mut message = parked.message().to_vec();
        let unique = Unique::unmarked(parked.unique());
        let slot = parked.slot;
        let started = match self.resolve(&message) {
            Ok(patches) => self.start(&mut message, patches, slot),
            Err(_) => false,
        };
        if !started {
            // No free slot: a reply will free one and bring us back.
            self.tasks.insert(index, task);
            return None;
        }
        self.keep_trial(parked);
        let watched = self.tasks.excludes(task.id);
        if self.life.is_settling() || watched {
            task.wait = Wait::Reply(unique);
            task.since = now;
            self.tasks.insert(index, task);
        }
        Some(Work::Deliver(message))
    }

    fn advance(&mut self, task: &mut Task) -> Step {
        if task.flow.is_done() {
            return Step::Done;
        }
        match &mut task.flow {
            Flow::Request(parked) => self.request_step(task.id, &mut task.old, parked),
            Flow::RemoveHidden(_) if self.is_read_only() => Step::Done,
            Flow::Relock(errand) => self.relock_step(*errand),
            Flow::Narrow(errand) => self.narrow_step(*errand),
            Flow::RemoveHidden(errand) => self.remove_hidden_step(*errand),
            Flow::Flush(_) => self.flush_step(),
            Flow::Store(errand) => self.store_step(errand.about),
            Flow::CloseBehind(errand) => self.close_behind_step(errand.about),
            Flow::RollForward => self.forward_step(),
        }
    }

    /// The daemon replied to `unique`: a task that was watched is over.
    pub(crate) fn replied(&mut self, unique: u64) {
        if self.tasks.end_awaiting(unique) {
            self.acquit(unique);
        }
        if self.questions.has_borrowed() {
            self.give_back(unique);
        }
        self.tasks.kick_if_busy();
    }

    /// One request must not hold up all others for ever.
    pub fn tick(&mut self, now: u64) {
        let stuck = self.life.is_settling()
            && self.forward.is_none()
            && self.tasks.get(0).is_some_and(|task| {
                task.wait != Wait::Ready && now.saturating_sub(task.since) > SETTLE_LIMIT
            });
        if stuck {
            self.end_trial();
            self.open_up();
        }
    }

    /// Lets new work in.
    fn open_up(&mut self) {
        self.life.enter(Phase::Open);
        // What did not come back had been answered, or its caller is gone.
        self.slots.discard_leftovers(&self.store);
        let polled: Vec<_> =
            self.store.live_handles().filter(|handle| self.store.poll_key(*handle) != 0).collect();
        for handle in polled {
            // The dead daemon's promise to wake a poller died with it: let the kernel ask again.
            let key = self.store.poll_key(handle);
            self.tasks.hand_out(Work::Answer(Self::poll_wakeup(key)));
            self.store.begin();
            self.store.set_poll_key(handle, 0);
            self.store.commit();
        }
        self.remove_hidden();
        self.tasks.kick_if_busy();
    }

    /// Has the task of a request go on, and changes what is known of that.
    pub(crate) fn with_parked(&mut self, id: u64, change: impl FnOnce(&mut Parked)) {
        self.tasks.resume(id, |task| {
            if let Some(parked) = task.flow.request_mut() {
                change(parked);
            }
        });
    }

    /// The request that a task is about.
    pub(crate) fn parked(&self, id: u64) -> Option<&Parked> {
        self.tasks.find(id)?.flow.request()
    }
}
