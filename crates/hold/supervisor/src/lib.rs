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
//! | [`companions`] | processes that a daemon needs beside it |
//! | [`keeper`] | how a mount is set up, and who starts supervisors |
//! | [`supervisor`] | the event loop: start, watch, restart, end |
//! | [`verdict`] | what the end of a daemon's process means |
//! | [`ledger`] | what a new supervisor must know of the old one |
//! | [`degraded`] | what was lost, or cannot be kept now |
//! | `keep` | how an op-log is kept in a file |
//! | [`detection`] | how the end of a daemon is noticed |
//! | [`role`] | how belay starts itself again, as keeper or supervisor |
//! | `heartbeat`, `silence` | whether the supervisor gets on, and for how long somebody has not |
//! | [`handover`] | how descriptors and notes pass between keeper and supervisor |
//! | [`fusermount`] | how ordinary users mount and unmount |
//! | [`instances`] | the state directory |
//! | [`folder`], `private` | folders that are held, and who else may write to them or exchange them |
//! | [`stores`] | what a daemon stores to, and whether it has |
//! | [`orphans`] | mounts whose belay was killed |
//! | [`image`] | which image a daemon works on under the policy `epoch`, and where its journal lies |
//! | `programs` | which file a program is, and whether belay's library is in a process |
//! | [`rights`] | which programs are not started, as they would run with other rights |
//! | [`outside`] | how files are read that others may have made |
//! | [`contents`] | what a file holds, by its first bytes |
//! | `opened` | which disk image a process has open |
//! | [`look`] | what is at a path, without waiting for whoever serves it |
//! | [`scout`] | what may wait for ever for a file system, done by a process apart |
//! | [`stalled`] | daemons that end before they have answered anything |
//! | [`protocol`], [`status`], [`report`] | what users and programs get to see |
//! | [`unmount`] | how the held mount is taken away, and no other |
//! | `outsiders` | whether a SIGKILL came from another process |
//! | `lineage` | which generation a process descends from |
//! | `pidfile` | whether a dead daemon's process id keeps the next one from starting |
//! | `mirror` | what becomes of the host's mounts in successors' namespaces |
//! | [`autopsy`] | what a crash looked like |
//! | [`outgoing`] | how messages reach standard error without waiting for who reads it |
//! | [`threads`] | how threads and processes are had |
//! | [`users`] | who uses a mount |
//! | [`mounts`], [`process`], [`inflight`], [`stderr`] | views of the kernel, processes, recorder |
#![forbid(unsafe_code)]

pub mod allow_other;
pub mod asker;
pub mod autopsy;
pub mod background;
pub mod blackout;
pub mod clock;
mod committer;
pub mod companions;
pub mod config;
mod connections;
pub mod contents;
pub mod degraded;
pub mod detection;
pub mod error;
pub mod folder;
pub mod fusermount;
pub mod handover;
mod heartbeat;
pub mod image;
pub mod inflight;
pub mod instances;
pub mod keep;
pub mod keeper;
pub mod ledger;
mod lineage;
pub mod look;
mod memfile;
mod mirror;
pub mod mounts;
mod opened;
pub mod orphans;
pub mod outgoing;
pub mod outside;
mod outsiders;
mod pidfile;
mod private;
pub mod process;
mod procfs;
mod programs;
pub mod protocol;
pub mod report;
pub mod rights;
pub mod role;
pub mod scout;
pub mod signals;
mod silence;
pub mod stalled;
pub mod status;
pub mod stderr;
pub mod stores;
pub mod supervisor;
pub mod text;
pub mod threads;
pub mod turn;
pub mod unmount;
pub mod users;
pub mod verdict;
mod waker;

pub use config::{Config, Policy};
pub use error::{Error, Result};
