//! The logical layer of a volume (Loris II-A, IV-C): it makes objects of physical files, and has
//! its stores take checkpoints together.
//!
//! | module | answers |
//! | --- | --- |
//! | [`volume`] | how a volume is made, and opened at the newest checkpoint that all stores have |
//! | [`mapping`] | which physical files an object consists of |
//! | `label` | what the layer keeps in the root of each store |
//! | `intents` | what was synced since the last checkpoint |
//! | [`objects`] | the operations on objects |
//! | [`check`] | whether all of it is as it should be |
//!
//! So far an object is one physical file on one store.

#![forbid(unsafe_code)]

pub mod check;
mod intents;
mod label;
pub mod mapping;
mod objects;
mod volume;

pub use objects::Attributes;
pub use volume::{Error, Logical, Result};
