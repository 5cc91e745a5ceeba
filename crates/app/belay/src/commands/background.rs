//! `belay run --background`: the keeper is another process, and this one waits until the mount
//! serves, or the start has failed.
//!
//! Invariant: the exit status is 0 only if the mount was seen to serve, and nobody has wished for
//! its end before that was said.

use crate::cli::Run;
use crate::messages::say;
use anyhow::{Result, bail};
use belay_supervisor::background::{Keeper, Log};
use belay_supervisor::folder::Folder;
use belay_supervisor::handover::Descriptors;
use belay_supervisor::instances;
use belay_supervisor::outgoing;
use belay_supervisor::process::{Watched, signal_name};
use belay_supervisor::protocol::{Answer, Ask, Client, StopHow};
use belay_supervisor::signals::is_ignored;
use belay_supervisor::text;
use belay_supervisor::threads;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How soon a supervisor that was lost is looked for again.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a keeper may take to end that was killed.
const KILLED: Duration = Duration::from_secs(1);
/// How long those may take to let go of the mount's folder whose keeper has ended.
const END: Duration = Duration::from_secs(5);
/// Bytes of what was said at the start that are passed on.
const SAID: usize = 256 << 10;
/// Bytes that are passed on at once: fewer than wait for a reader at most, or the rest would be
/// lost.
const PART: usize = 32 << 10;
/// How the supervisor's own line begins, which is said here in other words.
const MOUNTED: &str = "belay: mounted at ";

/// A mount that is to be held in the background.
#[derive(Debug)]
pub struct Background {
    keeper: Keeper,
    log: Log,
}

impl Background {
    /// Starts the keeper, which waits for what it is to keep, and names it in its command line.
    pub fn start(options: &Run, holds: &OsStr, folder: &Folder) -> Result<Self> {
        // The daemon inherits it. Whoever has started this reads from it, and no later daemon would
        // find there what the first has read.
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        let log = Log::open(options.log_file.as_deref(), folder)?;
        Ok(Self { keeper: Keeper::start(options.verbose, holds, &log)?, log })
    }

    /// The keeper's process.
    pub fn pid(&self) -> u32 {
        self.keeper.child.id()
    }

    /// Where it talks to.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// There will be no mount: the keeper ends without a word, and before it has, nothing else goes
    /// on.
    pub fn cancel(self) {
        self.keeper.cancel();
    }

    /// Gives it the mount whose folder is `dir`, and waits until that serves. Gives belay's exit
    /// code.
    pub fn wait(self, fds: Descriptors, dir: &Path) -> Result<i32> {
        let Self { keeper, log } = self;
        let wishes = pass_signals_on(&keeper.child, dir)?;
        let child = match keeper.hand_over(fds) {
            Ok(child) => child,
            Err(error) => {
                // Why it has ended is said there, and that goes with the folder.
                pass_on(&log, false);
                return Err(error.into());
            }
        };
        let served = serves(dir);
        // From here on a signal comes too late: the mount is held, and that is said.
        let broken = wishes.settle(served.is_some());
        if let (Some(place), None) = (&served, broken) {
            pass_on(&log, true);
            let place = text::escaped(place.as_ref());
            let place = if place.is_empty() { "a place that belay does not see" } else { &place };
            say(&format!(
                "{MOUNTED}{place}, and held in the background until `belay stop`; log {}\n",
                log.path().display()
            ));
            return Ok(0);
        }
        let ended = ended(child, dir);
        let said = pass_on(&log, false);
        let (code, why) = verdict(broken, ended, said);
        if let Some(why) = why {
            say(&format!("belay: error: {why}: nothing serves\n"));
        }
        if instances::is_locked(dir) {
            say(&format!(
                "belay: warning: what is left of the start has not ended; log {}\n",
                log.path().display()
            ));
        } else {
            log.forget();
            instances::retire(dir);
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
            Ok(Answer::Ended { .. }) => return None,
            // A supervisor that dies is replaced by one that goes on.
            other => {
                tracing::debug!("{other:?}");
                if !instances::is_locked(dir) {
                    return None;
                }
                std::thread::sleep(AGAIN);
            }
        }
    }
}

/// How a keeper has come to its end, and with it all that has the mount's folder.
fn ended(mut child: Child, dir: &Path) -> Option<ExitStatus> {
    let status = child.wait().ok();
    let end = Instant::now() + END;
    while instances::is_locked(dir) && Instant::now() < end {
        std::thread::sleep(AGAIN);
    }
    status
}

