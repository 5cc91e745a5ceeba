//! INIT in its lengths, and replies with known contents.

use belay_wire::abi::*;
use belay_wire::{Opcode, Reply, build, get_u64, reply};
use zerocopy::IntoBytes;

#[test]
fn init_in_both_lengths() {
    let mut init = InitIn { major: 7, minor: 45, ..Default::default() };
    init.set_flags64(InitFlags::HAS_RESEND | InitFlags::ASYNC_READ);
    assert_eq!(init.flags64(), InitFlags::ASYNC_READ);
    init.set_flags64(InitFlags::HAS_RESEND | InitFlags::INIT_EXT);
    assert_eq!(init.flags64(), InitFlags::HAS_RESEND | InitFlags::INIT_EXT);
    assert_eq!(init.flags2, 1 << 7);
    assert_eq!(InitIn::from_prefix(init.as_bytes()), Some(init));
    let short = InitIn::from_prefix(&init.as_bytes()[..16]).unwrap();
    assert_eq!((short.minor, short.flags2), (45, 0));
    assert_eq!(InitIn::from_prefix(&[0; 15]), None);

    let mut out = InitOut { major: 7, minor: 31, max_write: 4096, ..Default::default() };
    out.set_flags64(InitFlags::PASSTHROUGH | InitFlags::INIT_EXT);
    assert_eq!(out.flags64(), InitFlags::PASSTHROUGH | InitFlags::INIT_EXT);
    assert_eq!(InitOut::from_prefix(out.as_bytes()), Some(out));
    assert_eq!(InitOut::from_prefix(&out.as_bytes()[..24]).unwrap().max_write, 4096);
    assert_eq!(InitOut::from_prefix(&[0; 7]), None);
}

#[test]
fn replies_and_notifications() {
    let m = build::reply_error(8, 5);
    let r = Reply::parse(&m).unwrap();
    assert_eq!((r.header.error, r.errno(), r.unique(), m.len()), (-5, Some(5), 8, 16));
    assert_eq!(Reply::parse(&build::reply_error(8, -5)).unwrap().errno(), Some(5));
    assert_eq!(Reply::parse(&build::reply_error(8, i32::MIN)).unwrap().errno(), Some(i32::MAX));
    let m = build::reply_ok(8);
    assert_eq!(Reply::parse(&m).unwrap().errno(), None);
    let m = build::notify(notify::RESEND, &[]);
    let r = Reply::parse(&m).unwrap();
    assert!(r.is_notification());
    assert_eq!((r.header.error, r.errno()), (7, None));
    let m = build::reply(8, WriteOut { size: 3, padding: 0 }.as_bytes());
    assert_eq!(Reply::parse(&m).unwrap().body_as::<WriteOut>().unwrap().size, 3);
}

#[test]
fn where_replies_hold_attributes_and_handles() {
    let attr = Attr { ino: 0x1234, ..Default::default() };
    let entry = EntryOut { nodeid: 3, attr, ..Default::default() };
    let open = OpenOut { fh: 0x55, ..Default::default() };
    let m = build::reply(6, &[entry.as_bytes(), open.as_bytes()].concat());
    for &opcode in Opcode::ALL {
        let entry = reply::is_entry_reply(opcode);
        assert_eq!(entry, reply::attr_offset(opcode) == Some(56), "{opcode}");
    }
    assert_eq!(get_u64(&m, reply::ENTRY_OFFSET), Some(3));
    assert_eq!(get_u64(&m, reply::attr_offset(Opcode::CREATE).unwrap()), Some(0x1234));
    assert_eq!(get_u64(&m, reply::open_offset(Opcode::CREATE).unwrap()), Some(0x55));
    let m = build::reply(6, AttrOut { attr, ..Default::default() }.as_bytes());
    for opcode in [Opcode::GETATTR, Opcode::SETATTR] {
        assert_eq!(get_u64(&m, reply::attr_offset(opcode).unwrap()), Some(0x1234));
        assert_eq!(reply::ino_offset(opcode), reply::attr_offset(opcode));
    }
    let mut stat = StatxOut::default();
    stat.stat.ino = 0x77;
    let m = build::reply(6, stat.as_bytes());
    assert_eq!(reply::attr_offset(Opcode::STATX), None);
    assert_eq!(reply::nlink_offset(Opcode::READ), None);
    assert_eq!(get_u64(&m, reply::ino_offset(Opcode::STATX).unwrap()), Some(0x77));
    assert_eq!(reply::open_offset(Opcode::OPEN), Some(16));
    assert_eq!(reply::open_offset(Opcode::READ), None);
}
