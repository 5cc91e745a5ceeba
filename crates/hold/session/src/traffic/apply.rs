//! What replies change in the session's records. All of it is part of a change.

use crate::message::Message;
use crate::parts::caller::Caller;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::{F_UNLCK, Handle, HandleFlags, Lock, Node, NodeFlags, OpenDescription};
use belay_wire::abi::{
    CreateIn, EntryOut, FlushIn, InHeader, LK_FLOCK, LinkIn, LkIn, OpenIn, OpenOut,
    RENAME_EXCHANGE, ReleaseIn, Rename2In, RenameIn,
};
use belay_wire::{CREATE_OPEN_OFFSET, ENTRY_OFFSET, Opcode, Request};

impl<M: Memory> Session<M> {
    /// The changes of a successful reply. `None` if the store is full; an entry in it is the
    /// daemon's then.
    pub(crate) fn apply(
        &mut self,
        opcode: Opcode,
        node: Node,
        body: &[u8],
        header: &InHeader,
        message: &mut Message,
    ) -> Option<()> {
        let request = Request { header: *header, body };
        let names = request.names();
        let first = names.first.unwrap_or(&[]);
        match opcode {
            Opcode::LOOKUP
            | Opcode::MKDIR
            | Opcode::MKNOD
            | Opcode::SYMLINK
            | Opcode::LINK
            | Opcode::CREATE
            | Opcode::TMPFILE => {
                let mut entry: EntryOut = message.get(ENTRY_OFFSET)?;
                if entry.nodeid == 0 {
                    self.meet(node, first);
                    self.unname(node, first);
                    return Some(());
                }
                // A LINK's reply is about a node that the kernel has; its target is what it links.
                if opcode == Opcode::LINK {
                    let target = request.body_as::<LinkIn>()?.oldnodeid;
                    self.follow_link(target, &entry);
                }
                let given = entry;
                let found = self.entry(node, first, &mut entry, opcode != Opcode::LOOKUP)?;
                message.patch(ENTRY_OFFSET, &entry);
                if opcode == Opcode::CREATE || opcode == Opcode::TMPFILE {
                    let flags = request.body_as::<CreateIn>()?.flags;
                    let at = CREATE_OPEN_OFFSET;
                    let Some(handle) = self.opened(found, flags, header, message, at, false) else {
                        self.take_back(found);
                        message.patch(ENTRY_OFFSET, &given);
                        return None;
                    };
                    if opcode == Opcode::TMPFILE {
                        self.store.handle_flag(handle, HandleFlags::LOST, true);
                    }
                }
            }
            Opcode::OPEN | Opcode::OPENDIR => {
                let flags = request.body_as::<OpenIn>()?.flags;
                let directory = opcode == Opcode::OPENDIR;
                self.opened(node, flags, header, message, 16, directory)?;
            }
            Opcode::SETATTR => {
                self.show(opcode, node, message.as_mut_bytes())?;
            }
            Opcode::UNLINK | Opcode::RMDIR => {
                self.unkeep(node, first);
                self.unname(node, first);
            }
            Opcode::RENAME => {
                let to = self.store.node_by_key(request.body_as::<RenameIn>()?.newdir)?;
                self.renamed(node, first, to, names.second.unwrap_or(&[]), 0)?;
            }
            Opcode::RENAME2 => {
                let rename: Rename2In = request.body_as()?;
                let to = self.store.node_by_key(rename.newdir)?;
                self.renamed(node, first, to, names.second.unwrap_or(&[]), rename.flags)?;
            }
            Opcode::SETLK | Opcode::SETLKW => {
                let lk: LkIn = request.body_as()?;
                let lock = Lock {
                    node: header.nodeid,
                    handle: lk.fh,
                    owner: lk.owner,
                    start: lk.lk.start,
                    end: lk.lk.end,
                    kind: lk.lk.type_,
                    pid: lk.lk.pid,
                    flock: lk.lk_flags & LK_FLOCK != 0,
                };
                if lock.kind != F_UNLCK || self.store.has_locks() {
                    self.notice.overflow_if(!self.store.lock_apply(lock));
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Changes that come with a reply whether or not it is an error.
    pub(crate) fn after_any(
        &mut self,
        opcode: Opcode,
        node: Option<Node>,
        header: &InHeader,
        body: &[u8],
    ) {
        let request = Request { header: *header, body };
        match opcode {
            Opcode::RELEASE | Opcode::RELEASEDIR => {
                let Some(release) = request.body_as::<ReleaseIn>() else { return };
                let Some(handle) = self.store.handle_by_key(release.fh) else { return };
                self.release(handle);
            }
            Opcode::FLUSH if self.store.has_locks() => {
                // close(2) drops all POSIX locks of the closing owner on the file.
                let (Some(flush), Some(node)) = (request.body_as::<FlushIn>(), node) else {
                    return;
                };
                let key = self.store.key(node);
                self.store.locks_remove(|lock| {
                    !lock.flock && lock.node == key && lock.owner == flush.lock_owner
                });
            }
            _ => {}
        }
    }

    pub(crate) fn after_commit(&mut self, opcode: Opcode) {
        // A file may have been closed while it was being hidden.
        let ends =
            matches!(opcode, Opcode::RELEASE | Opcode::UNLINK | Opcode::RENAME | Opcode::RENAME2);
        if ends && !self.hidden.is_empty() {
            self.remove_hidden();
        }
    }

    /// A handle is closed. Part of a change.
    pub(crate) fn release(&mut self, handle: Handle) {
        let key = self.store.handle_key(handle);
        let open = self.store.open_description(handle);
        let node = open.node;
        if self.store.node_flags(node).intersects(NodeFlags::HIDDEN) {
            // Nobody who removed the name may be known in this generation.
            let opener = Caller { uid: open.uid, gid: open.gid, pid: 0 };
            self.hidden.guess_remover(node, opener);
        }
        if self.store.has_locks() {
            self.store.locks_remove(|lock| lock.handle == key);
        }
        self.store.handle_free(handle);
        self.restored.close(handle);
        self.streams.close(handle);
        let mut forget = Vec::new();
        self.store.release_unused(node, self.life.ids(), &mut forget);
        self.forget_later(forget);
    }

    fn opened(
        &mut self,
        node: Node,
        flags: u32,
        header: &InHeader,
        message: &mut Message,
        at: usize,
        directory: bool,
    ) -> Option<Handle> {
        let mut open: OpenOut = message.get(at)?;
        let Some(handle) = self.store.handle_new(OpenDescription {
            node,
            flags,
            uid: header.uid,
            gid: header.gid,
            directory,
            fopen: open.open_flags.bits(),
        }) else {
            self.notice.overflow();
            return None;
        };
        self.store.handle_bind(handle, self.life.ids(), open.fh);
        if self.store.node_flags(node) & (NodeFlags::UNLINKED | NodeFlags::HIDDEN)
            == NodeFlags::UNLINKED
        {
            self.store.handle_flag(handle, HandleFlags::LOST, true);
        }
        open.fh = self.store.handle_key(handle);
        message.patch(at, &open);
        Some(handle)
    }

    fn renamed(&mut self, from: Node, old: &[u8], to: Node, new: &[u8], flags: u32) -> Option<()> {
        let source = self.store.child(from, old);
        let target = self.store.child(to, new);
        if source.is_some() && source == target {
            return Some(()); // two links of one file: rename(2) does nothing
        }
        self.meet(to, new);
        if flags & RENAME_EXCHANGE != 0 {
            if let Some(source) = source {
                self.name(to, new, source)?;
            }
            match target {
                Some(target) => self.name(from, old, target)?,
                None => {
                    self.unname(from, old);
                }
            }
            return Some(());
        }
        if target.is_some() {
            self.unname(to, new);
        }
        if let Some(source) = source {
            self.name(to, new, source)?;
        }
        self.unname(from, old);
        Some(())
    }

    /// A LINK's entry names the linked node, also when the daemon gives it a new id.
    fn follow_link(&mut self, target: u64, entry: &EntryOut) {
        let Some(node) = self.store.node_by_key(target) else { return };
        self.store.node_flag(node, NodeFlags::UNLINKED | NodeFlags::LONE, false);
        self.learn_of_link(node, entry.nodeid);
        if self.store.node_by_id(self.life.ids(), entry.nodeid).is_none()
            && self.store.bound(node, self.life.ids()).is_none()
        {
            self.store.bind(node, self.life.ids(), entry.nodeid);
        }
    }
}
