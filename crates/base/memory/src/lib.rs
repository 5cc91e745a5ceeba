//! Memory that several processes share and that outlives each of them.
//!
//! | module | question |
//! | --- | --- |
//! | [`words`] | how is it read and written? |
//! | [`pulse`] | how does a process show that it gets on? |
//! | [`undo`] | how does a change survive the death of its maker? |
//!
//! Nothing here knows what the memory holds.
#![forbid(unsafe_code)]

pub mod pulse;
pub mod undo;
pub mod words;

pub use undo::{Overflow, UndoLog};
pub use words::Memory;
