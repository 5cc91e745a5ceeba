//! Real FUSE daemons on real back ends, for tests, soak and bench.
//!
//! A [`Bed`] is one daemon on one freshly prepared backing store (a directory, an image of a disk, a directory behind a
//! real `sshd`), mounted and ready: either [`Mode::Bare`] or held by belay ([`Mode::Held`]). Everything that a bed
//! starts or creates ends with it, also when a test panics.
//!
//! ```no_run
//! use belay_testbed::{Bed, BedOptions, Kind, Mode};
//! # fn main() -> anyhow::Result<()> {
//! let bed = Bed::start(Kind::Bindfs, &Mode::Bare, &BedOptions::default())?;
//! std::fs::write(bed.root().join("hello"), "world")?;
//! bed.stop()?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod bed;
mod belay;
mod command;
mod examples;
pub mod image;
mod kind;
pub mod mounts;
pub mod process;
pub mod scene;
mod sshd;
pub mod zoo;

pub use bed::{Bed, BedOptions, Mode};
pub use belay::{Belay, find_number};
pub use examples::{cache_dir, static_example};
pub use kind::Kind;
pub use rustix::process::Signal;
pub use sshd::Sshd;

/// Reads a signal's name, with or without `SIG`, in any case: `KILL`, `sigsegv`, `Abrt`.
///
/// # Errors
/// When the name is not one of the signals that a crash can be made of.
pub fn parse_signal(name: &str) -> anyhow::Result<Signal> {
    let upper = name.to_ascii_uppercase();
    Ok(match upper.strip_prefix("SIG").unwrap_or(&upper) {
        "KILL" => Signal::KILL,
        "SEGV" => Signal::SEGV,
        "ABRT" | "ABORT" => Signal::ABORT,
        "BUS" => Signal::BUS,
        "ILL" => Signal::ILL,
        "FPE" => Signal::FPE,
        "TERM" => Signal::TERM,
        other => {
            anyhow::bail!("unknown signal {other:?}: use KILL, SEGV, ABRT, BUS, ILL, FPE or TERM")
        }
    })
}

/// The name that `belay crash --signal` takes for a signal.
#[must_use]
pub fn signal_name(signal: Signal) -> &'static str {
    match signal {
        Signal::KILL => "KILL",
        Signal::SEGV => "SEGV",
        Signal::ABORT => "ABRT",
        Signal::BUS => "BUS",
        Signal::ILL => "ILL",
        Signal::FPE => "FPE",
        Signal::TERM => "TERM",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names() {
        for name in ["KILL", "SEGV", "ABRT", "TERM"] {
            assert_eq!(signal_name(parse_signal(name).unwrap()), name);
        }
        assert_eq!(parse_signal("sigkill").unwrap(), Signal::KILL);
        assert!(parse_signal("HUPP").is_err());
    }
}
