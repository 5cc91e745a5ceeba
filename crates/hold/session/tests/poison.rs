//! Whom the session blames for the death of a daemon: at which steps, and for which deaths.
#![forbid(unsafe_code)]

use belay_memory::Memory;
use belay_recorder::control::{Counter, Options};
use belay_recorder::{Blame, Capacity, Layout, SlotState, Store};
use belay_session::{Incoming, Phase, Session, Work};
use belay_sys::Mapping;
use belay_wire::abi::OutHeader;
use belay_wire::errno::EIO;
use belay_wire::{Attr, EntryOut, Ids, Opcode, OpenOut, ROOT_ID, Request, Unique, build};
use std::os::fd::AsFd;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Longer than one request may hold up the others, in nanoseconds.
const LONG: u64 = 2_000_000_000;

/// A session in talk with a kernel that can resend, and daemons that die.
struct Talk {
    session: Session<Arc<Mapping>>,
    memory: Arc<Mapping>,
    layout: Layout,
    generation: u32,
    /// What the kernel has given out and got no reply to.
    in_flight: Vec<Vec<u8>>,
    /// The kernel cannot resend.
    copies: bool,
}

impl Talk {
    fn new() -> Self {
        let layout = Layout::new(Capacity { copy_bytes: 4096, ..Capacity::SMALL });
        let file = rustix::fs::memfd_create("poison", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, layout.bytes() as u64).unwrap();
        let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes()).unwrap());
        let session = Session::attach(Store::new(Arc::clone(&memory), layout), 0).expect("whole");
        session.control().set_poison_after(2);
        Self { session, memory, layout, generation: 0, in_flight: Vec::new(), copies: false }
    }

    /// With a kernel that cannot resend: the session keeps copies.
    fn with_copies() -> Self {
        let mut talk = Self::new();
        talk.session.keep_copies();
        talk.copies = true;
        talk
    }

    /// The kernel's next request.
    fn ask(&mut self, message: Vec<u8>) -> Incoming {
        self.in_flight.push(message.clone());
        let slot = self.copies.then(|| self.session.claim_slot().unwrap());
        if let Some(slot) = slot {
            self.memory.store_bytes(self.session.store().slot_copy(slot).0 / 8, &message);
        }
        self.session.on_request(&mut message.clone(), slot, 0)
    }

    fn mkdir(&mut self, unique: u64, name: &str) -> Incoming {
        self.ask(mkdir(unique, name))
    }

    fn attach(&mut self) {
        self.generation += 1;
        let store = Store::new(Arc::clone(&self.memory), self.layout);
        let options = if self.copies { Options::NO_RESEND } else { Options::empty() };
        self.session = Session::attach_with(store, self.generation, options).expect("whole");
    }

    /// The daemon dies, and its successor is given what was in flight.
    fn die(&mut self, blame: Blame) {
        self.session.control().set_blame(self.generation, blame);
        self.attach();
        for message in self.in_flight.iter_mut().filter(|_| !self.copies) {
            let unique = Unique::marked(belay_wire::get_u64(message, 8).unwrap());
            assert!(belay_wire::put_u64(message, 8, unique));
            assert_eq!(self.session.on_request(&mut message.clone(), None, 0), Incoming::Taken);
        }
    }

    /// What the daemon gets next: opcode, name, unique.
    fn next(&mut self) -> (Opcode, String, u64) {
        let Some(Work::Deliver(message)) = self.session.work(0) else { panic!("no request") };
        let request = Request::parse(&message).unwrap();
        let name = String::from_utf8_lossy(request.names().first.unwrap_or(&[])).into_owned();
        (request.opcode(), name, request.header.unique)
    }

    fn reply(&mut self, message: &[u8]) {
        self.session.on_reply(message, || message[16..].into(), false);
        let unique = belay_wire::get_u64(message, 8).unwrap();
        self.session.on_delivered(unique);
        let is = |held: &Vec<u8>| belay_wire::get_u64(held, 8) == Some(unique);
        self.in_flight.retain(|held| !is(held));
    }

    /// The successor is asked about a name, which it does not have, and is then given the MKDIR.
    fn reissue(&mut self, name: &str) -> u64 {
        let (opcode, asked, unique) = self.next();
        assert_eq!((opcode, asked.as_str()), (Opcode::LOOKUP, name));
        self.reply(&build::reply_error(unique, 2));
        let (opcode, asked, unique) = self.next();
        assert_eq!((opcode, asked.as_str()), (Opcode::MKDIR, name));
        unique
    }

    /// The session answers a request by itself: which, and how.
    fn answered(&mut self) -> (u64, i32) {
        let Some(Work::Answer(reply)) = self.session.work(0) else { panic!("no answer") };
        let header = OutHeader::read_from_prefix(&reply).unwrap().0;
        self.session.on_delivered(header.unique);
        let unique = Unique::unmarked(header.unique);
        let of = |held: &Vec<u8>| Unique::unmarked(belay_wire::get_u64(held, 8).unwrap());
        self.in_flight.retain(|held| of(held) != unique);
        (unique, -header.error)
    }

    fn poisoned(&self) -> u64 {
        self.session.control().counter(Counter::Poisoned)
    }

    fn failed(&self) -> u64 {
        self.session.control().counter(Counter::Failed)
    }

    fn slots_in_use(&self) -> usize {
        let store = Store::new(Arc::clone(&self.memory), self.layout);
        let slots = (0..store.slots()).map(belay_recorder::Slot);
        slots.filter_map(|slot| store.slot_request(slot)).count()
    }
}

