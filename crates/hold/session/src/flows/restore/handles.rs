//! Opening handles again in a successor, without what an open does only once. A file whose mode
//! forbids it by now is made accessible for an instant.

use crate::flows::flow::Errand;
use crate::flows::restore::missing::Missed;
use crate::flows::restore::state::Question;
use crate::flows::step::Step;
use crate::message::{read, set_mode};
use crate::parts::restored::Reopen;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::{Counter, Flags};
use belay_recorder::{Handle, Node};
use belay_wire::abi::{AttrOut, FlushIn, OutHeader, WriteIn};
use belay_wire::errno::{EACCES, EPERM, EROFS, ESTALE};
use belay_wire::request::HEADER;
use belay_wire::{Opcode, OpenOut, Request, build, get_u64, handle_fields};

/// O_CREAT, O_EXCL, O_NOCTTY and O_TRUNC: what opening again must not do.
const ONCE_ONLY: u32 = 0o100 | 0o200 | 0o400 | 0o1000;
const O_ACCMODE: u32 = 3;
const O_CREAT: u32 = 0o100;
const O_APPEND: u32 = 0o2000;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;

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

    /// Whether a request only closes what this generation never opened.
    pub(crate) fn releases_unbound(&self, request: &Request<'_>) -> bool {
        matches!(request.opcode(), Opcode::RELEASE | Opcode::RELEASEDIR | Opcode::FLUSH)
            && !self.drops_locks(request)
            && handle_fields(request).iter().any(|at| {
                let key = get_u64(request.body, at.saturating_sub(40)).unwrap_or(0);
                self.store.handle_by_key(key).is_some_and(|handle| {
                    self.store.handle_bound(handle, self.life.ids()).is_none()
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

    /// Opens a handle again, without what an open does only once.
    pub(crate) fn restore_handle(&mut self, handle: Handle) -> Missed {
        let open = self.store.open_description(handle);
        let Some(id) = self.store.bound(open.node, self.life.ids()) else {
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
                Step::ask(build::getattr(ids, None), Question::ReadMode { handle, errno })
            }
            Some(Reopen::Widen(mode)) => {
                // On record first: whatever happens, the mode comes back.
                self.store.begin();
                self.store.set_widened(handle, Some(mode));
                self.store.commit();
                Step::ask(
                    build::setattr(ids, &set_mode(mode | 0o600)),
                    Question::WidenMode { handle, mode },
                )
            }
            Some(Reopen::Narrow(mode, fh)) => {
                self.restored.set_reopen(handle, Reopen::Narrowing(fh));
                Step::ask(build::setattr(ids, &set_mode(mode)), Question::NarrowMode { handle })
            }
            _ => {
                if let Some(Reopen::Open(mode)) = state {
                    self.restored.set_reopen(handle, Reopen::Opening(mode));
                }
                let mut flags = self.flags_again(open.flags);
                if self.restored.is_placed(handle) {
                    flags &= !O_APPEND;
                }
                if self.restored.refusal(handle).is_some() {
                    flags &= !O_ACCMODE;
                }
                let message = if open.directory {
                    build::opendir(ids, flags)
                } else {
                    build::open(ids, flags)
                };
                Step::ask(message, Question::Reopen { handle })
            }
        };
        Missed::Step(step)
    }

    /// The flags to open again with what was opened with `flags`.
    pub(crate) fn flags_again(&self, flags: u32) -> u32 {
        // What CREATE makes without O_APPEND, OPEN may open with it: the end of a file is not where
        // each write of the kernel's goes.
        let ignored = if self.is_made_plain(flags) { O_APPEND } else { 0 };
        flags & !ONCE_ONLY & !ignored
    }

    /// A request comes again. If it writes at the end of a file, and files are stored one by one,
    /// it goes to the place that the kernel named, as those that were answered do: what it had
    /// begun may have moved the end (MooseFS keeps the place for it).
    pub(crate) fn note_append(&mut self, message: &[u8]) {
        if !self.buffers_files() {
            return;
        }
        let Ok(request) = Request::parse(message) else { return };
        let write = request.body_as::<WriteIn>().filter(|_| request.opcode() == Opcode::WRITE);
        if let Some(handle) = write.and_then(|write| self.store.handle_by_key(write.fh)) {
            self.restored.place(handle);
        }
    }

    /// Whether `flags` are those of a CREATE of a daemon that ignores O_APPEND there.
    pub(crate) fn is_made_plain(&self, flags: u32) -> bool {
        flags & O_CREAT != 0 && self.control().has(Flags::CREATES_PLAIN)
    }

    pub(crate) fn reopened(&mut self, task: u64, handle: Handle, reply: &[u8]) {
        let widened = match self.restored.end_reopen(handle) {
            Some(Reopen::Opening(mode)) => Some(mode),
            _ => None,
        };
        let errno = read::<OutHeader>(reply).map_or(ESTALE, |header| -header.error);
        let open = reply.get(16..).and_then(read::<OpenOut>).filter(|_| errno == 0);
        let description = self.store.open_description(handle);
        if let Some(mode) = widened {
            self.restored.set_reopen(handle, Reopen::Narrow(mode, open.map(|open| open.fh)));
        } else if let Some(open) = open {
            self.rebind(handle, open.fh);
            if let Some(errno) = self.restored.refusal(handle) {
                self.tell_read_only(description.node, errno);
            }
        } else if errno == EROFS
            && description.flags & O_ACCMODE != 0
            && self.restored.make_read_only(handle, errno)
        {
            // Without writing it may be opened; what is written then fails as the daemon says.
        } else if !description.directory {
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
        self.store.handle_bind(handle, self.life.ids(), fh);
        self.store.commit();
        self.count(Counter::HandlesRestored);
        if self.store.open_description(handle).directory && self.store.stream_len(handle) > 0 {
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

    /// Whether a file has a mode that only belay is to see: nobody else's request goes to the
    /// daemon meanwhile, which could be let through by it, or tell of it.
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
        let node = self.store.open_description(handle).node;
        let Some(id) = self.store.bound(node, self.life.ids()) else {
            return match self.restore_node(node) {
                Missed::Step(step) => step,
                Missed::Failed(_) | Missed::Nameless => Step::Done,
            };
        };
        let message = build::setattr(self.questions.ids(id), &set_mode(mode));
        Step::ask(message, Question::NarrowLeft { handle })
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
        let needed = match self.store.open_description(handle).flags & O_ACCMODE {
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
}
