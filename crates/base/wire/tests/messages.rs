//! Requests with known contents.

use belay_wire::abi::*;
use belay_wire::{Ids, Opcode, Reply, Request, WireError, build, fields};
use belay_wire::{get_u64, handle_fields, node_fields, put_u64};
use zerocopy::IntoBytes;

const IDS: Ids = Ids { unique: 6, nodeid: 9, uid: 1000, gid: 100, pid: 77 };

fn at(message: &[u8], fields: fields::Fields) -> Vec<u64> {
    assert_eq!(fields.iter().count(), fields.len());
    assert_eq!(fields.is_empty(), fields.into_iter().next().is_none());
    assert!(fields.iter().eq(fields));
    for (a, b) in (&fields).into_iter().zip(fields) {
        assert_eq!(a, b);
    }
    fields.into_iter().map(|off| get_u64(message, off).unwrap()).collect()
}

fn parse(message: &[u8]) -> Request<'_> {
    let r = Request::parse(message).unwrap();
    assert_eq!(r.header.len as usize, message.len());
    assert_eq!((r.header.unique, r.header.nodeid, r.header.uid), (6, 9, 1000));
    assert_eq!((r.header.gid, r.header.pid), (100, 77));
    r
}

#[test]
fn a_request_is_read_byte_by_byte() {
    let mut m = Vec::new();
    m.extend(48u32.to_ne_bytes());
    m.extend(2u32.to_ne_bytes());
    m.extend(((1u64 << 63) | 12).to_ne_bytes());
    m.extend(33u64.to_ne_bytes());
    m.extend(1u32.to_ne_bytes());
    m.extend(2u32.to_ne_bytes());
    m.extend(3u32.to_ne_bytes());
    m.extend([0; 4]);
    m.extend(5u64.to_ne_bytes());
    m.extend([0xaa; 16]); // behind the message
    let r = Request::parse(&m).unwrap();
    assert_eq!(r.opcode(), Opcode::FORGET);
    assert!(r.is_resent());
    assert_eq!(r.body.len(), 8);
    assert_eq!(r.body_as::<ForgetIn>(), Some(ForgetIn { nlookup: 5 }));
    assert_eq!(r.body_as::<ForgetOne>(), None);
    assert_eq!(get_u64(&m, fields::NODEID_OFFSET), Some(33));
    assert_eq!(get_u64(&m, fields::UNIQUE_OFFSET), Some((1 << 63) | 12));
}

#[test]
fn lengths_are_checked() {
    let good = build::lookup(IDS, b"x");
    for cut in 0..40 {
        assert_eq!(
            Request::parse(&good[..cut]).unwrap_err(),
            WireError::Short { have: cut, need: 40 }
        );
    }
    for declared in [0u32, 39, 43, u32::MAX] {
        let mut bad = good.clone();
        bad[..4].copy_from_slice(&declared.to_ne_bytes());
        let error = Request::parse(&bad).unwrap_err();
        assert_eq!(error, WireError::Length { declared, have: 42 });
        assert!(error.to_string().contains("42"));
    }
    let answer = build::reply(6, b"abc");
    assert!(Reply::parse(&answer).is_ok());
    assert!(Reply::parse(&answer[..18]).is_err());
    assert!(Reply::parse(&answer[..15]).is_err());
    let mut longer = answer;
    longer.push(0);
    assert!(Reply::parse(&longer).is_err());
}

#[test]
fn names_of_every_kind() {
    let both = |opcode, parts: &[&[u8]]| {
        let m = build::request(IDS, opcode, parts);
        let n = Request::parse(&m).unwrap().names();
        let own = |name: Option<&[u8]>| name.map(|n| String::from_utf8_lossy(n).into_owned());
        (own(n.first), own(n.second))
    };
    let one = (Some("nm".to_string()), None);
    let two = (Some("nm".to_string()), Some("to".to_string()));
    for opcode in [Opcode::LOOKUP, Opcode::UNLINK, Opcode::RMDIR, Opcode::REMOVEXATTR] {
        assert_eq!(both(opcode, &[b"nm\0"]), one);
        assert_eq!(both(opcode, &[b"nm"]), (None, None));
    }
    assert_eq!(both(Opcode::SYMLINK, &[b"nm\0to\0"]), two);
    assert_eq!(both(Opcode::SYMLINK, &[b"nm\0to"]), one);
    assert_eq!(both(Opcode::RENAME, &[&[1; 8], b"nm\0to\0"]), two);
    assert_eq!(both(Opcode::RENAME2, &[&[1; 16], b"nm\0to\0"]), two);
    assert_eq!(both(Opcode::LINK, &[&[1; 8], b"nm\0"]), one);
    assert_eq!(both(Opcode::GETXATTR, &[&[1; 8], b"nm\0"]), one);
    // A security context may follow the name.
    assert_eq!(both(Opcode::MKDIR, &[&[1; 8], b"nm\0ctx\0"]), one);
    for opcode in [Opcode::MKNOD, Opcode::CREATE, Opcode::TMPFILE] {
        assert_eq!(both(opcode, &[&[1; 16], b"nm\0"]), one);
        assert_eq!(both(opcode, &[&[1; 15]]), (None, None));
    }
    assert_eq!(both(Opcode::READ, &[b"nm\0"]), (None, None));
}

