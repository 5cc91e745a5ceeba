//! The shim: a library preloaded into an unmodified FUSE daemon.
//!
//! It stands where the daemon's libc calls leave the process and touches only those that concern
//! the FUSE device and the mount. It hosts the session state machine (crate `belay-session`) over
//! the recorder, and never waits for another process.
//!
//! * [`start`]: the environment it is started with, the recorder, the lease.
//! * [`device`]: reads and writes of the device.
//! * [`interpose`]: the libc functions, as thin as they can be.
//! * [`populate`]: buffers that the kernel copies into.
//! * [`real`]: the functions behind them.
#![deny(unsafe_op_in_unsafe_fn)]

mod descriptors;
mod device;
mod handshake;
mod interpose;
mod pipes;
mod populate;
mod real;
mod start;
