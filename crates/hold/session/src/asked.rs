//! On whose behalf belay asks a daemon something, which may go by who asks: the process for whose sake it is, not root,
//! whom a daemon may refuse, or show something else.
//!
//! A request of belay's own names first who is entitled to it: who opened the file, or whose request waits for it. If the
//! daemon refuses, it is asked again for the next who may be: root, at last the owner of the mount. What only opens a way
//! for an instant (a file's mode that is widened) is asked by root first, as the opener may have lost the right to it.

use crate::injection::Injection;
use crate::session::{Session, Work};
use crate::task::{Job, Task};
use belay_memory::Memory;
use belay_recorder::{Handle, Slot};
use belay_wire::errno::{EACCES, EPERM};
use belay_wire::request::HEADER;
use belay_wire::{InHeader, Opcode, OutHeader, Request, get_u64, handle_fields, put_u64};
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

/// Those who may ask, the likeliest first.
type Callers = SmallVec<[Caller; 4]>;

/// A request of belay's own that the daemon has.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// For the sake of which task.
    pub(crate) task: u64,
    pub(crate) injection: Injection,
    pub(crate) opcode: Opcode,
    /// The request, and who else may ask, if the daemon refuses.
    again: Option<Box<(Vec<u8>, Callers)>>,
}

impl<M: Memory> Session<M> {
    /// The daemon's user and group: who has mounted, if that was no root.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        self.owner = Caller { uid, gid, pid: 0 };
    }

    /// Notes a request of belay's own that the daemon is about to get, and puts into it on whose behalf it is.
    pub(crate) fn note_asked(&mut self, task: &Task, injection: Injection, message: &mut [u8]) {
        let unique = get_u64(message, 8).unwrap_or(0);
        let opcode = Request::parse(message).map_or(Opcode(0), |request| request.opcode());
        let mut callers = self.callers(task, &injection);
        let mut again = None;
        if !callers.is_empty() {
            assume(message, callers.remove(0));
            if !callers.is_empty() {
                again = Some(Box::new((message.to_vec(), callers)));
            }
        }
        self.injections.insert(unique, Asked { task: task.id, injection, opcode, again });
    }

    /// Asks again on another's behalf what the daemon has refused, if there is another. Gives what is answered else.
    pub(crate) fn ask_again(&mut self, mut asked: Asked, header: &OutHeader) -> Option<Asked> {
        let refused = matches!(-header.error, EPERM | EACCES);
        let Some((mut message, mut callers)) = asked.again.take().filter(|_| refused).map(|b| *b)
        else {
            return Some(asked);
        };
        let unique = self.injected_ids(0).unique;
        let _ = put_u64(&mut message, belay_wire::fields::UNIQUE_OFFSET, unique);
        assume(&mut message, callers.remove(0));
        if !callers.is_empty() {
            asked.again = Some(Box::new((message.clone(), callers)));
        }
        self.injections.insert(unique, asked);
        self.outbox.push_back(Work::Deliver(message));
        self.kick = true;
        None
    }

    /// The request for whose sake belay puts the injected request `unique` to the daemon, if it is on record.
    pub fn sake_of(&self, unique: u64) -> Option<(u64, Slot)> {
        let id = self.injections.get(&unique)?.task;
        let task = self.tasks.iter().find(|task| task.id == id)?;
        let unique = task.unique() & !belay_wire::UNIQUE_RESEND;
        self.slot_in_hand(unique).map(|slot| (unique, slot))
    }

    fn callers(&self, task: &Task, injection: &Injection) -> Callers {
        let root = Caller::default();
        let request = Request::parse(task.message()).ok();
        let requester = request.as_ref().map(|request| Caller {
            uid: request.header.uid,
            gid: request.header.gid,
            pid: request.header.pid,
        });
        let handle = self.handle_of(task, injection, request.as_ref());
        let opener = handle.map(|handle| {
            let facts = self.store.open_facts(handle);
            let same =
                requester.filter(|caller| (caller.uid, caller.gid) == (facts.uid, facts.gid));
            same.unwrap_or(Caller { uid: facts.uid, gid: facts.gid, pid: 0 })
        });
        let wanted = match injection {
            Injection::Forward(_) | Injection::Flush => return Callers::new(),
            // The answer goes to who asks.
            Injection::RemoveAbsent => [requester, None, None, None],
            Injection::ReadMode { .. }
            | Injection::WidenMode { .. }
            | Injection::NarrowMode { .. }
            | Injection::NarrowLeft { .. }
            | Injection::WidenCreated
            | Injection::NarrowCreated => [Some(root), opener, requester, Some(self.owner)],
            Injection::RemoveHidden { node } => {
                let remover = self.removers.get(node).copied();
                [requester.or(Some(root)), Some(root), remover, Some(self.owner)]
            }
            _ => [opener, requester, Some(root), Some(self.owner)],
        };
        let pid = wanted.iter().flatten().map(|caller| caller.pid).find(|pid| *pid != 0);
        let mut callers = Callers::new();
        for mut caller in wanted.into_iter().flatten() {
            // Nobody is process 0: what a daemon looks up by that fails.
            caller.pid = pid.unwrap_or(caller.pid);
            if !callers.iter().any(|c| (c.uid, c.gid) == (caller.uid, caller.gid)) {
                callers.push(caller);
            }
        }
        callers
    }

    /// The handle for whose sake something is asked.
    fn handle_of(
        &self,
        task: &Task,
        injection: &Injection,
        request: Option<&Request<'_>>,
    ) -> Option<Handle> {
        match (injection, &task.job) {
            (
                Injection::Reopen { handle }
                | Injection::ReadMode { handle, .. }
                | Injection::WidenMode { handle, .. }
                | Injection::NarrowMode { handle }
                | Injection::NarrowLeft { handle }
                | Injection::List { handle, .. }
                | Injection::Store { handle, .. },
                _,
            )
            | (_, Job::Narrow(handle)) => Some(*handle),
            (_, Job::Relock(lock)) => self.store.handle_by_key(lock.handle),
            _ => {
                let request = request?;
                let at = handle_fields(request).iter().next()?;
                self.store.handle_by_key(get_u64(request.body, at.checked_sub(HEADER)?)?)
            }
        }
    }
}

/// Puts into a request who asks.
fn assume(message: &mut [u8], caller: Caller) {
    if let Some(place) = message.get_mut(..HEADER)
        && let Ok(mut header) = InHeader::read_from_bytes(place)
    {
        header.uid = caller.uid;
        header.gid = caller.gid;
        header.pid = caller.pid;
        place.copy_from_slice(header.as_bytes());
    }
}
