//! What a journal that was found holds, and what is done with it.

use super::commit::{cut, finish_length};
use super::error::{AGAIN, Error, IMAGE, JOURNAL, io};
use super::filesystem;
use super::format::{ENTRY, Header, Parsed, TABLE, TABLE_PIECE, parse_entry};
use super::mark::{check_trust, inspect_header, mark_empty};
use super::progress::{PIECE, Progress, Stage};
use super::storage::{Metadata, Storage};
use crate::overlay::FURTHEST;
use std::io;

/// An image may have been written to for so long after its journal was, by the commit itself.
const SLACK_SECONDS: i64 = 120;

/// What a journal holds that has a right check value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The number of the epoch.
    pub epoch: u64,
    /// Runs of the image that are written.
    pub runs: u64,
    /// Bytes of them all.
    pub bytes: u64,
    /// The image's length afterwards.
    pub length: u64,
    /// The image's inode number.
    pub inode: u64,
    /// The number of the image's device at that time.
    pub device: u64,
}

/// What was found in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Empty,
    /// A commit that did not get as far as the image: the image is at the checkpoint before.
    Torn,
    /// A commit that may have got to the image in part.
    Whole(Contents),
}

/// What was done with a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// It held nothing.
    Nothing,
    /// It was dropped, as it was not whole: the image is at the checkpoint before.
    Dropped,
    /// It was dropped, as was asked for, though it was whole: the image may be in between.
    Discarded(Contents),
    /// It was applied: the image is at its checkpoint.
    Applied(Contents),
}

/// What may be done that is not done by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Apply a journal that seems to belong to another image, or to an earlier state of it.
    pub force: bool,
    /// Drop the journal, whatever it holds.
    pub discard: bool,
}

/// Looks at a journal, and changes nothing. `progress` hears of a long one.
///
/// # Errors
/// Those of the file, or if it is no journal.
pub fn inspect<F: Storage>(
    journal: &F,
    progress: &mut dyn FnMut(Progress),
) -> Result<Found, Error> {
    Ok(match inspect_header(journal)? {
        Parsed::Whole(header, check) if is_whole(journal, &header, check, progress)? => {
            Found::Whole(header.contents())
        }
        Parsed::Empty | Parsed::Blank => Found::Empty,
        _ => Found::Torn,
    })
}

/// What [`recover()`] would do; nothing is changed.
///
/// # Errors
/// Those of the files, or if the journal would be refused.
pub fn plan<F: Storage>(
    journal: &F,
    image: &F,
    how: How,
    progress: &mut dyn FnMut(Progress),
) -> Result<Recovered, Error> {
    judge(journal, image, how, progress).map(|(done, _)| done)
}

/// Puts right what a power failure has left of a commit: afterwards the image is at a checkpoint,
/// durably, and the journal empty, durably. It may be cut off anywhere, and done again.
///
/// # Errors
/// Those of the files, or if the journal is refused; nothing was changed then, unless a write
/// failed.
pub fn recover<F: Storage>(
    journal: &F,
    image: &F,
    how: How,
    progress: &mut dyn FnMut(Progress),
) -> Result<Recovered, Error> {
    let (done, header) = judge(journal, image, how, progress)?;
    if done == Recovered::Nothing {
        return Ok(done);
    }
    if let Some((header, check, metadata)) = header {
        // As if the journal were new: what is written to the image from here on is not a
        // stranger's, should this be cut off.
        journal.write_at(0, &header.encode(check)).and_then(|()| journal.sync()).map_err(io(
            "write the journal",
            journal,
            JOURNAL,
        ))?;
        apply(journal, image, &header, &metadata, progress)?;
    }
    mark_empty(journal)?;
    journal.sync().map_err(io("make durable", journal, JOURNAL))?;
    Ok(done)
}

/// What a journal says that is to be applied: its header with the check value, and the image as it
/// is.
type Applicable = (Header, u128, Metadata);

