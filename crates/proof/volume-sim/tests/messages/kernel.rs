//! A kernel, as far as the tests need one.

use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::Lower;
use belay_posix::dispatch::{Module, Outcome};
use belay_posix::{Caller, Time};
use belay_store::Parameters;
use belay_volume_sim::disk::{Power, SimDisk};
use belay_volume_sim::memory::SimMemory;
use belay_wire::abi::{BatchForgetIn, ForgetOne, GetxattrIn, MkdirIn, SetxattrInShort};
use belay_wire::build::{self, Ids};
use belay_wire::{Attr, EntryOut, Opcode, Reply};
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

/// A kernel with a volume, whose cache is small.
pub struct Kernel<'d> {
    pub module: Module<SimMemory, Logical<&'d SimDisk>>,
    cleaner: Cleaner<SimMemory>,
    shared: Shared<SimMemory>,
    generation: u32,
    pub unique: u64,
    pub uid: u32,
    /// How often a message was handled again.
    pub again: u64,
}

/// A body, or an error.
pub type Answer = Result<Vec<u8>, Errno>;

pub fn disk() -> SimDisk {
    let disk = SimDisk::with(20_000, &Power::default());
    Logical::format([9; 16], vec![([1; 16], &disk)], Parameters::default().small()).unwrap();
    disk
}

impl<'d> Kernel<'d> {
    pub fn mount(disk: &'d SimDisk, capacity: Capacity) -> Self {
        let layout = Layout::new(capacity);
        let memory = SimMemory::new(layout.words);
        let mut below = Logical::open(vec![disk]).unwrap();
        let (epoch, upto) = (below.epoch() - 1, Lower::upto(&mut below).unwrap());
        let room = below.room().unwrap();
        Shared::new(memory.another(), layout).initialize(epoch, upto, &room);
        let shared = Shared::new(memory, layout);
        let publisher = Publisher::attach::<belay_logical::Error>(shared.clone(), 1);
        let mut module = Module::new(publisher.unwrap().keeping(1 << 20), below);
        if upto == 0 {
            module.format(Caller::default(), belay_volume_sim::SECRET).unwrap();
        }
        let cleaner = Cleaner::new(shared.clone());
        Self { module, cleaner, shared, generation: 1, unique: 0, uid: 0, again: 0 }
    }

    /// The module dies, and a next life of it begins.
    pub fn die(&mut self, disk: &'d SimDisk) {
        self.generation += 1;
        let publisher =
            Publisher::attach::<belay_logical::Error>(self.shared.clone(), self.generation);
        self.module = Module::new(publisher.unwrap(), Logical::open(vec![disk]).unwrap());
    }

    pub fn ids(&mut self, nodeid: u64) -> Ids {
        self.unique += 2;
        Ids { unique: self.unique, nodeid, uid: self.uid, ..Ids::default() }
    }

    pub fn checkpoint(&mut self) {
        self.cleaner.checkpoint(self.module.below()).unwrap();
    }

    /// Has a message handled, as often as it takes.
    pub fn send(&mut self, message: &[u8]) -> Outcome {
        let now = Time { seconds: self.unique as i64, nanoseconds: 7 };
        loop {
            match self.module.handle(message, now) {
                Outcome::Full => {
                    self.again += 1;
                    self.checkpoint();
                }
                outcome => return outcome,
            }
        }
    }

    pub fn ask(&mut self, message: &[u8]) -> Answer {
        let Outcome::Reply(reply) = self.send(message) else { panic!("no answer") };
        let reply = Reply::parse(&reply).unwrap();
        assert_eq!(reply.unique(), self.unique);
        match reply.errno() {
            Some(errno) => Err(Errno::from_raw_os_error(errno)),
            None => Ok(reply.body.to_vec()),
        }
    }

    pub fn mkdir(&mut self, at: u64, name: &str) -> u64 {
        let asked = MkdirIn { mode: 0o755, umask: 0 };
        let ids = self.ids(at);
        let parts: [&[u8]; 3] = [asked.as_bytes(), name.as_bytes(), &[0]];
        let made = self.ask(&build::request(ids, Opcode::MKDIR, &parts)).unwrap();
        node_of(&made)
    }

    pub fn rmdir(&mut self, at: u64, name: &str) -> Answer {
        let message = build::rmdir(self.ids(at), name.as_bytes());
        self.ask(&message)
    }

    pub fn lookup(&mut self, at: u64, name: &str) -> Answer {
        let message = build::lookup(self.ids(at), name.as_bytes());
        self.ask(&message)
    }

    pub fn getattr(&mut self, node: u64) -> Answer {
        let message = build::getattr(self.ids(node), None);
        self.ask(&message)
    }

    pub fn set_extended(&mut self, node: u64, name: &str, value: &[u8], flags: u32) -> Answer {
        let head = SetxattrInShort { size: value.len() as u32, flags };
        let parts: [&[u8]; 4] = [head.as_bytes(), name.as_bytes(), &[0], value];
        let message = build::request(self.ids(node), Opcode::SETXATTR, &parts);
        self.ask(&message)
    }

    pub fn get_extended(&mut self, node: u64, name: &str, room: u32) -> Answer {
        let message = build::getxattr(self.ids(node), name.as_bytes(), room);
        self.ask(&message)
    }

    pub fn list_extended(&mut self, node: u64, size: u32) -> Answer {
        let asked = GetxattrIn { size, padding: 0 };
        let message = build::request(self.ids(node), Opcode::LISTXATTR, &[asked.as_bytes()]);
        self.ask(&message)
    }

    pub fn remove_extended(&mut self, node: u64, name: &str) -> Answer {
        let message = build::removexattr(self.ids(node), name.as_bytes());
        self.ask(&message)
    }

    pub fn forget(&mut self, nodes: &[u64]) {
        let message = match nodes {
            [node] => build::forget(self.ids(*node), 1),
            nodes => {
                let head = BatchForgetIn { count: nodes.len() as u32, dummy: 0 };
                let mut body = head.as_bytes().to_vec();
                for nodeid in nodes {
                    let one = ForgetOne { nodeid: *nodeid, nlookup: 1 };
                    body.extend_from_slice(one.as_bytes());
                }
                build::request(self.ids(0), Opcode::BATCH_FORGET, &[&body])
            }
        };
        assert!(matches!(self.send(&message), Outcome::Nothing));
    }
}

pub fn attr_of(entry: &[u8]) -> Attr {
    let mut out = EntryOut::new_zeroed();
    out.as_mut_bytes().copy_from_slice(&entry[..size_of::<EntryOut>()]);
    out.attr
}

pub fn node_of(entry: &[u8]) -> u64 {
    let mut out = EntryOut::new_zeroed();
    out.as_mut_bytes().copy_from_slice(&entry[..size_of::<EntryOut>()]);
    out.nodeid
}
