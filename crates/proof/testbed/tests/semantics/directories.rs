//! S20: directories that are being listed when the daemon dies.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::path::Path;

use belay_testbed::Kind;
use rustix::fs::{RawDir, SeekFrom, seek};

use crate::common::{Held, caching, held, names, uncached};

fn fill(bed: &Held, count: usize) -> BTreeSet<String> {
    fs::create_dir(bed.behind("dir")).unwrap();
    let names: BTreeSet<_> = (0..count).map(|n| format!("{n:05}-some-name")).collect();
    for name in &names {
        fs::write(bed.behind("dir").join(name), "").unwrap();
    }
    names
}

/// Some entries with the position behind each: what one getdents gives.
fn some(dir: &File, size: usize) -> Vec<(String, i64)> {
    let mut buffer = vec![MaybeUninit::uninit(); size];
    let mut raw = RawDir::new(dir, &mut buffer);
    let mut list = Vec::new();
    while let Some(entry) = raw.next() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        list.push((name, i64::try_from(entry.next_entry_cookie()).unwrap()));
        if raw.is_buffer_empty() {
            break;
        }
    }
    list
}

fn rest(dir: &File, mut between: impl FnMut()) -> Vec<String> {
    let mut list = Vec::new();
    loop {
        let part = some(dir, 2048);
        if part.is_empty() {
            return list;
        }
        list.extend(part.into_iter().map(|(name, _)| name).filter(|name| !name.starts_with('.')));
        between();
    }
}

fn once_each(list: Vec<String>, expected: &BTreeSet<String>) {
    let set: BTreeSet<_> = list.iter().cloned().collect();
    assert_eq!(list.len(), set.len(), "an entry came twice");
    assert!(set == *expected, "{} entries, not {}", set.len(), expected.len());
}

fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

/// S20: every entry once, with crashes all along the listing.
#[test]
fn s20_every_entry_once() {
    let beds = [
        caching(),
        uncached(),
        held(Kind::Bindfs, &[], &[]),
        held(Kind::Sshfs, &[], &[]),
        held(Kind::PassthroughHl, &[], &[]),
        held(Kind::PassthroughLl, &["cache=never"], &["--no-resend"]),
    ];
    for bed in beds {
        let expected = fill(&bed, 2000);
        let dir = open(&bed.at("dir"));
        let mut steps = 0;
        let list = rest(&dir, || {
            steps += 1;
            if steps % 9 == 1 {
                bed.crash();
            }
        });
        assert!(steps > 20, "{steps} steps");
        once_each(list, &expected);
        drop(dir);
        // And whole, with a successor that knows nothing of it.
        bed.crash();
        once_each(names(&bed.at("dir")), &expected);
        bed.stop();
    }
}

/// S20: entries that come and go behind the reader's position do no harm.
#[test]
fn s20_changes_while_listing() {
    for bed in [caching(), uncached()] {
        let mut expected = fill(&bed, 1500);
        let dir = open(&bed.at("dir"));
        let mut seen: Vec<String> = Vec::new();
        for step in 0..3 {
            let part = some(&dir, 4096);
            seen.extend(
                part.into_iter().map(|(name, _)| name).filter(|name| !name.starts_with('.')),
            );
            // One that was given out goes: it is not missed. One that was not given out goes: it does not come.
            let gone = seen[step].clone();
            fs::remove_file(bed.at("dir").join(&gone)).unwrap();
            let unseen = expected.iter().find(|name| !seen.contains(name)).unwrap().clone();
            fs::remove_file(bed.at("dir").join(&unseen)).unwrap();
            expected.remove(&unseen);
            bed.crash_and_recover();
        }
        seen.extend(rest(&dir, || ()));
        // A plain directory, too, may give an entry that was removed while it was being read ahead.
        seen.retain(|name| expected.contains(name));
        once_each(seen, &expected);
        drop(dir);
        bed.stop();
    }
}

