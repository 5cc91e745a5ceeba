//! The image of a daemon under the policy `epoch`, between two checkpoints.
//!
//! What the daemon writes to its image collects in an [`overlay`], in memory that outlives it. A
//! checkpoint seals the overlay; a committer, which is never the daemon, brings what is sealed to
//! the image, by way of a [`journal`] beside it. So the image is at one of two checkpoints at any
//! instant, also if the power goes: at the last one, or at the one before.
//!
//! | module | answers |
//! | --- | --- |
//! | [`overlay`] | where the image that the daemon sees differs from the one on the disk, and in which epoch |
//! | [`journal`] | how a sealed epoch reaches the image all or not at all; what a power failure has left |
//!
//! Both take what they read as hostile: the overlay lies in memory that a daemon may have scribbled
//! over, the journal in a file that anybody may have made.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod journal;
pub mod overlay;

pub use overlay::{Capacity, Corrupt, Overlay, Refused, Run, Sealed};
