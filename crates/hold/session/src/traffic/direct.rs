//! Replies that need no session: those to requests that change nothing in it. The shim settles them
//! without the session's lock, which most requests would otherwise take twice.
//!
//! Such a request's slot is *expected back* from the instant in which the daemon gets it. Whoever
//! has the reply takes the slot out of the table, and settles it here or by
//! [`crate::Session::on_reply`]. Whoever comes later, because a daemon answers twice, finds it
//! taken: that answer is none of belay's business, and the kernel refuses it.

use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::{Layout, Node, Slot, free_slot, record_reply};
use belay_wire::abi::OutHeader;
use belay_wire::rules::broken_attr_reply;
use belay_wire::{Opcode, OpcodeSet, Request, Rule, Shape};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Requests whose replies neither tell the session anything nor are needed again: asked once more,
/// a successor answers.
pub(crate) const READS: OpcodeSet = OpcodeSet::new(&[
    Opcode::READ,
    Opcode::READLINK,
    Opcode::STATFS,
    Opcode::ACCESS,
    Opcode::GETXATTR,
    Opcode::LISTXATTR,
    Opcode::LSEEK,
    Opcode::IOCTL,
    Opcode::BMAP,
    Opcode::GETLK,
    Opcode::FSYNC,
    Opcode::FSYNCDIR,
    Opcode::SYNCFS,
    Opcode::DESTROY,
]);
/// Requests that change files, but nothing in the session: their replies are recorded, since these
/// requests must not be carried out twice, and go to the kernel as they are.
pub(crate) const CHANGE_FILES: OpcodeSet = OpcodeSet::new(&[
    Opcode::WRITE,
    Opcode::FALLOCATE,
    Opcode::SETXATTR,
    Opcode::REMOVEXATTR,
    Opcode::COPY_FILE_RANGE,
    Opcode::COPY_FILE_RANGE_64,
]);

/// What a reply that needs no session may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// One that is not needed again.
    Read,
    /// One that is recorded.
    Recorded,
    /// Attributes, which have rules of their own.
    Attributes,
    /// An error. Anything else needs the session.
    Failure,
}

impl Reply {
    /// That to a request of this kind: to GETATTR, if the kernel is to have what the daemon says;
    /// to LOOKUP, if nothing is known by that name.
    #[inline]
    fn to(opcode: Opcode) -> Option<Self> {
        match opcode {
            Opcode::GETATTR => Some(Self::Attributes),
            Opcode::LOOKUP => Some(Self::Failure),
            _ if CHANGE_FILES.has(opcode) => Some(Self::Recorded),
            _ if READS.has(opcode) => Some(Self::Read),
            _ => None,
        }
    }

    /// As a part of a word.
    #[inline]
    fn to_bits(self) -> u64 {
        (self as u64) << KIND
    }

    #[inline]
    fn from_bits(word: u64) -> Self {
        match word >> KIND {
            0 => Self::Read,
            1 => Self::Recorded,
            2 => Self::Attributes,
            _ => Self::Failure,
        }
    }
}

/// A request that the daemon has and whose reply needs no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub(crate) unique: u64,
    pub(crate) slot: Slot,
    reply: Reply,
    pub(crate) shape: Shape,
}

impl Expected {
    pub(crate) fn new(unique: u64, slot: Slot, opcode: Opcode, shape: Shape) -> Option<Self> {
        Reply::to(opcode).map(|reply| Self { unique, slot, reply, shape })
    }

    /// Whether the reply with this header needs no session.
    #[inline]
    pub fn is_settled_by(&self, head: &[u8]) -> bool {
        self.reply != Reply::Failure || head.get(4..8).is_some_and(|error| error != [0; 4])
    }

    /// Which rule the reply breaks, if one.
    #[inline]
    pub fn broken(&self, head: &[u8], body: &[u8]) -> Option<Rule> {
        let header: OutHeader = crate::message::read(head)?;
        let broken = self.shape.broken(&header, body);
        if broken.is_none() && self.reply == Reply::Attributes && header.error == 0 {
            return broken_attr_reply(body, None);
        }
        broken
    }

    /// To be called before the reply (its header `head`, and `body`) is written to the kernel.
    #[inline]
    pub fn replying<M: Memory>(&self, memory: &M, layout: &Layout, head: &[u8], body: &[u8]) {
        let header = head.get(..size_of::<OutHeader>()).unwrap_or(head);
        if self.is_recorded() {
            // One that is too long is not recorded.
            record_reply(memory, layout, self.slot, header, body);
        }
    }

