//! The first words of a message from the kernel.

use belay_wire::Opcode;

/// The opcode of a message from the kernel; none, if it is too short for one.
#[inline]
pub fn opcode(message: &[u8]) -> Opcode {
    word(message, 4).map_or(Opcode(0), Opcode)
}

/// The length that a message from the kernel says it has, in bytes.
#[inline]
pub fn length(message: &[u8]) -> usize {
    word(message, 0).unwrap_or(0) as usize
}

fn word(message: &[u8], at: usize) -> Option<u32> {
    message.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}
