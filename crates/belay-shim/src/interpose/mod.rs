//! The libc functions that the daemon calls. Each passes on what does not concern the device.

mod io;
mod mounts;
mod open;
