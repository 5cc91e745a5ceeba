//! The disk image among a daemon's arguments, and copies of it to work on. The original is only
//! ever read.

use anyhow::{Context, Result, bail, ensure};
use belay_supervisor::contents::{self, Contents};
use belay_supervisor::outside;
use rustix::fs::{SeekFrom, ftruncate, ioctl_ficlone, seek};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

/// A file of this size that an option names might be an image; keys and settings are smaller.
const SUSPICIOUS: u64 = 1 << 20;
/// How much is copied at a time.
const PIECE: usize = 1 << 20;

/// A disk image in a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageArgument {
    /// As the command line has it.
    pub word: OsString,
    /// Whether it is a block device, which is not copied.
    pub device: bool,
    /// Whether it has a file system in it; an archive, for example, has not.
    pub file_system: bool,
}

/// Which files the user has named.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes<'a> {
    /// This one is the image.
    pub image: Option<&'a Path>,
    /// There is none.
    pub none: bool,
    /// A device may be written to.
    pub device: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    File(u64),
    Device,
}

fn what(path: &OsStr) -> Option<What> {
    let meta = std::fs::metadata(path).ok()?;
    match meta.file_type() {
        kind if kind.is_block_device() => Some(What::Device),
        kind if kind.is_file() => Some(What::File(meta.len())),
        _ => None,
    }
}

/// What an option's word may name: what is behind `=`, up to a comma.
fn values(word: &OsStr) -> impl Iterator<Item = &OsStr> {
    word.as_bytes().split(|byte| *byte == b',').filter_map(|piece| {
        let at = piece.iter().position(|byte| *byte == b'=')?;
        piece.get(at + 1..).filter(|value| !value.is_empty()).map(OsStr::from_bytes)
    })
}

/// Finds the image in a daemon's command line, if it works on one.
///
/// # Errors
/// If it cannot be told, or is a device that must not be written to.
pub fn detect(command: &[OsString], wishes: Wishes<'_>) -> Result<Option<ImageArgument>> {
    let arguments = command.get(1..).unwrap_or_default();
    let named = |wanted: &OsStr| {
        arguments.iter().any(|word| word == wanted || values(word).any(|value| value == wanted))
    };
    let found = match wishes.image {
        Some(path) => {
            let shown = path.display();
            ensure!(named(path.as_os_str()), "{shown}: the daemon's command line does not name it");
            let kind = what(path.as_os_str());
            let kind =
                kind.with_context(|| format!("{shown}: it is no file and no block device"))?;
            Some((path.as_os_str(), kind))
        }
        None => {
            let known = |word: &'_ OsString| what(word).map(|kind| (word.clone(), kind));
            let words: Vec<_> = arguments.iter().filter_map(known).collect();
            for value in arguments.iter().flat_map(|word| values(word)) {
                let big = match what(value) {
                    Some(What::Device) => !wishes.device,
                    Some(What::File(size)) => size >= SUSPICIOUS && !wishes.none,
                    None => false,
                };
                if big {
                    let value = value.display();
                    bail!("{value}: is that a disk image? say so by --image {value} or --no-image");
                }
            }
            let mut words = words.into_iter().filter(|(_, kind)| {
                // A device is one whatever the user says.
                *kind == What::Device || !wishes.none
            });
            let first = words.next();
            if let (Some((one, _)), Some((other, _))) = (&first, words.next()) {
                let (one, other) = (one.display(), other.display());
                bail!(
                    "both {one} and {other} are files: name the disk image by --image, or --no-image"
                );
            }
            return first.map(|(word, kind)| image(&word, kind, wishes)).transpose();
        }
    };
    found.map(|(word, kind)| image(word, kind, wishes)).transpose()
}

fn image(word: &OsStr, kind: What, wishes: Wishes<'_>) -> Result<ImageArgument> {
    let device = kind == What::Device;
    ensure!(
        !device || wishes.device,
        "{}: it is a block device, whose contents may be lost; copy it to a file and qualify the daemon on that, or say \
         --use-device",
        word.display()
    );
    let found = contents::of(Path::new(word));
    let known = matches!(found, Ok(Contents::FileSystem(_) | Contents::ReadOnly(_)));
    let file_system = device || known || wishes.image.is_some();
    Ok(ImageArgument { word: word.to_owned(), device, file_system })
}

