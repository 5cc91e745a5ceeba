//! The memory of the cache: a file that outlives all processes, made by the cache's, and opened by
//! the module's.

use crate::place::Place;
use anyhow::{Context, Result, bail, ensure};
use belay_cache::layout::{CELL, ENTRY, FRAME, MAGIC};
use belay_cache::mount::is_of_another_version;
use belay_cache::{Capacity, Layout, Shared};
use belay_sys::Mapping;
use rustix::fs::{FallocateFlags, fallocate};
use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

/// The memory, as processes share it.
pub type Memory = Shared<Arc<Mapping>>;

/// Where the file says how much it holds: the last two words.
const TAIL: u64 = 16;

/// The most that a cache can hold.
const MOST_FRAMES: u32 = 1 << 22;

/// Of each frame: a page, its entry in the table, half a slot, and a cell with its entry.
const EACH: u64 = (FRAME + ENTRY + CELL) as u64 * 8 + 4 + 8;

/// Bytes that a cache can use, in whole GiB.
pub const MOST: u64 = (MOST_FRAMES as u64 * EACH) >> 30 << 30;

/// What fits into so many bytes.
pub fn capacity(bytes: u64) -> Capacity {
    let frames = u32::try_from(bytes / EACH).unwrap_or(MOST_FRAMES).clamp(1024, MOST_FRAMES);
    Capacity { frames, slots: frames / 2 }
}

/// Opens the memory; `None` if there is none.
///
/// # Errors
/// If it cannot be opened, or is not what it should be.
pub fn open(place: &Place) -> Result<Option<Memory>> {
    let path = place.memory();
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(|| format!("cannot open {}", path.display()))?,
    };
    let length = file.metadata()?.len();
    // First of all, as it may be longer or shorter.
    let mut magic = [0; 8];
    if file.read_exact_at(&mut magic, MAGIC as u64 * 8).is_ok()
        && is_of_another_version(u64::from_ne_bytes(magic))
    {
        bail!(
            "what a mount of the volume has left in {} is another version's of belay, or damaged: mount the volume with that version, \
             and unmount it",
            path.display()
        );
    }
    let mut tail = [0; TAIL as usize];
    let read = length.checked_sub(TAIL).map(|at| file.read_exact_at(&mut tail, at));
    // Nobody else writes there. What is in it is lost.
    let damaged = || {
        let path = path.display();
        format!(
            "what a mount of the volume has left in {path} is damaged: remove it to mount the volume without"
        )
    };
    let Some(Ok(())) = read else { bail!("{}", damaged()) };
    let (frames, slots) = tail.split_at(8);
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    let (frames, slots) = (word(frames), word(slots));
    let fits = |number: u64| u32::try_from(number).ok().filter(|number| *number <= MOST_FRAMES);
    let (Some(frames), Some(slots)) = (fits(frames), fits(slots)) else { bail!("{}", damaged()) };
    let layout = Layout::new(Capacity { frames, slots });
    ensure!(length == layout.words as u64 * 8 + TAIL, "{}", damaged());
    Ok(Some(map(&file, layout)?))
}

/// What an earlier mount has left in the memory, and what becomes of it at the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing that is not on the stores.
    Nothing,
    /// So many transactions, with which it goes on.
    Unsaved(u64),
    /// What the stores know nothing of: they were changed since without it. It is refused.
    Stale,
    /// Something that cannot be read, why, and what to do. It is refused.
    Damaged(String),
}

/// What is left in the memory, if the stores have that checkpoint, which reaches up to a
/// transaction.
pub fn left(place: &Place, epoch: u64, upto: u64) -> Leftover {
    match open(place) {
        Ok(Some(memory)) => left_in(&memory, place, epoch, upto),
        Ok(None) => Leftover::Nothing,
        Err(why) => Leftover::Damaged(format!("{why:#}")),
    }
}

/// The same of a memory that is open.
fn left_in(memory: &Memory, place: &Place, epoch: u64, upto: u64) -> Leftover {
    if !memory.is_valid() || memory.is_empty() {
        return Leftover::Nothing;
    }
    if !memory.comes_after(epoch, upto) {
        return Leftover::Stale;
    }
    match memory.read_all::<Infallible>() {
        Ok(number) => Leftover::Unsaved(number),
        Err(why) => Leftover::Damaged(format!(
            "{}: {why}; remove it to mount the volume without",
            place.memory().display()
        )),
    }
}

