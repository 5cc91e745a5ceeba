//! Processes that a daemon needs beside it, such as those of a volume: each is started again when it ends, by a thread of its own.
//!
//! A companion has a lock on a file while it lives, by which a new supervisor finds those of the last, and two of one name never work at
//! the same time. They are started in their order before the daemon, and asked to end in the opposite order when the daemon has ended, each
//! when those behind it are gone: by a word in their pulse, and SIGTERM. The signal alone, which anybody may send, ends none of them.
//! One that says that it gives up is not started again, and the mount is given up with it.

mod said;

use crate::clock;
use crate::degraded::Reason;
use crate::error::{Error, Result};
use crate::process::{Exit, Watched, is_stopped};
use crate::role::self_as;
use crate::signals::SAME_WISH;
use crate::silence::Silence;
use crate::text::{OsText, span};
use belay_memory::pulse::{BYTES, Seen, TOLD_AT};
use belay_sys::process_with_lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::fstat;
use said::Said;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGKILL, SIGTERM};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// One that has lived for less than this may be ending again and again.
const SHORT: Duration = Duration::from_secs(1);
/// The first pause after such an end, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];
/// How often it is looked whether one hangs.
const LOOK: Duration = Duration::from_secs(1);
/// How soon it is looked again whether one that is to end has begun.
const SOON: Duration = Duration::from_millis(1);
/// So many short lives in a row are nothing unusual: somebody kills them.
const FEW: u32 = 8;
/// For how long what they share may be gone.
const REMOVED: Duration = Duration::from_secs(3);

/// A process beside the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    /// What it is for, in a word.
    pub role: String,
    /// The hidden subcommand of belay that it runs, and what comes behind it.
    pub words: Vec<OsText>,
    /// The file that it locks.
    pub lock: OsText,
    /// The file by which it shows that it gets on, see [`belay_memory::pulse`].
    pub pulse: OsText,
    /// For how long it may show nothing, in milliseconds; 0: for ever. Waiting for others does not count.
    pub hang_timeout_ms: u64,
    /// The file in which it says how it has recovered, as JSON; if it does.
    #[serde(default)]
    pub report: Option<OsText>,
}

/// How a companion is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompanionStatus {
    /// What it is for.
    pub role: String,
    /// Its process; `null` while there is none.
    pub pid: Option<u32>,
    /// How often it was started again under this supervisor.
    pub restarts: u64,
    /// What it says itself of how it has recovered; `null` if nothing.
    #[serde(default)]
    pub report: Option<serde_json::Value>,
}

/// All companions of a mount.
#[derive(Debug, Default)]
pub struct Companions {
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    /// What they say of themselves.
    said: Said,
    /// Counted when something is wanted.
    wish: Option<OwnedFd>,
    /// When somebody wanted the end first while they were ending.
    hurried: Option<Instant>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seen: Vec<CompanionStatus>,
    ends: bool,
    /// Nobody waits for what they bring home any more.
    killed: bool,
    /// The role of one that has given up.
    gave_up: Option<String>,
    /// The folder that they share, if it was removed, and when that was seen.
    removed: Option<(String, Instant)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct One {
    companion: Companion,
    lock: File,
    /// Its pulse. Its name may go while it is needed.
    shown: File,
    process: Option<Watched>,
    /// How often it was started again: each start but the first of all.
    restarts: u64,
    was_there: bool,
    since: Instant,
    /// Short lives in a row.
    short: u32,
    not_before: Instant,
    /// It was asked to end.
    told: bool,
    over: bool,
    /// What its pulse was like, and for how long it has been so.
    pulse: (Seen, Silence),
}

impl Companions {
    /// Finds those that live, and starts the others.
    ///
    /// # Errors
    /// If a lock cannot be opened, or there is no thread to be had.
    pub fn start(companions: &[Companion], verbose: u8) -> Result<Self> {
        if companions.is_empty() {
            return Ok(Self::default());
        }
        let now = Instant::now();
        let mut all = Vec::new();
        for companion in companions {
            let mut one = One {
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
            };
            one.adopt();
            all.push(one);
        }
        let wrap =
            |what: &'static str| move |e: std::io::Error| Error::system("start", what, e, "");
        let wish = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wish = wish.map_err(|e| wrap("an event counter")(e.into()))?;
        let heard = belay_sys::dup_cloexec(wish.as_fd()).map_err(wrap("an event counter"))?;
        let shared = Arc::new(Shared::default());
        shared.state().seen = all.iter().map(One::status).collect();
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("companions".into())
            .spawn(move || keep(all, &theirs, &heard, verbose))
            .map_err(wrap("a thread"))?;
        let said = companions.iter().map(|one| (one.role.clone(), one.report.clone())).collect();
        Ok(Self { thread: Some(thread), shared, said: Said(said), wish: Some(wish), hurried: None })
    }

