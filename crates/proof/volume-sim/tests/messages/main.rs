//! The namespace module as the kernel sees it: messages, and what is answered.

mod kernel;

use belay_cache::Capacity;
use belay_posix::dispatch::Outcome;
use belay_posix::{Error, Time};
use belay_wire::abi::{
    FallocateIn, InitIn, InitOut, Kstatfs, MknodIn, ROOT_ID, SetattrIn, SetattrValid, WriteIn,
};
use belay_wire::build;
use belay_wire::{Attr, AttrOut, Opcode};
use kernel::{Answer, Kernel, attr_of, disk, node_of};
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const ROOM: Capacity = Capacity { frames: 2000, slots: 400 };

#[test]
fn what_has_no_name_is_there_until_it_is_forgotten() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let directory = kernel.mkdir(ROOT_ID, "d");
    kernel.rmdir(ROOT_ID, "d").unwrap();
    assert_eq!(kernel.lookup(ROOT_ID, "d"), Err(Errno::NOENT));
    // A working directory that was removed.
    kernel.getattr(directory).unwrap();
    let other = kernel.mkdir(ROOT_ID, "d");
    assert_ne!(other, directory);
    let message = build::release(kernel.ids(directory), 0, 0, true);
    kernel.ask(&message).unwrap();
    kernel.getattr(directory).unwrap();
    kernel.forget(&[directory]);
    assert_eq!(kernel.getattr(directory), Err(Errno::STALE));
    // What has a name stays, as does what there is not.
    kernel.forget(&[other]);
    kernel.forget(&[directory, other, ROOT_ID, 3, u64::MAX, 0]);
    assert_eq!(node_of(&kernel.lookup(ROOT_ID, "d").unwrap()), other);
}

#[test]
fn many_are_forgotten_at_once_in_a_small_cache() {
    let disk = disk();
    // No more than one of the transactions fits.
    let mut kernel = Kernel::mount(&disk, Capacity { frames: 60, slots: 8 });
    let mut all = Vec::new();
    for number in 0..600 {
        all.push(kernel.mkdir(ROOT_ID, &format!("{number}")));
        kernel.rmdir(ROOT_ID, &format!("{number}")).unwrap();
    }
    for _ in 0..7 {
        let kept = kernel.mkdir(ROOT_ID, "kept");
        kernel.rmdir(ROOT_ID, "kept").unwrap();
        all.push(kept);
    }
    let before = kernel.again;
    kernel.forget(&all);
    assert!(kernel.again > before, "it was never full");
    for node in all {
        assert_eq!(kernel.getattr(node), Err(Errno::STALE));
    }
}

#[test]
fn what_is_not_forgotten_is_removed_at_the_next_mount() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let nodes: Vec<u64> = (0..40)
        .map(|number| {
            let node = kernel.mkdir(ROOT_ID, &format!("{number}"));
            kernel.rmdir(ROOT_ID, &format!("{number}")).unwrap();
            node
        })
        .collect();
    kernel.checkpoint();
    let mut kernel = Kernel::mount(&disk, ROOM);
    kernel.getattr(nodes[7]).unwrap();
    kernel.module.remove_orphans().unwrap();
    for node in nodes {
        assert_eq!(kernel.getattr(node), Err(Errno::STALE));
    }
}

