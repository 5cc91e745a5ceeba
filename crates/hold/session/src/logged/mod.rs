//! What completed requests leave in the op-log (Membrane, section 3.5.2), under the policy `epoch`.
//!
//! A record is appended within the change that the reply makes, before that is final. A daemon that
//! dies between the two leaves a record too many, which its successor takes back
//! ([`Session::keep_log`]): the request was not answered, and is replayed.
//!
//! Records speak of nodes by the kernel's keys. So that they can be found again, whatever becomes
//! of them later, the first record that speaks of a node also says where it is.
//!
//! | module | answers |
//! | --- | --- |
//! | [`facts`] | what a record says of its request |
//! | [`files`] | what is on record where files are stored one by one |
//! | [`own`] | what belay has asked a daemon for by itself |

mod facts;
pub(crate) mod files;
mod own;

use crate::decision::Progress;
use crate::message::header_of;
use crate::session::Session;
use belay_memory::Memory;
use belay_oplog::{Corrupt, Facts, NameChange, Oplog, PAGE_BYTES, Sizes};
use belay_recorder::{InFlight, MAX_BODY, Slot, SlotState};
use belay_wire::abi::{InHeader, WriteIn};
use belay_wire::{CHANGES, Opcode, Request, Unique};
pub(crate) use facts::Before;
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes of a WRITE in front of its data.
pub(crate) const WRITE_HEAD: usize = size_of::<WriteIn>();

/// What became of a name: directory, name, what it named, what it names now.
pub(crate) type Change = (u64, Vec<u8>, u64, u64);

/// A request as the kernel sent it, for the log.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub(crate) header: &'a InHeader,
    pub(crate) body: &'a [u8],
    /// For whose sake belay asked for it; 0 if the kernel did.
    pub(crate) sake: u64,
}

/// What a WRITE has of data, and for which offset of its file.
fn data_of<'a>(request: &Request<'a>) -> Option<(u64, &'a [u8])> {
    let write = request.body_as::<WriteIn>().filter(|_| request.opcode() == Opcode::WRITE)?;
    Some((write.offset, request.body.get(WRITE_HEAD..).unwrap_or_default()))
}

/// What a log takes: records, and the pages of their data.
fn bytes_of(sizes: &Sizes) -> u64 {
    (sizes.record_bytes + sizes.pages * PAGE_BYTES) as u64
}

