//! S7 to S11: names, nodes and inode numbers.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use belay_testbed::Kind;
use serde_json::Value;

use crate::common::{caching, drop_caches, held, low_level, names, uncached, until};
use crate::custom::Custom;

fn ino(path: &std::path::Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// S7: the kernel's lookup counts and the successor's differ; forgetting afterwards does no harm.
#[test]
fn s07_nodes_known_before_a_crash_are_forgotten_and_found_again_after_it() {
    for bed in [caching(), uncached()] {
        for dir in 0..4 {
            fs::create_dir(bed.at(&format!("d{dir}"))).unwrap();
            for file in 0..50 {
                fs::write(bed.at(&format!("d{dir}/f{file}")), format!("{dir} {file}")).unwrap();
            }
        }
        let read_all = || {
            for dir in 0..4 {
                for file in 0..50 {
                    let text = fs::read_to_string(bed.at(&format!("d{dir}/f{file}"))).unwrap();
                    assert_eq!(text, format!("{dir} {file}"));
                }
            }
        };
        for round in 0..3 {
            bed.crash_and_recover();
            if round != 1 {
                // Some are known to the successor when they are forgotten, some are not.
                fs::read(bed.at("d1/f7")).unwrap();
            }
            drop_caches();
            read_all();
            drop_caches();
        }
        read_all();
        bed.stop();
    }
}

/// S7: what belay remembers of a node goes when the kernel forgets the node.
#[test]
fn s07_forgotten_nodes_are_not_kept() {
    let bed = caching();
    for file in 0..300 {
        fs::write(bed.at(&format!("f{file}")), "x").unwrap();
    }
    bed.crash_and_recover();
    for file in 0..300 {
        fs::metadata(bed.at(&format!("f{file}"))).unwrap();
    }
    assert!(bed.number("/nodes_cached") >= 300);
    for file in 0..300 {
        fs::remove_file(bed.at(&format!("f{file}"))).unwrap();
    }
    bed.wait_for("forgetting", |status| status["nodes_cached"].as_u64().unwrap() < 50);
    bed.stop();
}

/// S8: READDIRPLUS counts as a lookup of each entry.
#[test]
fn s08_entries_of_a_listing_count_as_lookups() {
    let bed = caching();
    let dir = bed.behind("dir");
    fs::create_dir(&dir).unwrap();
    for file in 0..200 {
        fs::write(dir.join(format!("f{file:03}")), format!("{file}")).unwrap();
    }
    let expected = names(&dir);
    for _ in 0..2 {
        assert_eq!(names(&bed.at("dir")), expected);
        bed.crash_and_recover();
        // First stat, without a lookup of the kernel's own, then read.
        for name in &expected {
            let path = bed.at("dir").join(name);
            assert_eq!(ino(&path), ino(&dir.join(name)));
            assert_eq!(fs::read(&path).unwrap(), fs::read(dir.join(name)).unwrap());
        }
        drop_caches();
    }
    bed.stop();
}

/// S9: hard links are one inode before and after, by whichever name one comes.
#[test]
fn s09_hard_links_stay_one_inode() {
    let bed = caching();
    fs::create_dir(bed.at("sub")).unwrap();
    fs::write(bed.at("a"), "one").unwrap();
    fs::hard_link(bed.at("a"), bed.at("sub/b")).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(bed.at("a")).unwrap();
    let number = ino(&bed.at("a"));
    bed.crash_and_recover();
    fs::write(bed.at("sub/b"), "two").unwrap();
    assert_eq!(crate::common::content(&file), "two");
    assert_eq!(fs::read_to_string(bed.at("a")).unwrap(), "two");
    for name in ["a", "sub/b"] {
        let meta = fs::metadata(bed.at(name)).unwrap();
        assert_eq!((meta.ino(), meta.nlink()), (number, 2), "{name}");
    }
    // The name under which it was known goes: the other one still leads to it.
    fs::remove_file(bed.at("a")).unwrap();
    bed.crash_and_recover();
    assert_eq!(crate::common::content(&file), "two");
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    assert_eq!(ino(&bed.at("sub/b")), number);
    fs::hard_link(bed.at("sub/b"), bed.at("c")).unwrap();
    assert_eq!(ino(&bed.at("c")), number);
    drop(file);
    bed.stop();
}

/// S9: a successor that is asked for another link first, of which nothing tells whose it is: both lead to the file, also for who
/// has it open.
#[test]
fn s09_a_link_that_comes_before_the_name_that_is_known() {
    for arguments in [&["--inode-numbers", "volatile"][..], &[]] {
        let mount = Custom::low_level(arguments, &[]);
        let link_behind = || fs::hard_link(mount.behind.join("file"), mount.behind.join("link"));
        if !arguments.is_empty() {
            link_behind().unwrap();
        }
        let file = fs::OpenOptions::new().read(true).append(true).open(mount.at("file")).unwrap();
        // Now, it is not known to have links.
        if arguments.is_empty() {
            link_behind().unwrap();
        }
        mount.crash_and_recover();
        assert_eq!(fs::read_to_string(mount.at("link")).unwrap(), "text");
        assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "text");
        assert_eq!(crate::common::content(&file), "text", "{}", mount.log());
        (&file).write_all(b"more").unwrap();
        assert_eq!(fs::read_to_string(mount.at("link")).unwrap(), "textmore");
        fs::remove_file(mount.at("file")).unwrap();
        mount.crash_and_recover();
        assert_eq!(fs::read_to_string(mount.at("link")).unwrap(), "textmore");
        drop(file);
        fs::hard_link(mount.at("link"), mount.at("file")).unwrap();
        assert_eq!(ino(&mount.at("file")), ino(&mount.at("link")));
        fs::remove_file(mount.at("link")).unwrap();
        assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "textmore");
        mount.stop();
    }
}

