//! `belay volume`: volumes are made, listed, checked and looked into, and what is wrong is refused
//! with the cause and the next step.

mod volumes;

use belay_disk::FileDisk;
use belay_posix::ROOT;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use volumes::{Home, MANY, Open, block_of};

#[test]
fn a_volume_is_made_listed_checked_and_forgotten() {
    let home = Home::new();
    home.volume("list").expect(0, &["there is no volume", "belay volume create"]);
    home.volume("create v --store @v.img:1G").expect(0, &["created volume v", "1 GiB", "next:"]);
    let image = home.at("v.img").metadata().expect("an image");
    assert_eq!((image.len(), image.mode() & 0o7777), (1 << 30, 0o600));
    assert!(image.blocks() * 512 < 1 << 20, "it takes room as it is used");
    assert_eq!(home.at("volumes").metadata().expect("a folder").mode() & 0o7777, 0o700);
    home.volume("list").expect(0, &["v.toml", "v.img, 1 GiB"]);
    let listed = home.volume("list --json").expect(0, &[]).json();
    assert_eq!(
        (&listed["schema_version"], &listed["volumes"][0]["name"]),
        (&1.into(), &"v".into())
    );
    assert_eq!(listed["volumes"][0]["stores"][0]["bytes"], 1 << 30);
    home.volume("check v").expect(0, &["v is clean: 0 files, 1 directory"]);
    home.volume("forget v").expect(0, &["the name v is removed", "still on", "v.img"]);
    assert!(home.at("v.img").exists());
    home.volume("check v").expect(2, &["there is no volume v", "belay volume list"]);
    home.volume("forget v").expect(1, &["there is no volume v"]);
}

#[test]
fn a_volume_without_a_name_is_imported_from_all_of_its_stores() {
    let home = Home::new();
    home.volume("create v --store @a.img:16M --store @b.img:16M").expect(0, &["created volume v"]);
    let known = home.volume("list --json").expect(0, &[]).json();
    home.volume("import w --store @a.img --store @b.img").expect(1, &["a name already: v"]);
    home.volume("forget v").expect(0, &[]);
    home.volume("create x --store @a.img").expect(1, &["belay volume import", "--force"]);
    home.volume("import v --store @a.img").expect(1, &["is missing: name all of its 2 stores"]);
    home.volume("import v --store @a.img --store @a.img").expect(1, &["are the same store"]);
    home.volume("create other --store @c.img:16M").expect(0, &[]);
    home.volume("import v --store @a.img --store @c.img").expect(1, &["one volume at a time"]);
    fs::write(home.at("empty.img"), vec![0; 16 << 20]).expect("write");
    home.volume("import v --store @empty.img").expect(1, &["empty.img: "]);
    home.volume("import v --store @none.img").expect(1, &["none.img"]);
    home.volume("import other --store @a.img").expect(1, &["there is a volume other already"]);
    home.volume("forget other").expect(0, &[]);
    let whole = fs::read(home.at("a.img")).expect("read");
    home.volume("import v --store @b.img --store @a.img").expect(0, &["imported volume v"]);
    assert_eq!(home.volume("list --json").expect(0, &[]).json(), known);
    assert!(fs::read(home.at("a.img")).expect("read") == whole, "nothing on a store is changed");
    home.volume("check v").expect(0, &["clean"]);
}

#[test]
fn images_take_their_room_at_once_or_a_lack_of_it_is_said() {
    let home = Home::new();
    home.volume("create v --store @v.img:32M --preallocate").expect(0, &["preallocated"]);
    let image = home.at("v.img").metadata().expect("an image");
    assert!(image.len() == 32 << 20 && image.blocks() * 512 >= 32 << 20, "{}", image.blocks());
    home.volume("check v").expect(0, &["clean"]);
    // No machine has so much.
    let much = home.volume("create w --store @w.img:6T");
    much.expect(0, &["only ", " is free in ", " may grow by ", "--preallocate"]);
    let refused = home.volume("create x --store @x.img:6T --preallocate");
    refused.expect(1, &["cannot preallocate", "x.img"]);
    assert!(!home.at("x.img").exists());
}

