//! S14 to S16, S85: files that are open and have no name any more.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use belay_testbed::{Bed, BedOptions, Kind, Mode};

use crate::common::{Held, caching, call, content, drop_caches, held, names, uncached, until};
use crate::custom::Custom;
use crate::journal::compile;

fn open(bed: &Held, name: &str, text: &str) -> File {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(bed.at(name))
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn nothing_behind(bed: &Held, dir: &str) {
    assert!(until(|| names(&bed.behind(dir)).is_empty()), "{:?}", names(&bed.behind(dir)));
}

fn beds() -> [Held; 5] {
    [
        caching(),
        uncached(),
        held(Kind::Bindfs, &[], &[]),
        held(Kind::PassthroughHl, &[], &[]),
        held(Kind::PassthroughLl, &["cache=auto"], &["--no-resend"]),
    ]
}

/// S14: an open and unlinked file lives to its last close, across crashes, and is never seen.
#[test]
fn s14_unlinked_files_live_while_they_are_open() {
    for bed in beds() {
        let kind = bed.bed.kind();
        fs::create_dir(bed.at("dir")).unwrap();
        let mut file = open(&bed, "dir/file", "one");
        let number = file.metadata().unwrap().ino();
        fs::remove_file(bed.at("dir/file")).unwrap();
        for round in 0..3 {
            assert_eq!(names(&bed.at("dir")), [""; 0], "{kind}");
            assert!(!bed.at("dir/file").exists());
            let meta = file.metadata().unwrap();
            assert_eq!((meta.ino(), meta.nlink()), (number, 0), "{kind}, round {round}");
            bed.crash_and_recover();
            assert_eq!(content(&file), "one".to_owned() + &"+".repeat(round));
            file.write_all(b"+").unwrap();
        }
        // Its name is free.
        fs::write(bed.at("dir/file"), "another").unwrap();
        assert_eq!(content(&file), "one+++");
        file.set_len(2).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2);
        fs::remove_file(bed.at("dir/file")).unwrap();
        drop(file);
        nothing_behind(&bed, "dir");
        fs::remove_dir(bed.at("dir")).unwrap();
        bed.stop();
    }
}

/// S85: what libfuse would do itself with files that are open and lose their names, it is never made to do: nothing of it stays.
#[test]
fn s85_nothing_stays_behind_of_daemons_that_hide_files_themselves() {
    for kind in [Kind::Bindfs, Kind::PassthroughHl] {
        let bed = held(kind, &[], &[]);
        let unlinked = open(&bed, "unlinked", "one");
        fs::remove_file(bed.at("unlinked")).unwrap();
        let over = open(&bed, "over", "two");
        let source = open(&bed, "source", "three");
        fs::rename(bed.at("source"), bed.at("over")).unwrap();
        let linked = open(&bed, "linked", "four");
        fs::hard_link(bed.at("linked"), bed.at("link")).unwrap();
        fs::remove_file(bed.at("linked")).unwrap();
        fs::create_dir(bed.at("dir")).unwrap();
        let inside = open(&bed, "dir/inside", "five");
        fs::remove_file(bed.at("dir/inside")).unwrap();
        fs::remove_dir(bed.at("dir")).unwrap();
        let all = [
            (unlinked, "one"),
            (over, "two"),
            (source, "three"),
            (linked, "four"),
            (inside, "five"),
        ];
        for _ in 0..2 {
            bed.crash_and_recover();
            fs::remove_file(bed.at("link")).or_else(|_| fs::remove_file(bed.at("over"))).unwrap();
            assert!(all.iter().all(|(file, text)| content(file) == *text), "{kind}");
            let behind = names(&bed.behind(""));
            assert!(
                !behind.iter().any(|name| name.starts_with(".fuse_hidden")),
                "{kind}: {behind:?}"
            );
        }
        bed.crash_and_recover();
        drop(all);
        nothing_behind(&bed, "");
        bed.stop();
    }
}

