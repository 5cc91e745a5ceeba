//! Replies that break the protocol are faults of the daemon, and none of them comes through; those
//! that are only odd do.
#![forbid(unsafe_code)]

use belay_recorder::control::Options;
use belay_recorder::{Capacity, Layout, SlotState, Store};
use belay_session::{Direct, Incoming, Outgoing, Session};
use belay_sys::Mapping;
use belay_wire::abi::*;
use belay_wire::{Ids, Opcode, Rule, Unique, build, push_dirent, push_direntplus};
use std::os::fd::AsFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

const DIR: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// A session in talk with a kernel, and a daemon that says what the test wants.
struct Talk {
    session: Session<Arc<Mapping>>,
    direct: Direct,
    memory: Arc<Mapping>,
    layout: Layout,
    unique: u64,
}

/// What becomes of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Passed,
    Fault(Rule),
}

impl Talk {
    fn new(options: Options) -> Self {
        let layout = Layout::new(Capacity::SMALL);
        let file = rustix::fs::memfd_create("violations", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, layout.bytes() as u64).unwrap();
        let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes()).unwrap());
        let session = Session::attach_with(Store::new(Arc::clone(&memory), layout), 0, options)
            .expect("whole");
        Self { session, direct: Direct::default(), memory, layout, unique: 0 }
    }

    /// The kernel asks about `node`; gives the request's number.
    fn ask(&mut self, node: u64, make: impl FnOnce(Ids) -> Vec<u8>) -> u64 {
        self.unique += 2;
        let mut message = make(Ids { unique: self.unique, nodeid: node, ..Ids::default() });
        assert_eq!(self.session.on_request(&mut message, None, 0), Incoming::Deliver);
        self.session.let_go(&self.direct);
        self.unique
    }

    fn reply(&mut self, message: &[u8]) -> Fate {
        let unique = belay_wire::get_u64(message, 8).unwrap();
        let (head, body) = message.split_at(16);
        let taken = self.direct.take(unique);
        if let Some(expected) = taken
            && expected.is_settled_by(head)
        {
            return match expected.broken(head, body) {
                Some(rule) => Fate::Fault(rule),
                None => {
                    expected.replying(&*self.memory, &self.layout, head, body);
                    expected.delivered(&*self.memory, &self.layout);
                    self.session.reap();
                    Fate::Passed
                }
            };
        }
        match self.session.on_reply(head, || body.into(), taken.is_some()) {
            Outgoing::Fault(rule) => Fate::Fault(rule),
            _ => {
                if let Some(slot) = self.session.take_sending() {
                    belay_recorder::free_slot(&*self.memory, &self.layout, slot);
                    self.session.reap();
                }
                Fate::Passed
            }
        }
    }

    /// Asks and answers with `body`.
    fn exchange(&mut self, make: impl FnOnce(Ids) -> Vec<u8>, body: &[u8]) -> Fate {
        let unique = self.ask(ROOT_ID, make);
        self.reply(&build::reply(unique, body))
    }

    /// A file that the kernel knows: its key.
    fn file(&mut self) -> u64 {
        let entry = entry(7, FILE | 0o644);
        assert_eq!(
            self.exchange(|ids| build::lookup(ids, b"file"), entry.as_bytes()),
            Fate::Passed
        );
        let store = Store::new(Arc::clone(&self.memory), self.layout);
        store.key(store.child(belay_recorder::Node::ROOT, b"file").unwrap())
    }

    fn states(&self) -> Vec<SlotState> {
        let store = Store::new(Arc::clone(&self.memory), self.layout);
        store.slot_requests().map(|(_, request)| request.state).collect()
    }
}

fn entry(id: u64, mode: u32) -> EntryOut {
    let attr = Attr { ino: id + 1000, mode, nlink: 1, ..Attr::default() };
    EntryOut { nodeid: id, attr, ..EntryOut::default() }
}

