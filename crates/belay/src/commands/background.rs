//! `belay run --background`: the keeper is another process, and this one waits until the mount serves, or the start has failed.

use crate::cli::Run;
use crate::messages::say;
use anyhow::{Result, bail};
use belay_supervisor::background::{Keeper, Log};
use belay_supervisor::folder::Folder;
use belay_supervisor::handover::Descriptors;
use belay_supervisor::instances;
use belay_supervisor::process::Watched;
use belay_supervisor::protocol::{Answer, Ask, Client};
use belay_supervisor::signals::is_ignored;
use belay_supervisor::threads;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// How soon a supervisor that was lost is looked for again.
const AGAIN: Duration = Duration::from_millis(50);
/// Bytes of what was said at the start that are passed on.
const SAID: usize = 256 << 10;
/// How the supervisor's own line begins, which is said here in other words.
const MOUNTED: &str = "belay: mounted at ";

/// A mount that is to be held in the background.
#[derive(Debug)]
pub struct Background {
    keeper: Keeper,
    log: Log,
}

impl Background {
    /// Starts the keeper, which waits for what it is to keep.
    pub fn start(options: &Run, folder: &Folder) -> Result<Self> {
        // The shell reads from the terminal, and a daemon behind it would take that away.
        if std::io::stdin().is_terminal() {
            rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        }
        let log = Log::open(options.log_file.as_deref(), folder)?;
        Ok(Self { keeper: Keeper::start(options.verbose, &log)?, log })
    }

    /// The keeper's process.
    pub fn pid(&self) -> u32 {
        self.keeper.child.id()
    }

    /// Where it talks to.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Gives it the mount whose folder is `dir`, and waits until that serves. Gives belay's exit code.
    pub fn wait(self, fds: Descriptors, dir: &Path) -> Result<i32> {
        let Self { keeper, log } = self;
        pass_signals_on(&keeper.child)?;
        let child = keeper.hand_over(fds)?;
        let served = serves(dir);
        let code = match &served {
            Some(_) => 0,
            None => ended(child),
        };
        pass_on(&log, served.is_some());
        match served {
            Some(place) => say(&format!(
                "{MOUNTED}{place}, and held in the background until `belay stop`; log {}\n",
                log.path().display()
            )),
            None => {
                log.forget();
                instances::retire(dir);
            }
        }
        Ok(code)
    }
}

/// Where the mount serves; `None` if it has come to an end instead.
fn serves(dir: &Path) -> Option<String> {
    loop {
        let answer = Client::connect(dir).and_then(|mut it| it.ask(&Ask::Serving, None));
        match answer {
            Ok(Answer::Serving { mountpoint }) => return Some(mountpoint),
            Ok(_) => return None,
            // A supervisor that dies is replaced by one that goes on.
            Err(error) => {
                tracing::debug!("{error}");
                if !instances::is_locked(dir) {
                    return None;
                }
                std::thread::sleep(AGAIN);
            }
        }
    }
}

/// The exit code of a keeper that has come to its end.
fn ended(mut child: Child) -> i32 {
    match child.wait().map(|status| status.code()) {
        Ok(Some(code)) => code,
        // Whatever it was killed by, nothing is mounted by it.
        Ok(None) | Err(_) => 1,
    }
}

/// Who ends this process means the mount, which is none yet.
fn pass_signals_on(child: &Child) -> Result<()> {
    let Some(keeper) = Watched::open(child.id()) else { return Ok(()) };
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = Signals::new(heard)?;
    let work = move || {
        for _ in signals.forever() {
            let _ = keeper.signal(SIGTERM);
        }
    };
    match threads::start("signals", work) {
        Ok(()) => Ok(()),
        Err((error, _)) => bail!("no thread is to be had: {error}"),
    }
}

/// What was said while the mount came to be. In the foreground it would be on this terminal.
fn pass_on(log: &Log, served: bool) {
    for line in log.said(SAID).lines() {
        if !(served && line.starts_with(MOUNTED)) {
            say(&format!("{line}\n"));
        }
    }
}
