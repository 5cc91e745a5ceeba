//! The namespace module as the kernel sees it: messages, and what is answered.

use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::Lower;
use belay_posix::dispatch::{Module, Outcome};
use belay_posix::{Caller, Time};
use belay_store::Parameters;
use belay_volume_sim::disk::{Power, SimDisk};
use belay_volume_sim::memory::SimMemory;
use belay_wire::abi::{
    BatchForgetIn, ForgetOne, GetxattrIn, Kstatfs, MkdirIn, ROOT_ID, SetxattrInShort,
};
use belay_wire::build::{self, Ids};
use belay_wire::{EntryOut, Opcode, Reply};
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

/// A kernel with a volume, whose cache is small.
struct Kernel<'d> {
    module: Module<SimMemory, Logical<&'d SimDisk>>,
    cleaner: Cleaner<SimMemory>,
    unique: u64,
    uid: u32,
    /// How often a message was handled again.
    again: u64,
}

/// A body, or an error.
type Answer = Result<Vec<u8>, Errno>;

fn disk() -> SimDisk {
    let disk = SimDisk::with(20_000, &Power::default());
    Logical::format([9; 16], vec![([1; 16], &disk)], Parameters::default().small()).unwrap();
    disk
}

impl<'d> Kernel<'d> {
    fn mount(disk: &'d SimDisk, capacity: Capacity) -> Self {
        let layout = Layout::new(capacity);
        let memory = SimMemory::new(layout.words);
        let mut below = Logical::open(vec![disk]).unwrap();
        let (epoch, upto) = (below.epoch() - 1, Lower::upto(&mut below).unwrap());
        Shared::new(memory.another(), layout).initialize(epoch, upto);
        let shared = Shared::new(memory, layout);
        let publisher = Publisher::attach::<belay_logical::Error>(shared.clone(), 1, |_, _| {});
        let mut module = Module::new(publisher.unwrap(), below);
        if upto == 0 {
            module.format(Caller::default()).unwrap();
        }
        Self { module, cleaner: Cleaner::new(shared), unique: 0, uid: 0, again: 0 }
    }

    fn ids(&mut self, nodeid: u64) -> Ids {
        self.unique += 2;
        Ids { unique: self.unique, nodeid, uid: self.uid, ..Ids::default() }
    }

    fn checkpoint(&mut self) {
        self.cleaner.checkpoint(self.module.below()).unwrap();
    }

