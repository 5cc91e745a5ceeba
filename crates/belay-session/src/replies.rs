//! Replies from the daemon: what they change in the session, recorded before the kernel sees
//! them; the ids in them, translated.

use crate::message::{Message, Outgoing, header_of, read};
use crate::session::{INJECTED, Session};
use belay_recorder::control::Counter;
use belay_recorder::{
    F_UNLCK, Handle, Lock, MAX_REPLY, Memory, Node, OpenFacts, Slot, SlotState, handle_flags,
    node_flags,
};
use belay_wire::abi::{
    Attr, CreateIn, EntryOut, FlushIn, InHeader, LK_FLOCK, LinkIn, LkIn, OpenIn, OpenOut,
    OutHeader, PollIn, ReleaseIn, Rename2In, RenameIn,
};
use belay_wire::{CREATE_OPEN_OFFSET, ENTRY_OFFSET, Opcode, Request, UNIQUE_RESEND, attr_offset};

const ENOENT: i32 = 2;
const ENOMEM: i32 = 12;
/// RENAME_EXCHANGE of renameat2(2).
pub(crate) const RENAME_EXCHANGE: u32 = 2;

impl<M: Memory> Session<M> {
    /// Takes a message that the daemon writes. `head` are its first bytes, all of them if it has
    /// at most [`MAX_REPLY`]; `full` gathers it whole.
    pub fn on_reply(&mut self, head: &[u8], full: impl FnOnce() -> Vec<u8>) -> Outgoing {
        let Some(header) = read::<OutHeader>(head) else { return Outgoing::Pass };
        if header.unique == 0 {
            return self.on_notification(header.error, head, full);
        }
        if header.unique & INJECTED != 0 && header.unique & UNIQUE_RESEND == 0 {
            if let Some((task, injection)) = self.injections.remove(&header.unique) {
                let message =
                    if header.len as usize <= head.len() { head.to_vec() } else { full() };
                self.absorb(task, injection, &message);
            }
            self.kick |= !self.tasks.is_empty() || !self.outbox.is_empty();
            return Outgoing::Swallow;
        }
        let unique = header.unique & !UNIQUE_RESEND;
        let Some((index, slot)) = self.slot_of(unique) else { return Outgoing::Pass };
        let outgoing = self.effects(slot, &header, head, full);
        let answered = outgoing != Outgoing::Swallow; // else the daemon is asked for more
        if self.keeps_copies() && answered && header.error == 0 && self.is_listing(slot) {
            // From here on the kernel may have it, and would go on with the cookies in it.
            self.store.slot_advance(slot, SlotState::Replied);
        }
        self.replied(unique);
        if outgoing == Outgoing::Pass {
            if self.keeps_copies() {
                return Outgoing::PassKept;
            }
            self.free_slot(index);
        }
        outgoing
    }

    fn is_listing(&self, slot: Slot) -> bool {
        self.store.slot_request(slot).is_some_and(|request| {
            matches!(Opcode(request.opcode), Opcode::READDIR | Opcode::READDIRPLUS)
        })
    }

    /// The kernel refused a reply (ENOENT: it had given the request up): what the reply gave it,
    /// it does not have.
    pub fn on_refused(&mut self, unique: u64) {
        let Some((index, slot)) = self.slot_of(unique & !UNIQUE_RESEND) else { return };
        let opcode = self.store.slot_request(slot).map_or(Opcode(0), |r| Opcode(r.opcode));
        let reply = self.store.slot_recorded_reply(slot);
        let mut forget = Vec::new();
        self.store.begin();
        if let Some(handle) = opened(opcode, &reply).and_then(|k| self.store.handle_by_key(k)) {
            let node = self.store.open_facts(handle).node;
            self.store.handle_free(handle);
            self.store.release_unused(node, self.generation, &mut forget);
        }
        if belay_wire::is_entry_reply(opcode)
            && let Some(entry) = reply.get(ENTRY_OFFSET..).and_then(read::<EntryOut>)
            && let Some(node) = self.store.node_by_key(entry.nodeid)
        {
            // libfuse takes its own count back when its write fails, so ours follows.
            self.store.set_count(node, self.store.count(node).saturating_sub(1));
            let counted = self.store.daemon_count(node).saturating_sub(1);
            self.store.set_daemon_count(node, counted);
            if self.store.count(node) == 0 && counted == 0 {
                self.store.unbind(node);
            }
            self.store.release_unused(node, self.generation, &mut forget);
        }
        self.store.commit();
        self.forget_later(forget);
        self.free_slot(index);
    }

