//! Inode numbers of files with several links, where another life's daemon had others: whether two
//! names are one file is asked.
#![forbid(unsafe_code)]

mod talk;

use belay_session::Outgoing;
use belay_wire::errno::{EACCES, ENOENT};
use belay_wire::{Attr, EntryOut, Opcode, ROOT_ID, build};
use talk::{Talk, link};
use zerocopy::IntoBytes;

/// A life that was shown `a` as 7 has ended; the next one shows `b`, which nobody has met, as 7.
/// Gives the question about `a` that comes before `b` is asked for again.
fn in_question(talk: &mut Talk) -> u64 {
    assert_eq!(talk.lookup("a", 10, 7).1, 7);
    talk.crash();
    assert!(talk.ask(ROOT_ID, |ids| build::lookup(ids, b"b")).is_some());
    assert_eq!(talk.say(talk.unique, link(20, 7).as_bytes()), Outgoing::Swallow);
    let (opcode, _, _) = talk.next();
    assert_eq!(opcode, Opcode::FORGET, "the lookup of the answer that nobody gets");
    let (opcode, names, unique) = talk.next();
    assert_eq!((opcode, names), (Opcode::LOOKUP, vec!["a".to_owned()]));
    unique
}

/// The daemon is asked for `b` again, and says the same: the number that applications see.
fn asked_again(talk: &mut Talk) -> u64 {
    loop {
        let (opcode, names, unique) = talk.next();
        if opcode == Opcode::FORGET {
            continue;
        }
        assert_eq!((opcode, names, unique), (Opcode::LOOKUP, vec!["b".to_owned()], talk.unique));
        return talk.reply(unique, link(20, 7).as_bytes()).expect("an entry").attr.ino;
    }
}

#[test]
fn another_link_of_the_file_has_its_number() {
    let mut talk = Talk::volatile();
    let unique = in_question(&mut talk);
    talk.reply(unique, link(20, 7).as_bytes());
    assert_eq!(asked_again(&mut talk), 7);
}

#[test]
fn another_file_has_another_number() {
    let mut talk = Talk::volatile();
    let unique = in_question(&mut talk);
    talk.reply(unique, link(21, 8).as_bytes());
    let shown = asked_again(&mut talk);
    assert_ne!(shown, 7);
    // A third name of the first file: the number that is known for it, though this life's is
    // another.
    assert_eq!(talk.lookup("c", 22, 8).1, 7);
    // And one of the second.
    assert_eq!(talk.lookup("d", 23, 7).1, shown);
}

#[test]
fn what_is_not_there_any_more_takes_no_number_along() {
    let mut talk = Talk::volatile();
    let unique = in_question(&mut talk);
    talk.refuse(unique, ENOENT);
    assert_ne!(asked_again(&mut talk), 7);
}

#[test]
fn what_cannot_be_asked_fails_nobody() {
    let mut talk = Talk::volatile();
    let unique = in_question(&mut talk);
    talk.refuse(unique, EACCES);
    assert_ne!(asked_again(&mut talk), 7);
}

#[test]
fn a_crash_in_between_begins_anew() {
    let mut talk = Talk::volatile();
    in_question(&mut talk);
    talk.die();
    let again = build::lookup(
        belay_wire::Ids { unique: talk.unique, nodeid: ROOT_ID, ..Default::default() },
        b"b",
    );
    talk.resend(again);
    let (opcode, names, unique) = talk.next();
    assert_eq!((opcode, names), (Opcode::LOOKUP, vec!["b".to_owned()]));
    assert_eq!(talk.reply(unique, link(5, 30).as_bytes()).expect("an entry").attr.ino, 30);
}

/// A daemon that frees a node when its name goes, and does not wait for FORGET, gives its id to
/// what it is asked for next: a file that an earlier life has shown stays that file, and is not
/// taken for the one that is gone.
#[test]
fn an_id_that_is_used_again_too_early_is_another_file() {
    let mut talk = Talk::volatile();
    let see = |talk: &mut Talk, name: &str, id: u64| {
        let attr = Attr { nlink: 1, ..link(id, id).attr };
        let asked = talk.ask(ROOT_ID, |ids| build::lookup(ids, name.as_bytes()));
        assert!(asked.is_some());
        let entry = talk.reply(talk.unique, EntryOut { attr, ..link(id, id) }.as_bytes()).unwrap();
        (entry.nodeid, entry.attr.ino)
    };
    let a = see(&mut talk, "a", 30);
    let b = see(&mut talk, "b", 40);
    talk.crash();
    assert_eq!(see(&mut talk, "b", 50), b);
    assert!(talk.ask(ROOT_ID, |ids| build::unlink(ids, b"b")).is_some());
    talk.reply(talk.unique, &[]);
    assert_eq!(see(&mut talk, "a", 50), a);
    // It is asked for by that id from now on, and the one that is gone by none.
    let asked = talk.ask(a.0, |ids| build::getattr(ids, None)).unwrap();
    assert_eq!(belay_wire::get_u64(&asked, 16), Some(50));
}