    /// Has a message handled, as often as it takes.
    fn send(&mut self, message: &[u8]) -> Outcome {
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

    fn ask(&mut self, message: &[u8]) -> Answer {
        let Outcome::Reply(reply) = self.send(message) else { panic!("no answer") };
        let reply = Reply::parse(&reply).unwrap();
        assert_eq!(reply.unique(), self.unique);
        match reply.errno() {
            Some(errno) => Err(Errno::from_raw_os_error(errno)),
            None => Ok(reply.body.to_vec()),
        }
    }

    fn mkdir(&mut self, at: u64, name: &str) -> u64 {
        let asked = MkdirIn { mode: 0o755, umask: 0 };
        let ids = self.ids(at);
        let parts: [&[u8]; 3] = [asked.as_bytes(), name.as_bytes(), &[0]];
        let made = self.ask(&build::request(ids, Opcode::MKDIR, &parts)).unwrap();
        node_of(&made)
    }

    fn rmdir(&mut self, at: u64, name: &str) -> Answer {
        let message = build::rmdir(self.ids(at), name.as_bytes());
        self.ask(&message)
    }

    fn lookup(&mut self, at: u64, name: &str) -> Answer {
        let message = build::lookup(self.ids(at), name.as_bytes());
        self.ask(&message)
    }

    fn getattr(&mut self, node: u64) -> Answer {
        let message = build::getattr(self.ids(node), None);
        self.ask(&message)
    }

    fn set_extended(&mut self, node: u64, name: &str, value: &[u8], flags: u32) -> Answer {
        let head = SetxattrInShort { size: value.len() as u32, flags };
        let parts: [&[u8]; 4] = [head.as_bytes(), name.as_bytes(), &[0], value];
        let message = build::request(self.ids(node), Opcode::SETXATTR, &parts);
        self.ask(&message)
    }

    fn get_extended(&mut self, node: u64, name: &str, room: u32) -> Answer {
        let message = build::getxattr(self.ids(node), name.as_bytes(), room);
        self.ask(&message)
    }

    fn list_extended(&mut self, node: u64, size: u32) -> Answer {
        let asked = GetxattrIn { size, padding: 0 };
        let message = build::request(self.ids(node), Opcode::LISTXATTR, &[asked.as_bytes()]);
        self.ask(&message)
    }

    fn remove_extended(&mut self, node: u64, name: &str) -> Answer {
        let message = build::removexattr(self.ids(node), name.as_bytes());
        self.ask(&message)
    }

    fn forget(&mut self, nodes: &[u64]) {
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

fn node_of(entry: &[u8]) -> u64 {
    let mut out = EntryOut::new_zeroed();
    out.as_mut_bytes().copy_from_slice(&entry[..size_of::<EntryOut>()]);
    out.nodeid
}

const ROOM: Capacity = Capacity { frames: 2000, slots: 400 };

#[test]
fn what_has_no_name_is_there_until_it_is_forgotten() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let directory = kernel.mkdir(ROOT_ID, "d");
    kernel.rmdir(ROOT_ID, "d").unwrap();
    assert_eq!(kernel.lookup(ROOT_ID, "d"), Err(Errno::NOENT));
    // A working directory that was removed.
    kernel.getattr(directory).unwrap();
    let other = kernel.mkdir(ROOT_ID, "d");
    assert_ne!(other, directory);
    let message = build::release(kernel.ids(directory), 0, 0, true);
    kernel.ask(&message).unwrap();
    kernel.getattr(directory).unwrap();
    kernel.forget(&[directory]);
    assert_eq!(kernel.getattr(directory), Err(Errno::STALE));
    // What has a name stays, as does what there is not.
    kernel.forget(&[other]);
    kernel.forget(&[directory, other, ROOT_ID, 3, u64::MAX, 0]);
    assert_eq!(node_of(&kernel.lookup(ROOT_ID, "d").unwrap()), other);
}

#[test]
fn many_are_forgotten_at_once_in_a_small_cache() {
    let disk = disk();
    // No more than one of the transactions fits.
    let mut kernel = Kernel::mount(&disk, Capacity { frames: 60, slots: 8 });
    let mut all = Vec::new();
    for number in 0..600 {
        all.push(kernel.mkdir(ROOT_ID, &format!("{number}")));
        kernel.rmdir(ROOT_ID, &format!("{number}")).unwrap();
    }
    for _ in 0..7 {
        let kept = kernel.mkdir(ROOT_ID, "kept");
        kernel.rmdir(ROOT_ID, "kept").unwrap();
        all.push(kept);
    }
    let before = kernel.again;
    kernel.forget(&all);
    assert!(kernel.again > before, "it was never full");
    for node in all {
        assert_eq!(kernel.getattr(node), Err(Errno::STALE));
    }
}

#[test]
fn what_is_not_forgotten_is_removed_at_the_next_mount() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let nodes: Vec<u64> = (0..40)
        .map(|number| {
            let node = kernel.mkdir(ROOT_ID, &format!("{number}"));
            kernel.rmdir(ROOT_ID, &format!("{number}")).unwrap();
            node
        })
        .collect();
    kernel.checkpoint();
    let mut kernel = Kernel::mount(&disk, ROOM);
    kernel.getattr(nodes[7]).unwrap();
    kernel.module.remove_orphans().unwrap();
    for node in nodes {
        assert_eq!(kernel.getattr(node), Err(Errno::STALE));
    }
}

#[test]
fn extended_attributes_come_as_asked_for() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let node = kernel.mkdir(ROOT_ID, "d");
    let length = |bytes: u32| [bytes.to_ne_bytes(), [0; 4]].concat();
    assert_eq!(kernel.list_extended(node, 0), Ok(length(0)));
    assert_eq!(kernel.list_extended(node, 100), Ok(Vec::new()));
    assert_eq!(kernel.get_extended(node, "user.a", 0), Err(Errno::NODATA));
    // Create, and replace.
    assert_eq!(kernel.set_extended(node, "user.a", b"abc", 2), Err(Errno::NODATA));
    kernel.set_extended(node, "user.a", b"abc", 1).unwrap();
    assert_eq!(kernel.set_extended(node, "user.a", b"abc", 1), Err(Errno::EXIST));
    assert_eq!(kernel.set_extended(node, "user.a", b"abc", 4), Err(Errno::INVAL));
    kernel.set_extended(node, "user.a", b"four", 2).unwrap();
    // So long, too little room, and enough of it.
    assert_eq!(kernel.get_extended(node, "user.a", 0), Ok(length(4)));
    assert_eq!(kernel.get_extended(node, "user.a", 3), Err(Errno::RANGE));
    assert_eq!(kernel.get_extended(node, "user.a", 4).unwrap(), b"four");
    kernel.set_extended(node, "trusted.b", b"", 0).unwrap();
    assert_eq!(kernel.list_extended(node, 0), Ok(length(17)));
    assert_eq!(kernel.list_extended(node, 16), Err(Errno::RANGE));
    assert_eq!(kernel.list_extended(node, 17).unwrap(), b"user.a\0trusted.b\0");
    kernel.uid = 1000;
    assert_eq!(kernel.list_extended(node, 17).unwrap(), b"user.a\0");
    kernel.uid = 0;
    // Names, and how much there can be.
    assert_eq!(kernel.set_extended(node, "system.a", b"", 0), Err(Errno::OPNOTSUPP));
    assert_eq!(kernel.set_extended(node, "user.a", &[0; 65_537], 0), Err(Errno::TOOBIG));
    for number in 0..15 {
        kernel.set_extended(node, &format!("user.{number}"), &[1; 65_536], 0).unwrap();
    }
    assert_eq!(kernel.set_extended(node, "user.15", &[1; 65_536], 0), Err(Errno::NOSPC));
    kernel.checkpoint();
    assert_eq!(kernel.get_extended(node, "user.14", 65_536).unwrap(), [1; 65_536]);
    for number in 0..15 {
        kernel.remove_extended(node, &format!("user.{number}")).unwrap();
    }
    assert_eq!(kernel.remove_extended(node, "user.0"), Err(Errno::NODATA));
    kernel.remove_extended(node, "user.a").unwrap();
    assert_eq!(kernel.list_extended(node, 100).unwrap(), b"trusted.b\0");
    // They go with their file.
    kernel.rmdir(ROOT_ID, "d").unwrap();
    assert_eq!(kernel.get_extended(node, "trusted.b", 100), Ok(Vec::new()));
    kernel.forget(&[node]);
    assert_eq!(kernel.get_extended(node, "trusted.b", 100), Err(Errno::STALE));
}

