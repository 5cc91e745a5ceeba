//! A kernel, as far as a volume needs one: what applications ask for goes to the namespace module
//! as messages, one for each step of a path, and the module lets others be handled while it waits
//! for the stores.

use super::stores::Link;
use crate::memory::SimMemory;
use crate::posix::names::{Extended, Names, Result};
use belay_channel::RemoteStore;
use belay_object::ObjectId;
use belay_posix::directory::Entry;
use belay_posix::dispatch::{self, Outcome};
use belay_posix::fetch::Fetched;
use belay_posix::namespace::{Change, Node, Rename, Set};
use belay_posix::{Error, Metadata, Time};
use belay_wire::abi::{
    AttrOut, FallocateIn, GetxattrIn, MkdirIn, MknodIn, SetattrIn, SetattrValid, SetxattrInShort,
    WriteIn,
};
use belay_wire::build::{self, Ids};
use belay_wire::{Attr, Dirents, EntryOut, Opcode, Reply};
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The module that ships.
pub(super) type Module = dispatch::Module<SimMemory, Fetched<RemoteStore<Link>>>;

/// Requests that change nothing have numbers from here on.
const READS: u64 = 1 << 40;
/// So often is something fetched for a message before others wait for it, as in the process that
/// ships.
const PATIENCE: u32 = 32;
/// The longest read.
const MOST: usize = 1 << 20;
/// Bytes of a listing: some names.
const LISTED: u32 = 300;
/// A directory, in a mode.
const DIRECTORY: u32 = 0o040_000;
const TYPE: u32 = 0o170_000;

/// One request of an application, of which one message changes something.
pub(super) struct Kernel<'m> {
    module: &'m mut Module,
    below: &'m mut Option<RemoteStore<Link>>,
    view: &'m SimMemory,
    /// The number of the message that changes something.
    unique: u64,
    /// Messages before it.
    reads: u64,
    /// Behind how many of the stores of that message the module dies.
    late: Option<u64>,
    now: Time,
}

/// Why the module could not do it, as it says itself.
pub(super) type Failure = Error<String>;

fn failed(why: impl std::fmt::Display) -> Failure {
    Error::Cache(belay_cache::Error::Lower(why.to_string()))
}

impl<'m> Kernel<'m> {
    /// A request with that number.
    pub(super) fn new(
        module: &'m mut Module,
        below: &'m mut Option<RemoteStore<Link>>,
        view: &'m SimMemory,
        (unique, late): (u64, Option<u64>),
    ) -> Self {
        let now = Time { seconds: 1000 + unique as i64, nanoseconds: 0 };
        Self { module, below, view, unique, reads: 0, late, now }
    }

    /// The node ids of a message that changes nothing.
    fn reads(&mut self, object: ObjectId) -> Ids {
        self.reads += 1;
        Ids { unique: READS + self.reads, nodeid: object.0, ..Ids::default() }
    }

    /// Those of the message that changes something.
    fn changes(&mut self, object: ObjectId) -> Ids {
        if let Some(late) = self.late.take()
            && !self.view.is_dead()
        {
            self.view.dies_after(Some(late));
        }
        Ids { unique: self.unique, nodeid: object.0, ..Ids::default() }
    }

    /// Has a message handled; the body of the answer.
    fn ask(&mut self, message: &[u8]) -> std::result::Result<Vec<u8>, Failure> {
        match self.handle(message) {
            Outcome::Nothing => Ok(Vec::new()),
            Outcome::Full => Err(Error::Cache(belay_cache::Error::Full)),
            Outcome::Fault(_, why) => Err(failed(why)),
            Outcome::Reply(reply) => {
                crate::rules::keeps(message, &reply).map_err(failed)?;
                let reply = Reply::parse(&reply).map_err(|why| failed(format!("{why:?}")))?;
                match reply.errno() {
                    Some(errno) => Err(Errno::from_raw_os_error(errno).into()),
                    None => Ok(reply.body.to_vec()),
                }
            }
            outcome @ (Outcome::Held(_) | Outcome::Sync(..) | Outcome::Direct(_)) => {
                Err(failed(format!("nobody asked for that: {outcome:?}")))
            }
        }
    }

    fn handle(&mut self, message: &[u8]) -> Outcome {
        let mut fetched = Fetched::default();
        for _ in 0..PATIENCE {
            match self.module.handle_with(&mut fetched, message, self.now) {
                Ok(outcome) => return outcome,
                // The dead fetch nothing.
                Err(_) if self.view.is_dead() => break,
                Err(lack) => {
                    let Some(below) = self.below.as_mut() else { break };
                    fetched.fetch(below, lack);
                }
            }
        }
        let Some(below) = self.below.take() else { return Outcome::Nothing };
        let mut below = Fetched::waiting_for(below);
        let handled = self.module.handle_with(&mut below, message, self.now);
        *self.below = below.into_below();
        handled.unwrap_or(Outcome::Nothing)
    }

