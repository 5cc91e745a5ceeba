//! Mounts: the kernel's table of them, the held one, and what can be done to it and its device
//! without serving it.
//!
//! | module | answers |
//! | --- | --- |
//! | [`mod@table`] | what is mounted where |
//! | [`way`] | how the root of a mount is reached, and known |
//! | [`held`] | which mount is the held one |
//! | [`device`], `control` | what its device tells, and the control files of its connection |
//! | `removal` | how it is taken away |
//! | `path` | whether a path leads through a mount |

mod control;
pub(crate) mod device;
pub(crate) mod held;
mod path;
pub(crate) mod removal;
pub(crate) mod table;
pub(crate) mod way;

pub use control::{abort, waiting};
pub(crate) use device::served_by;
pub use device::{connection, has_unread, is_disconnected, resend, serves, was_mounted};
pub use held::{MountFact, covered, find, is_there, uncovered};
pub use path::{hides, is_served, read_link_untouched, resolve_untouched};
pub use removal::{LACK, Removed, abort_and_detach, detach, release, remove};
pub use table::{Mount, at, fuse_devices, parse_table, table};
