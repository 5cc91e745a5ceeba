//! The libc functions that the daemon calls. Each passes on what does not concern the device.

mod helper;
mod io;
mod mounts;
mod open;
mod paths;
mod socket;