#[test]
fn several_stores_are_one_volume_and_each_is_needed() {
    let home = Home::new();
    home.volume("create v --store @a.img:16M --store @b.img:16M --data in-place --twin-offset 4")
        .expect(0, &["store 1: ", "data are written in place: a block"]);
    home.volume("check v").expect(0, &["clean"]);
    home.volume("dump v 1 --block 1")
        .expect(0, &["the root of even checkpoints", "data in place: yes"]);
    home.volume("dump v 2 --root").expect(1, &["has no store 2", "from 0 to 1"]);
    fs::rename(home.at("b.img"), home.at("c.img")).expect("rename");
    home.volume("check v").expect(2, &["b.img of the volume v is missing", "v.toml"]);
    home.volume("list").expect(0, &["b.img, missing"]);
    let found = home.volume("check v --json").expect(2, &[]).json();
    assert_eq!((&found["state"], &found["findings"]), (&"unchecked".into(), &().into()));
    assert!(found["error"].as_str().is_some_and(|why| why.contains("missing")));
    fs::copy(home.at("a.img"), home.at("b.img")).expect("copy");
    home.volume("check v").expect(2, &["two of its stores are one, and a copy of it"]);
}

#[test]
fn what_cannot_be_a_store_is_refused_and_nothing_is_left_behind() {
    let home = Home::new();
    let refused = |words: &str, parts: &[&str]| {
        let before = home.at("").read_dir().expect("list").count();
        home.volume(words).expect(1, parts);
        assert_eq!(home.at("").read_dir().expect("list").count(), before, "{words}");
    };
    refused("create v --store @v.img:15M", &["too small", "at least 16 MiB"]);
    refused("create v --store @v.img", &["there is nothing at", "how large", ":8G"]);
    refused("create v --store @none/v.img:16M", &["is not there; make the folder"]);
    refused("create v --store @v.img:16M --store @v.img", &["named twice"]);
    refused("create v --store @v.img:16M --store @w.img:1M", &["w.img is too small"]);
    refused("create v --store @v.img:16M --store /dev/null", &["/dev/null"]);
    home.volume("create V --store @v.img:16M").expect(2, &["a-z"]);
    home.volume("create v --store @v.img:lots").expect(2, &["lots is not a size"]);
    home.volume("create v").expect(2, &["--store"]);
    home.volume("create v --store @v.img:16M --twin-offset 5").expect(2, &["--twin-offset"]);

    let file = |name: &str, at: usize, bytes: &[u8]| {
        let mut all = vec![0; 16 << 20];
        all[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(home.at(name), all).expect("write");
    };
    for (at, magic, what) in [
        (0x438, &b"\x53\xef"[..], "a file system (ext)"),
        (0, b"XFSB", "a file system (XFS)"),
        (0x10040, b"_BHRfS_M", "a file system (btrfs)"),
        (3, b"NTFS    ", "a file system (NTFS)"),
        (0, b"LUKS\xba\xbe", "a LUKS container"),
        (0x218, b"LVM2 001", "something"),
        (0x200, b"LABELONE", "an LVM physical volume"),
        (510, b"\x55\xaa", "a partition table"),
        (4086, b"SWAPSPACE2", "swap space"),
        (0, b"my only copy", "something"),
        ((16 << 20) - 1, b"x", "something"),
        // Far from both ends.
        (128 << 10, b"x", "something"),
        (1 << 20, b"x", "something"),
        ((9 << 20) + 4095, b"x", "something"),
    ] {
        file("used.img", at, magic);
        refused("create v --store @used.img", &[what, "--force"]);
        assert!(fs::read(home.at("used.img")).expect("read")[at..].starts_with(magic));
    }
    refused("create v --store @used.img:16M", &["is there already: leave out the size"]);
    // One of two cannot be used: the other one is as it was.
    file("empty.img", 0, b"");
    refused("create v --store @empty.img --store @used.img", &["used.img holds something"]);
    assert!(fs::read(home.at("empty.img")).expect("read").iter().all(|byte| *byte == 0));
    home.volume("create v --store @empty.img --store @used.img --force")
        .expect(0, &["created volume v"]);
    refused("create w --store @empty.img", &["holds a store of a belay volume"]);
    refused(
        "create v --store @w.img:16M",
        &["there is a volume v already", "belay volume forget v"],
    );
}

#[test]
fn nothing_is_left_behind_where_no_name_can_be_written() {
    let home = Home::new();
    fs::write(home.at("volumes"), "a file in the place of the folder").expect("write");
    fs::write(home.at("empty.img"), vec![0; 16 << 20]).expect("write");
    home.volume("create v --store @v.img:16M --store @empty.img").expect(1, &["volumes"]);
    assert!(!home.at("v.img").exists());
    let left = fs::read(home.at("empty.img")).expect("read");
    for place in [1, 2, 4094, 4095] {
        assert!(left[place * 4096..][..4096].iter().all(|byte| *byte == 0), "{place}");
    }
}

#[test]
fn a_file_system_that_its_own_tool_has_made_is_not_overwritten() {
    let home = Home::new();
    let image = home.at("ext4.img");
    fs::File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("image");
    match Command::new("mkfs.ext4").arg("-q").arg(&image).status() {
        Ok(status) if status.success() => {}
        _ => return eprintln!("skipped: needs mkfs.ext4"),
    }
    home.volume("create v --store @ext4.img").expect(1, &["a file system (ext)"]);
}

#[test]
fn names_in_a_folder_of_others_are_refused() {
    let home = Home::new();
    home.volume("create v --store @v.img:16M").expect(0, &[]);
    let folder = home.at("volumes");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("chmod");
    for command in ["check v", "list", "dump v", "create w --store @w.img:16M"] {
        let said = home.volume(command);
        assert!(said.code != Some(0) && said.err.contains("is not trusted"), "{}", said.err);
    }
    assert!(!home.at("w.img").exists());
}

#[test]
fn what_is_no_store_of_it_is_not_checked() {
    let home = Home::filled("");
    let image = home.at("v.img");
    let whole = fs::read(&image).expect("read");
    let check = |content: &[u8], parts: &[&str]| {
        fs::write(&image, content).expect("write");
        home.volume("check v").expect(2, parts);
        home.volume("check v --json").expect(2, &["\"unchecked\""]);
        // Whatever it is, its blocks can be looked at.
        if content.len() >= 2 * 4096 {
            home.volume("dump v --block 1").expect(0, &["block 1"]);
        }
        home.volume("dump v").expect(0, &["blocks"]);
    };
    check(&[], &["there is no store of a belay volume"]);
    check(&whole[..1 << 20], &["it is cut off: 32505856 bytes of it are missing"]);
    check(&vec![0; 32 << 20], &["there is no store of a belay volume"]);
    let noise: Vec<u8> =
        (0..32_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    check(&noise, &["there is no store of a belay volume"]);
    let mut later = whole.clone();
    for place in [1, 2, 8190, 8191] {
        let root = &mut later[place * 4096..][..4096];
        root[8] = 3;
        let sum = xxh3(&root[..4088]);
        root[4088..].copy_from_slice(&sum.to_le_bytes());
    }
    check(&later, &["it has version 3; this belay supports only version 2"]);
    let mut rootless = whole.clone();
    for place in [1, 2, 8190, 8191] {
        rootless[place * 4096 + 100] ^= 1;
    }
    check(&rootless, &["each root of the store is damaged"]);
    home.volume("create w --store @w.img:32M").expect(0, &[]);
    check(
        &fs::read(home.at("w.img")).expect("read"),
        &["a store of another volume", "and not of v"],
    );
    fs::write(&image, &whole).expect("write");
    home.volume("check v").expect(0, &["clean"]);
}

fn xxh3(bytes: &[u8]) -> u64 {
    let block: [u8; 4096] = std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0));
    belay_store::layout::root_checksum(&block).0
}

