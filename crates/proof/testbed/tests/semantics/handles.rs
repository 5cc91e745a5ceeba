//! S12, S13, S17, S18, S24, S25: open files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use belay_faults::{Plan, Point, Target, Tracer};
use belay_testbed::Kind;
use belay_wire::Opcode;

use crate::common::{caching, call, content, held, low_level, uncached};
use crate::custom::Custom;
use crate::journal::{compile, dies_at};
use crate::system::Map;

/// S12: a handle is opened again without what opening does only once.
#[test]
fn s12_reopening_neither_truncates_nor_creates() {
    for kind in [Kind::PassthroughLl, Kind::Bindfs, Kind::PassthroughHl, Kind::Sshfs] {
        let bed = held(kind, &[], &[]);
        fs::write(bed.at("old"), "to be truncated").unwrap();
        let open = |name: &str, flags: i32| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(flags);
            (options, bed.at(name))
        };
        let (options, path) = open("old", libc::O_TRUNC);
        let mut truncated = options.open(path).unwrap();
        let (mut options, path) = open("new", libc::O_EXCL);
        let mut created = options.create_new(true).open(path).unwrap();
        truncated.write_all(b"kept").unwrap();
        created.write_all(b"kept too").unwrap();
        for round in 0..3 {
            bed.crash_and_recover();
            assert_eq!(content(&truncated), "kept", "{kind}, round {round}");
            assert_eq!(content(&created), "kept too", "{kind}, round {round}");
            assert_eq!(fs::read_to_string(bed.behind("old")).unwrap(), "kept");
        }
        // The offset is the kernel's, and stays.
        truncated.write_all(b"!").unwrap();
        assert_eq!(content(&truncated), "kept!");
        drop((truncated, created));
        bed.stop();
    }
}

/// S12: read-only, write-only and read-write stay what they were; a file renamed meanwhile is found.
#[test]
fn s12_access_modes_stay() {
    let bed = uncached();
    fs::write(bed.at("file"), "abc").unwrap();
    let mut reader = File::open(bed.at("file")).unwrap();
    let mut writer = OpenOptions::new().write(true).open(bed.at("file")).unwrap();
    fs::rename(bed.at("file"), bed.at("other")).unwrap();
    bed.crash_and_recover();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "abc");
    assert!(reader.write(b"x").is_err());
    assert!(writer.read(&mut [0]).is_err());
    writer.write_all(b"AB").unwrap();
    assert_eq!(fs::read_to_string(bed.behind("other")).unwrap(), "ABc");
    assert!(!bed.behind("file").exists());
    writer.set_len(1).unwrap();
    reader.seek(SeekFrom::Start(0)).unwrap();
    text.clear();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "A");
    drop((reader, writer));
    bed.stop();
}

/// S13: a file that may no longer be opened is reopened, and its mode is as before. (These daemons run as root, whom no
/// mode stops; that a refused open is tried with a wider mode is tested in belay-session, in simulation.)
#[test]
fn s13_modes_that_forbid_opening() {
    let bed = caching();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o444)
        .open(bed.at("file"))
        .unwrap();
    file.write_all(b"one").unwrap();
    bed.crash_and_recover();
    file.write_all(b" two").unwrap();
    fs::set_permissions(bed.at("file"), Permissions::from_mode(0o000)).unwrap();
    bed.crash_and_recover();
    file.write_all(b" three").unwrap();
    assert_eq!(content(&file), "one two three");
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0);
    assert_eq!(fs::metadata(bed.behind("file")).unwrap().mode() & 0o7777, 0);
    drop(file);
    bed.stop();
}

/// S17: appended lines are there once each, in order, however often the daemon is killed meanwhile.
#[test]
fn s17_appends_happen_once_under_kills() {
    for options in [["cache=never", "timeout=0"], ["cache=always", "writeback"]] {
        let bed = low_level(&options);
        let path = bed.at("log");
        let writer = call({
            let path = path.clone();
            move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for line in 0..4000 {
                    let text = format!("line {line}\n");
                    assert_eq!(file.write(text.as_bytes()).unwrap(), text.len());
                }
            }
        });
        let mut kills = 0;
        while !writer.is_done() {
            bed.crash_and_recover();
            kills += 1;
        }
        writer.result();
        let expected: String = (0..4000).map(|line| format!("line {line}\n")).collect();
        assert!(fs::read_to_string(&path).unwrap() == expected, "after {kills} kills");
        assert!(kills > 0);
        bed.stop();
    }
}

/// A daemon whose create ignores what its caller asked for, and a file that was made for appending.
fn made_plainly() -> (Custom, File) {
    let mount = Custom::start(&["--max-crashes", "0"], |place| {
        let program = place.dir.join("plain");
        compile("plain.c", &program);
        vec![program.into(), place.behind.into(), place.mountpoint.into(), "-f".into()]
    });
    mount.serves();
    let open = || OpenOptions::new().read(true).append(true).create(true).open(mount.at("log"));
    let file = open().unwrap();
    (mount, file)
}

