//! The policy `buffer`, file by file: what is on record until a file is stored.
#![forbid(unsafe_code)]

mod talk;

use belay_wire::abi::{FsyncIn, WriteIn, WriteOut};
use belay_wire::{Opcode, ROOT_ID, build};
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

/// A write that the daemon had before the flush, and answers while it stores; and one of another file.
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
