//! What a daemon counts of lookups: it is told to forget a node once, when nobody needs it any
//! more, and then as often as it counted.
#![allow(missing_docs)]

mod talk;

use belay_recorder::Capacity;
use belay_session::Outgoing;
use belay_wire::abi::{CreateIn, OutHeader};
use belay_wire::errno::ENOMEM;
use belay_wire::{Attr, EntryOut, Ids, Opcode, OpenOut, ROOT_ID, Request, build, push_direntplus};
use talk::Talk;
use zerocopy::{FromBytes, IntoBytes};

/// A regular file.
fn file(id: u64) -> EntryOut {
    let attr = Attr { ino: 1000 + id, mode: 0o100_644, nlink: 1, ..Attr::default() };
    EntryOut { nodeid: id, attr, ..EntryOut::default() }
}

fn create(ids: Ids, name: &[u8]) -> Vec<u8> {
    build::request(ids, Opcode::CREATE, &[CreateIn::default().as_bytes(), name, b"\0"])
}

/// The nodes that the daemon is told to forget by a message, and how many lookups of each.
fn forgotten(message: &[u8]) -> Vec<(u64, u64)> {
    let request = Request::parse(message).expect("a request");
    match request.opcode() {
        Opcode::FORGET => vec![(request.header.nodeid, request.body_as().expect("a count"))],
        Opcode::BATCH_FORGET => {
            request.forgets().map(|(_, one)| (one.nodeid, one.nlookup)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// All that the daemon is told to forget now.
fn told(talk: &mut Talk) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| talk.next_message()).flat_map(|message| forgotten(&message)).collect()
}

/// The kernel forgets a node; what the daemon is told then.
fn forget(talk: &mut Talk, node: u64, count: u64) -> Vec<(u64, u64)> {
    let at_once = talk.ask(node, |ids| build::forget(ids, count));
    let mut all: Vec<_> = at_once.iter().flat_map(|message| forgotten(message)).collect();
    all.extend(told(talk));
    all
}

/// Looks names up until there is no room for another: the ids of the files that the kernel knows,
/// with its keys for them, and the id of the one that found no room.
fn fill(talk: &mut Talk) -> (Vec<(u64, u64)>, u64) {
    let mut known = Vec::new();
    for id in 2..1000 {
        let name = format!("{id:0200}");
        assert!(talk.ask(ROOT_ID, |ids| build::lookup(ids, name.as_bytes())).is_some());
        let Outgoing::Replace(reply) = talk.say(talk.unique, file(id).as_bytes()) else {
            panic!("an entry of belay's")
        };
        let head = OutHeader::read_from_prefix(reply.as_bytes()).unwrap().0;
        if head.error != 0 {
            assert_eq!(head.error, -ENOMEM);
            return (known, id);
        }
        let entry = EntryOut::read_from_prefix(&reply.as_bytes()[16..]).unwrap().0;
        known.push((id, entry.nodeid));
    }
    panic!("there is room for any number");
}

fn narrow() -> Talk {
    Talk::within(Default::default(), Capacity { heap_words: 1 << 12, ..Capacity::SMALL })
}

#[test]
fn an_entry_that_finds_no_room_is_forgotten_by_the_daemon() {
    let mut talk = narrow();
    let (known, lost) = fill(&mut talk);
    assert_eq!(told(&mut talk), [(lost, 1)], "the kernel has not got it");
    let (id, key) = known[0];
    assert_eq!(forget(&mut talk, key, 1), [(id, 1)]);
    // The daemon may use the number for something else now, and there is room for its name.
    assert!(talk.ask(ROOT_ID, |ids| build::lookup(ids, b"another")).is_some());
    let another = talk.reply(talk.unique, file(lost).as_bytes()).expect("there is room");
    assert!(known.iter().all(|(_, key)| *key != another.nodeid));
    assert_eq!(forget(&mut talk, another.nodeid, 1), [(lost, 1)]);
}

#[test]
fn what_the_kernel_knows_is_not_forgotten_for_another_name_that_finds_no_room() {
    let mut talk = narrow();
    let (known, _) = fill(&mut talk);
    told(&mut talk);
    let (id, key) = known[0];
    assert!(talk.ask(ROOT_ID, |ids| build::opendir(ids, 0)).is_some());
    let dir: OpenOut = talk.answer(talk.unique, OpenOut::default().as_bytes()).unwrap();
    let mut listing = Vec::new();
    assert!(push_direntplus(&mut listing, 1 << 12, &file(id), 1000 + id, 1, 8, &[b'l'; 200]));
    let ask = |ids: Ids| build::readdirplus(ids, dir.fh, 0, 1 << 12);
    assert!(talk.ask(ROOT_ID, ask).is_some());
    let reply = match talk.say(talk.unique, &listing) {
        Outgoing::Replace(reply) => reply.as_bytes().to_vec(),
        Outgoing::ReplaceLong(reply) => reply,
        other => panic!("{other:?}"),
    };
    let entry = EntryOut::read_from_prefix(&reply[16..]).unwrap().0;
    assert_eq!(entry.nodeid, 0, "the kernel gets the name alone");
    assert_eq!(told(&mut talk), [], "the daemon would take it for the last one");
    assert_eq!(
        forget(&mut talk, key, 1),
        [(id, 2)],
        "once, and as often as the daemon has counted"
    );
}

#[test]
fn a_created_file_whose_handle_finds_no_room_is_forgotten_by_the_daemon() {
    let mut talk = Talk::within(Default::default(), Capacity { handles: 2, ..Capacity::SMALL });
    for id in 2..10 {
        let name = format!("{id}");
        assert!(talk.ask(ROOT_ID, |ids| create(ids, name.as_bytes())).is_some());
        let body =
            [file(id).as_bytes(), OpenOut { fh: id, ..OpenOut::default() }.as_bytes()].concat();
        let Outgoing::Replace(reply) = talk.say(talk.unique, &body) else { panic!("no entry") };
        if OutHeader::read_from_prefix(reply.as_bytes()).unwrap().0.error != 0 {
            assert_eq!(told(&mut talk), [(id, 1)]);
            return;
        }
    }
    panic!("there is room for any number");
}
