//! Drives the session between a FUSE device and a daemon: what is done before and after each read
//! of the device and for each message that the daemon writes to it, by whichever of the daemon's
//! threads does that.
//!
//! The host does no system call and knows no process. What it needs of those is an [`Environment`]:
//! the device, the daemon's process, and what becomes of the daemon's effects. The shim is one in
//! the daemon's own process, the simulation is one without a kernel.
//!
//! | module | answers |
//! | --- | --- |
//! | [`environment`] | what a host stands on |
//! | `host` | what it keeps |
//! | `handshake` | INIT: recorded in the first life, played back in the others |
//! | `head` | how long a message says it is, and what it asks for |
//! | `collect` | what was in flight at the crash |
//! | `before` | what there is to do before the device is read |
//! | `after` | what becomes of a message that was read |
//! | [`splice`] | what becomes of one that went into a pipe |
//! | `outgoing` | what becomes of a message that the daemon writes |
//! | `wake` | how a thread that sleeps in a read learns of work |
#![forbid(unsafe_code)]

mod after;
mod before;
mod collect;
pub mod environment;
mod handshake;
mod head;
mod host;
mod outgoing;
pub mod splice;
mod wake;

pub use after::After;
pub use before::Before;
pub use environment::{Device, EffectHooks, Environment, Fault, Process, Readiness};
pub use head::{length, opcode};
pub use host::{Attachment, Host};
pub use wake::LOOK;
