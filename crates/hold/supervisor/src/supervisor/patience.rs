//! Starts that fail and are made again: what the daemon needs is away (its server, its program, a process to be had), and may
//! come back. Applications wait meanwhile, and can be killed.
//!
//! Invariant: such a start counts for no other limit than `--retry-for`, and only a successor that was not killed from outside
//! is kept waiting: the first start after the death of a daemon that served is made at once.

use super::deadlines::Due;
use super::{SECOND, Supervisor};
use crate::allow_other;
use crate::clock;
use crate::ledger::{Crash, Detection, Waiting};
use crate::mounts;
use crate::pidfile;
use crate::process::Exit;
use crate::protocol::Answer;
use crate::text::{self, counted};
use crate::verdict::Next;
use std::time::Duration;

/// Pauses after starts that have failed, in seconds; the last one from then on.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 16, 30];
/// The longest pause.
const LONGEST: u64 = 30 * SECOND;
/// The longest pause where the machine itself lacks something: to look whether that is over costs little.
const SOON: u64 = SECOND;
/// A daemon that came to serve, and has trouble again so soon without having served anybody, still has the same.
const SAME: u64 = 60 * SECOND;
/// Lines of the daemon's own that are shown.
const WORDS: usize = 5;

/// How long to wait after the `tries`-th failed start in a row.
fn pause(next: Next, detection: &Detection, tries: u32) -> u64 {
    let doubled = |most: u64| ((SECOND / 100) << tries.min(20)).min(most);
    match (next, detection) {
        (_, Detection::NotStarted { .. }) => doubled(SOON),
        // Killed by somebody: a few of these say nothing.
        (Next::Anew | Next::Again, _) if tries < 3 => 0,
        (Next::Anew | Next::Again, _) => doubled(LONGEST),
        (Next::Later, _) => {
            let at = usize::try_from(tries.saturating_sub(1)).unwrap_or(usize::MAX);
            PAUSES.get(at).map_or(LONGEST, |seconds| seconds * SECOND)
        }
    }
}

/// A time span for people, in whole seconds.
fn span(ns: u64) -> String {
    text::span(Duration::from_secs(ns.div_ceil(SECOND)))
}

impl Supervisor {
    /// The wait that is under way.
    pub(super) fn waiting(&self) -> Option<&Waiting> {
        self.book.waiting.as_ref().filter(|waiting| waiting.over_ns == 0 && waiting.next_ns != 0)
    }

    /// Whether no process is there, and the next start is to come.
    pub(super) fn is_to_launch(&self) -> bool {
        self.deadlines.at(Due::Launch).is_some()
    }

