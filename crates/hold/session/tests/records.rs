//! Daemons that keep records of what they have done (policy `records`).
#![forbid(unsafe_code)]

mod talk;

use belay_session::Outgoing;
use belay_wire::errno::{EIO, ENODATA, ENOENT};
use belay_wire::{Opcode, ROOT_ID, Unique, build, record};
use talk::{Talk, told};

/// An UNLINK that the daemon gets, and dies of or after.
fn unlink(talk: &mut Talk) -> Vec<u8> {
    talk.ask(ROOT_ID, |ids| build::unlink(ids, b"a")).expect("the daemon gets it")
}

/// What the successor is asked of a request that came back: by a number of belay's own, in the
/// root.
fn asked(talk: &mut Talk, of: u64) -> u64 {
    let (opcode, names, unique) = talk.next();
    assert_eq!((opcode, names), (Opcode::GETXATTR, vec![record::name_of(of)]));
    assert!(Unique::new(unique).is_own());
    unique
}

#[test]
fn what_is_on_record_is_answered_and_what_is_not_is_done() {
    for is_recorded in [true, false] {
        let mut talk = Talk::recorded();
        let message = unlink(&mut talk);
        let unlinked = talk.unique;
        talk.die();
        talk.resend(message);
        let question = asked(&mut talk, unlinked);
        if is_recorded {
            talk.reply(question, &[]);
            assert_eq!(talk.next_answer(), (unlinked, 0));
        } else {
            talk.refuse(question, ENODATA);
            let (opcode, names, unique) = talk.next();
            assert_eq!((opcode, names), (Opcode::UNLINK, vec!["a".to_owned()]));
            assert_eq!(Unique::unmarked(unique), unlinked);
        }
    }
}

#[test]
fn the_answer_is_the_recorded_one() {
    let mut talk = Talk::recorded();
    let message = talk
        .ask(ROOT_ID, |ids| build::request(ids, Opcode::MKDIR, &[&[0; 8], b"d\0"]))
        .expect("it is given");
    let made = talk.unique;
    talk.die();
    talk.resend(message);
    let question = asked(&mut talk, made);
    let entry = talk::link(30, 7);
    talk.reply(question, zerocopy::IntoBytes::as_bytes(&entry));
    let Some(belay_session::Work::Answer(reply)) = talk.work() else { panic!("no answer") };
    talk.session.on_delivered(made);
    assert_eq!(talk.work(), None);
    // The kernel's node is known by it from now on, as the daemon's own.
    let node = belay_wire::get_u64(&reply, 16).expect("an entry");
    let get = talk.ask(node, |ids| build::getattr(ids, None)).expect("the daemon gets it");
    assert_eq!(belay_wire::get_u64(&get, 16), Some(30));
}

#[test]
fn reads_and_closes_are_not_asked_for() {
    let mut talk = Talk::recorded();
    let message = talk.ask(ROOT_ID, |ids| build::lookup(ids, b"a")).expect("it is given");
    talk.die();
    talk.resend(message);
    assert_eq!(talk.next().0, Opcode::LOOKUP);
}

#[test]
fn ids_and_handles_hold_in_the_next_life_and_nothing_is_hidden() {
    let mut talk = Talk::recorded();
    let (node, _) = talk.lookup("a", 30, 7);
    let handle = talk.open(node);
    talk.crash();
    // Without a question, and by the daemon's own numbers.
    let read = talk.ask(node, |ids| build::release(ids, handle, 0, false));
    let read = read.expect("the daemon gets it");
    assert_eq!(belay_wire::get_u64(&read, 16), Some(30), "the node");
    assert_eq!(belay_wire::get_u64(&read, 40), Some(1), "the handle");
    talk.reply(talk.unique, &[]);
    let (node, _) = talk.lookup("a", 30, 7);
    talk.open(node);
    let message = unlink(&mut talk);
    assert_eq!(told(&message).1, ["a"], "the daemon keeps what is open");
}

#[test]
fn what_daemons_die_of_fails_unless_it_is_on_record() {
    for is_recorded in [true, false] {
        let mut talk = Talk::recorded();
        talk.session.control().set_poison_after(2);
        let message = unlink(&mut talk);
        let unlinked = talk.unique;
        let mut is_over = false;
        for death in 1..3 {
            talk.die_by_itself();
            talk.resend(message.clone());
            let question = asked(&mut talk, unlinked);
            // The last daemon has done it before it died.
            if is_recorded && death == 2 {
                talk.reply(question, &[]);
                assert_eq!(talk.next_answer(), (unlinked, 0));
                is_over = true;
                continue;
            }
            talk.refuse(question, ENODATA);
            if death < 2 {
                assert_eq!(talk.next().0, Opcode::UNLINK);
            } else {
                assert_eq!(talk.next_answer(), (unlinked, EIO));
                is_over = true;
            }
        }
        assert!(is_over);
    }
}

#[test]
fn a_daemon_is_told_which_nodes_the_kernel_knows() {
    let ask = |talk: &mut Talk, node: u64| {
        let question = build::notify(record::IS_KNOWN, &node.to_ne_bytes());
        talk.session.on_reply(&question, || question[16..].into(), false)
    };
    let mut talk = Talk::recorded();
    let (node, _) = talk.lookup("a", 30, 7);
    for life in 0..2 {
        assert!(matches!(ask(&mut talk, 30), Outgoing::Swallow), "life {life}");
        assert!(matches!(ask(&mut talk, 31), Outgoing::Refuse(ENOENT)), "life {life}");
        talk.crash();
    }
    // The daemon gets that, and dies.
    let forget = talk.ask(node, |ids| build::forget(ids, 1)).expect("the daemon gets it");
    assert_eq!(told(&forget).0, Opcode::FORGET);
    talk.crash();
    assert!(matches!(ask(&mut talk, 30), Outgoing::Refuse(ENOENT)));
    // No other daemon is told anything of the kind.
    assert!(matches!(ask(&mut Talk::new(), 30), Outgoing::Pass));
}
