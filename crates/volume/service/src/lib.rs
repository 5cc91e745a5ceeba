//! What the processes of a volume do, without the processes: no socket, thread, file or clock is known here. The processes that ship give
//! these, and so does the simulation, in which the same code runs.
//!
//! | module | answers |
//! | --- | --- |
//! | [`stores`] | what the process with the stores is asked, and when it opens them anew |

#![forbid(unsafe_code)]

pub mod stores;

pub use stores::Stores;