    /// Applies a reply, in the daemon's terms, to the session.
    pub(crate) fn effects(
        &mut self,
        slot: Slot,
        header: &OutHeader,
        head: &[u8],
        full: impl FnOnce() -> Vec<u8>,
    ) -> Outgoing {
        let Some(request) = self.store.slot_request(slot) else { return Outgoing::Pass };
        let opcode = Opcode(request.opcode);
        let node = self.store.node_by_key(request.node);
        match opcode {
            Opcode::READDIR | Opcode::READDIRPLUS if header.error == 0 => {
                return self.on_listing(slot, header.unique, opcode, full);
            }
            Opcode::GETATTR | Opcode::STATX => {
                return self.on_attributes(opcode, node, header, head);
            }
            Opcode::POLL if header.error == 0 => {
                self.on_poll(slot);
                return Outgoing::Pass;
            }
            Opcode::READ
            | Opcode::READLINK
            | Opcode::STATFS
            | Opcode::ACCESS
            | Opcode::GETXATTR
            | Opcode::LISTXATTR
            | Opcode::LSEEK
            | Opcode::IOCTL
            | Opcode::BMAP
            | Opcode::GETLK
            | Opcode::FSYNC
            | Opcode::FSYNCDIR
            | Opcode::READDIR
            | Opcode::READDIRPLUS
            | Opcode::POLL
            | Opcode::SYNCFS
            | Opcode::DESTROY => return Outgoing::Pass,
            Opcode::LOOKUP if header.error != 0 => {
                self.on_absent(slot, node, header.error);
                return Outgoing::Pass;
            }
            _ => {}
        }
        let Some(mut message) = Message::new(head).filter(|_| header.len as usize <= MAX_REPLY)
        else {
            return Outgoing::Pass;
        };
        let mut body = std::mem::take(&mut self.scratch);
        self.store.slot_body_into(slot, &mut body);
        if opcode == Opcode::RELEASEDIR
            && let Some(handle) =
                read::<ReleaseIn>(&body).and_then(|release| self.store.handle_by_key(release.fh))
        {
            // Outside of the change: a long stream is too much for one.
            self.store.stream_truncate(handle, 0);
        }
        self.store.begin();
        let done = header.error != 0
            || node.is_none_or(|node| {
                self.apply(opcode, node, &body, &header_of(&request), &mut message).is_some()
            });
        if !done {
            message = Message::new(&belay_wire::build::reply_error(header.unique, ENOMEM))
                .unwrap_or(message);
        }
        self.after_any(opcode, node, header.error != 0, &header_of(&request), &body);
        self.store.slot_reply(slot, message.as_bytes());
        self.store.commit();
        self.scratch = body;
        self.after_commit(opcode);
        Outgoing::Replace(message)
    }

