//! Taking locks again in a successor, before anybody else can take them.

use crate::flows::flow::{Errand, Flow, Task};
use crate::flows::restore::missing::Missed;
use crate::flows::restore::state::Question;
use crate::flows::step::Step;
use crate::message::read;
use crate::parts::scheduler::Wait;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::Counter;
use belay_recorder::{HandleFlags, Lock};
use belay_wire::abi::{FileLock, LK_FLOCK, LkIn, OutHeader};
use belay_wire::errno::ESTALE;
use belay_wire::request::HEADER;
use belay_wire::{Opcode, OpcodeSet, Request, build, get_u64, node_fields};

/// Requests that neither change a file nor see its content, and to which it is all one who has
/// locked it.
const LOOKS: OpcodeSet = OpcodeSet::new(&[
    Opcode::LOOKUP,
    Opcode::GETATTR,
    Opcode::STATX,
    Opcode::ACCESS,
    Opcode::READLINK,
    Opcode::STATFS,
    Opcode::GETXATTR,
    Opcode::LISTXATTR,
]);

impl<M: Memory> Session<M> {
    /// Whether a request is about a file whose locks are not all taken again, and does more than to
    /// look at it.
    #[inline]
    pub(crate) fn awaits_locks(&self, request: &Request<'_>) -> bool {
        !self.tasks.is_empty() && self.relock_for(request).is_some()
    }

    /// The errand that must come before such a request.
    #[cold]
    pub(crate) fn relock_for(&self, request: &Request<'_>) -> Option<u64> {
        if LOOKS.has(request.opcode()) {
            return None;
        }
        let fields = node_fields(request);
        let is_about = |key: u64| {
            key == request.header.nodeid
                || fields.iter().any(|at| get_u64(request.body, at - HEADER) == Some(key))
        };
        let takes = |task: &&Task| matches!(&task.flow, Flow::Relock(errand) if is_about(errand.about.node));
        self.tasks.iter().find(takes).map(|task| task.id)
    }

    /// Where in front of `at` a request that was in flight is settled: locks that it does not need
    /// are taken again later, or daemons that live for a moment only would come to nothing else.
    pub(crate) fn before_relocks(&self, at: usize) -> usize {
        let waits = |task: &Task| matches!(task.flow, Flow::Relock(_)) && task.wait == Wait::Ready;
        let before = self.tasks.iter().take(at).rev().take_while(|task| waits(task)).count();
        at - before
    }

    /// Takes a lock again: before anything else is done with its file and before any new work, or
    /// somebody else could take it.
    pub(crate) fn relock_step(&mut self, errand: Errand<Lock>) -> Step {
        let lock = errand.about;
        let Some(handle) = self.store.handle_by_key(lock.handle) else {
            self.store.begin();
            self.store.locks_remove(|other| *other == lock);
            self.store.commit();
            return Step::Done;
        };
        if errand.failed || self.store.handle_flags(handle).intersects(HandleFlags::LOST) {
            self.lost_lock(lock);
            return Step::Done;
        }
        let Some(fh) = self.store.handle_bound(handle, self.life.ids()) else {
            return match self.restore_handle(handle) {
                Missed::Step(step) => step,
                Missed::Failed(_) | Missed::Nameless => {
                    self.lost_lock(lock);
                    Step::Done
                }
            };
        };
        let node = self.store.open_description(handle).node;
        let Some(id) = self.store.bound(node, self.life.ids()) else { return Step::Done };
        let body = LkIn {
            fh,
            owner: lock.owner,
            lk: FileLock { start: lock.start, end: lock.end, type_: lock.kind, pid: lock.pid },
            lk_flags: if lock.flock { LK_FLOCK } else { 0 },
            padding: 0,
        };
        let message = build::setlk(self.questions.ids(id), &body);
        Step::ask(message, Question::Relock { lock })
    }

    pub(crate) fn relocked(&mut self, id: u64, lock: Lock, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(ESTALE, |header| -header.error);
        if errno == 0 {
            self.count(Counter::LocksRestored);
        } else if self.tasks.find(id).is_some() {
            self.lost_lock(lock);
        }
        self.tasks.resume(id, |task| task.flow.set_done(true));
    }

    fn lost_lock(&self, lock: Lock) {
        self.count(Counter::Failed);
        let what = if lock.flock { "flock" } else { "POSIX lock" };
        let why = format!("a {what} held by process {} is lost", lock.pid);
        self.report_errand(&format!("Relock({lock:?})"), ESTALE, &why);
    }
}
