//! Roll-forward: which node is which after what was answered has been replayed.
#![forbid(unsafe_code)]

mod talk;

use belay_oplog::{Entry, Facts, NameChange};
use belay_recorder::control::Counter;
use belay_session::Outgoing;
use belay_wire::abi::{CopyFileRangeIn, MkdirIn, SetattrIn, SetxattrInShort, WriteIn, WriteOut};
use belay_wire::{Attr, AttrOut, EntryOut, Opcode, OpenOut, ROOT_ID, Request, Unique, build};
use talk::{Talk, link, told};
use zerocopy::{FromBytes, IntoBytes};

/// A successor that has the files `a`, `b` and `c` under new ids, and one node for all links of a
/// file. Answers what is replayed; gives what it was asked.
fn roll_forward(talk: &mut Talk) -> Vec<(Opcode, Vec<String>)> {
    let id = |name: &str| match name {
        "a" => (70, 7),
        "b" => (80, 8),
        "c" => (90, 9),
        other => panic!("{other}"),
    };
    let mut asked = Vec::new();
    while let Some(message) = talk.next_message() {
        let (opcode, names, unique) = told(&message);
        match opcode {
            Opcode::LOOKUP => {
                let (id, ino) = id(&names[0]);
                talk.reply(unique, link(id, ino).as_bytes());
            }
            Opcode::LINK => {
                assert_eq!(
                    belay_wire::get_u64(Request::parse(&message).unwrap().body, 0),
                    Some(70)
                );
                talk.reply(unique, link(70, 7).as_bytes());
            }
            Opcode::RENAME => {
                talk.reply(unique, &[]);
            }
            Opcode::FORGET => continue,
            other => panic!("{other}"),
        }
        asked.push((opcode, names));
    }
    assert!(!talk.session.is_rolling_forward());
    asked
}

/// The link by which an open file is kept is of that file, by whatever number the daemon went that
/// made it: here its id of `a` is the kernel's key of `c`.
#[test]
fn a_file_that_is_kept_is_no_other_file_after_a_crash() {
    let mut talk = Talk::logged();
    let (other, _) = talk.lookup("c", 30, 9);
    let (target, _) = talk.lookup("a", other, 7);
    talk.lookup("b", 31, 8);
    talk.open(target);
    let (hidden, (opcode, names, unique)) = talk.rename_over(other, 7);
    assert_eq!((opcode, names), (Opcode::RENAME, vec!["b".into(), "a".into()]));
    talk.reply(unique, &[]);

    talk.die();
    let asked = roll_forward(&mut talk);
    let made = |opcode| asked.iter().filter(move |(other, _)| *other == opcode);
    assert_eq!(made(Opcode::LINK).collect::<Vec<_>>(), [&(Opcode::LINK, vec![hidden])]);
    assert_eq!(made(Opcode::RENAME).count(), 1);

    // `c` has to be found first, and is then asked for by its own id.
    assert_eq!(talk.ask(other, |ids| build::getattr(ids, None)), None);
    let (opcode, names, unique) = talk.next();
    assert_eq!((opcode, names), (Opcode::LOOKUP, vec!["c".to_owned()]));
    talk.reply(unique, link(90, 9).as_bytes());
    let message = talk.next_message().expect("the request");
    let request = Request::parse(&message).unwrap();
    assert_eq!((request.opcode(), request.header.nodeid), (Opcode::GETATTR, 90));
    let attr = link(90, 9).attr;
    talk.reply(request.header.unique, AttrOut { attr, ..AttrOut::default() }.as_bytes());
}

/// What a daemon says of a new directory.
fn directory(id: u64, ino: u64) -> EntryOut {
    let attr = Attr { ino, mode: 0o040_755, nlink: 2, ..Attr::default() };
    EntryOut { nodeid: id, attr, ..EntryOut::default() }
}

