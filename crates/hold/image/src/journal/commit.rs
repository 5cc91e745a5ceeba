//! A sealed epoch on its way to the journal, then to the image.

use super::error::{AGAIN, Error, IMAGE, JOURNAL, io};
use super::filesystem;
use super::format::{self, ENTRY, Header, TABLE};
use super::mark::check_trust;
use super::progress::{PIECE, Progress, Stage};
use super::storage::{Metadata, Source, Storage};
use crate::overlay::{FURTHEST, Run, Sealed};

/// Pieces of memory that one call writes: as many as pwritev(2) is given.
const PIECES: usize = 64;

/// Brings a sealed epoch to the image, durably. When this is done the caller notes it
/// ([`crate::Overlay::set_committed`]), then calls [`super::mark_empty`].
///
/// It may be done again, from the start, if it or its process has failed anywhere: it is done all
/// over.
///
/// # Errors
/// Those of the files, or if the image cannot hold the epoch. The epoch is not committed.
pub fn commit<F: Storage, S: Source<F>>(
    journal: &F,
    image: &F,
    source: &S,
    sealed: &Sealed,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    if sealed.is_empty() {
        return Ok(());
    }
    let metadata = image.metadata().map_err(io("look at the image", image, IMAGE))?;
    check_fit(sealed, image, &metadata)?;
    let header = Header {
        epoch: sealed.epoch,
        device: metadata.device,
        inode: if metadata.is_lasting { metadata.inode } else { 0 },
        // An earlier try may have changed the length, and that may not last.
        start: sealed.start.max(metadata.length),
        cut: sealed.cut.min(metadata.length),
        length: sealed.length,
        count: merged(&sealed.runs).count() as u64,
        bytes: sealed.bytes(),
        number: filesystem::number(image).map_err(io("read the image", image, IMAGE))?,
    };
    progress(Progress { stage: Stage::Journal, done: 0, total: header.bytes });
    check_trust(journal, metadata.owner)?;
    write_journal(journal, source, &header, &sealed.runs, progress)
        .and_then(|()| journal.sync())
        .map_err(io("write the journal", journal, JOURNAL))?;
    progress(Progress { stage: Stage::Image, done: 0, total: header.bytes });
    write_image(image, source, &header, &metadata, &sealed.runs, progress)
        .and_then(|()| image.sync())
        .map_err(io("write the image", image, AGAIN))
}

fn check_fit<F: Storage>(sealed: &Sealed, image: &F, metadata: &Metadata) -> Result<(), Error> {
    let misfit = |why: String| Error::Misfit {
        what: format!("checkpoint {}", sealed.epoch),
        image: image.name(),
        why,
        next: "unmount, and check the image with its own tool",
    };
    let mut end = 0;
    let in_order = sealed.runs.iter().all(|run| {
        let sound = run.len > 0 && run.offset >= end;
        end = run.offset.saturating_add(run.len as u64);
        sound && end <= sealed.length
    });
    if !in_order || sealed.length > FURTHEST || sealed.cut > sealed.length.min(sealed.start) {
        return Err(misfit("its table is corrupt".to_owned()));
    }
    if metadata.is_device && (sealed.length != metadata.length || sealed.cut != metadata.length) {
        let lengths = (metadata.length, sealed.length);
        return Err(misfit(format!(
            "a device has {} bytes, and cannot have {}",
            lengths.0, lengths.1
        )));
    }
    Ok(())
}

/// The runs as the image sees them: those that follow each other there are one.
fn merged(runs: &[Run]) -> impl Iterator<Item = (u64, u64)> {
    let mut runs = runs.iter().peekable();
    std::iter::from_fn(move || {
        let first = runs.next()?;
        let mut end = first.offset.saturating_add(first.len as u64);
        while let Some(run) = runs.next_if(|run| run.offset == end) {
            end = end.saturating_add(run.len as u64);
        }
        Some((first.offset, end - first.offset))
    })
}