#[test]
fn both_forms_of_setxattr() {
    for (flags, name, value) in [
        (0, &b"user.x"[..], &b"value"[..]),
        (1, b"system.posix_acl_access", b"\0\0\0\0"),
        (0, b"a", b"\0\0\0\0\0\0\0\0\0"),
        (1, b"a", b""),
        (0, b"user.name\xff", b""),
    ] {
        let long =
            SetxattrIn { size: value.len() as u32, flags: 0, setxattr_flags: flags, padding: 0 };
        let short = SetxattrInShort { size: value.len() as u32, flags: 0 };
        for (ext, fixed) in [(true, long.as_bytes()), (false, short.as_bytes())] {
            let m = build::request(IDS, Opcode::SETXATTR, &[fixed, name, b"\0", value]);
            let r = parse(&m);
            assert_eq!(r.setxattr_is_ext(), ext, "{name:?} {value:?}");
            assert_eq!(r.names().first, Some(name));
            assert_eq!(r.names_with(ext).first, Some(name));
            assert_eq!(r.xattr_value(), Some(value));
            assert_eq!(r.xattr_value_with(ext), Some(value));
        }
    }
    let m = build::lookup(IDS, b"x");
    assert_eq!(parse(&m).xattr_value(), None);
    assert!(!parse(&m).setxattr_is_ext());
}

#[test]
fn builders_make_what_they_say() {
    let m = build::rename(IDS, 21, b"old", b"new");
    let r = parse(&m);
    assert_eq!(r.opcode(), Opcode::RENAME);
    assert_eq!((r.names().first, r.names().second), (Some(&b"old"[..]), Some(&b"new"[..])));
    assert_eq!(at(&m, node_fields(&r)), [21]);

    let m = build::link(IDS, 31, b"hard");
    assert_eq!(parse(&m).names().first, Some(&b"hard"[..]));
    assert_eq!(at(&m, node_fields(&parse(&m))), [31]);

    let m = build::getattr(IDS, None);
    assert_eq!(at(&m, handle_fields(&parse(&m))), [0u64; 0]);
    let m = build::getattr(IDS, Some(4));
    assert_eq!(at(&m, handle_fields(&parse(&m))), [4]);

    let mut change = SetattrIn { fh: 5, ..Default::default() };
    let m = build::setattr(IDS, &change);
    assert_eq!(at(&m, handle_fields(&parse(&m))), [0u64; 0]);
    change.valid = SetattrValid::FH | SetattrValid::SIZE;
    let m = build::setattr(IDS, &change);
    assert_eq!(at(&m, handle_fields(&parse(&m))), [5]);

    for (dir, opcode) in [(false, Opcode::RELEASE), (true, Opcode::RELEASEDIR)] {
        let m = build::release(IDS, 6, 0o2, dir);
        assert_eq!(parse(&m).opcode(), opcode);
        assert_eq!(parse(&m).body_as::<ReleaseIn>().unwrap().flags, 0o2);
        assert_eq!(at(&m, handle_fields(&parse(&m))), [6]);
    }
    for (m, opcode) in [
        (build::read(IDS, 7, 8, 9), Opcode::READ),
        (build::readdir(IDS, 7, 8, 9), Opcode::READDIR),
        (build::readdirplus(IDS, 7, 8, 9), Opcode::READDIRPLUS),
    ] {
        assert_eq!(parse(&m).opcode(), opcode);
        let b: ReadIn = parse(&m).body_as().unwrap();
        assert_eq!((b.fh, b.offset, b.size), (7, 8, 9));
        assert_eq!(at(&m, handle_fields(&parse(&m))), [7]);
    }
    let m = build::setlk(IDS, &LkIn { fh: 3, owner: 4, ..Default::default() });
    assert_eq!(parse(&m).opcode(), Opcode::SETLK);
    assert_eq!(at(&m, handle_fields(&parse(&m))), [3]);
    let m = build::getxattr(IDS, b"user.x", 11);
    assert_eq!(parse(&m).names().first, Some(&b"user.x"[..]));
    assert_eq!(parse(&m).body_as::<GetxattrIn>().unwrap().size, 11);
    for (m, opcode, len) in [
        (build::open(IDS, 1), Opcode::OPEN, 48),
        (build::opendir(IDS, 1), Opcode::OPENDIR, 48),
        (build::unlink(IDS, b"a"), Opcode::UNLINK, 42),
        (build::rmdir(IDS, b"a"), Opcode::RMDIR, 42),
        (build::lookup(IDS, b"a"), Opcode::LOOKUP, 42),
        (build::readlink(IDS), Opcode::READLINK, 40),
        (build::forget(IDS, 3), Opcode::FORGET, 48),
        (build::init(IDS, &InitIn::default()), Opcode::INIT, 104),
    ] {
        assert_eq!((parse(&m).opcode(), m.len()), (opcode, len));
        assert!(handle_fields(&parse(&m)).is_empty() && node_fields(&parse(&m)).is_empty());
    }
}

