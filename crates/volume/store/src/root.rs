//! Which checkpoints a disk has.
//!
//! A root is in two places, and that of the next checkpoint in two others. Each says what it is,
//! and checks itself. So one that was half written, or was lost in one place, leaves the other one,
//! or the checkpoint before.

use crate::blocks;
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::geometry::{DataMode, Geometry, Parameters};
use crate::intent;
use crate::layout::{self, Kind, MAGIC, MEMBERS, Made, Root, VERSION};
use belay_disk::{BLOCK, Block, Disk, ZEROS};

/// Blocks that a log has at most.
const MOST_LOG: u64 = 4096;
/// No checkpoint has a number that is near this.
const MOST_EPOCH: u64 = 1 << 62;

/// What a store is, and which volume it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The volume.
    pub volume: [u8; 16],
    /// The store.
    pub store: [u8; 16],
    /// All stores of the volume; at most 32.
    pub members: Vec<[u8; 16]>,
}

/// A checkpoint that is on a disk.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Which one it is.
    pub epoch: u64,
    /// The one before.
    pub previous: u64,
    /// Whose it is.
    pub identity: Identity,
    /// Where everything is.
    pub geometry: Geometry,
    /// In how many of its two places its root is whole.
    pub copies: usize,
    pub(crate) block: Box<Block>,
}

impl Checkpoint {
    /// What the layer above kept in its root ([`crate::Store::label`]).
    pub fn label(&self) -> [u8; 256] {
        layout::read::<Root>(&self.block, 0).label
    }
}

/// What is in a place for a root.
enum Found {
    /// A root.
    Root(Box<Checkpoint>),
    /// One that is wrong, or was half written.
    Broken,
    /// Something else, or nothing.
    Nothing,
}

/// The checkpoints that a store can be opened at: the newest first, and the one before it, if that
/// is still there. The latter can be opened only as long as nothing was written after the newest.
///
/// # Errors
/// [`Error::NoStore`] if there is none, with why; those of the disk, if it cannot be read which one
/// is the newest.
pub fn checkpoints(disk: &impl Disk) -> Result<Vec<Checkpoint>> {
    let mut found: Vec<Checkpoint> = Vec::new();
    let (mut broken, mut last) = (false, None);
    let (mut unread, mut decided) = (Vec::new(), Vec::new());
    let blocks = disk.blocks();
    let mut places = vec![1, 2, blocks.saturating_sub(1), blocks.saturating_sub(2)];
    let mut at = 0;
    places.retain(|place| *place < blocks);
    while let Some(&place) = places.get(at) {
        at += 1;
        match look(disk, place) {
            Ok(Found::Root(one)) => {
                decided.push(place);
                // On a disk that has become larger, the end is elsewhere.
                for end in
                    one.geometry.root_places(0).into_iter().chain(one.geometry.root_places(1))
                {
                    if !places.contains(&end) && end < blocks {
                        places.push(end);
                    }
                }
                match found.iter_mut().find(|other| other.epoch == one.epoch) {
                    Some(other) if other.block == one.block => other.copies += 1,
                    Some(_) => return Err(two()),
                    None => found.push(*one),
                }
            }
            Ok(Found::Broken) => broken = true,
            Ok(Found::Nothing) => decided.push(place),
            Err(error @ Error::NoStore(_)) => return Err(error),
            Err(error) => {
                last = Some(error);
                unread.push(place);
            }
        }
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.epoch));
    let Some(newest) = found.first() else {
        return Err(match (last, broken) {
            (Some(error), _) => error,
            (None, true) => Error::NoStore(
                "each root of the store is damaged: the data are there, and cannot be found".into(),
            ),
            (None, false) => Error::NoStore("there is no store of a belay volume on it".into()),
        });
    };
    // A later one was in both of its places before anybody was told of it: whichever can be read
    // tells whether there is one.
    let next = newest.geometry.root_places(newest.epoch + 1);
    let is_open = next.iter().any(|place| unread.contains(place))
        && !next.iter().any(|place| decided.contains(place));
    if let (true, Some(error)) = (is_open, last) {
        return Err(error);
    }
    let (previous, checksum) = (newest.previous, previous_checksum(newest));
    let identity = newest.identity.clone();
    let is_before = |one: &Checkpoint| {
        one.epoch == previous
            && one.identity == identity
            && layout::root_checksum(&one.block).0 == checksum
    };
    let newest = newest.epoch;
    found.retain(|one| one.epoch == newest || is_before(one));
    Ok(found)
}

