//! Processes that a daemon needs beside it, such as those of a volume: each is started again when
//! it ends, by a thread of its own.
//!
//! A companion has a lock on a file while it lives, by which a new supervisor finds those of the
//! last, and two of one name never work at the same time. They are started in their order before
//! the daemon, and asked to end in the opposite order when the daemon has ended, each when those
//! behind it are gone: by a word in their pulse, and SIGTERM. The signal alone, which anybody may
//! send, ends none of them. One that says that it gives up is not started again, and the mount is
//! given up with it.

mod lives;
mod one;
mod said;

use crate::clock;
use crate::degraded::{Kind, Reason};
use crate::error::{Error, Result};
use crate::process::Exit;
use crate::signals::SAME_WISH;
use crate::text::OsText;
use belay_memory::pulse::Seen;
pub use lives::End;
use lives::Lives;
use one::{One, seen};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use said::Said;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGKILL, SIGTERM};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it is looked whether one hangs.
const LOOK: Duration = Duration::from_secs(1);
/// How soon it is looked again whether one that is to end has begun.
const SOON: Duration = Duration::from_millis(1);
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
    /// For how long it may show nothing, in milliseconds; 0: for ever. Waiting for others does not
    /// count.
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
    /// How its last process under this supervisor ended that nobody had asked to end; `null` if
    /// none has.
    #[serde(default)]
    pub exit: Option<Exit>,
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
    /// How the last process of each has ended.
    exits: BTreeMap<String, Exit>,
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
    lives: Lives,
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

impl Companions {
    /// Finds those that live, and starts the others.
    ///
    /// # Errors
    /// If a lock cannot be opened, or there is no thread to be had.
    pub fn start(companions: &[Companion], verbose: u8) -> Result<Self> {
        if companions.is_empty() {
            return Ok(Self::default());
        }
        let mut all = Vec::new();
        for companion in companions {
            let mut one = One::new(companion)?;
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
        for one in &all {
            begun(&shared, one);
        }
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("companions".into())
            .spawn(move || keep(all, &theirs, &heard, verbose))
            .map_err(wrap("a thread"))?;
        let said = companions.iter().map(|one| (one.role.clone(), one.report.clone())).collect();
        let (thread, wish) = (Some(thread), Some(wish));
        Ok(Self { thread, shared, said: Said(said), exits: BTreeMap::new(), wish, hurried: None })
    }

    /// How they are.
    pub fn statuses(&self) -> Vec<CompanionStatus> {
        let mut seen = self.shared.state().seen.clone();
        for one in &mut seen {
            one.report = self.said.by(&one.role);
            one.exit = self.exits.get(&one.role).copied();
        }
        seen
    }

    /// Those that have ended since the last time, though nobody had asked them to. `exit_of` knows
    /// how a process ended. `at_the_end`: nobody asks again.
    pub fn take_ends(
        &mut self,
        at_the_end: bool,
        exit_of: impl Fn(u32) -> Option<Exit>,
    ) -> Vec<End> {
        let now = if at_the_end { u64::MAX } else { clock::now() };
        let ends = self.shared.state().lives.take_ends(now, exit_of);
        for end in &ends {
            self.exits.insert(end.role.clone(), end.exit);
        }
        ends
    }

    /// Their processes.
    pub fn processes(&self) -> Vec<u32> {
        self.shared.state().seen.iter().filter_map(|one| one.pid).collect()
    }

    /// Why the mount cannot go on, if one of them has given up. `log`: where their messages are, if
    /// that is a file.
    pub fn gave_up(&self, log: Option<&str>) -> Option<String> {
        let role = self.shared.state().gave_up.clone()?;
        Some(format!("its {role} process has given up: {}", self.said.last_words(&role, log)))
    }

    /// The folder that they share, if it was removed a while ago: without it they do not find each
    /// other. Whoever has done that may be about to end the mount as well, which is better.
    pub fn removed(&self) -> Option<String> {
        let removed = self.shared.state().removed.clone();
        removed.filter(|(_, since)| since.elapsed() > REMOVED).map(|(place, _)| place)
    }

    /// What is to be said of the end of one that was asked to end. `log`: as above.
    pub fn failed(&self, role: &str, exit: Exit, log: Option<&str>) -> Option<String> {
        self.said.failed(role, exit, log)
    }

    /// What is wrong now: what they say themselves, and which of them die again and again.
    pub fn wrong(&self, statuses: &[CompanionStatus]) -> Vec<Reason> {
        let said = statuses.iter().filter_map(|one| one.report.as_ref()).flat_map(said::wrong);
        let dying = self.shared.state().lives.dying(clock::now()).into_iter();
        let dying = dying.map(|(role, times, since)| {
            let how = self.exits.get(&role).map_or("ended".to_owned(), |exit| exit.told());
            let what = format!(
                "its {role} process has died {times} times within a minute (the last one {how}), and is started again each time: \
                 what is written may not reach the stores meanwhile; see the crash reports"
            );
            Reason { kind: Kind::Process, what, since: clock::rfc3339(since) }
        });
        said.chain(dying).collect()
    }

    /// Asks them to end. That takes as long as they bring home what the daemon has left with them
    /// ([`Companions::have_ended`]).
    pub fn end(&self) {
        self.shared.state().ends = true;
        self.wish();
    }

    /// Somebody wants the end while they end. At a second such wish they are killed: the first one
    /// may have come when nobody knew yet that they were ending. Says whether they are.
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
                begun(shared, one);
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
            // One that has just been started does not know yet what the signal means: it takes the
            // lock when it does.
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
        for one in &mut all {
            if let Some((pid, silence)) = one.look() {
                shared.state().lives.hangs(pid, silence.as_millis() as u64);
            }
        }
        if let Some(place) = all.iter().find_map(One::removed) {
            shared.state().removed.get_or_insert_with(|| (place, Instant::now()));
        }
        for (place, one) in all.iter_mut().enumerate() {
            let Some(process) = one.process.as_ref().filter(|process| process.is_dead()) else {
                continue;
            };
            let (pid, gave_up) = (process.pid, one.gave_up());
            if one.told {
                shared.state().lives.forget(pid);
            }
            match gave_up {
                true => shared.state().lives.end_for_good(pid),
                false => shared.state().lives.end(pid),
            }
            if one.told || gave_up {
                one.over = true;
                one.process = None;
                if gave_up {
                    shared.state().gave_up = Some(one.companion.role.clone());
                    note(shared, place, one);
                }
                continue;
            }
            tracing::debug!("{} process {pid} has ended; starting another", one.companion.role);
            one.ended();
            note(shared, place, one);
            begun(shared, one);
        }
    }
}

/// It may have another process now.
fn begun(shared: &Shared, one: &One) {
    if let Some(process) = &one.process {
        shared.state().lives.begin(&one.companion.role, process.pid);
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