#[test]
fn a_volume_tells_how_full_it_is() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let statfs = |kernel: &mut Kernel<'_>| {
        let message = build::request(kernel.ids(ROOT_ID), Opcode::STATFS, &[]);
        let body = kernel.ask(&message).unwrap();
        let mut out = Kstatfs::new_zeroed();
        out.as_mut_bytes().copy_from_slice(&body);
        out
    };
    let empty = statfs(&mut kernel);
    assert_eq!((empty.bsize, empty.frsize, empty.namelen), (4096, 4096, 255));
    assert!(empty.blocks > 10_000 && empty.bfree < empty.blocks && empty.bavail <= empty.bfree);
    let nodes: Vec<u64> = (0..20)
        .map(|number| {
            let node = kernel.mkdir(ROOT_ID, &format!("{number}"));
            kernel.set_extended(node, "user.a", &[1; 60_000], 0).unwrap();
            node
        })
        .collect();
    kernel.checkpoint();
    let full = statfs(&mut kernel);
    assert!(full.bfree + 20 * 15 <= empty.bfree, "{full:?}");
    assert_eq!(full.files - full.ffree, empty.files - empty.ffree + 40);
    for number in 0..20 {
        kernel.rmdir(ROOT_ID, &format!("{number}")).unwrap();
    }
    kernel.forget(&nodes);
    kernel.checkpoint();
    let emptied = statfs(&mut kernel);
    assert_eq!(emptied.files - emptied.ffree, empty.files - empty.ffree);
    // What the layers keep of their own may have grown.
    assert!(emptied.bfree + 20 > empty.bfree, "{emptied:?}, not {empty:?}");
}
