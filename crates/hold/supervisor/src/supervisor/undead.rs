//! Daemons that are dead while their process stays: their core goes to their own mount, somebody
//! who traces them keeps them, or they wait for their own mount in an exec. No signal ends them,
//! and the kernel tells of their end only when it is over.
//!
//! The rule: a daemon is dead when none of its threads ever runs again ([`is_over`],
//! [`is_over_in_exec`]). A successor may answer what its core waits for, and the fence ends a child
//! that keeps it.
//!
//! One that was killed, and is neither dead nor ends, may come back to life in no way, but holds
//! its mount up for as long as it is held up itself. That is said, and the mount counts as one that
//! recovers.

use super::Supervisor;
use super::parts::clients::Wait;
use crate::clock::SECOND;
use crate::degraded::Kind;
use crate::process::{
    Watched, descendants, fact, is_frozen, is_kept, is_killed, is_over, is_over_in_exec,
    is_uninterruptible, waits_in_exec,
};
use crate::protocol::Answer;
use crate::text;
use signal_hook::consts::SIGKILL;
use std::time::Duration;

/// How long the end of a process that is over is waited for: most of them have just no processor.
const PATIENCE: u64 = SECOND;
/// How long one that was killed may take, before who traces it is ended, and once more before it is
/// taken for dead.
const DEATH: u64 = 2 * SECOND;
/// How long one that was killed may take to act on it, before that is said.
const SILENCE: u64 = 3 * SECOND;

impl Supervisor {
    /// Looks whether the daemon is dead, though its process is there, and whether it could be
    /// killed.
    pub(super) fn look_at_process(&mut self, now: u64) {
        let process = self.process();
        let waits = self.is_to_launch() || self.life.ended().is_some();
        let Some(pid) = process.map(|process| process.pid).filter(|_| !waits) else { return };
        let wanted = self.is_being_killed() || self.book.stop.is_some_and(|stop| stop.at_once);
        let killed = self.looks.process.killed_for(pid, wanted, now);
        let is_dead = is_over(pid) || killed >= 2 * DEATH && (is_kept(pid) || is_over_in_exec(pid));
        let over = self.looks.process.over_for(pid, is_dead, now);
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
        if self.book.stop.is_some_and(|stop| !stop.at_once) && waits_in_exec(pid) {
            self.pursue_stop();
            return;
        }
        let is_unheard = !is_dead && is_killed(pid);
        let unheard = self.looks.process.unheard_for(pid, is_unheard, now);
        if unheard >= SILENCE {
            self.stays(pid, unheard / SECOND);
        } else if self.life.serves() {
            self.look_whether_killable(pid);
        }
    }

    /// Why the daemon's process, which was killed, does not end; `None` if it is none of those.
    pub(super) fn why_it_stays(&self) -> Option<&str> {
        let unheard = self.looks.process.unheard();
        let stays = self.looks.process.stays();
        stays.filter(|_| unheard.is_some() && unheard == self.process().map(|process| process.pid))
    }

    /// The daemon was killed `seconds` ago and does not end: that is said, also to those who wait
    /// for its successor.
    fn stays(&mut self, pid: u32, seconds: u64) {
        let ago = text::span(Duration::from_secs(seconds));
        let mut what =
            format!("daemon {pid} was killed {ago} ago and has not ended: {}", held_by(pid));
        if self.book.stop.is_none() {
            what += ". Its mount waits, and recovers when it has ended";
        }
        self.degrade(Kind::Kill, &what);
        self.looks.process.note_stays(what.clone());
        self.answer_waiting(|wait| match wait {
            Wait::Recovery(_) | Wait::Restart(_) => Some(Answer::Refused { why: what.clone() }),
            _ => None,
        });
    }

    /// The daemon has ended: what was said of its process is over.
    pub(super) fn process_is_gone(&mut self) {
        self.looks.process.end();
        self.restored(Kind::Kill);
    }

    /// One that was about to end when it was killed is kept by its tracer for ever: a child of its
    /// own is ended.
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

/// Who traces process `pid`.
fn tracer(pid: u32) -> Option<u32> {
    fact(pid, "TracerPid:")?.parse().ok().filter(|tracer| *tracer != 0)
}