/// S85: a file loses its name while it is being opened, so that the daemon has it open and nobody else does yet.
#[test]
fn s85_a_name_that_goes_while_its_file_is_opened() {
    let mut control = PathBuf::new();
    let mount = Custom::start(&[], |place| {
        let program = place.dir.join("slow");
        compile("slow.c", &program);
        control = place.dir.join("control");
        fs::create_dir(&control).unwrap();
        let words = [program.into(), place.behind.into(), control.clone().into()];
        words.into_iter().chain([place.mountpoint.into(), "-f".into()]).collect()
    });
    mount.serves();
    fs::write(control.join("slow"), "").unwrap();
    let opener = call({
        let path = mount.at("file");
        move || File::open(path)
    });
    assert!(until(|| control.join("here").exists()), "{}", mount.log());
    let remover = call({
        let path = mount.at("file");
        move || fs::remove_file(path)
    });
    // libfuse lets no name go in the middle of an open.
    mount.wait_for("both", |status| status["requests"]["in_flight"] == 2);
    fs::write(control.join("go"), "").unwrap();
    let file = opener.result().unwrap();
    remover.result().unwrap();
    assert!(!mount.at("file").exists());
    mount.crash_and_recover();
    assert_eq!(content(&file), "text", "{}", mount.log());
    drop(file);
    assert!(until(|| names(&mount.behind).is_empty()), "{:?}", names(&mount.behind));
    assert_eq!(mount.status().unwrap()["degraded"], false);
}

/// S14: unlinked through one name, open through two handles: it goes with the last.
#[test]
fn s14_the_last_close_removes_it() {
    let bed = uncached();
    let first = open(&bed, "file", "text");
    let second = File::open(bed.at("file")).unwrap();
    fs::remove_file(bed.at("file")).unwrap();
    bed.crash_and_recover();
    drop(first);
    bed.crash_and_recover();
    assert_eq!(content(&second), "text");
    drop(second);
    nothing_behind(&bed, "");
    bed.stop();
}

/// S14: the last close happens while there is no daemon; the successor removes the file.
#[test]
fn s14_closed_during_the_blackout() {
    for arguments in [&[][..], &["--no-resend"]] {
        let bed = held(Kind::PassthroughLl, &["cache=never", "timeout=0"], arguments);
        let file = open(&bed, "file", "text");
        fs::remove_file(bed.at("file")).unwrap();
        let blackout = bed.blackout();
        let closer = crate::common::call(move || drop(file));
        bed.wait_for_requests(1);
        blackout.end();
        closer.result();
        nothing_behind(&bed, "");
        bed.stop();
    }
}