#[test]
fn one_that_is_in_use_is_not_checked() {
    let home = Home::filled("");
    let disk = FileDisk::open(&home.at("v.img")).expect("disk");
    for command in ["check v", "dump v --root", "create w --store @v.img"] {
        let said = home.volume(command);
        assert!(said.code != Some(0) && said.err.contains("in use"), "{}", said.err);
    }
    home.volume("check v").expect(2, &["unmount the volume v first"]);
    // A list asks nobody.
    home.volume("list").expect(0, &["v.img, 32 MiB"]);
    drop(disk);
    home.volume("check v").expect(0, &["v is clean: 125 files, 4 directories"]);
    assert_eq!(MANY, 120);
}

#[test]
fn what_an_end_without_unmounting_leaves_is_no_damage() {
    let home = Home::filled("");
    let before = {
        let mut open = Open::at(&home.at("v.img"));
        open.make(ROOT, "gone", 0o100_644);
        open.act(|names| names.unlink(ROOT, b"gone"));
        open.checkpoint();
        let new = open.file(ROOT, "new", 2);
        open.sync(new);
        open.file(ROOT, "lost", 2);
        fs::read(home.at("v.img")).expect("read")
    };
    home.volume("check v").expect(
        0,
        &[
            "v is clean",
            "v was not unmounted",
            "are replayed at the next mount",
            "1 file that was removed while in use",
        ],
    );
    let found = home.volume("check v --json").expect(0, &[]).json();
    assert_eq!((&found["state"], &found["orphans"]), (&"clean".into(), &1.into()));
    assert!(found["waiting_bytes"].as_u64().is_some_and(|bytes| bytes > 8192), "{found}");
    assert_eq!(before, fs::read(home.at("v.img")).expect("read"), "nothing is changed");
    let mut log = String::new();
    let root = home.volume("dump v --root --json").expect(0, &[]).json();
    let area = |field: &str| root["root"]["intent_log"][field].as_u64().expect("a number");
    let (first, half) = (area("first"), area("blocks") / 2);
    for block in (first..first + 8).chain(first + half..first + half + 8) {
        log +=
            &home.volume(&format!("dump v --block {block}")).expect(0, &["of the intent log"]).out;
    }
    assert!(log.contains("write 4096 bytes from page 0 of object"), "{log}");
    Open::at(&home.at("v.img"));
    home.volume("check v").expect(0, &["v is clean: 126 files"]);
}

