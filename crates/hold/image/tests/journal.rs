//! Journals that anybody may have made: what is refused, what is dropped, and what is said. The
//! format is written here once more, by its description.
#![allow(missing_docs)]

mod common;

use belay_image::journal::{
    Error, Found, How, Recovered, Stage, commit, inspect, mark_empty, recover,
};
use belay_image::{Run, Sealed};
use common::disk::{Disk, IMAGE, JOURNAL, Platter, SimSource};
use proptest::prelude::*;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

const TABLE: usize = 4096;

#[derive(Clone)]
struct Made {
    /// epoch, device, inode, start, cut, length, count, bytes, number
    fields: [u64; 9],
    table: Vec<(u64, u64)>,
    data: Vec<u8>,
}

impl Made {
    fn new(table: &[(u64, u64)]) -> Self {
        let bytes: u64 =
            table.iter().fold(0_u64, |sum, run| sum.saturating_add(run.1)).min(1 << 16);
        Self {
            fields: [3, 1, 7, 4096, 4096, 4096, table.len() as u64, bytes, 0],
            table: table.to_vec(),
            data: (0..bytes).map(|i| i as u8 | 1).collect(),
        }
    }

    fn with(mut self, field: usize, value: u64) -> Self {
        self.fields[field] = value;
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut header = b"belayjnl\x02\0\0\0\x01\0\0\0".to_vec();
        for field in self.fields {
            header.extend(field.to_le_bytes());
        }
        let mut all = header.clone();
        for (offset, len) in &self.table {
            all.extend(offset.to_le_bytes());
            all.extend(len.to_le_bytes());
        }
        let table = all[header.len()..].to_vec();
        all.extend(&self.data);
        header.extend(xxh3_128(&all).to_le_bytes());
        header.resize(504, 0);
        header.extend(xxh3_64(&header).to_le_bytes());
        let mut file = header;
        file.resize(TABLE, 0);
        file.extend(table);
        file.resize(file.len().next_multiple_of(TABLE), 0);
        file.extend(&self.data);
        file
    }

    fn disk(&self) -> Disk {
        disk(self.bytes())
    }
}

fn old() -> Vec<u8> {
    vec![0; 4096]
}

fn disk(journal: Vec<u8>) -> Disk {
    Disk::new(Platter { image: old(), journal, modified: [1000, 1000] }, 90_000)
}

fn run(disk: &Disk, how: How) -> Result<Recovered, Error> {
    recover(&disk.journal(), &disk.image(), how, &mut |_| {})
}

const PLAIN: How = How { force: false, discard: false };
const FORCE: How = How { force: true, discard: false };
const DISCARD: How = How { force: false, discard: true };

fn look(disk: &Disk) -> Found {
    inspect(&disk.journal(), &mut |_| {}).unwrap()
}

#[test]
fn the_format_is_what_its_description_says() {
    let made = Made::new(&[(512, 512), (2048, 100)]);
    let mut source = vec![9; 5];
    source.extend(&made.data);
    // In three pieces, two of which are one run of the image.
    let runs = [(512, 5, 500), (1012, 505, 12), (2048, 517, 100)].map(|(offset, from, len)| Run {
        offset,
        from,
        len,
    });
    let sealed = Sealed { epoch: 3, start: 4096, cut: 4096, length: 4096, runs: runs.to_vec() };
    let written = disk(vec![]);
    let mut stages = Vec::new();
    commit(&written.journal(), &written.image(), &SimSource(source), &sealed, &mut |progress| {
        assert!(progress.done <= progress.total && progress.total == 612);
        stages.push((progress.stage, progress.done));
    })
    .unwrap();
    assert_eq!(written.contents(JOURNAL), made.bytes());
    assert!(stages.contains(&(Stage::Journal, 612)) && stages.contains(&(Stage::Image, 612)));
    let found = look(&written);
    let Found::Whole(contents) = found else { panic!("{found:?}") };
    assert_eq!((contents.epoch, contents.runs, contents.bytes), (3, 2, 612));
    assert_eq!((contents.length, contents.inode, contents.device), (4096, 7, 1));
    let applied = made.disk();
    assert_eq!(run(&applied, PLAIN).unwrap(), Recovered::Applied(contents));
    assert_eq!(applied.contents(IMAGE), written.contents(IMAGE));
    assert_eq!(look(&applied), Found::Empty);
    mark_empty(&written.journal()).unwrap();
    assert_eq!(look(&written), Found::Empty);
    assert_eq!(run(&written, PLAIN).unwrap(), Recovered::Nothing);
}

