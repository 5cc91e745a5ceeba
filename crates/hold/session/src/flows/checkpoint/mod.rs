//! Checkpoints (Membrane, section 3.5.1): boundaries that no request spans, at which all that the
//! daemon holds in its own memory is on its image. Only under the policy `epoch`.
//!
//! A checkpoint is begun by the host, which knows how much has collected
//! ([`Session::begin_checkpoint`]), or because an application has asked for its data to be safe
//! ([`Session::wants_checkpoint`]). New requests are parked then; those that had begun come to
//! their end; the daemon is made to write what it has. With [`crate::Work::Seal`] the host ends the
//! epoch, and says so ([`Session::sealed`]). What waits for an epoch to be safe against power
//! failure goes on when the host says that it is ([`Session::set_durable`]).

pub(crate) mod state;

use crate::decision::Progress;
use crate::flows::checkpoint::state::{SYNCS, Waits};
use crate::flows::flow::{Errand, Flow, Parked, Task};
use crate::flows::hide::state::Hide;
use crate::flows::injection::Injection;
use crate::flows::reconcile::state::Resent;
use crate::flows::step::Step;
use crate::message::read;
use crate::parts::epochs::Flush;
use crate::parts::life::Phase;
use crate::parts::slots::Active;
use crate::session::Session;
use crate::work::Work;
use belay_memory::Memory;
use belay_recorder::Node;
use belay_recorder::control::{FlushBy, Options};
use belay_wire::abi::OutHeader;
use belay_wire::errno::{EIO, EROFS};
use belay_wire::{Opcode, OpcodeSet, OpenOut, Request, build};

/// O_RDWR: daemons flush for handles only by which something could have been written.
const O_RDWR: u32 = 2;

/// Requests that change nothing and may take for ever.
const UNENDING: OpcodeSet = OpcodeSet::new(&[Opcode::SETLKW, Opcode::POLL]);

/// What of a checkpoint a task waits for.
fn waits_of(task: &Task) -> Waits {
    task.flow.request().map_or(Waits::default(), |parked| parked.waits)
}

/// Whether a task is what a request has left to be done: others may wait for it that had begun.
fn clears_up(task: &Task) -> bool {
    matches!(task.flow, Flow::RemoveHidden(_))
}

impl<M: Memory> Session<M> {
    /// Whether the policy is `epoch`.
    pub(crate) fn has_epochs(&self) -> bool {
        self.life.has(Options::EPOCH)
    }

    /// Whether there is an image, so that what asks for data to be safe waits for a checkpoint.
    pub(crate) fn holds_syncs(&self) -> bool {
        self.life.has(Options::EPOCH) && !self.life.has(Options::BUFFER)
    }

    /// Whether the daemon stores all but the content of files at once (policy `buffer`).
    pub(crate) fn buffers_files(&self) -> bool {
        self.life.has(Options::BUFFER_FILES)
    }

    /// Whether nothing is left of a request that was not answered.
    pub(crate) fn leaves_nothing(&self) -> bool {
        self.has_epochs() && !self.buffers_files()
    }

    /// The epochs as the host finds them at its start.
    pub fn set_epochs(&mut self, current: u64, durable: u64) {
        self.epochs.set(current, durable);
    }

    /// Whether something waits for a checkpoint: an application, or a request for which the op-log
    /// has no room.
    pub fn wants_checkpoint(&self) -> bool {
        let throttled = || self.tasks.iter().any(|task| waits_of(task).for_room);
        self.life.is_open() && self.leaves_nothing() && (self.epochs.is_wanted() || throttled())
    }

    /// Whether somebody waits for an epoch to be safe, or for a checkpoint. Readers must not sleep
    /// for long meanwhile: that it is, or that one can be made now, may come to be known without a
    /// message of the kernel's.
    pub fn is_awaiting(&self) -> bool {
        self.tasks.iter().any(|task| {
            let waits = waits_of(task);
            waits.for_epoch.is_some() || waits.for_room
        })
    }

