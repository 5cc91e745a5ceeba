//! Lives of the daemon that end one after the other before they have answered anything, while a
//! request waits.
//!
//! How far each had come is read from memory that the daemon can write to: it is bounded, shown,
//! and nothing is decided by it.

use crate::process::Exit;
use crate::status::Forward;
use crate::text::{self, count};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::time::Duration;

/// So many lives in a row are worth a word.
pub const LIVES: u32 = 3;
/// Of so many it is known what they did.
const KNOWN: usize = 5;

/// What a life was at when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doing {
    /// It was not ready to be asked for anything.
    Starting,
    /// It was given again what had been acknowledged since the last checkpoint.
    RollingForward,
    /// What was in flight was being settled; for that, files were found and opened again, and locks
    /// taken.
    Restoring,
    /// It had begun with new requests.
    Serving,
}

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// In this life.
    pub done: u64,
    /// That there are.
    pub of: u64,
}

impl Part {
    /// Neither can be more than `most`, nor the first more than the second.
    pub fn new(done: u64, of: u64, most: u64) -> Self {
        let of = of.min(most);
        Self { done: done.min(of), of }
    }
}

/// A life that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Which one.
    pub generation: u32,
    /// How long it was, in milliseconds.
    pub lived_ms: u64,
    /// How it ended.
    pub exit: Exit,
    /// What it was at.
    pub doing: Doing,
    /// How far it was with what had been acknowledged; `null` unless it was at that.
    pub operation: Option<Forward>,
    /// Nodes that it was given back, of those that the kernel knows: only those are that somebody
    /// asks for.
    pub nodes: Part,
    /// The same of open files and directories.
    pub handles: Part,
    /// Locks that were taken again, of those that are held.
    pub locks: Part,
}

impl Ended {
    fn show(&self) -> String {
        let lived = text::span(Duration::from_millis(self.lived_ms));
        let doing = match (self.doing, self.operation) {
            (Doing::Starting, _) => "starting".to_owned(),
            (Doing::RollingForward, Some(at)) => format!(
                "replaying what was acknowledged, operation {} of {}",
                at.record.saturating_add(1).min(at.of),
                at.of
            ),
            (Doing::RollingForward, None) => "replaying what was acknowledged".to_owned(),
            (Doing::Restoring, _) => format!(
                "restoring what requests need: {} of {}, {} of {}, {} of {}",
                self.nodes.done,
                count(self.nodes.of, "node"),
                self.handles.done,
                count(self.handles.of, "handle"),
                self.locks.done,
                count(self.locks.of, "lock")
            ),
            (Doing::Serving, _) => "working on requests".to_owned(),
        };
        format!("generation {} lived {lived}, {}: {doing}", self.generation, self.exit.show())
    }
}

/// Such lives, as `belay status` shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalled {
    /// How many in a row.
    pub lives: u32,
    /// Seconds since the first of them ended.
    pub since_seconds: u64,
    /// The last of them, the oldest first.
    pub ends: Vec<Ended>,
    /// What helps.
    pub hint: String,
}

impl Stalled {
    pub(crate) fn render_to(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "  STALLED     {}", self.show())?;
        for ended in &self.ends {
            writeln!(out, "              {}", ended.show())?;
        }
        writeln!(out, "              {}", self.hint)
    }

    fn show(&self) -> String {
        format!(
            "a request waits, and {} in a row have ended before they answered one, since {} ago",
            text::counted(self.lives.into(), "daemon", "daemons"),
            text::span(Duration::from_secs(self.since_seconds))
        )
    }

    /// For the log, in one line.
    pub fn tell(&self) -> String {
        let last = self.ends.last().map(|ended| format!("; the last, {}", ended.show()));
        format!("{}{}. {}", self.show(), last.unwrap_or_default(), self.hint)
    }
}

/// Such lives, as the supervisor counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    lives: u32,
    /// When the first of them ended, monotonic nanoseconds.
    since_ns: u64,
    ends: Vec<Ended>,
    /// How many there were when that was said last.
    told: u32,
}

impl Row {
    /// One more. Gives whether that is to be said now: it is when there are enough, and when there
    /// are twice as many.
    pub fn add(&mut self, ended: Ended, now: u64) -> bool {
        if self.lives == 0 {
            self.since_ns = now;
        }
        self.lives = self.lives.saturating_add(1);
        self.ends.push(ended);
        let excess = self.ends.len().saturating_sub(KNOWN);
        self.ends.drain(..excess);
        let due = self.lives >= LIVES && self.lives >= self.told.saturating_mul(2);
        if due {
            self.told = self.lives;
        }
        due
    }

    /// Something was answered, or nobody waits. Gives how many lives there were, if that was said.
    pub fn end(&mut self) -> Option<u32> {
        let row = std::mem::take(self);
        (row.told > 0).then_some(row.lives)
    }

    /// Whether there is one.
    pub fn is_empty(&self) -> bool {
        self.lives == 0
    }

    /// What is to be shown, at `place`, at the time `now`; `None` as long as there are few.
    pub fn shown(&self, place: &str, now: u64) -> Option<Stalled> {
        let last = self.ends.last().filter(|_| self.lives >= LIVES)?;
        let needs = match last.doing {
            Doing::Starting => "a start",
            Doing::RollingForward => "a start, and the replay",
            Doing::Restoring | Doing::Serving => "a start, and what the request needs",
        };
        let hint = format!(
            "nothing fails meanwhile; it goes on when a daemon lives for as long as {needs} takes: see to what ends them (the \
             crash reports), or give up with `belay stop --force {place}`"
        );
        let since_seconds = now.saturating_sub(self.since_ns) / 1_000_000_000;
        Some(Stalled { lives: self.lives, since_seconds, ends: self.ends.clone(), hint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(generation: u32) -> Ended {
        Ended {
            generation,
            lived_ms: 40,
            exit: Exit::Signal(9),
            doing: Doing::RollingForward,
            operation: Some(Forward { record: 6, of: 30 }),
            nodes: Part::new(5, 3, 100),
            handles: Part::new(u64::MAX, u64::MAX, 7),
            locks: Part::default(),
        }
    }

    #[test]
    fn it_is_said_ever_more_rarely_and_bounded() {
        let mut row = Row::default();
        let said: Vec<u32> = (1..=30).filter(|life| row.add(ended(*life), 1_000_000_000)).collect();
        assert_eq!(said, [3, 6, 12, 24]);
        let shown = row.shown("/mnt", 6_500_000_000).expect("many");
        let known: Vec<u32> = shown.ends.iter().map(|ended| ended.generation).collect();
        assert_eq!((shown.lives, shown.since_seconds, known), (30, 5, (26..=30).collect()));
        assert!(shown.tell().contains("operation 7 of 30"), "{}", shown.tell());
        assert_eq!((row.end(), row.end()), (Some(30), None));
        assert!(row.is_empty() && row.shown("/mnt", 7).is_none());
    }

    #[test]
    fn few_are_nothing_to_speak_of() {
        let mut row = Row::default();
        assert!(!row.add(ended(1), 5) && !row.add(ended(2), 6));
        assert_eq!(row.shown("/mnt", 7), None);
        assert_eq!(row.end(), None);
    }

    #[test]
    fn what_a_daemon_says_of_itself_is_bounded() {
        let ended = ended(1);
        assert_eq!(ended.nodes, Part { done: 3, of: 3 });
        assert_eq!(ended.handles, Part { done: 7, of: 7 });
    }
}
