//! `belay volume check` on damaged volumes: what is damaged is named by its path, the rest is
//! unharmed, and whatever is on a disk nothing hangs or dies of it.

mod volumes;

use belay_object::ObjectId;
use belay_posix::{IDS, ORPHANS, ROOT};
use belay_store::roles::Role;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::fs;
use volumes::{Home, Open, Said, block_of, block_of_object};

const BLOCK: u64 = 4096;

/// A check with a byte of a block changed.
fn with(home: &Home, block: u64, at: u64) -> Said {
    let place = block * BLOCK + at;
    let was = home.change("v.img", place, |byte| byte ^ 0x20);
    let said = home.volume("check v");
    home.change("v.img", place, |_| was);
    said
}

#[test]
fn what_is_damaged_is_named_by_its_path() {
    for options in ["", " --data in-place", " --twin-offset 0"] {
        let home = Home::filled(options);
        home.volume("check v").expect(0, &["v is clean"]);
        let file = block_of(&home, &["dir", "file"], 7);
        with(&home, file, 99).expect(
            1,
            &[
                "damaged: /dir/file: block 7 of it (block",
                "does not match its checksum",
                "1 finding in 1 file or directory; the other 128 files and directories",
            ],
        );
        let page = block_of(&home, &["many"], 1);
        with(&home, page, 99)
            .expect(1, &["damaged: /many: page 1 cannot be read", "has lost its name"]);
        let link = block_of(&home, &["dir", "sub", "link"], 0);
        with(&home, link, 0).expect(1, &["damaged: /dir/sub/link: "]);
    }
}

#[test]
fn what_the_volume_keeps_for_itself_is_named() {
    let home = Home::filled("");
    let (ids, names) = {
        let mut open = Open::at(&home.at("v.img"));
        let one = |open: &mut Open, object| block_of_object(open, object, 0);
        (one(&mut open, IDS), one(&mut open, ROOT))
    };
    with(&home, ids, 9).expect(1, &["the list of the objects' numbers: ", "other 129 files"]);
    with(&home, names, 9).expect(1, &["damaged: /: page 0 cannot be read", "names are lost"]);
    let found = home.volume("dump v --root --json").expect(0, &[]).json();
    let root = found["block"].as_u64().expect("a block");
    for at in [0, 9, 64, 1024, 3000, 4095] {
        with(&home, root, at).expect(1, &["a root in block", "the other copy is whole"]);
    }
    with(&home, 64, 5);
    with(&home, 66, 5);
    with(&home, 82, 5);
    assert_eq!(ORPHANS, ObjectId(3));
    home.volume("check v").expect(0, &["v is clean"]);
}

#[test]
fn what_was_synced_and_is_damaged_is_told() {
    let home = Home::filled("");
    {
        let mut open = Open::at(&home.at("v.img"));
        for name in ["one", "two", "three"] {
            let object = open.file(ROOT, name, 2);
            open.sync(object);
        }
    }
    home.volume("check v").expect(0, &["v is clean", "replayed"]);
    let mut begins = Vec::new();
    let root = home.volume("dump v --root --json").expect(0, &[]).json();
    let area = |field: &str| root["root"]["intent_log"][field].as_u64().expect("a number");
    let (first, half) = (area("first"), area("blocks") / 2);
    for block in (first..first + 16).chain(first + half..first + half + 16) {
        let shown = home.volume(&format!("dump v --block {block} --json")).expect(0, &[]).json();
        if shown["transactions"].as_array().is_some() {
            begins.push(block);
        }
    }
    let newest = begins.last().expect("appends");
    for block in begins.iter().filter(|block| **block + 12 > *newest && *block != newest) {
        with(&home, *block, 200).expect(1, &["the intent log is damaged in block", "1 finding"]);
    }
    home.volume("cut-log v").expect(0, &["the intent log of v is whole: nothing was cut off"]);
    let second = begins[begins.len() - 2];
    for at in [0, 9, 16, 18, 20, 24, 200] {
        with(&home, second, at).expect(1, &[&format!("is damaged in block {second}")]);
    }
    home.change("v.img", second * BLOCK + 200, |byte| byte ^ 0x20);
    let ends = format!("v.img ends before block {second} now: it is not what was written");
    home.volume("cut-log v").expect(0, &[&ends]);
    home.volume("check v").expect(0, &["v is clean", "replayed"]);
    home.volume("cut-log v").expect(0, &["is whole"]);
}