/// What is to be done with a journal; if it is to be applied, what it says.
fn judge<F: Storage>(
    journal: &F,
    image: &F,
    how: How,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Recovered, Option<Applicable>), Error> {
    let parsed = match inspect_header(journal) {
        Ok(parsed) => parsed,
        Err(Error::Version { .. }) if how.discard => Parsed::Torn,
        Err(why) => return Err(why),
    };
    let metadata = image.metadata().map_err(io("look at the image", image, IMAGE))?;
    // Whatever it holds: a stranger's is not removed either.
    if !how.force && !how.discard {
        check_trust(journal, metadata.owner)?;
    }
    Ok(match parsed {
        Parsed::Empty | Parsed::Blank => (Recovered::Nothing, None),
        Parsed::Whole(header, check) if is_whole(journal, &header, check, progress)? => {
            if how.discard {
                (Recovered::Discarded(header.contents()), None)
            } else {
                check_identity(journal, image, &header, &metadata, how.force)?;
                (Recovered::Applied(header.contents()), Some((header, check, metadata)))
            }
        }
        _ => (Recovered::Dropped, None),
    })
}

impl Header {
    fn contents(&self) -> Contents {
        let Self { epoch, count: runs, bytes, length, inode, device, .. } = *self;
        Contents { epoch, runs, bytes, length, inode, device }
    }
}

/// Whether the journal is what the commit that began with this header has written. Of what the
/// header says, nothing is believed before.
fn is_whole<F: Storage>(
    journal: &F,
    header: &Header,
    check: u128,
    progress: &mut dyn FnMut(Progress),
) -> Result<bool, Error> {
    let file = journal.metadata().map_err(io("look at the journal", journal, JOURNAL))?.length;
    let Some((data, end)) = header.data().filter(|(_, end)| *end <= file) else { return Ok(false) };
    if header.length > FURTHEST
        || header.start > FURTHEST
        || header.cut > header.length.min(header.start)
    {
        return Ok(false);
    }
    let mut hasher = header.hasher();
    let mut table = Table::new(journal, header);
    while let Some(piece) = table.piece().map_err(io("read the journal", journal, JOURNAL))? {
        hasher.update(piece);
        if !table.check() {
            return Ok(false);
        }
    }
    if table.bytes != header.bytes {
        return Ok(false);
    }
    let mut piece = vec![0; PIECE];
    let mut at = data;
    while at < end {
        let n = (end - at).min(PIECE as u64) as usize;
        let piece = piece.get_mut(..n).unwrap_or_default();
        read(journal, at, piece).map_err(io("read the journal", journal, JOURNAL))?;
        hasher.update(piece);
        at += n as u64;
        progress(Progress { stage: Stage::Check, done: at - data, total: header.bytes });
    }
    Ok(hasher.digest128() == check)
}

/// Writes what is in the journal to the image.
fn apply<F: Storage>(
    journal: &F,
    image: &F,
    header: &Header,
    metadata: &Metadata,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let Some((mut at, _)) = header.data() else { return Ok(()) };
    cut(image, metadata, header).map_err(io("cut the image", image, AGAIN))?;
    let total = header.bytes;
    let mut table = Table::new(journal, header);
    let mut buffer = vec![0; PIECE];
    let mut done = 0;
    while table.piece().map_err(io("read the journal", journal, JOURNAL))?.is_some() {
        // Checked once more: it is read once more.
        if !table.check() {
            return Err(Error::Io {
                doing: "read the journal",
                what: journal.name(),
                why: io::ErrorKind::InvalidData.into(),
                next: "somebody has changed it meanwhile: start again",
            });
        }
        for (offset, len) in table.runs() {
            let mut within = 0;
            while within < len {
                let n = (len - within).min(PIECE as u64) as usize;
                let piece = buffer.get_mut(..n).unwrap_or_default();
                read(journal, at, piece).map_err(io("read the journal", journal, JOURNAL))?;
                image.write_at(offset + within, piece).map_err(io(
                    "write the image",
                    image,
                    AGAIN,
                ))?;
                within += n as u64;
                at += n as u64;
            }
            done += len;
            progress(Progress { stage: Stage::Image, done, total });
        }
    }
    finish_length(image, header).and_then(|()| image.sync()).map_err(io(
        "make durable",
        image,
        AGAIN,
    ))
}

