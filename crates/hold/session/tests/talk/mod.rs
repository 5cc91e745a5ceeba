//! A session in talk with a kernel and a daemon whose every reply the test gives.

// Each test program uses a part of it.
#![allow(dead_code)]

use belay_memory::Memory;
use belay_oplog::Oplog;
use belay_recorder::control::{Loss, Options};
use belay_recorder::{Capacity, Control, Layout, Store};
use belay_session::{Incoming, Outgoing, Session, Work};
use belay_sys::Mapping;
use belay_wire::abi::OutHeader;
use belay_wire::{Attr, EntryOut, Ids, Opcode, OpenOut, ROOT_ID, Request, Unique, build};
use std::os::fd::AsFd;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// The op-log of a session that keeps one, behind all else.
const OPLOG: belay_oplog::Capacity = belay_oplog::Capacity { record_bytes: 64 << 10, pages: 64 };

pub struct Talk {
    pub session: Session<Arc<Mapping>>,
    memory: Arc<Mapping>,
    layout: Layout,
    generation: u32,
    pub unique: u64,
    epochs: bool,
    copies: bool,
    chosen: Options,
}

impl Talk {
    pub fn new() -> Self {
        Self::with(Options::empty())
    }

    /// Under the policy `epoch`.
    pub fn logged() -> Self {
        Self::with(Options::EPOCH)
    }

    /// Under the policy `buffer`, of a daemon that stores a file when that is flushed.
    pub fn buffered() -> Self {
        Self::with(Options::EPOCH | Options::BUFFER | Options::BUFFER_FILES)
    }

    /// Of one that stores it when it is closed; with `release`, by nothing else.
    pub fn buffered_by_close(release: bool) -> Self {
        let by_close = Options::BUFFER_FILES | Options::BUFFER_CLOSE;
        let more = if release { Options::BUFFER_RELEASE } else { Options::empty() };
        Self::with(Options::EPOCH | Options::BUFFER | by_close | more)
    }

    /// Of a daemon whose inode numbers mean nothing to its next life.
    pub fn volatile() -> Self {
        Self::with(Options::VOLATILE_INODES)
    }

    /// Of a daemon that keeps records of what it has done.
    pub fn recorded() -> Self {
        Self::with(Options::RECORDS)
    }

    /// Under the policy `epoch` with a kernel that cannot send requests again.
    pub fn logged_with_copies() -> Self {
        Self::with(Options::EPOCH | Options::NO_RESEND)
    }

    /// With room for a mount that is much used.
    pub fn large() -> Self {
        let large =
            Capacity { nodes: 1 << 14, handles: 1 << 11, heap_words: 1 << 20, ..Capacity::SMALL };
        Self::within(Options::empty(), large)
    }

    fn with(chosen: Options) -> Self {
        Self::within(chosen, Capacity::SMALL)
    }

