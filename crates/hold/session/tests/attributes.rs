//! What applications see of a file's attributes, by whichever request they ask for them.
#![allow(missing_docs)]

mod talk;

use belay_recorder::control::Loss;
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

/// What is said of links, and of which file.
fn told(talk: &Talk) -> Vec<String> {
    let (losses, _) = talk.session.control().losses_since(0);
    losses.into_iter().filter(|(loss, _)| *loss == Loss::Links).map(|(_, what)| what).collect()
}

/// The daemon counts `nlink` links of an open file when another has been renamed over it.
/// `crashes`: the daemon that has renamed it never says so.
fn counts(opcode: Opcode, nlink: u32, crashes: bool) -> Vec<String> {
    let mut talk = Talk::new();
    let (node, _) = talk.lookup("a", 10, 100);
    talk.lookup("b", 11, 101);
    talk.open(node);
    // It is under way with the rename, and tells of before.
    assert!(talk.ask(node, |ids| build::getattr(ids, None)).is_some());
    let early = talk.unique;
    let (_, (asked, _, unique)) = talk.rename_over(10, 100);
    assert_eq!(asked, Opcode::RENAME);
    talk.say(unique, &[]);
    let attr = Attr { ino: 100, nlink: 2, mode: 0o100_644, ..Attr::default() };
    talk.say(early, AttrOut { attr, ..AttrOut::default() }.as_bytes());
    assert_eq!(told(&talk), [""; 0], "{opcode}");
    if crashes {
        talk.crash();
        assert!(talk.ask(node, |ids| build::getattr(ids, None)).is_none());
        let (_, names, unique) = talk.next();
        assert!(names[0].starts_with(".belay-hidden-"), "{names:?}");
        talk.reply(unique, talk::link(20, 100).as_bytes());
        assert!(talk.next_message().is_some());
        let attr = Attr { nlink, ..attr };
        talk.say(talk.unique, AttrOut { attr, ..AttrOut::default() }.as_bytes());
    } else {
        assert_eq!(see(&mut talk, opcode, node, (100, nlink)), (100, nlink - 1), "{opcode}");
    }
    // Once.
    see(&mut talk, opcode, node, (100, nlink));
    told(&talk)
}

#[test]
fn a_daemon_that_counts_links_wrongly_is_told_of() {
    for opcode in KINDS {
        assert_eq!(counts(opcode, 1, false), [""; 0], "{opcode}");
        let told = counts(opcode, 2, false);
        assert!(told.len() == 1 && told[0].starts_with("/a: "), "{opcode}: {told:?}");
        assert_eq!(counts(opcode, 1, true), [""; 0], "{opcode}");
        assert_eq!(counts(opcode, 2, true).len(), 1, "{opcode}");
    }
}