#[test]
fn extended_attributes_come_as_asked_for() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let node = kernel.mkdir(ROOT_ID, "d");
    let length = |bytes: u32| [bytes.to_ne_bytes(), [0; 4]].concat();
    assert_eq!(kernel.list_extended(node, 0), Ok(length(0)));
    assert_eq!(kernel.list_extended(node, 100), Ok(Vec::new()));
    assert_eq!(kernel.get_extended(node, "user.a", 0), Err(Errno::NODATA));
    // Create, and replace.
    assert_eq!(kernel.set_extended(node, "user.a", b"abc", 2), Err(Errno::NODATA));
    kernel.set_extended(node, "user.a", b"abc", 1).unwrap();
    assert_eq!(kernel.set_extended(node, "user.a", b"abc", 1), Err(Errno::EXIST));
    assert_eq!(kernel.set_extended(node, "user.a", b"abc", 4), Err(Errno::INVAL));
    kernel.set_extended(node, "user.a", b"four", 2).unwrap();
    // So long, too little room, and enough of it.
    assert_eq!(kernel.get_extended(node, "user.a", 0), Ok(length(4)));
    assert_eq!(kernel.get_extended(node, "user.a", 3), Err(Errno::RANGE));
    assert_eq!(kernel.get_extended(node, "user.a", 4).unwrap(), b"four");
    kernel.set_extended(node, "trusted.b", b"", 0).unwrap();
    assert_eq!(kernel.list_extended(node, 0), Ok(length(17)));
    assert_eq!(kernel.list_extended(node, 16), Err(Errno::RANGE));
    assert_eq!(kernel.list_extended(node, 17).unwrap(), b"user.a\0trusted.b\0");
    kernel.uid = 1000;
    assert_eq!(kernel.list_extended(node, 17).unwrap(), b"user.a\0");
    kernel.uid = 0;
    // Names, and how much there can be.
    assert_eq!(kernel.set_extended(node, "system.a", b"", 0), Err(Errno::OPNOTSUPP));
    assert_eq!(kernel.set_extended(node, "user.a", &[0; 65_537], 0), Err(Errno::TOOBIG));
    for number in 0..15 {
        kernel.set_extended(node, &format!("user.{number}"), &[1; 65_536], 0).unwrap();
    }
    assert_eq!(kernel.set_extended(node, "user.15", &[1; 65_536], 0), Err(Errno::NOSPC));
    kernel.checkpoint();
    assert_eq!(kernel.get_extended(node, "user.14", 65_536).unwrap(), [1; 65_536]);
    for number in 0..15 {
        kernel.remove_extended(node, &format!("user.{number}")).unwrap();
    }
    assert_eq!(kernel.remove_extended(node, "user.0"), Err(Errno::NODATA));
    kernel.remove_extended(node, "user.a").unwrap();
    assert_eq!(kernel.list_extended(node, 100).unwrap(), b"trusted.b\0");
    // They go with their file.
    kernel.rmdir(ROOT_ID, "d").unwrap();
    assert_eq!(kernel.get_extended(node, "trusted.b", 100), Ok(Vec::new()));
    kernel.forget(&[node]);
    assert_eq!(kernel.get_extended(node, "trusted.b", 100), Err(Errno::STALE));
}

#[test]
fn a_volume_tells_how_full_it_is() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let statfs = |kernel: &mut Kernel<'_>| {
        let message = build::request(kernel.ids(ROOT_ID), Opcode::STATFS, &[]);
        let body = kernel.ask(&message).unwrap();
        let mut out = Kstatfs::new_zeroed();
        out.as_mut_bytes().copy_from_slice(&body);
        out
    };
    let empty = statfs(&mut kernel);
    assert_eq!((empty.bsize, empty.frsize, empty.namelen), (4096, 4096, 255));
    assert!(empty.blocks > 10_000 && empty.bfree < empty.blocks && empty.bavail <= empty.bfree);
    let nodes: Vec<u64> = (0..20)
        .map(|number| {
            let node = kernel.mkdir(ROOT_ID, &format!("{number}"));
            kernel.set_extended(node, "user.a", &[1; 60_000], 0).unwrap();
            node
        })
        .collect();
    kernel.checkpoint();
    let full = statfs(&mut kernel);
    assert!(full.bfree + 20 * 15 <= empty.bfree, "{full:?}");
    assert_eq!(full.files - full.ffree, empty.files - empty.ffree + 40);
    for number in 0..20 {
        kernel.rmdir(ROOT_ID, &format!("{number}")).unwrap();
    }
    kernel.forget(&nodes);
    kernel.checkpoint();
    let emptied = statfs(&mut kernel);
    assert_eq!(emptied.files - emptied.ffree, empty.files - empty.ffree);
    // What the layers keep of their own may have grown.
    assert!(emptied.bfree + 20 > empty.bfree, "{emptied:?}, not {empty:?}");
}