    /// Has the kernel forget what has no name. Nothing tells which of it was removed.
    pub(super) fn forget(&mut self) -> std::result::Result<(), Failure> {
        let orphans = self.orphans()?;
        let nodes: Vec<u64> = orphans.iter().map(|node| node.0).collect();
        let ids = self.changes(ObjectId(0));
        let message = match nodes.as_slice() {
            [] => return Ok(()),
            [node] => build::forget(Ids { nodeid: *node, ..ids }, 1),
            nodes => build::batch_forget(ids, nodes),
        };
        self.ask(&message)?;
        let left = self.orphans()?;
        // The dead see what they please.
        match left.is_empty() || self.view.is_dead() {
            true => Ok(()),
            false => Err(failed(format!("{left:?} were forgotten, and are there"))),
        }
    }

    fn orphans(&mut self) -> std::result::Result<Vec<ObjectId>, Failure> {
        let mut fetched = Fetched::default();
        loop {
            match self.module.orphans_with(&mut fetched) {
                Ok(found) => return Ok(found),
                Err(Some(lack)) if !self.view.is_dead() => {
                    let below = self.below.as_mut().ok_or_else(|| failed("it is in use"))?;
                    fetched.fetch(below, lack);
                }
                Err(_) => return Err(failed("the files without a name cannot be read")),
            }
        }
    }

    /// What an answer with an entry says. As the kernel, which asks for attributes that hold for no
    /// time.
    fn entry(&mut self, body: &[u8]) -> std::result::Result<Node, Failure> {
        let (entry, _) = EntryOut::read_from_prefix(body).map_err(|_| failed("no entry"))?;
        match entry.attr_valid {
            0 => self.node(ObjectId(entry.nodeid)),
            _ => Ok(node_of(ObjectId(entry.nodeid), &entry.attr)),
        }
    }
}

/// What attributes say. The rest is the module's own business.
fn node_of(object: ObjectId, attr: &Attr) -> Node {
    let time = |seconds: u64, nanoseconds| Time { seconds: seconds as i64, nanoseconds };
    let metadata = Metadata {
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        links: attr.nlink,
        device: attr.rdev,
        accessed: time(attr.atime, attr.atimensec),
        modified: time(attr.mtime, attr.mtimensec),
        changed: time(attr.ctime, attr.ctimensec),
        made: Time::default(),
        parent: ObjectId(0),
        entries: 0,
        extended: ObjectId(0),
        generation: 0,
    };
    Node { object, size: attr.size, metadata }
}

fn node_in(object: ObjectId, body: &[u8]) -> std::result::Result<Node, Failure> {
    let out = AttrOut::read_from_bytes(body).map_err(|_| failed("no attributes"))?;
    Ok(node_of(object, &out.attr))
}

