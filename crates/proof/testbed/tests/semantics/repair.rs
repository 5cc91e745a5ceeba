//! S44, S45: what is on the image when belay, its keeper and the daemon are gone at one instant, and what is done about
//! it. (That what was written may be lost or torn besides is tested below, in `belay-image`.)

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use belay_testbed::Kind;

use crate::common::{Trap, When, call, until};
use crate::custom::Custom;
use crate::disk::{Disk, FOLDER, Loop};

/// What a commit of some files takes; the calls that are not made are not waited for.
const STEPS: u32 = 18;
pub const CALLS: &str = "^(pwrite64|pwritev|fsync)$";

const KINDS: [Kind; 3] = [Kind::Fuse2fsExt2, Kind::Fuse2fsExt3, Kind::Fuse2fsExt4];

/// Writes a file and has it made durable.
fn save(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// The thread that commits.
pub fn committer(mount: &Custom) -> u32 {
    let tasks = format!("/proc/{}/task", mount.pid("supervisor"));
    let mut threads = fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path());
    let is_it = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("comm")).unwrap_or_default().trim() == "committer"
    };
    let path = threads.find(is_it).expect("no committer");
    path.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// Kills all at one step of the commit that an fsync waits for. Gives what the next start, or `belay repair`, did, and
/// whether the file is there.
fn killed_at(kind: Kind, step: u32) -> (String, bool) {
    let disk = Disk::new(kind);
    let mut mount = disk.hold(&[]);
    save(&mount.at("old"), b"old");
    let trap = Trap::set_for_one(committer(&mount), CALLS, step, When::Before);
    let path = mount.at("new");
    let caller = call(move || {
        let mut file = File::create(path)?;
        file.write_all(&[9; 40_000])?;
        file.sync_all()
    });
    assert!(until(|| trap.has_caught() || caller.is_done()), "neither a commit nor its end");
    let synced = caller.is_done();
    mount.kill_all(Some(trap));
    let synced = synced && caller.result().is_ok();
    let done = if step.is_multiple_of(2) {
        disk.repaired()
    } else {
        let mount = disk.hold(&[]);
        mount.log()
    };
    // Also after the mount of above, which is gone by now.
    assert_eq!(disk.beside(), ["image"]);
    disk.check();
    let files = disk.files();
    assert_eq!(files.get("old").map(Vec::as_slice), Some(&b"old"[..]), "{kind}, step {step}");
    let new = files.get("new");
    // All of it or nothing: it was written within one epoch.
    assert!(
        new.is_none_or(|new| *new == [9; 40_000]),
        "{kind}, step {step}: {:?}",
        new.unwrap().len()
    );
    assert!(new.is_some() || !synced, "{kind}, step {step}: fsynced, and lost");
    (done, new.is_some())
}

/// S44: at whichever step of a commit all end, the image is at one checkpoint or the next, for the checker too, and what
/// is to be done is done by the next start as by `belay repair`.
#[test]
fn s44_killed_at_every_step_of_a_commit() {
    let mut seen = BTreeMap::new();
    for step in 1..=STEPS {
        let (done, new) = killed_at(Kind::Fuse2fsExt4, step);
        if step.is_multiple_of(2) {
            *seen.entry((done, new)).or_insert(0) += 1;
        } else {
            let said = ["a commit was cut off before", "a commit was cut off, and is finished"];
            let said = said.iter().position(|text| done.contains(text));
            assert!(said.is_none_or(|what| (what == 1) == new), "step {step}: {new}\n{done}");
        }
    }
    for what in [("nothing", false), ("applied", true), ("nothing", true)] {
        let what = (what.0.to_owned(), what.1);
        assert!(seen.contains_key(&what), "never seen: {what:?}; {seen:?}");
    }
}

/// S44, on the other file systems.
#[test]
fn s44_killed_in_commits_of_other_file_systems() {
    for (kind, steps) in [(Kind::Fuse2fsExt2, [3, 6, 9]), (Kind::Fuse2fsExt3, [4, 7, 10])] {
        for step in steps {
            killed_at(kind, step);
        }
    }
}