    /// How they are.
    pub fn statuses(&self) -> Vec<CompanionStatus> {
        let mut seen = self.shared.state().seen.clone();
        for one in &mut seen {
            one.report = self.said.by(&one.role);
        }
        seen
    }

    /// Their processes.
    pub fn processes(&self) -> Vec<u32> {
        self.shared.state().seen.iter().filter_map(|one| one.pid).collect()
    }

    /// Why the mount cannot go on, if one of them has given up. `log`: where their messages are, if that is a file.
    pub fn gave_up(&self, log: Option<&str>) -> Option<String> {
        let role = self.shared.state().gave_up.clone()?;
        Some(format!("its {role} process has given up: {}", self.said.last_words(&role, log)))
    }

    /// The folder that they share, if it was removed a while ago: without it they do not find each other. Whoever has done that may be
    /// about to end the mount as well, which is better.
    pub fn removed(&self) -> Option<String> {
        let removed = self.shared.state().removed.clone();
        removed.filter(|(_, since)| since.elapsed() > REMOVED).map(|(place, _)| place)
    }

    /// What is to be said of the end of one that was asked to end. `log`: as above.
    pub fn failed(&self, role: &str, exit: Exit, log: Option<&str>) -> Option<String> {
        self.said.failed(role, exit, log)
    }

    /// What one of them cannot do now, as it says itself.
    pub fn failing(statuses: &[CompanionStatus]) -> Option<Reason> {
        statuses.iter().find_map(|one| said::failing(one.report.as_ref()?))
    }

    /// Asks them to end. That takes as long as they bring home what the daemon has left with them ([`Companions::have_ended`]).
    pub fn end(&self) {
        self.shared.state().ends = true;
        self.wish();
    }

    /// Somebody wants the end while they end. At a second such wish they are killed: the first one may have come when nobody knew yet
    /// that they were ending. Says whether they are.
    pub fn hurry(&mut self) -> bool {
        let first = *self.hurried.get_or_insert_with(Instant::now);
        let killed = first.elapsed() > Duration::from_nanos(SAME_WISH);
        if killed {
            self.kill();
        }
        killed
    }

    /// Kills those that have not ended.
    pub fn kill(&self) {
        self.shared.state().killed = true;
        self.wish();
    }

    fn wish(&self) {
        if let Some(wish) = &self.wish {
            let _ = rustix::io::write(wish, &1_u64.to_ne_bytes());
        }
    }

    /// Whether they have ended as they were asked to.
    pub fn have_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The last process of each, when they have ended.
    pub fn take_ended(&mut self) -> Vec<(String, u32)> {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let seen = std::mem::take(&mut self.shared.state().seen);
        seen.into_iter().filter_map(|one| Some((one.role, one.pid?))).collect()
    }
}

/// What is seen of a pulse; nothing if there is none.
pub fn pulse(path: &OsText) -> Seen {
    File::open(path.0.as_os_str()).map_or_else(|_| Seen::default(), |file| seen(&file))
}

fn seen(pulse: &File) -> Seen {
    let mut bytes = [0; BYTES];
    let read = pulse.read_exact_at(&mut bytes, 0);
    read.map_or_else(|_| Seen::default(), |()| Seen::of(&bytes))
}

fn open(path: &OsText) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path.0.as_os_str()).map_err(|e| Error::system("open", path.show(), e, ""))
}

impl One {
    /// The process that has the lock.
    fn holder(&self) -> Option<u32> {
        process_with_lock(self.lock.as_fd()).ok().flatten()
    }

