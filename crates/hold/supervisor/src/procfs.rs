//! Files that the kernel writes as they are read: those below `/proc` and `/sys`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes that are asked for at a time: most of them are shorter. Some are written anew for each
/// piece that is asked for.
const ROOM: usize = 8 << 10;

/// All that is in a file of the kernel's. Its length, which none of them has, is not asked for.
///
/// # Errors
/// Those of open(2) and read(2).
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_open(&File::open(path)?)
}

/// The same of one that is open.
///
/// # Errors
/// Those of read(2).
pub(crate) fn read_open(file: &File) -> io::Result<Vec<u8>> {
    let mut found = Vec::with_capacity(ROOM);
    // A `File` would be asked for its length and its position first.
    file.take(u64::MAX).read_to_end(&mut found)?;
    Ok(found)
}

/// The same of a text.
///
/// # Errors
/// Those of open(2) and read(2); `InvalidData` if it is no text.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_any_length_is_read_whole() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("file");
        for length in [0, 1, ROOM - 1, ROOM, ROOM + 1, 5 * ROOM + 7] {
            std::fs::write(&path, vec![b'x'; length]).expect("write");
            assert_eq!(read(&path).expect("read").len(), length);
            assert_eq!(read_text(&path).expect("read").len(), length);
        }
        std::fs::write(&path, [0xff]).expect("write");
        assert_eq!(read_text(&path).expect_err("no text").kind(), io::ErrorKind::InvalidData);
        assert!(read_text("/proc/self/status").expect("status").contains("\nPid:"));
    }
}
