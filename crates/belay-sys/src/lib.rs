//! System calls that need `unsafe`, and the types that make them safe to use.
//!
//! Everything else in the workspace (but the preloaded shim) forbids unsafe code and goes
//! through this crate or through rustix.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod mailbox;
mod mapping;
mod namespace;
mod spawn;

pub use mapping::Mapping;
pub use namespace::in_mount_namespace;
pub use spawn::{ChildSetup, PrivateMountNamespace, dup_cloexec, prepare_child};
