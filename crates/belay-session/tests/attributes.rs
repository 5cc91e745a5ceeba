//! What applications see of a file's attributes, by whichever request they ask for them.
#![allow(missing_docs)]

mod talk;

use belay_session::Outgoing;
use belay_wire::abi::{AttrOut, Statx, StatxIn, StatxOut};
use belay_wire::{Attr, Ids, Opcode, ROOT_ID, build};
use talk::Talk;
use zerocopy::{FromBytes, IntoBytes};

const KINDS: [Opcode; 2] = [Opcode::GETATTR, Opcode::STATX];

/// What applications see, by a request of this kind, as the daemon gives it: number and links.
fn see(talk: &mut Talk, opcode: Opcode, node: u64, given: (u64, u32)) -> (u64, u32) {
    let make = |ids: Ids| match opcode {
        Opcode::STATX => build::request(ids, opcode, &[StatxIn::default().as_bytes()]),
        _ => build::getattr(ids, None),
    };
    assert!(talk.ask(node, make).is_some());
    let (ino, nlink) = given;
    let attr = Attr { ino, nlink, mode: 0o100_644, ..Attr::default() };
    let stat = Statx { mask: 0xfff, ino, nlink, mode: 0o100_644, ..Statx::default() };
    let body = match opcode {
        Opcode::STATX => StatxOut { stat, ..StatxOut::default() }.as_bytes().to_vec(),
        _ => AttrOut { attr, ..AttrOut::default() }.as_bytes().to_vec(),
    };
    let reply = match talk.say(talk.unique, &body) {
        Outgoing::Replace(reply) => reply.as_bytes().to_vec(),
        Outgoing::ReplaceLong(reply) => reply,
        _ => return given,
    };
    let body = &reply[16..];
    if opcode == Opcode::STATX {
        let stat = StatxOut::read_from_prefix(body).unwrap().0.stat;
        (stat.ino, stat.nlink)
    } else {
        let attr = AttrOut::read_from_prefix(body).unwrap().0.attr;
        (attr.ino, attr.nlink)
    }
}

#[test]
fn another_number_that_a_reply_shows_stays_in_the_next_life() {
    for opcode in KINDS {
        let mut talk = Talk::volatile();
        let (node, _) = talk.lookup("a", 7, 100);
        assert_eq!(see(&mut talk, opcode, node, (101, 1)), (101, 1), "{opcode}");
        talk.crash();
        // The next life has another one, and applications go on seeing that.
        assert!(talk.ask(node, |ids| build::getattr(ids, None)).is_none());
        let (opcode_asked, names, unique) = talk.next();
        assert_eq!((opcode_asked, names), (Opcode::LOOKUP, vec!["a".to_owned()]));
        talk.reply(unique, talk::link(9, 5).as_bytes());
        assert!(talk.next_message().is_some());
        let attr = Attr { ino: 5, nlink: 2, mode: 0o100_644, ..Attr::default() };
        let body = AttrOut { attr, ..AttrOut::default() };
        let seen: AttrOut = talk.answer(talk.unique, body.as_bytes()).unwrap();
        assert_eq!(seen.attr.ino, 101, "{opcode}");
    }
}

#[test]
fn the_name_of_a_hidden_file_counts_for_no_link() {
    for opcode in KINDS {
        let mut talk = Talk::new();
        let (node, _) = talk.lookup("a", 7, 100);
        talk.open(node);
        talk.hide(ROOT_ID, "a");
        assert_eq!(see(&mut talk, opcode, node, (100, 1)), (100, 0), "{opcode}");
    }
}
