//! Carrying out what a dead generation had committed: by the next generation, before any code of the
//! daemon runs, or by the supervisor, if no generation is to come. The one module here that makes
//! system calls.

use crate::area::{Area, Image, Tally};
use crate::log::{Log, TORN};
use crate::overlay::Overlay;
use belay_recorder::{Memory, Slot, SlotState, Store};
use belay_sys::Mapping;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Carries out what is committed, and drops what is not, of all requests of a dead generation. Doing so
/// again changes nothing, so it may die at any point. Gives how many transactions there were.
///
/// # Errors
/// If something committed cannot be carried out. It stays in place.
pub fn finish<M: Memory + AsRef<Mapping>>(store: &Store<M>) -> Result<usize, String> {
    let memory = store.memory();
    let area = Area::new(memory, *store.layout());
    let mut committed: Vec<Log<'_, M>> = Vec::new();
    let own = area.own_log();
    if Area::is_committed(&own, own.unique(), false) {
        committed.push(own);
    } else {
        own.drop();
    }
    let mut slots = Vec::new();
    for (slot, request) in store.slot_requests() {
        let log = area.log(slot);
        let replied = request.state == SlotState::Replied;
        if Area::is_committed(&log, request.unique, replied) {
            committed.push(log);
            slots.push(slot);
        }
    }
    // The slot of a request whose answer is not recorded is free before that is given to the kernel.
    for slot in (0..store.slots_used()).map(Slot).filter(|slot| !slots.contains(slot)) {
        let log = area.log(slot);
        if Area::is_committed(&log, log.unique(), false) {
            committed.push(log);
        }
    }
    // What one that was too long had collected is in the image since then, and part of it may have been
    // written over, past the log.
    committed.retain(|log| log.used() > 0 && log.flags() & TORN == 0);
    if committed.is_empty() {
        return Ok(0);
    }
    let image = area.image().ok_or("a transaction was committed, and its image is not known")?;
    let file = open(&image)?;
    for log in &committed {
        let (entries, whole) = log.entries();
        if !whole {
            return Err(format!("the record of a transaction on {} is spoilt", shown(&image)));
        }
        let mut overlay = Overlay::default();
        for entry in &entries {
            overlay.take(log, entry);
        }
        write_runs(memory.as_ref(), file.as_fd(), &mut overlay).map_err(|why| {
            format!("cannot finish a committed transaction on {}: {why}", shown(&image))
        })?;
        log.drop();
        area.count(Tally::Finished);
    }
    Ok(committed.len())
}

/// Opens the image, if it still is the file that it was.
fn open(image: &Image) -> Result<OwnedFd, String> {
    let path = Path::new(OsStr::from_bytes(&image.path));
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|why| format!("cannot open the image {}: {why}", shown(image)))?;
    let stat = rustix::fs::fstat(&file).map_err(|why| why.to_string())?;
    let same = if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
        stat.st_rdev == image.device
    } else {
        (stat.st_dev, stat.st_ino) == (image.device, image.inode)
    };
    if same { Ok(file) } else { Err(format!("{} is not the image that it was", shown(image))) }
}

fn shown(image: &Image) -> String {
    String::from_utf8_lossy(&image.path).into_owned()
}

/// Writes a transaction's runs to the image, and makes them durable if that was asked for.
///
/// # Errors
/// Those of pwritev(2) and fsync(2).
pub fn write_runs(
    memory: &Mapping,
    file: BorrowedFd<'_>,
    overlay: &mut Overlay,
) -> Result<(), Errno> {
    let mut pieces = std::mem::take(&mut overlay.pieces);
    let mut next = 0;
    while let Some(mut at) = overlay.run(&mut next, &mut pieces) {
        while !pieces.is_empty() {
            match memory.write_to(file, at, &pieces).map_err(Errno::from_raw_os_error) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => {
                    at += written as u64;
                    advance(&mut pieces, written);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    overlay.pieces = pieces;
    if overlay.sync { rustix::fs::fsync(file) } else { Ok(()) }
}

/// Drops the first `written` bytes.
fn advance(pieces: &mut Vec<(usize, usize)>, mut written: usize) {
    while let Some(first) = pieces.first_mut() {
        if written < first.1 {
            first.0 += written;
            first.1 -= written;
            return;
        }
        written -= first.1;
        pieces.remove(0);
    }
}