/// A mount goes on with what an earlier one has left, or with a new memory if that is nothing to
/// the stores, which have that checkpoint, and up to which transaction it reaches.
///
/// # Errors
/// If something is left that is of no use to them, or cannot be read.
pub(crate) fn go_on_with(
    memory: Memory,
    place: &Place,
    capacity: Capacity,
    (epoch, upto): (u64, u64),
) -> Result<Memory> {
    match left_in(&memory, place, epoch, upto) {
        Leftover::Unsaved(_) => Ok(memory),
        Leftover::Nothing if memory.comes_after(epoch, upto) => Ok(memory),
        Leftover::Nothing => {
            remove(place)?;
            open_or_make(place, capacity)
        }
        // No checkpoint could ever be taken.
        Leftover::Damaged(why) => {
            bail!("what was written to the volume before its last end cannot be read: {why}")
        }
        Leftover::Stale => bail!(
            "what was written to the volume before its last end is in {}, and the stores were changed since without it: by a mount of \
             another user or machine, or an older copy of them was put back. What is in that file is of no use to them; remove it to \
             mount the volume without",
            place.memory().display()
        ),
    }
}

/// Whether there may be something in the memory that is not on the stores.
pub fn has_unsaved(place: &Place) -> bool {
    match open(place) {
        Ok(Some(memory)) => memory.is_valid() && !memory.is_empty(),
        Ok(None) => false,
        Err(_) => true,
    }
}

fn map(file: &File, layout: Layout) -> Result<Memory> {
    let mapping =
        Mapping::new(file.as_fd(), layout.words * 8).context("cannot map the cache's memory")?;
    Ok(Shared::new(Arc::new(mapping), layout))
}

/// Opens the memory, or makes one of zeros. All of its room is taken at once: there would be no
/// error later, but a signal.
///
/// # Errors
/// If there is no room, or as for [`open`].
pub fn open_or_make(place: &Place, capacity: Capacity) -> Result<Memory> {
    if let Some(found) = open(place)? {
        return Ok(found);
    }
    let path = place.memory();
    let new = path.with_extension("new");
    let layout = Layout::new(capacity);
    let bytes = layout.words as u64 * 8;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(&new).with_context(|| format!("cannot make {}", new.display()))?;
    let made = fallocate(&file, FallocateFlags::empty(), 0, bytes + TAIL);
    if let Err(why) = made {
        let _ = fs::remove_file(&new);
        return Err(why).with_context(|| {
            format!(
                "cannot take {} MiB of memory in {}: mount the volume with a smaller --memory",
                bytes >> 20,
                place.path().display()
            )
        });
    }
    let words = [u64::from(capacity.frames), u64::from(capacity.slots)];
    for (at, word) in (bytes..).step_by(8).zip(words) {
        file.write_all_at(&word.to_ne_bytes(), at)?;
    }
    fs::rename(&new, &path)?;
    map(&file, layout)
}

/// Removes the memory. Nothing of it is needed any more.
///
/// # Errors
/// Those of unlink(2).
pub fn remove(place: &Place) -> Result<()> {
    match fs::remove_file(place.memory()) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => Ok(done?),
    }
}

/// Removes the folder of a volume that nobody mounts, if nothing in its memory is needed any more;
/// false if it stays.
///
/// # Errors
/// Those of the system calls.
pub fn clear(place: &Place) -> Result<bool> {
    let Some(_held) = place.hold()? else { return Ok(false) };
    if has_unsaved(place) || place.any_holder()?.is_some() {
        return Ok(false);
    }
    let path = place.path();
    fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Role;

    #[test]
    fn a_folder_is_removed_only_when_nobody_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("place");
        fs::create_dir(&path).unwrap();
        let place = Place::at(&path).unwrap();
        let held = place.hold().unwrap().unwrap();
        assert!(!clear(&place).unwrap(), "it is mounted");
        drop(held);
        let small = Capacity { frames: 1024, slots: 512 };
        open_or_make(&place, small).unwrap().set_valid();
        assert!(!clear(&place).unwrap(), "it may have what is nowhere else");
        remove(&place).unwrap();
        fs::write(place.report(Role::Store), "").unwrap();
        let opened = place.open_hold().unwrap();
        assert!(clear(&place).unwrap());
        assert!(!path.exists());
        // Who has just opened the lock of what was removed.
        drop(opened);
        assert!(place.hold().is_err());
    }

    #[test]
    fn it_is_found_again_and_rubbish_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::at(dir.path()).unwrap();
        assert!(open(&place).unwrap().is_none());
        let small = Capacity { frames: 1024, slots: 512 };
        open_or_make(&place, small).unwrap().set_valid();
        // What is there stays, whatever is asked for.
        let again = open_or_make(&place, Capacity { frames: 2048, slots: 512 }).unwrap();
        assert!(again.is_valid());
        assert!(open(&place).unwrap().unwrap().is_valid());
        let file = OpenOptions::new().write(true).open(place.memory()).unwrap();
        let length = file.metadata().unwrap().len();
        file.write_all_at(&u64::MAX.to_ne_bytes(), length - 16).unwrap();
        assert!(open(&place).is_err());
        file.set_len(7).unwrap();
        assert!(open(&place).is_err());
        remove(&place).unwrap();
        assert!(open(&place).unwrap().is_none());
        remove(&place).unwrap();
    }
}
