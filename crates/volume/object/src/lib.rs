//! Objects, as the layers of a volume speak of them (Loris II; namespace transactions III).
//!
//! | module | answers |
//! | --- | --- |
//! | [`id`] | what an object is called, and how large its parts are |
//! | [`operation`] | what can be done to an object |
//! | [`credit`] | how much room of the layer below it can take at most |
//! | [`lower`] | what a layer asks of the one below it |
//! | [`transaction`] | which operations happen together, and how they are written down |
//!
//! An object has a number, a length, pages and a small set of attributes. What is written is whole
//! pages: what is in a page beside the bytes that change is read before. Pages that were never
//! written are zeros.

#![forbid(unsafe_code)]

pub mod credit;
pub mod id;
pub mod lower;
pub mod operation;
pub mod transaction;

pub use credit::Credit;
pub use id::{ATTRIBUTES, ObjectId, PAGE};
pub use lower::{Attributes, Lower, Room};
pub use operation::{Class, Operation};
pub use transaction::{Transaction, Undecodable};