    /// Watches the process that has the lock, if there is one.
    fn adopt(&mut self) {
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
    fn say_told(&self, told: bool) {
        let written = self.shown.write_all_at(&u64::from(told).to_ne_bytes(), TOLD_AT);
        if let Err(error) = written {
            tracing::error!("cannot write to {}: {error}", self.companion.pulse.show());
        }
    }

    fn start(&mut self, verbose: u8) {
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

    /// Kills it if it hangs.
    fn look(&mut self) {
        let Some(process) = &self.process else { return };
        let seen = seen(&self.shown);
        let gets_on = seen != self.pulse.0 || seen.waits && !is_stopped(process.pid);
        self.pulse.0 = seen;
        let silence = Duration::from_nanos(self.pulse.1.look(gets_on, clock::now()));
        let limit = self.companion.hang_timeout_ms;
        if limit > 0 && silence > Duration::from_millis(limit) {
            tracing::warn!(
                "{} process {} hangs: it has not got on for {}; it is killed",
                self.companion.role,
                process.pid,
                span(silence)
            );
            let _ = process.signal(SIGKILL);
            self.pulse.1 = Silence::new(clock::now());
        }
    }

    /// The folder that its files are in, if one of them has no name any more.
    fn removed(&self) -> Option<String> {
        let is_gone = |file: &File| fstat(file).is_ok_and(|found| found.st_nlink == 0);
        let gone = is_gone(&self.lock) || is_gone(&self.shown);
        let folder = Path::new(&self.companion.lock.0).parent()?;
        gone.then(|| OsText::from(folder).show())
    }

    fn status(&self) -> CompanionStatus {
        let pid = self.process.as_ref().map(|process| process.pid);
        let (role, restarts) = (self.companion.role.clone(), self.restarts);
        CompanionStatus { role, pid, restarts, report: None }
    }

    /// It has ended: the next one is due.
    fn ended(&mut self) {
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

/// Keeps them, until they are to end and have ended.
fn keep(mut all: Vec<One>, shared: &Shared, wish: &OwnedFd, verbose: u8) {
    while all.iter().any(|one| !one.over) {
        let mut next: Option<Instant> = None;
        for (place, one) in all.iter_mut().enumerate() {
            if one.process.is_some() || one.over {
                continue;
            }
            if shared.state().ends && one.removed().is_some() {
                // Another one would find nothing, and the others wait for it in vain.
                one.over = true;
                let mut state = shared.state();
                state.gave_up = Some(one.companion.role.clone());
                state.killed = true;
                continue;
            }
            if one.not_before <= Instant::now() {
                one.start(verbose);
                // It is not to be taken for something that the daemon has left.
                note(shared, place, one);
            }
            if one.process.is_none() {
                next = Some(next.map_or(one.not_before, |next| next.min(one.not_before)));
            }
        }
        // Each is told when those behind it are gone.
        if shared.state().ends
            && let Some(last) = all.iter_mut().rev().find(|one| !one.over)
            && let Some(process) = last.process.as_ref().filter(|_| !last.told)
        {
            // One that has just been started does not know yet what the signal means: it takes the lock when it does.
            if last.holder() == Some(process.pid) {
                last.say_told(true);
                last.told = process.signal(SIGTERM).is_ok();
            } else {
                next = Some(Instant::now() + SOON);
            }
        }
        if shared.state().killed {
            for one in all.iter_mut().filter(|one| !one.over) {
                one.told = true;
                one.over =
                    one.process.as_ref().is_none_or(|process| process.signal(SIGKILL).is_err());
            }
        }
        wait(&all, wish, next);
        all.iter_mut().for_each(One::look);
        if let Some(place) = all.iter().find_map(One::removed) {
            shared.state().removed.get_or_insert_with(|| (place, Instant::now()));
        }
        for (place, one) in all.iter_mut().enumerate() {
            let Some(process) = one.process.as_ref().filter(|process| process.is_dead()) else {
                continue;
            };
            let gave_up = seen(&one.shown).gave_up;
            if one.told || gave_up {
                one.over = true;
                one.process = None;
                if gave_up {
                    shared.state().gave_up = Some(one.companion.role.clone());
                    note(shared, place, one);
                }
                continue;
            }
            tracing::info!(
                "{} process {} has ended; starting another",
                one.companion.role,
                process.pid
            );
            one.ended();
            note(shared, place, one);
        }
    }
}

fn note(shared: &Shared, place: usize, one: &One) {
    if let Some(seen) = shared.state().seen.get_mut(place) {
        *seen = one.status();
    }
}

fn wait(all: &[One], wish: &OwnedFd, next: Option<Instant>) {
    let mut polled = vec![PollFd::new(wish, PollFlags::IN)];
    let processes = all.iter().filter_map(|one| one.process.as_ref());
    polled.extend(processes.map(|process| PollFd::new(process, PollFlags::IN)));
    let left = next.map_or(LOOK, |next| next.saturating_duration_since(Instant::now())).min(LOOK);
    let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    let _ = poll(&mut polled, Some(&limit));
    let _ = rustix::io::read(wish, &mut [0_u8; 8]);
}