fn attr(mode: u32) -> Vec<u8> {
    let attr = Attr { ino: 1007, mode, nlink: 1, ..Attr::default() };
    AttrOut { attr, ..AttrOut::default() }.as_bytes().to_vec()
}

fn mkdir(ids: Ids) -> Vec<u8> {
    build::request(ids, Opcode::MKDIR, &[MkdirIn::default().as_bytes(), b"new\0"])
}

fn mknod(mode: u32) -> impl Fn(Ids) -> Vec<u8> {
    move |ids| {
        let head = MknodIn { mode, ..MknodIn::default() };
        build::request(ids, Opcode::MKNOD, &[head.as_bytes(), b"new\0"])
    }
}

fn read(opcode: Opcode, size: u32) -> impl Fn(Ids) -> Vec<u8> {
    move |ids| build::request(ids, opcode, &[ReadIn { size, ..ReadIn::default() }.as_bytes()])
}

fn write(ids: Ids) -> Vec<u8> {
    let head = WriteIn { size: 4, ..WriteIn::default() };
    build::request(ids, Opcode::WRITE, &[head.as_bytes(), b"data"])
}

#[test]
fn lengths_that_no_such_reply_has() {
    let rule = Fate::Fault(Rule::Length);
    for extra in [-8_i64, 8] {
        let sized = |right: usize| vec![0; (right as i64 + extra).max(0) as usize];
        let mut talk = Talk::new(Options::empty());
        let lookup = |ids| build::lookup(ids, b"x");
        assert_eq!(talk.exchange(lookup, &sized(128)), rule);
        assert_eq!(talk.exchange(mkdir, &sized(128)), rule);
        assert_eq!(talk.exchange(|ids| build::getattr(ids, None), &sized(104)), rule);
        assert_eq!(talk.exchange(|ids| build::open(ids, 0), &sized(16)), rule);
        assert_eq!(talk.exchange(write, &sized(8)), rule);
        let statfs = |ids| build::request(ids, Opcode::STATFS, &[]);
        assert_eq!(talk.exchange(statfs, &sized(80)), rule);
        assert_eq!(talk.exchange(|ids| build::getxattr(ids, b"user.a", 0), &sized(8)), rule);
    }
    let mut talk = Talk::new(Options::empty());
    let unlink = |ids| build::request(ids, Opcode::UNLINK, &[b"x\0"]);
    assert_eq!(talk.exchange(unlink, &[0; 8]), rule);
    assert_eq!(talk.exchange(|ids| build::getxattr(ids, b"user.a", 4), &[0; 5]), rule);
    assert_eq!(talk.exchange(build::readlink, &[b'a'; 5000]), rule);
}

#[test]
fn more_than_was_asked_for() {
    let mut talk = Talk::new(Options::empty());
    assert_eq!(talk.exchange(read(Opcode::READ, 4096), &[1; 4097]), Fate::Fault(Rule::Length));
    assert_eq!(talk.exchange(read(Opcode::READDIR, 64), &[1; 65]), Fate::Fault(Rule::Length));
    for size in [0, 4095, 4096] {
        assert_eq!(talk.exchange(read(Opcode::READ, 4096), &vec![1; size]), Fate::Passed);
    }
    let wrote = |size| WriteOut { size, padding: 0 };
    assert_eq!(talk.exchange(write, wrote(5).as_bytes()), Fate::Fault(Rule::Count));
    assert_eq!(talk.exchange(write, wrote(3).as_bytes()), Fate::Passed);
    assert_eq!(talk.exchange(write, wrote(4).as_bytes()), Fate::Passed);
}

