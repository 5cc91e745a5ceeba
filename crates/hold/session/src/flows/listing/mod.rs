//! Directory streams. Each entry is given out once, also when the daemon dies in the middle of a
//! listing and its successor's cookies and order differ: what was given out is known by name, and
//! the rest of the stream is served from a listing of the successor.

pub(crate) mod state;

use crate::flows::flow::Parked;
use crate::flows::listing::state::List;
use crate::flows::step::Step;
use crate::message::{Outgoing, read};
use crate::parts::cookies::last_cookie;
use crate::parts::hidden::is_hidden_name;
use crate::parts::streams::Remainder;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::Counter;
use belay_recorder::{Handle, InFlight, Node, Slot, StreamPosition};
use belay_wire::abi::{OutHeader, ReadIn};
use belay_wire::{
    Dirents, DirentsPlus, EntryOut, Opcode, Request, Unique, build, push_dirent, push_direntplus,
};
use zerocopy::IntoBytes;

/// Size of the injected READDIRs.
const LIST_BYTES: u32 = 32 << 10;

impl<M: Memory> Session<M> {
    /// Whether a READDIR goes on in a stream that another generation began.
    pub(crate) fn listing_needed(&self, request: &Request<'_>) -> bool {
        self.streams.has_restored()
            && request.body_as::<ReadIn>().is_some_and(|read| {
                read.offset != 0
                    && self
                        .store
                        .handle_by_key(read.fh)
                        .is_some_and(|handle| self.streams.is_restored(handle))
            })
    }

    /// A successful READDIR or READDIRPLUS: remember the entries, count the lookups in them, and
    /// keep hidden files out.
    pub(crate) fn on_listing(
        &mut self,
        slot: Slot,
        header: &OutHeader,
        opcode: Opcode,
        entries: &[u8],
    ) -> Outgoing {
        let Some((request, asked)) = self.asked(slot) else {
            return Outgoing::Pass;
        };
        let (Some(handle), Some(node)) =
            (self.store.handle_by_key(asked.fh), self.store.node_by_key(request.node))
        else {
            return Outgoing::Pass;
        };
        if asked.offset == 0 {
            self.streams.rewind(handle);
        }
        let at = self.position(handle, asked.offset);
        let hides = self.hides();
        if opcode == Opcode::READDIR {
            if !hides {
                self.record_entries(handle, at, entries);
                return Outgoing::Pass;
            }
            let kept = without_hidden(entries);
            if kept.is_empty() && !entries.is_empty() {
                return self.read_on(slot, header.unique, opcode, entries, at);
            }
            self.record_entries(handle, at, &kept);
            return listing(header, &kept);
        }
        let (kept, stream) = self.plus_entries(node, entries, hides);
        if kept.is_empty() && !entries.is_empty() {
            let plain: Vec<u8> = DirentsPlus::new(entries)
                .flat_map(|item| entries.get(item.start + size_of::<EntryOut>()..item.end))
                .flatten()
                .copied()
                .collect();
            return self.read_on(slot, header.unique, opcode, &plain, at);
        }
        self.record_entries(handle, at, &stream);
        listing(header, &kept)
    }

    /// A READDIR or READDIRPLUS in its slot.
    fn asked(&self, slot: Slot) -> Option<(InFlight, ReadIn)> {
        let mut body = [0; size_of::<ReadIn>()];
        let body = self.store.slot_body_start(slot, &mut body);
        Some((self.store.slot_request(slot)?, read(body)?))
    }

    /// All entries of a reply were hidden ones. An empty reply would mean the end of the
    /// directory, so the daemon is asked for what follows instead.
    /// What it says then goes on record at the same place, `at`.
    fn read_on(
        &mut self,
        slot: Slot,
        unique: u64,
        opcode: Opcode,
        entries: &[u8],
        at: Option<StreamPosition>,
    ) -> Outgoing {
        let (Some((request, asked)), Some(last)) = (self.asked(slot), Dirents::new(entries).last())
        else {
            return Outgoing::Pass;
        };
        if let (Some(at), Some(handle)) = (at, self.store.handle_by_key(asked.fh)) {
            self.streams.set_position(handle, last.off, at);
        }
        let ids = belay_wire::Ids {
            unique,
            nodeid: request.node,
            uid: request.uid,
            gid: request.gid,
            pid: request.pid,
        };
        let next = if opcode == Opcode::READDIRPLUS {
            build::readdirplus(ids, asked.fh, last.off, asked.size)
        } else {
            build::readdir(ids, asked.fh, last.off, asked.size)
        };
        self.slots.withdraw(slot);
        self.park_fresh(next, Some(slot));
        self.tasks.kick();
        Outgoing::Swallow
    }