/// S14: the link count of a file with other names is the true one, also while one of them is unlinked.
#[test]
fn s14_link_counts() {
    let bed = uncached();
    let file = open(&bed, "a", "text");
    fs::hard_link(bed.at("a"), bed.at("b")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    fs::remove_file(bed.at("a")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    bed.crash_and_recover();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    fs::remove_file(bed.at("b")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    bed.crash_and_recover();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(content(&file), "text");
    drop(file);
    nothing_behind(&bed, "");
    bed.stop();
}

/// S15: a file that another was renamed over while it was open.
#[test]
fn s15_renamed_over_while_open() {
    // libfuse's high level hides such a file by itself as well: see the ignored test below.
    for bed in beds().into_iter().filter(|bed| bed.bed.kind() == Kind::PassthroughLl) {
        let kind = bed.bed.kind();
        fs::create_dir(bed.at("dir")).unwrap();
        let old = open(&bed, "dir/file", "old");
        fs::write(bed.at("new"), "new").unwrap();
        let number = old.metadata().unwrap().ino();
        fs::rename(bed.at("new"), bed.at("dir/file")).unwrap();
        for _ in 0..2 {
            bed.crash_and_recover();
            assert_eq!(content(&old), "old", "{kind}");
            let meta = old.metadata().unwrap();
            assert_eq!(meta.ino(), number, "{kind}");
            assert_eq!(meta.nlink(), 0, "{kind}");
            assert_eq!(fs::read_to_string(bed.at("dir/file")).unwrap(), "new", "{kind}");
            assert_eq!(names(&bed.at("dir")), ["file"], "{kind}");
        }
        drop(old);
        assert!(until(|| names(&bed.behind("dir")) == ["file"]), "{:?}", names(&bed.behind("dir")));
        fs::remove_file(bed.at("dir/file")).unwrap();
        bed.stop();
    }
}

/// S15: its link count, with a daemon whose links are nodes of their own.
#[test]
fn s15_link_count_of_a_path_based_daemon() {
    let bed = held(Kind::Bindfs, &[], &[]);
    let old = open(&bed, "file", "old");
    fs::write(bed.at("new"), "new").unwrap();
    fs::rename(bed.at("new"), bed.at("file")).unwrap();
    bed.crash_and_recover();
    assert_eq!(names(&bed.at("")), ["file"]);
    assert_eq!(old.metadata().unwrap().nlink(), 0);
    drop(old);
    bed.stop();
}

/// S15: one link renamed over another that is open, with daemons for which the two are two nodes: the same names are
/// left as without belay, also where the link is looked up for the first time after a crash.
#[test]
fn s15_a_link_renamed_over_another_that_is_open() {
    for kind in [Kind::Bindfs, Kind::PassthroughHl, Kind::Ntfs3g] {
        let work = |root: &Path, before: &dyn Fn()| {
            fs::create_dir(root.join("dir")).unwrap();
            fs::write(root.join("file"), "text").unwrap();
            fs::hard_link(root.join("file"), root.join("dir/link")).unwrap();
            let file = File::open(root.join("file")).unwrap();
            before();
            fs::rename(root.join("dir/link"), root.join("file")).unwrap();
            file
        };
        let left = |root: &Path, file: File| {
            assert_eq!(content(&file), "text", "{kind}");
            drop(file);
            assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "text", "{kind}");
            (names(&root.join("dir")), names(root))
        };
        let bare = Bed::start(kind, &Mode::Bare, &BedOptions::default()).unwrap();
        let file = work(bare.root(), &|| ());
        let expected = left(bare.root(), file);
        assert_eq!(expected.0, [""; 0], "{kind}");
        bare.stop().unwrap();
        for crash in [false, true] {
            let bed = held(kind, &[], &[]);
            let file = work(bed.bed.root(), &|| {
                if crash {
                    drop_caches(); // the kernel forgets the link, which nobody uses
                    bed.crash_and_recover();
                }
            });
            bed.crash_and_recover();
            assert_eq!(left(bed.bed.root(), file), expected, "{kind}, crash before: {crash}");
            bed.stop();
        }
    }
}

/// S15: a rename over an open file that fails leaves everything as it was.
#[test]
fn s15_a_failing_rename_changes_nothing() {
    let bed = uncached();
    let file = open(&bed, "file", "text");
    fs::create_dir(bed.at("dir")).unwrap();
    assert!(fs::rename(bed.at("missing"), bed.at("file")).is_err());
    assert!(fs::rename(bed.at("dir"), bed.at("file")).is_err());
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    bed.crash_and_recover();
    assert_eq!(fs::read_to_string(bed.at("file")).unwrap(), "text");
    assert_eq!(names(&bed.behind("")), ["dir", "file"]);
    drop(file);
    bed.stop();
}

/// S16: a directory that only holds a hidden file is empty for applications.
#[test]
fn s16_a_directory_with_a_hidden_file_can_be_removed() {
    for bed in [uncached(), held(Kind::Bindfs, &[], &[])] {
        fs::create_dir_all(bed.at("a/b")).unwrap();
        let file = open(&bed, "a/b/file", "text");
        fs::remove_file(bed.at("a/b/file")).unwrap();
        fs::remove_dir(bed.at("a/b")).unwrap();
        bed.crash_and_recover();
        assert_eq!(content(&file), "text");
        assert_eq!(names(&bed.at("a")), [""; 0]);
        fs::remove_dir(bed.at("a")).unwrap();
        bed.crash_and_recover();
        assert_eq!(content(&file), "text");
        assert_eq!(names(&bed.at("")), [""; 0]);
        drop(file);
        nothing_behind(&bed, "");
        bed.stop();
    }
}

/// S16: such a directory can be renamed over, and moved.
#[test]
fn s16_a_directory_with_a_hidden_file_can_be_moved_and_renamed_over() {
    let bed = uncached();
    fs::create_dir_all(bed.at("a")).unwrap();
    fs::create_dir_all(bed.at("b")).unwrap();
    let file = open(&bed, "a/file", "text");
    fs::remove_file(bed.at("a/file")).unwrap();
    fs::rename(bed.at("a"), bed.at("c")).unwrap();
    bed.crash_and_recover();
    assert_eq!(content(&file), "text");
    fs::rename(bed.at("b"), bed.at("c")).unwrap();
    bed.crash_and_recover();
    assert_eq!(content(&file), "text");
    assert_eq!(names(&bed.at("")), ["c"]);
    assert_eq!(names(&bed.at("c")), [""; 0]);
    drop(file);
    assert!(until(|| names(&bed.behind("")) == ["c"] && names(&bed.behind("c")).is_empty()));
    bed.stop();
}