/// Right check values over what no commit writes.
#[test]
fn what_cannot_be_is_dropped_whatever_its_check_value() {
    let good = Made::new(&[(512, 512), (2048, 100)]);
    let bad = [
        good.clone().with(6, 0),
        good.clone().with(6, 1),
        good.clone().with(6, 3),
        good.clone().with(6, u64::MAX),
        good.clone().with(6, u64::MAX / 16),
        good.clone().with(6, 1 << 40),
        good.clone().with(7, 0),
        good.clone().with(7, 611),
        good.clone().with(7, 613),
        good.clone().with(7, u64::MAX),
        good.clone().with(7, u64::MAX - 8191),
        good.clone().with(5, 2100), // the image's length, and a run beyond it
        good.clone().with(5, u64::MAX),
        good.clone().with(4, 4097), // a cut behind the end
        good.clone().with(3, 4095),
        good.clone().with(3, u64::MAX),
        Made::new(&[(2048, 100), (512, 512)]),
        Made::new(&[(512, 512), (1000, 512)]),
        Made::new(&[(512, 512), (512, 512)]),
        Made::new(&[(512, 0), (2048, 100)]),
        Made::new(&[(4000, 97)]),
        Made::new(&[(u64::MAX, 2)]),
        Made::new(&[(u64::MAX - 1, 1)]),
        Made::new(&[(0, u64::MAX)]),
        Made::new(&[(1 << 63, 1 << 63)]),
    ];
    for (number, made) in bad.iter().enumerate() {
        for how in [PLAIN, FORCE, DISCARD] {
            let disk = made.disk();
            assert_eq!(look(&disk), Found::Torn, "number {number}");
            assert_eq!(run(&disk, how).unwrap(), Recovered::Dropped, "number {number}");
            assert_eq!(disk.contents(IMAGE), old());
            assert_eq!(look(&disk), Found::Empty);
        }
    }
}

#[test]
fn what_is_not_this_images_is_refused_and_says_what_to_do() {
    let good = Made::new(&[(512, 512)]);
    let later = {
        let platter = Platter { image: old(), journal: good.bytes(), modified: [1121, 1000] };
        Disk::new(platter, 90_000)
    };
    let cases = [
        (good.clone().with(2, 8).disk(), "inode 8, this one has 7"),
        (
            good.clone().with(3, 8192).with(4, 8192).with(5, 8192).disk(),
            "8192 bytes, this one has 4096",
        ),
        (
            good.clone().with(3, 2048).with(4, 2048).with(5, 2048).disk(),
            "2048 bytes, this one has 4096",
        ),
        (later, "image was written to 121 s after journal"),
    ];
    for (disk, says) in cases {
        let before = disk.contents(JOURNAL);
        let why = run(&disk, PLAIN).unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
        assert!(why.contains("--force") && why.contains("--discard"), "{why}");
        assert_eq!((disk.contents(IMAGE), disk.contents(JOURNAL)), (old(), before.clone()));
        assert_eq!(disk.undecided(), 0);
        let platter = disk.platter(|| true);
        assert!(matches!(run(&disk, DISCARD).unwrap(), Recovered::Discarded(_)));
        assert_eq!(disk.contents(IMAGE), old());
        let disk = Disk::new(platter, 90_000);
        assert!(matches!(run(&disk, FORCE).unwrap(), Recovered::Applied(_)));
        assert_eq!(disk.contents(IMAGE)[512..1024], good.data[..]);
        assert_eq!(disk.contents(IMAGE)[..512], old()[..512]);
    }
    // Another number of the device is no other image: it may change when the system starts.
    assert!(matches!(run(&good.with(1, 99).disk(), PLAIN).unwrap(), Recovered::Applied(_)));
}

#[test]
fn a_device_is_told_by_its_length() {
    let good = Made::new(&[(512, 512)]).with(2, 99);
    let disk = good.disk();
    disk.set_device();
    assert!(matches!(run(&disk, PLAIN).unwrap(), Recovered::Applied(_)));
    let longer = good.clone().with(3, 8192).with(4, 8192).with(5, 8192);
    for how in [PLAIN, FORCE] {
        let disk = longer.disk();
        disk.set_device();
        assert!(matches!(run(&disk, how), Err(Error::Misfit { .. })));
        assert_eq!(disk.contents(IMAGE), old());
    }
    let shorter = good.with(3, 2048).with(4, 2048).with(5, 2048).disk();
    shorter.set_device();
    assert!(matches!(run(&shorter, PLAIN), Err(Error::Foreign { .. })));
    assert!(matches!(run(&shorter, FORCE).unwrap(), Recovered::Applied(_)));
    assert_eq!(shorter.contents(IMAGE).len(), 4096);
}

