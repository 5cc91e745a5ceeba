//! Drives the session between a FUSE device and a daemon: what is done before and after each read of the device and for each
//! message that the daemon writes to it, by whichever of the daemon's threads does that.
//!
//! The host does no system call and knows no process. What it needs of those is an [`Environment`]: the device, the daemon's process,
//! and what becomes of the daemon's effects. The shim is one in the daemon's own process, the simulation is one without a kernel.
//!
//! | module | answers |
//! | --- | --- |
//! | [`environment`] | what a host stands on |
//! | `host` | what it keeps |
//! | `handshake` | INIT: recorded in the first life, played back in the others |
//! | `collect` | what was in flight at the crash |
//! | `before` | what there is to do before the device is read |
//! | `after` | what becomes of a message that was read |
//! | `outgoing` | what becomes of a message that the daemon writes |
//! | `wake` | how a thread that sleeps in a read learns of work |
#![forbid(unsafe_code)]

mod after;
mod before;
mod collect;
pub mod environment;
mod handshake;
mod host;
mod outgoing;
mod wake;

pub use after::After;
pub use before::Before;
pub use environment::{Device, Effects, Environment, Fault, Process, Readiness};
pub use host::{Host, Place};
pub use wake::LOOK;

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
