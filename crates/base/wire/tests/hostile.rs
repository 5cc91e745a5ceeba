//! Bytes that nobody meant: no function panics, and what comes back lies inside the message.

use belay_wire::abi::{InitIn, InitOut};
use belay_wire::describe::quote;
use belay_wire::{
    Ids, Opcode, Reply, Request, build, get_u64, handle_fields, node_fields, put_u64,
};
use proptest::prelude::*;

/// Calls everything that looks at a request.
fn look(message: &[u8]) -> Result<(), TestCaseError> {
    let Ok(r) = Request::parse(message) else {
        return Ok(());
    };
    prop_assert_eq!(r.body.len() + 40, r.header.len as usize);
    for ext in [false, true] {
        let names = r.names_with(ext);
        for name in [names.first, names.second].into_iter().flatten() {
            prop_assert!(!name.contains(&0) && name.len() < r.body.len());
        }
        prop_assert!(r.xattr_value_with(ext).is_none_or(|v| v.len() < r.body.len()));
    }
    prop_assert_eq!(r.names(), r.names_with(r.setxattr_is_ext()));
    for off in handle_fields(&r).iter().chain(node_fields(&r)) {
        prop_assert!(off >= 40 && off + 8 <= r.header.len as usize);
        let mut copy = message.to_vec();
        let value = get_u64(message, off).unwrap();
        prop_assert!(put_u64(&mut copy, off, value));
        prop_assert_eq!(&copy[..], message);
    }
    for (off, one) in r.forgets() {
        prop_assert_eq!(get_u64(message, off), Some(one.nodeid));
    }
    let line = r.describe();
    prop_assert!(line.len() < 8192, "{} bytes", line.len());
    prop_assert!(!line.chars().any(char::is_control));
    Ok(())
}

proptest! {
    #![proptest_config(belay_seeds::cases!(2000))]

    #[test]
    fn random_messages(message in prop::collection::vec(any::<u8>(), 0..300)) {
        look(&message)?;
        if let Ok(r) = Reply::parse(&message) {
            prop_assert_eq!(r.body.len() + 16, message.len());
        }
        let _ = (InitIn::from_prefix(&message), InitOut::from_prefix(&message));
    }

    #[test]
    fn random_bodies_of_known_opcodes(
        opcode in prop::sample::select(Opcode::ALL),
        body in prop::collection::vec(prop_oneof![any::<u8>(), Just(0u8), Just(b'a')], 0..200),
        junk in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut message = build::request(Ids::default(), opcode, &[&body]);
        message.extend(junk);
        look(&message)?;
    }

    #[test]
    fn random_replies(unique: u64, error: i32, body in prop::collection::vec(any::<u8>(), 0..100)) {
        let message = build::reply(unique, &body);
        let r = Reply::parse(&message).unwrap();
        prop_assert_eq!((r.unique(), r.errno(), r.body), (unique, None, &body[..]));
        let message = build::reply_error(unique | 1, error);
        let r = Reply::parse(&message).unwrap();
        prop_assert!(r.header.error <= 0);
        let message = build::notify(error, &body);
        let r = Reply::parse(&message).unwrap();
        prop_assert_eq!((r.is_notification(), r.header.error, r.body), (true, error, &body[..]));
    }

    #[test]
    fn numbers_at_random_places(mut buf in prop::collection::vec(any::<u8>(), 0..40), off: usize, near in 0usize..50, value: u64) {
        for off in [off, near] {
            let before = buf.clone();
            let inside = off.checked_add(8).is_some_and(|end| end <= buf.len());
            prop_assert_eq!(get_u64(&buf, off).is_some(), inside);
            prop_assert_eq!(put_u64(&mut buf, off, value), inside);
            if inside {
                prop_assert_eq!(get_u64(&buf, off), Some(value));
            } else {
                prop_assert_eq!(&buf, &before);
            }
        }
    }

    #[test]
    fn quoted_text_is_one_line(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        let text = quote(&bytes);
        prop_assert!(!text.chars().any(char::is_control));
        prop_assert_eq!(text.ends_with("more bytes"), bytes.len() > 512);
    }

    #[test]
    fn names_round_trip(
        a in prop::collection::vec(1u8.., 0..50),
        b in prop::collection::vec(1u8.., 0..50),
        unique: u64, nodeid: u64, newdir: u64,
    ) {
        let ids = Ids { unique, nodeid, ..Default::default() };
        let message = build::rename(ids, newdir, &a, &b);
        let r = Request::parse(&message).unwrap();
        prop_assert_eq!((r.names().first, r.names().second), (Some(&a[..]), Some(&b[..])));
        prop_assert_eq!((r.header.unique, r.header.nodeid), (unique, nodeid));
        let at: Vec<_> = node_fields(&r).iter().map(|off| get_u64(&message, off)).collect();
        prop_assert_eq!(at, [Some(newdir)]);
    }
}