/// The command line with another file in the place of the image.
pub fn replaced(command: &[OsString], word: &OsStr, copy: &Path) -> Vec<OsString> {
    let copy = copy.as_os_str();
    let replace = |argument: &OsString| {
        if argument == word {
            return copy.to_owned();
        }
        if !values(argument).any(|value| value == word) {
            return argument.clone();
        }
        let pieces: Vec<Vec<u8>> = argument
            .as_bytes()
            .split(|byte| *byte == b',')
            .map(|piece| match piece.iter().position(|byte| *byte == b'=') {
                Some(at) if piece.get(at + 1..) == Some(word.as_bytes()) => {
                    [piece.get(..=at).unwrap_or_default(), copy.as_bytes()].concat()
                }
                _ => piece.to_vec(),
            })
            .collect();
        OsString::from_vec(pieces.join(&b','))
    };
    let mut words = command.iter();
    let program = words.next().cloned();
    program.into_iter().chain(words.map(replace)).collect()
}

/// Copies an image; holes stay holes, and where the file system can, nothing is copied at all.
///
/// # Errors
/// If it cannot be read, or there is no room for it.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    copy_file(from, to).with_context(|| {
        format!(
            "copying the image {} to {} (TMPDIR names another place)",
            from.display(),
            to.display()
        )
    })
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let source = outside::open_regular(from, outside::From::Anybody)?;
    let size = source.metadata()?.len();
    // Never into a copy of before, of which something might remain.
    match std::fs::remove_file(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let target = File::options().write(true).create_new(true).open(to)?;
    if ioctl_ficlone(&target, &source).is_ok() {
        return Ok(());
    }
    ftruncate(&target, size)?;
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let data = match seek(&source, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        at = seek(&source, SeekFrom::Hole(data))?;
        let mut next = data;
        while next < at {
            let wanted = usize::try_from(at - next).unwrap_or(PIECE).min(PIECE);
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            source.read_exact_at(piece, next)?;
            target.write_all_at(piece, next)?;
            next += u64::try_from(wanted)?;
        }
    }
    Ok(())
}