#[test]
fn a_checkpoint_of_which_nothing_is_left_is_told() {
    let home = Home::filled("");
    let newest = || -> Vec<u64> {
        let found = home.volume("dump v --json").expect(0, &[]).json();
        let places = found["stores"][0]["checkpoints"][0]["root_blocks"].as_array().cloned();
        places.expect("places").iter().map(|at| at.as_u64().expect("a block")).collect()
    };
    let damage = |places: &[u64]| {
        for place in places {
            home.change("v.img", place * BLOCK + 99, |byte| byte ^ 0x20);
        }
    };
    let places = newest();
    damage(&places);
    home.volume("check v").expect(0, &["have no whole one", "v is clean"]);
    damage(&places);
    home.volume("check v").expect(0, &["v is clean"]);
    {
        let mut open = Open::at(&home.at("v.img"));
        let object = open.file(ROOT, "one", 2);
        open.sync(object);
    }
    damage(&newest());
    let why = "something was synced after it: the checkpoint before has less";
    home.volume("check v").expect(2, &[why]);
    home.volume("cut-log v").expect(0, &["is given up"]);
    home.volume("check v").expect(0, &["have no whole one", "v is clean"]);
}

/// Where the blocks are that a checkpoint needs, and other ones that were written to.
fn blocks(home: &Home) -> (Vec<u64>, Vec<u64>) {
    let image = fs::read(home.at("v.img")).expect("read");
    let mut open = Open::at(&home.at("v.img"));
    let store = open.logical().stores().next().expect("a store");
    let (mut needed, mut others) = (Vec::new(), Vec::new());
    for (number, content) in (0_u64..).zip(image.chunks(BLOCK as usize)) {
        let found = store.role_of(number).expect("a role");
        let is_needed = match found.role {
            Role::Root { .. } | Role::Reserved | Role::Free | Role::Lost => false,
            Role::Intents { .. } | Role::Resynchronization(_) => false,
            _ => {
                found.pointer.is_some_and(|pointer| !pointer.is_null()) && found.is_current(number)
            }
        };
        match is_needed {
            true => needed.push(number),
            false if content.iter().any(|byte| *byte != 0) => others.push(number),
            false => {}
        }
    }
    (needed, others)
}

#[test]
fn a_byte_that_is_wrong_anywhere_is_found() {
    let home = Home::filled("");
    let (needed, others) = blocks(&home);
    assert!(needed.len() > 300 && !others.is_empty(), "{} {}", needed.len(), others.len());
    let mut random = ChaCha8Rng::seed_from_u64(19);
    // One of each block of metadata at least.
    let mut rest: BTreeSet<u64> = needed.iter().copied().take(60).collect();
    while rest.len() < 120 {
        rest.insert(needed[random.random_range(0..needed.len())]);
    }
    for block in rest {
        let at = random.random_range(0..BLOCK);
        let said = with(&home, block, at);
        said.expect(1, &["damaged: ", "v is damaged: "]);
        assert!(said.out.contains("unharmed"), "block {block}, byte {at}: {}", said.out);
    }
    for block in others {
        let at = random.random_range(0..BLOCK);
        let said = with(&home, block, at);
        assert!([Some(0), Some(1)].contains(&said.code), "{block} {at}: {}{}", said.out, said.err);
    }
    home.volume("check v").expect(0, &["v is clean"]);
}

/// Whole blocks of noise, and blocks in the place of others, with several at once.
#[test]
fn whatever_is_on_the_disk_a_check_comes_to_its_end() {
    let home = Home::filled("");
    let whole = fs::read(home.at("v.img")).expect("read");
    let (needed, others) = blocks(&home);
    let all: Vec<u64> = needed.into_iter().chain(others).collect();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for round in 0..40 {
        let mut image = whole.clone();
        for _ in 0..random.random_range(1..20) {
            let to = all[random.random_range(0..all.len())] as usize * BLOCK as usize;
            let from = all[random.random_range(0..all.len())] as usize * BLOCK as usize;
            match random.random_range(0..3) {
                0 => random.fill(&mut image[to..to + BLOCK as usize]),
                1 => image.copy_within(from..from + BLOCK as usize, to),
                _ => image[to..to + BLOCK as usize].fill(0),
            }
        }
        fs::write(home.at("v.img"), image).expect("write");
        for command in
            ["check v", "check v --json", "dump v", "dump v --block 66", "dump v --object 17"]
        {
            let said = home.volume(command);
            let is_fine = matches!(said.code, Some(0..=2)) && !said.err.contains("panicked");
            assert!(is_fine, "round {round}, {command}: {:?} {}", said.code, said.err);
        }
    }
}