/// Whether the journal is of this image, and of how it is now.
fn check_identity<F: Storage>(
    journal: &F,
    image: &F,
    header: &Header,
    metadata: &Metadata,
    force: bool,
) -> Result<(), Error> {
    if metadata.is_device && metadata.length < header.length {
        return Err(Error::Misfit {
            what: format!("checkpoint {} in {}", header.epoch, journal.name()),
            image: image.name(),
            why: format!("it reaches to {}, the device to {}", header.length, metadata.length),
            next: "name the device that it belongs to",
        });
    }
    if force {
        return Ok(());
    }
    let foreign = |why| Err(Error::Foreign { journal: journal.name(), image: image.name(), why });
    if metadata.is_lasting && header.inode != 0 && metadata.inode != header.inode {
        return foreign(format!(
            "that one had inode {}, this one has {}",
            header.inode, metadata.inode
        ));
    }
    if !(header.cut..=header.length.max(header.start)).contains(&metadata.length) {
        return foreign(format!(
            "that one had {} bytes, this one has {}",
            header.start, metadata.length
        ));
    }
    let number = filesystem::number(image).map_err(io("read the image", image, IMAGE))?;
    if header.number != 0 && number != header.number {
        return foreign("that one's file system had another UUID or serial number".to_owned());
    }
    let written = journal.metadata().map_err(io("look at the journal", journal, JOURNAL))?.modified;
    let seconds = metadata.modified.saturating_sub(written);
    if metadata.is_dated && seconds > SLACK_SECONDS {
        return Err(Error::Changed { journal: journal.name(), image: image.name(), seconds });
    }
    Ok(())
}

/// The table of a journal, a piece at a time: nothing is allocated by what it says.
struct Table<'f, F> {
    journal: &'f F,
    /// Bytes left, of those that the header says.
    left: u64,
    at: u64,
    length: u64,
    piece: [u8; TABLE_PIECE],
    have: usize,
    /// Where the last run that was checked ends, and the bytes of all of them.
    end: u64,
    bytes: u64,
}

impl<'f, F: Storage> Table<'f, F> {
    fn new(journal: &'f F, header: &Header) -> Self {
        let left = header.count.saturating_mul(ENTRY as u64);
        let (at, length) = (TABLE, header.length);
        let piece = [0; TABLE_PIECE];
        Self { journal, left, at, length, piece, have: 0, end: 0, bytes: 0 }
    }

    /// Reads the next piece.
    fn piece(&mut self) -> io::Result<Option<&[u8]>> {
        self.have = self.left.min(TABLE_PIECE as u64) as usize;
        let piece = self.piece.get_mut(..self.have).unwrap_or_default();
        read(self.journal, self.at, piece)?;
        self.at += self.have as u64;
        self.left -= self.have as u64;
        Ok((self.have > 0).then_some(piece))
    }

    /// The runs in this piece.
    fn runs(&self) -> impl Iterator<Item = (u64, u64)> + use<'_, F> {
        let (entries, _) = self.piece.get(..self.have).unwrap_or_default().as_chunks::<ENTRY>();
        entries.iter().map(parse_entry)
    }

    /// Whether the runs in this piece follow those before, and lie within the image.
    fn check(&mut self) -> bool {
        let (mut last, mut bytes) = (self.end, self.bytes);
        for (offset, len) in self.runs() {
            let end = offset.checked_add(len).filter(|end| *end <= self.length);
            let Some(end) = end.filter(|end| *end > offset && offset >= last) else { return false };
            last = end;
            bytes += len; // no more than `length`, as they do not overlap
        }
        (self.end, self.bytes) = (last, bytes);
        true
    }
}

/// Reads all of `out`.
fn read<F: Storage>(file: &F, at: u64, out: &mut [u8]) -> io::Result<()> {
    if file.read_at(at, out)? == out.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