#[test]
fn copying_has_two_handles_and_a_node() {
    for opcode in [Opcode::COPY_FILE_RANGE, Opcode::COPY_FILE_RANGE_64] {
        let body = CopyFileRangeIn {
            fh_in: 1,
            off_in: 2,
            nodeid_out: 3,
            fh_out: 4,
            off_out: 5,
            len: 6,
            flags: 0,
        };
        let m = build::request(IDS, opcode, &[body.as_bytes()]);
        assert_eq!(at(&m, handle_fields(&parse(&m))), [1, 4]);
        assert_eq!(at(&m, node_fields(&parse(&m))), [3]);
        // Cut short behind the node: only what is there is reported.
        let m = build::request(IDS, opcode, &[&body.as_bytes()[..24]]);
        assert_eq!(at(&m, handle_fields(&parse(&m))), [1]);
    }
}

#[test]
fn handles_of_all_opcodes() {
    let handles = |opcode: Opcode, body: &[u8]| {
        let m = build::request(IDS, opcode, &[body]);
        handle_fields(&parse(&m)).iter().collect::<Vec<_>>()
    };
    let plain: Vec<&str> =
        Opcode::ALL.iter().filter(|&&o| handles(o, &[0; 88]) == [40]).map(|o| o.name()).collect();
    assert_eq!(
        plain,
        [
            "READ",
            "WRITE",
            "RELEASE",
            "FSYNC",
            "FLUSH",
            "READDIR",
            "RELEASEDIR",
            "FSYNCDIR",
            "GETLK",
            "SETLK",
            "SETLKW",
            "IOCTL",
            "POLL",
            "FALLOCATE",
            "READDIRPLUS",
            "LSEEK"
        ]
    );
    let flagged: Vec<&str> = Opcode::ALL
        .iter()
        .filter(|&&o| handles(o, &[0xff; 88]) == [48])
        .map(|o| o.name())
        .collect();
    assert_eq!(flagged, ["GETATTR", "SETATTR", "STATX"]);
    for &opcode in Opcode::ALL {
        assert_eq!(handles(opcode, &[0xff; 7]), [0usize; 0], "{opcode}");
    }
}

#[test]
fn batch_forget_items_can_be_patched() {
    let head = BatchForgetIn { count: 3, dummy: 0 };
    let items = [[7u64, 1], [8, 2], [9, 3]];
    let mut m = build::request(IDS, Opcode::BATCH_FORGET, &[head.as_bytes(), items.as_bytes()]);
    let got: Vec<_> = parse(&m).forgets().collect();
    assert_eq!(got.len(), 3);
    assert_eq!(got[1], (64, ForgetOne { nodeid: 8, nlookup: 2 }));
    assert!(put_u64(&mut m, 64, 80));
    assert_eq!(parse(&m).forgets().nth(1).unwrap().1.nodeid, 80);
    // More announced than there, and fewer.
    let lie = BatchForgetIn { count: u32::MAX, dummy: 0 };
    let m = build::request(IDS, Opcode::BATCH_FORGET, &[lie.as_bytes(), items.as_bytes(), &[1; 9]]);
    assert_eq!(parse(&m).forgets().count(), 3);
    let few = BatchForgetIn { count: 1, dummy: 0 };
    let m = build::request(IDS, Opcode::BATCH_FORGET, &[few.as_bytes(), items.as_bytes()]);
    assert_eq!(parse(&m).forgets().count(), 1);
    assert_eq!(parse(&build::lookup(IDS, b"a")).forgets().count(), 0);
}
