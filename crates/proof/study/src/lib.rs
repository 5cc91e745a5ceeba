//! The controlled fault study: an operation on a mounted file system, a crash of its daemon at a
//! chosen point of the one request that the operation is about, and what application and file
//! system see of it.
//!
//! What is mounted, and by whom it is started, is the caller's: a [`Source`] makes [`Subject`]s.
//!
//! | module | question |
//! | --- | --- |
//! | [`aim`] | who is to be crashed, and during what |
//! | [`operation`] | which operations, on which tree |
//! | [`subject`] | what must be known of a mounted daemon |
//! | [`trial`] | how is one experiment made |
//! | [`stock`] | on which subject |
//! | [`outcome`] | how is it judged |
//! | [`record`] | what is kept of it |
//! | [`snapshot`], [`tree`] | what does a tree look like |
//! | [`digest`] | what are bytes called for short |
//! | [`table`] | how is it told |
#![forbid(unsafe_code)]

pub mod aim;
pub mod digest;
pub mod operation;
pub mod outcome;
pub mod record;
pub mod snapshot;
pub mod stock;
pub mod subject;
pub mod table;
pub mod tree;
pub mod trial;

pub use aim::{Aim, Victim};
pub use operation::{FURTHER, OPERATIONS, Operation, User};
pub use outcome::{Application, Judged, Outcome};
pub use record::{Crash, DryRun, Told};
pub use snapshot::{Look, Snapshot};
pub use stock::{Names, Stock};
pub use subject::{Source, Subject};
pub use trial::Undisturbed;