    /// Whether that start is waited for, as those before have failed.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_to_launch() && self.waiting().is_some()
    }

    /// When patience ends.
    pub(super) fn patient_until(&self, waiting: &Waiting) -> u64 {
        let limit = self.config.retry_for_ms.saturating_mul(SECOND / 1000);
        waiting.since_ns.saturating_add(limit)
    }

    /// Counts a start that has failed, and sets the time of the next one. `false` if there is none: patience is over.
    pub(super) fn start_failed(&mut self, next: Next, exit: Exit, detection: &Detection) -> bool {
        let now = clock::now();
        self.complete = false;
        self.book.failed_starts += u64::from(next == Next::Later);
        let before = self.book.waiting.take();
        let same =
            |waiting: &Waiting| waiting.over_ns == 0 || now.saturating_sub(waiting.over_ns) < SAME;
        let mut waiting =
            before.filter(same).unwrap_or_else(|| Waiting { since_ns: now, ..Waiting::default() });
        waiting.tries = waiting.tries.saturating_add(1);
        waiting.over_ns = 0;
        waiting.why = self.why_not(exit, detection);
        let until = self.patient_until(&waiting);
        let other = next == Next::Later && self.falls_back(&waiting.why);
        let pause = if other { 0 } else { pause(next, detection, waiting.tries) };
        let over = now >= until && !other;
        // One last time when patience ends.
        let at = now.saturating_add(pause).min(until);
        waiting.next_ns = if pause == 0 { 0 } else { at };
        self.book.waiting = Some(waiting);
        if over {
            return false;
        }
        if pause == 0 {
            self.launch();
        } else {
            self.deadlines.set(Due::Launch, at);
        }
        true
    }

    fn why_not(&self, exit: Exit, detection: &Detection) -> String {
        match detection {
            Detection::NotStarted { why } => {
                format!("{} cannot be started: {why}", self.config.program.display())
            }
            Detection::StartTimeout => {
                let limit = Duration::from_millis(self.config.start_timeout_ms);
                format!("it was not ready within {}", text::span(limit))
            }
            Detection::Unheld { why } => why.clone(),
            _ => format!("it {}{}", exit.told(), self.without_shim(exit)),
        }
    }

    /// Why belay gives up when patience is over.
    pub(super) fn impatience(&self) -> String {
        let Some(waiting) = &self.book.waiting else { return "it cannot be started".to_owned() };
        let since = span(clock::now().saturating_sub(waiting.since_ns));
        let said = said(waiting);
        format!(
            "the daemon could not be started again within {since} (--retry-for), in {}: {}{said}",
            counted(waiting.tries.into(), "try", "tries"),
            waiting.why
        )
    }

    /// Says what is waited for. `words`: what the daemon said when its start failed.
    pub(super) fn tell_of_wait(&mut self, words: &[String]) {
        let place = self.mountpoint();
        let dead = self.book.served_pid;
        let Some(waiting) = &mut self.book.waiting else { return };
        if !words.is_empty() {
            waiting.words = words.iter().rev().take(WORDS).rev().cloned().collect();
            waiting.hint = pidfile::hint(&waiting.words, dead, &self.scouts)
                .or_else(|| allow_other::hint(&waiting.words));
        }
        let waiting = waiting.clone();
        self.tell_of_program(&waiting.words);
        if waiting.next_ns == 0 {
            return;
        }
        let now = clock::now();
        let said = said(&waiting);
        let in_the_way = waiting.hint.as_ref().map(|hint| format!(". {hint}")).unwrap_or_default();
        let (again, left) = (
            span(waiting.next_ns.saturating_sub(now)),
            span(self.patient_until(&waiting).saturating_sub(now)),
        );
        let told = format!(
            "{place}: the daemon does not start: {}{said}{in_the_way}. Applications wait; try {} is in {again}, and belay \
             gives up in {left} (`belay restart {place}` tries at once)",
            waiting.why,
            waiting.tries.saturating_add(1)
        );
        // What the machine lacks is looked for often.
        if waiting.tries.is_power_of_two() || waiting.next_ns.saturating_sub(now) > SOON {
            tracing::warn!("{told}");
        } else {
            tracing::debug!("{told}");
        }
        self.tell_restarters(&waiting);
    }

    /// Those who have asked for a restart are told that it has come to nothing so far.
    fn tell_restarters(&mut self, waiting: &Waiting) {
        let why = format!(
            "the daemon does not start: {}{}; belay goes on trying, see `belay status`",
            waiting.why,
            said(waiting)
        );
        self.answer_waiting(|wait| match wait {
            super::clients::Wait::Restart(_) => Some(Answer::Refused { why: why.clone() }),
            _ => None,
        });
    }

    /// A daemon serves: what kept the others from it is over, as it seems.
    pub(super) fn wait_is_over(&mut self) {
        if let Some(daemon) = &self.daemon {
            self.book.served_pid = Some(daemon.pid);
        }
        self.note_program();
        let place = self.mountpoint();
        let Some(waiting) = self.book.waiting.as_mut().filter(|waiting| waiting.over_ns == 0)
        else {
            return;
        };
        waiting.over_ns = clock::now();
        if waiting.next_ns != 0 {
            let lasted = span(waiting.over_ns.saturating_sub(waiting.since_ns));
            tracing::info!("{place}: the daemon has started again, after {lasted}");
        }
    }

    /// Whoever waits for a start need not wait for a mount that has gone.
    pub(super) fn look_for_unmount(&mut self) {
        let is_waiting = self.is_waiting();
        // What starts has not come so far as to learn that, and may not for long.
        let starts = !self.complete && self.book.generation > 0 && !self.is_to_launch();
        if !is_waiting && !starts {
            return;
        }
        let gone = self.book.mount.is_some() && mounts::is_disconnected(self.device());
        if is_waiting && gone {
            let code = self.book.last_exit.map_or(0, Exit::shell_code);
            tracing::debug!("unmounted while the daemon was waited for");
            self.deadlines.cancel(Due::Launch);
            self.finish(code);
            return;
        }
        if gone && starts && self.book.stop.is_none() && !self.has_epochs() {
            self.request_stop();
        }
    }

    /// Makes the next start now, if one is waited for.
    pub(super) fn hurry(&mut self) -> bool {
        let waits = self.is_waiting();
        if waits {
            self.deadlines.set(Due::Launch, clock::now());
        }
        waits
    }

    /// Whether the report of a failed start would say what another one has said already.
    pub(super) fn is_one_of_many(&self, crash: &Crash) -> bool {
        let tries = self.book.waiting.as_ref().map_or(0, |waiting| waiting.tries);
        tries > 2 && crash.detection != Detection::Takeover
    }
}

fn said(waiting: &Waiting) -> String {
    match waiting.words.last() {
        Some(_) => format!("; its last words: {}", waiting.words.join(" / ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let seconds = |next, detection: &Detection, tries| pause(next, detection, tries) / SECOND;
        let death = &Detection::Death;
        let later: Vec<u64> = (1..9).map(|tries| seconds(Next::Later, death, tries)).collect();
        assert_eq!(later, [1, 2, 4, 8, 16, 30, 30, 30]);
        // A kill in a start costs nothing at first.
        assert_eq!((pause(Next::Again, death, 1), pause(Next::Again, death, 2)), (0, 0));
        assert!(pause(Next::Again, death, 3) > 0);
        assert_eq!(seconds(Next::Again, death, u32::MAX), 30);
        let lacks = &Detection::NotStarted { why: String::new() };
        assert!(pause(Next::Later, lacks, 1) < SECOND / 10);
        assert_eq!(seconds(Next::Later, lacks, 100), 1);
    }
}