/// The kernel forgets nodes when it likes, and has another key for each when it asks again. What
/// was made under an old key is still what it knows under the new one; also where the daemon has it
/// under another inode number now.
#[test]
fn what_was_made_under_keys_that_the_kernel_has_forgotten() {
    let mut talk = Talk::logged();
    let look = |talk: &mut Talk, parent, name: &str, id, ino| {
        assert!(talk.ask(parent, |ids| build::lookup(ids, name.as_bytes())).is_some());
        let entry = talk.reply(talk.unique, directory(id, ino).as_bytes()).unwrap();
        (entry.nodeid, entry.attr.ino)
    };
    let old = make(&mut talk, ROOT_ID, "d", 10, 110);
    let inner = make(&mut talk, old, "e", 11, 111);
    for key in [inner, old] {
        talk.ask(key, |ids| build::forget(ids, 1));
        while talk.next_message().is_some() {}
    }
    let (new, _) = look(&mut talk, ROOT_ID, "d", 20, 110);
    let (inner, ino) = look(&mut talk, new, "e", 21, 111);
    assert_ne!(new, old);
    make(&mut talk, new, "f", 22, 112);

    talk.die();
    let mut ids = 30..;
    while let Some(message) = talk.next_message() {
        let (opcode, names, unique) = told(&message);
        match (opcode, names.first().map(String::as_str)) {
            (Opcode::LOOKUP, Some("d")) => talk.reply(unique, directory(30, 130).as_bytes()),
            (Opcode::MKDIR, _) => {
                let id = ids.next().unwrap();
                talk.reply(unique, directory(id, id + 100).as_bytes())
            }
            (Opcode::FORGET, _) => None,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(look(&mut talk, new, "e", 31, 131), (inner, ino));
}

/// The kernel makes a directory.
fn make(talk: &mut Talk, parent: u64, name: &str, id: u64, ino: u64) -> u64 {
    let head = MkdirIn { mode: 0o755, umask: 0 };
    let body = [head.as_bytes(), name.as_bytes(), b"\0"];
    assert!(talk.ask(parent, |ids| build::request(ids, Opcode::MKDIR, &body)).is_some());
    talk.reply(talk.unique, directory(id, ino).as_bytes()).unwrap().nodeid
}

/// A daemon that works on several requests at once may answer them in another order than it has
/// carried them out in. The op-log has the order of the answers, and inode numbers come from the
/// other one: so it gets one at a time.
#[test]
fn requests_that_take_inode_numbers_do_not_overtake_each_other() {
    let ask = |talk: &mut Talk, opcode, name: &str| {
        let head = MkdirIn { mode: 0o755, umask: 0 };
        let head = if opcode == Opcode::MKDIR { head.as_bytes() } else { &[] };
        let body = [head, name.as_bytes(), b"\0"];
        talk.ask(ROOT_ID, |ids| build::request(ids, opcode, &body)).is_some()
    };
    let mut talk = Talk::logged();
    talk.lookup("a", 30, 9);
    assert!(ask(&mut talk, Opcode::MKDIR, "d"));
    let first = talk.unique;
    assert!(!ask(&mut talk, Opcode::MKDIR, "e"));
    let second = talk.unique;
    assert!(!ask(&mut talk, Opcode::UNLINK, "a"));
    let third = talk.unique;
    assert!(ask(&mut talk, Opcode::LOOKUP, "x"), "others need not wait");
    assert_eq!(talk.next_message(), None);
    talk.reply(first, directory(10, 110).as_bytes());
    assert_eq!(talk.next(), (Opcode::MKDIR, vec!["e".to_owned()], second));
    assert_eq!(talk.next_message(), None);
    talk.reply(second, directory(11, 111).as_bytes());
    assert_eq!(talk.next(), (Opcode::UNLINK, vec!["a".to_owned()], third));
    talk.reply(third, &[]);
    assert!(ask(&mut talk, Opcode::MKDIR, "f"));

    // Only where there is a log to be in order.
    let mut talk = Talk::new();
    assert!(ask(&mut talk, Opcode::MKDIR, "d") && ask(&mut talk, Opcode::MKDIR, "e"));
}

/// A directory that is to be removed waits for a hidden file in it to be removed first, which is to
/// be done once that is closed. A checkpoint that begins in between must not wait for the first and
/// hold up the second.
#[test]
fn what_is_left_to_be_done_is_part_of_a_checkpoint() {
    let mut talk = Talk::logged();
    let dir = make(&mut talk, ROOT_ID, "d", 10, 110);
    assert!(talk.ask(dir, |ids| build::lookup(ids, b"f")).is_some());
    let file = talk.reply(talk.unique, link(11, 111).as_bytes()).unwrap().nodeid;
    let handle = talk.open(file);
    let hidden = talk.hide(dir, "f");

    assert!(talk.ask(file, |ids| build::release(ids, handle, 0, false)).is_some());
    let release = talk.unique;
    assert!(
        talk.ask(ROOT_ID, |ids| build::request(ids, Opcode::RMDIR, &[b"d\0"])).is_none(),
        "there is a file in it"
    );
    let rmdir = talk.unique;
    assert!(talk.session.begin_checkpoint(0));
    talk.reply(release, &[]);
    let (opcode, names, unique) = talk.next();
    assert_eq!((opcode, names), (Opcode::UNLINK, vec![hidden]));
    talk.reply(unique, &[]);
    while let Some(message) = talk.next_message() {
        let (opcode, _, unique) = told(&message);
        match opcode {
            Opcode::FORGET => {}
            Opcode::RMDIR => {
                assert_eq!(unique, rmdir);
                talk.reply(unique, &[]);
            }
            // Only then is the daemon made to write.
            Opcode::OPENDIR => return,
            other => panic!("{other}"),
        }
    }
    panic!("no flush");
}

/// Daemons of libfuse's high level keep a file that is open when its name goes, under a name of
/// their own: its inode number is not free then, and the next file gets another one than before the
/// crash. So the roll-forward closes what it has opened to write to it before it takes its name.
#[test]
fn a_file_that_is_written_to_again_is_closed_before_its_name_goes() {
    let mut talk = Talk::logged();
    let (file, _) = talk.lookup("a", 10, 7);
    talk.lookup("b", 11, 8);
    let handle = talk.open(file);
    let write = WriteIn { fh: handle, size: 3, ..WriteIn::default() };
    let body = [write.as_bytes(), b"abc"];
    assert!(talk.ask(file, |ids| build::request(ids, Opcode::WRITE, &body)).is_some());
    let written = WriteOut { size: 3, padding: 0 };
    talk.reply(talk.unique, written.as_bytes());
    assert!(talk.ask(file, |ids| build::release(ids, handle, 0, false)).is_some());
    talk.reply(talk.unique, &[]);
    assert!(talk.ask(ROOT_ID, |ids| build::rename(ids, ROOT_ID, b"b", b"a")).is_some());
    talk.reply(talk.unique, &[]);

    talk.die();
    let mut asked = Vec::new();
    while let Some(message) = talk.next_message() {
        let (opcode, names, unique) = told(&message);
        match opcode {
            Opcode::LOOKUP if names[0] == "a" => talk.reply(unique, link(70, 7).as_bytes()),
            Opcode::LOOKUP => talk.reply(unique, link(71, 8).as_bytes()),
            Opcode::OPEN => talk.reply(unique, OpenOut { fh: 5, ..OpenOut::default() }.as_bytes()),
            Opcode::WRITE => talk.reply(unique, written.as_bytes()),
            Opcode::FORGET => continue,
            _ => talk.reply(unique, &[]),
        };
        asked.push(opcode);
    }
    asked.retain(|opcode| *opcode != Opcode::LOOKUP);
    assert_eq!(asked, [Opcode::OPEN, Opcode::WRITE, Opcode::RELEASE, Opcode::RENAME]);
}

/// What the reply to a LINK tells of the file (the mode is compared) comes of the writes before it:
/// a later write over the same bytes does not make one of these needless.
#[test]
fn a_write_before_a_link_is_issued_although_another_covers_it() {
    let mut talk = Talk::logged();
    let (file, _) = talk.lookup("a", 10, 7);
    let handle = talk.open(file);
    let write = |talk: &mut Talk| {
        let write = WriteIn { fh: handle, size: 3, ..WriteIn::default() };
        let body = [write.as_bytes(), b"abc"];
        assert!(talk.ask(file, |ids| build::request(ids, Opcode::WRITE, &body)).is_some());
        talk.reply(talk.unique, WriteOut { size: 3, padding: 0 }.as_bytes());
    };
    write(&mut talk);
    write(&mut talk);
    assert!(talk.ask(ROOT_ID, |ids| build::link(ids, file, b"b")).is_some());
    talk.reply(talk.unique, link(10, 7).as_bytes());
    write(&mut talk);
    let log = talk.log();
    let opcodes = log.records().map(|record| Opcode(record.unwrap().facts.opcode));
    // One that is no request says where the file is.
    let opcodes: Vec<_> = opcodes.filter(|opcode| opcode.0 != 0).collect();
    assert_eq!(opcodes, [Opcode::WRITE, Opcode::LINK, Opcode::WRITE]);
}

/// A write that is longer than all that the op-log can hold is said to be lost when that happens,
/// and when it is to be done again.
#[test]
fn a_write_whose_data_find_no_room_is_told_of() {
    let mut talk = Talk::logged();
    let (node, _) = talk.lookup("a", 30, 7);
    let fh = talk.open(node);
    let mut write = |offset: u64, size: u32| {
        let head = WriteIn { fh, offset, size, ..WriteIn::default() };
        let data = vec![1; size as usize];
        let asked =
            talk.ask(node, |ids| build::request(ids, Opcode::WRITE, &[head.as_bytes(), &data]));
        assert!(asked.is_some(), "it is held up");
        talk.reply(talk.unique, WriteOut { size, ..WriteOut::default() }.as_bytes());
        talk.session.is_full()
    };
    assert!(write(1 << 20, 512 << 10), "no checkpoint makes room for it");
    assert!(write(0, 8192));

    talk.die();
    let mut writes = 0;
    while let Some(message) = talk.next_message() {
        let (opcode, _, unique) = told(&message);
        let body = match opcode {
            Opcode::LOOKUP => link(70, 7).as_bytes().to_vec(),
            Opcode::OPEN => OpenOut { fh: 5, ..OpenOut::default() }.as_bytes().to_vec(),
            Opcode::WRITE => WriteOut { size: 8192, ..WriteOut::default() }.as_bytes().to_vec(),
            Opcode::RELEASE => Vec::new(),
            Opcode::FORGET => continue,
            other => panic!("{other}"),
        };
        writes += u32::from(opcode == Opcode::WRITE);
        talk.reply(unique, &body);
    }
    assert_eq!((writes, talk.session.control().counter(Counter::Failed)), (1, 1));
}

/// What found no room in the op-log, and was sent again after a crash, still waits for the
/// checkpoint: if the successor did it at once, its data were lost at the next crash.
#[test]
fn what_finds_no_room_waits_also_after_a_crash() {
    let mut talk = Talk::logged();
    let (node, _) = talk.lookup("a", 30, 7);
    let fh = talk.open(node);
    let message = |unique, number: u64| {
        let ids = belay_wire::Ids { unique, nodeid: node, ..belay_wire::Ids::default() };
        let head = WriteIn { fh, offset: number << 20, size: 32768, ..WriteIn::default() };
        build::request(ids, Opcode::WRITE, &[head.as_bytes(), &[1; 32768]])
    };
    let written = WriteOut { size: 32768, ..WriteOut::default() };
    let mut waiting = Vec::new();
    for number in 0..20 {
        if talk.ask(node, |ids| message(ids.unique, number)).is_some() {
            talk.reply(talk.unique, written.as_bytes());
        } else {
            waiting.push(message(talk.unique, number));
        }
    }
    assert_eq!(waiting.len(), 12, "there are 64 pages");
    assert_eq!(talk.session.work(0), None);
    assert!(talk.session.is_awaiting(), "nobody may sleep until there is room");
    let chmod = SetattrIn {
        valid: belay_wire::abi::SetattrValid::MODE,
        mode: 0o600,
        ..SetattrIn::default()
    };
    assert!(talk.ask(node, |ids| build::setattr(ids, &chmod)).is_some(), "it needs no page");
    let chmod = {
        let ids =
            belay_wire::Ids { unique: talk.unique, nodeid: node, ..belay_wire::Ids::default() };
        build::setattr(ids, &chmod)
    };

    talk.die();
    waiting.drain(..).for_each(|message| talk.resend(message));
    talk.resend(chmod);
    let mut asked = Vec::new();
    while let Some(message) = talk.next_message() {
        let (opcode, _, unique) = told(&message);
        let data =
            WriteOut { size: (message.len() as u32).saturating_sub(80), ..WriteOut::default() };
        let attr = AttrOut { attr: link(70, 7).attr, ..AttrOut::default() };
        let body = match opcode {
            Opcode::LOOKUP => link(70, 7).as_bytes().to_vec(),
            Opcode::OPEN => OpenOut { fh: 5, ..OpenOut::default() }.as_bytes().to_vec(),
            Opcode::WRITE => data.as_bytes().to_vec(),
            Opcode::SETATTR => attr.as_bytes().to_vec(),
            _ => Vec::new(),
        };
        if opcode != Opcode::FORGET {
            talk.reply(unique, &body);
            asked.push(opcode);
        }
    }
    assert_eq!(
        asked.iter().filter(|opcode| **opcode == Opcode::WRITE).count(),
        8,
        "those of the log"
    );
    assert_eq!(asked.last(), Some(&Opcode::SETATTR), "what has room does not wait: {asked:?}");
    assert!(!talk.session.is_full());
    assert!(talk.session.wants_checkpoint());
}

/// More was begun at once than the op-log can take: what cannot be put on record is not answered.
#[test]
fn what_cannot_be_put_on_record_is_not_answered() {
    let mut talk = Talk::logged();
    let (node, _) = talk.lookup("a", 30, 7);
    let mut asked = Vec::new();
    for number in 0..30 {
        let value = [7; 3000];
        let head = SetxattrInShort { size: value.len() as u32, flags: 0 };
        let name = format!("user.{number}");
        let body = [head.as_bytes(), name.as_bytes(), b"\0", &value];
        assert!(talk.ask(node, |ids| build::request(ids, Opcode::SETXATTR, &body)).is_some());
        asked.push(talk.unique);
    }
    let refused = asked.iter().position(|unique| talk.say(*unique, &[]) == Outgoing::Unrecordable);
    assert_eq!(refused, Some(20), "of 64 KiB a sixteenth is left");
    assert!(!talk.session.is_full());

    talk.die();
    let mut again = 0;
    while let Some(message) = talk.next_message() {
        let (opcode, _, unique) = told(&message);
        match opcode {
            Opcode::LOOKUP => talk.reply(unique, link(70, 7).as_bytes()),
            Opcode::SETXATTR => talk.reply(unique, &[]),
            Opcode::FORGET => continue,
            other => panic!("{other}"),
        };
        again += u32::from(opcode == Opcode::SETXATTR);
    }
    assert_eq!(again, 20, "all that was answered");
}

/// A copy that comes out shorter than before the crash is a divergence, as a write is.
#[test]
fn what_was_copied_is_counted() {
    for opcode in [Opcode::COPY_FILE_RANGE, Opcode::COPY_FILE_RANGE_64] {
        for now in [100, 99] {
            let mut talk = Talk::logged();
            let (from, _) = talk.lookup("a", 30, 7);
            let (to, _) = talk.lookup("b", 31, 8);
            let (fh_in, fh_out) = (talk.open(from), talk.open(to));
            let head = CopyFileRangeIn {
                fh_in,
                nodeid_out: to,
                fh_out,
                len: 4096,
                ..CopyFileRangeIn::default()
            };
            let count = |size: u64| size.to_ne_bytes(); // of the first 32 bits, and 32 bits of nothing
            let body = [head.as_bytes()];
            assert!(talk.ask(from, |ids| build::request(ids, opcode, &body)).is_some());
            talk.reply(talk.unique, &count(100));

            talk.die();
            let mut copies = 0;
            while let Some(message) = talk.next_message() {
                let (asked, names, unique) = told(&message);
                let body = match asked {
                    Opcode::LOOKUP if names[0] == "a" => link(70, 7).as_bytes().to_vec(),
                    Opcode::LOOKUP => link(71, 8).as_bytes().to_vec(),
                    Opcode::OPEN => OpenOut { fh: 5, ..OpenOut::default() }.as_bytes().to_vec(),
                    Opcode::RELEASE => Vec::new(),
                    Opcode::FORGET => continue,
                    asked => {
                        assert_eq!(asked, opcode);
                        let body = Request::parse(&message).unwrap().body;
                        assert_eq!(CopyFileRangeIn::read_from_prefix(body).unwrap().0.len, 100);
                        copies += 1;
                        count(now).to_vec()
                    }
                };
                talk.reply(unique, &body);
            }
            let failed = talk.session.control().counter(Counter::Failed);
            assert_eq!((copies, failed), (1, u64::from(now != 100)), "{opcode}");
        }
    }
}

fn rename(ids: belay_wire::Ids) -> Vec<u8> {
    build::rename(ids, ROOT_ID, b"b", b"a")
}

/// The kernel asks for `b` to be renamed over the open file `a`; gives that request's unique.
fn rename_over_open(talk: &mut Talk) -> u64 {
    let (file, _) = talk.lookup("a", 30, 7);
    talk.lookup("b", 31, 8);
    talk.open(file);
    assert!(talk.ask(ROOT_ID, rename).is_none());
    talk.unique
}

/// The kernel sends that request again.
fn resend_rename(talk: &mut Talk, unique: u64) {
    talk.resend(rename(belay_wire::Ids { unique, nodeid: ROOT_ID, ..Default::default() }));
}

/// What the daemon is asked up to the RENAME of `b` over the open file `a`, where links are nodes
/// of their own so that `a` is moved to a hidden name; gives that name and the RENAME's unique.
fn up_to_the_rename(talk: &mut Talk) -> (String, u64) {
    let mut hidden = String::new();
    loop {
        let (opcode, names, unique) = told(&talk.next_message().expect("the RENAME"));
        match opcode {
            Opcode::LINK => {
                hidden.clone_from(&names[0]);
                talk.reply(unique, link(99, 7).as_bytes());
            }
            Opcode::RENAME if names == ["b", "a"] => return (hidden, unique),
            Opcode::RENAME => {
                assert_eq!(names, ["a", &hidden]);
                talk.reply(unique, &[]);
            }
            Opcode::LOOKUP => {
                let (id, ino) = if names[0] == "b" { (71, 8) } else { (70, 7) };
                talk.reply(unique, link(id, ino).as_bytes());
            }
            Opcode::OPEN => {
                talk.reply(unique, OpenOut { fh: 5, ..OpenOut::default() }.as_bytes());
            }
            Opcode::FORGET => {}
            other => panic!("{other}"),
        }
    }
}

/// A rename over an open file that fails leaves nothing behind: the file has its name back, and the
/// hidden one is gone, before the caller hears of it. So wherever in this the daemon dies, its
/// successor begins anew.
#[test]
fn a_rename_that_fails_is_undone_before_it_is_answered() {
    for dies_after in 0..4 {
        let mut talk = Talk::logged();
        let asked = rename_over_open(&mut talk);
        let (hidden, unique) = up_to_the_rename(&mut talk);
        assert_eq!(unique, asked);
        let steps =
            [(Opcode::RENAME, vec![hidden.clone(), "a".into()]), (Opcode::UNLINK, vec![hidden])];
        let undo = |talk: &mut Talk, most: usize| {
            for (opcode, names) in steps.iter().take(most) {
                let next = loop {
                    let next = talk.next();
                    if next.0 != Opcode::FORGET {
                        break next;
                    }
                };
                assert_eq!((next.0, &next.1), (*opcode, names), "dies after {dies_after}");
                talk.reply(next.2, &[]);
            }
        };
        if dies_after > 0 {
            talk.refuse(unique, 28);
            undo(&mut talk, dies_after - 1);
        }
        if dies_after < 3 {
            talk.die();
            resend_rename(&mut talk, asked);
            // First what was done before is done again, as what is not on record otherwise.
            let (_, again) = loop {
                let (opcode, names, unique) = told(&talk.next_message().expect("a request"));
                let (id, ino) =
                    if names.first().is_some_and(|name| name == "b") { (71, 8) } else { (70, 7) };
                match opcode {
                    Opcode::RENAME if names == ["b", "a"] => break (opcode, unique),
                    Opcode::LOOKUP => talk.reply(unique, link(id, ino).as_bytes()),
                    Opcode::LINK => talk.reply(unique, link(99, 7).as_bytes()),
                    Opcode::FORGET => continue,
                    _ => talk.reply(unique, &[]),
                };
            };
            talk.refuse(again, 28);
            undo(&mut talk, 2);
        }
        assert_eq!(talk.next_answer(), (asked, 28), "dies after {dies_after}");
        while talk.next_message().is_some() {}

        talk.die();
        let mut again = Vec::new();
        while let Some(message) = talk.next_message() {
            let (opcode, names, unique) = told(&message);
            let (id, ino) =
                if names.first().is_some_and(|name| name == "b") { (71, 8) } else { (70, 7) };
            let body = match opcode {
                Opcode::LOOKUP | Opcode::LINK => link(id, ino).as_bytes().to_vec(),
                Opcode::FORGET => continue,
                _ => Vec::new(),
            };
            talk.reply(unique, &body);
            again.push((opcode, names));
        }
        assert_eq!(again[again.len() - 2..], steps, "dies after {dies_after}");
    }
}

/// A daemon that dies between the record and the answer has its successor do the request once, as
/// the kernel's; also where the kernel cannot send it again.
#[test]
fn what_was_recorded_and_not_answered_is_done_once() {
    for copies in [false, true] {
        let mut talk = if copies { Talk::logged_with_copies() } else { Talk::logged() };
        let head = MkdirIn { mode: 0o755, umask: 0 };
        let body = [head.as_bytes(), b"d\0"];
        let message = |ids| build::request(ids, Opcode::MKDIR, &body);
        assert!(talk.ask(ROOT_ID, message).is_some());
        let facts = Facts {
            unique: talk.unique,
            opcode: Opcode::MKDIR.0,
            node: ROOT_ID,
            entry: Entry { key: 9, ino: 9, mode: 0o040_755 },
            ..Facts::default()
        };
        let made = NameChange { parent: ROOT_ID, name: b"d"[..].into(), before: 0, after: 9 };
        talk.log().append(&facts, &body.concat(), &[made], None).unwrap();

        talk.die();
        if !copies {
            let ids =
                belay_wire::Ids { unique: talk.unique, nodeid: ROOT_ID, ..Default::default() };
            talk.resend(message(ids));
        }
        let (opcode, _, unique) = talk.next();
        let unique = Unique::unmarked(unique);
        assert_eq!((opcode, unique), (Opcode::MKDIR, talk.unique), "copies: {copies}");
        assert_eq!(talk.log().sizes().records, 0);
    }
}

/// A rename over an open file that daemons die of fails alone; what was begun of it is undone
/// before that is said.
#[test]
fn a_rename_that_daemons_die_of_leaves_nothing_behind() {
    let mut talk = Talk::logged();
    talk.session.control().set_poison_after(2);
    let asked = rename_over_open(&mut talk);
    up_to_the_rename(&mut talk);
    for _ in 0..4 {
        talk.die_by_itself();
        resend_rename(&mut talk, asked);
        let mut undone = Vec::new();
        loop {
            let work = talk.session.work(0);
            let message = match work {
                Some(belay_session::Work::Deliver(message)) => message,
                Some(belay_session::Work::Answer(reply)) => {
                    assert_eq!(Unique::unmarked(belay_wire::get_u64(&reply, 8).unwrap()), asked);
                    assert_eq!(i32::from_ne_bytes(reply[4..8].try_into().unwrap()), -5);
                    let unhides = |(opcode, _): &(Opcode, Vec<String>)| *opcode == Opcode::RENAME;
                    assert!(undone.len() == 2 && unhides(&undone[0]), "{undone:?}");
                    assert_eq!(undone[1].0, Opcode::UNLINK);
                    return;
                }
                other => panic!("{other:?}"),
            };
            let (opcode, names, unique) = told(&message);
            let (id, ino) =
                if names.first().is_some_and(|name| name == "b") { (71, 8) } else { (70, 7) };
            match opcode {
                Opcode::RENAME if names == ["b", "a"] => break, // it dies
                Opcode::LOOKUP => {
                    talk.reply(unique, link(id, ino).as_bytes());
                }
                Opcode::LINK => {
                    talk.reply(unique, link(99, 7).as_bytes());
                }
                Opcode::FORGET => continue,
                Opcode::UNLINK => {
                    undone.push((opcode, names));
                    talk.reply(unique, &[]);
                }
                Opcode::RENAME => {
                    if names[1] == "a" {
                        undone.push((opcode, names));
                    }
                    talk.reply(unique, &[]);
                }
                other => panic!("{other}"),
            }
        }
    }
    panic!("no daemon is spared");
}