#[test]
fn every_kind_of_block_is_shown_as_what_it_is() {
    let home = Home::filled("");
    let shown = |words: &str, parts: &[&str]| {
        home.volume(&format!("dump v {words}")).expect(0, parts);
        home.volume(&format!("dump v {words} --json")).expect(0, &["\"schema_version\": 1"]).json()
    };
    shown("", &["whole copies 2"]);
    shown("0", &["whole copies 2"]);
    home.volume("dump v 1").expect(1, &["the volume v has no store 1"]);
    shown("--root", &["the root of", "mapping file: 0.0", "matches checksum: yes"]);
    shown("--block 64", &["index block 0"]);
    shown("--block 65", &["the block of group 0"]);
    shown("--block 66", &["bitmap block 0 of group 0", "from 0, to"]);
    shown("--block 3", &["never used", "all zeros"]);
    shown("--block 8000", &["free"]);
    let file = block_of(&home, &["dir", "file"], 260);
    let data = shown(&format!("--block {file}"), &["block 260 of file", "matches checksum: yes"]);
    assert_eq!((&data["current"], &data["twin"]), (&().into(), &().into()), "{data}");
    let page = block_of(&home, &["many"], 1);
    let page = shown(&format!("--block {page}"), &["of: a directory", "name 0000", "current: yes"]);
    assert!(page["page"]["names"].as_array().is_some_and(|names| names.len() > 10), "{page}");
    let root = block_of(&home, &["many"], 0);
    shown(&format!("--block {root}"), &["from key", "page 1"]);
    let object = shown("--object 1", &["names 3", "mode 40755"]);
    assert_eq!(object["inode"]["object"], 1, "{object}");
    let inode = shown("--file 0", &["protected: yes"]);
    let mapping = inode["blocks_listed"][0]["pointer"]["block"].as_u64().expect("a block");
    shown(&format!("--block {mapping}"), &["mapping", "object 1, store 0"]);
    let tree = shown("--root", &[])["root"]["inode_tree"]["block"].as_u64().expect("a block");
    shown(&format!("--block {tree}"), &["inodes"]);
    home.volume("dump v --object 99999").expect(1, &["there is no object 99999"]);
    home.volume("dump v --file 99999").expect(1, &["there is no inode 99999"]);
    home.volume("dump v --block 8192").expect(1, &["has 8192 blocks", "there is no block 8192"]);
    home.volume("dump v --block 1 --root").expect(2, &["cannot be used with"]);
}
