//! Which objects there are: a bitmap, in an object of its own, whose metadata count them.

use crate::error::{Error, Result};
use crate::own::{FIRST, IDS};
use crate::view::View;
use belay_memory::Memory;
use belay_object::{Lower, ObjectId, PAGE};
use rustix::io::Errno;

const BITS: u64 = PAGE as u64 * 8;
/// Objects that there can be at once.
const MOST: u64 = 1 << 38;

/// Takes a number that no object has, from `hint` on.
///
/// # Errors
/// `ENOSPC` if there is none; those of reading.
pub fn take<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    hint: &mut u64,
) -> Result<ObjectId, B::Error> {
    let pages = view.size(IDS)?.div_ceil(PAGE as u64);
    let start = (*hint).max(FIRST) / BITS;
    // From the hint on, then from the start, then behind all that there is.
    let order = (start..pages).chain(0..start.min(pages)).chain([pages]);
    for page in order {
        let content = view.page(IDS, page)?;
        let first = if page == start { (*hint).max(FIRST) % BITS } else { 0 };
        let begin = (first / 8) as usize;
        let free = content.iter().enumerate().skip(begin).find(|(_, byte)| **byte != 0xff);
        let Some((at, byte)) = free else { continue };
        let number = page * BITS + at as u64 * 8 + u64::from(byte.trailing_ones());
        if number >= MOST {
            return Err(Errno::NOSPC.into());
        }
        if number < FIRST {
            // What belongs to the module is marked when the volume is made.
            return Err(Error::Damaged("the list of objects does not have the module's own"));
        }
        set(view, ObjectId(number), true)?;
        *hint = number + 1;
        return Ok(ObjectId(number));
    }
    Err(Errno::NOSPC.into())
}

/// Gives a number back.
///
/// # Errors
/// Those of reading.
pub fn give_back<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    object: ObjectId,
) -> Result<(), B::Error> {
    set(view, object, false)
}

/// Marks the objects that belong to the module itself.
///
/// # Errors
/// Those of reading.
pub fn mark_own<M: Memory, B: Lower>(view: &mut View<'_, M, B>) -> Result<(), B::Error> {
    (0..FIRST).try_for_each(|number| set(view, ObjectId(number), true))
}

fn set<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    object: ObjectId,
    on: bool,
) -> Result<(), B::Error> {
    let (page, bit) = (object.0 / BITS, object.0 % BITS);
    let end = (page + 1) * PAGE as u64;
    if view.size(IDS)? < end {
        view.set_size(IDS, end)?;
    }
    let content = view.page_mut(IDS, page)?;
    let byte = content.get_mut((bit / 8) as usize).ok_or(Error::Damaged("a page is short"))?;
    let mask = 1 << (bit % 8);
    if (*byte & mask != 0) == on {
        return Err(Error::Damaged("the list of objects is wrong"));
    }
    *byte ^= mask;
    let metadata = view.change(IDS)?;
    metadata.entries = metadata.entries.saturating_add_signed(if on { 1 } else { -1 });
    Ok(())
}

/// How many objects there are, the module's own not counted, and how many more there can be.
///
/// # Errors
/// Those of reading.
pub fn count<M: Memory, B: Lower>(view: &mut View<'_, M, B>) -> Result<(u64, u64), B::Error> {
    let all = view.metadata(IDS)?.entries;
    Ok((all.saturating_sub(FIRST), MOST.saturating_sub(all)))
}

/// All objects but the module's own, found one by one.
///
/// # Errors
/// Those of reading.
pub fn list<M: Memory, B: Lower>(view: &mut View<'_, M, B>) -> Result<Vec<ObjectId>, B::Error> {
    let mut found = Vec::new();
    for page in 0..view.size(IDS)?.div_ceil(PAGE as u64) {
        for (at, byte) in (0..).zip(*view.page(IDS, page)?) {
            let numbers = (0..8).filter(|bit| byte & 1 << bit != 0);
            found.extend(numbers.map(|bit| ObjectId(page * BITS + at * 8 + bit)));
        }
    }
    found.retain(|object| object.0 >= FIRST);
    Ok(found)
}