/// Runs the user's checker on an image.
///
/// # Errors
/// If it cannot be run, or finds something: with its words.
pub fn check(command: &str, image: &Path) -> Result<()> {
    let mut words = command.split_whitespace();
    let program = words.next().context("--check names no command")?;
    let path = image.as_os_str().as_bytes();
    let arguments = words.map(|word| {
        let parts: Vec<&[u8]> = word.split("{}").map(str::as_bytes).collect();
        OsString::from_vec(parts.join(path))
    });
    let output = std::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .with_context(|| format!("starting `{program}` (--check)"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    bail!("the checker `{program}` failed ({}): {}", output.status, said.trim())
}

/// The path of the image that the daemon is given.
pub fn path_in(scratch: &Path, image: &ImageArgument) -> PathBuf {
    if image.device { PathBuf::from(&image.word) } else { scratch.join("image") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::words;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn an_archive_is_no_disk_image() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let has = |bytes: &[u8]| {
            let mut all = vec![0; 8192];
            all[..bytes.len()].copy_from_slice(bytes);
            std::fs::write(&path, all).unwrap();
            let command = ["d".into(), path.clone().into_os_string()];
            detect(&command, Wishes::default()).unwrap().unwrap().file_system
        };
        for other in [&b"PK\x03\x04"[..], b"\x1f\x8b", b"SQLite format 3\0", b""] {
            assert!(!has(other));
        }
        assert!(has(b"XFSB") && has(b"hsqs"));
    }

    #[test]
    fn images_are_found_among_arguments() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (small, big, mnt) = (path("small"), path("big"), path("mnt"));
        std::fs::write(&small, "x").unwrap();
        File::create(&big).unwrap().set_len(SUSPICIOUS).unwrap();
        std::fs::create_dir(&mnt).unwrap();
        let none = Wishes::default();
        let found = |line: &str, wishes| detect(&words(line), wishes).map(|i| i.map(|i| i.word));
        // The program itself is none.
        assert_eq!(found(&format!("{small} -o rw {mnt}"), none).unwrap(), None);
        assert_eq!(
            found(&format!("d -o rw {small} {mnt}"), none).unwrap(),
            Some(small.clone().into())
        );
        assert_eq!(
            found(&format!("d {small} {mnt}"), Wishes { none: true, ..none }).unwrap(),
            None
        );
        let error = found(&format!("d {small} {big} {mnt}"), none).unwrap_err().to_string();
        assert!(error.contains("--image"), "{error}");
        let wish = Wishes { image: Some(Path::new(&big)), ..none };
        assert_eq!(
            found(&format!("d {small} {big} {mnt}"), wish).unwrap(),
            Some(big.clone().into())
        );
        // Behind an option a small file is a key, a big one must be explained.
        assert_eq!(found(&format!("d -o ro,key={small} {mnt}"), none).unwrap(), None);
        let line = format!("d -o ro,image={big},x {mnt}");
        assert!(found(&line, none).is_err());
        assert_eq!(found(&line, Wishes { none: true, ..none }).unwrap(), None);
        assert_eq!(found(&line, wish).unwrap(), Some(big.clone().into()));
        assert!(found(&format!("d {mnt}"), wish).is_err());
        let copy = Path::new("/copy");
        let expected = words(&format!("d -o ro,image=/copy,x {mnt}"));
        assert_eq!(replaced(&words(&line), OsStr::new(&big), copy), expected);
        let command = words(&format!("{big} {big} {mnt}"));
        let expected = words(&format!("{big} /copy {mnt}"));
        assert_eq!(replaced(&command, OsStr::new(&big), copy), expected);
    }

    #[test]
    fn devices_are_refused() {
        let device = std::fs::read_dir("/dev")
            .unwrap()
            .flatten()
            .find(|entry| entry.file_type().is_ok_and(|kind| kind.is_block_device()));
        let Some(device) = device.map(|entry| entry.path()) else {
            eprintln!("skipped: no block device here");
            return;
        };
        let command = words(&format!("d {} /mnt", device.display()));
        for none in [false, true] {
            let error = detect(&command, Wishes { none, ..Wishes::default() }).unwrap_err();
            assert!(error.to_string().contains("--use-device"), "{error}");
        }
        let image =
            detect(&command, Wishes { device: true, ..Wishes::default() }).unwrap().unwrap();
        assert!(image.device);
        assert_eq!(path_in(Path::new("/scratch"), &image), device);
    }

    #[test]
    fn copies_are_equal_and_have_the_holes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let file = File::create(&from).unwrap();
        let size = 20 << 20;
        file.set_len(size).unwrap();
        for (at, byte) in [(0, 1_u8), (5_000_000, 2), (size - 10, 3)] {
            file.write_all_at(&[byte; 10], at).unwrap();
        }
        std::fs::write(&to, "what was there before").unwrap();
        let before = std::fs::metadata(&from).unwrap();
        copy(&from, &to).unwrap();
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        let after = std::fs::metadata(&from).unwrap();
        assert_eq!((before.mtime_nsec(), before.blocks()), (after.mtime_nsec(), after.blocks()));
        // As sparse as the original, if that is sparse.
        let copied = std::fs::metadata(&to).unwrap().blocks();
        assert!(copied <= before.blocks() + 64, "{copied} blocks, {} before", before.blocks());
        let error = format!("{:#}", copy(&dir.path().join("none"), &to).unwrap_err());
        assert!(error.contains("none"), "{error}");
        // One without any data.
        File::create(&from).unwrap().set_len(size).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(std::fs::metadata(&to).unwrap().len(), size);
    }

    #[test]
    fn checkers_are_heard() {
        check("test -d {}", Path::new("/")).unwrap();
        let error = check("ls {}/no-such-file", Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("no-such-file"), "{error}");
        assert!(check("no-such-program {}", Path::new("/")).is_err());
    }
}
