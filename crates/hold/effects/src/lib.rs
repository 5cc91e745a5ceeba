//! Effects: what requests do outside of the daemon, by its system calls.
//!
//! Each request in flight has a [`Log`] in the recorder, which outlives the daemon. Two policies
//! use it, and a request's log is dropped with the request:
//!
//! * `journal`: for each effectful call of a request that changes something, what is about to be
//!   done and what came of it ([`journal`]), and the results of the reads that it went by. A
//!   successor that does the request again is given these results instead of new ones, until it has
//!   come to where the dead generation was. This is Re-FUSE's system-call logging (section 4.2.2:
//!   its syscall request-response table).
//! * `transaction`: for daemons on a disk image, what a request writes to the image
//!   ([`write_set`]). It reaches the image after the request's reply is decided, all of it, or
//!   never.
//!
//! | module | answers |
//! | --- | --- |
//! | [`log`] | how entries are laid out, and what makes a torn one be seen |
//! | [`call`] | which calls there are, and how doing one twice differs from once |
//! | [`journal`] | what is to be done with a call that may have been made before |
//! | [`probe`] | whether a call without a recorded result was carried out |
//! | [`write_set`] | where an image differs from what a transaction sees |
//! | [`remains`] | what a crashing daemon leaves of its own state |
//! | [`area`] | what is known of a mount's effects as a whole, and what a crash left of each request |
//! | [`finish`] | how what was committed is carried out after a crash |
//!
//! But for the last, nothing here makes a system call: the shim does, and hands in what it found.
#![forbid(unsafe_code)]

pub mod area;
pub mod call;
pub mod finish;
pub mod journal;
pub mod log;
pub mod probe;
pub mod remains;
pub mod write_set;

pub use area::{Area, Left};
pub use call::{Kind, Twice};
pub use journal::{Advice, Cursor};
pub use log::{Entry, Log};
pub use probe::Settled;
pub use write_set::WriteSet;
