//! The processes of a mounted volume. Each of them may die at any moment, and its next life goes on
//! from where it was.
//!
//! | module | process | answers |
//! | --- | --- | --- |
//! | [`place`] | | where they meet: sockets, locks, and the memory that outlives them |
//! | `places` | | which of a user's folders in memory that is |
//! | [`memory`] | | how that memory is made, and found again |
//! | [`pulse`] | | how they show that they get on |
//! | `patience` | cache | how long it goes on asking stores that die of it |
//! | `lasting` | store | which blocks of a disk cannot be read, and will not be later |
//! | [`report`] | | what they say of how they have recovered |
//! | [`store`] | store | the logical layer with its stores, asked by the two others |
//! | [`cache`] | cache | when checkpoints are taken, and how a sync is made durable |
//! | [`namespace`] | namespace | the POSIX namespace module, as a FUSE daemon |
//! | `device` | namespace | how it mounts |
//! | `asking` | | what is asked of a mounted volume from outside |
//! | `serving` | namespace | how several threads serve the device |
//!
//! The namespace module publishes transactions in the memory, and answers them at once. The cache
//! brings them to the stores, and takes checkpoints. The store's process keeps nothing that is not
//! in the last checkpoint. They wait for each other as long as it takes: a process that has died
//! has a successor soon.

#![forbid(unsafe_code)]

mod asking;
pub mod cache;
pub mod device;
mod ending;
mod lasting;
pub mod memory;
pub mod namespace;
mod patience;
pub mod place;
mod places;
pub mod pulse;
pub mod report;
mod serving;
pub mod store;

pub use asking::checkpoint;
pub use place::{Place, Role};
