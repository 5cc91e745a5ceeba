//! Where journals lie, how they are found again, and that one has them at a time.
#![allow(missing_docs)]

use belay_image::journal::{
    Error, Found, Homes, HostFile, How, Kept, Recovered, beside, commit, mark_empty,
};
use belay_image::overlay::{Run, Sealed};
use belay_sys::Mapping;
use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

struct Fixture {
    dir: tempfile::TempDir,
    image: PathBuf,
    folder: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir(top.join("at")).unwrap();
        let image = top.join("at/image");
        fs::write(&image, vec![1; 8192]).unwrap();
        Self { dir, image, folder: top.join("own/journals") }
    }

    fn top(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn homes(&self, asked: Option<&Path>) -> Homes {
        Homes::of(&self.image, asked, &self.folder).unwrap()
    }

    fn found(&self, asked: Option<&Path>) -> Vec<Kept> {
        self.homes(asked).left(false).unwrap()
    }

    fn open(&self) -> HostFile {
        HostFile::image(&self.image).unwrap()
    }

    /// Leaves a commit in a journal, and none of it on the image.
    fn cut_off(&self, kept: &Kept) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let memory = Mapping::new(file.as_fd(), 8192).unwrap();
        memory.put(&[7; 512]);
        let runs = vec![Run { offset: 512, from: 0, len: 512 }];
        let sealed = Sealed { epoch: 5, start: 8192, cut: 8192, length: 8192, runs };
        commit(kept.journal(), &self.open(), &memory, &sealed, &mut |_| {}).unwrap();
        fs::write(&self.image, vec![1; 8192]).unwrap();
    }
}

trait Put {
    fn put(&self, bytes: &[u8]);
}

impl Put for Mapping {
    fn put(&self, bytes: &[u8]) {
        belay_memory::Memory::store_bytes(self, 0, bytes);
    }
}

fn in_use(result: Result<Vec<Kept>, Error>) -> bool {
    matches!(result, Err(Error::Locked { .. }))
}