/// Of a device nothing else stays that would tell.
#[test]
fn a_new_file_system_is_told_by_its_number() {
    // Where they say what they are, and where the number is that was drawn for them.
    let kinds: [(usize, &[u8], usize); 5] = [
        (0x438, b"\x53\xef", 0x468),
        (3, b"NTFS    ", 0x48),
        (3, b"EXFAT   ", 0x64),
        (0x52, b"FAT32   ", 0x43),
        (0x36, b"FAT16   ", 0x27),
    ];
    let put = |image: &mut [u8], at: usize, bytes: &[u8]| {
        image[at..at + bytes.len()].copy_from_slice(bytes);
    };
    for (at, magic, number) in kinds {
        let mut image = old();
        put(&mut image, at, magic);
        if at < 512 {
            put(&mut image, 510, b"\x55\xaa");
            // What lies behind a boot sector is not looked at.
            put(&mut image, 0x438, b"\x53\xef");
        }
        put(&mut image, number, b"1234");
        let platter = |image: &[u8], journal: &[u8]| Platter {
            image: image.to_vec(),
            journal: journal.to_vec(),
            modified: [1000, 1000],
        };
        let committed = Disk::new(platter(&image, &[]), 90_000);
        committed.set_device();
        let runs = vec![Run { offset: 2048, from: 0, len: 512 }];
        let sealed = Sealed { epoch: 5, start: 4096, cut: 4096, length: 4096, runs };
        let source = SimSource(vec![7; 512]);
        commit(&committed.journal(), &committed.image(), &source, &sealed, &mut |_| {}).unwrap();
        let journal = committed.contents(JOURNAL);
        // It was cut off before the image, or behind it: applied.
        for mut there in [image.clone(), committed.contents(IMAGE)] {
            let disk = Disk::new(platter(&there, &journal), 90_000);
            disk.set_device();
            assert!(matches!(run(&disk, PLAIN).unwrap(), Recovered::Applied(_)));
            // A new file system, or none any more.
            for other in [&b"1235"[..], b"\0\0\0\0"] {
                put(&mut there, number, other);
                let disk = Disk::new(platter(&there, &journal), 90_000);
                disk.set_device();
                let refused = run(&disk, PLAIN).unwrap_err().to_string();
                assert!(refused.contains("another UUID or serial number"), "{refused}");
                assert_eq!(disk.contents(IMAGE), there);
                assert!(matches!(run(&disk, FORCE).unwrap(), Recovered::Applied(_)));
            }
        }
    }
}

#[test]
fn other_files_and_other_versions_are_left_alone() {
    let text = disk(b"Dear diary, ...".to_vec());
    for how in [PLAIN, FORCE, DISCARD] {
        assert!(matches!(run(&text, how), Err(Error::NotAJournal { .. })));
    }
    assert_eq!(text.contents(JOURNAL), b"Dear diary, ...");
    let mut next = Made::new(&[(0, 512)]).bytes();
    next[8] = 3;
    let next = disk(next);
    for how in [PLAIN, FORCE] {
        let why = run(&next, how).unwrap_err();
        assert!(matches!(why, Error::Version { version: 3, .. }));
    }
    assert_eq!(run(&next, DISCARD).unwrap(), Recovered::Dropped);
    assert_eq!((look(&next), next.contents(IMAGE)), (Found::Empty, old()));
    // A commit in its place is refused as little as over an old journal: nothing there is needed.
    for length in [0, 1, 512] {
        let begun = disk(vec![0; length]);
        assert_eq!(look(&begun), Found::Empty);
        assert_eq!(run(&begun, PLAIN).unwrap(), Recovered::Nothing);
    }
    // Many a disk image begins with zeros.
    for length in [513, 4096, 9000] {
        let zeros = disk(vec![0; length]);
        for how in [PLAIN, FORCE, DISCARD] {
            assert!(matches!(run(&zeros, how), Err(Error::NotAJournal { .. })), "{length}");
        }
        assert!(zeros.contents(JOURNAL) == vec![0; length]);
    }
}

proptest! {
    #![proptest_config(belay_seeds::cases!(2048))]

    /// Whatever is changed in a journal: it is seen, or does not matter.
    #[test]
    fn changed_journals_are_dropped(
        changes in prop::collection::vec((
            prop_oneof![3 => 0..104usize, 2 => TABLE..TABLE + 32, 1 => 2 * TABLE..2 * TABLE + 612, 1 => 0..3 * TABLE],
            any::<u8>(),
        ), 1..6),
        cut in prop::option::weighted(0.2, 0..3 * TABLE),
    ) {
        let made = Made::new(&[(512, 512), (2048, 100)]);
        let mut bytes = made.bytes();
        let mut new = old();
        new[512..1024].copy_from_slice(&made.data[..512]);
        new[2048..2148].copy_from_slice(&made.data[512..]);
        for (at, with) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = with;
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(cut);
        }
        let disk = disk(bytes);
        match run(&disk, PLAIN) {
            Ok(Recovered::Applied(_)) => prop_assert!(disk.contents(IMAGE) == new),
            Ok(Recovered::Dropped | Recovered::Nothing)
            | Err(Error::NotAJournal { .. } | Error::Version { .. }) => {
                prop_assert!(disk.contents(IMAGE) == old());
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// Anything at all, with the right check values.
    #[test]
    fn noise_with_right_check_values_stays_within_the_image(
        fields in prop::array::uniform9(prop_oneof![0..9000u64, 1u64 << 63.., Just(4096u64)]),
        table in prop::collection::vec((prop_oneof![0..5000u64, any::<u64>()], prop_oneof![0..600u64, any::<u64>()]), 0..5),
        honest: bool,
    ) {
        let mut made = Made::new(&table);
        let honest_fields = made.fields;
        made.fields = fields;
        if honest {
            made.fields[6..].copy_from_slice(&honest_fields[6..]);
        }
        let disk = made.disk();
        let _ = run(&disk, PLAIN);
        prop_assert!(disk.contents(IMAGE).len() <= 9000 || made.fields[5] == disk.contents(IMAGE).len() as u64);
    }
}