    /// Begins a checkpoint at the time `now`; `false` if that is not possible now.
    pub fn begin_checkpoint(&mut self, now: u64) -> bool {
        let may = self.life.is_open() && self.leaves_nothing() && !self.is_read_only();
        if !may || !self.epochs.may_begin(now) {
            return false;
        }
        self.life.enter(Phase::Quiescing);
        self.epochs.begin(self.tasks.last(), now);
        self.tasks.kick();
        true
    }

    /// The epoch has ended, and `current` is under way.
    pub fn sealed(&mut self, current: u64) {
        self.epochs.enter(current);
        if self.forward.is_some() {
            self.finish_cut();
            return self.tell_log_sizes();
        }
        self.logged.restart(current);
        self.tell_log_sizes();
        for parked in self.tasks.flows_mut().filter_map(Flow::request_mut) {
            parked.waits.for_room = false;
        }
        self.end_checkpoint();
    }

    /// The last epoch that outlives a power failure.
    pub fn set_durable(&mut self, epoch: u64) {
        self.epochs.set_durable(epoch);
        let safe = self.tasks.iter().any(|t| waits_of(t).for_epoch.is_some_and(|at| at <= epoch));
        self.tasks.kick_if(safe);
    }

    /// The epoch could not be ended.
    pub fn abandon_checkpoint(&mut self) {
        if self.forward.is_some() {
            return self.abandon_cut();
        }
        self.end_checkpoint();
    }

    /// Whether the daemon has not written what it holds, as it can write nothing (it is mounted
    /// read-only): there is a checkpoint only if it has written nothing before either.
    pub fn holds_nothing(&self) -> bool {
        self.epochs.holds_nothing()
    }

    /// The daemon has written something and then could not write what else it holds: no checkpoint.
    pub fn refuse_checkpoint(&mut self, now: u64) {
        self.flush_failed(EROFS, now);
    }

    /// Back to normal work, with or without a new epoch.
    fn end_checkpoint(&mut self) {
        if self.life.is_quiescing() {
            self.life.enter(Phase::Open);
        }
        self.tasks.retain(|flow| !matches!(flow, Flow::Flush(_)));
        self.tasks.kick_if_busy();
    }

    /// Whether a task may go on now: while a checkpoint is made those only that had begun.
    pub(crate) fn may_go_on(&self, task: &Task) -> bool {
        !self.life.is_quiescing()
            || (self.epochs.includes(task.id) && !waits_of(task).for_room)
            || matches!(task.flow, Flow::Flush(_))
            || self.epochs.flush() == Flush::No && clears_up(task)
    }

    /// Takes a checkpoint further.
    pub(crate) fn checkpoint_step(&mut self, now: u64) -> Option<Work> {
        self.reap();
        match self.epochs.flush() {
            Flush::Done => return Some(Work::Seal),
            Flush::Failed(errno) => {
                self.flush_failed(errno, now);
                return None;
            }
            Flush::No => {}
            _ => return None,
        }
        if self.is_quiesced() {
            if self.control().checkpoint_settings().flush == FlushBy::Restart {
                self.epochs.set_flush(Flush::Retiring);
                return Some(Work::Retire);
            }
            let flushes = self.tasks.iter().any(|task| matches!(task.flow, Flow::Flush(_)));
            if !flushes {
                self.park_errand(Flow::Flush(Errand::new(())));
            }
        } else if self.epochs.is_late(now) {
            self.end_checkpoint();
        }
        None
    }

    /// Whether the daemon is to be given nothing more: it was told that the mount has gone.
    pub fn is_retiring(&self) -> bool {
        self.life.is_quiescing() && self.epochs.flush() == Flush::Retiring
    }

    /// The daemon could not write what it has. Who waits for that hears of it, by EIO (ENOSYS would
    /// have the kernel take every later fsync for done); the others go on, and what they do stays
    /// in the op-log.
    fn flush_failed(&mut self, errno: i32, now: u64) {
        self.control().count_failed_checkpoint(if errno > 0 { errno } else { EIO });
        self.epochs.fail(now);
        let current = self.epochs.current();
        self.fail_waiting(|awaited| awaited >= current);
        self.end_checkpoint();
    }

    /// Checkpoints have not reached the image for long: who waits for that hears of it. What they
    /// wrote stays in overlay and op-log, so that a later one that is safe has it too.
    pub fn fail_syncs(&mut self) {
        self.epochs.want_none();
        let durable = self.epochs.durable();
        self.fail_waiting(|awaited| awaited > durable);
        self.tasks.kick();
    }