    /// Records entries that a stream gives out from position `at` on (its end, if that is not
    /// known). What is on record behind them stays, for whoever has kept a position there. An entry
    /// that is cut off at the end, as libfuse's high level sends it, is none.
    fn record_entries(&mut self, handle: Handle, at: Option<StreamPosition>, entries: &[u8]) {
        if self.life.keeps_records() {
            return; // its cookies hold in all lives
        }
        let Some((cookie, whole)) = last_cookie(entries) else { return };
        let entries = entries.get(..whole).unwrap_or(entries);
        let end = self.store.stream_end(handle);
        let Some(at) = at.filter(|at| at.at < end.at) else {
            self.notice.overflow_if(!self.store.stream_append(handle, entries));
            self.streams.set_position(handle, cookie, self.store.stream_end(handle));
            return;
        };
        // No more is read than was given out now: behind it may be a directory of a million names.
        let (known, behind) = self.store.stream_read(handle, at, entries.len());
        if known == entries {
            self.streams.set_position(handle, cookie, behind);
            return;
        }
        let (known, _) = self.store.stream_read(handle, at, usize::MAX);
        let later = Dirents::new(&known).filter(|item| item.off == cookie).last();
        let later = later.and_then(|item| known.get(item.end..)).unwrap_or(&[]);
        if self.store.stream_replace(handle, at, &[entries, later].concat()) {
            let behind = self.store.stream_position(handle, at.at + entries.len());
            self.streams.set_position(handle, cookie, behind);
        } else {
            self.notice.overflow();
            self.streams.forget_position(handle);
        }
    }

    /// Translates READDIRPLUS entries. Gives them, and their plain parts for the stream.
    fn plus_entries(&mut self, parent: Node, body: &[u8], hides: bool) -> (Vec<u8>, Vec<u8>) {
        let mut kept = Vec::with_capacity(body.len());
        let mut stream = Vec::new();
        for item in DirentsPlus::new(body) {
            let bytes = body.get(item.start..item.end).unwrap_or(&[]);
            if hides && is_hidden_name(item.name) {
                if item.entry.nodeid != 0 {
                    self.forget_later(vec![(item.entry.nodeid, 1)]);
                }
                continue;
            }
            let at = kept.len();
            kept.extend_from_slice(bytes);
            stream.extend_from_slice(bytes.get(size_of::<EntryOut>()..).unwrap_or(&[]));
            if item.entry.nodeid == 0 || item.name == b"." || item.name == b".." {
                continue;
            }
            let mut entry = item.entry;
            let displaces = self.displaces(parent, item.name, &entry)
                || self.in_question(parent, item.name, &entry).is_some();
            self.store.begin();
            if displaces || self.entry(parent, item.name, &mut entry, false).is_none() {
                // No room to remember the node, or it is in doubt: the kernel gets the name alone.
                self.forget_later(vec![(item.entry.nodeid, 1)]);
                entry = EntryOut::default();
            }
            self.store.commit();
            if let Some(place) = kept.get_mut(at..at + size_of::<EntryOut>()) {
                place.copy_from_slice(entry.as_bytes());
            }
        }
        (kept, stream)
    }

    /// Whether a listing may show hidden names. A daemon may have made its listing before a hidden
    /// file was removed or recorded, so once there was one, all listings are looked through.
    fn hides(&self) -> bool {
        self.store.ever_hidden()
    }

    /// Where the record of the stream goes on behind `cookie`. From the start on a listing is made
    /// anew, so nothing is on record then.
    fn position(&mut self, handle: Handle, cookie: u64) -> Option<StreamPosition> {
        if cookie == 0 {
            self.store.stream_truncate(handle, 0);
            self.streams.forget_position(handle);
            return Some(self.store.stream_end(handle));
        }
        self.streams.position(handle, cookie).or_else(|| {
            let batch = self.store.stream_batch(handle);
            [batch, 0].into_iter().find_map(|from| {
                let bytes = self.store.stream_bytes(handle, from);
                let item = Dirents::new(&bytes).filter(|item| item.off == cookie).last()?;
                Some(self.store.stream_position(handle, from + item.end))
            })
        })
    }

