//! The cache of a volume (Loris II-A, VI): frames of pages and a log of transactions, in memory
//! that outlives every process.
//!
//! | module | answers |
//! | --- | --- |
//! | [`layout`] | what is where in the memory |
//! | [`pool`] | who may fill a frame or a cell, and how a reader knows that it is still the same |
//! | [`frames`] | pages |
//! | [`log`] | how a transaction is published, by one store, and found by others |
//! | [`record`] | how a transaction lies in cells |
//! | [`changes`] | what operations come to, merged |
//! | [`index`] | what all transactions since the last checkpoint come to: one process's own view of the log |
//! | [`clean`] | what was read from the layer below, kept for the next time |
//! | [`recent`] | whether what was fetched from the layer below meanwhile is still right |
//! | [`credit`] | how much room a transaction can take |
//! | [`publisher`] | how a namespace module makes a transaction, and reads what it and others have published |
//! | [`intent`] | how what somebody was told is durable survives a power failure before the next checkpoint |
//! | [`answers`] | how a request gets its answer whose transaction has left the log |
//! | [`mount`] | which mount the memory serves |
//! | [`appended`] | what is in the intent log |
//! | [`cleaner`] | how what was published reaches the stores, in checkpoints, and leaves the memory |
//! | [`bring`] | how what has happened to objects is brought to the stores, from the log or from the intent log |
//!
//! The rules:
//!
//! - A transaction happens when its slot of the log is stored. Before that nobody sees anything of
//!   it, and after that nothing can fail: all that it takes is there before, in the memory and
//!   below. Its record says how much it can take at most; all in the log is no more than what there
//!   was at the last checkpoint.
//! - What was published does not change. A newer version of a page is another frame.
//! - The stores change in checkpoints only. So a store that dies is opened at its last checkpoint,
//!   and what was under way is done again from the log, as a whole.
//! - A frame or a cell is given back when what it holds is durable on the stores. Its version
//!   changes then, by which a reader who looks twice sees that it has read something else.

#![forbid(unsafe_code)]

pub mod answers;
pub mod appended;
mod bring;
pub mod changes;
pub mod clean;
pub mod cleaner;
pub mod credit;
mod dropped;
mod error;
pub mod frames;
pub mod index;
pub mod intent;
pub mod layout;
pub mod log;
pub mod mount;
pub mod pool;
pub mod publisher;
pub mod recent;
pub mod record;
mod shared;

pub use cleaner::Cleaner;
pub use credit::Known;
pub use error::Error;
pub use layout::{Capacity, Layout};
pub use publisher::Publisher;
pub use shared::Shared;

pub use belay_object::{Attributes, Lower};