#[test]
fn the_kernel_keeps_locks_and_truncates_itself() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let mut asked = InitIn::new_zeroed();
    (asked.major, asked.minor, asked.flags) = (7, 40, u32::MAX);
    let message = build::init(kernel.ids(0), &asked);
    let body = kernel.ask(&message).unwrap();
    let mut out = InitOut::new_zeroed();
    let length = body.len();
    out.as_mut_bytes()[..length].copy_from_slice(&body);
    use belay_wire::abi::InitFlags as Flags;
    let left = Flags::POSIX_LOCKS
        | Flags::FLOCK_LOCKS
        | Flags::ATOMIC_O_TRUNC
        | Flags::DONT_MASK
        | Flags::HANDLE_KILLPRIV
        | Flags::HANDLE_KILLPRIV_V2
        | Flags::WRITEBACK_CACHE
        | Flags::SETXATTR_EXT
        | Flags::EXPORT_SUPPORT;
    assert!(!Flags::from_bits_retain(out.flags.into()).intersects(left));
    // It goes on without these.
    for opcode in [Opcode::LSEEK, Opcode::COPY_FILE_RANGE, Opcode::GETLK, Opcode::SETLK] {
        let message = build::request(kernel.ids(ROOT_ID), opcode, &[&[0; 56]]);
        assert_eq!(kernel.ask(&message), Err(Errno::NOSYS));
    }
}

#[test]
fn files_of_all_kinds_are_made() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let mut make = |name: &str, mode: u32, rdev: u32| {
        let asked = MknodIn { mode, rdev, ..MknodIn::new_zeroed() };
        let parts: [&[u8]; 3] = [asked.as_bytes(), name.as_bytes(), &[0]];
        let message = build::request(kernel.ids(ROOT_ID), Opcode::MKNOD, &parts);
        kernel.ask(&message).map(|entry| (attr_of(&entry).mode, attr_of(&entry).rdev))
    };
    assert_eq!(make("fifo", 0o010_644, 5), Ok((0o010_644, 0)));
    assert_eq!(make("socket", 0o140_755, 5), Ok((0o140_755, 0)));
    assert_eq!(make("null", 0o020_666, 0x103), Ok((0o020_666, 0x103)));
    assert_eq!(make("loop", 0o060_660, 0x700), Ok((0o060_660, 0x700)));
    assert_eq!(make("file", 0o104_755, 0), Ok((0o104_755, 0)));
    // These are made in other ways, or not at all.
    for kind in [0o040_000, 0o120_000, 0, 0o030_000, 0o160_000] {
        assert_eq!(make("none", kind | 0o644, 0), Err(Errno::INVAL), "{kind:o}");
    }
}

#[test]
fn times_are_set_as_asked_for() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let node = kernel.mkdir(ROOT_ID, "d");
    let mut set = |valid: SetattrValid, (atime, atimensec): (i64, u32), mtime: i64| {
        let atime = atime as u64;
        let mtime = mtime as u64;
        let asked = SetattrIn { valid, atime, atimensec, mtime, ..SetattrIn::new_zeroed() };
        let message = build::setattr(kernel.ids(node), &asked);
        let body = kernel.ask(&message).unwrap();
        let mut out = AttrOut::new_zeroed();
        out.as_mut_bytes().copy_from_slice(&body);
        let attr = out.attr;
        let now = kernel.unique as i64;
        assert_eq!((attr.ctime as i64, attr.ctimensec), (now, 7));
        ((attr.atime as i64, attr.atimensec), attr.mtime as i64, now)
    };
    let made = set(SetattrValid::empty(), (0, 0), 0);
    assert_eq!(set(SetattrValid::ATIME, (-5, 9), 0).0, (-5, 9));
    assert_eq!(set(SetattrValid::ATIME, (-5, u32::MAX), 0).0, (-5, 999_999_999));
    let (accessed, modified, _) = set(SetattrValid::MTIME, (1, 1), 1 << 40);
    assert_eq!((accessed.0, modified), (-5, 1 << 40));
    let (accessed, modified, now) = set(SetattrValid::ATIME | SetattrValid::ATIME_NOW, (1, 1), 1);
    assert_eq!((accessed, modified), ((now, 7), 1 << 40));
    let (_, modified, now) = set(SetattrValid::MTIME | SetattrValid::MTIME_NOW, (1, 1), 1);
    assert!(modified == now && now > made.2);
}

