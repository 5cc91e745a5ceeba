//! What is on record of a directory's listing: read no further than needed, and changed at once or
//! not at all.
#![allow(missing_docs)]

use belay_memory::Memory;
use belay_recorder::{Capacity, Layout, Store};
use belay_session::{Incoming, Outgoing, Session};
use belay_wire::{Ids, OpenOut, ROOT_ID, build, push_dirent};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use zerocopy::{FromBytes, IntoBytes};

struct Death;

/// Words that outlive a session, count what is read, and end it at a store.
#[derive(Clone)]
struct Words {
    words: Rc<Vec<Cell<u64>>>,
    loads: Rc<Cell<usize>>,
    stores_left: Rc<Cell<usize>>,
}

impl Words {
    fn new(words: usize) -> Self {
        Self {
            words: Rc::new(vec![Cell::new(0); words]),
            loads: Rc::default(),
            stores_left: Rc::new(Cell::new(usize::MAX)),
        }
    }

    fn copy(&self) -> Self {
        let words = Rc::new((*self.words).clone());
        Self { words, ..Self::new(0) }
    }

    /// Whether `work` came to its end before the store number `at`.
    fn lives(&self, at: usize, work: impl FnOnce()) -> bool {
        self.stores_left.set(at);
        let result = catch_unwind(AssertUnwindSafe(work));
        self.stores_left.set(usize::MAX);
        match result {
            Ok(()) => true,
            Err(payload) if payload.is::<Death>() => false,
            Err(payload) => resume_unwind(payload),
        }
    }
}

impl Memory for Words {
    fn load(&self, at: usize) -> u64 {
        self.loads.set(self.loads.get() + 1);
        self.words.get(at).map_or(0, Cell::get)
    }
    fn store(&self, at: usize, value: u64) {
        let Some(left) = self.stores_left.get().checked_sub(1) else {
            resume_unwind(Box::new(Death));
        };
        self.stores_left.set(left);
        if let Some(word) = self.words.get(at) {
            word.set(value);
        }
    }
    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        let found = self.load(at);
        if found != old {
            return Err(found);
        }
        self.store(at, new);
        Ok(found)
    }
    fn add(&self, at: usize, by: u64) -> u64 {
        let old = self.load(at);
        self.store(at, old.wrapping_add(by));
        old
    }
}

struct Reader {
    session: Session<Words>,
    memory: Words,
    layout: Layout,
    unique: u64,
    dir: u64,
}

impl Reader {
    fn new(heap_words: usize) -> Self {
        let layout = Layout::new(Capacity { heap_words, ..Capacity::SMALL });
        let memory = Words::new(layout.words);
        let session = Session::attach(Store::new(memory.clone(), layout), 0).expect("whole");
        let mut reader = Self { session, memory, layout, unique: 0, dir: 0 };
        let reply = reader.ask(|ids| build::opendir(ids, 0), OpenOut::default().as_bytes());
        let Outgoing::Replace(reply) = reply else { panic!("a handle of belay's") };
        reader.dir = OpenOut::read_from_prefix(&reply.as_bytes()[16..]).unwrap().0.fh;
        reader
    }

    fn ask(&mut self, make: impl FnOnce(Ids) -> Vec<u8>, answer: &[u8]) -> Outgoing {
        self.unique += 2;
        let mut message = make(Ids { unique: self.unique, nodeid: ROOT_ID, ..Ids::default() });
        assert_eq!(self.session.on_request(&mut message, None, 0), Incoming::Deliver);
        let reply = build::reply(self.unique, answer);
        let outgoing = self.session.on_reply(&reply, || reply[16..].into(), false);
        self.session.on_delivered(self.unique);
        outgoing
    }

    /// The kernel reads on behind `cookie`, and the daemon gives these.
    fn list(&mut self, cookie: u64, entries: &[u8]) {
        let dir = self.dir;
        let reply = self.ask(|ids| build::readdir(ids, dir, cookie, 1 << 16), entries);
        assert_eq!(reply, Outgoing::Pass);
    }

    fn record(&self) -> Vec<u8> {
        record(&Store::new(self.memory.clone(), self.layout))
    }
}

fn record(store: &Store<Words>) -> Vec<u8> {
    let handle = store.live_handles().next().expect("an open directory");
    store.stream_bytes(handle, 0)
}

/// Entries with the positions `from` to `to`, whose names are of as many bytes.
fn entries(from: u64, to: u64, name: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for cookie in from..=to {
        let name = format!("{name}-{cookie:08}");
        assert!(push_dirent(&mut all, usize::MAX, cookie, cookie, 8, name.as_bytes()));
    }
    all
}

#[test]
fn who_goes_back_in_a_large_directory_is_followed_step_by_step() {
    const REPLIES: u64 = 400;
    const EACH: u64 = 100;
    let mut reader = Reader::new(1 << 18);
    let whole: Vec<_> = (0..REPLIES).map(|i| entries(1 + i * EACH, (i + 1) * EACH, "f")).collect();
    for (i, part) in (0..).zip(&whole) {
        reader.list(i * EACH, part);
    }
    let before = reader.memory.loads.get();
    for (i, part) in (0..).zip(&whole).skip(1) {
        reader.list(i * EACH, part);
    }
    let loads = reader.memory.loads.get() - before;
    let words = whole.concat().len() / 8;
    assert_eq!(reader.record(), whole.concat());
    // Once for where it stands, and once for what it is compared with.
    assert!(loads < 6 * words, "{loads} loads for {words} words on record");
}

#[test]
fn a_record_that_changes_is_before_or_after_at_each_death() {
    let reader = {
        let mut reader = Reader::new(1 << 14);
        for i in 0..6 {
            reader.list(i * 50, &entries(1 + i * 50, (i + 1) * 50, "old"));
        }
        reader
    };
    let before = reader.record();
    // In the second part a name is another, and longer.
    let other = entries(51, 100, "another one");
    let after = [entries(1, 50, "old"), other.clone(), entries(101, 300, "old")].concat();
    let mut died = 0;
    for at in 0.. {
        let memory = reader.memory.copy();
        let session = Session::attach(Store::new(memory.clone(), reader.layout), 0).expect("whole");
        let mut again = Reader { session, memory: memory.clone(), ..reader };
        let lived = memory.lives(at, || again.list(50, &other));
        let store = Store::new(memory, reader.layout);
        store.recover().expect("changes fit");
        let found = record(&store);
        assert!(found == before || found == after, "death {at} leaves {} bytes", found.len());
        if lived {
            assert!(found == after, "it is on record in the end");
            break;
        }
        died += 1;
    }
    assert!(died > 20, "{died} deaths");
}

#[test]
fn a_full_record_loses_no_position() {
    let mut reader = Reader::new(130 * 12);
    reader.list(0, &entries(1, 40, "old"));
    reader.list(40, &entries(41, 200, "old"));
    let before = reader.record();
    reader.list(40, &entries(41, 180, "a much longer name"));
    assert!(reader.session.is_full());
    assert_eq!(reader.record(), before);
}