impl<M: Memory> Session<M> {
    /// Makes the session keep `log`. To be called right after it was attached, if the policy is
    /// `epoch`: what the log tells decides how requests in flight are settled. Where they are
    /// copied they come back only here.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn keep_log(&mut self, mut log: Oplog<M>) -> Result<(), Corrupt> {
        let mut sakes = Vec::new();
        for (slot, request) in self.store.slot_requests() {
            if request.state == SlotState::Started && self.slots.is_left_in(request.unique, slot) {
                log.retract(request.unique)?;
            }
        }
        for record in log.notable() {
            let record = record?;
            record.names.iter().for_each(|name| self.logged.note_name(name));
            let facts = &record.facts;
            if facts.unique == 0 && facts.opcode != 0 {
                sakes.push(facts.size); // asked for by belay, for the sake of that request
            }
        }
        let leaves_nothing = self.leaves_nothing();
        for (_, request) in self.store.slot_requests().filter(|_| leaves_nothing) {
            // Of what was not answered nothing is left, unless belay had begun to carry it out
            // itself.
            if request.state == SlotState::Started && !sakes.contains(&request.unique) {
                self.slots.know(request.unique, Progress::Untouched);
            }
        }
        if log.sizes().records == 0 {
            self.note_settled();
        }
        self.roll_forward_from(&log)?;
        log.forget_notable();
        self.logged.keep(log);
        self.tell_log_sizes();
        if self.keeps_copies() {
            self.requeue_copies();
        }
        Ok(())
    }

    /// How much the log has; `None` without one.
    pub fn log_sizes(&self) -> Option<Sizes> {
        self.logged.log().map(Oplog::sizes)
    }

    /// Whether the log has grown so much that a checkpoint is due: it has more than `most` bytes,
    /// or half of the room is taken. The rest is for what comes until it is made.
    pub fn is_log_long(&self, most: u64) -> bool {
        self.logged.log().is_some_and(|log| {
            let sizes = log.sizes();
            sizes.pages * 2 > sizes.pages_most
                || sizes.record_bytes * 2 > sizes.record_bytes_most
                || bytes_of(&sizes) > most
        })
    }

    /// First word of the page of the log that the data of the next WRITE come to; 0 without a log.
    #[inline]
    pub fn next_log_page(&self) -> usize {
        self.logged.log().map_or(0, Oplog::next_page)
    }

    /// Bytes of the memory that the log does not use now. They may be given back while the session
    /// is held.
    pub fn log_spare(&self) -> [Range<usize>; 3] {
        self.logged.log().map_or([0..0, 0..0, 0..0], Oplog::spare)
    }

    /// What was said last of the time, see [`Session::set_time`].
    pub fn time(&self) -> u64 {
        self.logged.time()
    }

    /// CLOCK_REALTIME in nanoseconds, as the daemon will see it for the request that comes next.
    pub fn set_time(&mut self, time: u64) {
        self.logged.set_time(time);
    }

    /// Whether a request has to wait for a checkpoint: what it changes may find no room in the log.
    #[inline]
    pub(crate) fn is_throttled(&self, request: &Request<'_>) -> bool {
        let Some(log) = self.logged.log() else { return false };
        let lacks_room = || {
            let (offset, data) = data_of(request).unwrap_or_default();
            !log.admits(offset, data.len())
        };
        if self.buffers_files() {
            return self.makes_room() && self.stores.holds_back(request, lacks_room);
        }
        request.changes() && lacks_room()
    }

    /// Whether what the daemon has done for a request cannot be put on record.
    #[inline]
    pub(crate) fn is_unrecordable(&self, slot: Slot, opcode: Opcode) -> bool {
        // What is settled is what had begun, one at a time: the rest of the room is for that as
        // well.
        self.logged.log().is_some_and(Oplog::is_exhausted)
            && !self.life.is_settling()
            && !self.buffers_files()
            && self.is_changing(slot, opcode)
    }

    /// Whether the request in a slot changes something.
    fn is_changing(&self, slot: Slot, opcode: Opcode) -> bool {
        let begun = |request: InFlight| self.logged.has_begun(request.unique);
        CHANGES.has(opcode) || self.store.slot_request(slot).is_some_and(begun)
    }

    /// A request goes to the daemon: what its record needs of it is kept.
    pub(crate) fn begin_logged(&mut self, request: &Request<'_>) {
        if !self.logged.is_kept() {
            return;
        }
        if !request.changes() {
            return self.begin_storing(request);
        }
        let data = data_of(request);
        // The slot has no more of it.
        let long = data.is_none() && request.body.len() > MAX_BODY;
        let body = long.then(|| request.body.into());
        let unique = Unique::unmarked(request.header.unique);
        self.logged.begin(unique, data, body);
    }

    /// Whether the successful request belongs in the log.
    fn is_logged(&self, sent: &Sent<'_>) -> bool {
        Request { header: *sent.header, body: sent.body }.changes()
            && (!self.buffers_files() || self.is_held(sent))
    }

    /// Puts a successful request on record. `reply` is what was answered, in the kernel's terms.
    fn append_logged(&mut self, sent: Sent<'_>, reply: &[u8], before: Before) {
        let unique = Unique::unmarked(sent.header.unique);
        if !self.logged.is_kept() || !self.is_logged(&sent) {
            return self.logged.drop(unique);
        }
        debug_assert!(self.forward.is_none(), "its data are read in place");
        let mut begun = self.logged.take_begun(unique);
        let facts = self.facts(&sent, reply, begun.time);
        facts.files.iter().for_each(|file| self.stores.disturb(*file));
        let names: Vec<_> = before
            .changes
            .into_iter()
            .map(|(parent, name, before, after)| NameChange {
                parent,
                name: name.into(),
                before,
                after,
            })
            .collect();
        let opcode = Opcode(sent.header.opcode);
        let head = if opcode == Opcode::WRITE { sent.body.get(..WRITE_HEAD) } else { None };
        let long = begun.body.take();
        let body = long.as_deref().or(head).unwrap_or(sent.body);
        let lost = opcode == Opcode::WRITE && facts.size > 0 && !begun.has_data();
        // In a record of their own: that of a write goes when a later one takes its place.
        let placed = before.names.is_empty()
            || self.logged.append(&Facts::default(), &[], &before.names, None);
        let appended = self.logged.append(&facts, body, &names, Some(begun));
        // What the log has no room for is lost at a crash: that is said, and a checkpoint ends it.
        if self.buffers_files() && (lost || !appended) {
            self.tell_unstored(facts.files[0]);
        }
        self.notice.overflow_if(!placed || (lost || !appended) && !self.buffers_files());
        self.tell_log_sizes();
    }

    /// How much the log has, for those who look at the mount from outside.
    pub(crate) fn tell_log_sizes(&self) {
        if let Some(sizes) = self.log_sizes() {
            self.control().set_logged(sizes.records as u64, bytes_of(&sizes));
        }
    }

    /// A reply that changes the session has come.
    pub(crate) fn log_change(
        &mut self,
        header: &InHeader,
        body: &[u8],
        errno: i32,
        reply: &[u8],
        mut before: Before,
    ) {
        self.note_stored(header, body, errno);
        if errno != 0 || self.logged.is_answering() {
            return self.logged.drop(header.unique);
        }
        before.changes.extend(self.made(header, body, reply, before.name));
        self.append_logged(Sent { header, body, sake: 0 }, reply, before);
        match Opcode(header.opcode) {
            Opcode::SETATTR => self.close_behind(header.nodeid),
            Opcode::UNLINK | Opcode::RENAME | Opcode::RENAME2 => self.drop_nameless(),
            _ => {}
        }
    }

    /// A reply that changes nothing in the session has come.
    pub(crate) fn log_reply(&mut self, slot: Slot, errno: i32, head: &[u8], reply: &[u8]) {
        let Some(request) = self.store.slot_request(slot) else { return };
        if self.buffers_files() && files::STORING.has(Opcode(request.opcode)) {
            let body = self.take_body(slot);
            self.note_stored(&header_of(&request), &body, errno);
            self.put_body(body);
            return;
        }
        if errno != 0
            || self.logged.is_answering()
            || !self.is_changing(slot, Opcode(request.opcode))
        {
            return self.logged.drop(request.unique);
        }
        let header = header_of(&request);
        // Every WRITE comes here: buffers are those of the one before, or on the stack.
        let body = self.take_body(slot);
        let mut whole = SmallVec::<[u8; 64]>::from_slice(head);
        whole.extend_from_slice(reply);
        let before = self.before_change(&header, &body);
        self.log_change(&header, &body, 0, &whole, before);
        self.put_body(body);
    }
}