/// S17: what is written through a map goes where it belongs, though the handle that the kernel takes was made for appending: to
/// create ignores that in this daemon, and to open does not.
#[test]
fn s17_a_handle_is_made_again_as_it_was_made() {
    let (mount, mut file) = made_plainly();
    file.write_all(&[1; 8192]).unwrap();
    mount.crash_and_recover();
    let map = Map::new(&file, 4096).unwrap();
    map.set(7, 2);
    map.sync().unwrap();
    drop((map, file));
    let mut expected = vec![1; 8192];
    expected[7] = 2;
    assert!(fs::read(mount.behind.join("log")).unwrap() == expected, "{}", mount.log());
    mount.stop();
}

/// S41: what such a handle's dead life has written is known again by a successor.
#[test]
fn s41_a_write_by_a_handle_that_is_made_again() {
    for point in [Point::BeforeEffect(1), Point::AfterEffect(1), Point::BeforeReply] {
        let (mount, mut file) = made_plainly();
        file.write_all(b"one").unwrap();
        let target = Target::any(&[Opcode::WRITE]);
        let tracer = Tracer::attach(mount.pid("daemon"), Plan { target, fault: dies_at(point) });
        let tracer = tracer.unwrap();
        let writer = call(move || file.write(b" two").map(|done| (done, file)));
        let (done, mut file) = writer.result().unwrap();
        assert!(tracer.finish().unwrap().crashed, "{point:?}");
        assert_eq!(done, 4, "{point:?}: {}", mount.log());
        file.write_all(b" three").unwrap();
        drop(file);
        let text = fs::read_to_string(mount.behind.join("log")).unwrap();
        assert_eq!(text, "one two three", "{point:?}: {}", mount.log());
        mount.stop();
    }
}

/// S17: two files open for appending write behind each other.
#[test]
fn s17_appending_finds_the_end_again() {
    let bed = uncached();
    let open = || OpenOptions::new().append(true).create(true).open(bed.at("log")).unwrap();
    let (mut one, mut two) = (open(), open());
    for round in 0..4 {
        write!(one, "{round}a").unwrap();
        bed.crash();
        write!(two, "{round}b").unwrap();
    }
    assert_eq!(fs::read_to_string(bed.behind("log")).unwrap(), "0a0b1a1b2a2b3a3b");
    drop((one, two));
    bed.stop();
}

/// S18: direct I/O.
#[test]
fn s18_direct_io() {
    let bed = low_level(&["cache=auto"]);
    let open = |create| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).custom_flags(libc::O_DIRECT);
        options.open(bed.at("file")).unwrap()
    };
    let file = open(true);
    // tmpfs behind and FUSE in front do not ask for more than this alignment.
    let block = |byte: u8| vec![byte; 64 << 10];
    for round in 0..6u8 {
        let at = u64::from(round) * (64 << 10);
        assert_eq!(file.write_at(&block(round), at).unwrap(), 64 << 10);
        bed.crash();
        let mut back = block(255);
        assert_eq!(file.read_at(&mut back, at).unwrap(), 64 << 10);
        assert!(back == block(round));
    }
    assert_eq!(fs::metadata(bed.behind("file")).unwrap().len(), 6 * (64 << 10));
    drop(file);
    bed.stop();
}

/// S1: large reads and writes are never short because of a crash.
#[test]
fn s01_large_transfers_are_whole_under_kills() {
    for options in [["cache=never", "timeout=0"], ["cache=auto", "timeout=1"]] {
        let bed = low_level(&options);
        let path = bed.at("big");
        let worker = call(move || {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)
                .unwrap();
            let size = 8 << 20;
            for round in 0..12u8 {
                let data: Vec<u8> =
                    (0..size).map(|at: usize| (at / 4096) as u8 ^ round ^ at as u8).collect();
                assert_eq!(file.write_at(&data, 0).unwrap(), size);
                let mut back = vec![0; size];
                assert_eq!(file.read_at(&mut back, 0).unwrap(), size);
                assert!(back == data, "round {round}");
            }
        });
        let mut kills = 0;
        while !worker.is_done() {
            bed.crash_and_recover();
            kills += 1;
        }
        worker.result();
        assert!(kills > 0);
        bed.stop();
    }
}

/// S2: what was acknowledged is there, in the backing directory too.
#[test]
fn s02_acknowledged_changes_stay() {
    let bed = caching();
    for round in 0..20 {
        fs::create_dir(bed.at(&format!("d{round}"))).unwrap();
        fs::write(bed.at(&format!("d{round}/f")), format!("{round}")).unwrap();
        std::os::unix::fs::symlink("f", bed.at(&format!("d{round}/l"))).unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(round);
        File::open(bed.at(&format!("d{round}/f"))).unwrap().set_modified(time).unwrap();
        bed.crash();
    }
    for round in 0..20 {
        for root in [bed.at(""), bed.behind("")] {
            let dir = root.join(format!("d{round}"));
            assert_eq!(fs::read_to_string(dir.join("l")).unwrap(), format!("{round}"));
            assert_eq!(fs::metadata(dir.join("f")).unwrap().mtime(), i64::from(round));
        }
    }
    bed.stop();
}
