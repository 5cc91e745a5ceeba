//! Parked requests and belay's own errands, taken forward one step at a time.

use crate::decision::{Finding, Progress};
use crate::flows::checkpoint::SYNCS;
use crate::flows::restore::Missed;
use crate::flows::task::{Job, Resent, Step, Task, Wait};
use crate::parts::life::Phase;
use crate::session::Session;
use crate::traffic::requests::Missing;
use crate::work::Work;
use belay_memory::Memory;
use belay_recorder::control::Counter;
use belay_recorder::{Handle, Lock, Slot, SlotState};
use belay_wire::errno::ESTALE;
use belay_wire::{Opcode, Request, UNIQUE_RESEND, build, get_u64};

/// How long one request may hold up the others while those in flight are settled, in ns.
const SETTLE_LIMIT: u64 = 1_000_000_000;

impl<M: Memory> Session<M> {
    fn new_task(&mut self, job: Job, slot: Option<Slot>) -> Task {
        self.next_task += 1;
        Task::new(self.next_task, job, slot)
    }

    pub(crate) fn park_fresh(&mut self, message: Vec<u8>, slot: Option<Slot>) {
        let task = self.new_task(Job::Request(message), slot);
        self.tasks.push_back(task);
    }

    /// A request that the daemon has answered goes to it once more, and nobody hears of that answer. The node with the key `first` is
    /// looked up before.
    pub(crate) fn put_again(&mut self, unique: u64, message: Vec<u8>, slot: Slot, first: u64) {
        let watched = self.tasks.iter().find(|task| task.wait == Wait::Reply(unique));
        if let Some(id) = watched.map(|task| task.id) {
            self.with_task(id, |task| task.first = Some(first));
        } else {
            let mut task = self.new_task(Job::Request(message), Some(slot));
            task.first = Some(first);
            self.tasks.push_back(task);
        }
        self.kick = true;
    }

    pub(crate) fn park_errand(&mut self, job: Job) {
        let task = self.new_task(job, None);
        self.tasks.push_back(task);
        self.kick = true;
    }

    pub(crate) fn park_relock(&mut self, lock: Lock) {
        let mut task = self.new_task(Job::Relock(lock), None);
        task.old = true;
        self.tasks.push_back(task);
    }

    pub(crate) fn park_narrow(&mut self, handle: Handle) {
        let mut task = self.new_task(Job::Narrow(handle), None);
        task.old = true;
        self.tasks.push_back(task);
    }

