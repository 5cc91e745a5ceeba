//! The names of volumes: which stores each consists of, in a file of its own.
//!
//! | module | answers |
//! | --- | --- |
//! | [`name`] | what a volume can be called |
//! | [`definition`] | what is known of a volume by its name, and how that is written down |
//! | [`folder`] | which folders and files are believed |
//! | [`registry`] | where definitions are, and how one is found, added and removed |
//!
//! A definition says where to look, and nothing else: that a store belongs to the volume is what
//! the store itself says, by its ids. Who opens a volume compares them.

#![forbid(unsafe_code)]

pub mod definition;
mod error;
mod folder;
pub mod name;
pub mod registry;

pub use definition::{Definition, Store};
pub use error::{Error, Result};
pub use name::VolumeName;
pub use registry::{Listed, Registry};
pub use uuid::Uuid;
