//! Exchanges of two names that were under way as the daemon died.
#![forbid(unsafe_code)]

mod talk;

use belay_recorder::control::Loss;
use belay_session::Work;
use belay_wire::{Opcode, ROOT_ID, build};
use talk::{Talk, link, told};
use zerocopy::IntoBytes;

use belay_wire::abi::RENAME_EXCHANGE;

/// The files a and b with these ids and numbers are to be exchanged as their daemon dies; its
/// successor shows these in their places. Gives whether the exchange is made then, and what belay
/// tells.
fn exchanged(files: [(u64, u64); 2], found: [(u64, u64); 2]) -> (bool, Vec<(Loss, String)>) {
    let mut talk = Talk::new();
    for (name, (id, ino)) in ["a", "b"].into_iter().zip(files) {
        talk.lookup(name, id, ino);
    }
    let exchange = |ids| build::rename2(ids, ROOT_ID, RENAME_EXCHANGE, b"a", b"b");
    let message = talk.ask(ROOT_ID, exchange).expect("the daemon has it");
    talk.die();
    talk.resend(message);
    let mut again = false;
    while let Some(work) = talk.work() {
        // Belay answers by itself what was done.
        let Work::Deliver(message) = work else { continue };
        let (opcode, names, unique) = told(&message);
        let found = match names.first().map(String::as_str) {
            Some("b") => found[1],
            _ => found[0],
        };
        match opcode {
            Opcode::LOOKUP => {
                talk.reply(unique, link(found.0, found.1).as_bytes());
            }
            Opcode::RENAME2 => {
                again = true;
                talk.say(unique, &[]);
            }
            Opcode::FORGET | Opcode::BATCH_FORGET => {}
            other => panic!("{other:?}"),
        }
    }
    (again, talk.losses())
}

/// Numbers of the files' own tell whether it was done.
#[test]
fn numbers_tell_whether_it_was_done() {
    let files = [(2, 102), (3, 103)];
    assert_eq!(exchanged(files, [(2, 102), (3, 103)]), (true, Vec::new()), "it was not");
    assert_eq!(exchanged(files, [(2, 103), (3, 102)]), (false, Vec::new()), "it was");
}

/// L36: numbers that are the daemon's ids do not: it may be done twice, which is told.
#[test]
fn what_numbers_do_not_tell_is_told() {
    let (again, losses) = exchanged([(2, 2), (3, 3)], [(2, 2), (3, 3)]);
    assert!(again);
    let [(Loss::Request, what)] = &losses[..] else { panic!("{losses:?}") };
    assert!(what.starts_with("/a and /b: ") && what.contains("twice"), "{what}");
}
