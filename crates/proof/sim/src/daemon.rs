//! One life of the simulated daemon: its node ids, handles, cookies and locks die with it.

mod operations;

use super::disk::*;
use super::listing::Held;
use super::memory::{Clock, Died};
use belay_recorder::Blame;
use belay_wire::abi::*;
use belay_wire::{Opcode, Request, build};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use zerocopy::IntoBytes;

/// Requests that leave nothing to be written.
const UNCHANGING: [Opcode; 17] = [
    Opcode::LOOKUP,
    Opcode::GETATTR,
    Opcode::READ,
    Opcode::READLINK,
    Opcode::READDIR,
    Opcode::READDIRPLUS,
    Opcode::OPEN,
    Opcode::OPENDIR,
    Opcode::RELEASE,
    Opcode::RELEASEDIR,
    Opcode::FLUSH,
    Opcode::FSYNC,
    Opcode::FSYNCDIR,
    Opcode::GETXATTR,
    Opcode::SETLK,
    Opcode::SETLKW,
    Opcode::POLL,
];

/// What kind of daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    /// `attr.ino` is the node id, so it differs in each generation.
    pub numbered: bool,
    /// LINK works.
    pub links: bool,
    /// What it dies of.
    pub deadly: Option<Deadly>,
    /// Threads that read the device hand what they read over to others, which answer it and never
    /// read.
    pub hands_over: bool,
    /// What it reads goes through a pipe, in which the data of a long WRITE stay.
    pub splices: bool,
}

/// Requests with this opcode that say `poison` kill the daemon, from this generation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadly {
    pub opcode: Opcode,
    pub from: u32,
}

impl Deadly {
    fn kills(&self, generation: u32, request: &Request<'_>) -> bool {
        generation >= self.from
            && request.opcode() == self.opcode
            && request.body.windows(6).any(|part| part == b"poison")
    }
}

#[derive(Debug)]
pub(super) struct Known {
    ino: u64,
    lookups: u64,
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) ino: u64,
    pub(super) flags: u32,
    pub(super) listing: Vec<(Vec<u8>, u64)>,
}

/// What became of a request.
pub enum Outcome {
    Reply(Vec<u8>),
    /// A lock is held by somebody else; to be tried again.
    Wait,
    /// There is no reply to it.
    Nothing,
}

pub struct Daemon {
    pub(super) generation: u32,
    pub flavour: Flavour,
    pub(super) disk: Rc<RefCell<Disk>>,
    clock: Rc<Clock>,
    nodes: BTreeMap<u64, Known>,
    by_ino: BTreeMap<u64, u64>,
    free_ids: Vec<u64>,
    next_id: u64,
    pub(super) handles: BTreeMap<u64, Open>,
    next_fh: u64,
    pub locks: Vec<Held>,
    polls: Vec<(u64, u64)>,
    /// Notifications to be sent.
    pub notes: Vec<Vec<u8>>,
    /// What it was asked to do has not all been written, if it is one that buffers.
    pub dirty: bool,
    /// Names (directory's inode, name) that it was asked for in this life.
    pub(super) met: BTreeSet<(u64, Vec<u8>)>,
}

impl Daemon {
    pub fn new(
        generation: u32,
        flavour: Flavour,
        disk: Rc<RefCell<Disk>>,
        clock: Rc<Clock>,
    ) -> Self {
        let root = Known { ino: ROOT, lookups: 1 };
        Self {
            generation,
            flavour,
            disk,
            clock,
            nodes: BTreeMap::from([(1, root)]),
            by_ino: BTreeMap::from([(ROOT, 1)]),
            free_ids: Vec::new(),
            // Ids of different lives overlap and mean different things.
            next_id: 2 + u64::from(generation % 3),
            handles: BTreeMap::new(),
            next_fh: u64::from(generation % 2),
            locks: Vec::new(),
            polls: Vec::new(),
            notes: Vec::new(),
            dirty: false,
            met: BTreeSet::new(),
        }
    }

    fn ino(&self, id: u64) -> u64 {
        self.nodes.get(&id).unwrap_or_else(|| panic!("daemon: uses unknown node {id}")).ino
    }

    pub(super) fn open(&self, fh: u64, ino: u64) -> &Open {
        let open = self.handles.get(&fh).unwrap_or_else(|| panic!("daemon: unknown handle {fh}"));
        assert_eq!(open.ino, ino, "daemon: handle {fh} is of another node");
        open
    }

    fn attr(&self, ino: u64, id: u64) -> Attr {
        let disk = self.disk.borrow();
        let inode = disk.get(ino);
        Attr {
            ino: if self.flavour.numbered { id } else { inode.number },
            size: inode.data.len() as u64,
            mode: inode.mode,
            nlink: inode.nlink,
            ..Attr::default()
        }
    }

