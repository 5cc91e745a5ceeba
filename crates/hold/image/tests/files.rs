//! Overlay, journal and recovery together, on real memory and real files.
#![allow(missing_docs)]

use belay_image::journal::{
    Error, Found, HostFile, How, Recovered, Stage, beside, commit, inspect, mark_empty, recover,
};
use belay_image::{Capacity, Overlay};
use belay_sys::Mapping;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

const CAPACITY: Capacity = Capacity { pages: 2048 };
const AT: usize = 512;

struct Fixture {
    dir: tempfile::TempDir,
    path: PathBuf,
    image: File,
    memory: Mapping,
}

impl Fixture {
    fn new(length: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let bytes: Vec<u8> = (0..length).map(|i| (i / 5) as u8 | 1).collect();
        std::fs::write(&path, bytes).unwrap();
        let image = File::open(&path).unwrap();
        let len = (AT + CAPACITY.words()) * 8;
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(len as u64).unwrap();
        let memory = Mapping::new(memory.as_fd(), len).unwrap();
        let fixture = Self { dir, path, image, memory };
        fixture.overlay().discard_current(length as u64).unwrap();
        fixture
    }

    fn overlay(&self) -> Overlay<'_, Mapping> {
        Overlay::new(&self.memory, AT, CAPACITY)
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let image = |at, out: &mut [u8]| self.image.read_at(out, at);
        assert_eq!(self.overlay().write(offset, bytes, image).unwrap(), bytes.len());
    }

    fn view(&self) -> Vec<u8> {
        let mut out = vec![0; self.overlay().length().unwrap() as usize];
        let image = |at, out: &mut [u8]| self.image.read_at(out, at);
        assert_eq!(self.overlay().read(0, &mut out, image).unwrap(), out.len());
        out
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    fn files(&self) -> (HostFile, HostFile) {
        let journal = HostFile::create_journal(&beside(&self.path)).unwrap();
        (journal, HostFile::image(&self.path).unwrap())
    }
}

#[test]
fn checkpoints_get_to_the_image_and_the_journal_goes_in_the_end() {
    let fixture = Fixture::new(3 << 20);
    let mut expected = fixture.bytes();
    let mut seed = 7u64;
    for round in 1..=3 {
        for i in 0..300usize {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let at = (seed >> 33) as usize % (3 << 20);
            let at = if i % 3 == 0 { at } else { at & !511 };
            let bytes = vec![i as u8 ^ round as u8; 1 + (seed >> 20) as usize % 9000];
            fixture.write(at as u64, &bytes);
            expected.resize(expected.len().max(at + bytes.len()), 0);
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        let long = vec![round as u8; 2 << 20];
        fixture.write(100_000 + round * 512, &long);
        let at = 100_000 + round as usize * 512;
        expected[at..at + long.len()].copy_from_slice(&long);
        if round == 2 {
            fixture.overlay().set_length(1_000_001).unwrap();
            expected.truncate(1_000_001);
            fixture.overlay().set_length(2_500_000).unwrap();
            expected.resize(2_500_000, 0);
        }
        assert!(fixture.view() == expected);
        let before = fixture.bytes();
        assert_eq!(fixture.overlay().seal(), Ok(Some(round)));
        assert!(fixture.bytes() == before && fixture.view() == expected);
        // The next epoch is under way meanwhile.
        fixture.write(4096, b"meanwhile");
        let sealed = fixture.overlay().sealed().unwrap().unwrap();
        let (journal, image) = fixture.files();
        let mut last = None;
        commit(&journal, &image, &fixture.memory, &sealed, &mut |progress| last = Some(progress))
            .unwrap();
        let last = last.unwrap();
        assert_eq!(
            (last.stage, last.done, last.total),
            (Stage::Image, sealed.bytes(), sealed.bytes())
        );
        assert!(fixture.bytes() == expected);
        assert!(matches!(inspect(&journal, &mut |_| {}), Ok(Found::Whole(_))));
        fixture.overlay().set_committed(round).unwrap();
        mark_empty(&journal).unwrap();
        expected[4096..4105].copy_from_slice(b"meanwhile");
        assert!(fixture.view() == expected);
        for range in
            fixture.overlay().spare().unwrap().into_iter().filter(|range| !range.is_empty())
        {
            fixture.memory.discard(range.start, range.len()).unwrap();
        }
        assert!(fixture.view() == expected);
    }
    let (journal, image) = fixture.files();
    assert_eq!(
        std::fs::metadata(beside(&fixture.path)).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    journal.remove_journal(&image).unwrap();
    assert!(!beside(&fixture.path).exists());
    assert!(HostFile::journal(&beside(&fixture.path)).unwrap().is_none());
    assert_eq!(std::fs::read_dir(fixture.dir.path()).unwrap().count(), 1);
}

#[test]
fn what_a_journal_holds_is_applied_to_the_file_that_it_is_of() {
    let fixture = Fixture::new(100_000);
    let before = fixture.bytes();
    fixture.write(700, &[0xaa; 30_000]);
    fixture.write(99_990, &[0xbb; 20]);
    let expected = fixture.view();
    fixture.overlay().seal().unwrap();
    let sealed = fixture.overlay().sealed().unwrap().unwrap();
    let (journal, image) = fixture.files();
    commit(&journal, &image, &fixture.memory, &sealed, &mut |_| {}).unwrap();
    // As if the image had only been written in part.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&fixture.path)
        .unwrap()
        .write_all_at(&before[..20_000], 0)
        .unwrap();
    assert!(matches!(journal.remove_journal(&image), Err(Error::InUse { .. })));
    let (journal, image) = fixture.files();
    // A copy is another file.
    let copy = fixture.dir.path().join("copy");
    std::fs::copy(&fixture.path, &copy).unwrap();
    let other = HostFile::image(&copy).unwrap();
    let refused = recover(&journal, &other, How::default(), &mut |_| {}).unwrap_err();
    assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
    let done = recover(&journal, &image, How::default(), &mut |_| {}).unwrap();
    let Recovered::Applied(contents) = done else { panic!("{done:?}") };
    assert_eq!(contents.inode, std::fs::metadata(&fixture.path).unwrap().ino());
    assert!(fixture.bytes() == expected);
    assert_eq!(recover(&journal, &image, How::default(), &mut |_| {}).unwrap(), Recovered::Nothing);
}

#[test]
fn journals_of_strangers_and_what_is_no_file_are_refused() {
    let fixture = Fixture::new(5000);
    fixture.write(1000, b"new");
    fixture.overlay().seal().unwrap();
    let sealed = fixture.overlay().sealed().unwrap().unwrap();
    let (journal, image) = fixture.files();
    let path = beside(&fixture.path);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o622)).unwrap();
    let refused = commit(&journal, &image, &fixture.memory, &sealed, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, Error::Untrusted { .. }), "{refused}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    std::fs::remove_file(&path).unwrap();
    symlink(&fixture.path, &path).unwrap();
    assert!(matches!(HostFile::create_journal(&path), Err(Error::NotAJournal { .. })));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(HostFile::journal(&path).is_err());
    let missing = HostFile::image(&fixture.dir.path().join("nothing")).unwrap_err().to_string();
    assert!(missing.contains("nothing") && missing.contains("No such file"), "{missing}");
}
