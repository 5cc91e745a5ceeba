//! A daemon's disk image before the daemon may read it: which it is, that nobody else has it, and
//! what is to be done about a commit that a power failure has cut off.

use anyhow::{Result, bail};
use belay_image::journal::{
    Behind, Contents, Error, Found, Hold, Homes, How, Kept, Recovered, plan,
};
use belay_oplog::kept;
use belay_supervisor::contents::{self, Contents as Holds};
use belay_supervisor::image::{AtStart, Image, ImageFds, identity, journal_folder};
use belay_supervisor::instances::Instance;
use belay_supervisor::keep::kept_beside;
use belay_supervisor::outside;
use belay_supervisor::text::{self, OsText};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long somebody may have a lock who only looks at an image: udev at a disk, or another belay
/// that comes at the same time.
const LOOKED_AT: Duration = Duration::from_millis(500);

/// Of so many files that are kept beside an image it is told what is in them.
const MOST_TOLD: usize = 16;

/// What was done with one journal, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The journal.
    pub journal: PathBuf,
    /// What was done.
    pub what: Recovered,
}

impl Done {
    /// For people. `image`: of which image. `dry`: it was not done.
    pub fn show(&self, image: &Path, dry: bool) -> String {
        let (image, journal) = (image.display(), self.journal.display());
        let is = if dry { "would be" } else { "is" };
        let size = |contents: &Contents| {
            let Contents { epoch, bytes, runs, .. } = contents;
            format!(
                "checkpoint {epoch} ({} in {})",
                text::bytes(*bytes),
                text::count(*runs, "place")
            )
        };
        match &self.what {
            Recovered::Nothing => {
                format!("{image}: no commit was cut off; its journal {journal} is empty")
            }
            Recovered::Dropped => format!(
                "{image}: a commit was cut off before it reached the image, and {is} dropped ({journal} is not whole): \
                 the image is at the checkpoint before"
            ),
            Recovered::Discarded(contents) => format!(
                "{image}: {} {is} dropped from {journal}, as asked for: the image may have a part of it, have it \
                 checked",
                size(contents)
            ),
            Recovered::Applied(contents) => format!(
                "{image}: a commit was cut off, and {is} finished: {} from {journal}",
                size(contents)
            ),
        }
    }
}

/// The journals of an image, looked for and locked.
pub struct Journals {
    /// The image, and where its journal may lie.
    pub homes: Homes,
    left: Vec<Kept>,
}

impl Journals {
    /// Those of the image at `path`; `asked` is where the user wants its journal.
    ///
    /// # Errors
    /// If the image is not there, or a journal is in use, lost, or not to be trusted.
    pub fn find(path: &Path, asked: Option<&Path>, forget: bool) -> Result<Self> {
        let homes = Homes::of(path, asked, &journal_folder())?;
        let left = homes.left(forget)?;
        Ok(Self { homes, left })
    }

    /// Refuses an image that a living belay has, also by another name of it.
    ///
    /// # Errors
    /// By which process.
    pub fn check_free(&self, instances: &[Instance]) -> Result<()> {
        let (own, behind) = (identity(self.homes.meta()), self.homes.behind());
        let overlaps = |other: &Behind| behind.iter().any(|own| own.overlaps(other));
        let is_same =
            |image: &Image| (image.device, image.inode) == own || image.behind.iter().any(overlaps);
        for config in instances.iter().filter(|i| i.alive).filter_map(Instance::config) {
            if let Some(image) = config.image.filter(is_same) {
                bail!(
                    "{}: belay process {} holds it already, as {}; see `belay status`, and end that with `belay \
                     stop` first",
                    self.homes.image().display(),
                    config.keeper_pid,
                    image.path.show()
                );
            }
        }
        Ok(())
    }

    /// Locks the image, whatever it is called, for as long as the result lives.
    ///
    /// # Errors
    /// If somebody else has it.
    pub fn hold(&self) -> Result<Hold> {
        let end = Instant::now() + LOOKED_AT;
        let hold = loop {
            match self.homes.hold() {
                Err(Error::Taken { .. }) if Instant::now() < end => sleep(LOOKED_AT / 20),
                hold => break hold?,
            }
        };
        for why in &hold.unlocked {
            tracing::debug!("no lock keeps another belay from the image: {why}");
        }
        Ok(hold)
    }

    /// What [`Journals::settle`] would do.
    ///
    /// # Errors
    /// If it would fail.
    pub fn plan(&self, how: How) -> Result<Vec<Done>> {
        self.check_one(how)?;
        let done = self.left.iter().map(|kept| {
            let what = plan(kept.journal(), &self.homes.open()?, how, &mut |_| {})?;
            Ok(Done { journal: kept.path().to_owned(), what })
        });
        done.collect()
    }

