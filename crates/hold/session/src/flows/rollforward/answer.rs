//! What the daemon's answers mean: where nodes are, and whether a request came out as it did
//! before.

use super::state::{Access, Forwarded, Issue, Opened, RollForward, Told};
use super::{EIO, NO_ROOM, is_of_directory};
use crate::message::{COUNTED, count_of, entry_of, read};
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::Node;
use belay_recorder::control::{Counter, Decision, Flags, Loss, Options};
use belay_wire::abi::{AttrOut, EntryOut, InHeader, OutHeader};
use belay_wire::errno::{ENODATA, ENOSYS};
use belay_wire::{Opcode, OpenOut, Request};

impl<M: Memory> Session<M> {
    /// The daemon's answer to a request of the roll-forward.
    pub(crate) fn on_forward_reply(&mut self, id: u64, what: Forwarded, reply: &[u8]) {
        if let Some(mut forward) = self.forward.take() {
            self.take_forwarded(what, reply, &mut forward);
            self.forward = Some(forward);
        }
        self.tasks.resume(id, |_| {});
    }

    fn take_forwarded(&mut self, what: Forwarded, reply: &[u8], forward: &mut RollForward) {
        let errno = read::<OutHeader>(reply).map_or(EIO, |header| -header.error);
        match what {
            // A daemon without FLUSH stores at the RELEASE that follows.
            Forwarded::Store(key) if !self.by_close() && matches!(errno, 0 | ENOSYS) => {
                forward.stored.push(key);
            }
            Forwarded::Close(Some(key)) if self.by_close() && errno == 0 => {
                forward.stored.push(key);
            }
            Forwarded::Close(Some(key)) if self.by_close() => self.tell_refused(key, errno),
            _ => {}
        }
        let Some(issue) = forward.current.take() else { return };
        let failed = match what {
            Forwarded::Find(key) => {
                let found = self.found_again(key, errno, reply, forward);
                // The last name on the way to it is the one that is to be made.
                let makes = forward.files && Opcode(issue.record.facts.opcode) == Opcode::CREATE;
                let absent = makes && found.is_err() && self.lacks_only(key, forward);
                forward.missing = absent;
                if absent { None } else { found.err() }
            }
            Forwarded::Meet(number) => {
                self.meet_logged(&issue.record, Some(number));
                forward.looked |= 1 << number;
                forward.met.extend(entry_of(reply).map(|entry| entry.nodeid));
                None
            }
            Forwarded::Open(key) => {
                match reply.get(16..).and_then(read::<OpenOut>).filter(|_| errno == 0) {
                    Some(open) => {
                        let directory = is_of_directory(&issue);
                        forward.handles.insert(key, Opened { fh: open.fh, directory });
                        forward.stored.retain(|stored| *stored != key); // not all, any more
                        None
                    }
                    None if !forward.access.contains_key(&key) => {
                        forward.access.insert(key, Access::Ask);
                        None
                    }
                    None => Some("its file cannot be opened for it"),
                }
            }
            Forwarded::Mode(key) => {
                let mode = reply.get(16..).and_then(read::<AttrOut>).map_or(0, |out| out.attr.mode);
                forward.access.insert(key, Access::Has(mode & 0o7777));
                None
            }
            Forwarded::Widen(key, mode) => {
                forward.access.insert(key, Access::Had(mode));
                None
            }
            Forwarded::Narrow => {
                forward.access.retain(|_, access| !matches!(access, Access::Had(_)));
                None
            }
            Forwarded::Issue(run) => {
                forward.run = run + 1;
                self.issued(&issue, errno, reply, forward).err()
            }
            Forwarded::Store(_) | Forwarded::Close(_) => None,
        };
        match failed {
            Some(why) => {
                self.diverged(&issue, why);
                forward.names.forward(&issue.record.names);
            }
            None => forward.current = Some(issue),
        }
    }

