//! Replies from the daemon: what they change in the session, recorded before the kernel sees
//! them; the ids in them, translated.

use crate::message::{Message, Outgoing, header_of, read, whole};
use crate::parts::questions::Answered;
use crate::parts::slots::Active;
use crate::session::Session;
use crate::traffic::direct::{CHANGE_FILES, READS};
use crate::work::Work;
use belay_memory::Memory;
use belay_recorder::{MAX_REPLY, Node, Slot, SlotState};
use belay_wire::abi::{EntryOut, OpenOut, OutHeader, PollIn, ReleaseIn};
use belay_wire::errno::{EACCES, ENOENT, ENOMEM, EPERM};
use belay_wire::reply::nlink_offset;
use belay_wire::{CREATE_OPEN_OFFSET, ENTRY_OFFSET, Opcode, OpcodeSet, Rule, Unique, get_u32};
use std::borrow::Cow;

const LISTINGS: OpcodeSet = OpcodeSet::new(&[Opcode::READDIR, Opcode::READDIRPLUS]);
const ATTRIBUTES: OpcodeSet = OpcodeSet::new(&[Opcode::GETATTR, Opcode::STATX]);
/// Like [`READS`] if they fail.
const READS_WITH_MORE: OpcodeSet = OpcodeSet::new(&[
    Opcode::READDIR,
    Opcode::READDIRPLUS,
    Opcode::POLL,
    Opcode::GETATTR,
    Opcode::STATX,
]);
/// Requests after which there is something to do also if they fail.
const CHANGE_ALWAYS: OpcodeSet = OpcodeSet::new(&[
    Opcode::RELEASE,
    Opcode::RELEASEDIR,
    Opcode::UNLINK,
    Opcode::RENAME,
    Opcode::RENAME2,
]);