impl Names for Kernel<'_> {
    type Below = String;

    fn now(&self) -> Time {
        self.now
    }

    fn lookup(&mut self, at: ObjectId, name: &[u8]) -> Result<Node, Self> {
        let message = build::lookup(self.reads(at), name);
        let body = self.ask(&message)?;
        self.entry(&body)
    }

    fn node(&mut self, object: ObjectId) -> Result<Node, Self> {
        let message = build::getattr(self.reads(object), None);
        node_in(object, &self.ask(&message)?)
    }

    fn make(&mut self, at: ObjectId, name: &[u8], mode: u32, device: u32) -> Result<(), Self> {
        let ids = self.changes(at);
        let message = if mode & TYPE == DIRECTORY {
            let asked = MkdirIn { mode: mode & 0o7777, umask: 0 };
            build::request(ids, Opcode::MKDIR, &[asked.as_bytes(), name, &[0]])
        } else {
            let asked = MknodIn { mode, rdev: device, umask: 0, padding: 0 };
            build::request(ids, Opcode::MKNOD, &[asked.as_bytes(), name, &[0]])
        };
        self.ask(&message).map(|_| ())
    }

    fn symlink(&mut self, at: ObjectId, name: &[u8], target: &[u8]) -> Result<(), Self> {
        let message =
            build::request(self.changes(at), Opcode::SYMLINK, &[name, &[0], target, &[0]]);
        self.ask(&message).map(|_| ())
    }

    fn link(&mut self, object: ObjectId, at: ObjectId, name: &[u8]) -> Result<(), Self> {
        let message = build::link(self.changes(at), object.0, name);
        self.ask(&message).map(|_| ())
    }

    fn unlink(&mut self, at: ObjectId, name: &[u8]) -> Result<(), Self> {
        let message = build::unlink(self.changes(at), name);
        self.ask(&message).map(|_| ())
    }

    fn rmdir(&mut self, at: ObjectId, name: &[u8]) -> Result<(), Self> {
        let message = build::rmdir(self.changes(at), name);
        self.ask(&message).map(|_| ())
    }

    fn rename(
        &mut self,
        (from, old): (ObjectId, &[u8]),
        (to, new): (ObjectId, &[u8]),
        how: Rename,
    ) -> Result<(), Self> {
        let ids = self.changes(from);
        let message = match how {
            Rename::Replace => build::rename(ids, to.0, old, new),
            how => build::rename2(ids, to.0, how.flags(), old, new),
        };
        self.ask(&message).map(|_| ())
    }

    fn read(&mut self, object: ObjectId, offset: u64, length: usize) -> Result<Vec<u8>, Self> {
        let mut found = Vec::new();
        while found.len() < length {
            let (at, left) = (offset + found.len() as u64, length - found.len());
            let message = build::read(self.reads(object), 0, at, left.min(MOST) as u32);
            let more = self.ask(&message)?;
            let is_end = more.len() < left.min(MOST);
            found.extend(more);
            if is_end {
                break;
            }
        }
        Ok(found)
    }

    fn write(&mut self, object: ObjectId, offset: u64, data: &[u8]) -> Result<(), Self> {
        let mut asked = WriteIn::new_zeroed();
        (asked.offset, asked.size) = (offset, data.len() as u32);
        let ids = self.changes(object);
        let message = build::request(ids, Opcode::WRITE, &[asked.as_bytes(), data]);
        self.ask(&message).map(|_| ())
    }

    fn change(&mut self, object: ObjectId, change: Change) -> Result<Node, Self> {
        let mut asked = SetattrIn::new_zeroed();
        let mut has = SetattrValid::empty();
        has.set(SetattrValid::MODE, change.mode.is_some());
        has.set(SetattrValid::UID, change.uid.is_some());
        has.set(SetattrValid::GID, change.gid.is_some());
        has.set(SetattrValid::SIZE, change.size.is_some());
        asked.mode = change.mode.unwrap_or_default();
        asked.uid = change.uid.unwrap_or_default();
        asked.gid = change.gid.unwrap_or_default();
        asked.size = change.size.unwrap_or_default();
        let now = self.now;
        let mut set = |time: Option<Time>, set: SetattrValid, to_now: SetattrValid| {
            has.set(set, time.is_some());
            has.set(to_now, time == Some(now));
            let time = time.unwrap_or_default();
            (time.seconds as u64, time.nanoseconds)
        };
        (asked.atime, asked.atimensec) =
            set(change.accessed, SetattrValid::ATIME, SetattrValid::ATIME_NOW);
        (asked.mtime, asked.mtimensec) =
            set(change.modified, SetattrValid::MTIME, SetattrValid::MTIME_NOW);
        asked.valid = has;
        let message = build::setattr(self.changes(object), &asked);
        node_in(object, &self.ask(&message)?)
    }

    fn allocate(
        &mut self,
        object: ObjectId,
        offset: u64,
        length: u64,
        flags: u32,
    ) -> Result<(), Self> {
        let asked = FallocateIn { fh: 0, offset, length, mode: flags, padding: 0 };
        let message = build::request(self.changes(object), Opcode::FALLOCATE, &[asked.as_bytes()]);
        self.ask(&message).map(|_| ())
    }

    fn readlink(&mut self, object: ObjectId) -> Result<Vec<u8>, Self> {
        let message = build::readlink(self.reads(object));
        self.ask(&message)
    }

    fn list(&mut self, object: ObjectId, behind: u64) -> Result<Vec<Entry>, Self> {
        let message = build::readdir(self.reads(object), 0, behind, LISTED);
        let body = self.ask(&message)?;
        let mut found = Dirents::new(&body);
        let all = found.by_ref().map(|one| Entry {
            key: one.off,
            object: ObjectId(one.ino),
            kind: one.type_ as u8,
            name: one.name.to_vec(),
        });
        let all = all.collect();
        match found.malformed() {
            true => Err(failed("a listing that is none")),
            false => Ok(all),
        }
    }

    fn extended(&mut self, object: ObjectId) -> Result<Vec<Extended>, Self> {
        let mut ask = |size: u32| {
            let asked = GetxattrIn { size, padding: 0 };
            let message =
                build::request(self.reads(object), Opcode::LISTXATTR, &[asked.as_bytes()]);
            self.ask(&message)
        };
        let length = ask(0)?.first_chunk().map_or(0, |length| u32::from_ne_bytes(*length));
        let names = if length == 0 { Vec::new() } else { ask(length)? };
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        names.map(|name| Ok((name.to_vec(), self.get_extended(object, name)?))).collect()
    }

    fn get_extended(&mut self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>, Self> {
        let message = build::getxattr(self.reads(object), name, 1 << 16);
        self.ask(&message)
    }

    fn set_extended(
        &mut self,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: Set,
    ) -> Result<(), Self> {
        let flags = match how {
            Set::Any => 0,
            Set::Create => 1,
            Set::Replace => 2,
        };
        let head = SetxattrInShort { size: value.len() as u32, flags };
        let parts: [&[u8]; 4] = [head.as_bytes(), name, &[0], value];
        let message = build::request(self.changes(object), Opcode::SETXATTR, &parts);
        self.ask(&message).map(|_| ())
    }

    fn remove_extended(&mut self, object: ObjectId, name: &[u8]) -> Result<(), Self> {
        let message = build::removexattr(self.changes(object), name);
        self.ask(&message).map(|_| ())
    }
}