    fn found_again(
        &mut self,
        key: u64,
        errno: i32,
        reply: &[u8],
        forward: &mut RollForward,
    ) -> Result<(), &'static str> {
        let entry = reply.get(16..).and_then(read::<EntryOut>);
        let entry = entry.filter(|entry| errno == 0 && entry.nodeid != 0);
        // The LOOKUP was of the first node on the way that was not known.
        let root = self.store.key(Node::ROOT);
        let now = |key: u64| self.names_now(key);
        let path = forward.names.path(root, key, &now).unwrap_or_default();
        let link = path.iter().find(|link| !forward.ids.contains_key(&link.key));
        if let Some(link) = link {
            self.meet_by_key(link.parent, &link.name);
        }
        let entry = entry.ok_or("what it is about is not there")?;
        if let Some(link) = link {
            forward.ids.insert(link.key, Told::new(&entry));
        }
        Ok(())
    }

    /// Whether of the path to a node only the last name is not known.
    fn lacks_only(&self, key: u64, forward: &RollForward) -> bool {
        let root = self.store.key(Node::ROOT);
        let now = |key: u64| self.names_now(key);
        let path = forward.names.path(root, key, &now).unwrap_or_default();
        let unknown = path.iter().filter(|link| !forward.ids.contains_key(&link.key));
        unknown.count() == 1
    }

    /// Compares what a request gave with what it gave then.
    fn issued(
        &mut self,
        issue: &Issue,
        errno: i32,
        reply: &[u8],
        forward: &mut RollForward,
    ) -> Result<(), &'static str> {
        let opcode = Opcode(issue.record.facts.opcode);
        // Where files are stored one by one that may have been stored.
        let is_gone = forward.files && opcode == Opcode::REMOVEXATTR && errno == ENODATA;
        if errno != 0 && !is_gone {
            return Err("it failed, and had been carried out before the crash");
        }
        self.count(Counter::RolledForward);
        self.meet_logged(&issue.record, None);
        let facts = &issue.record.facts;
        if opcode == Opcode::WRITE {
            return if count_of(opcode, reply) == forward.sent as u64 {
                Ok(())
            } else {
                Err("not all was written")
            };
        }
        if COUNTED.has(opcode) && count_of(opcode, reply) != facts.size {
            return Err("not as much was copied");
        }
        if opcode == Opcode::OPEN && !forward.files {
            let id = forward.ids.get(&facts.node).map_or(0, |told| told.id);
            let open = reply.get(16..).and_then(read::<OpenOut>);
            forward.opened = open.map(|open| (id, open.fh, 0));
        }
        if facts.entry.key == 0 {
            return Ok(());
        }
        let entry: EntryOut =
            reply.get(belay_wire::ENTRY_OFFSET..).and_then(read).ok_or("it gave no entry")?;
        match forward.ids.get_mut(&facts.entry.key) {
            None => {
                forward.ids.insert(facts.entry.key, Told::new(&entry));
            }
            Some(told) if told.id == entry.nodeid => told.count += 1,
            // A link that is a node of its own.
            Some(_) => self.forget_later(vec![(entry.nodeid, 1)]),
        }
        if opcode == Opcode::CREATE {
            let open = reply.get(belay_wire::CREATE_OPEN_OFFSET..).and_then(read::<OpenOut>);
            if forward.files {
                let opened = open.map(|open| Opened { fh: open.fh, directory: false });
                forward.handles.extend(opened.map(|opened| (facts.entry.key, opened)));
            } else {
                forward.opened = open.map(|open| (entry.nodeid, open.fh, 0));
            }
        }
        let numbers_last = self.control().has(Flags::OWN_INODES) && !self.volatile();
        if entry.attr.mode != facts.entry.mode {
            Err("it made something of another kind or mode")
        } else if numbers_last && entry.attr.ino != facts.entry.ino {
            Err("it made something with another inode number")
        } else {
            Ok(())
        }
    }

    /// A request came out otherwise than before the crash.
    pub(super) fn diverged(&mut self, issue: &Issue, why: &str) {
        self.count(Counter::Failed);
        let facts = &issue.record.facts;
        let header = InHeader { opcode: facts.opcode, nodeid: facts.node, ..InHeader::default() };
        let what = Request { header, body: &issue.record.body }.describe();
        let key = if facts.entry.key == 0 { facts.node } else { facts.entry.key };
        // What had no room was told when that was known.
        let told = self.buffers_files() && why == NO_ROOM;
        if self.life.has(Options::BUFFER) && !told && self.stores.tells_undone(key) {
            let path = self.path_of(key);
            self.control().lose(
                Loss::Data,
                &format!("/{path}: what was acknowledged cannot be replayed: {why}"),
            );
        }
        self.control().decide(&Decision {
            generation: self.life.generation(),
            opcode: facts.opcode,
            unique: facts.unique,
            node: facts.node,
            row: 0,
            errno: EIO,
            text: format!("{what}, replayed from the op-log: {why}"),
        });
    }
}
