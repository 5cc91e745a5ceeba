//! The processes of a volume, and how one is killed for sure.

use anyhow::{Context, Result};
use belay_fixtures::{Fixture, Signal, process};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::{Duration, Instant};

/// How long belay may take to say which processes there are.
const PATIENCE: Duration = Duration::from_secs(60);
/// A signal that somebody sends is let be by Rust's runtime once, if it is SIGSEGV: so long until
/// it is sent again.
const AGAIN: Duration = Duration::from_millis(2);

/// A process of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The process with the stores.
    Store,
    /// The cache's.
    Cache,
    /// The namespace module.
    Namespace,
    /// belay's supervisor.
    Supervisor,
    /// belay's keeper.
    Keeper,
}

impl Target {
    /// Its process, by what a status says; `None` while there is none.
    pub fn pid(self, status: &Value) -> Option<u32> {
        let companion = |role: &str| {
            let all = status["companions"].as_array()?;
            all.iter().find(|one| one["role"] == role)?.get("pid")
        };
        let pid = match self {
            Self::Store => companion("store"),
            Self::Cache => companion("cache"),
            Self::Namespace => status.pointer("/daemon/pid"),
            Self::Supervisor => status.pointer("/supervisor/pid"),
            Self::Keeper => status.pointer("/keeper/pid"),
        };
        pid.and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 1)
    }

    /// Whether it is one of the layers below the namespace module.
    pub fn is_lower(self) -> bool {
        matches!(self, Self::Store | Self::Cache)
    }

    /// Whether it is one of belay's own, of which one at least must live.
    pub fn is_belay(self) -> bool {
        matches!(self, Self::Supervisor | Self::Keeper)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Store => "store",
            Self::Cache => "cache",
            Self::Namespace => "namespace module",
            Self::Supervisor => "supervisor",
            Self::Keeper => "keeper",
        })
    }
}

/// What belay says of its mount: who answers may have been killed just now.
///
/// # Errors
/// When nobody answers for long.
pub fn status(fixture: &Fixture) -> Result<Value> {
    patiently(|| fixture.belay_status())
}

/// Asks until there is an answer.
///
/// # Errors
/// When nobody answers for long.
pub fn patiently(ask: impl Fn() -> Result<Value>) -> Result<Value> {
    let begin = Instant::now();
    loop {
        match ask() {
            Ok(status) => return Ok(status),
            Err(why) if begin.elapsed() > PATIENCE => return Err(why),
            Err(_) => {}
        }
    }
}

/// Kills a process by a signal; says when it was sent first, or nothing if the process had ended
/// already.
///
/// # Errors
/// When it does not die.
pub fn kill(pid: u32, signal: Signal) -> Result<Option<Instant>> {
    let begin = Instant::now();
    if process::kill(pid, signal).is_err() {
        return Ok(None);
    }
    while !process::wait_for_exit(pid, AGAIN)? {
        let again = if begin.elapsed() > AGAIN * 100 { Signal::KILL } else { signal };
        let _ = process::kill(pid, again);
        anyhow::ensure!(begin.elapsed() < PATIENCE, "process {pid} does not die");
    }
    Ok(Some(begin))
}

/// Looks at the mount, which its module alone can answer.
///
/// # Errors
/// When that fails.
pub fn ask(fixture: &Fixture) -> Result<()> {
    let found = rustix::fs::statvfs(fixture.mountpoint()).context("asking for the room on it")?;
    anyhow::ensure!(found.f_blocks > 0, "it says that it has no room at all");
    Ok(())
}
