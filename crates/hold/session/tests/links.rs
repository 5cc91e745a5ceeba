//! Daemons that give each hard link of a file a node of its own, as libfuse's high level does: what
//! the session asks them, and which node it takes for which file. The simulated daemon of
//! `crash.rs` has one node for each file.
#![forbid(unsafe_code)]

mod talk;

use belay_wire::{Opcode, ROOT_ID, build};
use talk::{Talk, link};
use zerocopy::IntoBytes;

const INO: u64 = 7;

/// Renames `b` over the open file `a` of the daemon's id 10, up to what comes behind the rename to
/// the hidden name.
fn rename_over(talk: &mut Talk) {
    let (hidden, (opcode, names, unique)) = talk.rename_over(12, INO);
    assert_eq!((opcode, names), (Opcode::RENAME, vec!["a".to_owned(), hidden]));
    talk.reply(unique, &[]);
}

/// Both names are links of one file: without the UNLINK, the daemon's rename(2) would do nothing
/// and `b` stay.
#[test]
fn a_link_renamed_over_another_that_is_open() {
    let mut talk = Talk::new();
    let (target, _) = talk.lookup("a", 10, INO);
    talk.lookup("b", 11, INO);
    talk.open(target);
    rename_over(&mut talk);
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
    rename_over(&mut talk);
    let (opcode, names, unique) = talk.next();
    assert_eq!(
        (opcode, names, unique),
        (Opcode::RENAME, vec!["b".into(), "a".into()], talk.unique)
    );
}

/// A file known as `a`, a link `b` of it that the daemon calls `id` and that the kernel forgets;
/// then a crash. Whether the kernel is told that `b`, looked up again, is the node that it has.
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