/// S44: at random instants, again and again on one image: whatever fsync has promised is there.
#[test]
fn s44_killed_at_random_instants() {
    let seed = std::env::var("BELAY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()) ^ 0x9e37_79b9);
    let again = "cargo test -p belay-testbed --test semantics -- s44_killed_at_random";
    eprintln!("replay: BELAY_SEED={seed} {again}");
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let mut promised: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for round in 0..8 {
        let mut mount = disk.hold(&[]);
        let (tell, told) = channel();
        let top = mount.mountpoint.clone();
        let caller = call(move || {
            for i in 0_u32.. {
                let name = format!("{round}-{}", i % 10);
                let bytes = vec![i as u8; 1 + (i as usize * 7919) % 50_000];
                // Under another name first, as programs do that do not want to lose the old content.
                let place = top.join("next");
                let write = || {
                    let mut file = File::create(&place)?;
                    file.write_all(&bytes)?;
                    file.sync_all()?;
                    fs::rename(&place, top.join(&name))?;
                    File::open(&top)?.sync_all()
                };
                let _ = tell.send((name.clone(), bytes.clone(), false));
                if write().is_err() {
                    return;
                }
                let _ = tell.send((name, bytes, true));
            }
        });
        // The instant is to be a random one.
        std::thread::sleep(Duration::from_millis(random(300)));
        mount.kill_all(None);
        caller.result();
        let mut begun = None;
        for (name, bytes, done) in told.try_iter() {
            if done {
                promised.insert(name, bytes);
                begun = None;
            } else {
                begun = Some((name, bytes));
            }
        }
        if random(2) == 0 {
            disk.repaired();
        } else {
            drop(disk.hold(&[]));
        }
        assert_eq!(disk.beside(), ["image"], "seed {seed}");
        disk.check();
        let mut files = disk.files();
        // What was under way is there or not, but is nothing else.
        if let Some((name, bytes)) = begun
            && files.get(&name) == Some(&bytes)
        {
            promised.insert(name, bytes);
        }
        files.remove("next");
        assert!(
            files == promised,
            "seed {seed}, round {round}: {:?}, {:?}",
            files.keys(),
            promised.keys()
        );
    }
    assert!(!promised.is_empty(), "no fsync came to its end");
}

/// S44: at random instants of the end.
#[test]
fn s44_killed_while_it_ends() {
    let seed = u64::from(std::process::id());
    for round in 0..12 {
        let disk = Disk::new(KINDS[round % 3]);
        let mut mount = disk.hold(&[]);
        save(&mount.at("old"), b"old");
        fs::write(mount.at("new"), [9; 40_000]).unwrap();
        mount.tool(&["umount"]);
        // The instant is to be a random one.
        let wait = (seed * 7919 + round as u64 * 104_729) % 12_000;
        std::thread::sleep(Duration::from_micros(wait));
        mount.kill_all(None);
        if round % 2 == 0 {
            disk.repaired();
        } else {
            drop(disk.hold(&[]));
        }
        assert_eq!(disk.beside(), ["image"]);
        disk.check();
        let files = disk.files();
        assert_eq!(files.get("old").map(Vec::as_slice), Some(&b"old"[..]), "{wait} us");
        assert!(files.get("new").is_none_or(|new| *new == [9; 40_000]), "{wait} us");
    }
}

/// S45: an image is one belay's, by whatever name it is called; `belay repair` is refused as well.
#[test]
fn s45_an_image_is_held_once() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    let mount = disk.hold(&[]);
    save(&mount.at("file"), b"text");
    let refused = |mut other: Custom, words: &str| {
        assert_eq!(other.end().code(), Some(1), "{}", other.log());
        assert!(other.log().contains(words), "{}", other.log());
    };
    refused(disk.start(&[], &[]), "is held by a belay that runs");
    fs::hard_link(disk.image(), disk.at("hard")).unwrap();
    symlink(disk.image(), disk.at("soft")).unwrap();
    let hard = disk.at("hard").display().to_string();
    refused(disk.start(&[], &["--image", &hard]), "holds it already");
    let soft = disk.at("soft").display().to_string();
    refused(disk.start(&[], &["--image", &soft]), "is held by a belay that runs");
    let elsewhere = disk.at("elsewhere").display().to_string();
    refused(disk.start(&[], &["--journal", &elsewhere]), "is held by a belay that runs");
    let output = disk.repair(&["--discard"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"text");
    drop(mount);
    assert_eq!(disk.repaired(), "none");
}

/// A commit in the journal that has not reached the image.
pub fn cut_off(arguments: &[&str]) -> Disk {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    cut_off_in(disk.hold(arguments));
    disk
}

/// Leaves one.
fn cut_off_in(mut mount: Custom) {
    save(&mount.at("file"), b"text");
    // The journal is durable, and the image as it was: the mark that it is empty comes last of all.
    let trap = Trap::set_for_one(committer(&mount), CALLS, 6, When::Before);
    let path = mount.at("more");
    let caller = call(move || File::create(path)?.sync_all());
    assert!(until(|| trap.has_caught()));
    mount.kill_all(Some(trap));
    assert!(caller.result().is_err());
}

/// S45: a journal that may not be the image's stops the start and says what can be done.
#[test]
fn s45_refused_journals_stop_the_start() {
    let disk = cut_off(&[]);
    let journal = fs::read(disk.journal()).unwrap();
    // Another file in the image's place.
    fs::copy(disk.image(), disk.at("copy")).unwrap();
    fs::rename(disk.at("copy"), disk.image()).unwrap();
    let mut mount = disk.start(&[], &[]);
    assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
    for words in ["holds writes to another image", "--force", "--discard"] {
        assert!(mount.log().contains(words), "{words} is missing in {}", mount.log());
    }
    assert!(fs::read(disk.journal()).unwrap() == journal);
    let output = disk.repair(&[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = disk.repair(&["--dry-run", "--force"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("would be finished"), "{output:?}");
    assert!(fs::read(disk.journal()).unwrap() == journal);
    let output = disk.repair(&["--force"]);
    assert!(output.status.success(), "{output:?}");
    disk.check();
    assert!(disk.files().contains_key("more"));
    assert_eq!(disk.beside(), ["image"]);
}

/// S45: what is in the journal can be dropped.
#[test]
fn s45_a_commit_can_be_dropped() {
    let disk = cut_off(&[]);
    assert_eq!(disk.repair(&["--dry-run"]).status.code(), Some(3));
    let output = disk.repair(&["--discard"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("as asked for"), "{output:?}");
    assert_eq!(disk.beside(), ["image"]);
    assert_eq!(disk.repaired(), "none");
}

/// S44: a journal elsewhere is found again by the image alone, by `belay repair` and by the next start, also under
/// another policy.
#[test]
fn s44_a_journal_elsewhere_is_found_again() {
    for way in ["repair", "epoch", "reconcile"] {
        let elsewhere = tempfile::tempdir().unwrap();
        let journal = elsewhere.path().join("journal");
        let disk = cut_off(&["--journal", journal.to_str().unwrap()]);
        assert!(fs::metadata(&journal).unwrap().len() > 512);
        assert_eq!(fs::read_link(disk.journal()).unwrap(), journal.canonicalize().unwrap());
        match way {
            "repair" => assert_eq!(disk.repaired(), "applied"),
            "epoch" => {
                let mount = disk.hold(&[]);
                assert!(mount.log().contains("and is finished"), "{}", mount.log());
                assert!(mount.at("more").exists());
            }
            _ => {
                let mount = Custom::start(&["--policy", way], |place| {
                    let words = ["fuse2fs", "-f", "-o", "ro,fakeroot"].map(Into::into);
                    words
                        .into_iter()
                        .chain([disk.image().into(), place.mountpoint.into()])
                        .collect()
                });
                mount.wait_for("service", |status| status["state"] == "serving");
                assert!(mount.log().contains("and is finished"), "{}", mount.log());
                assert!(mount.at("more").exists());
            }
        }
        assert!(!journal.exists());
        assert_eq!(disk.beside(), ["image"]);
        disk.check();
        assert!(disk.files().contains_key("more"));
    }
}

/// S44, S45: a loop device is its file: who knows either finds the journal, under whatever name the device comes back, and
/// is refused while it is held.
#[test]
fn s44_loop_devices_are_known_by_their_file() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    fs::copy(disk.image(), disk.at("other")).unwrap();
    let Some(device) = Loop::attach(&disk.image()) else {
        eprintln!("skipped: no loop devices here");
        return;
    };
    let folder = disk.at("folder");
    let variables = [(FOLDER, folder.as_path())];
    let mount = Disk::serving(Disk::start_on(&device.0, &variables, &[]));
    for image in [&device.0, &disk.image()] {
        let refused = disk.repair_of(image, &[]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("held by"), "{refused:?}");
    }
    cut_off_in(mount);
    // Another file gets its place, perhaps its very name.
    drop(device);
    let other = Loop::attach(&disk.at("other")).unwrap();
    let device = Loop::attach(&disk.image()).unwrap();
    let output = disk.repair_of(&other.0, &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing to do"), "{output:?}");
    assert_eq!(disk.repair(&["--dry-run"]).status.code(), Some(3), "by the file");
    let output = disk.repair_of(&device.0, &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("is finished"), "{output:?}");
    drop((device, other));
    assert_eq!(disk.beside(), ["image", "other"]);
    disk.check();
    assert!(disk.files().contains_key("more"));
}

/// S45: a new file system in the place of the one whose commit was cut off is not written to.
#[test]
fn s45_a_new_file_behind_a_loop_device_is_another_image() {
    const OFFSET: u64 = 1 << 20;
    for offset in [0, OFFSET] {
        let disk = Disk::new(Kind::Fuse2fsExt4);
        let content = fs::read(disk.image()).unwrap();
        let make = || {
            let file = File::create_new(disk.at("disk")).unwrap();
            file.write_all_at(&content, offset).unwrap();
        };
        make();
        let Some(device) = Loop::attach_at(&disk.at("disk"), offset) else {
            eprintln!("skipped: no loop devices here");
            return;
        };
        let folder = disk.at("folder");
        let variables = [(FOLDER, folder.as_path())];
        cut_off_in(Disk::serving(Disk::start_on(&device.0, &variables, &[])));
        // The journal of what is a part of a file is where those of devices are.
        assert_eq!(folder.exists(), offset > 0);
        drop(device);
        fs::rename(disk.at("disk"), disk.at("old")).unwrap();
        make();
        let device = Loop::attach_at(&disk.at("disk"), offset).unwrap();
        let output = disk.repair_of(&device.0, &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("holds writes to another image"), "{told}");
        let mut mount = Disk::start_on(&device.0, &variables, &[]);
        assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
        drop(device);
        let there = fs::read(disk.at("disk")).unwrap();
        assert!(there[usize::try_from(offset).unwrap()..] == content, "offset {offset}");
    }
}

/// S45: what is no journal of belay's is left alone, and stops the start.
#[test]
fn s45_strange_files_in_the_journals_place_are_left_alone() {
    let disk = Disk::new(Kind::Fuse2fsExt4);
    File::create(disk.journal()).unwrap().write_all_at(b"somebody's notes", 0).unwrap();
    let mut mount = disk.start(&[], &[]);
    assert_eq!(mount.end().code(), Some(1), "{}", mount.log());
    assert!(mount.log().contains("is not a journal of belay"), "{}", mount.log());
    assert_eq!(disk.repair(&[]).status.code(), Some(1));
    assert_eq!(fs::read(disk.journal()).unwrap(), b"somebody's notes");
}
