//! What a file holds, by its first bytes: a file system that a daemon may work on, or something
//! else that is named in the same place (an archive, a database, a key).

use crate::outside;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// What a file or device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A file system that can be changed.
    FileSystem(&'static str),
    /// A file system that is made once, and read from then on.
    ReadOnly(&'static str),
    /// A database, which has transactions of its own.
    Database(&'static str),
    /// Anything else.
    Other,
}

use Contents::{Database, FileSystem, Other, ReadOnly};

/// A magic number: where it is, what it is, what it tells.
type Magic = (u64, &'static [u8], Contents);

/// By the kernel's include/uapi/linux/magic.h and the headers below fs/, the specifications of
/// NTFS, exFAT and ISO 9660, and <https://www.sqlite.org/fileformat.html>.
const MAGIC: [Magic; 33] = [
    (0, b"SQLite format 3\0", Database("SQLite")),
    (0, b"hsqs", ReadOnly("squashfs")),
    (0, b"sqsh", ReadOnly("squashfs")),
    (0, b"-rom1fs-", ReadOnly("romfs")),
    (0, b"\x45\x3d\xcd\x28", ReadOnly("cramfs")),
    (0, b"\x28\xcd\x3d\x45", ReadOnly("cramfs")),
    (0x400, b"\xe2\xe1\xf5\xe0", ReadOnly("erofs")),
    (0x8001, b"CD001", ReadOnly("ISO 9660")),
    (0, b"XFSB", FileSystem("XFS")),
    (0x03, b"NTFS    ", FileSystem("NTFS")),
    (0x03, b"EXFAT   ", FileSystem("exFAT")),
    (0x52, b"FAT32   ", FileSystem("FAT")),
    (0x36, b"FAT12   ", FileSystem("FAT")),
    (0x36, b"FAT16   ", FileSystem("FAT")),
    (0x20, b"NXSB", FileSystem("APFS")),
    (0x438, b"\x53\xef", FileSystem("ext")),
    (0x400, b"H+\0\x04", FileSystem("HFS+")),
    (0x400, b"HX\0\x05", FileSystem("HFS+")),
    (0x400, b"BD", FileSystem("HFS")),
    (0x400, b"\x10\x20\xf5\xf2", FileSystem("F2FS")),
    (0x406, b"\x34\x34", FileSystem("NILFS2")),
    (0x410, b"\x7f\x13", FileSystem("Minix")),
    (0x410, b"\x8f\x13", FileSystem("Minix")),
    (0x410, b"\x68\x24", FileSystem("Minix")),
    (0x410, b"\x78\x24", FileSystem("Minix")),
    (0x410, b"\x5a\x4d", FileSystem("Minix")),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", FileSystem("bcachefs")),
    (0x255c, b"\x54\x19\x01\x00", FileSystem("UFS")),
    (0x1055c, b"\x19\x01\x54\x19", FileSystem("UFS")),
    (0x8000, b"JFS1", FileSystem("JFS")),
    (0x10034, b"ReIsEr", FileSystem("ReiserFS")),
    (0x10040, b"_BHRfS_M", FileSystem("btrfs")),
    (0x8001, b"BEA01", FileSystem("UDF")),
];
/// All magic numbers are before this.
pub const START: usize = 0x11000;
/// Two bytes are soon found by accident; these stand in files of whole sectors.
const SECTOR: u64 = 512;

/// What is in `path`; a block device that cannot be read, or holds nothing known, holds a file
/// system.
///
/// # Errors
/// If it cannot be looked at.
pub fn of(path: &Path) -> io::Result<Contents> {
    let meta = path.metadata()?;
    let device = meta.file_type().is_block_device();
    if !device && !meta.is_file() {
        return Ok(Other);
    }
    let found = look(path, !device && meta.len() % SECTOR != 0);
    match found {
        Ok(Other) | Err(_) if device => Ok(FileSystem("a block device")),
        found => found,
    }
}

/// What a file or device begins with; `start` has its first bytes, at least [`START`] of them if it
/// is that long.
#[must_use]
pub fn of_start(start: &[u8]) -> Contents {
    let is_there = |(at, magic, _): &&Magic| {
        let rest = usize::try_from(*at).ok().and_then(|at| start.get(at..));
        rest.is_some_and(|rest| rest.starts_with(magic))
    };
    MAGIC.iter().find(is_there).map_or(Other, |(_, _, contents)| *contents)
}

fn look(path: &Path, odd: bool) -> io::Result<Contents> {
    let mut file = outside::open_store(path)?;
    for (at, magic, contents) in MAGIC {
        let mut bytes = [0; 16];
        let Some(bytes) = bytes.get_mut(..magic.len()) else { continue };
        file.seek(SeekFrom::Start(at))?;
        let read = file.read_exact(bytes);
        match read {
            Ok(()) if bytes == magic && !(odd && magic.len() < 4) => return Ok(contents),
            Err(why) if why.kind() != io::ErrorKind::UnexpectedEof => return Err(why),
            _ => {}
        }
    }
    Ok(Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_enough() {
        for (at, magic, contents) in MAGIC {
            let mut start = vec![0; START];
            start[usize::try_from(at).unwrap()..][..magic.len()].copy_from_slice(magic);
            assert_eq!(of_start(&start), contents);
        }
        assert_eq!(of_start(&[0; START]), Other);
        assert_eq!(of_start(b"hsq"), Other);
    }

    #[test]
    fn file_systems_are_told_from_archives_and_databases() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let with = |at: usize, bytes: &[u8], length: usize| {
            let mut all = vec![0; length];
            all[at..at + bytes.len()].copy_from_slice(bytes);
            std::fs::write(&path, all).unwrap();
            of(&path).unwrap()
        };
        assert_eq!(with(0x438, b"\x53\xef", 1 << 20), FileSystem("ext"));
        assert_eq!(with(0x438, b"\x53\xef", 12345), Other);
        assert_eq!(with(3, b"NTFS    ", 4096), FileSystem("NTFS"));
        assert_eq!(with(0, b"hsqs", 4096), ReadOnly("squashfs"));
        assert_eq!(with(0x8001, b"CD001", 1 << 16), ReadOnly("ISO 9660"));
        assert_eq!(with(0, b"SQLite format 3\0", 8192), Database("SQLite"));
        for archive in [&b"PK\x03\x04"[..], b"\x1f\x8b", b"7z\xbc\xaf\x27\x1c", b""] {
            assert_eq!(with(0, archive, 10240), Other);
        }
        assert_eq!(with(257, b"ustar", 10240), Other);
        assert_eq!(of(dir.path()).unwrap(), Other);
        assert!(of(&dir.path().join("none")).is_err());
    }
}
