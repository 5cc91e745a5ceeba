//! The shim: a library preloaded into an unmodified FUSE daemon.
//!
//! It stands where the daemon's libc calls leave the process and touches only those that concern
//! the FUSE device and the mount. It hosts the session state machine (crate `belay-session`) over
//! the recorder. While it serves, it waits for no other process, but at a checkpoint that the
//! daemon asked for.
//!
//! * [`shim`]: what there is of it in a process, and how everybody finds it.
//! * [`start`]: the environment it is started with, the recorder, the lease.
//! * [`device`]: reads of the device.
//! * [`give`]: what the daemon gets from there.
//! * [`outgoing`]: what the daemon writes to it.
//! * [`connection`]: whether the daemon has one still.
//! * [`effects`]: what the daemon does outside of itself, for the policies `journal` and
//!   `transaction`.
//! * [`dying`]: what happens at a deadly signal.
//! * [`interpose`]: the libc functions, as thin as they can be.
//! * [`argument`]: the memory that the daemon's arguments to them name.
//! * [`image_box`]: the daemon's image, for those who finish what it has committed.
//! * [`exchanged`]: the image, where its name leads to another file by now.
//! * [`mailbox`]: the device, where fusermount mounts.
//! * [`handout`]: how the daemon comes by it there.
//! * [`descriptors`]: which of the daemon's descriptors are the device or the image.
//! * [`renumbered`]: what follows when one is closed, or becomes a duplicate.
//! * [`standin`]: what successors of ordinary users find at their mountpoint.
//! * [`positions`]: where descriptors of the image stand.
//! * [`populate`]: buffers that the kernel copies into.
//! * [`environment`]: what the host stands on here.
//! * [`waiting`]: those that sleep there in poll, select or epoll.
//! * [`real`]: the functions behind them.
#![deny(unsafe_op_in_unsafe_fn)]

mod argument;
mod connection;
mod descriptors;
mod device;
mod dying;
mod effects;
mod environment;
mod exchanged;
mod give;
mod handout;
mod image_box;
mod interpose;
mod mailbox;
mod outgoing;
mod patience;
mod pipes;
mod populate;
mod positions;
mod real;
mod renumbered;
mod shim;
mod standin;
mod start;
mod waiting;
