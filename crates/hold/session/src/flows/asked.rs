//! On whose behalf belay asks a daemon something, which may go by who asks: the process for whose
//! sake it is, not root, whom a daemon may refuse, or show something else.
//!
//! A request of belay's own names first who is entitled to it: who opened the file, or whose
//! request waits for it. If the daemon refuses, it is asked again for the next who may be: root, at
//! last the owner of the mount. What only opens a way for an instant (a file's mode that is
//! widened) is asked by root first, as the opener may have lost the right to it.

use crate::flows::flow::{Flow, Task};
use crate::flows::injection::Injection;
use crate::parts::caller::{Asker, Caller, Callers};
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::{Handle, Slot};
use belay_wire::request::HEADER;
use belay_wire::{Request, Unique, get_u64, handle_fields};

impl<M: Memory> Session<M> {
    /// The daemon's user and group: who has mounted, if that was no root.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        self.life.set_owner(Caller { uid, gid, pid: 0 });
    }

    /// Notes a request of belay's own that the daemon is about to get, and puts into it on whose
    /// behalf it is.
    pub(crate) fn note_asked(&mut self, task: &Task, injection: Injection, message: &mut [u8]) {
        let callers = self.callers(task, &injection);
        self.questions.ask(task.id, injection, message, callers);
    }

    /// Takes the answer to a question, for the flow that has asked it.
    pub(crate) fn absorb(&mut self, task: u64, injection: Injection, reply: &[u8]) {
        match injection {
            Injection::Restore(question) => self.on_restore_reply(task, question, reply),
            Injection::Hide(question) => self.on_hide_reply(task, &question, reply),
            Injection::Reconcile(question) => self.on_reconcile_reply(task, &question, reply),
            Injection::List(list) => self.on_list_reply(task, &list, reply),
            Injection::Forward(what) => self.on_forward_reply(task, what, reply),
            Injection::Store(question) => self.on_store_reply(task, &question, reply),
            Injection::Flush => self.on_flush_reply(task, reply),
        }
    }

    /// The request for whose sake belay puts the injected request `unique` to the daemon, if it is
    /// on record.
    pub fn sake_of(&self, unique: u64) -> Option<(u64, Slot)> {
        let id = self.questions.get(unique)?.task;
        let unique = Unique::unmarked(self.tasks.find(id)?.flow.unique());
        self.slot_in_hand(unique).map(|slot| (unique, slot))
    }

    fn callers(&self, task: &Task, injection: &Injection) -> Callers {
        let root = Caller::default();
        let request = Request::parse(task.flow.message()).ok();
        let requester = request.as_ref().map(|request| Caller {
            uid: request.header.uid,
            gid: request.header.gid,
            pid: request.header.pid,
        });
        let handle = self.handle_of(task, injection, request.as_ref());
        let opener = handle.map(|handle| {
            let open = self.store.open_description(handle);
            let same = requester.filter(|caller| (caller.uid, caller.gid) == (open.uid, open.gid));
            same.unwrap_or(Caller { uid: open.uid, gid: open.gid, pid: 0 })
        });
        let owner = Some(self.life.owner());
        let wanted = match injection.asker() {
            Asker::Given => return Callers::new(),
            Asker::RequesterOnly => [requester, None, None, None],
            Asker::RootFirst => [Some(root), opener, requester, owner],
            Asker::Remover(node) => {
                [requester.or(Some(root)), Some(root), self.hidden.remover(node), owner]
            }
            Asker::Opener => [opener, requester, Some(root), owner],
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
        if let Some(handle) = injection.handle() {
            return Some(handle);
        }
        match &task.flow {
            Flow::Narrow(errand) => Some(errand.about),
            Flow::Relock(errand) => self.store.handle_by_key(errand.about.handle),
            _ => {
                let request = request?;
                let at = handle_fields(request).iter().next()?;
                self.store.handle_by_key(get_u64(request.body, at.checked_sub(HEADER)?)?)
            }
        }
    }
}