fn mkdir(unique: u64, name: &str) -> Vec<u8> {
    let ids = Ids { unique, nodeid: ROOT_ID, ..Ids::default() };
    let head = belay_wire::abi::MkdirIn { mode: 0o755, umask: 0 };
    build::request(ids, Opcode::MKDIR, &[head.as_bytes(), name.as_bytes(), b"\0"])
}

fn dir(id: u64) -> EntryOut {
    let attr = Attr { ino: id, mode: 0o040_755, nlink: 2, ..Attr::default() };
    EntryOut { nodeid: id, attr, ..EntryOut::default() }
}

#[test]
fn who_was_alone_at_the_second_crash_fails_and_nobody_else() {
    let mut talk = Talk::new();
    for (unique, name) in [(2, "a"), (4, "b"), (6, "c")] {
        assert_eq!(talk.mkdir(unique, name), Incoming::Deliver);
    }
    talk.die(Blame::Own);
    // `a` is settled; `b` kills.
    let unique = talk.reissue("a");
    talk.reply(&build::reply(unique, dir(10).as_bytes()));
    talk.reissue("b");
    talk.die(Blame::Own);
    assert_eq!(talk.answered(), (4, EIO));
    // In flight at both crashes, and not to blame.
    let unique = talk.reissue("c");
    talk.reply(&build::reply(unique, dir(11).as_bytes()));
    assert_eq!(talk.session.work(0), None);
    assert_eq!((talk.session.phase(), talk.poisoned()), (Phase::Open, 1));
    assert_eq!((talk.slots_in_use(), talk.in_flight.len()), (0, 0));
    let decisions = talk.session.control().decisions_since(0);
    let failed: Vec<_> = decisions.iter().filter(|decision| decision.errno != 0).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].row, failed[0].unique), (11, 4));
    assert!(failed[0].text.contains("name=\"b\""), "{}", failed[0].text);
}

#[test]
fn deaths_among_others_say_nothing() {
    let mut talk = Talk::new();
    talk.mkdir(2, "a");
    for _ in 0..10 {
        // Each successor settles it, and the next request is in flight at the next crash.
        talk.die(Blame::Own);
        let unique = talk.reissue("a");
        talk.reply(&build::reply_error(unique, 28));
        assert_eq!(talk.session.work(0), None);
        talk.mkdir(2, "a");
    }
    // Nor does it that successors die before they are given anything.
    for _ in 0..10 {
        talk.die(Blame::Own);
    }
    talk.reissue("a");
    assert_eq!(talk.poisoned(), 0);
}

#[test]
fn kills_from_outside_take_three_more() {
    let mut talk = Talk::new();
    talk.mkdir(2, "a");
    talk.die(Blame::Unknown);
    for _ in 0..4 {
        talk.reissue("a");
        talk.die(Blame::Unknown);
    }
    assert_eq!(talk.answered(), (2, EIO));
}

#[test]
fn none_fails_if_that_is_not_wanted() {
    let mut talk = Talk::new();
    talk.session.control().set_poison_after(0);
    talk.mkdir(2, "a");
    for _ in 0..300 {
        talk.die(Blame::Own);
        talk.reissue("a");
    }
    assert_eq!(talk.poisoned(), 0);
}

#[test]
fn a_question_asked_in_its_name_counts_less_than_the_request() {
    for blame in [Blame::Own, Blame::Hang] {
        let mut talk = Talk::new();
        talk.mkdir(2, "a");
        talk.die(Blame::Own);
        for _ in 0..4 {
            assert_eq!(talk.next().0, Opcode::LOOKUP);
            talk.die(blame);
        }
        // Each daemon died of its own before it had the request: that must have an end.
        assert_eq!(talk.answered(), (2, EIO));
    }
}

