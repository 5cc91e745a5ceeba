//! Starts that fail and are made again: what is said of them. When they are made is decided by
//! `lifecycle`.

use super::Supervisor;
use super::lifecycle::Event;
use crate::allow_other;
use crate::clock;
use crate::clock::SECOND;
use crate::detection::Detection;
use crate::ledger::{Crash, Waiting};
use crate::mounts;
use crate::pidfile;
use crate::process::Exit;
use crate::protocol::Answer;
use crate::text::{self, counted};
use std::time::Duration;

/// The longest pause between looks of which not each is told.
const SOON: u64 = SECOND;
/// Lines of the daemon's own that are shown.
const WORDS: usize = 5;

/// A time span for people, in whole seconds.
fn span(ns: u64) -> String {
    text::span(Duration::from_secs(ns.div_ceil(SECOND)))
}

impl Supervisor {
    /// The wait that is under way.
    pub(super) fn waiting(&self) -> Option<&Waiting> {
        self.book.tries.waiting.as_ref().filter(|waiting| waiting.lasts())
    }

    /// Whether no process is there, and the next start is to come.
    pub(super) fn is_to_launch(&self) -> bool {
        self.life.next_start().is_some()
    }

    /// What is said of a start that has failed.
    pub(super) fn why_not(&self, exit: Exit, detection: &Detection) -> String {
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
        let Some(waiting) = &self.book.tries.waiting else {
            return "it cannot be started".to_owned();
        };
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
        let Some(waiting) = &mut self.book.tries.waiting else { return };
        if !words.is_empty() {
            waiting.words = words.iter().rev().take(WORDS).rev().cloned().collect();
            waiting.hint = pidfile::hint(&waiting.words, dead, &self.helpers.scouts)
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
            span(self.life.patient_until(&waiting).saturating_sub(now)),
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
            super::parts::clients::Wait::Restart(_) => Some(Answer::Refused { why: why.clone() }),
            _ => None,
        });
    }

    /// A daemon serves: what kept the others from it is over, as it seems.
    pub(super) fn wait_is_over(&mut self) {
        if let Some(daemon) = self.daemon.holder() {
            self.book.served_pid = Some(daemon.pid);
        }
        self.note_program();
        let place = self.mountpoint();
        let Some(waiting) = self.book.tries.waiting.as_mut().filter(|waiting| waiting.over_ns == 0)
        else {
            return;
        };
        waiting.over_ns = clock::now();
        if waiting.next_ns != 0 {
            let lasted = span(waiting.over_ns.saturating_sub(waiting.since_ns));
            tracing::info!("{place}: the daemon has started again, after {lasted}");
        }
    }

    /// Looks whether the mount has gone while no daemon is there that could learn that.
    pub(super) fn look_for_unmount(&mut self) {
        let nobody_learns = self.life.starts() || self.is_to_launch();
        let gone = || self.book.mounts.held.is_some() && mounts::is_disconnected(self.device());
        if nobody_learns && gone() {
            if self.life.waits(&self.book) {
                tracing::debug!("unmounted while the daemon was waited for");
            }
            self.live(Event::MountGone { keeps_epochs: self.has_epochs() });
        }
    }

    /// Makes the next start now, if one is waited for.
    pub(super) fn hurry(&mut self) -> bool {
        let commands = self.decide(Event::Hurried { now: clock::now() });
        let waits = !commands.is_empty();
        commands.into_iter().for_each(|command| self.carry_out(command));
        waits
    }

    /// Whether a daemon is being started, after starts that have failed.
    pub(super) fn is_trying_again(&self) -> bool {
        self.waiting().is_some() && !self.life.serves()
    }

    /// Whether the report of a failed start would say what another one has said already.
    pub(super) fn is_one_of_many(&self, crash: &Crash) -> bool {
        let tries = self.book.tries.waiting.as_ref().map_or(0, |waiting| waiting.tries);
        tries > 2 && crash.detection != Detection::Takeover
    }
}

fn said(waiting: &Waiting) -> String {
    match waiting.words.last() {
        Some(_) => format!("; its last words: {}", waiting.words.join(" / ")),
        None => String::new(),
    }
}