    /// Whether [`Self::replying`] wants to see the reply.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.reply == Reply::Recorded
    }

    /// To be called once the kernel has the reply. The session must be told before it is asked for
    /// anything else ([`crate::Session::reap`]).
    #[inline]
    pub fn delivered<M: Memory>(&self, memory: &M, layout: &Layout) {
        free_slot(memory, layout, self.slot);
    }
}

/// How many requests are expected at a time, at most. A further one is settled by the session.
const ENTRIES: usize = 64;
/// Where an entry's second word says what the reply may be.
const KIND: u32 = 32;

/// The requests that are expected back.
#[derive(Debug)]
pub struct Direct {
    entries: [Entry; ENTRIES],
}

/// `unique`, or 0 if the entry is free; slot, and what the reply may be; its shape.
type Entry = (AtomicU64, AtomicU64, AtomicU64);

impl Default for Direct {
    fn default() -> Self {
        Self {
            entries: [const { (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)) }; ENTRIES],
        }
    }
}

impl Direct {
    /// The kernel counts in steps of two.
    #[inline]
    fn entry(&self, unique: u64) -> Option<&Entry> {
        self.entries.get((unique >> 1) as usize % ENTRIES)
    }

    /// Notes a request, if there is room. Only for one caller at a time: the one that has the
    /// session.
    #[inline]
    fn expect(&self, expected: Expected) -> bool {
        let Some((unique, slot, shape)) = self.entry(expected.unique) else { return false };
        let free = unique.load(Acquire) == 0;
        if free {
            slot.store(u64::from(expected.slot.0) | expected.reply.to_bits(), Relaxed);
            shape.store(expected.shape.to_word(), Relaxed);
            unique.store(expected.unique, Release);
        }
        free
    }

    /// Whether `unique` is a request whose reply nobody but the kernel needs to see.
    #[inline]
    pub fn is_read(&self, unique: u64) -> bool {
        let Some((entry, slot, _)) = self.entry(unique).filter(|_| unique != 0) else {
            return false;
        };
        // In this order: the slot's word is there before the entry is, and stays until it is taken.
        entry.load(Acquire) == unique && Reply::from_bits(slot.load(Relaxed)) == Reply::Read
    }

    /// Takes the request `unique` out, for whoever has its reply: one caller gets it, however many
    /// replies a daemon may send.
    #[inline]
    pub fn take(&self, unique: u64) -> Option<Expected> {
        let (entry, slot, shape) = self.entry(unique)?;
        if unique == 0 || entry.load(Acquire) != unique {
            return None;
        }
        let (slot, shape) = (slot.load(Relaxed), Shape::from_word(shape.load(Relaxed)));
        entry.compare_exchange(unique, 0, Release, Relaxed).ok()?;
        Some(Expected { unique, slot: Slot(slot as u32), reply: Reply::from_bits(slot), shape })
    }
}

impl<M: Memory> Session<M> {
    /// The request that was recorded last has nothing to do with recovery; its reply may need no
    /// session. `node`: what it is about.
    #[inline]
    pub(crate) fn expect_last(&mut self, request: &Request<'_>, node: Option<Node>) {
        // Where requests are copied, readers wait for slots, and must hear of each.
        // And what is to be logged is logged by the session.
        let opcode = request.opcode();
        let stores = opcode == Opcode::FSYNC && self.buffers_files();
        let logged = self.logged.is_kept() && (!READS.has(opcode) || request.changes() || stores);
        let expects = !self.keeps_copies()
            && !logged
            && match Reply::to(opcode) {
                None => false,
                Some(Reply::Read | Reply::Recorded) => true,
                Some(Reply::Attributes) => node.is_some_and(|node| self.passes_attributes(node)),
                Some(Reply::Failure) => node.is_some_and(|node| self.knows_nothing(request, node)),
            }
            && !self.life.dialect().shortens_reply(opcode);
        self.slots.expect(expects.then(|| Shape::of(request)));
    }

    /// Whether the kernel gets the attributes of a node as the daemon tells them, and anything may
    /// be told: not where its type is known for good. What makes that otherwise while the daemon is
    /// asked is under way together with this.
    #[inline]
    fn passes_attributes(&self, node: Node) -> bool {
        !self.life.owns_types() && !self.shows(node)
    }