/// What is left of the checkpoint after one that a store is opened at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, or what a failure has left that came between its two copies.
    Nothing,
    /// Neither copy of its root is whole. A power failure has cut off both of them, or they were
    /// damaged since.
    Broken,
    /// Its root is not there, and was durable: something was synced after it. To go back to the
    /// checkpoint before would lose that, and what the lost one had.
    Lost,
}

/// What is left of the checkpoint after this one.
pub fn next(disk: &impl Disk, checkpoint: &Checkpoint) -> Next {
    let epoch = checkpoint.epoch + 1;
    let marked = blocks::read(disk, mark_of(checkpoint)).ok().as_ref().and_then(intent::marked);
    if marked == Some(epoch) {
        return Next::Lost;
    }
    // Where it comes is the root of the checkpoint before this one, but for a new store.
    let is_new = checkpoint.previous == 0;
    let is_right = |place| match look(disk, place) {
        Ok(Found::Root(_)) => true,
        Ok(Found::Nothing) => is_new && blocks::read(disk, place).is_ok_and(|one| one == ZEROS),
        _ => false,
    };
    match checkpoint.geometry.root_places(epoch).into_iter().any(is_right) {
        true => Next::Nothing,
        false => Next::Broken,
    }
}

/// Where the mark is of what was appended after the checkpoint after this one.
fn mark_of(checkpoint: &Checkpoint) -> u64 {
    let root: Root = layout::read(&checkpoint.block, 0);
    let (first, half) = (root.intent_first.get(), root.intent_blocks.get() / 2);
    first + (1 + (checkpoint.epoch + 1) % 2) * half - half.min(1)
}

/// Gives up a checkpoint whose root is lost ([`Next::Lost`]), and what was synced after it: the one
/// before counts from now on.
///
/// # Errors
/// Those of the disk.
pub fn give_up_next(disk: &impl Disk, checkpoint: &Checkpoint) -> Result<()> {
    blocks::write(disk, mark_of(checkpoint), &ZEROS)?;
    blocks::flush(disk)
}

/// Why a store is not opened at a checkpoint before one that is lost.
pub fn lost(checkpoint: &Checkpoint) -> Error {
    let [one, other] = checkpoint.geometry.root_places(checkpoint.epoch + 1);
    Error::NoStore(format!(
        "the root of checkpoint {} is damaged (blocks {one} and {other}), and something was synced after it: the checkpoint before has less",
        checkpoint.epoch + 1
    ))
}

/// Removes the root of a checkpoint after this one, which is gone back to. The next one will have
/// the same epoch, and half of each would be there if the power failed between its two places.
///
/// # Errors
/// Those of the disk.
pub(crate) fn forget_later(disk: &impl Disk, checkpoint: &Checkpoint) -> Result<()> {
    let next = checkpoint.epoch + 1;
    let mut any = false;
    for place in checkpoint.geometry.root_places(next) {
        // What cannot be read now may be the root of one later.
        let is_later = blocks::read(disk, place).map_or(true, |block| {
            let root: Root = layout::read(&block, 0);
            root.magic == MAGIC && root.epoch.get() >= next
        });
        if is_later {
            blocks::write(disk, place, &ZEROS)?;
            any = true;
        }
    }
    if any {
        blocks::flush(disk)?;
    }
    Ok(())
}

