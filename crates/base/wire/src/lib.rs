//! The FUSE wire format as belay needs it: structures, checked views and builders.
//!
//! This crate knows what the bytes between the kernel and a FUSE daemon mean and nothing else. It
//! owns no descriptor, makes no system call and keeps no state; every function is a pure function
//! of its arguments. The source of every number is the kernel's `include/uapi/linux/fuse.h` at
//! protocol 7.45 (Linux 6.18).
//!
//! All input is taken as hostile. A view over a message either refuses it with a [`WireError`], or
//! returns `None` for the part that is not there; it never panics and never reads past the declared
//! length.
//!
//! Both ends of the protocol run on one machine, so every integer is in that machine's byte order.
//!
//! | module | holds |
//! | --- | --- |
//! | [`opcode`] | request numbers and their names |
//! | [`abi`] | the structures and the flag bits |
//! | [`request`] | a view over one kernel-to-daemon message |
//! | [`describe`] | that message in one line, for crash reports |
//! | [`errno`] | the errors that replies carry |
//! | [`fields`] | where node ids and handles sit, for patching in place |
//! | [`reply`] | a view over one daemon-to-kernel message |
//! | [`record`] | what a daemon that keeps records is asked |
//! | [`unique`] | whose request a number is of |
//! | [`dialect`] | what is shorter for daemons of an old minor version |
//! | [`rules`] | what a reply must not be |
//! | [`dirents`] | directory listings, read and written |
//! | [`build`] | whole messages, made from scratch |
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod abi;
pub mod build;
pub mod describe;
pub mod dialect;
pub mod dirents;
pub mod errno;
pub mod error;
pub mod fields;
pub mod opcode;
pub mod record;
pub mod reply;
pub mod request;
pub mod rules;
pub mod unique;

pub use abi::{
    Attr, AttrOut, Dirent, DirentPlus, EntryOut, InHeader, InitIn, InitOut, OpenOut, OutHeader,
    ROOT_ID, UNIQUE_RESEND,
};
pub use build::Ids;
pub use dialect::Dialect;
pub use dirents::{Dirents, DirentsPlus, push_dirent, push_direntplus};
pub use error::WireError;
pub use fields::{Fields, get_u32, get_u64, handle_fields, node_fields, put_u32, put_u64};
pub use opcode::{CHANGES, Opcode, OpcodeSet};
pub use reply::{CREATE_OPEN_OFFSET, ENTRY_OFFSET, Reply, attr_offset, is_entry_reply};
pub use request::{Names, Request};
pub use rules::{Rule, Shape};
pub use unique::Unique;
