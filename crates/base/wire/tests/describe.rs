//! The lines of crash reports.

use belay_wire::abi::*;
use belay_wire::describe::quote;
use belay_wire::{Ids, Opcode, Request, Unique, build};
use zerocopy::IntoBytes;

const IDS: Ids = Ids { unique: 6, nodeid: 9, uid: 1, gid: 2, pid: 3 };

fn line(message: &[u8]) -> String {
    Request::parse(message).unwrap().describe()
}

/// The line without what all lines have in common.
fn arguments(opcode: Opcode, parts: &[&[u8]]) -> String {
    let line = line(&build::request(IDS, opcode, parts));
    let common = format!("{opcode} unique=6 node=9 uid=1 gid=2 pid=3");
    let rest = line.strip_prefix(&common).unwrap();
    rest.trim_start_matches(": ").to_string()
}

#[test]
fn every_opcode_has_a_line() {
    for &opcode in Opcode::ALL {
        // Long enough for any fixed part, followed by two names.
        let body = [&[1u8; 88][..], b"\0one\0two\0"].concat();
        let text = arguments(opcode, &[&body]);
        assert!(!text.contains("malformed"), "{opcode}: {text}");
        assert!(!text.starts_with("body of"), "{opcode}: {text}");
        let bare =
            [Opcode::READLINK, Opcode::STATFS, Opcode::DESTROY, Opcode::SYNCFS, Opcode::CUSE_INIT];
        let empty = arguments(opcode, &[]);
        if bare.contains(&opcode) {
            assert_eq!(empty, "", "{opcode}");
        } else {
            assert_eq!(empty, "malformed, body of 0 bytes", "{opcode}");
        }
    }
    let unknown = build::request(IDS, Opcode(99), &[b"abc"]);
    assert_eq!(line(&unknown), "UNKNOWN(99) unique=6 node=9 uid=1 gid=2 pid=3: body of 3 bytes");
}

#[test]
fn requests_on_names() {
    assert_eq!(
        line(&build::lookup(IDS, b"a b")),
        "LOOKUP unique=6 node=9 uid=1 gid=2 pid=3: name=\"a b\""
    );
    let resent = Ids { unique: Unique::marked(6), ..IDS };
    assert!(line(&build::lookup(resent, b"a")).starts_with("LOOKUP unique=6 (resent) node=9"));
    let mkdir = MkdirIn { mode: 0o755, umask: 0o22 };
    assert_eq!(
        arguments(Opcode::MKDIR, &[mkdir.as_bytes(), b"d\0"]),
        "name=\"d\" mode=0o755 umask=0o22"
    );
    assert_eq!(
        arguments(Opcode::RENAME, &[&4u64.to_ne_bytes(), b"a\0b\0"]),
        "name=\"a\" to node=4 name=\"b\""
    );
    assert_eq!(arguments(Opcode::SYMLINK, &[b"l\0../t\0"]), "name=\"l\" target=\"../t\"");
    let set = SetxattrIn { size: 6, ..Default::default() };
    assert_eq!(
        arguments(Opcode::SETXATTR, &[set.as_bytes(), b"user.k\0secret"]),
        "name=\"user.k\" flags=0x0 value of 6 bytes"
    );
}

#[test]
fn data_is_never_shown() {
    let write =
        WriteIn { fh: 4, offset: 4096, size: 6, write_flags: WRITE_CACHE, ..Default::default() };
    assert_eq!(
        arguments(Opcode::WRITE, &[write.as_bytes(), b"secret"]),
        "fh=4 offset=4096 data of 6 bytes from the page cache"
    );
    let ioctl = IoctlIn { in_size: 6, ..Default::default() };
    assert!(!arguments(Opcode::IOCTL, &[ioctl.as_bytes(), b"secret"]).contains("secret"));
    let retrieved = NotifyRetrieveIn::default();
    assert!(
        !arguments(Opcode::NOTIFY_REPLY, &[retrieved.as_bytes(), b"secret"]).contains("secret")
    );
}

#[test]
fn only_what_setattr_changes() {
    let change = SetattrIn {
        valid: SetattrValid::SIZE
            | SetattrValid::MTIME
            | SetattrValid::MTIME_NOW
            | SetattrValid::CTIME
            | SetattrValid::FH,
        size: 10,
        fh: 3,
        ctime: 5,
        ctimensec: 6,
        mode: 0o777,
        ..Default::default()
    };
    assert_eq!(
        arguments(Opcode::SETATTR, &[change.as_bytes()]),
        "valid=0x568 size=10 mtime=now ctime=5.000000006 fh=3"
    );
}

#[test]
fn long_lists_are_cut() {
    let head = BatchForgetIn { count: 100, dummy: 0 };
    let items = [[7u64, 1]; 100];
    let text = arguments(Opcode::BATCH_FORGET, &[head.as_bytes(), items.as_bytes()]);
    assert!(text.starts_with("count=100 node=7 nlookup=1"));
    assert!(text.ends_with(" ..."));
    assert_eq!(text.matches("node=").count(), 8);
}

#[test]
fn quoting() {
    assert_eq!(quote(b"plain"), "\"plain\"");
    assert_eq!(quote("caf\u{e9} it's".as_bytes()), "\"caf\u{e9} it's\"");
    assert_eq!(quote(b"a\"\\\n\x1b[0m"), r#""a\"\\\n\u{1b}[0m""#);
    assert_eq!(quote(b"\xff\xfeok"), r#""\xff\xfeok""#);
    // Text that would reorder the line.
    assert_eq!(quote("\u{202e}x".as_bytes()), r#""\u{202e}x""#);
    assert!(quote(&[b'x'; 600]).ends_with("\" and 88 more bytes"));
}
