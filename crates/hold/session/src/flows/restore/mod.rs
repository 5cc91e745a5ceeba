//! Bringing back nodes, handles and locks in a successor, as the first request needs them.

mod lost;
mod met;
mod vouch;

pub(crate) mod missing;
pub(crate) mod state;

use crate::decision::Progress;
use crate::flows::flow::{Errand, Flow, Parked, Task};
use crate::flows::injection::Injection;
use crate::flows::restore::missing::{Missed, Missing};
use crate::flows::step::Step;
use crate::message::{read, target_dir};
use crate::parts::restored::Reopen;
use crate::parts::scheduler::Wait;
use crate::session::Session;
use crate::traffic::entries::kind_of;
use belay_memory::Memory;
use belay_recorder::control::{self, Counter};
use belay_recorder::{Handle, Lock, Node, handle_flags};
use belay_wire::abi::{AttrOut, FileLock, FlushIn, LK_FLOCK, LkIn, OutHeader, SetattrIn, fattr};
use belay_wire::errno::{EACCES, ENOENT, EPERM, EROFS, ESTALE};
use belay_wire::request::HEADER;
use belay_wire::{
    EntryOut, Opcode, OpcodeSet, OpenOut, Request, build, get_u64, handle_fields, node_fields,
};

/// O_CREAT, O_EXCL, O_NOCTTY and O_TRUNC: what opening again must not do.
const ONCE_ONLY: u32 = 0o100 | 0o200 | 0o400 | 0o1000;
/// The longest path that is restored.
const MAX_DEPTH: usize = 4096;
const O_ACCMODE: u32 = 3;
const O_CREAT: u32 = 0o100;
const O_APPEND: u32 = 0o2000;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;