/// S10: nodes are found again below directories that were renamed or replaced.
#[test]
fn s10_renamed_parents() {
    let bed = caching();
    fs::create_dir_all(bed.at("a/b/c")).unwrap();
    fs::write(bed.at("a/b/c/file"), "deep").unwrap();
    let file = fs::File::open(bed.at("a/b/c/file")).unwrap();
    let number = ino(&bed.at("a/b/c/file"));
    fs::rename(bed.at("a/b"), bed.at("moved")).unwrap();
    fs::rename(bed.at("a"), bed.at("z")).unwrap();
    // A stranger comes to sit where the path once led.
    fs::create_dir_all(bed.at("a/b/c")).unwrap();
    fs::write(bed.at("a/b/c/file"), "another").unwrap();
    bed.crash_and_recover();
    assert_eq!(crate::common::content(&file), "deep");
    assert_eq!(fs::read_to_string(bed.at("moved/c/file")).unwrap(), "deep");
    assert_eq!(fs::read_to_string(bed.at("a/b/c/file")).unwrap(), "another");
    assert_eq!(ino(&bed.at("moved/c/file")), number);
    assert_eq!(file.metadata().unwrap().ino(), number);
    drop(file);
    bed.stop();
}

/// S10: a working directory, and one that is open, lead on after a crash.
#[test]
fn s10_relative_paths_from_an_open_directory() {
    let bed = caching();
    fs::create_dir_all(bed.at("a/b")).unwrap();
    let dir = fs::File::open(bed.at("a/b")).unwrap();
    fs::rename(bed.at("a"), bed.at("c")).unwrap();
    bed.crash_and_recover();
    let path = format!("/proc/self/fd/{}/new", std::os::fd::AsRawFd::as_raw_fd(&dir));
    fs::write(&path, "x").unwrap();
    assert_eq!(fs::read_to_string(bed.behind("c/b/new")).unwrap(), "x");
    drop(dir);
    bed.stop();
}

/// S11: inode numbers stay, also of daemons that number inodes as they come.
#[test]
fn s11_inode_numbers_stay() {
    let beds = [
        held(Kind::Sshfs, &[], &[]),
        held(Kind::Bindfs, &[], &[]),
        held(Kind::PassthroughHl, &[], &[]),
        low_level(&["cache=always"]),
        held(Kind::Bindfs, &["attr_timeout=0", "entry_timeout=0"], &["--no-resend"]),
    ];
    for bed in beds {
        fs::create_dir(bed.at("dir")).unwrap();
        let list: Vec<_> = (0..30).map(|n| bed.at(&format!("dir/{n}"))).collect();
        for path in &list {
            fs::write(path, "x").unwrap();
        }
        let kept: Vec<_> = list.iter().map(|path| fs::File::open(path).unwrap()).collect();
        let before: Vec<_> = list.iter().map(|path| ino(path)).collect();
        for _ in 0..2 {
            bed.crash_and_recover();
            // In another order than before.
            for (at, path) in list.iter().enumerate().rev() {
                assert_eq!(ino(path), before[at], "{} {}", bed.bed.kind(), path.display());
                assert_eq!(kept[at].metadata().unwrap().ino(), before[at]);
            }
        }
        drop(kept);
        bed.stop();
    }
}