/// The request itself has not been there yet: it is not to blame for what may come from outside.
#[test]
fn no_request_fails_for_kills_on_the_way_to_it() {
    for blame in [Blame::Unknown, Blame::Outside] {
        let mut talk = Talk::new();
        talk.mkdir(2, "a");
        talk.die(blame);
        for _ in 0..300 {
            assert_eq!(talk.next().0, Opcode::LOOKUP);
            talk.die(blame);
        }
        let unique = talk.reissue("a");
        talk.reply(&build::reply(unique, dir(10).as_bytes()));
        assert_eq!((talk.poisoned(), talk.failed()), (0, 0));
    }
}

#[test]
fn known_outsiders_never_count() {
    let mut talk = Talk::new();
    talk.mkdir(2, "a");
    talk.die(Blame::Outside);
    for _ in 0..300 {
        talk.reissue("a");
        talk.die(Blame::Outside);
    }
    let unique = talk.reissue("a");
    talk.reply(&build::reply(unique, dir(10).as_bytes()));
    assert_eq!((talk.poisoned(), talk.failed()), (0, 0));
}

/// A node comes back when a request names it. Here the kernel has that request read by a daemon
/// that dies before it has got it, so there is no slot for it.
#[test]
fn what_kills_when_a_node_is_restored_fails_in_the_end() {
    let mut talk = Talk::new();
    talk.mkdir(2, "d");
    talk.reply(&build::reply(2, dir(10).as_bytes()));
    let store = Store::new(Arc::clone(&talk.memory), talk.layout);
    let node = store.child(belay_recorder::Node::ROOT, b"d").unwrap();
    let ids = |unique| Ids { unique, nodeid: store.key(node), ..Ids::default() };
    talk.in_flight.push(build::getattr(ids(4), None));
    talk.die(Blame::Own);
    assert_eq!(talk.slots_in_use(), 0);
    for _ in 0..4 {
        assert_eq!(talk.next().0, Opcode::LOOKUP);
        assert_eq!(talk.slots_in_use(), 1);
        talk.die(Blame::Own);
    }
    assert_eq!(talk.answered(), (4, EIO));
    assert_eq!(talk.session.work(0), None);
    assert_eq!(talk.slots_in_use(), 0);
    // It is the request that failed, not the node: the next one tries again.
    talk.ask(build::getattr(ids(6), None));
    assert_eq!(talk.next().0, Opcode::LOOKUP);
}

#[test]
fn what_holds_up_the_others_is_to_blame_for_hangs_only() {
    for blame in [Blame::Own, Blame::Unknown, Blame::Hang] {
        let mut talk = Talk::new();
        talk.mkdir(2, "slow");
        talk.mkdir(4, "b");
        talk.die(Blame::Own);
        talk.reissue("slow");
        talk.session.tick(LONG);
        assert_eq!(talk.session.phase(), Phase::Open);
        // Now `b` is there as well, and may be to blame if the daemon crashes.
        talk.reissue("b");
        talk.die(blame);
        // What has held up the others does so last.
        let unique = talk.reissue("b");
        talk.reply(&build::reply(unique, dir(10).as_bytes()));
        if blame == Blame::Hang {
            assert_eq!(talk.answered(), (2, EIO));
        } else {
            let unique = talk.reissue("slow");
            talk.reply(&build::reply(unique, dir(11).as_bytes()));
            assert_eq!(talk.session.work(0), None);
        }
        assert_eq!(talk.poisoned(), u64::from(blame == Blame::Hang), "{blame:?}");
        assert_eq!((talk.slots_in_use(), talk.in_flight.len()), (0, 0));
    }
}

/// Of two deadly requests, the one that takes its time must not keep the other from being found
/// out.
#[test]
fn one_that_is_slow_to_kill_does_not_hide_another() {
    let mut talk = Talk::new();
    talk.mkdir(2, "slow");
    talk.mkdir(4, "b");
    talk.die(Blame::Own);
    talk.reissue("slow");
    talk.session.tick(LONG);
    talk.reissue("b");
    talk.die(Blame::Own);
    talk.reissue("b");
    talk.die(Blame::Own);
    assert_eq!(talk.answered(), (4, EIO));
    talk.reissue("slow");
}

/// The first successor after the death may itself die before it has looked at that; the next must
/// not take the second death for the first.
#[test]
fn a_death_is_judged_once_and_by_its_own_blame() {
    let mut talk = Talk::new();
    talk.mkdir(2, "a");
    talk.die(Blame::Own);
    talk.reissue("a");
    // Killed by somebody. Its successor dies of its own before it has attached.
    talk.session.control().set_blame(talk.generation, Blame::Unknown);
    talk.generation += 1;
    talk.die(Blame::Own);
    let unique = talk.reissue("a");
    talk.reply(&build::reply(unique, dir(10).as_bytes()));
    assert_eq!(talk.poisoned(), 0);
}

