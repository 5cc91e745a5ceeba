//! The policy `buffer`, file by file: what is on record until a file is stored.
#![forbid(unsafe_code)]

mod talk;

use belay_recorder::control::Loss;
use belay_wire::abi::{AttrOut, FsyncIn, SetattrIn, SetattrValid, WriteIn, WriteOut};
use belay_wire::{Ids, Opcode, OpenOut, ROOT_ID, Unique, build};
use talk::{Talk, link};
use zerocopy::IntoBytes;

const O_RDWR: u32 = 2;

/// A file that is open for writing: node and handle.
fn opened(talk: &mut Talk) -> (u64, u64) {
    let (node, _) = talk.lookup("a", 30, 7);
    let fh = talk.open_with(node, O_RDWR);
    (node, fh)
}

/// The daemon gets a WRITE, and does not answer it yet: its number.
fn begin_write(talk: &mut Talk, (node, fh): (u64, u64), offset: u64) -> u64 {
    let head = WriteIn { fh, offset, size: 4, ..WriteIn::default() };
    let ask = |ids| build::request(ids, Opcode::WRITE, &[head.as_bytes(), b"data"]);
    assert!(talk.ask(node, ask).is_some());
    talk.unique
}

fn end_write(talk: &mut Talk, unique: u64) {
    talk.reply(unique, WriteOut { size: 4, ..WriteOut::default() }.as_bytes());
}

fn write(talk: &mut Talk, file: (u64, u64), offset: u64) {
    let unique = begin_write(talk, file, offset);
    end_write(talk, unique);
}

/// The same of a request by which the file is stored.
fn begin_storing(talk: &mut Talk, (node, fh): (u64, u64), opcode: Opcode) -> u64 {
    let asked = match opcode {
        Opcode::FLUSH => talk.ask(node, |ids| build::flush(ids, fh)),
        Opcode::FSYNC => {
            let body = FsyncIn { fh, ..FsyncIn::default() };
            talk.ask(node, |ids| build::request(ids, Opcode::FSYNC, &[body.as_bytes()]))
        }
        _ => talk.ask(node, |ids| build::release(ids, fh, O_RDWR, false)),
    };
    assert!(asked.is_some());
    talk.unique
}

/// The writes that a successor would be given.
fn writes(talk: &Talk) -> usize {
    let records = talk.log();
    let opcodes = records.records().map(|record| Opcode(record.unwrap().facts.opcode));
    opcodes.filter(|opcode| *opcode == Opcode::WRITE).count()
}

/// What is acknowledged while a file is being stored may have come too late for that.
#[test]
fn what_comes_while_a_file_is_stored_stays_on_record() {
    for opcode in [Opcode::FLUSH, Opcode::FSYNC] {
        let mut talk = Talk::buffered();
        let file = opened(&mut talk);
        write(&mut talk, file, 0);
        let storing = begin_storing(&mut talk, file, opcode);
        // All goes at once: what is left must not be older than what is stored.
        write(&mut talk, file, 100);
        talk.reply(storing, &[]);
        assert_eq!(writes(&talk), 2, "{opcode}");

        // It is stored by the next one, also if that one's predecessor comes to its end only now.
        let (first, second) =
            (begin_storing(&mut talk, file, opcode), begin_storing(&mut talk, file, opcode));
        talk.reply(second, &[]);
        assert_eq!(writes(&talk), 0, "{opcode}");
        write(&mut talk, file, 200);
        talk.reply(first, &[]);
        assert_eq!(writes(&talk), 1, "{opcode}");
        let release = begin_storing(&mut talk, file, Opcode::RELEASE);
        talk.reply(release, &[]);
        assert_eq!(writes(&talk), 0, "{opcode}");
    }
}

