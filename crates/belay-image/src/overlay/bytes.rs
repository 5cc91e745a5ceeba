//! Bytes of the memory that do not start with a word.

use belay_recorder::Memory;

/// Copies bytes that start at byte `from` of the memory.
#[inline]
pub(crate) fn load<M: Memory>(memory: &M, from: usize, out: &mut [u8]) {
    let skip = from % 8;
    let head = if skip == 0 { 0 } else { (8 - skip).min(out.len()) };
    let (first, rest) = out.split_at_mut(head);
    if !first.is_empty() {
        let word = memory.load(from / 8).to_ne_bytes();
        for (place, byte) in first.iter_mut().zip(word.iter().skip(skip)) {
            *place = *byte;
        }
    }
    if !rest.is_empty() {
        memory.load_bytes((from + head) / 8, rest);
    }
}