    /// Whether nothing is known by the name that is looked up, so that nothing changes if it is not
    /// there. A successor notes which names it was asked for.
    #[inline]
    fn knows_nothing(&self, request: &Request<'_>, parent: Node) -> bool {
        let is_unknown = |name| self.store.dentry_find(parent, name).is_none();
        !self.restored.is_successor() && request.names().first.is_some_and(is_unknown)
    }

    /// Notes the request that was just let through in `direct`, if its reply needs no session. To
    /// be called before the daemon gets the request.
    #[inline]
    pub fn let_go(&mut self, direct: &Direct) {
        self.slots.let_go(|active, shape| {
            let expected = Expected::new(active.unique, active.slot, active.opcode, shape)?;
            Some(direct.expect(expected))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(unique: u64, slot: u32, opcode: Opcode) -> Expected {
        Expected::new(unique, Slot(slot), opcode, Shape::ANY).expect("a request of that kind")
    }

    #[test]
    fn what_changes_the_session_is_not_expected() {
        for opcode in Opcode::ALL {
            let changes = Expected::new(2, Slot(1), *opcode, Shape::ANY).is_none();
            let names = [
                "READ",
                "WRITE",
                "STATFS",
                "READLINK",
                "FALLOCATE",
                "SETXATTR",
                "FSYNC",
                "GETATTR",
                "LOOKUP",
            ];
            assert!(!changes || !names.contains(&opcode.name()), "{opcode}");
            let names = ["SETATTR", "OPEN", "FLUSH", "SETLK", "READDIR", "POLL", "INIT"];
            assert!(changes || !names.contains(&opcode.name()), "{opcode}");
        }
    }

    #[test]
    fn of_lookups_those_that_fail_need_no_session() {
        let (found, absent) = ([16, 0, 0, 0, 0, 0, 0, 0], [16, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
        let lookup = expected(2, 1, Opcode::LOOKUP);
        assert!(lookup.is_settled_by(&absent) && !lookup.is_settled_by(&found));
        assert!(!lookup.is_settled_by(&[]));
        for opcode in [Opcode::READ, Opcode::WRITE, Opcode::GETATTR] {
            let other = expected(2, 1, opcode);
            assert!(other.is_settled_by(&absent) && other.is_settled_by(&found));
        }
    }

    #[test]
    fn each_kind_of_reply_is_kept_with_its_entry() {
        let direct = Direct::default();
        for opcode in [Opcode::READ, Opcode::WRITE, Opcode::GETATTR, Opcode::LOOKUP] {
            let expected = expected(2, u32::MAX >> 1, opcode);
            assert!(direct.expect(expected));
            assert_eq!(direct.is_read(2), opcode == Opcode::READ);
            assert_eq!(direct.take(2), Some(expected));
        }
    }

    #[test]
    fn an_entry_is_taken_once_and_not_overwritten() {
        let direct = Direct::default();
        let (read, write) = (expected(2, 7, Opcode::READ), expected(4, 8, Opcode::WRITE));
        assert_eq!(direct.take(2), None);
        assert!(direct.expect(read) && direct.expect(write));
        let same_place = expected(2 + 2 * ENTRIES as u64, 9, Opcode::READ);
        assert!(!direct.expect(same_place));
        assert_eq!(direct.take(same_place.unique), None);
        assert_eq!(direct.take(2), Some(read));
        assert_eq!(direct.take(2), None);
        assert_eq!(direct.take(4), Some(write));
        assert_eq!(direct.take(0), None);
        assert!(direct.expect(same_place));
        assert_eq!(direct.take(same_place.unique), Some(same_place));
    }

    /// Each of many replies, sent twice by threads at once, is settled once, with its own slot.
    #[test]
    fn of_two_replies_at_once_one_is_settled() {
        let direct = Direct::default();
        let settled = AtomicU64::new(0);
        for round in 0..2_000_u64 {
            let uniques: Vec<u64> = (0..8).map(|i| 2 + 2 * (round * 8 + i)).collect();
            for unique in &uniques {
                assert!(direct.expect(expected(*unique, *unique as u32, Opcode::WRITE)));
            }
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for unique in &uniques {
                            if let Some(taken) = direct.take(*unique) {
                                assert_eq!(u64::from(taken.slot.0), *unique);
                                settled.fetch_add(1, Relaxed);
                            }
                        }
                    });
                }
            });
        }
        assert_eq!(settled.load(Relaxed), 16_000);
    }
}
