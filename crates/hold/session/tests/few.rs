//! What a successor is asked before the first request is answered: what that request needs, and no
//! more, however much the kernel knows. So daemons that live for a moment only come to answer
//! something.
#![forbid(unsafe_code)]

mod talk;

use belay_wire::abi::{FileLock, LK_FLOCK, LkIn, WriteIn, WriteOut};
use belay_wire::{AttrOut, Ids, Opcode, OpenOut, Request, Unique, build};
use talk::{Talk, link, told};
use zerocopy::IntoBytes;

const F_WRLCK: u32 = 1;

/// A mount of which the kernel knows so many files, as many of them open, and locked, as is said.
/// Gives the nodes, each with its handle.
fn used(talk: &mut Talk, nodes: u64, handles: u64, locks: u64) -> Vec<(u64, u64)> {
    let mut known = Vec::new();
    for number in 0..nodes {
        let (node, _) = talk.lookup(&format!("name{number}"), 100 + number, 50_000 + number);
        let fh = if number < handles { talk.open_with(node, 2) } else { 0 };
        known.push((node, fh));
        if number < locks {
            assert!(talk.ask(node, |ids| build::setlk(ids, &lock(fh))).is_some());
            talk.reply(talk.unique, &[]);
        }
    }
    known
}

fn lock(fh: u64) -> LkIn {
    let lk = FileLock { start: 0, end: u64::MAX >> 1, type_: F_WRLCK, pid: 7 };
    LkIn { fh, owner: fh, lk, lk_flags: LK_FLOCK, padding: 0 }
}

/// The daemon answers what belay asks it. Gives all that it was asked up to the kernel's own
/// request `unique`, or to the end.
fn serve(talk: &mut Talk, unique: u64) -> Vec<Opcode> {
    let mut asked = Vec::new();
    while let Some(message) = talk.next_message() {
        let (opcode, names, asking) = told(&message);
        asked.push(opcode);
        match opcode {
            Opcode::LOOKUP => {
                let number: u64 = names[0].trim_start_matches("name").parse().unwrap();
                talk.reply(asking, link(100_000 + number, 50_000 + number).as_bytes());
            }
            Opcode::OPEN => {
                talk.say(asking, OpenOut { fh: 9, ..OpenOut::default() }.as_bytes());
            }
            Opcode::SETLK => {
                talk.reply(asking, &[]);
            }
            Opcode::GETATTR => {
                let attr = link(0, 50_000).attr;
                talk.say(asking, AttrOut { attr, ..AttrOut::default() }.as_bytes());
            }
            Opcode::WRITE => {
                talk.say(asking, WriteOut { size: 4, padding: 0 }.as_bytes());
            }
            other => panic!("{other}"),
        }
        if Unique::unmarked(asking) == unique {
            break;
        }
    }
    asked
}

/// The kernel asks for a file's attributes, and one daemon after the other dies of it, or beside
/// it.
fn asked_for_a_stat(nodes: u64, handles: u64, locks: u64) -> Vec<Opcode> {
    let mut talk = Talk::large();
    let known = used(&mut talk, nodes, handles, locks);
    let (last, _) = *known.last().unwrap();
    assert!(talk.ask(last, |ids| build::getattr(ids, None)).is_some());
    let unique = talk.unique;
    let message = build::getattr(Ids { unique, nodeid: last, ..Ids::default() }, None);
    for _ in 0..3 {
        talk.die();
        talk.resend(message.clone());
        assert!(talk.next_message().is_some(), "the first step");
    }
    talk.die();
    talk.resend(message);
    let asked = serve(&mut talk, unique);
    // What else there is comes then: locks before anybody else, files when somebody asks for them.
    let later = serve(&mut talk, 0);
    let taken = later.iter().filter(|opcode| **opcode == Opcode::SETLK).count();
    assert_eq!(taken as u64, locks);
    assert!(later.len() as u64 <= 3 * locks, "{later:?}");
    asked
}

/// A stat waits for a lookup of its own file, and for nothing that has to do with others.
#[test]
fn a_waiting_request_needs_no_more_than_its_own() {
    assert_eq!(asked_for_a_stat(1, 0, 0), [Opcode::LOOKUP, Opcode::GETATTR]);
    assert_eq!(asked_for_a_stat(10_000, 1_000, 100), [Opcode::LOOKUP, Opcode::GETATTR]);
}

/// What changes a file that is locked waits for its locks, and not for those of others; so it is
/// with what comes new.
#[test]
fn the_locks_of_a_file_come_before_what_is_done_with_it() {
    let mut talk = Talk::large();
    let known = used(&mut talk, 20, 20, 10);
    let head = |fh| WriteIn { fh, size: 4, ..WriteIn::default() };
    let write = |unique, node, fh| {
        let ids = Ids { unique, nodeid: node, ..Ids::default() };
        build::request(ids, Opcode::WRITE, &[head(fh).as_bytes(), b"text"])
    };
    let (node, fh) = known[7];
    assert!(talk.ask(node, |ids| write(ids.unique, ids.nodeid, fh)).is_some());
    let unique = talk.unique;
    talk.die();
    // A new one is held back until all locks are taken again, as any that comes new.
    talk.resend(write(unique, node, fh));
    let (other, other_fh) = known[3];
    assert_eq!(talk.ask(other, |ids| build::setlk(ids, &lock(other_fh))), None);
    let new = talk.unique;
    let mut asked = serve(&mut talk, unique);
    assert_eq!(asked.pop(), Some(Opcode::WRITE));
    let locks = |asked: &[Opcode]| asked.iter().filter(|opcode| **opcode == Opcode::SETLK).count();
    assert_eq!(locks(&asked), 1, "{asked:?}");
    let later = serve(&mut talk, new);
    assert!(locks(&later) >= 9, "{later:?}");
}

/// A request that holds up the others for long lets in new work before the locks are taken again:
/// what is about a file with locks waits for these all the same.
#[test]
fn new_work_waits_for_the_locks_of_its_file() {
    let mut talk = Talk::large();
    let known = used(&mut talk, 4, 4, 1);
    let (shown, (node, fh)) = (known[2].0, known[0]);
    let stat = |unique| build::getattr(Ids { unique, nodeid: shown, ..Ids::default() }, None);
    assert!(talk.ask(shown, |ids| stat(ids.unique)).is_some());
    let held = talk.unique;
    talk.die();
    talk.resend(stat(held));
    let (opcode, _, asking) = talk.next();
    assert_eq!(opcode, Opcode::LOOKUP);
    talk.reply(asking, link(100_002, 50_002).as_bytes());
    let message = talk.next_message().unwrap();
    assert_eq!(Request::parse(&message).unwrap().opcode(), Opcode::GETATTR); // and no answer
    talk.session.tick(5_000_000_000);
    // Whoever wants that lock comes behind it.
    let other = LkIn { owner: 99, ..lock(fh) };
    assert_eq!(talk.ask(node, |ids| build::setlk(ids, &other)), None);
    let new = talk.unique;
    let asked = serve(&mut talk, new);
    assert_eq!(asked, [Opcode::LOOKUP, Opcode::OPEN, Opcode::SETLK, Opcode::SETLK]);
}