#[test]
fn the_journal_of_a_file_is_beside_it_and_somebodys() {
    let fixture = Fixture::new();
    assert!(fixture.found(None).is_empty());
    let kept = fixture.homes(None).make().unwrap();
    assert_eq!((kept.path(), kept.pointer()), (beside(&fixture.image).as_path(), None));
    // By whatever name the image is called, and wherever the journal is wanted.
    let other = fixture.top().join("other");
    symlink(&fixture.image, &other).unwrap();
    assert!(in_use(Homes::of(&other, None, &fixture.folder).unwrap().left(false)));
    assert!(in_use(fixture.homes(Some(&fixture.top().join("elsewhere"))).left(false)));
    assert!(matches!(fixture.homes(None).make(), Err(Error::Locked { .. })));
    drop(kept);
    let kept = fixture.found(None).pop().unwrap();
    assert_eq!(kept.inspect(&mut |_| {}).unwrap(), Found::Empty);
    kept.remove(&fixture.open()).unwrap();
    assert_eq!(fs::read_dir(fixture.image.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_journal_that_lies_elsewhere_is_found_by_the_image_alone() {
    let fixture = Fixture::new();
    let asked = fixture.top().join("elsewhere");
    let kept = fixture.homes(Some(&asked)).make().unwrap();
    assert_eq!(kept.path(), asked);
    assert_eq!(kept.pointer(), Some(beside(&fixture.image).as_path()));
    assert!(in_use(fixture.homes(None).left(false)));
    fixture.cut_off(&kept);
    drop(kept);
    // It is one journal, also if it is named.
    for asked in [None, Some(asked.as_path())] {
        let mut found = fixture.found(asked);
        assert_eq!(found.len(), 1);
        let kept = found.pop().unwrap();
        assert!(kept.pointer().is_some());
        assert!(matches!(kept.inspect(&mut |_| {}), Ok(Found::Whole(_))));
    }
    let kept = fixture.found(None).pop().unwrap();
    let done = kept.recover(&fixture.open(), How::default(), &mut |_| {}).unwrap();
    assert!(matches!(done, Recovered::Applied(contents) if contents.bytes == 512));
    assert_eq!(fs::read(&fixture.image).unwrap()[512..1024], [7; 512]);
    kept.remove(&fixture.open()).unwrap();
    assert!(!asked.exists() && beside(&fixture.image).symlink_metadata().is_err());
}

#[test]
fn a_journal_that_may_be_needed_is_not_removed() {
    let fixture = Fixture::new();
    let asked = fixture.top().join("elsewhere");
    let kept = fixture.homes(Some(&asked)).make().unwrap();
    fixture.cut_off(&kept);
    assert!(matches!(kept.remove(&fixture.open()), Err(Error::InUse { .. })));
    let kept = fixture.found(None).pop().unwrap();
    mark_empty(kept.journal()).unwrap();
    kept.remove(&fixture.open()).unwrap();
}

#[test]
fn a_link_to_nothing_stops_and_can_be_dropped() {
    let fixture = Fixture::new();
    let asked = fixture.top().join("elsewhere");
    drop(fixture.homes(Some(&asked)).make().unwrap());
    fs::remove_file(&asked).unwrap();
    let error = fixture.homes(None).left(false).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Missing { .. }), "{text}");
    for part in [asked.to_str().unwrap(), "repair --discard"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(fixture.homes(None).left(true).unwrap().is_empty());
    assert!(fixture.found(None).is_empty());
}

#[test]
fn a_closed_folder_makes_the_journal_lie_in_belays_own() {
    let fixture = Fixture::new();
    // A folder that takes no files, also from root.
    let proc = Homes::of(Path::new("/proc/self/comm"), None, &fixture.folder).unwrap();
    let Ok(kept) = proc.make() else { panic!("{:?}", proc.make()) };
    assert!(kept.path().starts_with(&fixture.folder), "{:?}", kept.path());
    assert_eq!(fs::metadata(&fixture.folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(in_use(proc.left(false)));
    drop(kept);
    assert_eq!(proc.left(false).unwrap().len(), 1);
    // Where anybody may put what they like there is no journal.
    fs::set_permissions(&fixture.folder, Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(proc.make(), Err(Error::Untrusted { .. })));
}

#[test]
fn what_is_no_image_and_no_journal_is_refused() {
    let fixture = Fixture::new();
    assert!(Homes::of(&fixture.folder, None, &fixture.folder).is_err());
    assert!(Homes::of(&fixture.top(), None, &fixture.folder).is_err());
    fs::create_dir(beside(&fixture.image)).unwrap();
    assert!(fixture.homes(None).left(false).is_err());
    fs::remove_dir(beside(&fixture.image)).unwrap();
    symlink("image", beside(&fixture.image)).unwrap();
    assert!(matches!(fixture.homes(None).left(false), Err(Error::NotAJournal { .. })));
    fs::remove_file(beside(&fixture.image)).unwrap();
    let other = fixture.top().join("other");
    fs::write(&other, "text").unwrap();
    symlink(&other, beside(&fixture.image)).unwrap();
    let told = fixture.homes(None).left(true).unwrap_err().to_string();
    assert!(
        told.contains("is not a journal of belay") && told.contains("remove the link"),
        "{told}"
    );
    assert_eq!(fs::read_to_string(&other).unwrap(), "text");
}

#[test]
fn an_image_that_is_another_by_now_is_not_opened() {
    let fixture = Fixture::new();
    let homes = fixture.homes(None);
    homes.open().unwrap();
    fs::rename(&fixture.image, fixture.top().join("moved")).unwrap();
    fs::write(&fixture.image, "other").unwrap();
    assert!(matches!(homes.open(), Err(Error::Moved { .. })));
    fs::remove_file(&fixture.image).unwrap();
    symlink(fixture.top().join("moved"), &fixture.image).unwrap();
    assert!(matches!(homes.open(), Err(Error::Moved { .. })));
}

#[test]
fn a_journal_is_known_for_one_before_anything_is_written_to_it() {
    let fixture = Fixture::new();
    let journal = beside(&fixture.image);
    // Belay came to its end right after it had made it, or the machine did.
    for content in [&[0; 512][..], b""] {
        fs::write(&journal, content).unwrap();
        assert_eq!(fixture.found(None).pop().unwrap().inspect(&mut |_| {}).unwrap(), Found::Empty);
    }
    let kept = fixture.homes(None).make().unwrap();
    assert!(fs::read(&journal).unwrap().starts_with(b"belayjnl"));
    fixture.cut_off(&kept);
    drop(kept);
    let before = fs::read(&journal).unwrap();
    assert!(matches!(fixture.homes(None).make(), Err(Error::InUse { .. })));
    assert!(fs::read(&journal).unwrap() == before);
    // An empty file that has another name is somebody's.
    fs::write(&journal, "").unwrap();
    fs::hard_link(&journal, fixture.top().join("other")).unwrap();
    assert!(matches!(fixture.homes(None).left(false), Err(Error::NotAJournal { .. })));
    assert!(matches!(fixture.homes(None).make(), Err(Error::NotAJournal { .. })));
    for content in [&[0; 9000][..], b"text"] {
        fs::remove_file(&journal).unwrap();
        fs::write(&journal, content).unwrap();
        assert!(matches!(fixture.homes(None).left(false), Err(Error::NotAJournal { .. })));
        assert!(matches!(fixture.homes(None).make(), Err(Error::NotAJournal { .. })));
        assert!(fs::read(&journal).unwrap() == content);
    }
}

/// Who makes links matters where that is not belay's own user.
#[test]
fn a_link_of_a_user_leads_to_what_is_theirs() {
    let fixture = Fixture::new();
    if chown(&fixture.image, Some(65534), None).is_err() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    let asked = fixture.top().join("elsewhere");
    drop(fixture.homes(Some(&asked)).make().unwrap());
    let link = beside(&fixture.image);
    assert_eq!(fixture.found(None).len(), 1, "a link of root's to root's");
    lchown(&link, Some(65534), None).unwrap();
    let told = fixture.homes(None).left(true).unwrap_err().to_string();
    assert!(told.contains("belongs to user 0") && told.contains("user 65534"), "{told}");
    chown(&asked, Some(65534), None).unwrap();
    assert_eq!(fixture.found(None).len(), 1, "a link of theirs to theirs");
    lchown(&link, Some(65533), None).unwrap();
    assert!(matches!(fixture.homes(None).left(true), Err(Error::Untrusted { .. })), "a stranger's");
    lchown(&link, Some(0), None).unwrap();
    chown(&asked, Some(65533), None).unwrap();
    assert!(matches!(fixture.homes(None).left(true), Err(Error::Misled { .. })), "a stranger's");
}