    /// Finishes or drops what a power failure has left, and removes the journals. Nothing is
    /// changed if there are none.
    ///
    /// # Errors
    /// If a journal is refused, or a file cannot be read or written.
    pub fn settle(self, how: How) -> Result<(Homes, Vec<Done>)> {
        self.check_one(how)?;
        let mut done = Vec::new();
        for kept in &self.left {
            let image = self.homes.open()?;
            let what = kept.recover(&image, how, &mut |_| {})?;
            done.push(Done { journal: kept.path().to_owned(), what });
        }
        for kept in self.left {
            kept.remove(&self.homes.open()?)?;
        }
        Ok((self.homes, done))
    }

    /// Of two journals that hold a commit nobody knows which is the last.
    fn check_one(&self, how: How) -> Result<()> {
        if self.left.len() < 2 || how.discard {
            return Ok(());
        }
        let mut whole = Vec::new();
        for kept in &self.left {
            if matches!(kept.inspect(&mut |_| {})?, Found::Whole(_)) {
                whole.push(kept.path().display().to_string());
            }
        }
        if whole.len() > 1 {
            let image = self.homes.image().display().to_string();
            return Err(Error::Several { image, journals: whole.join(" and ") }.into());
        }
        Ok(())
    }
}

/// What the user says of the image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes<'a> {
    /// The daemon buffers: there must be one image, and it needs a journal.
    pub epochs: bool,
    /// This is it.
    pub image: Option<&'a Path>,
    /// Where its journal is to lie.
    pub journal: Option<&'a Path>,
}

/// Makes a daemon's image ready for its start; gives it, how it was named, and its descriptors, if
/// it needs a journal.
///
/// # Errors
/// If it cannot be told, is in use, or has a journal that is refused.
pub fn prepare(
    command: &[OsString],
    wishes: Wishes<'_>,
    instances: &[Instance],
) -> Result<Option<((OsText, Image), ImageFds)>> {
    if !wishes.epochs {
        // No journal is needed; but one may be there of a run before.
        for path in named(command) {
            let journals = Journals::find(&path, None, false)?;
            let _hold = if journals.left.is_empty() { None } else { Some(journals.hold()?) };
            settle(journals)?;
        }
        return Ok(None);
    }
    let path = match wishes.image {
        Some(path) => path.to_path_buf(),
        None => only(command)?,
    };
    let journals = Journals::find(&path, wishes.journal, false)?;
    journals.check_free(instances)?;
    let hold = journals.hold()?;
    let (homes, at_start) = settle(journals)?;
    let kept = homes.make()?;
    if !homes.is_found(&kept) {
        tracing::warn!(
            "the journal {} is found by nobody who does not name it: after a power failure, give --journal again \
             (to `belay repair` as well)",
            kept.path().display()
        );
    }
    let image = Image::new(&homes, &kept, at_start);
    let left = kept_beside(&image);
    left.iter().take(MOST_TOLD).for_each(|file| tell_kept(&image, homes.owner(), file));
    if let Some(more @ 1..) = left.len().checked_sub(MOST_TOLD) {
        tracing::warn!(
            "{} beside {} may be such ones",
            text::count(more as u64, "more file"),
            image.path.show()
        );
    }
    let fds = ImageFds::new(&homes, kept, hold)?;
    let given = std::path::absolute(&path).unwrap_or(path);
    Ok(Some(((given.into(), image), fds)))
}

/// What was acknowledged and is on no image is easily forgotten. `owner`: the user whose the image
/// is.
fn tell_kept(image: &Image, owner: u32, file: &Path) {
    let (image, shown) = (image.path.show(), file.display());
    let left = || {
        let file = outside::open_regular(file, outside::From::OwnOr(owner))?;
        let length = file.metadata()?.len();
        kept::left(file, length)
    };
    match left() {
        Ok(0) => {}
        Ok(left) => tracing::warn!(
            "{image} lacks {}, acknowledged before and kept in {shown}: once it is mounted, `belay replay {shown} \
             MOUNTPOINT` applies what is left (`--list` shows it; remove the file if you do not need it)",
            text::count(left, "operation")
        ),
        Err(why) => {
            tracing::warn!(
                "{image} may lack operations: {shown}, which may have some, is not read: {why}"
            )
        }
    }
}

fn settle(journals: Journals) -> Result<(Homes, AtStart)> {
    let (homes, done) = journals.settle(How::default())?;
    let at_start = done.iter().map(|done| AtStart::from(&done.what)).max();
    for done in done {
        if done.what == Recovered::Nothing {
            tracing::debug!("{}", done.show(homes.image(), false));
        } else {
            tracing::info!("{}", done.show(homes.image(), false));
        }
    }
    Ok((homes, at_start.unwrap_or_default()))
}

/// The files and block devices in a daemon's command line: those that arguments are, then those
/// that options name.
pub fn named(command: &[OsString]) -> Vec<PathBuf> {
    let (mut found, options) = told_apart(command);
    found.extend(options);
    found
}

