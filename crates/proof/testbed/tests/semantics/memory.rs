//! S19 and S26: mapped memory and the kernel's write-back cache.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use belay_testbed::Kind;

use crate::common::{call, drop_caches, held, low_level};
use crate::system::Map;

const PAGE: usize = 4096;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// S19: pages written through a map reach the file though the daemon died in between.
#[test]
fn s19_mapped_pages_are_written_after_a_crash() {
    for (kind, options) in [
        (Kind::PassthroughLl, "cache=auto"),
        (Kind::PassthroughLl, "writeback"),
        (Kind::Bindfs, "big_writes"),
    ] {
        let bed = held(kind, &[options], &[]);
        fs::write(bed.at("file"), vec![b'.'; 16 * PAGE]).unwrap();
        let file = open(&bed.at("file"));
        let map = Map::new(&file, 16 * PAGE).unwrap();
        for round in 0..4u8 {
            for page in 0..16 {
                map.set(page * PAGE + 7, b'a' + round);
            }
            bed.crash();
            map.sync().unwrap();
            let behind = fs::read(bed.behind("file")).unwrap();
            assert!(
                (0..16).all(|page| behind[page * PAGE + 7] == b'a' + round),
                "{kind} {options}"
            );
        }
        // The file is closed, the map keeps it open.
        drop(file);
        bed.crash_and_recover();
        map.set(0, b'!');
        map.sync().unwrap();
        assert_eq!(fs::read(bed.behind("file")).unwrap()[0], b'!');
        drop(map);
        bed.stop();
    }
}

/// S19: a page fault during the blackout waits, it does not kill with SIGBUS.
#[test]
fn s19_page_faults_in_the_blackout_wait() {
    for arguments in [&[][..], &["--no-resend"]] {
        let bed = held(Kind::PassthroughLl, &["cache=auto"], arguments);
        fs::write(bed.behind("file"), vec![b'x'; 64 * PAGE]).unwrap();
        let file = open(&bed.at("file"));
        let map = Map::new(&file, 64 * PAGE).unwrap();
        drop_caches();
        let blackout = bed.blackout();
        let reader = call(move || {
            let all = (0..64).all(|page| map.get(page * PAGE) == b'x');
            map.set(63 * PAGE, b'y');
            map.sync().unwrap();
            all
        });
        bed.wait_for_requests(1);
        assert!(!reader.is_done());
        blackout.end();
        assert!(reader.result());
        assert_eq!(fs::read(bed.behind("file")).unwrap()[63 * PAGE], b'y');
        drop(file);
        bed.stop();
    }
}

/// S19: a mapped file that has no name any more.
#[test]
fn s19_unlinked_and_mapped() {
    let bed = low_level(&["cache=auto"]);
    fs::write(bed.at("file"), vec![b'x'; 4 * PAGE]).unwrap();
    let file = open(&bed.at("file"));
    let map = Map::new(&file, 4 * PAGE).unwrap();
    drop(file);
    fs::remove_file(bed.at("file")).unwrap();
    map.set(0, b'1');
    bed.crash_and_recover();
    map.sync().unwrap();
    drop_caches();
    assert_eq!((map.get(0), map.get(PAGE)), (b'1', b'x'));
    drop(map);
    bed.stop();
}

/// S26: with the write-back cache, what was written and not yet sent to the daemon is not lost with it, and sizes and
/// times, which the kernel then keeps, stay.
#[test]
fn s26_write_back_cache() {
    let bed = low_level(&["writeback", "cache=always"]);
    let mut files = Vec::new();
    for n in 0..20 {
        let mut file = open(&bed.at(&format!("f{n}")));
        for part in 0..50 {
            write!(file, "{n}/{part};").unwrap();
        }
        files.push(file);
        if n % 5 == 0 {
            bed.crash();
        }
    }
    bed.crash_and_recover();
    let text = |n: usize| (0..50).map(|part| format!("{n}/{part};")).collect::<String>();
    for (n, file) in files.iter().enumerate() {
        assert_eq!(file.metadata().unwrap().len(), text(n).len() as u64);
        file.sync_all().unwrap();
        bed.crash();
        assert_eq!(fs::read_to_string(bed.behind(&format!("f{n}"))).unwrap(), text(n));
    }
    // Reading a part of a page that is dirty, through a handle open for writing only, is the kernel's own doing.
    let only = OpenOptions::new().write(true).open(bed.at("f3")).unwrap();
    bed.crash();
    only.write_all_at(b"XX", 10).unwrap();
    only.sync_all().unwrap();
    let expected = text(3).replacen(&text(3)[10..12], "XX", 0);
    let behind = fs::read_to_string(bed.behind("f3")).unwrap();
    assert_eq!(behind.len(), expected.len());
    assert_eq!(&behind[10..12], "XX");
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    only.set_modified(time).unwrap();
    bed.crash();
    assert_eq!(only.metadata().unwrap().mtime(), 1_000_000);
    drop((only, files));
    bed.stop();
}
