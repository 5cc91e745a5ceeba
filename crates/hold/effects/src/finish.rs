//! Carrying out what a dead generation had committed: by the next generation, before any code of
//! the daemon runs, or by the supervisor, if no generation is to come. The one module here that
//! makes system calls.
//!
//! Whoever does it may be root, and what it reads the daemon may have written, whatever its rights
//! were by then. So it writes through one descriptor only, which the daemon itself had for writing
//! and has handed over (see [`belay_sys::mailbox`]), and without any privilege: nothing is written
//! in this way that the daemon could not have written. How much there is to do is bounded by what
//! lies in the logs.

use crate::area::{Area, Tally};
use crate::call::Kind;
use crate::log::{Log, TORN};
use crate::write_set::WriteSet;
use belay_memory::Memory;
use belay_recorder::{Slot, SlotState, Store};
use belay_sys::Mapping;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Carries out what is committed, and drops what is not, of all requests of a dead generation.
/// Doing so again changes nothing, so it may die at any point. `image` is what the daemon had for
/// its image, if it had one. Gives how many transactions there were. The calling thread has no
/// privilege meanwhile.
///
/// # Errors
/// If something committed cannot be carried out. It stays in place.
pub fn finish<M: Memory + AsRef<Mapping>>(
    store: &Store<M>,
    image: Option<BorrowedFd<'_>>,
) -> Result<usize, String> {
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
    // The slot of a request whose answer is not recorded is free before that is given to the
    // kernel.
    for slot in (0..store.slots_used()).map(Slot).filter(|slot| !slots.contains(slot)) {
        let log = area.log(slot);
        if Area::is_committed(&log, log.unique(), false) {
            committed.push(log);
        }
    }
    // What one that was too long had collected is in the image since then, and part of it may have
    // been written over, past the log.
    committed.retain(|log| log.used() > 0 && log.flags() & TORN == 0);
    if committed.is_empty() {
        return Ok(0);
    }
    let image = image.ok_or("a transaction was committed, and the daemon had opened no image")?;
    without_privileges(|| {
        for log in &committed {
            write_log(memory.as_ref(), image, log)?;
            log.drop();
            area.count(Tally::Finished);
        }
        Ok(committed.len())
    })
}

/// Calls `act` while the calling thread has no capability in effect.
///
/// A write makes the kernel ask for the rights of who writes, not only for those of who opened the
/// file: root leaves set-uid bits in place, exceeds quotas, and may say things to files of /proc
/// that their opener may not.
fn without_privileges<T>(act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let wrap = |why: Errno| format!("cannot give up privileges to finish a transaction: {why}");
    let had = capabilities(None).map_err(wrap)?;
    if had.effective.is_empty() {
        return act();
    }
    let mut none = had;
    none.effective = CapabilitySet::empty();
    set_capabilities(None, none).map_err(wrap)?;
    let done = act();
    set_capabilities(None, had)
        .map_err(|why| format!("cannot take privileges back after a transaction: {why}"))?;
    done
}

/// Writes what a log holds, in its order.
fn write_log<M: Memory>(
    memory: &Mapping,
    image: BorrowedFd<'_>,
    log: &Log<'_, M>,
) -> Result<(), String> {
    // Looked through before anything is written: all of it, or nothing.
    let (entries, whole) = log.entries();
    if !whole {
        return Err("the record of a committed transaction is corrupt".to_owned());
    }
    let wrap = |why: Errno| format!("cannot finish a committed transaction on the image: {why}");
    let mut sync = false;
    for entry in &entries {
        if entry.kind == Kind::Sync as u32 {
            sync = true;
        } else if entry.kind == Kind::Image as u32 {
            let mut pieces = vec![(log.payload_at(entry), entry.payload)];
            write_pieces(memory, image, entry.digest, &mut pieces).map_err(wrap)?;
        }
    }
    if sync { rustix::fs::fsync(image).map_err(wrap) } else { Ok(()) }
}

/// Writes a transaction's runs to the image, and makes them durable if that was asked for.
///
/// # Errors
/// Those of pwritev(2) and fsync(2).
pub fn write_runs(
    memory: &Mapping,
    file: BorrowedFd<'_>,
    write_set: &mut WriteSet,
) -> Result<(), Errno> {
    let mut pieces = std::mem::take(&mut write_set.pieces);
    let mut next = 0;
    while let Some(at) = write_set.run(&mut next, &mut pieces) {
        write_pieces(memory, file, at, &mut pieces)?;
    }
    write_set.pieces = pieces;
    if write_set.sync { rustix::fs::fsync(file) } else { Ok(()) }
}

/// Writes pieces of the memory to `at` of the file, one behind the other.
fn write_pieces(
    memory: &Mapping,
    file: BorrowedFd<'_>,
    mut at: u64,
    pieces: &mut Vec<(usize, usize)>,
) -> Result<(), Errno> {
    while !pieces.is_empty() {
        match memory.write_to(file, at, pieces).map_err(Errno::from_raw_os_error) {
            Ok(0) if pieces.iter().all(|(_, len)| *len == 0) => return Ok(()),
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                at = at.saturating_add(written as u64);
                advance(pieces, written);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
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
