//! Hidden files: what must not happen to one at the same time.
#![forbid(unsafe_code)]

mod talk;

use belay_wire::{Attr, EntryOut, Opcode, ROOT_ID, Request, build};
use talk::{Talk, link, told};
use zerocopy::IntoBytes;

/// A hidden file is moved out of a directory that is being removed, and is closed meanwhile. Its
/// UNLINK must not overtake the RENAME: it would find nothing, and the file would be left where it
/// is moved to.
#[test]
fn a_hidden_file_that_is_being_moved_is_removed_afterwards() {
    let mut talk = Talk::new();
    let attr = Attr { ino: 110, mode: 0o040_755, nlink: 2, ..Attr::default() };
    let entry = EntryOut { nodeid: 10, attr, ..EntryOut::default() };
    assert!(talk.ask(ROOT_ID, |ids| build::lookup(ids, b"d")).is_some());
    let dir = talk.reply(talk.unique, entry.as_bytes()).unwrap().nodeid;
    assert!(talk.ask(dir, |ids| build::lookup(ids, b"f")).is_some());
    let file = talk.reply(talk.unique, link(11, 111).as_bytes()).unwrap().nodeid;
    let handle = talk.open(file);
    let hidden = talk.hide(dir, "f");

    assert!(talk.ask(file, |ids| build::release(ids, handle, 0, false)).is_some());
    let release = talk.unique;
    assert!(talk.ask(ROOT_ID, |ids| build::rmdir(ids, b"d")).is_none());
    let (opcode, names, moving) = talk.next();
    assert_eq!((opcode, names), (Opcode::RENAME, vec![hidden.clone(), hidden.clone()]));
    talk.reply(release, &[]);
    assert_eq!(talk.next_message(), None, "the file is on its way");
    talk.reply(moving, &[]);
    let mut asked = Vec::new();
    while let Some(message) = talk.next_message() {
        let (opcode, names, unique) = told(&message);
        if opcode != Opcode::FORGET {
            let parent = Request::parse(&message).unwrap().header.nodeid;
            asked.push((opcode, parent, names));
            talk.reply(unique, &[]);
        }
    }
    asked.sort_by_key(|(opcode, ..)| opcode.0);
    let removed = (Opcode::UNLINK, 1, vec![hidden]);
    assert_eq!(asked, [removed, (Opcode::RMDIR, 1, vec!["d".to_owned()])]);
}