    /// With records of that capacity.
    pub fn within(chosen: Options, capacity: Capacity) -> Self {
        let epochs = chosen.contains(Options::EPOCH);
        let copies = chosen.contains(Options::NO_RESEND);
        let epoch_bytes = if epochs { OPLOG.words() * 8 } else { 0 };
        let copy_bytes = if copies { 4096 } else { 0 };
        let layout = Layout::new(Capacity { epoch_bytes, copy_bytes, ..capacity });
        let file = rustix::fs::memfd_create("talk", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, layout.bytes() as u64).unwrap();
        let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes()).unwrap());
        let session = Session::attach_with(Store::new(Arc::clone(&memory), layout), 0, chosen)
            .expect("whole");
        let (generation, unique) = (0, 0);
        let mut talk = Self { session, memory, layout, generation, unique, epochs, copies, chosen };
        talk.attach();
        talk
    }

    fn attach(&mut self) {
        let store = Store::new(Arc::clone(&self.memory), self.layout);
        self.session = Session::attach_with(store, self.generation, self.chosen).expect("whole");
        if self.epochs {
            self.session.set_epochs(1, 0);
            self.session.keep_log(self.log()).unwrap();
        }
    }

    /// What was told to be lost.
    pub fn losses(&self) -> Vec<(Loss, String)> {
        Control::new(&self.memory, self.layout).losses_since(0).0
    }

    /// What is on record of what was answered.
    pub fn log(&self) -> Oplog<Arc<Mapping>> {
        Oplog::open(Arc::clone(&self.memory), self.layout.epochs, OPLOG, 1).unwrap()
    }

    /// The daemon dies, and its successor begins; nothing was in flight.
    pub fn die(&mut self) {
        self.generation += 1;
        self.attach();
    }

    /// The same by its own doing.
    pub fn die_by_itself(&mut self) {
        self.session.control().set_blame(self.generation, belay_recorder::Blame::Own);
        self.die();
    }

    /// The same, where there is nothing to be replayed.
    pub fn crash(&mut self) {
        self.die();
        assert_eq!(self.session.work(0), None);
    }

    /// The kernel's next request; what the daemon gets at once, if it gets it at once.
    pub fn ask(&mut self, nodeid: u64, make: impl FnOnce(Ids) -> Vec<u8>) -> Option<Vec<u8>> {
        self.unique += 2;
        let mut message = make(Ids { unique: self.unique, nodeid, ..Ids::default() });
        let slot = self.copies.then(|| self.session.claim_slot().unwrap());
        if let Some(slot) = slot {
            let (at, most) = self.session.store().slot_copy(slot);
            assert!(message.len() <= most);
            self.memory.store_bytes(at / 8, &message);
        }
        let incoming = self.session.on_request(&mut message, slot, 0);
        (incoming == Incoming::Deliver).then_some(message)
    }

    /// The kernel sends a request again, after a crash.
    pub fn resend(&mut self, mut message: Vec<u8>) {
        let unique = Unique::marked(belay_wire::get_u64(&message, 8).unwrap());
        assert!(belay_wire::put_u64(&mut message, 8, unique));
        let incoming = self.session.on_request(&mut message, None, 0);
        assert_eq!(incoming, Incoming::Taken);
    }

    /// What is to be done next.
    pub fn work(&mut self) -> Option<Work> {
        self.session.work(0)
    }

    /// The request that the daemon gets next.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        match self.session.work(0) {
            Some(Work::Deliver(message)) => Some(message),
            Some(Work::DeliverWith(mut message, data)) => {
                message.extend(data.to_vec(&self.memory));
                Some(message)
            }
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    /// What the kernel is answered next without the daemon: request and error.
    pub fn next_answer(&mut self) -> (u64, i32) {
        let Some(Work::Answer(reply)) = self.session.work(0) else { panic!("no answer") };
        let header = OutHeader::read_from_prefix(&reply).unwrap().0;
        self.session.on_delivered(header.unique);
        (Unique::unmarked(header.unique), -header.error)
    }

    /// The request that the daemon gets next: opcode, names and unique.
    pub fn next(&mut self) -> (Opcode, Vec<String>, u64) {
        told(&self.next_message().expect("a request"))
    }

    /// The daemon's reply; if it is an entry, what the kernel gets.
    pub fn reply(&mut self, unique: u64, body: &[u8]) -> Option<EntryOut> {
        self.answer(unique, body)
    }

    /// The daemon's reply, and what the kernel gets if that is something else.
    pub fn answer<T: FromBytes>(&mut self, unique: u64, body: &[u8]) -> Option<T> {
        match self.say(unique, body) {
            Outgoing::Replace(reply) => {
                T::read_from_prefix(&reply.as_bytes()[16..]).ok().map(|(reply, _)| reply)
            }
            _ => None,
        }
    }

    /// The daemon's reply that a request has failed.
    pub fn refuse(&mut self, unique: u64, errno: i32) {
        self.take(unique, &build::reply_error(unique, errno));
    }

    /// The daemon's reply, and what becomes of it.
    pub fn say(&mut self, unique: u64, body: &[u8]) -> Outgoing {
        self.take(unique, &build::reply(unique, body))
    }

    fn take(&mut self, unique: u64, message: &[u8]) -> Outgoing {
        let outgoing = self.session.on_reply(message, || message[16..].into(), false);
        if !matches!(outgoing, Outgoing::Unrecordable | Outgoing::Swallow) {
            self.session.on_delivered(unique);
        }
        outgoing
    }

    /// LOOKUP of a link: the kernel's node and inode number.
    pub fn lookup(&mut self, name: &str, id: u64, ino: u64) -> (u64, u64) {
        assert!(self.ask(ROOT_ID, |ids| build::lookup(ids, name.as_bytes())).is_some());
        let entry = self.reply(self.unique, link(id, ino).as_bytes()).unwrap();
        (entry.nodeid, entry.attr.ino)
    }

    /// OPEN: the kernel's handle.
    pub fn open(&mut self, node: u64) -> u64 {
        self.open_with(node, 0)
    }

    /// The same with flags of open(2).
    pub fn open_with(&mut self, node: u64, flags: u32) -> u64 {
        assert!(self.ask(node, |ids| build::open(ids, flags)).is_some());
        let open = OpenOut { fh: 1, ..OpenOut::default() };
        self.answer(self.unique, open.as_bytes()).map_or(0, |open: OpenOut| open.fh)
    }

    /// Has the open file `name` in `dir` unlinked: it is renamed, and the kernel is answered. Gives
    /// its hidden name.
    pub fn hide(&mut self, dir: u64, name: &str) -> String {
        assert!(self.ask(dir, |ids| build::unlink(ids, name.as_bytes())).is_none());
        let (opcode, names, unique) = self.next();
        assert_eq!((opcode, names[0].as_str()), (Opcode::RENAME, name));
        self.reply(unique, &[]);
        assert!(matches!(self.session.work(0), Some(Work::Answer(_))));
        self.session.on_delivered(self.unique);
        names[1].clone()
    }

    /// Renames `b` over the open file `a`, up to what comes behind the LINK that keeps that file:
    /// its hidden name, and what the daemon gets next but for FORGET. The daemon calls the link
    /// `id`.
    pub fn rename_over(&mut self, id: u64, ino: u64) -> (String, (Opcode, Vec<String>, u64)) {
        assert!(self.ask(ROOT_ID, |ids| build::rename(ids, ROOT_ID, b"b", b"a")).is_none());
        let (opcode, names, unique) = self.next();
        assert_eq!(opcode, Opcode::LINK);
        let hidden = names[0].clone();
        assert!(hidden.starts_with(".belay-hidden-"), "{hidden}");
        self.reply(unique, link(id, ino).as_bytes());
        loop {
            let next = self.next();
            if next.0 != Opcode::FORGET {
                break (hidden, next);
            }
        }
    }
}

/// What a daemon says of a file with two links.
pub fn link(id: u64, ino: u64) -> EntryOut {
    let attr = Attr { ino, mode: 0o100_644, nlink: 2, ..Attr::default() };
    EntryOut { nodeid: id, attr, ..EntryOut::default() }
}

/// Opcode, names and unique of a request.
pub fn told(message: &[u8]) -> (Opcode, Vec<String>, u64) {
    let request = Request::parse(message).unwrap();
    let names = request.names();
    let names = names.first.into_iter().chain(names.second);
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    (request.opcode(), names, request.header.unique)
}
