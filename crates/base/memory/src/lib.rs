//! Memory that several processes share and that outlives each of them.
//!
//! | module | question |
//! | --- | --- |
//! | [`words`] | how is it read and written? |
//! | [`undo`] | how does a change survive the death of its maker? |
//!
//! Nothing here knows what the memory holds.
#![forbid(unsafe_code)]

pub mod undo;
pub mod words;

pub use undo::{Overflow, UndoLog};
pub use words::Memory;
