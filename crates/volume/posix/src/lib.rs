//! The POSIX namespace module of a volume (namespace transactions IV-C): files and directories made
//! of objects, one transaction a request.
//!
//! | module | answers |
//! | --- | --- |
//! | [`view`] | what a request sees and changes: all of it is published in the end, or nothing |
//! | [`attributes`] | what is kept of a file beside its data |
//! | [`extended`] | how extended attributes are kept |
//! | [`ids`] | which objects there are |
//! | [`directory`] | how names lead to objects |
//! | [`namespace`] | what requests do |
//! | [`mod@format`] | how an empty namespace is made |
//! | [`check`] | whether names and objects are as they should be |
//! | [`dispatch`] | what a message of the kernel asks for, and how it is answered |
//! | [`fetch`] | how a message that needs something of the layer below lets others be handled meanwhile |
//!
//! Nothing of a request is kept when it is done: a life of the module that ends loses nothing but
//! requests under way, of each of which all or nothing has happened.

#![forbid(unsafe_code)]

pub mod attributes;
pub mod check;
pub mod directory;
pub mod dispatch;
mod error;
pub mod extended;
pub mod fetch;
mod format;
pub mod ids;
pub mod namespace;
mod own;
mod secret;
pub mod view;

pub use attributes::{Kind, Metadata, Time};
pub use error::{Error, Result};
pub use format::format;
pub use namespace::{Caller, Memo, Namespace};
pub use own::{FIRST, IDS, ORPHANS, ROOT, SECRET};
pub use secret::Secret;
pub use view::View;
