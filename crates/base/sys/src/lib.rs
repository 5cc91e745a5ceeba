//! System calls that need `unsafe`, and the types that make them safe to use.
//!
//! Everything else in the workspace (but the preloaded shim) forbids unsafe code and goes
//! through this crate or through rustix.
#![deny(unsafe_op_in_unsafe_fn)]

mod bare;
mod directory;
mod ends;
pub mod gate;
mod guard;
mod known;
mod library;
mod locks;
mod loops;
pub mod mailbox;
mod mapping;
mod memory_file;
mod mounting;
mod mounts;
mod namespace;
mod pinned_file;
pub mod raw;
mod seccomp;
mod signals;
mod spawn;
mod way;

pub use bare::without_descriptors;
pub use directory::in_directory;
pub use ends::{GoesOn, end_by, end_by_faults, go_on};
pub use guard::is_lost;
pub use known::open_known;
pub use library::{mount, receive, unmount};
pub use locks::{Lock, has_ranges, lock_for_process, lock_range, process_with_lock};
pub use loops::{LoopFile, loop_file};
pub use mapping::Mapping;
pub use memory_file::sealable_memory_file;
pub use mounting::{may_mount, users_may_let_others_in};
pub use mounts::{change_mount, unique_number};
pub use namespace::{in_mount_namespace, owner_of};
pub use pinned_file::PinnedFile;
pub use seccomp::{Call, Listener, THIS_MACHINE, Verdict};
pub use signals::unblock_signals;
pub use spawn::{ChildSetup, PrivateMountNamespace, dup_cloexec, prepare_child, receive_listener};
pub use way::{below, follow_up_to};
