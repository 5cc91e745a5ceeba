//! What the processes of a volume do, without the processes: no socket, thread, file or clock is
//! known here. The processes that ship give these, and so does the simulation, in which the same
//! code runs.
//!
//! | module | answers |
//! | --- | --- |
//! | [`cache`] | when the cache takes checkpoints, how it sets the memory up, and what it does when the stores die |
//! | [`stores`] | what the process with the stores is asked, and when it opens them anew |

#![forbid(unsafe_code)]

pub mod cache;
pub mod stores;

pub use cache::Cache;
pub use stores::Stores;