    /// Who waits for such an epoch hears that it is not safe.
    fn fail_waiting(&mut self, is_such: impl Fn(u64) -> bool) {
        for parked in self.tasks.flows_mut().filter_map(Flow::request_mut) {
            if parked.waits.for_epoch.is_some_and(&is_such) {
                parked.failed = Some(EIO);
            }
        }
    }

    /// Nothing is to be replayed: what was answered before this life is part of the epoch before.
    pub(crate) fn note_settled(&mut self) {
        self.epochs.note_settled();
    }

    /// Whether all that had begun has ended.
    fn is_quiesced(&self) -> bool {
        let works = |active: &Active| !UNENDING.has(active.opcode);
        let goes_on = |task: &Task| {
            let waits = waits_of(task);
            self.epochs.includes(task.id) && waits.for_epoch.is_none() && !waits.for_room
                || clears_up(task)
        };
        !self.slots.iter().any(works)
            && !self.tasks.iter().any(goes_on)
            && self.tasks.is_outbox_empty()
    }

    /// The errand that has the daemon write all that it holds.
    pub(crate) fn flush_step(&mut self) -> Step {
        let Some(root) = self.store.bound(Node::ROOT, self.life.ids()) else {
            self.epochs.set_flush(Flush::Failed(0));
            return Step::Done;
        };
        let ids = self.questions.ids(root);
        let by = self.control().checkpoint_settings().flush;
        let (message, flush) = match self.epochs.flush() {
            Flush::No if by == FlushBy::Flush => (build::flush(ids, 0), Flush::Flushing),
            Flush::No => (build::opendir(ids, O_RDWR), Flush::Opening),
            Flush::Open(fh) => (build::fsyncdir(ids, fh), Flush::Syncing(fh)),
            Flush::Synced(fh) => (build::release(ids, fh, O_RDWR, true), Flush::Closing),
            _ => return Step::Done,
        };
        self.epochs.set_flush(flush);
        Step::Inject(message, Injection::Flush)
    }

    pub(crate) fn on_flush_reply(&mut self, task: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(EIO, |header| -header.error);
        let open = reply.get(16..).and_then(read::<OpenOut>);
        // A daemon that can write nothing, and has acknowledged nothing, holds nothing.
        let nothing = errno == EROFS && self.log_sizes().is_some_and(|sizes| sizes.records == 0);
        self.epochs.flushed(errno, open.map(|open| open.fh), nothing);
        let over = self.forward.is_none() && self.epochs.flush().is_over();
        self.tasks.resume(task, |task| task.flow.set_done(over));
    }

    /// Whether a request waits for a checkpoint to make room in the op-log. One that has begun does
    /// not.
    pub(crate) fn is_held_up(&mut self, parked: &mut Parked, request: &Request<'_>) -> bool {
        let begun =
            |resent: Resent| !matches!(resent.progress, Progress::Unseen | Progress::Untouched);
        parked.waits.for_room = parked.hide == Hide::None
            && !parked.resent.is_some_and(begun)
            && self.is_throttled(request)
            && !self.is_reopening(request); // its file has another mode for a moment
        if parked.waits.for_room && self.buffers_files() {
            parked.waits.for_room = self.make_room();
        }
        parked.waits.for_room
    }

    /// A request that asks for what was written to be safe: it is answered when the epoch in which
    /// it came is. The daemon need not hear of it.
    pub(crate) fn sync_step(&mut self, parked: &mut Parked, request: &Request<'_>) -> Option<Step> {
        if !self.holds_syncs() || !SYNCS.has(request.opcode()) {
            return None;
        }
        let came = self.epochs.came_in(parked.resent.is_some());
        let awaited = *parked.waits.for_epoch.get_or_insert(came);
        if self.epochs.durable() >= awaited {
            return Some(self.answer(parked, &build::reply_ok(request.header.unique)));
        }
        if awaited >= self.epochs.current() && !self.control().checkpoint_settings().syncs_wait {
            self.epochs.want(awaited);
        }
        Some(Step::Blocked)
    }
}
