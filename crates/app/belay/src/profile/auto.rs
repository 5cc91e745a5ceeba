//! Which policy a daemon gets that no profile knows, by what can be seen of it before it starts.
//!
//! The choice is never less than `reconcile`: under `journal` what is on record is gone on from,
//! and what is not is asked for (see `UNPROVEN` in the options of the recorder crate); under
//! `epoch` a daemon that writes through is held as well as one that writes late, if it can be ended
//! and started again, which any can.

use super::checkpoint::FlushName;
use crate::image_preparation;
use belay_supervisor::config::Policy;
use belay_supervisor::contents::{self, Contents};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What was decided, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The policy.
    pub policy: Policy,
    /// How checkpoints are made.
    pub flush: Option<FlushName>,
    /// The image.
    pub image: Option<PathBuf>,
    /// Why, for people.
    pub reason: String,
}

impl Guess {
    /// What somebody has said.
    pub fn told(policy: Policy, who: &str) -> Self {
        Self { policy, flush: None, image: None, reason: who.to_owned() }
    }

    fn new(policy: Policy, reason: impl Into<String>) -> Self {
        Self::told(policy, &format!("auto: {}", reason.into()))
    }

    fn epoch(image: PathBuf, what: &str) -> Self {
        let reason = format!("{} is a disk image ({what})", image.display());
        let flush = Some(FlushName::Restart);
        Self { flush, image: Some(image), ..Self::new(Policy::Epoch, reason) }
    }
}

/// Decides by a daemon's command line; `image` is what the user says is its image.
pub fn guess(command: &[OsString], image: Option<&Path>) -> Guess {
    if let Some(image) = image {
        return Guess::epoch(image.to_owned(), "--image says so");
    }
    let mut images = Vec::new();
    for path in image_preparation::named(command) {
        match contents::of(&path) {
            Ok(Contents::FileSystem(name)) => images.push((path, name)),
            Ok(Contents::Database(name)) => {
                let reason = format!(
                    "{} is a {name} database, which has transactions of its own",
                    path.display()
                );
                return Guess::new(Policy::Reconcile, reason);
            }
            Ok(Contents::ReadOnly(_) | Contents::Other) | Err(_) => {}
        }
    }
    match images.pop() {
        None => Guess::new(
            Policy::Journal,
            "no disk image in its arguments, so its effects are taken to be system calls",
        ),
        Some((path, _)) if !images.is_empty() => Guess::new(
            Policy::Journal,
            format!("{} is not its only disk image; --image names the one", path.display()),
        ),
        Some((path, name)) if is_read_only(command, &path) => Guess::new(
            Policy::Journal,
            format!("its disk image {} ({name}) is not written to", path.display()),
        ),
        Some((path, name)) => Guess::epoch(path, name),
    }
}

/// The file that alone gives a daemon its names, with what it is, if nobody changes what is in such
/// a file: an image that is made once. Whoever has a directory as well may show others' names.
pub fn medium(command: &[OsString]) -> Option<(PathBuf, &'static str)> {
    let [image] = image_preparation::named(command).try_into().ok()?;
    let contents = contents::of(&image).ok()?;
    let mut directories = image_preparation::directories(command);
    let (_mountpoint, more) = (directories.next(), directories.next());
    match contents {
        Contents::ReadOnly(name) if more.is_none() && image.is_file() => Some((image, name)),
        _ => None,
    }
}

/// Whether a daemon cannot, or is told not to, write to its image.
fn is_read_only(command: &[OsString], image: &Path) -> bool {
    let options = command.windows(2).filter_map(|pair| match pair {
        [before, word] if before == "-o" => Some(word.as_bytes()),
        [_, word] => word.as_bytes().strip_prefix(b"-o"),
        _ => None,
    });
    let mut pieces = options.flat_map(|words| words.split(|byte| *byte == b','));
    pieces.any(|piece| piece == b"ro")
        || rustix::fs::access(image, rustix::fs::Access::WRITE_OK).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::words;

    #[test]
    fn names_in_an_image_that_is_made_once_are_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let (image, zip) = (dir.path().join("image"), dir.path().join("zip"));
        std::fs::write(&image, [b"hsqs", &[0; 2000][..]].concat()).unwrap();
        std::fs::write(&zip, b"PK\x03\x04").unwrap();
        let (image, zip, place) = (image.display(), zip.display(), dir.path().display());
        let is_one = |line: String| medium(&words(&line)).is_some();
        assert!(is_one(format!("d -o ro {image} {place}")));
        assert!(is_one(format!("d -o dev={image} {place}")));
        assert!(!is_one(format!("d {zip} {place}")), "others may be changed");
        assert!(!is_one(format!("d {place} {image} {place}")), "what is in a directory");
        assert!(!is_one(format!("d -o upper={place} {image} {place}")));
        assert!(!is_one(format!("d {image} {zip} {place}")));
    }

    #[test]
    fn what_a_daemon_works_on_decides() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, at: usize, magic: &[u8]| {
            let mut all = vec![0; 1 << 20];
            all[at..at + magic.len()].copy_from_slice(magic);
            let path = dir.path().join(name);
            std::fs::write(&path, all).unwrap();
            path
        };
        let ext = put("ext", 0x438, b"\x53\xef");
        let ntfs = put("ntfs", 3, b"NTFS    ");
        let squash = put("squash", 0, b"hsqs");
        let zip = put("zip", 0, b"PK\x03\x04");
        let base = put("base", 0, b"SQLite format 3\0");
        let decide = |line: String| {
            let found = guess(&words(&line), None);
            assert!(found.reason.starts_with("auto: "));
            (found.policy, found.image)
        };
        let (ext, ntfs) = (ext.display(), ntfs.display());
        let image = |path: &str| Some(dir.path().join(path));
        assert_eq!(decide(format!("d {ext} /mnt")), (Policy::Epoch, image("ext")));
        assert_eq!(decide(format!("d -o allow_other,dev={ntfs} /mnt")).1, image("ntfs"));
        assert_eq!(decide(format!("d -o ro {ext} /mnt")), (Policy::Journal, None));
        assert_eq!(decide(format!("d -oro,x {ext} /mnt")), (Policy::Journal, None));
        assert_eq!(decide(format!("d {ext} {ntfs} /mnt")), (Policy::Journal, None));
        // An option names the image, and an argument something else that is there.
        for line in [
            format!("d /etc/passwd -o dev={ext} /mnt"),
            format!("d /etc/passwd --disk={ext} /mnt"),
            format!("d {} -orw,dev={ext} /mnt", zip.display()),
            format!("d {} -o dev={ext} /mnt", squash.display()),
        ] {
            assert_eq!(decide(line.clone()), (Policy::Epoch, image("ext")), "{line}");
        }
        assert_eq!(decide(format!("d {ntfs} -o dev={ext} /mnt")), (Policy::Journal, None));
        assert_eq!(
            decide(format!("d /etc/passwd -o db={} /mnt", base.display())).0,
            Policy::Reconcile
        );
        for other in [&squash, &zip] {
            assert_eq!(decide(format!("d {} /mnt", other.display())), (Policy::Journal, None));
        }
        assert_eq!(decide(format!("d {} /mnt", base.display())), (Policy::Reconcile, None));
        assert_eq!(decide("d /srv /mnt".into()), (Policy::Journal, None));
        let named = guess(&words("d /mnt"), Some(&zip));
        assert_eq!((named.policy, named.flush), (Policy::Epoch, Some(FlushName::Restart)));
    }
}
