//! Who goes on next: parked tasks in their order, names that one of them has for itself, and what
//! is to be handed out. What a task is about, only its flow knows.

use crate::work::Work;
use std::collections::VecDeque;

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    Ready,
    /// The reply to an injected request.
    Injected,
    /// The daemon's reply to the task's own request, which others wait for.
    Reply(u64),
}

/// Something that takes more than one step. `F` is what it is about, and how far it is.
#[derive(Clone, Debug)]
pub(crate) struct Task<F> {
    /// Names it; later ones have greater numbers.
    pub(crate) id: u64,
    pub(crate) wait: Wait,
    /// When it began to wait.
    pub(crate) since: u64,
    /// It belongs to what was in flight at the crash.
    pub(crate) old: bool,
    pub(crate) flow: F,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Scheduler<F> {
    tasks: VecDeque<Task<F>>,
    /// The number of the task that was made last.
    last: u64,
    /// Tasks, and keys of directories whose names each has for itself.
    exclusive: Vec<(u64, u64)>,
    outbox: VecDeque<Work>,
    kick: bool,
}

impl<F> Scheduler<F> {
    /// Without tasks.
    pub(crate) fn new() -> Self {
        Self {
            tasks: VecDeque::new(),
            last: 1,
            exclusive: Vec::new(),
            outbox: VecDeque::new(),
            kick: false,
        }
    }

    /// A task with a number of its own, not parked yet.
    pub(crate) fn make(&mut self, flow: F) -> Task<F> {
        self.last += 1;
        Task { id: self.last, wait: Wait::Ready, since: 0, old: false, flow }
    }

    /// The number of the task that was made last.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Parks a task behind all others.
    pub(crate) fn push(&mut self, task: Task<F>) {
        self.tasks.push_back(task);
    }

    /// Parks a task in front of the one that has this place now.
    pub(crate) fn insert(&mut self, index: usize, task: Task<F>) {
        self.tasks.insert(index.min(self.tasks.len()), task);
    }

    /// Takes the task at this place.
    pub(crate) fn take(&mut self, index: usize) -> Option<Task<F>> {
        self.tasks.remove(index)
    }

    /// Whether there are no tasks.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// All tasks, in their order.
    pub(crate) fn iter(&self) -> std::collections::vec_deque::Iter<'_, Task<F>> {
        self.tasks.iter()
    }

    /// What all tasks are about.
    pub(crate) fn flows_mut(&mut self) -> impl Iterator<Item = &mut F> {
        self.tasks.iter_mut().map(|task| &mut task.flow)
    }

    /// The task at this place.
    pub(crate) fn get(&self, index: usize) -> Option<&Task<F>> {
        self.tasks.get(index)
    }

    /// The task with this number.
    pub(crate) fn find(&self, id: u64) -> Option<&Task<F>> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// The place of the first task from `from` on that waits for nothing and `may` go on.
    pub(crate) fn next_ready(&self, from: usize, may: impl Fn(&Task<F>) -> bool) -> Option<usize> {
        (from..self.tasks.len()).find(|index| {
            self.tasks.get(*index).is_some_and(|task| task.wait == Wait::Ready && may(task))
        })
    }

    /// Has a task go on, and `change`s it.
    pub(crate) fn resume(&mut self, id: u64, change: impl FnOnce(&mut Task<F>)) {
        if let Some(task) = self.tasks.iter_mut().find(|task| task.id == id) {
            task.wait = Wait::Ready;
            change(task);
        }
    }

    /// The task that waits for the daemon's reply to its request `unique`.
    pub(crate) fn awaiting(&self, unique: u64) -> Option<u64> {
        let task = self.tasks.iter().find(|task| task.wait == Wait::Reply(unique))?;
        Some(task.id)
    }

    /// The daemon has replied to `unique`: a task that waited for that is over, and its names are
    /// free. Gives whether one did.
    pub(crate) fn end_awaiting(&mut self, unique: u64) -> bool {
        let waits = |task: &Task<F>| task.wait == Wait::Reply(unique);
        let over = self.tasks.iter().position(waits).and_then(|index| self.tasks.remove(index));
        if let Some(task) = &over {
            self.end_exclusive(task.id);
        }
        over.is_some()
    }

    /// The task with this number goes in front of the place `index`, if it is behind it. Gives
    /// whether it was.
    pub(crate) fn put_before(&mut self, index: usize, id: u64) -> bool {
        let at = self.tasks.iter().position(|task| task.id == id).filter(|at| *at > index);
        let Some(task) = at.and_then(|at| self.tasks.remove(at)) else { return false };
        self.tasks.insert(index, task);
        true
    }

    /// Drops all tasks but those of which `keep` says so.
    pub(crate) fn retain(&mut self, keep: impl Fn(&F) -> bool) {
        self.tasks.retain(|task| keep(&task.flow));
    }

    /// A task has the names in the directory with this key for itself.
    pub(crate) fn exclude(&mut self, task: u64, directory: u64) {
        self.exclusive.push((task, directory));
    }

    /// It has none any more.
    pub(crate) fn end_exclusive(&mut self, task: u64) {
        self.exclusive.retain(|(id, _)| *id != task);
    }

    /// Whether any task has names for itself.
    #[inline]
    pub(crate) fn excludes_any(&self) -> bool {
        !self.exclusive.is_empty()
    }

    /// Whether this one has.
    pub(crate) fn excludes(&self, task: u64) -> bool {
        self.exclusive.iter().any(|(id, _)| *id == task)
    }

    /// Whether another one than `task` has the names of a directory for which `is` says so.
    pub(crate) fn is_excluded(&self, task: u64, is: impl Fn(u64) -> bool) -> bool {
        self.exclusive.iter().any(|(id, key)| *id != task && is(*key))
    }

    /// Has this handed out as soon as somebody asks.
    pub(crate) fn hand_out(&mut self, work: Work) {
        self.outbox.push_back(work);
    }

    /// What is to be handed out next.
    pub(crate) fn next_work(&mut self) -> Option<Work> {
        self.outbox.pop_front()
    }

    /// Whether nothing is to be handed out.
    #[inline]
    pub(crate) fn is_outbox_empty(&self) -> bool {
        self.outbox.is_empty()
    }

    /// A reader that sleeps is to be woken.
    #[inline]
    pub(crate) fn kick(&mut self) {
        self.kick = true;
    }

    /// The same, if `needed`.
    #[inline]
    pub(crate) fn kick_if(&mut self, needed: bool) {
        self.kick |= needed;
    }

    /// The same, if there is anything to do.
    #[inline]
    pub(crate) fn kick_if_busy(&mut self) {
        self.kick |= !self.tasks.is_empty() || !self.outbox.is_empty();
    }

    /// Whether a reader is to be woken. Asking clears it.
    pub(crate) fn take_kick(&mut self) -> bool {
        std::mem::take(&mut self.kick)
    }
}
