//! Keeper and supervisor: the processes that start a FUSE daemon, watch it, and start it again.
//!
//! ```text
//! belay run ── keeper ── supervisor ── daemon (with the shim)
//!                │            │            │
//!                └────────────┴────────────┴── device, recorder, event counter
//! ```
//!
//! Any one of them may be killed at any instruction. The keeper holds all descriptors and starts a
//! new supervisor when the old one dies; the supervisor starts a new keeper, and new daemons.
//!
//! | module | answers |
//! | --- | --- |
//! | [`keeper`] | how a mount is set up, and who starts supervisors |
//! | [`supervisor`] | the event loop: start, watch, restart, end |
//! | [`verdict`] | what the end of a daemon's process means |
//! | [`ledger`] | what a new supervisor must know of the old one |
//! | `keep` | how an op-log is kept in a file |
//! | [`handover`] | how descriptors and notes pass between keeper and supervisor |
//! | [`fusermount`] | how ordinary users mount and unmount |
//! | [`instances`] | the state directory |
//! | [`image`] | which image a daemon works on under the policy `epoch`, and where its journal lies |
//! | [`protocol`], [`status`], [`report`] | what users and programs get to see |
//! | `mirror` | what becomes of the host's mounts in successors' namespaces |
//! | [`autopsy`] | what a crash looked like |
//! | [`mounts`], [`process`], [`inflight`], [`stderr`] | views of the kernel, processes, recorder |
#![forbid(unsafe_code)]

pub mod autopsy;
pub mod blackout;
pub mod clock;
mod committer;
pub mod config;
mod connections;
pub mod error;
pub mod fusermount;
pub mod handover;
pub mod image;
pub mod inflight;
pub mod instances;
pub mod keep;
pub mod keeper;
pub mod ledger;
mod memfile;
mod mirror;
pub mod mounts;
pub mod process;
pub mod protocol;
pub mod report;
mod signals;
pub mod status;
pub mod stderr;
pub mod supervisor;
pub mod text;
pub mod verdict;

pub use config::{Config, Policy};
pub use error::{Error, Result};
