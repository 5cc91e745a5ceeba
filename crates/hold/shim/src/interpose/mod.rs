//! The libc functions that the daemon calls. Each passes on what does not concern the device.

mod asked;
mod by_number;
mod calls;
mod epolls;
mod exec;
mod helper;
mod io;
mod memory;
mod mount_api;
mod mounts;
mod numbers;
mod open;
mod paths;
mod polls;
pub(crate) mod second;
mod signals;
mod socket;
mod stdio;
pub(crate) mod threads;
mod words;