/// Writes table, data and header. The data are copied once, so that what is checked is what is
/// written, whoever else can write to the memory.
fn write_journal<F: Storage, S: Source<F>>(
    journal: &F,
    source: &S,
    header: &Header,
    runs: &[Run],
    progress: &mut dyn FnMut(Progress),
) -> std::io::Result<()> {
    let mut hasher = header.hasher();
    let mut piece = Vec::with_capacity(PIECE);
    let mut at = TABLE;
    let mut flush = |at: &mut u64, piece: &mut Vec<u8>| {
        hasher.update(piece);
        journal.write_at(*at, piece)?;
        *at += piece.len() as u64;
        piece.clear();
        std::io::Result::Ok(())
    };
    for (offset, len) in merged(runs) {
        piece.extend_from_slice(&format::entry(offset, len));
        if piece.len() + ENTRY > PIECE {
            flush(&mut at, &mut piece)?;
        }
    }
    flush(&mut at, &mut piece)?;
    let Some((data, _)) = header.data() else {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    };
    at = data;
    for run in runs {
        let mut done = 0;
        while done < run.len {
            let (have, more) = (piece.len(), (run.len - done).min(PIECE - piece.len()));
            piece.resize(have + more, 0);
            source.load(run.from.saturating_add(done), piece.get_mut(have..).unwrap_or_default());
            done += more;
            if piece.len() == PIECE {
                flush(&mut at, &mut piece)?;
                progress(Progress { stage: Stage::Journal, done: at - data, total: header.bytes });
            }
        }
    }
    flush(&mut at, &mut piece)?;
    journal.write_at(0, &header.encode(hasher.digest128()))?;
    progress(Progress { stage: Stage::Journal, done: header.bytes, total: header.bytes });
    Ok(())
}

/// Writes the runs straight from the memory, and gives the image its length.
fn write_image<F: Storage, S: Source<F>>(
    image: &F,
    source: &S,
    header: &Header,
    metadata: &Metadata,
    runs: &[Run],
    progress: &mut dyn FnMut(Progress),
) -> std::io::Result<()> {
    cut(image, metadata, header)?;
    let mut pieces: Vec<(usize, usize)> = Vec::with_capacity(PIECES);
    let mut rest = runs.iter().flat_map(split).peekable();
    let mut done = 0;
    while let Some(first) = rest.next() {
        let (mut at, mut end) = (first.offset, first.offset + first.len as u64);
        pieces.push((first.from, first.len));
        while pieces.len() < PIECES
            && end - at < PIECE as u64
            && let Some(run) = rest.next_if(|run| run.offset == end)
        {
            pieces.push((run.from, run.len));
            end += run.len as u64;
        }
        done += end - at;
        while !pieces.is_empty() {
            match source.write_to(image, at, &pieces) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    advance(&mut pieces, written);
                }
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        progress(Progress { stage: Stage::Image, done, total: header.bytes });
    }
    finish_length(image, header)
}

/// A run in pieces of a size after which progress can be told.
fn split(run: &Run) -> impl Iterator<Item = Run> {
    let Run { offset, from, len } = *run;
    (0..len).step_by(PIECE).map(move |at| Run {
        offset: offset + at as u64,
        from: from.saturating_add(at),
        len: (len - at).min(PIECE),
    })
}

/// Cuts an image, before its first write.
pub(super) fn cut<F: Storage>(
    image: &F,
    metadata: &Metadata,
    header: &Header,
) -> std::io::Result<()> {
    let longer = metadata.length > header.cut && !metadata.is_device;
    if longer { image.set_len(header.cut) } else { Ok(()) }
}

/// Gives an image its length, behind its last write.
pub(super) fn finish_length<F: Storage>(image: &F, header: &Header) -> std::io::Result<()> {
    let metadata = image.metadata()?;
    let right = metadata.length == header.length || metadata.is_device;
    if right { Ok(()) } else { image.set_len(header.length) }
}

/// Drops the first `written` bytes.
fn advance(pieces: &mut Vec<(usize, usize)>, mut written: usize) {
    let mut whole = 0;
    for piece in pieces.iter_mut() {
        if written < piece.1 {
            piece.0 += written;
            piece.1 -= written;
            break;
        }
        written -= piece.1;
        whole += 1;
    }
    pieces.drain(..whole);
}