/// A write that the daemon had before the flush, and answers while it stores; and one of another
/// file.
#[test]
fn only_what_comes_of_the_same_file_counts() {
    let mut talk = Talk::buffered();
    let file = opened(&mut talk);
    let begun = begin_write(&mut talk, file, 0);
    let flush = begin_storing(&mut talk, file, Opcode::FLUSH);
    end_write(&mut talk, begun);
    talk.reply(flush, &[]);
    assert_eq!(writes(&talk), 1);

    assert!(talk.ask(ROOT_ID, |ids| build::lookup(ids, b"b")).is_some());
    let node = talk.reply(talk.unique, link(40, 8).as_bytes()).unwrap().nodeid;
    let other = (node, talk.open_with(node, O_RDWR));
    let flush = begin_storing(&mut talk, file, Opcode::FLUSH);
    write(&mut talk, other, 0);
    talk.reply(flush, &[]);
    assert_eq!(writes(&talk), 1, "that of the other file");
    let failing = begin_storing(&mut talk, other, Opcode::FLUSH);
    talk.refuse(failing, 5);
    assert_eq!(writes(&talk), 1, "it has failed");
}

/// What was said to be lost.
fn told(talk: &Talk) -> Vec<String> {
    let (losses, _) = talk.session.control().losses_since(0);
    losses.into_iter().filter(|(loss, _)| *loss == Loss::Data).map(|(_, what)| what).collect()
}

/// What the daemon is given next, which is this: its number.
fn next(talk: &mut Talk, wanted: Opcode) -> u64 {
    let (opcode, _, unique) = talk.next();
    assert_eq!(opcode, wanted);
    unique
}

/// A successor does the write again, up to where it closes the file.
fn written_again(talk: &mut Talk) {
    let unique = next(talk, Opcode::LOOKUP);
    talk.reply(unique, link(31, 7).as_bytes());
    let unique = next(talk, Opcode::OPEN);
    talk.reply(unique, OpenOut { fh: 2, ..OpenOut::default() }.as_bytes());
    let unique = next(talk, Opcode::WRITE);
    talk.reply(unique, WriteOut { size: 4, ..WriteOut::default() }.as_bytes());
    let unique = next(talk, Opcode::FLUSH);
    talk.reply(unique, &[]);
}

/// A RELEASE that fails is nobody's answer: it is told, once, and what was to be stored stays on
/// record.
#[test]
fn a_store_that_fails_at_a_close_is_told() {
    for release in [false, true] {
        let mut talk = Talk::buffered_by_close(release);
        let file = opened(&mut talk);
        write(&mut talk, file, 0);
        let closing = begin_storing(&mut talk, file, Opcode::RELEASE);
        talk.refuse(closing, 22);
        assert_eq!(writes(&talk), 1);
        let said = told(&talk);
        assert!(said.len() == 1 && said[0].starts_with("/a: the daemon has failed to store it"));
        assert!(said[0].contains("Invalid argument"), "{said:?}");
        for (errno, left) in [(22, 1), (0, 0)] {
            talk.die();
            written_again(&mut talk);
            let unique = next(&mut talk, Opcode::RELEASE);
            assert_eq!(writes(&talk), 1, "a flush stores nothing");
            if errno == 0 {
                talk.reply(unique, &[]);
            } else {
                talk.refuse(unique, errno);
            }
            assert_eq!(talk.next_message(), None);
            assert_eq!(writes(&talk), left);
        }
    }
}

/// The same in a successor, which is the first to be refused.
#[test]
fn a_store_that_fails_in_a_successor_is_told() {
    let mut talk = Talk::buffered_by_close(false);
    let file = opened(&mut talk);
    write(&mut talk, file, 0);
    // Another has it open as well, so that the handle is nobody's.
    talk.open_with(file.0, O_RDWR);
    talk.die();
    written_again(&mut talk);
    let unique = next(&mut talk, Opcode::RELEASE);
    talk.refuse(unique, 22);
    assert_eq!(talk.next_message(), None);
    assert_eq!((writes(&talk), told(&talk).len()), (1, 1));
}

