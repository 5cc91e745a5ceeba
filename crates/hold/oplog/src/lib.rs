//! The op-log: what was acknowledged since the last checkpoint, to be done again after a crash.
//!
//! Policy `epoch`: between two checkpoints nothing that the daemon writes reaches its image. When
//! it dies its successor starts on the last checkpoint, and the requests that were answered since
//! are replayed, from here (Membrane, sections 3.5.2 and 4.3.1: its op-log, and *page stealing*).
//!
//! | module | answers |
//! | --- | --- |
//! | [`capacity`] | how much memory a log takes, and where its parts lie |
//! | [`record`] | what is known of a request, how it is laid out, what makes a torn one be seen |
//! | [`pages`] | where the data of writes are before and after their request is answered |
//! | `index` | which data are still needed, and which a later write has replaced |
//! | `notable` | which records a successor asks for several times |
//! | `room` | what may still come to it, and how dead records make room |
//! | `head` | what is in the one word whose change changes the log |
//! | [`log`] | how all of it changes by one store, and what a successor or a new epoch finds |
//! | [`replay`] | what is to be replayed |
//! | [`look`] | what others than its daemon may do with a log |
//! | [`kept`] | an op-log in a file, for `belay replay` |
//! | [`namespace`] | under which name a node is found on the last checkpoint, and at any point of the log |
//!
//! # What a death leaves
//!
//! One word, the log's *head*, says which epoch the log is of, in which of two halves its records
//! are, and how long it is. All that a record needs (its words, the pages of its data) is in place
//! before a store of that word makes it part of the log. Which pages a write has taken over from
//! earlier ones is not written down anywhere: it follows from the records in their order. So the
//! same store that adds the new write's data takes the old one's away, and a daemon that dies at
//! any store leaves the log with or without the record, never in between. Pages that no record
//! needs are free; which these are is known in the daemon's own memory only, and a successor finds
//! it out by a scan.
//!
//! # Epochs
//!
//! The number of the current epoch is not the log's: it comes in as an argument, and changes by a
//! store of the caller's. Head and records are of one epoch each. With any other number than their
//! own they are dead, so the caller's store drops the log. [`Oplog::restart`] then gives the head
//! the new number, before anything of the new epoch is written over what the old one left.
//!
//! # Which data are kept
//!
//! Data lie in pages of 4096 bytes, at the offset in the page that they have in the file; a *piece*
//! is the part of one page that one write keeps. Pieces of different writes never share a page of
//! the log.
//!
//! * A write takes over all pieces on its pages that overlap or adjoin its own range: they become
//!   one piece, the newest bytes on top, and the older writes lose theirs. A write that has lost
//!   all of its pieces is not replayed.
//! * A piece on the same page that neither overlaps nor adjoins stays with its write, in a page of
//!   its own.
//! * Nothing is taken over across a *barrier*: any other record on the file, see [`Facts::files`].
//!   Nor between writes that clear setuid bits (FUSE_WRITE_KILL_SUIDGID) and such as do not: the
//!   first of the others is a barrier.
//!
//! So within the stretch between two barriers the pieces on a page of a file are apart from each
//! other, and all writes that are replayed give what the originals gave: content, length, and (as
//! the last write to the file is never dropped) times. What is between is not seen by anybody, as
//! reads are not replayed.
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]

pub mod capacity;
mod cut;
#[cfg(test)]
mod forged;
mod head;
mod index;
pub mod kept;
pub mod log;
pub mod look;
pub mod namespace;
mod notable;
pub mod pages;
pub mod record;
pub mod replay;
mod room;

pub use capacity::Capacity;
pub use log::{Oplog, Refused, Sizes};
pub use namespace::{Link, Names, Namespace};
pub use pages::{InPlace, PAGE_BYTES, Staged};
pub use record::{Body, Corrupt, EVERY_FILE, Entry, Facts, NameChange, Record};
pub use replay::{Issue, Replay, Run};
