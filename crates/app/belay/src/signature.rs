//! What is on a disk that is to become a store.

use anyhow::{Context, Result};
use belay_disk::{BLOCK, Disk, FileDisk};
use belay_supervisor::contents::{self, Contents};
use std::path::Path;

/// A magic number: where it is, what it is, and what has it.
type Magic = (usize, &'static [u8], &'static str);

/// What a store is called.
pub const STORE: &str = "a store of a belay volume";

/// What a block device may have besides a file system, and other file systems that nobody mounts by
/// FUSE: by libblkid's `libblkid/src/superblocks` and `libblkid/src/partitions`.
const MAGIC: [Magic; 19] = [
    (4096, &belay_store::layout::MAGIC, STORE),
    (8192, &belay_store::layout::MAGIC, STORE),
    (0, b"LUKS\xba\xbe", "a LUKS container"),
    (0, b"SKUL\xba\xbe", "a LUKS container"),
    (0x200, b"EFI PART", "a partition table"),
    (0x1000, b"EFI PART", "a partition table"),
    (0, b"LABELONE", "an LVM physical volume"),
    (0x200, b"LABELONE", "an LVM physical volume"),
    (0x400, b"LABELONE", "an LVM physical volume"),
    (0x600, b"LABELONE", "an LVM physical volume"),
    (0, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9", "a bcache device"),
    (0, b"-FVE-FS-", "a BitLocker container"),
    (3, b"-FVE-FS-", "a BitLocker container"),
    (0x3fd8, b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02", "a part of a ZFS pool"),
    (510, b"\x55\xaa", "a partition table, or a boot sector"),
];

/// What is on a disk; `None` if an image has nothing but zeros, or if nothing on a block device is
/// known.
///
/// # Errors
/// If it cannot be read.
pub fn of(disk: &FileDisk) -> Result<Option<String>> {
    let path = disk.path();
    let start = contents::START / BLOCK;
    let read = |first: u64, count: usize| {
        let mut bytes = vec![0; count * BLOCK];
        let read = disk.read(first, &mut bytes);
        read.with_context(|| format!("cannot read {}", path.display())).map(|()| bytes)
    };
    let blocks = disk.blocks();
    let bytes = read(0, start.min(usize::try_from(blocks).unwrap_or(start)))?;
    // A store whose start was overwritten has its roots at the end.
    let last = 2.min(blocks);
    let end = read(blocks - last, usize::try_from(last).unwrap_or_default())?;
    let found = of_blocks(&bytes, &end);
    // Of a file somebody may want to have what is in it, whatever it is.
    if found.is_none() && is_file(path) {
        let is_blank = disk.is_blank();
        let is_blank = is_blank.with_context(|| format!("cannot read {}", path.display()))?;
        return Ok((!is_blank).then(|| "something".to_owned()));
    }
    Ok(found)
}

/// The same of its first and its last blocks.
pub fn of_blocks(start: &[u8], end: &[u8]) -> Option<String> {
    let is_there =
        |(at, magic, _): &&Magic| start.get(*at..).is_some_and(|rest| rest.starts_with(magic));
    if let Some((_, _, what)) = MAGIC.iter().find(is_there) {
        return Some((*what).to_owned());
    }
    match contents::of_start(start) {
        Contents::FileSystem(name) | Contents::ReadOnly(name) => {
            return Some(format!("a file system ({name})"));
        }
        Contents::Database(name) => return Some(format!("a database ({name})")),
        Contents::Other => {}
    }
    let is_store = |block: &[u8]| block.starts_with(&belay_store::layout::MAGIC);
    end.chunks(BLOCK).any(is_store).then(|| STORE.to_owned())
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file())
}