/// Requests that neither change a file nor see its content, and to which it is all one who has locked it.
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
    /// Whether a handle that a request goes by is being opened again.
    pub(crate) fn is_reopening(&self, request: &Request<'_>) -> bool {
        self.restored.is_reopening_any()
            && handle_fields(request).iter().any(|at| {
                let key = get_u64(request.body, at - HEADER).unwrap_or(0);
                let handle = self.store.handle_by_key(key);
                handle.is_some_and(|handle| self.restored.reopen(handle).is_some())
            })
    }

    pub(crate) fn restore(&mut self, missing: Missing) -> Missed {
        match missing {
            Missing::Node(node) => self.restore_node(node),
            Missing::Handle(handle) => self.restore_handle(handle),
            Missing::Gone | Missing::Lost => Missed::Failed(ESTALE),
        }
    }

    /// Whether a request only closes what this generation never opened.
    pub(crate) fn releases_unbound(&self, request: &Request<'_>) -> bool {
        matches!(request.opcode(), Opcode::RELEASE | Opcode::RELEASEDIR | Opcode::FLUSH)
            && !self.drops_locks(request)
            && handle_fields(request).iter().any(|at| {
                let key = get_u64(request.body, at.saturating_sub(40)).unwrap_or(0);
                self.store.handle_by_key(key).is_some_and(|handle| {
                    self.store.handle_bound(handle, self.life.generation()).is_none()
                })
            })
    }

    /// Whether a FLUSH drops locks that were taken again, through whichever handle.
    fn drops_locks(&self, request: &Request<'_>) -> bool {
        request.opcode() == Opcode::FLUSH
            && self.store.has_locks()
            && request.body_as::<FlushIn>().is_some_and(|flush| {
                self.store.locks().iter().any(|lock| {
                    !lock.flock
                        && lock.node == request.header.nodeid
                        && lock.owner == flush.lock_owner
                })
            })
    }

    /// Looks up the nearest ancestor of `node` that this generation does not know.
    pub(crate) fn restore_node(&mut self, node: Node) -> Missed {
        let mut node = node;
        for _ in 0..MAX_DEPTH {
            let Some(dentry) = self.store.dentries(node).next() else {
                return Missed::Nameless;
            };
            let parent = self.store.dentry_parent(dentry);
            let Some(id) = self.store.bound(parent, self.life.generation()) else {
                node = parent;
                continue;
            };
            if let Some(step) = self.doubt_step(node) {
                return step;
            }
            let name = self.store.dentry_name(dentry);
            if let Some(task) = self.mover_of(parent, &name) {
                return Missed::Step(Step::After(task));
            }
            if !self.restored.begin(node) {
                return Missed::Step(Step::Blocked);
            }
            let message = build::lookup(self.questions.ids(id), &name);
            return Missed::Step(Step::Inject(
                message,
                Injection::RestoreNode { node, parent, name },
            ));
        }
        Missed::Failed(ESTALE)
    }

    /// A rename that was in flight at the crash and is not settled: until it is, nobody knows what
    /// its names mean.
    pub(crate) fn mover_of(&self, parent: Node, name: &[u8]) -> Option<u64> {
        let key = self.store.key(parent);
        let mover = self.tasks.iter().find(|task| {
            let begun = |parked: &&Parked| {
                parked.resent.is_some_and(|resent| resent.progress == Progress::Started)
            };
            let parked = task.flow.request().filter(begun);
            let Some(request) = parked.and_then(|parked| Request::parse(parked.message()).ok())
            else {
                return false;
            };
            let names = request.names();
            target_dir(&request).is_some_and(|to| {
                (request.header.nodeid == key && names.first == Some(name))
                    || (to == key && names.second == Some(name))
            })
        });
        mover.map(|task| task.id)
    }

    pub(crate) fn restored_node(
        &mut self,
        task: u64,
        node: Node,
        parent: Node,
        name: &[u8],
        reply: &[u8],
    ) {
        self.restored.end(node);
        let Some(header) = read::<OutHeader>(reply) else { return };
        let entry = reply.get(16..).and_then(read::<EntryOut>).filter(|entry| entry.nodeid != 0);
        let errno = -header.error;
        match entry.filter(|_| errno == 0) {
            Some(entry) if self.is_same(node, kind_of(entry.attr.mode), &entry) => {
                self.is_found(node, &entry);
                self.meet(parent, name);
            }
            found if found.is_some() || errno == ENOENT || errno == 0 => {
                // The name is gone or is something else's now; the node may have other names.
                if found.is_none_or(|entry| !self.doubt(node, parent, name, &entry)) {
                    self.is_replaced(node, parent, name, found.as_ref());
                }
            }
            _ => self.tasks.resume(task, |task| task.flow.refuse(errno)),
        }
        self.tasks.resume(task, |_| {});
    }

    /// A name of `node` leads to something else now, or to nothing.
    pub(crate) fn is_replaced(
        &mut self,
        node: Node,
        parent: Node,
        name: &[u8],
        found: Option<&EntryOut>,
    ) {
        if let Some(entry) = found {
            self.forget_later(vec![(entry.nodeid, 1)]);
            self.count(Counter::Failed); // the daemon would have gone on with it
            self.tell_renumbered(node, entry);
        }
        self.tell_gone(node, (parent, name), found);
        self.store.begin();
        if self.store.child(parent, name) == Some(node) {
            self.unname(parent, name);
        }
        self.store.commit();
    }

    /// The daemon was asked for `node`, and this is it.
    pub(crate) fn is_found(&mut self, node: Node, entry: &EntryOut) {
        let unknown = self.store.bound(node, self.life.generation()) != Some(entry.nodeid);
        self.store.begin();
        if unknown {
            self.store.bind(node, self.life.generation(), entry.nodeid);
        }
        self.store.count_for_daemon(node);
        self.pin(node, (entry.attr.ino, entry.attr.nlink));
        self.store.commit();
        if unknown {
            self.count(Counter::NodesRestored);
        }
    }

    /// Opens a handle again, without what an open does only once.
    pub(crate) fn restore_handle(&mut self, handle: Handle) -> Missed {
        let open = self.store.open_facts(handle);
        let Some(id) = self.store.bound(open.node, self.life.generation()) else {
            return self.restore_node(open.node);
        };
        if open.node == Node::ROOT
            && open.directory
            && let Some(step) = self.meet_root()
        {
            return Missed::Step(step);
        }
        let state = self.restored.reopen(handle);
        if matches!(state, Some(Reopen::Busy | Reopen::Opening(_) | Reopen::Narrowing(_))) {
            return Missed::Step(Step::Blocked);
        }
        self.restored.set_reopen(handle, Reopen::Busy);
        let ids = self.questions.ids(id);
        let step = match state {
            Some(Reopen::Ask(errno)) => {
                Step::Inject(build::getattr(ids, None), Injection::ReadMode { handle, errno })
            }
            Some(Reopen::Widen(mode)) => {
                // On record first: whatever happens, the mode comes back.
                self.store.begin();
                self.store.set_widened(handle, Some(mode));
                self.store.commit();
                Step::Inject(
                    build::setattr(ids, &set_mode(mode | 0o600)),
                    Injection::WidenMode { handle, mode },
                )
            }
            Some(Reopen::Narrow(mode, fh)) => {
                self.restored.set_reopen(handle, Reopen::Narrowing(fh));
                Step::Inject(build::setattr(ids, &set_mode(mode)), Injection::NarrowMode { handle })
            }
            _ => {
                if let Some(Reopen::Open(mode)) = state {
                    self.restored.set_reopen(handle, Reopen::Opening(mode));
                }
                let mut flags = self.flags_again(open.flags);
                if self.restored.refusal(handle).is_some() {
                    flags &= !O_ACCMODE;
                }
                let message = if open.directory {
                    build::opendir(ids, flags)
                } else {
                    build::open(ids, flags)
                };
                Step::Inject(message, Injection::Reopen { handle })
            }
        };
        Missed::Step(step)
    }

    /// The flags to open again with what was opened with `flags`.
    pub(crate) fn flags_again(&self, flags: u32) -> u32 {
        // What CREATE makes without O_APPEND, OPEN may open with it: the end of a file is not where each write of the kernel's goes.
        let ignored = if self.is_made_plain(flags) { O_APPEND } else { 0 };
        flags & !ONCE_ONLY & !ignored
    }

    /// Whether `flags` are those of a CREATE of a daemon that ignores O_APPEND there.
    pub(crate) fn is_made_plain(&self, flags: u32) -> bool {
        flags & O_CREAT != 0 && self.control().has(control::flags::CREATES_PLAIN)
    }

    pub(crate) fn reopened(&mut self, task: u64, handle: Handle, reply: &[u8]) {
        let widened = match self.restored.end_reopen(handle) {
            Some(Reopen::Opening(mode)) => Some(mode),
            _ => None,
        };
        let errno = read::<OutHeader>(reply).map_or(ESTALE, |header| -header.error);
        let open = reply.get(16..).and_then(read::<OpenOut>).filter(|_| errno == 0);
        let facts = self.store.open_facts(handle);
        if let Some(mode) = widened {
            self.restored.set_reopen(handle, Reopen::Narrow(mode, open.map(|open| open.fh)));
        } else if let Some(open) = open {
            self.rebind(handle, open.fh);
            if let Some(errno) = self.restored.refusal(handle) {
                self.tell_read_only(facts.node, errno);
            }
        } else if errno == EROFS
            && facts.flags & O_ACCMODE != 0
            && self.restored.make_read_only(handle, errno)
        {
            // Without writing it may be opened; what is written then fails as the daemon says.
        } else if !facts.directory {
            // Perhaps for its mode: not all daemons say so by EACCES.
            self.restored.set_reopen(handle, Reopen::Ask(errno));
        } else {
            self.lose(handle, errno);
        }
        self.tasks.resume(task, |_| {});
    }

    /// A handle is open in this generation.
    pub(crate) fn rebind(&mut self, handle: Handle, fh: u64) {
        self.store.begin();
        self.store.handle_bind(handle, self.life.generation(), fh);
        self.store.commit();
        self.count(Counter::HandlesRestored);
        if self.store.open_facts(handle).directory && self.store.stream_len(handle) > 0 {
            self.streams.restore(handle);
        }
    }

    pub(crate) fn mode_narrowed(&mut self, task: u64, handle: Handle) {
        let state = self.restored.end_reopen(handle);
        self.clear_widened(handle);
        match state {
            Some(Reopen::Narrowing(Some(fh))) => self.rebind(handle, fh),
            _ => self.lose(handle, EACCES),
        }
        self.tasks.resume(task, |_| {});
    }

    /// Whether a file has a mode that only belay is to see: nobody else's request goes to the daemon meanwhile, which could be let
    /// through by it, or tell of it.
    #[inline]
    pub(crate) fn shows_wide_mode(&self) -> bool {
        self.restored.is_reopening_any() && self.has_widened()
    }

    #[cold]
    fn has_widened(&self) -> bool {
        self.restored.reopening().any(|handle| self.store.widened(handle).is_some())
    }

    fn clear_widened(&mut self, handle: Handle) {
        self.store.begin();
        self.store.set_widened(handle, None);
        self.store.commit();
    }

    /// Puts back a mode that a dead generation had widened.
    pub(crate) fn narrow_step(&mut self, errand: Errand<Handle>) -> Step {
        let handle = errand.about;
        let Some(mode) = self.store.widened(handle).filter(|_| !errand.failed) else {
            return Step::Done;
        };
        let node = self.store.open_facts(handle).node;
        let Some(id) = self.store.bound(node, self.life.generation()) else {
            return match self.restore_node(node) {
                Missed::Step(step) => step,
                Missed::Failed(_) | Missed::Nameless => Step::Done,
            };
        };
        let message = build::setattr(self.questions.ids(id), &set_mode(mode));
        Step::Inject(message, Injection::NarrowLeft { handle })
    }

    pub(crate) fn left_narrowed(&mut self, task: u64, handle: Handle) {
        self.clear_widened(handle);
        self.tasks.resume(task, |task| task.flow.set_done(true));
    }

    /// The mode of a file whose OPEN has failed with `refusal`.
    pub(crate) fn mode_read(&mut self, task: u64, handle: Handle, refusal: i32, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(ESTALE, |header| -header.error);
        let mode = reply.get(16..).and_then(read::<AttrOut>).filter(|_| errno == 0);
        let mode = mode.map(|out| out.attr.mode & 0o7777);
        let needed = match self.store.open_facts(handle).flags & O_ACCMODE {
            O_RDONLY => 0o400,
            O_WRONLY => 0o200,
            _ => 0o600,
        };
        match mode {
            Some(mode) if matches!(refusal, EACCES | EPERM) || mode & needed != needed => {
                self.restored.set_reopen(handle, Reopen::Widen(mode));
            }
            _ => self.lose(handle, refusal),
        }
        self.tasks.resume(task, |_| {});
    }

    pub(crate) fn mode_widened(&mut self, task: u64, handle: Handle, mode: u32, reply: &[u8]) {
        if read::<OutHeader>(reply).is_some_and(|header| header.error == 0) {
            self.restored.set_reopen(handle, Reopen::Open(mode));
        } else {
            self.clear_widened(handle);
            self.lose(handle, EACCES);
        }
        self.tasks.resume(task, |_| {});
    }

    /// Whether a request is about a file whose locks are not all taken again, and does more than to look at it.
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

    /// Where in front of `at` a request that was in flight is settled: locks that it does not need are taken again later, or
    /// daemons that live for a moment only would come to nothing else.
    pub(crate) fn before_relocks(&self, at: usize) -> usize {
        let waits = |task: &Task| matches!(task.flow, Flow::Relock(_)) && task.wait == Wait::Ready;
        let before = self.tasks.iter().take(at).rev().take_while(|task| waits(task)).count();
        at - before
    }

    /// Takes a lock again: before anything else is done with its file and before any new work, or somebody else could take it.
    pub(crate) fn relock_step(&mut self, errand: Errand<Lock>) -> Step {
        let lock = errand.about;
        let Some(handle) = self.store.handle_by_key(lock.handle) else {
            self.store.begin();
            self.store.locks_remove(|other| *other == lock);
            self.store.commit();
            return Step::Done;
        };
        if errand.failed || self.store.handle_flags(handle) & handle_flags::LOST != 0 {
            self.lost_lock(lock);
            return Step::Done;
        }
        let Some(fh) = self.store.handle_bound(handle, self.life.generation()) else {
            return match self.restore_handle(handle) {
                Missed::Step(step) => step,
                Missed::Failed(_) | Missed::Nameless => {
                    self.lost_lock(lock);
                    Step::Done
                }
            };
        };
        let node = self.store.open_facts(handle).node;
        let Some(id) = self.store.bound(node, self.life.generation()) else { return Step::Done };
        let body = LkIn {
            fh,
            owner: lock.owner,
            lk: FileLock { start: lock.start, end: lock.end, type_: lock.kind, pid: lock.pid },
            lk_flags: if lock.flock { LK_FLOCK } else { 0 },
            padding: 0,
        };
        let message = build::setlk(self.questions.ids(id), &body);
        Step::Inject(message, Injection::Relock { lock })
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

pub(crate) fn set_mode(mode: u32) -> SetattrIn {
    SetattrIn { valid: fattr::MODE, mode, ..SetattrIn::default() }
}