    /// The reply to a READDIR that a dead generation had given, where it is not known whether the
    /// kernel got it (without RESEND): the same entries with the same cookies.
    pub(crate) fn list_again(&mut self, parked: &Parked, request: &Request<'_>) -> Option<Step> {
        if !matches!(request.opcode(), Opcode::READDIR | Opcode::READDIRPLUS) {
            return None;
        }
        let asked: ReadIn = request.body_as()?;
        let handle = self.store.handle_by_key(asked.fh)?;
        let bytes = self.store.stream_bytes(handle, 0);
        let from = match asked.offset {
            0 => 0,
            cookie => Dirents::new(&bytes).filter(|item| item.off == cookie).last()?.end,
        };
        // More than it gave, perhaps: what comes behind that has been given out before.
        let (mut body, limit) = (Vec::new(), asked.size as usize);
        let none = EntryOut::default();
        for item in Dirents::new(bytes.get(from..)?) {
            let (ino, off, kind) = (item.ino, item.off, item.type_);
            let fits = if request.opcode() == Opcode::READDIR {
                push_dirent(&mut body, limit, ino, off, kind, item.name)
            } else {
                push_direntplus(&mut body, limit, &none, ino, off, kind, item.name)
            };
            if !fits {
                break;
            }
        }
        self.activate(Unique::unmarked(request.header.unique), parked.slot?);
        Some(Step::Answer(build::reply(request.header.unique, &body)))
    }

    /// Serves a READDIR from the remainder of a stream, listing the directory first.
    pub(crate) fn listing_step(&mut self, request: &Request<'_>) -> Option<Step> {
        if !matches!(request.opcode(), Opcode::READDIR | Opcode::READDIRPLUS)
            || !self.listing_needed(request)
        {
            return None;
        }
        let asked: ReadIn = request.body_as()?;
        let handle = self.store.handle_by_key(asked.fh)?;
        let fh = self.store.handle_bound(handle, self.life.ids())?;
        let node = self.store.open_description(handle).node;
        let id = self.store.bound(node, self.life.ids())?;
        let mut rest = self.streams.take_rest(handle)?;
        if let Some(errno) = rest.failed() {
            return Some(Step::Answer(build::reply_error(request.header.unique, errno)));
        }
        // As the kernel lists it: a daemon may have one kind only.
        let plus = request.opcode() == Opcode::READDIRPLUS;
        if let Some((plus, next)) = rest.to_ask(plus) {
            let ids = self.questions.ids(id);
            let message = if plus {
                build::readdirplus(ids, fh, next, LIST_BYTES)
            } else {
                build::readdir(ids, fh, next, LIST_BYTES)
            };
            self.streams.put_rest(handle, rest);
            return Some(Step::ask(message, List { handle, plus }));
        }
        let at = rest.served_at(asked.offset).unwrap_or_else(|| {
            self.find_pending(handle, asked.offset, &mut rest);
            0
        });
        self.store.begin();
        let next_cookie = || self.store.next_cookie(handle);
        let (body, stream) = rest.serve(at, plus, asked.size as usize, next_cookie);
        self.store.commit();
        self.record_entries(handle, None, &stream);
        self.streams.put_rest(handle, rest);
        Some(Step::Answer(build::reply(request.header.unique, &body)))
    }

    /// What of the listing has not been given out when the stream stands at `cookie`.
    fn find_pending(&mut self, handle: Handle, cookie: u64, rest: &mut Remainder) {
        let at = self.position(handle, cookie).map_or(usize::MAX, |position| position.at);
        let bytes = self.store.stream_bytes(handle, 0);
        let (given, later) = bytes.split_at(at.min(bytes.len()));
        rest.stand(given, later);
        self.count(Counter::StreamsRestored);
    }

    /// Takes a part of the successor's listing.
    pub(crate) fn on_list_reply(&mut self, task: u64, list: &List, reply: &[u8]) {
        let &List { handle, plus } = list;
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        let body = reply.get(16..).unwrap_or(&[]);
        let looked_up: Vec<_> = if plus {
            let counts = |name: &[u8]| name != b"." && name != b"..";
            let items = DirentsPlus::new(body).filter(|e| e.entry.nodeid != 0 && counts(e.name));
            items.map(|item| (item.entry.nodeid, 1)).collect()
        } else {
            Vec::new()
        };
        // The kernel is given names alone, so the daemon's nodes are not held by it.
        self.forget_later(looked_up);
        if let Some(rest) = self.streams.rest_mut(handle) {
            rest.take(plus, errno, body);
        }
        self.tasks.resume(task, |_| {});
    }
}

fn without_hidden(entries: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(entries.len());
    for item in Dirents::new(entries) {
        if !is_hidden_name(item.name) {
            kept.extend_from_slice(entries.get(item.start..item.end).unwrap_or(&[]));
        }
    }
    kept
}

/// The reply with this header, and these entries instead of its own.
fn listing(header: &OutHeader, entries: &[u8]) -> Outgoing {
    let len = (size_of::<OutHeader>() + entries.len()) as u32;
    let header = OutHeader { len, ..*header };
    Outgoing::ReplaceLong([header.as_bytes(), entries].concat())
}