/// The same: arguments that are one, and those that options name.
fn told_apart(command: &[OsString]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let arguments = command.get(1..).unwrap_or_default();
    let is_image = |path: &&Path| {
        path.metadata().is_ok_and(|meta| meta.is_file() || meta.file_type().is_block_device())
    };
    let words = arguments.iter().map(Path::new).filter(is_image).map(Path::to_path_buf);
    let values = arguments.iter().flat_map(|word| values(word)).map(Path::new);
    (words.collect(), values.filter(is_image).map(Path::to_path_buf).collect())
}

/// The directories in a daemon's command line: arguments, and what options name.
pub fn directories(command: &[OsString]) -> impl Iterator<Item = PathBuf> + '_ {
    let words = command.get(1..).unwrap_or_default().iter();
    let named = words.flat_map(|word| std::iter::once(word.as_os_str()).chain(values(word)));
    named.map(Path::new).filter(|path| path.is_dir()).map(Path::to_path_buf)
}

/// The files that a daemon stores into, by paths that stay true when it changes its working
/// directory: arguments, else what options name, which mostly say how, not where.
pub fn stores(command: &[OsString]) -> Vec<OsText> {
    let (words, options) = told_apart(command);
    let named = if words.is_empty() { options } else { words };
    let files = named.into_iter().filter(|path| path.is_file());
    files.filter_map(|path| std::path::absolute(path).ok()).map(OsText::from).collect()
}

/// What an option's word may name: what is behind `=`, up to a comma.
fn values(word: &OsStr) -> impl Iterator<Item = &OsStr> {
    word.as_bytes().split(|byte| *byte == b',').filter_map(|piece| {
        let at = piece.iter().position(|byte| *byte == b'=')?;
        piece.get(at + 1..).filter(|value| !value.is_empty()).map(OsStr::from_bytes)
    })
}

/// The image: the one file system among the files that are named. What an option names may be there
/// for something else, and a file system may be one that nobody knows; so an argument is it, if
/// there is but one.
fn only(command: &[OsString]) -> Result<PathBuf> {
    let (words, options) = told_apart(command);
    let all = words.iter().chain(&options);
    let known = all.filter(|path| matches!(contents::of(path), Ok(Holds::FileSystem(_))));
    let known: Vec<_> = known.cloned().collect();
    let mut found = match known.len() {
        1 => known,
        _ if words.is_empty() => options,
        _ => words,
    };
    match (found.pop(), found.pop()) {
        (Some(one), None) => Ok(one),
        (Some(other), Some(one)) => bail!(
            "both {} and {} are files: name the disk image with --image",
            one.display(),
            other.display()
        ),
        (None, _) => {
            let missing =
                missing(command).map(|word| format!(" ({} does not exist)", word.display()));
            bail!(
                "the policy `epoch`, which --policy or the daemon's profile says, is for daemons on a disk image, and no \
                 argument of the daemon is a file or disk that is there{}: correct its path, or name it with --image",
                missing.unwrap_or_default()
            )
        }
    }
}

/// The first argument of a daemon that looks like the path of something, of which there is nothing.
fn missing(command: &[OsString]) -> Option<&Path> {
    let is_option = |word: &OsString| word.as_bytes().starts_with(b"-");
    let mut words = command.windows(2).filter_map(|pair| match pair {
        // What is behind -o is none.
        [before, word] if !is_option(word) && before != "-o" => Some(Path::new(word)),
        _ => None,
    });
    let is_missing =
        |path: &&Path| path.symlink_metadata().is_err_and(|why| why.kind() == ErrorKind::NotFound);
    words.find(is_missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_the_one_file_that_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (one, two) = (path("one"), path("two"));
        std::fs::write(&one, "").unwrap();
        std::fs::write(&two, "").unwrap();
        let found = |line: String| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            only(&words)
        };
        let dir = dir.path().display();
        assert_eq!(found(format!("{two} -o rw,x=1 {one} {dir}")).unwrap(), Path::new(&one));
        // Of what nobody knows, an argument comes before what an option names.
        assert_eq!(found(format!("d -o key={two} {one} {dir}")).unwrap(), Path::new(&one));
        assert_eq!(found(format!("d -o rw,dev={two},x {dir}")).unwrap(), Path::new(&two));
        // What holds a file system is the image, wherever it is named.
        let disk = path("disk");
        let mut text = vec![0; 4096];
        text[3..11].copy_from_slice(b"NTFS    ");
        std::fs::write(&disk, text).unwrap();
        for line in [format!("d {one} -o dev={disk}"), format!("d --disk={disk} {one} {two}")] {
            assert_eq!(found(format!("{line} {dir}")).unwrap(), Path::new(&disk), "{line}");
        }
        for line in [format!("{one} {dir}"), format!("d {one} {two} {dir}")] {
            assert!(found(line).unwrap_err().to_string().contains("--image"));
        }
        let typo = found(format!("d -f -o fakeroot /no/such.img {dir}")).unwrap_err().to_string();
        assert!(typo.contains("/no/such.img does not exist"), "{typo}");
    }
}