#[test]
fn error_numbers() {
    let failing = |unique, error| OutHeader { len: 16, error, unique }.as_bytes().to_vec();
    for (make, what) in [(mkdir as fn(Ids) -> Vec<u8>, "MKDIR"), (write, "WRITE")] {
        for error in [1, 17, i32::MAX, -512, -4095, i32::MIN] {
            let mut talk = Talk::new(Options::empty());
            let unique = talk.ask(ROOT_ID, make);
            let fate = talk.reply(&failing(unique, error));
            assert_eq!(fate, Fate::Fault(Rule::Errno), "{what}: {error}");
            assert_eq!(talk.states(), [SlotState::Started], "it is not answered");
        }
        for error in [-1, -38, -511] {
            let mut talk = Talk::new(Options::empty());
            let unique = talk.ask(ROOT_ID, make);
            assert_eq!(talk.reply(&failing(unique, error)), Fate::Passed, "{what}: {error}");
            assert_eq!(talk.states(), []);
        }
    }
    let mut talk = Talk::new(Options::empty());
    let unique = talk.ask(ROOT_ID, mkdir);
    let mut long = OutHeader { len: 24, error: -5, unique }.as_bytes().to_vec();
    long.extend([0; 8]);
    assert_eq!(talk.reply(&long), Fate::Fault(Rule::Failure));
}

#[test]
fn a_header_that_says_another_length() {
    let mut talk = Talk::new(Options::empty());
    let unique = talk.ask(ROOT_ID, mkdir);
    let mut message = build::reply(unique, entry(9, DIR | 0o755).as_bytes());
    message.truncate(100);
    assert_eq!(talk.reply(&message), Fate::Fault(Rule::Header));
}

#[test]
fn what_was_made_has_a_node_of_its_own_and_of_the_right_type() {
    for (id, mode, rule) in [
        (0, DIR, Rule::Node),
        (ROOT_ID, DIR, Rule::Node),
        (9, FILE, Rule::Asked),
        (9, 0, Rule::Type),
        (9, 0o170_000, Rule::Type),
    ] {
        let mut talk = Talk::new(Options::empty());
        let fate = talk.exchange(mkdir, entry(id, mode).as_bytes());
        assert_eq!(fate, Fate::Fault(rule), "node {id} mode {mode:o}");
    }
    let made =
        |asked, got| Talk::new(Options::empty()).exchange(mknod(asked), entry(9, got).as_bytes());
    assert_eq!(made(FILE, DIR), Fate::Fault(Rule::Asked));
    assert_eq!(made(0o010_644, FILE), Fate::Fault(Rule::Asked));
    assert_eq!(made(0o644, FILE), Fate::Passed, "no type is a file");
    assert_eq!(made(0o010_644, 0o010_644), Fate::Passed);
    let mut endless = entry(9, DIR);
    endless.attr.size = 1 << 63;
    assert_eq!(
        Talk::new(Options::empty()).exchange(mkdir, endless.as_bytes()),
        Fate::Fault(Rule::Size)
    );
}

#[test]
fn a_name_may_be_absent_or_of_any_type() {
    for found in [entry(0, 0), entry(ROOT_ID, DIR), entry(9, 0o060_000)] {
        let lookup = |ids| build::lookup(ids, b"x");
        assert_eq!(Talk::new(Options::empty()).exchange(lookup, found.as_bytes()), Fate::Passed);
    }
    let typeless = Talk::new(Options::empty())
        .exchange(|ids| build::lookup(ids, b"x"), entry(9, 7).as_bytes());
    assert_eq!(typeless, Fate::Fault(Rule::Type));
}

/// Where the daemon has its image to itself, a file stays a file; elsewhere somebody may have put a
/// directory there.
#[test]
fn a_node_of_another_type() {
    for options in [Options::TRANSACTION, Options::empty(), Options::JOURNAL] {
        let wanted =
            if options == Options::TRANSACTION { Fate::Fault(Rule::Known) } else { Fate::Passed };
        let mut talk = Talk::new(options);
        let key = talk.file();
        let unique = talk.ask(key, |ids| build::getattr(ids, None));
        assert_eq!(talk.reply(&build::reply(unique, &attr(FILE | 0o600))), Fate::Passed);
        let unique = talk.ask(key, |ids| build::getattr(ids, None));
        assert_eq!(talk.reply(&build::reply(unique, &attr(DIR | 0o755))), wanted);
        let unique = talk.ask(key, |ids| build::setattr(ids, &SetattrIn::default()));
        assert_eq!(talk.reply(&build::reply(unique, &attr(DIR | 0o755))), wanted);
        let unique = talk.ask(key, |ids| build::getattr(ids, None));
        assert_eq!(talk.reply(&build::reply(unique, &attr(0))), Fate::Fault(Rule::Type));
        let link = |ids| {
            let head = LinkIn { oldnodeid: key };
            build::request(ids, Opcode::LINK, &[head.as_bytes(), b"other\0"])
        };
        assert_eq!(talk.exchange(link, entry(7, DIR | 0o755).as_bytes()), wanted);
    }
}