/// A write at the end of a file that was on its way goes to the place that the kernel named, as
/// those that were answered do: what it had begun may have moved the end. Under other policies the
/// daemon writes it where it finds the end.
#[test]
fn an_append_on_its_way_goes_to_its_place() {
    const O_APPEND: u32 = 0o2000;
    for (mut talk, flags) in [
        (Talk::buffered(), O_RDWR),
        (Talk::buffered_by_close(true), O_RDWR),
        (Talk::new(), O_RDWR | O_APPEND),
    ] {
        let (node, _) = talk.lookup("a", 30, 7);
        let fh = talk.open_with(node, O_RDWR | O_APPEND);
        let head = WriteIn { fh, offset: 100, size: 4, ..WriteIn::default() };
        let append = |ids| build::request(ids, Opcode::WRITE, &[head.as_bytes(), b"data"]);
        assert!(talk.ask(node, append).is_some());
        let (asked, append) =
            (talk.unique, append(Ids { unique: talk.unique, nodeid: node, ..Ids::default() }));
        talk.die();
        talk.resend(append);
        let unique = next(&mut talk, Opcode::LOOKUP);
        talk.reply(unique, link(31, 7).as_bytes());
        let open = talk.next_message().unwrap();
        let (opcode, _, unique) = talk::told(&open);
        assert_eq!(opcode, Opcode::OPEN);
        assert_eq!(open[40..44], flags.to_ne_bytes());
        talk.reply(unique, OpenOut { fh: 2, ..OpenOut::default() }.as_bytes());
        let unique = next(&mut talk, Opcode::GETATTR);
        let mut attr = AttrOut::default();
        attr.attr.size = 100;
        talk.reply(unique, attr.as_bytes());
        let again = talk.next_message().unwrap();
        let (opcode, _, unique) = talk::told(&again);
        assert_eq!((opcode, Unique::unmarked(unique)), (Opcode::WRITE, asked));
        assert_eq!(again[48..56], 100_u64.to_ne_bytes());
    }
}

/// A daemon that stores nothing but by a close: an fsync settles nothing, and a length that was set
/// by no handle is stored by belay's own close, unless somebody else's comes after it.
#[test]
fn what_only_a_close_stores() {
    let mut talk = Talk::buffered_by_close(true);
    let file = opened(&mut talk);
    write(&mut talk, file, 0);
    let synced = begin_storing(&mut talk, file, Opcode::FSYNC);
    talk.reply(synced, &[]);
    assert_eq!(writes(&talk), 1);
    let closing = begin_storing(&mut talk, file, Opcode::RELEASE);
    // It may come too late for that close.
    let cut = |talk: &mut Talk| {
        let set = SetattrIn { valid: SetattrValid::SIZE, size: 1, ..SetattrIn::default() };
        assert!(talk.ask(file.0, |ids| build::setattr(ids, &set)).is_some());
        let attr = link(30, 7).attr;
        talk.reply(talk.unique, AttrOut { attr, ..AttrOut::default() }.as_bytes());
    };
    cut(&mut talk);
    assert_eq!(talk.next_message(), None);
    talk.reply(closing, &[]);
    assert_eq!(writes(&talk), 1);
    let opening = next(&mut talk, Opcode::OPEN);
    // Who has it open meanwhile, and closes it, stores nothing: belay has it open.
    let other = (file.0, talk.open_with(file.0, O_RDWR));
    let between = begin_storing(&mut talk, other, Opcode::RELEASE);
    talk.reply(opening, OpenOut { fh: 9, ..OpenOut::default() }.as_bytes());
    talk.reply(between, &[]);
    assert_eq!(writes(&talk), 1);
    let closing = next(&mut talk, Opcode::RELEASE);
    cut(&mut talk);
    talk.reply(closing, &[]);
    // Once more, for what came meanwhile.
    let opening = next(&mut talk, Opcode::OPEN);
    talk.reply(opening, OpenOut { fh: 9, ..OpenOut::default() }.as_bytes());
    let closing = next(&mut talk, Opcode::RELEASE);
    assert_eq!(writes(&talk), 1);
    talk.reply(closing, &[]);
    assert_eq!((writes(&talk), talk.log().sizes().records), (0, 0));
    assert_eq!(talk.next_message(), None);
}
