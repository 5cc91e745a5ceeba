//! Directory listings: round trips, limits, bad records.

use belay_wire::abi::{Attr, EntryOut, NAME_MAX};
use belay_wire::dirents::{Dirents, DirentsPlus, dirent_len, direntplus_len};
use belay_wire::{push_dirent, push_direntplus};
use proptest::prelude::*;

fn names() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = any::<u8>().prop_filter("no slash", |b| *b != b'/');
    prop::collection::vec(prop::collection::vec(byte, 1..40), 0..20)
}

proptest! {
    #![proptest_config(belay_seeds::cases!())]

    #[test]
    fn what_was_pushed_comes_back(names in names(), seed: u64) {
        let mut body = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let before = body.len();
            prop_assert!(push_dirent(&mut body, 1 << 20, seed ^ i as u64, i as u64 + 1, 8, name));
            prop_assert_eq!(body.len() - before, dirent_len(name.len()));
        }
        let mut walk = Dirents::new(&body);
        let mut end = 0;
        for (i, name) in names.iter().enumerate() {
            let e = walk.next().unwrap();
            prop_assert_eq!((e.ino, e.off, e.type_, e.name), (seed ^ i as u64, i as u64 + 1, 8, &name[..]));
            prop_assert_eq!(e.start, end);
            prop_assert_eq!(e.end % 8, 0);
            end = e.end;
        }
        prop_assert!(walk.next().is_none() && !walk.malformed());
        prop_assert_eq!(end, body.len());
    }

    #[test]
    fn and_with_entries(names in names(), nodeid: u64) {
        let entry = EntryOut { nodeid, attr: Attr { ino: 5, ..Default::default() }, ..Default::default() };
        let mut body = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let before = body.len();
            prop_assert!(push_direntplus(&mut body, 1 << 20, &entry, 5, i as u64, 4, name));
            prop_assert_eq!(body.len() - before, direntplus_len(name.len()));
        }
        let mut walk = DirentsPlus::new(&body);
        let mut end = 0;
        for (i, name) in names.iter().enumerate() {
            let e = walk.next().unwrap();
            prop_assert_eq!((e.entry, e.ino, e.off, e.type_, e.name), (entry, 5, i as u64, 4, &name[..]));
            prop_assert_eq!(e.start, end);
            end = e.end;
        }
        prop_assert!(walk.next().is_none() && !walk.malformed());
    }

    #[test]
    fn a_cut_listing_keeps_its_whole_entries(names in names(), cut: prop::sample::Index) {
        let mut body = Vec::new();
        let mut ends = vec![0];
        for name in &names {
            prop_assert!(push_dirent(&mut body, 1 << 20, 1, 2, 3, name));
            ends.push(body.len());
        }
        let cut = cut.index(body.len() + 1);
        let mut walk = Dirents::new(&body[..cut]);
        let whole = ends.iter().filter(|&&e| e > 0 && e <= cut).count();
        prop_assert_eq!(walk.by_ref().count(), whole);
        prop_assert_eq!(walk.malformed(), !ends.contains(&cut));
        prop_assert!(walk.next().is_none());
    }

    #[test]
    fn random_bytes_end(body in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut end = 0;
        for e in Dirents::new(&body) {
            prop_assert!(e.start == end && e.end > e.start && e.end <= body.len());
            end = e.end;
        }
        let mut end = 0;
        for e in DirentsPlus::new(&body) {
            prop_assert!(e.start == end && e.end > e.start && e.end <= body.len());
            end = e.end;
        }
    }
}

#[test]
fn the_limit_holds_and_nothing_is_left_behind() {
    let mut body = Vec::new();
    assert!(!push_dirent(&mut body, 31, 1, 1, 8, b"a"));
    assert!(body.is_empty());
    assert!(push_dirent(&mut body, 32, 1, 1, 8, b"a"));
    assert!(!push_dirent(&mut body, 63, 1, 1, 8, b"abcdefgh"));
    assert!(push_dirent(&mut body, 64, 1, 1, 8, b"abcdefgh"));
    assert_eq!(body.len(), 64);
    let entry = EntryOut::default();
    assert!(!push_direntplus(&mut body, 64 + 159, &entry, 1, 1, 8, b"a"));
    assert_eq!(body.len(), 64);
    assert!(push_direntplus(&mut body, 64 + 160, &entry, 1, 1, 8, b"a"));
}

#[test]
fn names_that_no_kernel_takes() {
    let long = vec![b'x'; NAME_MAX + 1];
    for name in [&b""[..], b"a/b", &long] {
        let mut body = Vec::new();
        assert!(!push_dirent(&mut body, 1 << 20, 1, 1, 8, name));
        assert!(!push_direntplus(&mut body, 1 << 20, &EntryOut::default(), 1, 1, 8, name));
        assert!(body.is_empty());
    }
    let mut body = Vec::new();
    assert!(push_dirent(&mut body, 1 << 20, 1, 1, 8, b"good"));
    assert!(push_dirent(&mut body, 1 << 20, 1, 1, 8, b"bad."));
    let last = body.len() - 5;
    body[last] = b'/';
    let mut walk = Dirents::new(&body);
    assert_eq!(walk.next().unwrap().name, b"good");
    assert!(walk.next().is_none() && walk.malformed());
    // A length that wraps.
    body[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
    let mut walk = Dirents::new(&body);
    assert!(walk.next().is_none() && walk.malformed());
}