    pub(super) fn entry(&mut self, ino: u64) -> EntryOut {
        let id = self.by_ino.get(&ino).copied().unwrap_or_else(|| {
            let id = self.free_ids.pop().unwrap_or(self.next_id);
            if id == self.next_id {
                self.next_id += 1;
            }
            self.nodes.insert(id, Known { ino, lookups: 0 });
            self.by_ino.insert(ino, id);
            id
        });
        self.nodes.get_mut(&id).unwrap().lookups += 1;
        EntryOut { nodeid: id, attr: self.attr(ino, id), ..EntryOut::default() }
    }

    /// Takes lookups back.
    pub fn forget(&mut self, id: u64, count: u64) {
        if id == 1 {
            return;
        }
        let node = self
            .nodes
            .get_mut(&id)
            .unwrap_or_else(|| panic!("daemon: FORGET of unknown node {id}"));
        assert!(node.lookups >= count, "daemon: FORGET {count} of {} on node {id}", node.lookups);
        assert!(count > 0, "daemon: FORGET of nothing on node {id}");
        node.lookups -= count;
        if node.lookups == 0 {
            let ino = node.ino;
            self.nodes.remove(&id);
            self.by_ino.remove(&ino);
            self.free_ids.push(id);
            self.purge();
        }
    }

    fn purge(&self) {
        let used = |ino| {
            self.by_ino.contains_key(&ino) || self.handles.values().any(|open| open.ino == ino)
        };
        self.disk.borrow_mut().purge(used);
    }

    fn new_handle(&mut self, ino: u64, flags: u32) -> OpenOut {
        self.next_fh += 1;
        self.handles.insert(self.next_fh, Open { ino, flags, listing: Vec::new() });
        OpenOut { fh: self.next_fh, ..OpenOut::default() }
    }

    /// What is left when everything should be forgotten and closed.
    pub fn leftovers(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().filter(|(id, _)| **id != 1).collect();
        if nodes.is_empty() && self.handles.is_empty() && self.locks.is_empty() {
            return String::new();
        }
        format!("nodes {nodes:?}, handles {:?}, locks {:?}", self.handles, self.locks)
    }

    /// The kernel refused a reply: as libfuse does, its lookup is taken back.
    pub fn refused(&mut self, opcode: Opcode, reply: &[u8]) {
        if belay_wire::is_entry_reply(opcode)
            && let Some(id) = belay_wire::get_u64(reply, 16).filter(|id| *id != 0)
        {
            self.forget(id, 1);
        }
    }

    /// Carries a request out.
    pub fn serve(&mut self, message: &[u8]) -> Outcome {
        let request = Request::parse(message).expect("daemon: malformed request");
        let unique = request.header.unique;
        if self.flavour.deadly.is_some_and(|deadly| deadly.kills(self.generation, &request)) {
            std::panic::resume_unwind(Box::new(Died(Blame::Own)));
        }
        match request.opcode() {
            Opcode::FORGET => {
                self.forget(request.header.nodeid, request.body_as::<u64>().unwrap());
                return Outcome::Nothing;
            }
            Opcode::BATCH_FORGET => {
                for (_, item) in request.forgets() {
                    self.forget(item.nodeid, item.nlookup);
                }
                return Outcome::Nothing;
            }
            Opcode::INTERRUPT | Opcode::NOTIFY_REPLY => return Outcome::Nothing,
            _ => {}
        }
        let ino = self.ino(request.header.nodeid);
        self.dirty |= !UNCHANGING.contains(&request.opcode());
        if matches!(request.opcode(), Opcode::SETLK | Opcode::SETLKW) {
            return self.lock(&request, ino);
        }
        match self.carry_out(&request, ino) {
            Ok(body) => Outcome::Reply(build::reply(unique, &body)),
            Err(errno) => Outcome::Reply(build::reply_error(unique, errno)),
        }
    }

    fn made(&mut self, ino: Res<u64>) -> Res<Vec<u8>> {
        Ok(self.entry(ino?).as_bytes().to_vec())
    }

    /// Each name that it is to take away was looked up in this life.
    fn check_met(&mut self, request: &Request<'_>, ino: u64) {
        let names = request.names();
        let Some(first) = names.first else { return };
        let new = (ino, first.to_vec());
        match request.opcode() {
            Opcode::LOOKUP
            | Opcode::LINK
            | Opcode::SYMLINK
            | Opcode::MKNOD
            | Opcode::MKDIR
            | Opcode::CREATE => {
                self.met.insert(new);
            }
            Opcode::UNLINK | Opcode::RMDIR => {
                assert!(self.met.contains(&new), "daemon: never asked: {new:?}");
            }
            Opcode::RENAME | Opcode::RENAME2 => {
                let to = self.ino(request.body_as::<RenameIn>().unwrap().newdir);
                let second = (to, names.second.unwrap_or(&[]).to_vec());
                let own = second.1.starts_with(b".belay-hidden-");
                assert!(self.met.contains(&new), "daemon: never asked: {new:?}");
                assert!(own || self.met.contains(&second), "daemon: never asked: {second:?}");
                self.met.insert(second);
            }
            _ => {}
        }
    }

    pub(super) fn attr_reply(&self, ino: u64, id: u64) -> Vec<u8> {
        AttrOut { attr: self.attr(ino, id), ..AttrOut::default() }.as_bytes().to_vec()
    }
}