/// S20: rewinding shows the directory as it is now.
#[test]
fn s20_rewind() {
    let bed = uncached();
    let mut expected = fill(&bed, 600);
    let dir = open(&bed.at("dir"));
    some(&dir, 4096);
    bed.crash_and_recover();
    some(&dir, 4096);
    fs::write(bed.at("dir/new"), "").unwrap();
    expected.insert("new".into());
    seek(&dir, SeekFrom::Start(0)).unwrap();
    once_each(rest(&dir, || ()), &expected);
    seek(&dir, SeekFrom::Start(0)).unwrap();
    bed.crash_and_recover();
    once_each(rest(&dir, || ()), &expected);
    drop(dir);
    bed.stop();
}

fn seek_to(positions: &[usize]) {
    for bed in [uncached(), held(Kind::Bindfs, &[], &[]), held(Kind::Sshfs, &[], &[])] {
        let expected = fill(&bed, 1200);
        let dir = open(&bed.at("dir"));
        let mut seen = Vec::new();
        while seen.len() < 500 {
            seen.extend(some(&dir, 2048));
        }
        for (round, at) in positions.iter().copied().enumerate() {
            bed.crash_and_recover();
            if round == 1 {
                some(&dir, 2048);
            }
            seek(&dir, SeekFrom::Start(u64::try_from(seen[at].1).unwrap())).unwrap();
            let mut list: Vec<_> = seen[..=at].iter().map(|(name, _)| name.clone()).collect();
            list.retain(|name| !name.starts_with('.'));
            list.extend(rest(&dir, || ()));
            once_each(list, &expected);
        }
        drop(dir);
        bed.stop();
    }
}

/// S20: positions that telldir gave before a crash are good after it.
#[test]
fn s20_seek_to_an_earlier_position() {
    seek_to(&[450, 100, 20]);
}

/// S20: also those behind a position that was gone back to meanwhile.
#[test]
fn s20_seek_back_and_forth() {
    seek_to(&[100, 450, 20, 300]);
}

/// S20: also if the daemon itself was read from there again, entries were removed since, and the
/// next one has to know.
#[test]
fn s20_seek_back_and_read_without_a_crash() {
    for bed in [uncached(), held(Kind::Bindfs, &[], &[]), held(Kind::Sshfs, &[], &[])] {
        let mut expected = fill(&bed, 1200);
        let dir = open(&bed.at("dir"));
        let mut seen = Vec::new();
        while seen.len() < 500 {
            seen.extend(some(&dir, 2048));
        }
        seek(&dir, SeekFrom::Start(u64::try_from(seen[100].1).unwrap())).unwrap();
        let gone = seen.remove(120).0;
        fs::remove_file(bed.at("dir").join(&gone)).unwrap();
        expected.remove(&gone);
        some(&dir, 4096);
        for at in [400, 50, 300] {
            bed.crash_and_recover();
            seek(&dir, SeekFrom::Start(u64::try_from(seen[at].1).unwrap())).unwrap();
            let mut list: Vec<_> = seen[..=at].iter().map(|(name, _)| name.clone()).collect();
            list.retain(|name| !name.starts_with('.'));
            list.extend(rest(&dir, || ()));
            list.retain(|name| *name != gone);
            once_each(list, &expected);
        }
        drop(dir);
        bed.stop();
    }
}

/// S20: a listing that began under one daemon goes on under the third.
#[test]
fn s20_across_two_crashes() {
    let bed = caching();
    let expected = fill(&bed, 3000);
    let dir = open(&bed.at("dir"));
    let mut list: Vec<String> = some(&dir, 8192).into_iter().map(|(name, _)| name).collect();
    for _ in 0..2 {
        bed.crash_and_recover();
        list.extend(some(&dir, 8192).into_iter().map(|(name, _)| name));
    }
    list.extend(rest(&dir, || ()));
    list.retain(|name| !name.starts_with('.'));
    once_each(list, &expected);
    drop(dir);
    bed.stop();
}