#[test]
fn what_a_rename_cannot_do_it_says() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    kernel.mkdir(ROOT_ID, "d");
    let mut rename = |flags: u32, new: &str| {
        let ids = kernel.ids(ROOT_ID);
        let message = build::rename2(ids, ROOT_ID, flags, b"d", new.as_bytes());
        kernel.ask(&message)
    };
    // Those that do not go together, and what nobody knows.
    for flags in [3, 6, 7, 8] {
        assert_eq!(rename(flags, "e"), Err(Errno::INVAL), "{flags}");
    }
    assert_eq!(rename(0, &format!("{:0256}", 0)), Err(Errno::NAMETOOLONG));
    assert_eq!(rename(0, "d"), Ok(Vec::new()));
    assert_eq!(rename(1, "d"), Err(Errno::EXIST));
    assert_eq!(rename(0, &format!("{:0255}", 0)), Ok(Vec::new()));
}

#[test]
fn more_is_removed_at_the_next_mount_than_its_cache_has_room_for() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let mut make = |number: u64| {
        let node = kernel.mkdir(ROOT_ID, &number.to_string());
        kernel.rmdir(ROOT_ID, &number.to_string()).unwrap();
        if number.is_multiple_of(50) {
            kernel.checkpoint();
        }
        node
    };
    let nodes: Vec<u64> = (1..=300).map(&mut make).collect();
    kernel.checkpoint();
    let mut kernel = Kernel::mount(&disk, Capacity { frames: 60, slots: 30 });
    let mut full = 0;
    loop {
        match kernel.module.remove_orphans() {
            Ok(failed) => break assert_eq!(failed, Vec::<String>::new()),
            Err(Error::Cache(belay_cache::Error::Full)) => kernel.checkpoint(),
            Err(why) => panic!("{why}"),
        }
        full += 1;
    }
    assert!(full > 3, "it was full {full} times");
    for node in nodes {
        assert_eq!(kernel.getattr(node), Err(Errno::STALE));
    }
}

const PUNCH_HOLE: u32 = 2 | 1;

/// A file of zeros of that length.
fn sparse(kernel: &mut Kernel<'_>, size: u64) -> u64 {
    sparse_at(kernel, "file", size)
}

fn sparse_at(kernel: &mut Kernel<'_>, name: &str, size: u64) -> u64 {
    let asked = MknodIn { mode: 0o100_644, ..MknodIn::new_zeroed() };
    let parts: [&[u8]; 3] = [asked.as_bytes(), name.as_bytes(), &[0]];
    let message = build::request(kernel.ids(ROOT_ID), Opcode::MKNOD, &parts);
    let file = node_of(&kernel.ask(&message).unwrap());
    let asked = SetattrIn { valid: SetattrValid::SIZE, size, ..SetattrIn::new_zeroed() };
    let message = build::setattr(kernel.ids(file), &asked);
    kernel.ask(&message).unwrap();
    file
}

fn allocate(kernel: &mut Kernel<'_>, file: u64, offset: u64, length: u64, mode: u32) -> Answer {
    let asked = FallocateIn { offset, length, mode, ..FallocateIn::new_zeroed() };
    let message = build::request(kernel.ids(file), Opcode::FALLOCATE, &[asked.as_bytes()]);
    kernel.ask(&message)
}

fn write(kernel: &mut Kernel<'_>, file: u64, offset: u64, data: &[u8]) -> Answer {
    let mut head = WriteIn::new_zeroed();
    (head.offset, head.size) = (offset, data.len() as u32);
    let message = build::request(kernel.ids(file), Opcode::WRITE, &[head.as_bytes(), data]);
    kernel.ask(&message)
}

