//! Real programs at work on a mount, with outcomes that can be compared.
//!
//! These are the macro-benchmarks with which restartable user-level file systems were studied
//! before (Re-FUSE, EuroSys 2011): `sort`, a build of OpenSSH, and PostMark. A [`Workload`] lays
//! out its input, does its work, and says what came of it as an [`Outcome`]: names and hashes,
//! nothing that depends on time. The oracle is another run of the same workload, on a bare mount
//! that nobody disturbs; `sort` is checked against a sort in this program as well.
//!
//! - [`workload`]: which workloads there are, and their steps.
//! - [`outcome`]: what is compared.
//! - [`sort`], [`build`], [`postmark`], [`verified`]: one workload each.
//! - [`text`]: the text to be sorted.
//! - [`program`]: running a program that must not outlive its workload.
#![forbid(unsafe_code)]

pub mod build;
pub mod outcome;
pub mod postmark;
pub mod program;
pub mod sort;
pub mod text;
pub mod verified;
pub mod workload;

pub use outcome::Outcome;
pub use program::Watch;
pub use workload::{Name, Scale, Workload};