/// S11: no number is two files', where a daemon makes its numbers of paths, and names are used again.
#[test]
fn s11_no_number_is_given_twice() {
    let bed = held(Kind::Mergerfs, &["use_ino", "cache.attr=0", "cache.entry=0"], &[]);
    let all = || -> Vec<_> {
        let walk = ["a", "a/b", "a/b/c", "d", "e"].into_iter().map(|name| bed.at(name));
        walk.filter_map(|path| Some((path.metadata().ok()?.ino(), path))).collect()
    };
    let check = |when: &str| {
        let (seen, again) = (all(), all());
        assert_eq!(seen, again, "{when}");
        let numbers: BTreeSet<_> = seen.iter().map(|(ino, _)| *ino).collect();
        assert_eq!(numbers.len(), seen.len(), "{when}: {seen:?}");
    };
    fs::create_dir(bed.at("b")).unwrap();
    fs::rename(bed.at("b"), bed.at("a")).unwrap();
    // Shown after the rename, so it stays.
    let (shown, open) = (ino(&bed.at("a")), fs::File::open(bed.at("a")).unwrap());
    bed.crash_and_recover();
    assert_eq!((ino(&bed.at("a")), open.metadata().unwrap().ino()), (shown, shown));
    for name in ["b", "c"] {
        // Its number is made of this name, and not shown under another before the crash.
        fs::create_dir(bed.at(name)).unwrap();
        let to = if name == "b" { "a/b" } else { "a/b/c" };
        fs::rename(bed.at(name), bed.at(to)).unwrap();
        bed.crash_and_recover();
        check("after a crash");
        for again in ["d", "e"] {
            let _ = fs::create_dir(bed.at(name));
            check("with the name used again");
            let _ = fs::rename(bed.at(name), bed.at(again));
            check("and renamed");
        }
    }
    bed.crash_and_recover();
    check("after another crash");
    drop(open);
    bed.stop();
}

/// S11: nor where the one that had the number before has not been asked for in this life, or two have it on record.
#[test]
fn s11_a_number_of_before_is_given_to_nobody_else() {
    let bed = held(Kind::Mergerfs, &["use_ino", "cache.attr=0", "cache.entry=0"], &[]);
    let differ = |one: &str, other: &str| {
        let (one, other) = (ino(&bed.at(one)), ino(&bed.at(other)));
        assert_ne!(one, other);
        (one, other)
    };
    // The old directory is held, so the kernel does not ask for it anew.
    fs::create_dir(bed.at("b")).unwrap();
    let open = fs::File::open(bed.at("b")).unwrap();
    fs::rename(bed.at("b"), bed.at("a")).unwrap();
    bed.crash_and_recover();
    fs::create_dir(bed.at("b")).unwrap();
    let seen = differ("b", "a");
    bed.crash_and_recover();
    assert_eq!(differ("b", "a"), seen);
    // Both on record under one number.
    fs::create_dir(bed.at("c")).unwrap();
    let both = fs::File::open(bed.at("c")).unwrap();
    fs::rename(bed.at("c"), bed.at("d")).unwrap();
    fs::create_dir(bed.at("c")).unwrap();
    let again = fs::File::open(bed.at("c")).unwrap();
    bed.crash_and_recover();
    differ("d", "c");
    drop((open, both, again));
    bed.stop();
}

/// A mountpoint whose name is no UTF-8: it is held, shown, crashed and stopped by that name.
#[test]
fn a_mountpoint_of_any_bytes() {
    let name = std::ffi::OsStr::from_bytes(b"mnt-\xff\xfe");
    let mut place = PathBuf::new();
    let mut mount = Custom::start(&[], |given| {
        place = given.dir.join(name);
        fs::create_dir(&place).unwrap();
        vec!["bindfs".into(), "-f".into(), given.behind.into(), place.clone().into()]
    });
    assert!(until(|| fs::read(place.join("file")).is_ok_and(|text| text == b"text")));
    let ask = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).chain([place.as_os_str()]).collect();
        let output = Custom::belay(&words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = r"mnt-\xff\xfe";
    assert!(ask(&["status"]).contains(shown));
    let file = fs::File::open(place.join("file")).unwrap();
    ask(&["crash", "--count", "2"]);
    let status: Value = serde_json::from_str(&ask(&["status", "--json"])).unwrap();
    let status = if status.is_array() { status[0].clone() } else { status };
    assert_eq!((&status["state"], &status["crashes"]), (&"serving".into(), &2.into()), "{status}");
    let bytes = serde_json::to_value(place.as_os_str().as_bytes()).unwrap();
    assert_eq!(status["mountpoint_bytes"], bytes, "{status}");
    let mut text = [0; 4];
    file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"text");
    // A second one is refused by the name of the first.
    let other = ["run", "--", "bindfs", "-f", "/etc"].map(std::ffi::OsStr::new);
    let other = Custom::belay(&[&other[..], &[place.as_os_str()]].concat());
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(!other.status.success() && said.contains("mnt-"), "{said}");
    ask(&["restart"]);
    drop(file);
    ask(&["stop"]);
    assert!(mount.end().success(), "{}", mount.log());
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}
