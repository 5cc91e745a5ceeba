//! What tells a file system from another that was made in its place: the number that was drawn when
//! it was made.

use super::storage::Storage;
use std::io;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes at the start of an image that are looked at.
const START: usize = 2048;

/// What is where, in file systems that user-space daemons serve: a magic number, and the one that
/// was drawn.
struct Kind {
    magic: (usize, &'static [u8]),
    number: Range<usize>,
}

/// Those that begin with a boot sector: by the kernel's include/uapi/linux/msdos_fs.h, and the
/// specifications of exFAT and NTFS.
const BOOTED: [Kind; 4] = [
    Kind { magic: (0x03, b"NTFS    "), number: 0x48..0x50 },
    Kind { magic: (0x03, b"EXFAT   "), number: 0x64..0x68 },
    Kind { magic: (0x52, b"FAT32   "), number: 0x43..0x47 },
    Kind { magic: (0x36, b"FAT"), number: 0x27..0x2b }, // FAT12, FAT16
];
/// What a boot sector ends with.
const BOOT: (usize, &[u8]) = (510, b"\x55\xaa");
/// ext2, ext3 and ext4, with their UUID: by the kernel's fs/ext4/ext4.h.
const EXT: Kind = Kind { magic: (0x438, b"\x53\xef"), number: 0x468..0x478 };
/// The revision of an ext's format: 0 or 1.
const EXT_REVISION: (usize, [&[u8]; 2]) = (0x44c, [b"\0\0\0\0", b"\x01\0\0\0"]);

/// The number that the file system on an image was given when it was made (a UUID, a serial
/// number), as a check value; 0 if none is known. It stays what it is as long as the file system
/// lives, so a commit that was cut off finds it as it was.
///
/// # Errors
/// Those of the image.
pub(super) fn number<F: Storage>(image: &F) -> io::Result<u64> {
    let mut start = [0; START];
    let read = image.read_at(0, &mut start)?;
    let start = start.get(..read).unwrap_or_default();
    let has =
        |(at, bytes): (usize, &[u8])| start.get(at..).is_some_and(|rest| rest.starts_with(bytes));
    // Behind a boot sector may lie anything, also what looks like an ext; that has none.
    let booted = || BOOTED.iter().find(|kind| has(BOOT) && has(kind.magic));
    let is_ext =
        || has(EXT.magic) && EXT_REVISION.1.iter().any(|bytes| has((EXT_REVISION.0, bytes)));
    let kind = booted().or_else(|| is_ext().then_some(&EXT));
    let number = kind.and_then(|kind| start.get(kind.number.clone()));
    Ok(number.map_or(0, |number| xxh3_64(number).max(1)))
}