#[test]
fn entries_of_listings() {
    let record = |name: &[u8], length: u32| {
        let head = Dirent { ino: 5, off: 1, namelen: length, type_: 8 };
        let mut bytes = [head.as_bytes(), name].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    let mut good = Vec::new();
    assert!(push_dirent(&mut good, 4096, 5, 1, 8, b"name"));
    let listing =
        |body: &[u8]| Talk::new(Options::empty()).exchange(read(Opcode::READDIR, 4096), body);
    for bad in [record(b"", 0), record(b"a/b", 3), record(&[b'a'; 2000], 1025), record(b"a", !0)] {
        assert_eq!(listing(&bad), Fate::Fault(Rule::Entry));
        assert_eq!(listing(&[good.clone(), bad].concat()), Fate::Fault(Rule::Entry));
    }
    assert_eq!(listing(&good), Fate::Passed);
    assert_eq!(listing(&[]), Fate::Passed);
    // As the example hello_ll gives it where it finds no room.
    let both = [good.clone(), good.clone()].concat();
    for cut in 1..both.len() {
        assert_eq!(listing(&both[..cut]), Fate::Passed, "{cut} bytes");
    }
    let mut plus = Vec::new();
    assert!(push_direntplus(&mut plus, 4096, &entry(9, FILE), 5, 1, 8, b"name"));
    let listing =
        |body: &[u8]| Talk::new(Options::empty()).exchange(read(Opcode::READDIRPLUS, 4096), body);
    assert_eq!(listing(&plus), Fate::Passed);
    let bad = [EntryOut::default().as_bytes(), &record(b"/", 1)].concat();
    assert_eq!(listing(&bad), Fate::Fault(Rule::Entry));
}

/// Second answers and answers to INTERRUPT are for the kernel to refuse; what it has not asked yet
/// nobody can answer.
#[test]
fn requests_that_there_are_not() {
    let mut talk = Talk::new(Options::empty());
    let unique = talk.ask(ROOT_ID, mkdir);
    let interrupt = InterruptIn { unique };
    let mut message = build::request(
        Ids { unique: unique | 1, ..Ids::default() },
        Opcode::INTERRUPT,
        &[interrupt.as_bytes()],
    );
    assert_eq!(talk.session.on_request(&mut message, None, 0), Incoming::Deliver);
    assert_eq!(talk.reply(&build::reply_error(unique | 1, 11)), Fate::Passed);
    let made = build::reply(unique, entry(9, DIR | 0o755).as_bytes());
    assert_eq!(talk.reply(&made), Fate::Passed);
    assert_eq!(talk.reply(&made), Fate::Passed, "twice");
    for never in [unique + 2, unique + 1000, Unique::own(2).word(), u64::MAX >> 2] {
        assert_eq!(talk.reply(&build::reply_error(never, 5)), Fate::Fault(Rule::Unique), "{never}");
    }
    assert!(talk.session.describe_in_hand(unique + 2).contains("none"));
}

#[test]
fn the_request_is_named() {
    let mut talk = Talk::new(Options::empty());
    let unique = talk.ask(ROOT_ID, mkdir);
    let text = talk.session.describe_in_hand(unique);
    assert!(text.contains("MKDIR") && text.contains("name=\"new\""), "{text}");
}