#[test]
fn holes_may_be_as_long_as_files() {
    let disk = disk();
    // Much less than what is punched.
    let mut kernel = Kernel::mount(&disk, Capacity { frames: 100, slots: 40 });
    let size = 1 << 43;
    let file = sparse(&mut kernel, size);
    let gib = 1 << 30;
    let places = [0, 4096, 700 << 20, 2 * gib, 3 * gib, 3 * gib + 5000];
    for place in places {
        write(&mut kernel, file, place, &[7; 5000]).unwrap();
    }
    // The first module dies of it in the middle.
    let asked =
        FallocateIn { offset: 100, length: 3 * gib, mode: PUNCH_HOLE, ..FallocateIn::new_zeroed() };
    let message = build::request(kernel.ids(file), Opcode::FALLOCATE, &[asked.as_bytes()]);
    for _ in 0..3 {
        assert!(matches!(kernel.module.handle(&message, Time::default()), Outcome::Full));
        kernel.checkpoint();
    }
    kernel.die(&disk);
    assert_eq!(kernel.ask(&message), Ok(Vec::new()));
    assert!(kernel.again > 8, "it was never full");
    let read = |kernel: &mut Kernel<'_>, at: u64| {
        let message = build::read(kernel.ids(file), 0, at, 5000);
        kernel.ask(&message).unwrap()
    };
    let kept = |from: usize, to: usize| {
        let mut kept = vec![0; 5000];
        kept[from..to].fill(7);
        kept
    };
    for life in 0..2 {
        let wanted = [kept(0, 100), kept(0, 0), kept(0, 0), kept(0, 0), kept(100, 5000)];
        for (place, wanted) in places.iter().zip(wanted) {
            assert!(read(&mut kernel, *place) == wanted, "life {life}, at {place}");
        }
        kernel.checkpoint();
        if life == 0 {
            kernel = Kernel::mount(&disk, ROOM);
        }
    }
    assert_eq!(allocate(&mut kernel, file, 0, size, PUNCH_HOLE), Ok(Vec::new()));
    for place in places {
        assert!(read(&mut kernel, place) == kept(0, 0), "at {place}");
    }
    // What is behind the end is zeros already.
    assert_eq!(allocate(&mut kernel, file, size - 4096, 4096, PUNCH_HOLE), Ok(Vec::new()));
    assert_eq!(allocate(&mut kernel, file, size - 5, 6, PUNCH_HOLE), Err(Errno::FBIG));
    assert_eq!(attr_of_file(&kernel.getattr(file).unwrap()).size, size);
}

#[test]
fn a_full_volume_is_emptied_by_holes() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let file = sparse(&mut kernel, 0);
    let mut size = 0;
    let data = vec![7; 1 << 20];
    while write(&mut kernel, file, size, &data).is_ok() {
        size += 1 << 20;
    }
    while write(&mut kernel, file, size, &data[..4096]).is_ok() {
        size += 4096;
    }
    assert!(size > 40 << 20, "{size} bytes fit");
    // Nearly all of it, in pieces that end within pages.
    let step = 3_000_001;
    for at in (0..size - step).step_by(step as usize) {
        assert_eq!(allocate(&mut kernel, file, at, step, PUNCH_HOLE), Ok(Vec::new()), "at {at}");
    }
    let other = kernel.mkdir(ROOT_ID, "d");
    assert_ne!(other, file);
    for at in (0..size / 2).step_by(1 << 20) {
        write(&mut kernel, file, at, &data).unwrap();
    }
}

#[test]
fn more_than_is_free_is_not_promised() {
    let disk = disk();
    let mut kernel = Kernel::mount(&disk, ROOM);
    let file = sparse(&mut kernel, 5000);
    let refused = Err(Errno::NOSPC);
    for mode in [0, 1, 16, 17] {
        assert_eq!(allocate(&mut kernel, file, 0, 1 << 40, mode), refused);
        assert_eq!(allocate(&mut kernel, file, 1 << 40, 100 << 20, mode), refused);
        assert_eq!(allocate(&mut kernel, file, 0, 30 << 20, mode), Ok(Vec::new()));
    }
    assert_eq!(attr_of_file(&kernel.getattr(file).unwrap()).size, 30 << 20);
    // Below its length nobody knows what is there; so much cannot be.
    let file = sparse_at(&mut kernel, "other", 1 << 40);
    assert_eq!(allocate(&mut kernel, file, 0, 1 << 40, 0), refused);
    assert_eq!(allocate(&mut kernel, file, 1 << 30, 30 << 20, 0), Ok(Vec::new()));
}

fn attr_of_file(body: &[u8]) -> Attr {
    AttrOut::read_from_prefix(body).unwrap().0.attr
}