#[test]
fn a_recorded_reply_is_sent_whatever_happened_before() {
    let mut talk = Talk::new();
    talk.mkdir(2, "a");
    talk.die(Blame::Own);
    let unique = talk.reissue("a");
    let reply = build::reply(unique, dir(10).as_bytes());
    talk.session.on_reply(&reply, || reply[16..].into(), false);
    let store = Store::new(Arc::clone(&talk.memory), talk.layout);
    let states: Vec<_> = (0..store.slots())
        .filter_map(|slot| store.slot_request(belay_recorder::Slot(slot)))
        .map(|request| request.state)
        .collect();
    assert_eq!(states, [SlotState::Replied]);
    talk.die(Blame::Own); // before the kernel has it
    assert_eq!(talk.answered(), (2, 0));
    assert_eq!(talk.poisoned(), 0);
}

/// The thread that has the reply may be slow to write it, and the next request is under way by
/// then.
#[test]
fn who_has_answered_is_not_to_blame_for_what_comes_next() {
    let mut talk = Talk::with_copies();
    let ids = Ids { unique: 2, nodeid: ROOT_ID, ..Ids::default() };
    assert_eq!(talk.ask(build::lookup(ids, b"absent")), Incoming::Deliver);
    assert_eq!(talk.mkdir(4, "deadly"), Incoming::Deliver);
    talk.die(Blame::Own);
    assert_eq!(talk.next(), (Opcode::LOOKUP, "absent".into(), 2));
    // Not delivered.
    let reply = build::reply_error(2, 2);
    talk.session.on_reply(&reply, || [].as_slice().into(), false);
    talk.reissue("deadly");
    talk.die(Blame::Own);
    assert_eq!(talk.next(), (Opcode::LOOKUP, "absent".into(), 2));
    talk.reply(&reply);
    assert_eq!(talk.answered(), (4, EIO));
    assert_eq!((talk.poisoned(), talk.failed()), (1, 1));
}

/// The kernel closes a directory after it has got all that it has asked of it. The thread that has
/// given it that may not have said so.
#[test]
fn copies_of_requests_that_were_answered_are_dropped() {
    let mut talk = Talk::with_copies();
    let ids = |unique| Ids { unique, nodeid: ROOT_ID, ..Ids::default() };
    talk.ask(build::opendir(ids(2), 0));
    let opened = OpenOut { fh: 70, ..OpenOut::default() };
    let reply = build::reply(2, opened.as_bytes());
    talk.session.on_reply(&reply, || reply[16..].into(), false);
    talk.session.on_delivered(2);
    talk.in_flight.clear();
    let fh = talk.session.store().live_handles().map(|h| talk.session.store().handle_key(h)).next();
    let fh = fh.unwrap();
    talk.ask(build::readdir(ids(4), fh, 0, 4096));
    let reply = build::reply(4, &[]);
    talk.session.on_reply(&reply, || [].as_slice().into(), false);
    // The kernel has that reply, and closes the directory.
    talk.ask(build::release(ids(6), fh, 0, true));
    talk.reply(&build::reply_ok(6));
    talk.mkdir(8, "a");
    for _ in 0..3 {
        talk.die(Blame::Unknown);
        talk.reissue("a");
    }
    assert_eq!((talk.failed(), talk.slots_in_use()), (0, 1));
}

/// An error that the daemon gives on the way to a file, and a file whose last name is gone: it
/// would fail without belay too.
#[test]
fn what_a_daemon_answers_is_no_failure_of_belays() {
    for errno in [13, 2] {
        let mut talk = Talk::new();
        talk.mkdir(2, "d");
        talk.reply(&build::reply(2, dir(10).as_bytes()));
        let store = Store::new(Arc::clone(&talk.memory), talk.layout);
        let node = store.child(belay_recorder::Node::ROOT, b"d").unwrap();
        let ids = Ids { unique: 4, nodeid: store.key(node), ..Ids::default() };
        talk.in_flight.push(build::getattr(ids, None));
        talk.die(Blame::Own);
        let (opcode, _, unique) = talk.next();
        assert_eq!(opcode, Opcode::LOOKUP);
        talk.reply(&build::reply_error(unique, errno));
        let (unique, answered) = talk.answered();
        assert_eq!((unique, answered), (4, if errno == 2 { 116 } else { errno }));
        assert_eq!(talk.failed(), 0);
        // The report names it all the same.
        let decisions = talk.session.control().decisions_since(0);
        assert!(decisions.iter().any(|decision| decision.errno == answered), "{decisions:?}");
    }
}
