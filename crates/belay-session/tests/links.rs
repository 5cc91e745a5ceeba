//! Daemons that give each hard link of a file a node of its own, as libfuse's high level does: what the session asks
//! them, and which node it takes for which file. The simulated daemon of `crash.rs` has one node for each file.
#![forbid(unsafe_code)]

use belay_recorder::{Capacity, Layout, Store};
use belay_session::{Incoming, Outgoing, Session, Work};
use belay_sys::Mapping;
use belay_wire::{Attr, EntryOut, Ids, Opcode, OpenOut, ROOT_ID, Request, build};
use std::os::fd::AsFd;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

const INO: u64 = 7;

/// A session in talk with a kernel and a daemon.
struct Talk {
    session: Session<Arc<Mapping>>,
    memory: Arc<Mapping>,
    layout: Layout,
    generation: u32,
    unique: u64,
}

impl Talk {
    fn new() -> Self {
        let layout = Layout::new(Capacity::SMALL);
        let file = rustix::fs::memfd_create("links", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, layout.bytes() as u64).unwrap();
        let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes()).unwrap());
        let session = Session::attach(Store::new(Arc::clone(&memory), layout), 0);
        Self { session, memory, layout, generation: 0, unique: 0 }
    }

    /// The daemon dies; nothing was in flight.
    fn crash(&mut self) {
        self.generation += 1;
        let store = Store::new(Arc::clone(&self.memory), self.layout);
        self.session = Session::attach(store, self.generation);
        assert_eq!(self.session.work(0), None);
    }

    /// The kernel's next request; what the daemon gets at once, if it gets it at once.
    fn ask(&mut self, nodeid: u64, make: impl FnOnce(Ids) -> Vec<u8>) -> Option<Vec<u8>> {
        self.unique += 2;
        let mut message = make(Ids { unique: self.unique, nodeid, ..Ids::default() });
        let incoming = self.session.on_request(&mut message, None, 0);
        (incoming == Incoming::Deliver).then_some(message)
    }

    /// The request that the daemon gets next: opcode, names and unique.
    fn next(&mut self) -> (Opcode, Vec<String>, u64) {
        let Some(Work::Deliver(message)) = self.session.work(0) else { panic!("no request") };
        told(&message)
    }

    /// The daemon's reply; if it is an entry, what the kernel gets.
    fn reply(&mut self, unique: u64, body: &[u8]) -> Option<EntryOut> {
        let message = build::reply(unique, body);
        let outgoing = self.session.on_reply(&message, || message[16..].into(), false);
        self.session.on_delivered(unique);
        match outgoing {
            Outgoing::Replace(reply) => {
                EntryOut::read_from_prefix(&reply.as_bytes()[16..]).ok().map(|(entry, _)| entry)
            }
            _ => None,
        }
    }

    /// LOOKUP of a link: the kernel's node and inode number.
    fn lookup(&mut self, name: &str, id: u64, ino: u64) -> (u64, u64) {
        assert!(self.ask(ROOT_ID, |ids| build::lookup(ids, name.as_bytes())).is_some());
        let entry = self.reply(self.unique, link(id, ino).as_bytes()).unwrap();
        (entry.nodeid, entry.attr.ino)
    }

    fn open(&mut self, node: u64) {
        assert!(self.ask(node, |ids| build::open(ids, 0)).is_some());
        self.reply(self.unique, OpenOut { fh: 1, ..OpenOut::default() }.as_bytes());
    }

    /// Renames `b` over the open file `a` of the daemon's id 10, up to what comes behind the rename to the hidden name.
    fn rename_over(&mut self) {
        assert!(self.ask(ROOT_ID, |ids| build::rename(ids, ROOT_ID, b"b", b"a")).is_none());
        let (opcode, names, unique) = self.next();
        assert_eq!(opcode, Opcode::LINK);
        let hidden = names[0].clone();
        assert!(hidden.starts_with(".belay-hidden-"), "{hidden}");
        self.reply(unique, link(12, INO).as_bytes());
        // The link is forgotten, in whichever order.
        let (opcode, names, unique) = loop {
            let next = self.next();
            if next.0 != Opcode::FORGET {
                break next;
            }
        };
        assert_eq!((opcode, names), (Opcode::RENAME, vec!["a".to_owned(), hidden]));
        self.reply(unique, &[]);
    }
}

fn link(id: u64, ino: u64) -> EntryOut {
    let attr = Attr { ino, mode: 0o100_644, nlink: 2, ..Attr::default() };
    EntryOut { nodeid: id, attr, ..EntryOut::default() }
}

fn told(message: &[u8]) -> (Opcode, Vec<String>, u64) {
    let request = Request::parse(message).unwrap();
    let names = request.names();
    let names = names.first.into_iter().chain(names.second);
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    (request.opcode(), names, request.header.unique)
}

/// Both names are links of one file: without the UNLINK, the daemon's rename(2) would do nothing and `b` stay.
#[test]
fn a_link_renamed_over_another_that_is_open() {
    let mut talk = Talk::new();
    let (target, _) = talk.lookup("a", 10, INO);
    talk.lookup("b", 11, INO);
    talk.open(target);
    talk.rename_over();
    let (opcode, names, unique) = talk.next();
    assert_eq!((opcode, names), (Opcode::UNLINK, vec!["a".to_owned()]));
    talk.reply(unique, &[]);
    let (opcode, names, unique) = talk.next();
    assert_eq!(
        (opcode, names, unique),
        (Opcode::RENAME, vec!["b".into(), "a".into()], talk.unique)
    );
}

/// Two files: the target's name is there until the rename replaces what it means.
#[test]
fn another_file_renamed_over_one_that_is_open() {
    let mut talk = Talk::new();
    let (target, _) = talk.lookup("a", 10, INO);
    talk.lookup("b", 11, INO + 1);
    talk.open(target);
    talk.rename_over();
    let (opcode, names, unique) = talk.next();
    assert_eq!(
        (opcode, names, unique),
        (Opcode::RENAME, vec!["b".into(), "a".into()], talk.unique)
    );
}

/// A file known as `a`, a link `b` of it that the daemon calls `id` and that the kernel forgets; then a crash. Whether
/// the kernel is told that `b`, looked up again, is the node that it has.
fn is_one_node_after_a_crash(id: u64) -> bool {
    let mut talk = Talk::new();
    let (file, _) = talk.lookup("a", 10, INO);
    assert!(talk.ask(ROOT_ID, |ids| build::link(ids, file, b"b")).is_some());
    let made = talk.reply(talk.unique, link(id, INO).as_bytes()).unwrap().nodeid;
    assert_eq!(made == file, id == 10);
    talk.ask(made, |ids| build::forget(ids, 1));
    talk.crash();
    talk.lookup("b", 20, INO).0 == file
}

/// As before the crash, which the kernel must not notice.
#[test]
fn links_are_one_node_after_a_crash_if_they_were_before() {
    assert!(is_one_node_after_a_crash(10));
    assert!(!is_one_node_after_a_crash(11));
}

/// One number that is not the node's id shows that the daemon's numbers mean something.
#[test]
fn a_number_that_is_the_id_by_chance() {
    let mut talk = Talk::new();
    assert_eq!(talk.lookup("a", 10, INO).1, INO);
    assert_eq!(talk.lookup("b", 11, 11).1, 11);
    talk.crash();
    assert_eq!(talk.lookup("c", 12, 12).1, 12);
}
