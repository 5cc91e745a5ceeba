//! Whether a daemon can be held, found out before it is started: each refusal with its cause and
//! the next step.

pub mod binary;
pub mod doubt;
pub mod helper;
pub mod libraries;
pub mod machine;
pub mod mount_command;
pub mod mountpoint;
pub mod place;
pub mod script;
pub mod shim;
pub mod wrapper;