/// The exit code of a start of which nothing serves, and why, if nobody has said that. `broken`:
/// the signal that has broken it off; `said`: something was said of it.
fn verdict(broken: Option<i32>, ended: Option<ExitStatus>, said: bool) -> (i32, Option<String>) {
    if let Some(signal) = broken {
        let why = format!("the start was interrupted by {}", signal_name(signal));
        return (128 + signal, Some(why));
    }
    let signal = ended.and_then(|status| status.signal());
    match (ended.and_then(|status| status.code()), signal) {
        (Some(code), _) if code != 0 => {
            (code, (!said).then(|| format!("belay's keeper has ended with code {code}")))
        }
        (Some(_), _) => (1, Some("the mount has ended before it served".to_owned())),
        (None, Some(signal)) => {
            (1, Some(format!("belay's keeper was killed by {}", signal_name(signal))))
        }
        (None, None) => (1, Some("belay's keeper has ended".to_owned())),
    }
}

/// Whether somebody has wished for the end of the start.
#[derive(Clone, Debug, Default)]
struct Wishes(Arc<Mutex<Wish>>);

#[derive(Clone, Copy, Debug, Default)]
enum Wish {
    /// Nobody has so far.
    #[default]
    None,
    /// By this signal.
    Signal(i32),
    /// Nobody has, and the mount serves.
    TooLate,
}

impl Wishes {
    fn lock(&self) -> MutexGuard<'_, Wish> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A signal has come; says whether it ends the mount.
    fn note(&self, signal: i32) -> bool {
        let mut wish = self.lock();
        if matches!(*wish, Wish::None) {
            *wish = Wish::Signal(signal);
        }
        !matches!(*wish, Wish::TooLate)
    }

    /// The signal that has come, if one has. If none has, and the mount serves, one that comes
    /// later ends nothing.
    fn settle(&self, serves: bool) -> Option<i32> {
        let mut wish = self.lock();
        match *wish {
            Wish::Signal(signal) => return Some(signal),
            Wish::None if serves => *wish = Wish::TooLate,
            Wish::None | Wish::TooLate => {}
        }
        None
    }
}

/// Who ends this process means the mount, which is none yet.
fn pass_signals_on(child: &Child, dir: &Path) -> Result<Wishes> {
    let wishes = Wishes::default();
    let Some(keeper) = Watched::open(child.id()) else { return Ok(wishes) };
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = Signals::new(heard)?;
    let (noted, dir) = (wishes.clone(), dir.to_owned());
    let work = move || {
        for signal in signals.forever() {
            if noted.note(signal) {
                end_it(&keeper, &dir);
            }
        }
    };
    match threads::start("signals", work) {
        Ok(()) => Ok(wishes),
        Err((error, _)) => bail!("cannot start a thread: {error}"),
    }
}

/// Has the mount ended. A keeper that was killed is replaced by one that is not known here, but its
/// supervisor is.
fn end_it(keeper: &Watched, dir: &Path) {
    // One that is just being killed takes the signal and passes nothing on. One that works ends
    // when nobody has the mount any more.
    let is_lost = keeper.signal(SIGTERM).is_err() || keeper.wait_end(KILLED);
    if is_lost && instances::is_locked(dir) {
        let asked = Client::connect(dir)
            .and_then(|mut it| it.ask(&Ask::Stop { how: StopHow::Force }, Some(END)));
        tracing::debug!("{asked:?}");
    }
}

/// What was said while the mount came to be. In the foreground it would be on this terminal. Says
/// whether there was something.
fn pass_on(log: &Log, served: bool) -> bool {
    let (text, is_all) = log.said(SAID);
    if !is_all {
        say("belay: some earlier messages were dropped: there were too many\n");
    }
    let mut waiting = 0;
    for line in text.lines().filter(|line| !(served && line.starts_with(MOUNTED))) {
        say(&format!("{line}\n"));
        waiting += line.len() + 1;
        if waiting > PART {
            // As long as somebody reads.
            outgoing::finish();
            waiting = 0;
        }
    }
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_serves_and_is_wanted_is_a_success() {
        let wishes = Wishes::default();
        assert_eq!(wishes.settle(false), None);
        assert!(wishes.note(SIGINT) && wishes.note(SIGTERM));
        assert_eq!(wishes.settle(true), Some(SIGINT), "it has come before that was said");
        let wishes = Wishes::default();
        assert_eq!(wishes.settle(true), None);
        assert!(!wishes.note(SIGINT), "the mount is held, and that was said");
        for code in [0, 1, 7, 255] {
            for said in [false, true] {
                let (given, why) = verdict(None, Some(ExitStatus::from_raw(code << 8)), said);
                assert_ne!(given, 0);
                assert!(code == 0 || given == code);
                assert!(said || why.is_some());
            }
        }
        assert_eq!(verdict(Some(SIGTERM), Some(ExitStatus::from_raw(0)), true).0, 143);
        assert_eq!(verdict(None, Some(ExitStatus::from_raw(9)), true).0, 1);
        assert_eq!(verdict(None, None, true).0, 1);
    }
}