impl<M: Memory> Session<M> {
    /// Takes a message that the daemon writes. `head` starts with its header; `body` gives what is
    /// behind that, and is asked only where it matters. `taken` tells that the caller has taken the
    /// request out of [`crate::Direct`].
    pub fn on_reply<'a>(
        &mut self,
        head: &[u8],
        body: impl FnOnce() -> Cow<'a, [u8]>,
        taken: bool,
    ) -> Outgoing {
        if self.life.dialect().is_whole() {
            self.on_whole_reply(head, body, taken)
        } else {
            self.on_old_reply(head, &body(), taken)
        }
    }

    /// The same for a reply of the newest form.
    pub(crate) fn on_whole_reply<'a>(
        &mut self,
        head: &[u8],
        body: impl FnOnce() -> Cow<'a, [u8]>,
        taken: bool,
    ) -> Outgoing {
        let Some(header) = read::<OutHeader>(head) else { return Outgoing::Pass };
        if header.unique == 0 || Unique::new(header.unique).is_own() {
            return self.on_own_business(&header, head, &body());
        }
        let unique = Unique::unmarked(header.unique);
        let Some(index) = self.slots.position(unique) else {
            return self.on_unknown(unique);
        };
        let Some(&Active { slot, opcode, sent, .. }) = self.slots.get(index) else {
            return Outgoing::Pass;
        };
        if sent && !taken {
            return Outgoing::Pass; // the daemon answers twice; the first answer is under way
        }
        let body = body();
        if let Some(rule) = self.broken(slot, opcode, &header, &body) {
            return Outgoing::Fault(rule);
        }
        if header.error == 0 && self.is_unrecordable(slot, opcode) {
            return Outgoing::Unrecordable;
        }
        if self.undoes(unique, opcode, header.error) {
            return Outgoing::Swallow; // it is answered when that is done
        }
        if opcode == Opcode::LOOKUP && header.error == 0 && self.asks_first(unique, slot, &body) {
            return Outgoing::Swallow; // it is put to the daemon again
        }
        let outgoing = self.apply_reply(slot, opcode, &header, head, || body);
        self.replied(unique);
        match outgoing {
            Outgoing::Swallow => return outgoing, // the daemon is asked for more
            Outgoing::Pass if !self.keeps_copies() => {
                self.slots.end(index, &self.store);
                return outgoing;
            }
            _ => {}
        }
        if self.keeps_copies() && header.error == 0 && LISTINGS.has(opcode) {
            // From here on the kernel may have it, and would go on with the cookies in it.
            self.store.slot_advance(slot, SlotState::Replied);
        }
        self.slots.mark_sent(index);
        if opcode == Opcode::OPEN && header.error != 0 && !self.hidden.is_empty() {
            self.remove_hidden(); // which may have waited for this one
        }
        self.slots.set_sending(slot);
        if matches!(outgoing, Outgoing::Pass) { Outgoing::PassKept } else { outgoing }
    }

    /// A notification, or the reply to a request that belay injected.
    #[cold]
    fn on_own_business(&mut self, header: &OutHeader, head: &[u8], body: &[u8]) -> Outgoing {
        let message = whole(head, body);
        if header.unique == 0 {
            return self.on_notification(header.error, message);
        }
        if self.questions.is_unasked(header.unique) {
            return Outgoing::Fault(Rule::Unique);
        }
        let refused = matches!(-header.error, EPERM | EACCES);
        match self.questions.answered(header.unique, refused) {
            Some(Answered::Final(asked)) => {
                self.absorb(asked.task, asked.question, &message);
                self.forget_withheld();
            }
            Some(Answered::Again(message)) => {
                self.tasks.hand_out(Work::Deliver(message));
            }
            None => {}
        }
        self.tasks.kick_if_busy();
        Outgoing::Swallow
    }

    /// The kernel refused a reply (ENOENT: it had given the request up): what the reply gave it,
    /// it does not have.
    pub fn on_refused(&mut self, unique: u64) {
        let Some((index, slot)) = self.slots.find(Unique::unmarked(unique)) else { return };
        let opcode = self.store.slot_request(slot).map_or(Opcode(0), |r| Opcode(r.opcode));
        let reply = self.store.slot_recorded_reply(slot);
        let mut forget = Vec::new();
        self.store.begin();
        if let Some(handle) = opened(opcode, &reply).and_then(|k| self.store.handle_by_key(k)) {
            let node = self.store.open_description(handle).node;
            self.store.handle_free(handle);
            self.store.release_unused(node, self.life.ids(), &mut forget);
        }
        if belay_wire::is_entry_reply(opcode)
            && let Some(entry) = reply.get(ENTRY_OFFSET..).and_then(read::<EntryOut>)
            && let Some(node) = self.store.node_by_key(entry.nodeid)
        {
            self.take_back(node); // libfuse takes its own count back when its write fails
        }
        self.store.commit();
        self.forget_later(forget);
        self.slots.end(index, &self.store);
    }

    /// Applies a reply, in the daemon's terms, to the session.
    pub(crate) fn apply_reply<'a>(
        &mut self,
        slot: Slot,
        opcode: Opcode,
        header: &OutHeader,
        head: &[u8],
        body: impl FnOnce() -> Cow<'a, [u8]>,
    ) -> Outgoing {
        let failed = header.error != 0;
        let stores = opcode == Opcode::FSYNC && self.buffers_files();
        if (opcode == Opcode::IOCTL || stores) && self.logged.is_kept() {
            self.log_reply(slot, -header.error, head, &body());
            return Outgoing::Pass;
        }
        if READS.has(opcode) || (failed && READS_WITH_MORE.has(opcode)) {
            return Outgoing::Pass;
        }
        let node = self.store.node_by_key(self.store.slot_node(slot));
        if ATTRIBUTES.has(opcode) {
            return self.on_attributes(opcode, node, header, head, body);
        }
        if LISTINGS.has(opcode) {
            return self.on_listing(slot, header, opcode, &body());
        }
        if opcode == Opcode::POLL {
            self.on_poll(slot);
            return Outgoing::Pass;
        }
        if opcode == Opcode::LOOKUP && failed {
            self.on_absent(slot, node, header.error);
            return Outgoing::Pass;
        }
        if header.len as usize > MAX_REPLY {
            return Outgoing::Pass;
        }
        let locks = opcode == Opcode::FLUSH && self.store.has_locks();
        let changes_nothing = CHANGE_FILES.has(opcode)
            || opcode == Opcode::FLUSH
            || failed && !CHANGE_ALWAYS.has(opcode);
        if !locks && changes_nothing {
            let head = head.get(..size_of::<OutHeader>()).unwrap_or(head);
            let body = body();
            if self.logged.is_kept() {
                self.log_reply(slot, -header.error, head, &body);
            }
            self.store.slot_reply_alone(slot, head, &body);
            return Outgoing::PassKept;
        }
        let Some(message) = Message::new(head, &body()) else { return Outgoing::Pass };
        self.change(slot, opcode, node, header, message)
    }

    /// A reply that changes the session, or may: the change and the reply are one.
    fn change(
        &mut self,
        slot: Slot,
        opcode: Opcode,
        node: Option<Node>,
        header: &OutHeader,
        mut message: Message,
    ) -> Outgoing {
        let Some(request) = self.store.slot_request(slot) else { return Outgoing::Pass };
        let body = self.take_body(slot);
        if opcode == Opcode::RELEASEDIR
            && let Some(handle) =
                read::<ReleaseIn>(&body).and_then(|release| self.store.handle_by_key(release.fh))
        {
            // Outside of the change: a long stream is too much for one.
            self.store.stream_truncate(handle, 0);
            self.streams.forget_position(handle);
        }
        let sent = header_of(&request);
        let before = self.before_change(&sent, &body);
        self.store.begin();
        let done = header.error != 0
            || node.is_none_or(|node| {
                self.apply(opcode, node, &body, &header_of(&request), &mut message).is_some()
            });
        if !done {
            if belay_wire::is_entry_reply(opcode)
                && let Some(entry) = message.get::<EntryOut>(ENTRY_OFFSET)
            {
                self.forget_later(vec![(entry.nodeid, 1)]);
            }
            let error = belay_wire::build::reply_error(header.unique, ENOMEM);
            message = Message::new(&error, &[]).unwrap_or(message);
        }
        self.after_any(opcode, node, &header_of(&request), &body);
        self.store.slot_reply(slot, message.as_bytes());
        if self.logged.is_kept() {
            let errno = if done { -header.error } else { ENOMEM };
            self.log_change(&sent, &body, errno, message.as_bytes(), before);
        }
        self.store.commit();
        self.put_body(body);
        self.after_commit(opcode);
        Outgoing::Replace(message)
    }

    fn on_absent(&mut self, slot: Slot, node: Option<Node>, error: i32) {
        let Some(parent) = node.filter(|_| error == -ENOENT) else { return };
        let body = self.take_body(slot);
        let name = body.split(|byte| *byte == 0).next().unwrap_or(&[]);
        self.meet(parent, name);
        if self.store.dentry_find(parent, name).is_some() {
            self.store.begin();
            self.unname(parent, name);
            self.store.commit();
        }
        self.put_body(body);
    }

    fn on_attributes<'a>(
        &mut self,
        opcode: Opcode,
        node: Option<Node>,
        header: &OutHeader,
        head: &[u8],
        body: impl FnOnce() -> Cow<'a, [u8]>,
    ) -> Outgoing {
        let Some(node) = node.filter(|node| header.error == 0 && self.shows(*node)) else {
            return Outgoing::Pass;
        };
        let body = body();
        let at = nlink_offset(opcode).and_then(|at| at.checked_sub(size_of::<OutHeader>()));
        if let Some(nlink) = at.and_then(|at| get_u32(&body, at)) {
            self.check_links(node, header.unique, nlink);
        }
        let mut show = |message: &mut [u8]| {
            self.store.begin();
            let shown = self.show(opcode, node, message);
            self.store.commit();
            shown
        };
        // A STATX's is too long for a slot.
        if let Some(mut message) = Message::new(head, &body) {
            show(message.as_mut_bytes()).map_or(Outgoing::Pass, |()| Outgoing::Replace(message))
        } else {
            let mut message = whole(head, &body);
            show(&mut message).map_or(Outgoing::Pass, |()| Outgoing::ReplaceLong(message))
        }
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
