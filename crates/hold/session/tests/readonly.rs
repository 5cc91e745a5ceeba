//! A session that shows the last checkpoint: it asks the daemon for what can be read, and for
//! nothing else.
#![forbid(unsafe_code)]

use belay_memory::Memory;
use belay_recorder::control::Options;
use belay_recorder::{Capacity, Layout, Store};
use belay_session::{Incoming, Phase, Session, Work};
use belay_sys::Mapping;
use belay_wire::abi::*;
use belay_wire::errno::EROFS;
use belay_wire::{Ids, Opcode, Request, Unique, build};
use std::os::fd::AsFd;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

fn session(
    memory: &Arc<Mapping>,
    layout: Layout,
    generation: u32,
    options: Options,
) -> Session<Arc<Mapping>> {
    Session::attach_with(Store::new(Arc::clone(memory), layout), generation, options)
        .expect("whole")
}

fn mkdir(ids: Ids) -> Vec<u8> {
    build::request(ids, Opcode::MKDIR, &[MkdirIn::default().as_bytes(), b"new\0"])
}

fn write(ids: Ids) -> Vec<u8> {
    let head = WriteIn { size: 4, ..WriteIn::default() };
    build::request(ids, Opcode::WRITE, &[head.as_bytes(), b"data"])
}

fn open(flags: u32) -> impl Fn(Ids) -> Vec<u8> {
    move |ids| build::open(ids, flags)
}

fn ids(unique: u64) -> Ids {
    Ids { unique, nodeid: ROOT_ID, ..Ids::default() }
}

/// How the session answers by itself: which request, and the error.
fn answered(session: &mut Session<Arc<Mapping>>) -> Option<(u64, i32)> {
    let Some(Work::Answer(reply)) = session.work(0) else { return None };
    let header = OutHeader::read_from_prefix(&reply).unwrap().0;
    session.on_delivered(header.unique);
    Some((Unique::unmarked(header.unique), -header.error))
}

#[test]
fn nothing_is_changed_and_all_is_shown() {
    let layout = Layout::new(Capacity::SMALL);
    let file = rustix::fs::memfd_create("readonly", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, layout.bytes() as u64).unwrap();
    let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes()).unwrap());
    let mut first = session(&memory, layout, 0, Options::EPOCH);
    // In flight at the crash: one that changes something, and one that does not.
    let in_flight = [mkdir(ids(2)), build::getattr(ids(4), None)];
    for message in &in_flight {
        assert_eq!(first.on_request(&mut message.clone(), None, 0), Incoming::Deliver);
    }
    drop(first);
    let mut second = session(&memory, layout, 1, Options::EPOCH | Options::READ_ONLY);
    second.keep_no_log();
    for message in &in_flight {
        let mut message = message.clone();
        let unique = Unique::marked(belay_wire::get_u64(&message, 8).unwrap());
        assert!(belay_wire::put_u64(&mut message, 8, unique));
        assert_eq!(second.on_request(&mut message, None, 0), Incoming::Taken);
    }
    assert_eq!(answered(&mut second), Some((2, EROFS)));
    let Some(Work::Deliver(message)) = second.work(0) else { panic!("GETATTR is for the daemon") };
    let unique = Request::parse(&message).unwrap().header.unique;
    let attr = Attr { ino: 1, mode: 0o040_755, nlink: 2, ..Attr::default() };
    let reply = build::reply(unique, AttrOut { attr, ..AttrOut::default() }.as_bytes());
    second.on_reply(&reply, || reply[16..].into(), false);
    second.on_delivered(unique);
    assert_eq!(second.work(0), None);
    assert_eq!(second.phase(), Phase::Open);
    assert!(!second.begin_checkpoint(0), "there is nothing to be written");

    type Make = Box<dyn Fn(Ids) -> Vec<u8>>;
    let sync = |opcode| -> Make {
        Box::new(move |ids| build::request(ids, opcode, &[FsyncIn::default().as_bytes()]))
    };
    let forbidden: [(&str, Make); 8] = [
        ("MKDIR", Box::new(mkdir)),
        ("WRITE", Box::new(write)),
        ("SETATTR", Box::new(|ids| build::setattr(ids, &SetattrIn::default()))),
        ("OPEN to write", Box::new(open(1))),
        ("OPEN to read and write", Box::new(open(2))),
        ("OPEN that truncates", Box::new(open(0o1000))),
        ("FSYNC", sync(Opcode::FSYNC)),
        ("FSYNCDIR", sync(Opcode::FSYNCDIR)),
    ];
    for (number, (what, make)) in forbidden.into_iter().enumerate() {
        let unique = 10 + 2 * number as u64;
        assert_eq!(second.on_request(&mut make(ids(unique)), None, 0), Incoming::Taken, "{what}");
        assert_eq!(answered(&mut second), Some((unique, EROFS)), "{what}");
    }
    let shown: [(&str, Make); 3] = [
        ("LOOKUP", Box::new(|ids| build::lookup(ids, b"x"))),
        ("OPEN to read", Box::new(open(0))),
        ("READLINK", Box::new(build::readlink)),
    ];
    for (number, (what, make)) in shown.into_iter().enumerate() {
        let unique = 100 + 2 * number as u64;
        let taken = second.on_request(&mut make(ids(unique)), None, 0);
        assert_eq!(taken, Incoming::Deliver, "{what}");
    }
}

/// What was in flight comes back also where the kernel cannot send it again.
#[test]
fn what_was_in_flight_is_answered_from_its_copy() {
    let layout = Layout::new(Capacity { copy_bytes: 4096, ..Capacity::SMALL });
    let file = rustix::fs::memfd_create("readonly", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, layout.bytes() as u64).unwrap();
    let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes()).unwrap());
    let bits = Options::EPOCH | Options::NO_RESEND;
    let mut first = session(&memory, layout, 0, bits);
    for mut message in [mkdir(ids(2)), build::getattr(ids(4), None)] {
        let slot = first.claim_slot().unwrap();
        memory.store_bytes(first.store().slot_copy(slot).0 / 8, &message);
        assert_eq!(first.on_request(&mut message, Some(slot), 0), Incoming::Deliver);
    }
    drop(first);
    let mut second = session(&memory, layout, 1, bits | Options::READ_ONLY);
    second.keep_no_log();
    assert_eq!(answered(&mut second), Some((2, EROFS)));
    let Some(Work::Deliver(message)) = second.work(0) else { panic!("GETATTR is for the daemon") };
    assert_eq!(Request::parse(&message).unwrap().opcode(), Opcode::GETATTR);
}
