//! Daemons that answer a request twice: the second answer must not touch what the first has in
//! hand, nor what has come in its place since.
#![forbid(unsafe_code)]

use belay_recorder::{Capacity, Layout, SlotState, Store};
use belay_session::{Direct, Incoming, Outgoing, Session};
use belay_sys::Mapping;
use belay_wire::{Ids, ROOT_ID, build};
use std::borrow::Cow;
use std::os::fd::AsFd;
use std::sync::Arc;

struct Talk {
    session: Session<Arc<Mapping>>,
    direct: Direct,
    memory: Arc<Mapping>,
    layout: Layout,
}

impl Talk {
    fn new() -> Self {
        let layout = Layout::new(Capacity::SMALL);
        let file = rustix::fs::memfd_create("twice", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, layout.bytes() as u64).unwrap();
        let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes()).unwrap());
        let session = Session::attach(Store::new(Arc::clone(&memory), layout), 0).expect("whole");
        Self { session, direct: Direct::default(), memory, layout }
    }

    fn ask(&mut self, unique: u64, make: impl FnOnce(Ids) -> Vec<u8>) {
        let mut message = make(Ids { unique, nodeid: ROOT_ID, ..Ids::default() });
        assert_eq!(self.session.on_request(&mut message, None, 0), Incoming::Deliver);
        self.session.let_go(&self.direct);
    }

    /// An answer that comes while the first one is on its way.
    fn second_answer(&mut self, unique: u64) {
        assert_eq!(self.direct.take(unique), None);
        let reply = build::reply_error(unique, 5);
        let outgoing = self.session.on_reply(&reply, || Cow::Borrowed(&[]), false);
        assert_eq!((outgoing, self.session.take_sending()), (Outgoing::Pass, None));
    }

    /// What is in flight: `unique` and state.
    fn in_flight(&self) -> Vec<(u64, SlotState)> {
        let store = Store::new(Arc::clone(&self.memory), self.layout);
        let slots = (0..store.slots()).map(belay_recorder::Slot);
        let mut all: Vec<_> =
            slots.filter_map(|s| store.slot_request(s)).map(|r| (r.unique, r.state)).collect();
        all.sort_by_key(|(unique, _)| *unique);
        all
    }
}

#[test]
fn a_second_answer_to_a_read_leaves_slots_alone() {
    let mut talk = Talk::new();
    talk.ask(2, build::readlink);
    let first = talk.direct.take(2).expect("its reply needs no session");
    first.replying(&*talk.memory, &talk.layout, &build::reply_error(2, 5), &[]);
    talk.second_answer(2);
    talk.ask(4, build::readlink);
    assert_eq!(talk.in_flight(), [(2, SlotState::Started), (4, SlotState::Started)]);
    first.delivered(&*talk.memory, &talk.layout);
    talk.session.reap();
    assert_eq!(talk.in_flight(), [(4, SlotState::Started)]);
}

#[test]
fn a_second_answer_to_a_change_leaves_slots_alone() {
    let mut talk = Talk::new();
    let change = |ids| build::setattr(ids, &belay_wire::abi::SetattrIn::default());
    talk.ask(2, change);
    assert_eq!(talk.direct.take(2), None, "the session must see its reply");
    let reply = build::reply_error(2, 17);
    let outgoing = talk.session.on_reply(&reply, || Cow::Borrowed(&[]), false);
    assert_eq!(outgoing, Outgoing::PassKept);
    let slot = talk.session.take_sending().expect("it is on its way");
    talk.second_answer(2);
    talk.ask(4, change);
    assert_eq!(talk.in_flight(), [(2, SlotState::Replied), (4, SlotState::Started)]);
    belay_recorder::free_slot(&*talk.memory, &talk.layout, slot);
    talk.session.reap();
    assert_eq!(talk.in_flight(), [(4, SlotState::Started)]);
}
