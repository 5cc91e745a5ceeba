//! The keeper: holds descriptors and memory, starts supervisors, ends one that hangs, and does
//! nothing else.
//!
//! It is the process that the user started. When it is killed, the supervisor starts a new one.

mod prepare;
pub use prepare::prepare;

use crate::background;
use crate::clock;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::handover::{Descriptors, Link, Note, Received, close_aside};
use crate::heartbeat::{self, Watch};
use crate::memfile;
use crate::process::{Exit, Exited, Watched, is_stopped, reap};
use crate::role::{LACKS, become_subreaper, start_self};
use crate::signals::Signals;
use crate::text::{OsText, span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::fs::{FileType, fstat};
use rustix::process::getppid;
use signal_hook::consts::{SIGCHLD, SIGKILL};
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

/// Ended processes that are remembered for a new supervisor.
const HISTORY: usize = 64;
/// Supervisors that may die before one works, at the very start.
const FIRST_TRIES: u32 = 5;
/// Supervisors in a row that may end by their own doing, each soon after its start: what one of
/// them dies of is found by the next in the same place.
const OWN_DEATHS: u32 = 8;
/// How long such is waited for before the first supervisor has begun; then there is no end to it,
/// as nothing is lost by waiting.
const FIRST_PATIENCE: u64 = 30_000_000_000;
/// Pauses between two looks for it, the first and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How long one has lived that did not end soon.
const LONG_LIFE: u64 = 30_000_000_000;
/// How often it is looked whether one gets on; and what is a net under lost wake-ups if it is not,
/// on which nothing depends.
const LOOKS: [i64; 2] = [1, 30];
/// How long the end of one may take that has let go of the link.
const END: Duration = Duration::from_secs(2);

/// Keeps the mount of `fds` from its start to its end; gives belay's exit code.
///
/// # Errors
/// If not even the first supervisor can be started.
pub fn run(config: &Config, fds: Descriptors) -> Result<i32> {
    become_subreaper()?;
    let mut keeper = Keeper::new(config, fds)?;
    keeper.start_patiently(false)?;
    Ok(keeper.keep())
}

/// The keeper that a supervisor starts after the death of the last one, or that `belay run
/// --background` starts; its standard input is the link. Gives belay's exit code.
///
/// # Errors
/// If the link brings no descriptors.
pub fn run_inherited() -> Result<i32> {
    become_subreaper()?;
    let link = Link::from_stdin()?;
    let (note, fds) = match link.receive(true) {
        Received::WithDescriptors(note, fds) => (note, fds),
        // Whoever has started this has found that there is nothing to keep, and says why.
        Received::Closed if is_socket(&link) => return Ok(1),
        _ => return Err(nobody_there()),
    };
    // Standard input was the link, which must be held once only, or its end goes unnoticed.
    let _ = rustix::stdio::dup2_stdin(&fds.stdin);
    let config: Config = memfile::to_value("belay-config", fds.config.as_fd())?;
    config.mind_log();
    let (from, stops) = match note {
        Note::Hello { from, stops, .. } => (from, stops),
        Note::Begin => {
            drop(link);
            background::leave_session();
            return run(&config, fds);
        }
        _ => return Err(nobody_there()),
    };
    let mut keeper = Keeper::new(&config, fds)?;
    keeper.stops = stops;
    keeper.watch_parent(from);
    keeper.worked = true;
    keeper.link = Some(link);
    Ok(keeper.keep())
}

fn is_socket(link: &Link) -> bool {
    fstat(link).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

fn nobody_there() -> Error {
    Error::refused(
        "keep",
        "no supervisor is at standard input",
        "this command is for belay itself: use `belay run`",
    )
}

struct Keeper {
    verbose: u8,
    /// What its processes name.
    holds: Option<OsText>,
    /// Where what is said goes, if that is a file.
    log: Option<String>,
    fds: Descriptors,
    signals: Signals,
    link: Option<Link>,
    history: VecDeque<Exited>,
    stops: u32,
    worked: bool,
    failures: u32,
    /// The supervisor, if it can be watched.
    supervisor: Option<Watched>,
    /// For how long the supervisor may do nothing, and whether it does.
    hang_timeout: Option<Duration>,
    watch: Option<Watch>,
    own_deaths: u32,
    started_ns: u64,
    /// Since when the machine lacks what a supervisor needs, and the next pause.
    lacking: Option<(u64, Duration)>,
    done: Option<i32>,
}

impl Keeper {
    fn new(config: &Config, fds: Descriptors) -> Result<Self> {
        Ok(Self {
            verbose: config.verbose,
            holds: config.holds.clone(),
            log: config.log.as_ref().map(OsText::show),
            fds,
            signals: Signals::catch()?,
            link: None,
            history: VecDeque::new(),
            stops: 0,
            worked: false,
            failures: 0,
            supervisor: None,
            hang_timeout: config.hang_timeout(),
            watch: None,
            own_deaths: 0,
            started_ns: clock::now(),
            lacking: None,
            done: None,
        })
    }

    /// Starts a supervisor, as soon as that can be had which the machine lacks for a moment.
    fn start_patiently(&mut self, takeover: bool) -> Result<()> {
        loop {
            match self.start_supervisor(takeover) {
                Err(error) if error.passes() && self.waits_for(&error.to_string()) => {}
                done => return done,
            }
        }
    }

    /// Waits a little for what the machine lacks; false if that has no sense any more.
    fn waits_for(&mut self, why: &str) -> bool {
        let now = clock::now();
        if self.lacking.is_none() {
            tracing::warn!("{why}: waiting until it can be");
        }
        let (since, pause) = self.lacking.unwrap_or((now, PAUSES.0));
        self.take_signals();
        if !self.worked && (self.stops > 0 || now.saturating_sub(since) > FIRST_PATIENCE) {
            return false;
        }
        thread::sleep(pause);
        self.lacking = Some((since, (pause * 2).min(PAUSES.1)));
        true
    }

    fn start_supervisor(&mut self, takeover: bool) -> Result<()> {
        let hello = Note::Hello {
            from: std::process::id(),
            takeover,
            history: self.history.iter().copied().collect(),
            stops: self.stops,
        };
        let (link, pid) =
            start_self("supervise", self.verbose, self.holds.as_ref(), &hello, &self.fds)?;
        self.link = Some(link);
        self.supervisor = Watched::open(pid);
        self.started_ns = clock::now();
        self.watch_anew();
        Ok(())
    }

    /// The supervisor has started this keeper.
    fn watch_parent(&mut self, pid: u32) {
        let watched = Watched::open(pid);
        // If it is dead, its number may be another process's.
        let is_parent = || getppid().is_some_and(|parent| parent.as_raw_pid() as u32 == pid);
        self.supervisor = watched.filter(|_| is_parent());
        self.watch_anew();
    }

    fn watch_anew(&mut self) {
        self.watch = self.hang_timeout.map(|limit| Watch::new(limit, clock::now()));
    }

    /// Kills the supervisor if it hangs. Its end is noticed like any other.
    fn look_after_supervisor(&mut self) {
        let (Some(watch), Some(supervisor)) = (&mut self.watch, &self.supervisor) else { return };
        let seen = heartbeat::seen(&self.fds.ledger);
        let Some(silence) = watch.look(seen, is_stopped(supervisor.pid), clock::now()) else {
            return;
        };
        tracing::warn!(
            "supervisor {} hangs: it has not got on for {}; it is killed",
            supervisor.pid,
            span(Duration::from_nanos(silence))
        );
        if let Err(error) = supervisor.signal(SIGKILL) {
            tracing::warn!("cannot kill supervisor {}: {error}", supervisor.pid);
        }
    }

    fn keep(&mut self) -> i32 {
        loop {
            self.wait();
            self.take_signals();
            self.take_notes();
            if let Some(code) = self.done {
                // What it says last is to be there when this process, which the user started, has
                // ended.
                if let Some(supervisor) = self.supervisor.take() {
                    supervisor.wait_end(END);
                }
                return code;
            }
            if self.link.is_none() && !self.replace_supervisor() {
                return 1;
            }
            self.look_after_supervisor();
        }
    }

    fn wait(&self) {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(link) = &self.link {
            fds.push(PollFd::new(link, PollFlags::IN));
        }
        let [look, net] = LOOKS;
        let tv_sec = if self.watch.is_some() { look } else { net };
        let limit = Timespec { tv_sec, tv_nsec: 0 };
        let _ = poll(&mut fds, Some(&limit));
    }

    fn take_signals(&mut self) {
        for signal in self.signals.pending() {
            if signal != SIGCHLD {
                self.stops = self.stops.saturating_add(1);
                self.tell(&Note::Stop { signal });
            }
        }
        self.take_exits();
    }

    fn take_exits(&mut self) {
        for exited in reap() {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(exited);
            self.tell(&Note::Exited(exited));
        }
    }

    /// How the last supervisor has ended, if it has not been killed by somebody else.
    fn own_death(&mut self) -> Option<Exit> {
        let ended = self.supervisor.take()?;
        if !ended.wait_end(END) {
            return None;
        }
        self.take_exits();
        let exit = self.history.iter().rev().find(|exited| exited.pid == ended.pid)?.exit;
        (exit != Exit::Signal(SIGKILL)).then_some(exit)
    }

    // A supervisor that is dead or does not read learns it from the next `Hello`.
    fn tell(&self, note: &Note) {
        if let Some(link) = &self.link {
            let _ = link.send(note);
        }
    }

    fn take_notes(&mut self) {
        while let Some(link) = &self.link {
            match link.receive(false) {
                Received::Note(Note::Working) => {
                    self.worked = true;
                    self.failures = 0;
                    self.lacking = None;
                }
                Received::Note(Note::Done { code }) => self.done = Some(code),
                // A journal that was removed has come back, and its lock is on another file.
                Received::WithDescriptors(Note::Journal, mut fds) => {
                    std::mem::swap(&mut self.fds.journal, &mut fds.journal);
                    close_aside(fds);
                }
                Received::WithDescriptors(Note::Program, mut fds) => {
                    std::mem::swap(&mut self.fds.program, &mut fds.program);
                    close_aside(fds);
                }
                Received::Note(_) | Received::WithDescriptors(..) => {}
                Received::Nothing => break,
                Received::Closed => self.link = None,
            }
        }
    }

    /// Starts a new supervisor after the death of the last; false if that is hopeless.
    fn replace_supervisor(&mut self) -> bool {
        let exit = self.own_death();
        if exit == Some(Exit::Code(LACKS)) {
            let why = "a supervisor lacks descriptors, threads or memory";
            return self.waits_for(why) && self.start_anew();
        }
        self.failures = self.failures.saturating_add(1);
        if clock::now().saturating_sub(self.started_ns) > LONG_LIFE {
            self.own_deaths = 0;
        }
        if let Some(exit) = exit {
            self.own_deaths += 1;
            if self.own_deaths >= OWN_DEATHS {
                tracing::error!(
                    "giving up on this mount: {OWN_DEATHS} supervisors in a row have ended by themselves, the last one {}. \
                     Its daemon, if it lives, serves on by itself; else requests fail from now on. Clean up with `umount` \
                     or `fusermount3 -u`, and report this as a bug, with {}",
                    exit.told(),
                    self.log.as_deref().unwrap_or("what is above")
                );
                return false;
            }
            self.failures = self.failures.max(self.own_deaths);
        }
        if !self.worked && self.failures >= FIRST_TRIES {
            tracing::error!("the supervisor cannot be started; run `belay doctor`");
            return false;
        }
        if self.failures > 1 {
            // Not one that died in the middle of its work, but one that cannot start.
            thread::sleep(Duration::from_millis(10 << self.failures.min(7)));
        }
        tracing::warn!("the supervisor died; a new one takes over");
        self.start_anew()
    }

    /// Starts a new supervisor; false if the first one cannot be had.
    fn start_anew(&mut self) -> bool {
        match self.start_patiently(true) {
            Ok(()) => true,
            Err(error) if error.passes() => {
                tracing::error!("{error}");
                false
            }
            Err(error) => {
                tracing::error!("{error}; trying again");
                true
            }
        }
    }
}
