//! Messages of daemons of an old minor version.

use belay_wire::abi::{CreateIn, EntryOut, MknodIn, OpenIn, OpenOut, WriteIn};
use belay_wire::dialect::{Dialect, GROWN};
use belay_wire::{Attr, Ids, Opcode, Request, Shape, build};
use zerocopy::IntoBytes;

/// `FUSE_COMPAT_*_SIZE` of include/uapi/linux/fuse.h and `sizeof(struct fuse_open_in)`, with the
/// minor below which fs/fuse/dev.c (fuse_adjust_compat) and file.c (fuse_write_args_fill) use them.
#[test]
fn all_that_the_kernel_adjusts_is_in_the_table() {
    let adjusted: &[(&str, bool, u32, usize)] = &[
        ("STATFS", true, 4, 48),
        ("LOOKUP", true, 9, 120),
        ("CREATE", true, 9, 120),
        ("MKNOD", true, 9, 120),
        ("MKDIR", true, 9, 120),
        ("SYMLINK", true, 9, 120),
        ("LINK", true, 9, 120),
        ("GETATTR", true, 9, 96),
        ("SETATTR", true, 9, 96),
        ("WRITE", false, 9, 24),
        ("CREATE", false, 12, size_of::<OpenIn>()),
        ("MKNOD", false, 12, 8),
    ];
    let table: Vec<_> = GROWN.iter().map(|g| (g.opcode.name(), g.reply, g.since, g.old)).collect();
    assert_eq!(table, adjusted);
    // And the newest forms are those of the structures.
    for grown in GROWN {
        let whole = match (grown.opcode, grown.reply) {
            (Opcode::WRITE, _) => size_of::<WriteIn>(),
            (Opcode::CREATE, false) => size_of::<CreateIn>(),
            (Opcode::MKNOD, false) => size_of::<MknodIn>(),
            (Opcode::CREATE, true) => size_of::<EntryOut>(),
            (opcode, _) => {
                let body = vec![0; grown.new];
                let message = build::reply(2, &body);
                let header = belay_wire::Reply::parse(&message).unwrap().header;
                assert_eq!(Shape::of_opcode(opcode).broken(&header, &[]), None, "{opcode}");
                continue;
            }
        };
        assert_eq!(grown.new, whole, "{}", grown.opcode);
    }
}

#[test]
fn what_is_made_wide_is_narrow_again() {
    for minor in 0..30 {
        let dialect = Dialect::of_minor(minor);
        for grown in GROWN {
            let old = minor < grown.since;
            let size = if old { grown.old } else { grown.new };
            let behind = if grown.reply && grown.opcode == Opcode::CREATE {
                size_of::<OpenOut>()
            } else if grown.reply {
                0
            } else {
                5
            };
            let body: Vec<u8> = (0..size + behind).map(|i| i as u8 | 1).collect();
            let (message, wide) = if grown.reply {
                let message = build::reply(2, &body);
                let wide = dialect.widen_reply(grown.opcode, &message);
                (message, wide)
            } else {
                let message = build::request(Ids::default(), grown.opcode, &[&body]);
                let wide = dialect.widen_request(&message);
                (message, wide)
            };
            let Some(wide) = wide else {
                assert!(!old, "{minor} {}", grown.opcode);
                continue;
            };
            assert!(old, "{minor} {}", grown.opcode);
            assert_eq!(wide.len() - message.len(), grown.new - grown.old);
            assert_eq!(u32::from_ne_bytes(*wide.first_chunk().unwrap()) as usize, wide.len());
            assert!(wide.ends_with(&body[size..]));
            let narrow = if grown.reply {
                dialect.narrow_reply(grown.opcode, &wide)
            } else {
                dialect.narrow_request(&wide)
            };
            assert_eq!(narrow.unwrap(), message);
        }
    }
}

#[test]
fn names_and_data_are_where_they_belong() {
    let dialect = Dialect::of_minor(8);
    let old = [OpenIn::default().as_bytes(), b"name\0"].concat();
    let message = build::request(Ids::default(), Opcode::CREATE, &[&old]);
    let wide = dialect.widen_request(&message).unwrap();
    assert_eq!(Request::parse(&wide).unwrap().names().first, Some(&b"name"[..]));
    assert_eq!(dialect.widen_request(&build::lookup(Ids::default(), b"name")), None);
    assert_eq!(Dialect::of_minor(12).widen_request(&message), None);
}

/// The kernel refuses a reply that is as long as a newer daemon's.
#[test]
fn a_reply_of_another_minor_is_found_out() {
    let entry = EntryOut {
        nodeid: 2,
        attr: Attr { mode: 0o100_644, ..Attr::default() },
        ..EntryOut::default()
    };
    let message = build::reply(2, entry.as_bytes());
    let wide = Dialect::of_minor(8).widen_reply(Opcode::LOOKUP, &message).unwrap();
    let header = belay_wire::Reply::parse(&wide).unwrap().header;
    assert!(Shape::of_opcode(Opcode::LOOKUP).broken(&header, &[0]).is_some());
    assert_eq!(Dialect::of_minor(9).widen_reply(Opcode::LOOKUP, &message), None);
    assert_eq!(Dialect::of_minor(8).widen_reply(Opcode::LOOKUP, &build::reply_error(2, 2)), None);
}

#[test]
fn the_minor_is_that_of_the_reply_to_init() {
    let init = |words: &[u32]| {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Dialect::of_init(&build::reply(2, &body))
    };
    assert_eq!(init(&[7, 3]), Dialect::of_minor(3));
    assert_eq!(init(&[7, 8, 0, 0, 0, 4096]), Dialect::of_minor(8));
    assert!(init(&[7, 22, 0, 0, 0, 4096]).is_whole() && init(&[7, 99]).is_whole());
    assert!(Dialect::of_init(&build::reply_error(2, 5)).is_whole());
    assert!(Dialect::of_init(&[]).is_whole());
}
