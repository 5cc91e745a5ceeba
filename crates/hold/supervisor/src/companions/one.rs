//! One companion: its files, and its process.

use super::{Companion, CompanionStatus};
use crate::clock;
use crate::error::{Error, Result};
use crate::process::{Watched, is_stopped};
use crate::role::self_as;
use crate::silence::Silence;
use crate::text::{OsText, span};
use belay_memory::pulse::{BYTES, Seen, TOLD_AT};
use belay_sys::process_with_lock;
use rustix::fd::AsFd;
use rustix::fs::fstat;
use signal_hook::consts::SIGKILL;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long it may take at the least to show that it gets on: more than from one look to the next
/// one behind it.
const SHOWS: Duration = Duration::from_secs(3);
/// One that has lived for less than this may be ending again and again.
const SHORT: Duration = Duration::from_secs(1);
/// The first pause after such an end, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];
/// So many short lives in a row are nothing unusual: somebody kills them.
const FEW: u32 = 8;

/// One companion, as the thread that keeps them sees it.
pub(super) struct One {
    pub companion: Companion,
    lock: File,
    /// Its pulse. Its name may go while it is needed.
    shown: File,
    pub process: Option<Watched>,
    /// How often it was started again: each start but the first of all.
    restarts: u64,
    was_there: bool,
    since: Instant,
    /// Short lives in a row.
    short: u32,
    pub not_before: Instant,
    /// It was asked to end.
    pub told: bool,
    pub over: bool,
    /// What its pulse was like, and for how long it has been so.
    pulse: (Seen, Silence),
}

impl One {
    /// None of its processes is known yet.
    pub fn new(companion: &Companion) -> Result<Self> {
        let now = Instant::now();
        Ok(Self {
            companion: companion.clone(),
            lock: open(&companion.lock)?,
            shown: open(&companion.pulse)?,
            process: None,
            restarts: 0,
            was_there: false,
            since: now,
            short: 0,
            not_before: now,
            told: false,
            over: false,
            pulse: (Seen::default(), Silence::new(clock::now())),
        })
    }

    /// Whether it says that it has given up.
    pub fn gave_up(&self) -> bool {
        seen(&self.shown).gave_up
    }

    /// The process that has the lock.
    pub fn holder(&self) -> Option<u32> {
        process_with_lock(self.lock.as_fd()).ok().flatten()
    }

    /// Watches the process that has the lock, if there is one.
    pub fn adopt(&mut self) {
        let Some(watched) = self.holder().and_then(Watched::open) else { return };
        // The number may have become another process's before it was opened.
        if self.holder() == Some(watched.pid) {
            self.process = Some(watched);
            self.was_there = true;
            self.since = Instant::now();
            self.pulse.1 = Silence::new(clock::now());
        }
    }

    /// Says in its pulse whether it is to end for good when SIGTERM comes.
    pub fn say_told(&self, told: bool) {
        let written = self.shown.write_all_at(&u64::from(told).to_ne_bytes(), TOLD_AT);
        if let Err(error) = written {
            tracing::error!("cannot write to {}: {error}", self.companion.pulse.show());
        }
    }

    /// Starts its process.
    pub fn start(&mut self, verbose: u8) {
        self.say_told(false);
        let mut words = self.companion.words.iter().map(|word| word.0.as_os_str());
        let name = words.next().and_then(|word| word.to_str()).unwrap_or_default();
        let mut command = self_as(name, verbose);
        // Its own group: what a terminal sends is for who started the mount.
        command.args(words).stdin(Stdio::null()).process_group(0);
        match command.spawn() {
            Ok(child) => {
                self.process = Watched::open(child.id());
                self.restarts += u64::from(self.was_there);
                self.was_there = true;
                self.since = Instant::now();
                self.pulse.1 = Silence::new(clock::now());
            }
            Err(error) => {
                let [_, longest] = PAUSES;
                self.not_before = Instant::now() + longest;
                tracing::error!(
                    "cannot start the {} process: {error}; trying again",
                    self.companion.role
                );
            }
        }
    }

    /// Kills it if it hangs; gives which process that was, and for how long it had not got on.
    pub fn look(&mut self) -> Option<(u32, Duration)> {
        let process = self.process.as_ref()?;
        let seen = seen(&self.shown);
        let gets_on = seen != self.pulse.0 || seen.waits && !is_stopped(process.pid);
        self.pulse.0 = seen;
        let silence = Duration::from_nanos(self.pulse.1.look(gets_on, clock::now()));
        let limit = Duration::from_millis(self.companion.hang_timeout_ms);
        // It shows once a second that it gets on, unless it is stopped.
        let least = if is_stopped(process.pid) { Duration::ZERO } else { SHOWS };
        if !limit.is_zero() && silence > limit.max(least) {
            tracing::warn!(
                "{} process {} hangs: it has not got on for {}; it is killed",
                self.companion.role,
                process.pid,
                span(silence)
            );
            let _ = process.signal(SIGKILL);
            self.pulse.1 = Silence::new(clock::now());
            return Some((process.pid, silence));
        }
        None
    }

    /// The folder that its files are in, if one of them has no name any more.
    pub fn removed(&self) -> Option<String> {
        let is_gone = |file: &File| fstat(file).is_ok_and(|found| found.st_nlink == 0);
        let gone = is_gone(&self.lock) || is_gone(&self.shown);
        let folder = Path::new(&self.companion.lock.0).parent()?;
        gone.then(|| OsText::from(folder).show())
    }

    /// How it is.
    pub fn status(&self) -> CompanionStatus {
        let pid = self.process.as_ref().map(|process| process.pid);
        let (role, restarts) = (self.companion.role.clone(), self.restarts);
        CompanionStatus { role, pid, restarts, exit: None, report: None }
    }

    /// It has ended: the next one is due.
    pub fn ended(&mut self) {
        let now = Instant::now();
        self.short = if now - self.since < SHORT { self.short + 1 } else { 0 };
        let [first, longest] = PAUSES;
        let pause = match self.short.checked_sub(FEW) {
            None => Duration::ZERO,
            Some(many) => first.saturating_mul(1 << many.min(10)).min(longest),
        };
        if self.short == FEW {
            tracing::warn!("the {} process ends again and again", self.companion.role);
        }
        self.not_before = now + pause;
        self.process = None;
        // If it lost a race for the lock, the other one is there.
        self.adopt();
    }
}

/// What is seen of a pulse.
pub(super) fn seen(pulse: &File) -> Seen {
    let mut bytes = [0; BYTES];
    let read = pulse.read_exact_at(&mut bytes, 0);
    read.map_or_else(|_| Seen::default(), |()| Seen::of(&bytes))
}

fn open(path: &OsText) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path.0.as_os_str()).map_err(|e| Error::system("open", path.show(), e, ""))
}
