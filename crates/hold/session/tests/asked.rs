//! What belay asks a daemon, and in whose name, while others ask it as well.
#![forbid(unsafe_code)]

mod talk;

use belay_wire::abi::{AttrOut, SetattrIn, SetattrValid};
use belay_wire::errno::{EACCES, ENODATA, ENOENT};
use belay_wire::{Attr, Opcode, OpenOut, ROOT_ID, Request, build};
use talk::{Talk, link, told};
use zerocopy::{FromBytes, IntoBytes};

const O_RDWR: u32 = 2;

/// A file that is open for writing, whose mode forbids that by now, and whose daemon has died.
/// Gives node and handle.
fn shut(talk: &mut Talk) -> (u64, u64) {
    let (node, _) = talk.lookup("f", 2, 102);
    let handle = talk.open_with(node, O_RDWR);
    talk.crash();
    (node, handle)
}

fn attr(mode: u32) -> AttrOut {
    let attr = Attr { ino: 102, mode: 0o100_000 | mode, nlink: 1, ..Attr::default() };
    AttrOut { attr, ..AttrOut::default() }
}

/// Answers what belay asks until it has asked for `wanted`; gives that request.
fn until(talk: &mut Talk, wanted: Opcode) -> Vec<u8> {
    until_with(talk, wanted, EACCES)
}

/// The same of a daemon that refuses to open with this error.
fn until_with(talk: &mut Talk, wanted: Opcode, refusal: i32) -> Vec<u8> {
    loop {
        let message = talk.next_message().expect("a request");
        let (opcode, _, unique) = told(&message);
        if opcode == wanted {
            return message;
        }
        match opcode {
            Opcode::LOOKUP => drop(talk.reply(unique, link(7, 102).as_bytes())),
            Opcode::OPEN => talk.refuse(unique, refusal),
            Opcode::GETATTR => drop(talk.say(unique, attr(0o400).as_bytes())),
            other => panic!("{other:?}"),
        }
    }
}

/// Nobody else's request goes to the daemon while a file has a mode that it is to have for belay
/// alone.
#[test]
fn a_wider_mode_is_seen_by_nobody_else() {
    let mut talk = Talk::new();
    let (node, handle) = shut(&mut talk);
    assert!(talk.ask(node, |ids| build::read(ids, handle, 0, 1)).is_none());
    let widening = until(&mut talk, Opcode::SETATTR);
    let request = Request::parse(&widening).unwrap();
    assert_eq!(SetattrIn::read_from_prefix(request.body).unwrap().0.mode, 0o600);
    let widened = request.header.unique;

    // Others come before it is wide, while it is, and while it is put back.
    let look = |talk: &mut Talk| {
        assert!(talk.ask(ROOT_ID, |ids| build::lookup(ids, b"f")).is_none(), "it is let through");
        talk.unique
    };
    let mut waiting = vec![look(&mut talk)];
    talk.say(widened, attr(0o600).as_bytes());
    waiting.push(look(&mut talk));
    let (opcode, _, opened) = talk.next();
    assert_eq!(opcode, Opcode::OPEN);
    waiting.push(look(&mut talk));
    talk.say(opened, OpenOut { fh: 9, ..OpenOut::default() }.as_bytes());
    waiting.push(look(&mut talk));
    let narrowing = until(&mut talk, Opcode::SETATTR);
    let request = Request::parse(&narrowing).unwrap();
    let narrow = SetattrIn::read_from_prefix(request.body).unwrap().0;
    assert_eq!((narrow.valid, narrow.mode), (SetattrValid::MODE, 0o400));
    assert_eq!(talk.next_message(), None, "it is not put back yet");
    talk.say(told(&narrowing).2, attr(0o400).as_bytes());

    let mut seen = Vec::new();
    while let Some(message) = talk.next_message() {
        seen.push(told(&message).0);
    }
    assert_eq!(seen.iter().filter(|opcode| **opcode == Opcode::LOOKUP).count(), waiting.len());
    assert!(seen.contains(&Opcode::READ), "{seen:?}");
}

/// A daemon that looks at the process that asks finds one, whoever belay asks for.
#[test]
fn who_asks_is_always_a_process() {
    let mut talk = Talk::new();
    let (node, handle) = shut(&mut talk);
    let asked = talk.ask(node, |mut ids| {
        (ids.uid, ids.gid, ids.pid) = (1000, 1000, 4321);
        build::read(ids, handle, 0, 1)
    });
    assert!(asked.is_none());
    let widening = until(&mut talk, Opcode::SETATTR);
    assert_eq!(Request::parse(&widening).unwrap().header.pid, 4321);
}

/// A file whose mode forbids opening it is opened again, whatever the daemon says in refusing that.
#[test]
fn a_mode_forbids_whatever_is_said() {
    let mut talk = Talk::new();
    let (node, handle) = shut(&mut talk);
    assert!(talk.ask(node, |ids| build::read(ids, handle, 0, 1)).is_none());
    until_with(&mut talk, Opcode::SETATTR, ENOENT);
}

/// What a daemon says to the removal of an attribute that is not there is its own affair.
#[test]
fn an_absent_attribute_is_refused_by_the_daemon() {
    for (errno, refusal) in [(ENODATA, EACCES), (ENODATA, ENODATA)] {
        let mut talk = Talk::new();
        let (node, _) = talk.lookup("f", 2, 102);
        assert!(talk.ask(node, |ids| build::removexattr(ids, b"user.x")).is_none());
        let own = talk.unique;
        let (opcode, _, unique) = talk.next();
        assert_eq!(opcode, Opcode::GETXATTR);
        talk.refuse(unique, errno);
        let (opcode, names, unique) = talk.next();
        assert_eq!((opcode, names), (Opcode::REMOVEXATTR, vec!["user.x".to_owned()]));
        assert_ne!(unique, own, "it is belay's own, so that nothing is on record of it");
        talk.refuse(unique, refusal);
        assert_eq!(talk.next_answer(), (own, refusal), "nobody else is asked");
    }
}