/// Writes the root of a checkpoint once more, wherever it is whole. Whoever wrote it may have been
/// told that a flush had failed, after which the system reads as written what is not on the disk,
/// and a later flush does not tell. What it points to was flushed before it.
///
/// # Errors
/// Those of the disk.
pub(crate) fn renew(disk: &impl Disk, checkpoint: &Checkpoint) -> Result<()> {
    for place in checkpoint.geometry.root_places(checkpoint.epoch) {
        match blocks::read(disk, place) {
            Ok(block) if block == *checkpoint.block => blocks::write(disk, place, &block)?,
            // What is damaged stays so until the next checkpoint but one, for a check to find it.
            _ => {}
        }
    }
    blocks::flush(disk)
}

fn previous_checksum(one: &Checkpoint) -> u64 {
    layout::read::<Root>(&one.block, 0).previous_checksum.get()
}

fn two() -> Error {
    Error::NoStore("two roots of one checkpoint differ: parts of two stores are on it".into())
}

/// Whether a log can be there: where blocks of files can be, and nothing else.
fn is_log(geometry: &Geometry, first: u64, blocks: u64) -> bool {
    let end = first.checked_add(blocks).filter(|end| *end <= geometry.grouped);
    let is_free = |end| (first..end).all(|block| !geometry.is_reserved(block));
    blocks <= MOST_LOG && end.is_some_and(is_free)
}

/// Whether what a root counts can be.
fn is_possible(root: &Root, geometry: &Geometry) -> bool {
    let logs = [(root.log_first, root.log_blocks), (root.intent_first, root.intent_blocks)];
    let [one, other] =
        logs.map(|(first, count)| first.get()..first.get().saturating_add(count.get()));
    let is_apart =
        one.is_empty() || other.is_empty() || one.end <= other.start || other.end <= one.start;
    (1..MOST_EPOCH).contains(&root.epoch.get())
        && root.previous.get() < root.epoch.get()
        && root.inode_depth.get() <= layout::DEPTH
        && root.inodes.get() <= 1 << FileId::INODE_BITS
        && root.free_blocks.get() <= geometry.capacity()
        && root.free_pairs.get() <= geometry.pairs()
        && logs.iter().all(|(first, count)| is_log(geometry, first.get(), count.get()))
        && is_apart
}

/// Looks at one place for a root.
fn look(disk: &impl Disk, place: u64) -> Result<Found> {
    let block = Box::new(blocks::read(disk, place)?);
    let root: Root = layout::read(&block, 0);
    if root.magic != MAGIC {
        return Ok(Found::Nothing);
    }
    if layout::root_checksum(&block).0 != root.checksum.get() {
        return Ok(Found::Broken);
    }
    if root.version.get() != VERSION {
        return Err(Error::NoStore(format!(
            "it has version {}; this belay supports only version {VERSION}",
            root.version
        )));
    }
    let made = Made::from_bits_retain(root.made.get());
    let parameters = Parameters {
        twin_offset: root.twin_offset.get().into(),
        group_blocks: root.group_blocks.get().into(),
        frees_at_once: made.contains(Made::FREES_AT_ONCE),
        data: if made.contains(Made::IN_PLACE) { DataMode::InPlace } else { DataMode::OutOfPlace },
    };
    let geometry = Geometry::new(root.blocks.get(), parameters)?;
    if geometry.blocks > disk.blocks() {
        let missing = (geometry.blocks - disk.blocks()) * BLOCK as u64;
        return Err(Error::NoStore(format!("it is cut off: {missing} bytes of it are missing")));
    }
    let epoch = root.epoch.get();
    let count = root.member_count.get() as usize;
    let is_sound = Made::from_bits(root.made.get()).is_some()
        && geometry.blocks == root.blocks.get()
        && geometry.root_places(epoch).contains(&place)
        && count <= MEMBERS
        && is_possible(&root, &geometry)
        && Kind::Root.check(&block, &geometry).is_ok();
    if !is_sound {
        return Ok(Found::Broken);
    }
    let members = root.members.get(..count).unwrap_or_default().to_vec();
    let identity = Identity { volume: root.volume, store: root.store, members };
    let previous = root.previous.get();
    Ok(Found::Root(Box::new(Checkpoint { epoch, previous, identity, geometry, copies: 1, block })))
}