    /// A request that the dead generation may have had; they are taken in order of issue.
    pub(crate) fn park_resent(&mut self, message: Vec<u8>, slot: Option<Slot>) {
        let mut task = self.new_task(Job::Request(message), slot);
        let unique = task.unique() & !UNIQUE_RESEND;
        let left = self.slots.take_leftover(unique);
        let state = left.and_then(|slot| self.store.slot_request(slot)).map(|r| r.state);
        if let (Some(claimed), Some(left)) = (slot, left)
            && claimed != left
        {
            self.unclaim(Some(claimed));
        }
        task.slot = left.or(slot);
        // A slot that was being read into holds what was there before.
        if let (Some(left), Some(_)) = (left, state.filter(|state| *state != SlotState::Reading)) {
            task.solo = self.store.slot_solo(left);
        }
        let poison = task.solo.is_poison(self.control().poison_after());
        task.resent = Some(Resent {
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
        let waits = self.holds_syncs() && SYNCS.has(task.opcode());
        task.old = task.opcode() != Opcode::SETLKW && !waits;
        // What has held up the others before does so last.
        let place = (task.solo.late, unique);
        let at = self.tasks.iter().position(|other| {
            matches!(other.job, Job::Request(_))
                && (!other.old || (other.solo.late, other.unique() & !UNIQUE_RESEND) > place)
                && other.wait == Wait::Ready
        });
        let at = if task.old { at.unwrap_or(self.tasks.len()) } else { self.tasks.len() };
        let last = self.tasks.get(at).is_none_or(|next| !next.old);
        let at = if task.old && last { self.before_relocks(at) } else { at };
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
            if let Some(work) = self.outbox.pop_front() {
                return Some(work);
            }
            if self.life.is_settling() {
                match self.tasks.front() {
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
            let index = (from..self.tasks.len()).find(|i| {
                let ready = |task: &Task| task.wait == Wait::Ready && self.may_go_on(task);
                self.tasks.get(*i).is_some_and(ready)
            })?;
            let mut task = self.tasks.remove(index)?;
            match self.advance(&mut task) {
                Step::Inject(mut message, injection) => {
                    self.ask_alone(&mut task);
                    self.keep_trial(&mut task);
                    self.note_asked(&task, injection.clone(), &mut message);
                    let work = self.with_data(message, &injection);
                    task.wait = Wait::Injected;
                    task.since = now;
                    self.tasks.insert(index, task);
                    self.count(Counter::Injected);
                    return Some(self.hand_on(work));
                }
                Step::Deliver => {
                    self.try_alone(&mut task);
                    if let Some(work) = self.deliver(task, index, now) {
                        return Some(self.hand_on(work));
                    }
                    if self.life.is_settling() {
                        return None;
                    }
                    tried = index + 1;
                }
                Step::Answer(reply) => {
                    self.end_exclusive(task.id);
                    self.give_back_of(&task);
                    let unique = task.unique() & !UNIQUE_RESEND;
                    if let (Some(slot), None) = (task.slot, self.slots.find(unique)) {
                        // Answered without the daemon: the slot goes once the kernel has it.
                        self.activate(unique, slot);
                    }
                    self.acquit(unique);
                    let reply = self.answer_in_dialect(task.opcode(), reply);
                    return Some(self.hand_on(Work::Answer(reply)));
                }
                Step::Blocked if self.life.is_settling() && !task.old => {
                    self.tasks.push_back(task); // behind those that are settled
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
                    match self.tasks.iter().position(|task| task.id == other) {
                        Some(at) if at > index => {
                            if let Some(first) = self.tasks.remove(at) {
                                self.tasks.insert(index, first);
                            }
                        }
                        _ => tried = index + 1,
                    }
                }
                Step::Done => self.give_back_of(&task),
            }
        }
    }

    /// If more tasks could go on, another reader is woken for them.
    fn hand_on(&mut self, work: Work) -> Work {
        self.kick |= !self.outbox.is_empty()
            || (self.life.is_open() && self.tasks.iter().any(|t| t.wait == Wait::Ready));
        work
    }

    fn deliver(&mut self, mut task: Task, index: usize, now: u64) -> Option<Work> {
        let Job::Request(message) = &mut task.job else { return None };
        let kept = message.clone();
        let unique = get_u64(message, 8).unwrap_or(0) & !UNIQUE_RESEND;
        let slot = task.slot;
        let started = match self.resolve(message) {
            Ok(patches) => self.start(message, patches, slot),
            Err(_) => false,
        };
        if !started {
            // No free slot: a reply will free one and bring us back.
            *message = kept;
            self.tasks.insert(index, task);
            return None;
        }
        let delivered = std::mem::replace(message, kept);
        self.keep_trial(&mut task);
        let watched = self.exclusive.iter().any(|(id, _)| *id == task.id);
        if self.life.is_settling() || watched {
            task.wait = Wait::Reply(unique);
            task.since = now;
            self.tasks.insert(index, task);
        }
        Some(Work::Deliver(delivered))
    }

    fn advance(&mut self, task: &mut Task) -> Step {
        if task.done {
            return Step::Done;
        }
        match &task.job {
            Job::Request(_) => self.advance_request(task),
            Job::RemoveHidden(_) if self.is_read_only() => Step::Done,
            &Job::Relock(lock) => self.relock(task, lock),
            &Job::Narrow(handle) => self.narrow_step(task, handle),
            &Job::RemoveHidden(node) => self.remove_hidden_step(task, node),
            Job::Flush => self.flush_step(),
            &Job::Store(handle) => self.store_step(handle),
            &Job::CloseBehind(file) => self.close_behind_step(file),
            Job::RollForward => self.forward_step(task),
        }
    }

    fn advance_request(&mut self, task: &mut Task) -> Step {
        if let Some(step) = self.first_step(task) {
            return step;
        }
        if let Some(errno) = task.failed {
            return self.fail(task, errno);
        }
        let message = task.message().to_vec();
        let Ok(request) = Request::parse(&message) else { return Step::Done };
        if let Some(step) = self.forbid_step(task, &request) {
            return step;
        }
        if let Some(step) = self.sync_step(task, &request) {
            return step;
        }
        if self.is_held_up(task, &request) {
            return Step::Blocked;
        }
        if let Some(relock) = self.relock_for(&request) {
            return Step::After(relock);
        }
        if let Some(step) = self.settle_early(task, &request) {
            return step;
        }
        if self.releases_unbound(&request) {
            return self.answer(task, &build::reply_ok(request.header.unique));
        }
        match self.resolve(&message) {
            // The kernel keeps what it asks about until it is answered, so this copy is of a request that was.
            Err(Missing::Gone) if self.keeps_copies() && task.resent.is_some() => {
                self.unclaim(task.slot.take());
                return Step::Done;
            }
            Err(missing) => match self.restore(missing) {
                Missed::Step(step) => return step,
                Missed::Failed(errno) => return self.fail(task, errno),
                Missed::Nameless => {
                    task.answered = true;
                    return self.fail(task, ESTALE);
                }
            },
            Ok(_) if self.is_excluded_for(&request, task.id) => return Step::Blocked,
            Ok(_) => {}
        }
        if let Some(step) = self.settle_late(task, &request) {
            return step;
        }
        if let Some(step) = self.lead_step(task, &request) {
            return step;
        }
        if self.root_unmet(&request)
            && let Some(step) = self.meet_root()
        {
            return step;
        }
        if let Some(step) = self.meet_step(task, &request) {
            return step;
        }
        if let Some(step) = self.hide_step(task, &request) {
            return step;
        }
        if let Some(step) = self.presence_step(task, &request) {
            return step;
        }
        if let Some(step) = self.listing_step(&request) {
            if matches!(step, Step::Answer(_)) && self.keeps_copies() {
                // The kernel may have it from now on, see `Session::list_again`.
                if !self.record_start(&message, task.slot) {
                    return Step::Blocked;
                }
                if let Some((_, slot)) = self.slots.find(request.header.unique & !UNIQUE_RESEND) {
                    self.store.slot_advance(slot, SlotState::Replied);
                }
            }
            return step;
        }
        let waits = self.awaits_turn(&request) || self.shows_wide_mode();
        if waits { Step::Blocked } else { Step::Deliver }
    }

    /// The daemon replied to `unique`: a task that was watched is over.
    pub(crate) fn replied(&mut self, unique: u64) {
        if let Some(index) = self.tasks.iter().position(|task| task.wait == Wait::Reply(unique))
            && let Some(task) = self.tasks.remove(index)
        {
            self.end_exclusive(task.id);
            self.acquit(unique);
        }
        if self.questions.has_borrowed() {
            self.give_back(unique);
        }
        self.kick |= !self.tasks.is_empty() || !self.outbox.is_empty();
    }

    fn end_exclusive(&mut self, task: u64) {
        self.exclusive.retain(|(id, _)| *id != task);
    }

    /// One request must not hold up all others for ever.
    pub fn tick(&mut self, now: u64) {
        let stuck = self.life.is_settling()
            && self.forward.is_none()
            && self.tasks.front().is_some_and(|task| {
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
            self.outbox.push_back(Work::Answer(Self::poll_wakeup(key)));
            self.store.begin();
            self.store.set_poll_key(handle, 0);
            self.store.commit();
        }
        self.remove_hidden();
        self.kick |= !self.tasks.is_empty() || !self.outbox.is_empty();
    }

    pub(crate) fn with_task(&mut self, id: u64, change: impl FnOnce(&mut Task)) {
        if let Some(task) = self.tasks.iter_mut().find(|task| task.id == id) {
            task.wait = Wait::Ready;
            change(task);
        }
    }
}
