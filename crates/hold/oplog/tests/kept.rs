//! An op-log in a file: what was in the log is in it, as operations on the paths of that time, and
//! nothing that somebody else has written is taken for one.
#![allow(missing_docs)]

mod common;

use belay_oplog::kept::{
    Head, Malformed, Operation, State, Step, Text, decode, encode, left, steps,
};
use belay_oplog::{Capacity, Entry, Facts, NameChange, Oplog};
use belay_wire::Opcode;
use belay_wire::abi::{LinkIn, MkdirIn, RenameIn, SetattrIn, SetattrValid};
use common::Sim;
use common::short::{facts, fresh, write_with};
use proptest::prelude::*;
use std::io::Cursor;
use zerocopy::IntoBytes;

const SMALL: Capacity = Capacity { record_bytes: 64 << 10, pages: 64 };
const ROOT: u64 = 1;

fn text(path: &str) -> Text {
    Text(path.as_bytes().to_vec())
}

fn change(parent: u64, name: &'static str, before: u64, after: u64) -> NameChange<'static> {
    NameChange { parent, name: name.as_bytes().into(), before, after }
}

fn append(log: &mut Oplog<Sim>, facts: Facts, body: &[&[u8]], names: &[NameChange<'_>]) {
    log.append(&facts, &body.concat(), names, None).expect("room");
}

/// A directory `d` (10) with a file `d/f` (61: the node that `facts` gives to file 11), which
/// existed; then things happen.
fn filled() -> Oplog<Sim> {
    let (_, mut log) = fresh(SMALL);
    let about = |opcode, node| Facts { node, uid: 4, gid: 5, time: 77, ..facts(opcode, 2, [0, 0]) };
    append(&mut log, Facts::default(), &[], &[change(ROOT, "d", 10, 10), change(10, "f", 61, 61)]);
    write_with(&mut log, 11, 3, b"data", 0);
    let mode = MkdirIn { mode: 0o755, umask: 0 };
    let entry = Entry { key: 12, ino: 12, mode: 0o040_750 };
    let made = Facts { entry, ..about(Opcode::MKDIR, ROOT) };
    append(&mut log, made, &[mode.as_bytes(), b"new\0"], &[change(ROOT, "new", 0, 12)]);
    let rename = RenameIn { newdir: 12 };
    let moved = [change(12, "g", 0, 61), change(10, "f", 61, 0)];
    append(&mut log, about(Opcode::RENAME, 10), &[rename.as_bytes(), b"f\0g\0"], &moved);
    let link = LinkIn { oldnodeid: 61 };
    let body: [&[u8]; 2] = [link.as_bytes(), b"h\0"];
    append(&mut log, about(Opcode::LINK, ROOT), &body, &[change(ROOT, "h", 0, 61)]);
    let set = SetattrIn {
        valid: SetattrValid::MODE | SetattrValid::MTIME_NOW,
        mode: 0o100_600,
        ..SetattrIn::default()
    };
    let set_facts = Facts { files: [11, 0], ..about(Opcode::SETATTR, 61) };
    append(&mut log, set_facts, &[set.as_bytes()], &[]);
    append(&mut log, about(Opcode::UNLINK, 12), &[b"g\0"], &[change(12, "g", 61, 0)]);
    write_with(&mut log, 11, 0, b"more", 0);
    append(&mut log, about(Opcode::UNLINK, 99), &[b"x\0"], &[]);
    log
}

fn kept() -> Vec<Step> {
    steps(&filled(), ROOT).expect("whole")
}

#[test]
fn operations_are_on_the_paths_of_their_time() {
    let steps = kept();
    let names: Vec<_> = steps.iter().map(|step| step.operation.name()).collect();
    let wanted = ["write", "mkdir", "rename", "link", "change", "unlink", "write", "unknown"];
    assert_eq!(names, wanted, "{steps:#?}");
    assert_eq!(steps[0].operation, Operation::Write { path: text("d/f"), offset: 3 });
    assert_eq!((&steps[0].data[..], &steps[6].data[..]), (&b"data"[..], &b"more"[..]));
    assert_eq!(steps[6].operation, Operation::Write { path: text("h"), offset: 0 });
    assert_eq!(steps[1].operation, Operation::Mkdir { path: text("new"), mode: 0o750 });
    assert_eq!((steps[1].uid, steps[1].gid, steps[1].time), (4, 5, 77));
    let rename = Operation::Rename { from: text("d/f"), path: text("new/g"), flags: 0 };
    assert_eq!(steps[2].operation, rename);
    assert_eq!(steps[3].operation, Operation::Link { from: text("new/g"), path: text("h") });
    let Operation::Change { mode, mtime, size, .. } = &steps[4].operation else { panic!() };
    assert_eq!((*mode, *mtime, *size), (Some(0o600), Some(77), None));
    assert_eq!(steps[5].operation, Operation::Unlink { path: text("new/g") });
}

#[test]
fn data_of_writes_are_kept() {
    let (_, mut log) = fresh(SMALL);
    append(&mut log, Facts::default(), &[], &[change(ROOT, "f", 53, 53)]);
    write_with(&mut log, 3, 10, &[b'x'; 9000], 0);
    write_with(&mut log, 3, 4096, b"later", 0);
    let steps = steps(&log, ROOT).expect("whole");
    let mut file = vec![0; 9010];
    for step in &steps {
        let Operation::Write { path, offset } = &step.operation else { panic!("{step:?}") };
        assert_eq!(path, &text("f"));
        let at = *offset as usize;
        file[at..at + step.data.len()].copy_from_slice(&step.data);
    }
    let mut wanted = vec![b'x'; 9010];
    wanted[..10].fill(0);
    wanted[4096..4101].copy_from_slice(b"later");
    assert_eq!(file, wanted);
}

fn head() -> Head {
    Head { mountpoint: "/mnt".into(), image: Text(vec![0xff, b'/']), epoch: 3, ..Head::default() }
}

#[test]
fn a_file_comes_back_as_it_was_written() {
    let mut steps = kept();
    steps[0].data = vec![9; 5000];
    let file = encode(&head(), &steps).expect("not too large");
    let found = decode(&file).expect("whole");
    assert_eq!((&found.head, &found.steps), (&head(), &steps));
    assert_eq!(found.states, vec![State::Waiting; steps.len()]);
    let mut marked = file.clone();
    marked[found.states_at as usize + 2] = State::Applied.byte();
    assert_eq!(decode(&marked).expect("whole").states[2], State::Applied);
    marked[found.states_at as usize] = 5;
    assert_eq!(decode(&marked), Err(Malformed::Damaged), "no such state");
}

#[test]
fn nothing_is_taken_for_a_file_that_is_none() {
    let file = encode(&head(), &kept()).expect("not too large");
    let states = decode(&file).expect("whole").states_at as usize;
    let count = kept().len();
    for at in (0..file.len()).filter(|at| !(states..states + count).contains(at)) {
        for bit in [1, 0x80] {
            let mut corrupt = file.clone();
            corrupt[at] ^= bit;
            assert!(decode(&corrupt).is_err(), "byte {at}");
        }
    }
    for length in 0..file.len() {
        assert!(decode(&file[..length]).is_err(), "{length} bytes");
    }
    assert!(decode(&[file.as_slice(), b"x"].concat()).is_err());
    let mut later = file;
    later[8] = 2;
    assert_eq!(decode(&later), Err(Malformed::Version(2)));
}

/// What is left is known without reading what the file says that it has.
#[test]
fn what_is_left_is_counted_without_the_rest() {
    let steps = kept();
    let mut file = encode(&head(), &steps).expect("not too large");
    let states = decode(&file).expect("whole").states_at as usize;
    let left = |file: &[u8]| left(Cursor::new(file), file.len() as u64);
    assert_eq!(left(&file).expect("whole"), steps.len() as u64);
    file[states] = State::Applied.byte();
    file[states + 1] = State::Skipped.byte();
    file[states + 2] = State::Failed.byte();
    assert_eq!(left(&file).expect("whole"), steps.len() as u64 - 2);
    // The body is not looked at.
    let end = file.len() - 1;
    file[end] ^= 1;
    assert_eq!(left(&file).expect("whole"), steps.len() as u64 - 2);
    file[states] = 9;
    assert!(left(&file).is_err(), "no state");
    for length in [0, 63, 64, end] {
        assert!(left(&file[..length]).is_err(), "{length} bytes");
    }
    // A file that says it has very much, and has.
    let mut long = file.clone();
    long[16..24].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let check = xxhash_rust::xxh3::xxh3_64(&long[..56]);
    long[56..64].copy_from_slice(&check.to_le_bytes());
    let length = long.len() as u64 - steps.len() as u64 + (1 << 40);
    assert!(belay_oplog::kept::left(Cursor::new(&long), length).is_err());
}

#[test]
fn no_path_leads_out() {
    for path in ["..", "a/../../b", "/etc/passwd", "a//b", "a/", ".", "", "a\0b"] {
        let operation = Operation::Unlink { path: text(path) };
        let step = Step { record: 0, time: 0, uid: 0, gid: 0, operation, data: Vec::new() };
        let file = encode(&head(), &[step]).expect("not too large");
        assert_eq!(decode(&file), Err(Malformed::Operation(0)), "{path:?}");
    }
}

proptest! {
    #![proptest_config(belay_seeds::cases!())]

    #[test]
    fn any_bytes_are_an_error_or_a_file(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
        let begun = [&belay_oplog::kept::MAGIC[..], &1_u32.to_le_bytes(), &bytes].concat();
        prop_assert!(decode(&begun).is_err());
    }

    /// As by somebody who knows how to make check values: any description of an operation.
    #[test]
    fn any_operation_is_sound_or_refused(path in prop::collection::vec(any::<u8>(), 0..12), flags in any::<u32>()) {
        let (from, path) = (Text(path.clone()), Text(path));
        for operation in [
            Operation::Rename { from: from.clone(), path: path.clone(), flags },
            Operation::Symlink { path: path.clone(), target: from.clone() },
            Operation::SetXattr { path: path.clone(), name: from.clone(), flags },
        ] {
            let step = Step { record: 1, time: 2, uid: 3, gid: 4, operation, data: vec![5] };
            let file = encode(&head(), std::slice::from_ref(&step)).expect("not too large");
            match decode(&file) {
                Ok(found) => {
                    prop_assert_eq!(&found.steps[0], &step);
                    let (path, _) = found.steps[0].operation.paths();
                    prop_assert!(path.unwrap().names().all(|name| name != b".." && !name.contains(&0)));
                }
                Err(why) => prop_assert_eq!(why, Malformed::Operation(0)),
            }
        }
    }
}
