//! Daemons that are dead while their process stays: their core goes to their own mount, or somebody who traces them keeps them. No
//! signal ends them, and the kernel tells of their end only when it is over.
//!
//! The rule: a daemon is dead when none of its threads ever runs again ([`is_over`]). A successor may answer what its core waits
//! for, and the fence ends a child that keeps it.
//!
//! One that was killed, and is neither dead nor ends, may come back to life in no way, but holds its mount up for as long as it is
//! held up itself. That is said, and the mount counts as one that recovers.

use super::clients::Wait;
use super::{SECOND, Supervisor};
use crate::degraded::Kind;
use crate::process::{
    Watched, descendants, fact, is_frozen, is_kept, is_killed, is_over, is_stopped,
    is_uninterruptible,
};
use crate::protocol::Answer;
use crate::text;
use signal_hook::consts::{SIGCONT, SIGKILL, SIGSTOP};
use std::fs;
use std::time::Duration;

/// How long the end of a process that is over is waited for: most of them have just no processor.
const PATIENCE: u64 = SECOND;
/// How long one that was killed may take, before who traces it is ended, and once more before it is taken for dead.
const DEATH: u64 = 2 * SECOND;
/// How long one that was killed may take to act on it, before that is said.
const SILENCE: u64 = 3 * SECOND;

/// What was seen of the daemon's process.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks {
    /// The process that is over, and since when.
    over: Option<(u32, u64)>,
    /// The process that was killed, and since when.
    killed: Option<(u32, u64)>,
    /// The process that has SIGKILL before it, and since when.
    unheard: Option<(u32, u64)>,
    /// It does not end: what is said of that.
    stays: Option<String>,
}

/// For how long `pid` has been what it is now, which `seen` keeps.
fn age(seen: &mut Option<(u32, u64)>, pid: u32, is_so: bool, now: u64) -> u64 {
    let since = seen.filter(|(of, _)| *of == pid).map_or(now, |(_, since)| since);
    *seen = is_so.then_some((pid, since));
    if is_so { now.saturating_sub(since) } else { 0 }
}

impl Supervisor {
    /// Looks whether the daemon is dead, though its process is there, and whether it could be killed.
    pub(super) fn look_at_process(&mut self, now: u64) {
        let process = self.process();
        let waits = self.is_to_launch() || self.life.ended().is_some();
        let Some(pid) = process.map(|process| process.pid).filter(|_| !waits) else { return };
        let wanted = self.is_being_killed() || self.book.stop.is_some_and(|stop| stop.at_once);
        let killed = age(&mut self.process_looks.killed, pid, wanted, now);
        let is_dead = is_over(pid) || killed >= 2 * DEATH && is_kept(pid);
        let over = age(&mut self.process_looks.over, pid, is_dead, now);
        if over >= PATIENCE {
            let why = match tracer(pid) {
                Some(tracer) => format!("process {tracer} traces it, and keeps it"),
                None if fact(pid, "CoreDumping:").as_deref() == Some("1") => {
                    "its core is being written, to where nobody serves perhaps".to_owned()
                }
                None => cannot_be_killed(pid),
            };
            tracing::warn!("daemon {pid} is dead, but its process does not end: {why}");
            self.ended_at(pid, now.saturating_sub(over));
            return;
        }
        if killed >= DEATH {
            self.end_tracer(pid);
        }
        let unheard = age(&mut self.process_looks.unheard, pid, !is_dead && is_killed(pid), now);
        if unheard >= SILENCE {
            self.stays(pid, unheard / SECOND);
        } else if self.life.serves() {
            self.look_whether_killable(pid);
        }
    }

    /// Why the daemon's process, which was killed, does not end; `None` if it is none of those.
    pub(super) fn why_it_stays(&self) -> Option<&str> {
        let unheard = self.process_looks.unheard.map(|(pid, _)| pid);
        let stays = self.process_looks.stays.as_deref();
        stays.filter(|_| unheard.is_some() && unheard == self.process().map(|process| process.pid))
    }

    /// The daemon was killed `seconds` ago and does not end: that is said, also to those who wait for its successor.
    fn stays(&mut self, pid: u32, seconds: u64) {
        let ago = text::span(Duration::from_secs(seconds));
        let mut what =
            format!("daemon {pid} was killed {ago} ago and has not ended: {}", held_by(pid));
        if self.book.stop.is_none() {
            what += ". Its mount waits, and recovers when it has ended";
        }
        self.degrade(Kind::Kill, &what);
        self.process_looks.stays = Some(what.clone());
        self.answer_waiting(|wait| match wait {
            Wait::Recovery(_) | Wait::Restart(_) => Some(Answer::Refused { why: what.clone() }),
            _ => None,
        });
    }

    /// The daemon has ended: what was said of its process is over.
    pub(super) fn process_is_gone(&mut self) {
        self.process_looks = Looks::default();
        self.restored(Kind::Kill);
    }

    /// One that was about to end when it was killed is kept by its tracer for ever: a child of its own is ended.
    fn end_tracer(&self, pid: u32) {
        let belay = self.keeper.belay();
        if let Some(tracer) = tracer(pid)
            && descendants(&belay, &belay).contains(&tracer)
            && let Some(process) = Watched::open(tracer)
            && process.signal(SIGKILL).is_ok()
        {
            tracing::warn!(
                "process {tracer} traces daemon {pid}, which does not end: it is killed"
            );
        }
    }
}

/// What is said of a process that a signal has killed, and that stays.
pub(super) fn cannot_be_killed(pid: u32) -> String {
    format!("process {pid} cannot be killed: {}. It is left behind, and ends then", held_by(pid))
}

/// What keeps a process that was killed from ending.
fn held_by(pid: u32) -> &'static str {
    if is_frozen(pid) {
        "it is frozen (cgroup freezer), until it is thawed"
    } else if is_uninterruptible(pid) {
        "it is in uninterruptible sleep, until the disk or file system that it waits for answers, or is unmounted by force \
         (`umount -f`)"
    } else {
        "it waits in the kernel, until that lets it go"
    }
}

/// Why process `pid` does not act on this signal before something else happens; `None` if it may.
pub fn defers(pid: u32, signal: i32) -> Option<&'static str> {
    // These are acted on by a process that is stopped, and what is frozen is told of by its silence.
    if matches!(signal, SIGKILL | SIGSTOP | SIGCONT) {
        return None;
    }
    if is_stopped(pid) {
        return Some("it is stopped, and takes no signal before SIGCONT");
    }
    let frozen = is_frozen(pid) || is_frozen_to_signals(pid);
    frozen.then_some("it is frozen (cgroup freezer), and takes no signal before it is thawed")
}

/// Whether the freezer of cgroup v2 holds process `pid`, as far as that is told: until it is killed.
fn is_frozen_to_signals(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::")) else {
        return false;
    };
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().any(|root| {
        fs::read_to_string(format!("{root}{group}/cgroup.events"))
            .is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
    })
}

/// Who traces process `pid`.
fn tracer(pid: u32) -> Option<u32> {
    fact(pid, "TracerPid:")?.parse().ok().filter(|tracer| *tracer != 0)
}