    /// The changes of a successful reply. `None` if the store is full.
    fn apply(
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
                    self.unname(node, first);
                    return Some(());
                }
                // A LINK's reply is about a node that the kernel has; its target is what it links.
                if opcode == Opcode::LINK {
                    let target = request.body_as::<LinkIn>()?.oldnodeid;
                    self.follow_link(target, &entry);
                }
                let found = self.entry(node, first, &mut entry, opcode != Opcode::LOOKUP)?;
                message.patch(ENTRY_OFFSET, &entry);
                if opcode == Opcode::CREATE || opcode == Opcode::TMPFILE {
                    let flags = request.body_as::<CreateIn>()?.flags;
                    let handle =
                        self.opened(found, flags, header, message, CREATE_OPEN_OFFSET, false)?;
                    if opcode == Opcode::TMPFILE {
                        self.store.handle_flag(handle, handle_flags::LOST, true);
                    }
                }
            }
            Opcode::OPEN | Opcode::OPENDIR => {
                let flags = request.body_as::<OpenIn>()?.flags;
                let directory = opcode == Opcode::OPENDIR;
                self.opened(node, flags, header, message, 16, directory)?;
            }
            Opcode::SETATTR => {
                if let (Some(at), true) = (attr_offset(opcode), self.presents(node)) {
                    let mut attr: Attr = message.get(at)?;
                    self.present(node, &mut attr);
                    message.patch(at, &attr);
                }
            }
            Opcode::UNLINK | Opcode::RMDIR => {
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
                    self.full |= !self.store.lock_apply(lock);
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Changes that come with a reply whether or not it is an error.
    fn after_any(
        &mut self,
        opcode: Opcode,
        node: Option<Node>,
        failed: bool,
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
            Opcode::RENAME | Opcode::RENAME2 if failed => self.keep_target(node, &request),
            _ => {}
        }
    }

    fn after_commit(&mut self, opcode: Opcode) {
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
        let node = self.store.open_facts(handle).node;
        if self.store.has_locks() {
            self.store.locks_remove(|lock| lock.handle == key);
        }
        self.store.handle_free(handle);
        self.restored_dirs.remove(&handle);
        self.cookies.remove(&handle);
        let mut forget = Vec::new();
        self.store.release_unused(node, self.generation, &mut forget);
        self.forget_later(forget);
        self.count(Counter::HandlesReleased);
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
        let Some(handle) = self.store.handle_new(OpenFacts {
            node,
            flags,
            uid: header.uid,
            gid: header.gid,
            directory,
            fopen: open.open_flags,
        }) else {
            self.full = true;
            return None;
        };
        self.store.handle_bind(handle, self.generation, open.fh);
        if self.store.node_flags(node) & (node_flags::UNLINKED | node_flags::HIDDEN)
            == node_flags::UNLINKED
        {
            self.store.handle_flag(handle, handle_flags::LOST, true);
        }
        open.fh = self.store.handle_key(handle);
        message.patch(at, &open);
        self.count(Counter::HandlesOpened);
        Some(handle)
    }

    fn renamed(&mut self, from: Node, old: &[u8], to: Node, new: &[u8], flags: u32) -> Option<()> {
        let source = self.store.child(from, old);
        let target = self.store.child(to, new);
        if source.is_some() && source == target {
            return Some(()); // two links of one file: rename(2) does nothing
        }
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
        self.store.node_flag(node, node_flags::UNLINKED, false);
        if self.store.node_by_id(self.generation, entry.nodeid).is_none()
            && self.store.bound(node, self.generation).is_none()
        {
            self.store.bind(node, self.generation, entry.nodeid);
        }
    }

    fn on_absent(&mut self, slot: Slot, node: Option<Node>, error: i32) {
        let Some(parent) = node.filter(|_| error == -ENOENT) else { return };
        let mut body = std::mem::take(&mut self.scratch);
        self.store.slot_body_into(slot, &mut body);
        let name = body.split(|byte| *byte == 0).next().unwrap_or(&[]);
        if self.store.dentry_find(parent, name).is_some() {
            self.store.begin();
            self.unname(parent, name);
            self.store.commit();
        }
        self.scratch = body;
    }

    fn on_attributes(
        &self,
        opcode: Opcode,
        node: Option<Node>,
        header: &OutHeader,
        head: &[u8],
    ) -> Outgoing {
        let Some(node) = node.filter(|node| header.error == 0 && self.presents(*node)) else {
            return Outgoing::Pass;
        };
        let Some(mut message) = Message::new(head).filter(|_| header.len as usize <= MAX_REPLY)
        else {
            return Outgoing::Pass;
        };
        if let Some(at) = attr_offset(opcode)
            && let Some(mut attr) = message.get::<Attr>(at)
        {
            self.present(node, &mut attr);
            message.patch(at, &attr);
        } else if let Some(at) = belay_wire::reply::ino_offset(opcode) {
            message.patch(at, &self.store.ino(node));
        }
        Outgoing::Replace(message)
    }

    fn on_poll(&mut self, slot: Slot) {
        let (body, _) = self.store.slot_body(slot);
        let Some(poll) = read::<PollIn>(&body) else { return };
        if poll.flags & belay_wire::abi::POLL_SCHEDULE_NOTIFY != 0
            && let Some(handle) = self.store.handle_by_key(poll.fh)
        {
            self.store.begin();
            self.store.set_poll_key(handle, poll.kh);
            self.store.commit();
        }
    }
}

/// The handle key in a translated reply.
fn opened(opcode: Opcode, reply: &[u8]) -> Option<u64> {
    let at = match opcode {
        Opcode::OPEN | Opcode::OPENDIR => 16,
        Opcode::CREATE | Opcode::TMPFILE => CREATE_OPEN_OFFSET,
        _ => return None,
    };
    reply.get(at..).and_then(read::<OpenOut>).map(|open| open.fh)
}
