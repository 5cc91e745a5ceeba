//! The recorder: shared memory that outlives the daemon.
//!
//! * [`control`]: what shim and supervisor tell each other.
//! * [`Store`]: the session's records (nodes, dentries, handles, locks, directory streams,
//!   requests in flight), changed all or nothing.
//! * [`layout`]: where both lie in the words of that memory (`belay-memory`).
//!
//! See docs/recorder.md for the layout.
#![forbid(unsafe_code)]

pub mod control;
mod dentries;
mod handles;
mod heap;
mod hidden;
mod index;
pub mod layout;
mod locks;
mod nodes;
mod slots;
mod solo;
mod spare;
mod store;
mod streams;

pub use control::Control;
pub use dentries::{Dentry, MAX_NAME};
pub use handles::{Handle, HandleFlags, OpenDescription, VIRTUAL_COOKIE};
pub use layout::{Capacity, Layout};
pub use locks::{F_RDLCK, F_UNLCK, F_WRLCK, Lock};
pub use nodes::{Node, NodeFlags};
pub use slots::{InFlight, MAX_BODY, MAX_REPLY, Slot, SlotState, free_slot, record_reply};
pub use solo::{Blame, Solo};
pub use store::Store;
pub use streams::StreamPosition;
