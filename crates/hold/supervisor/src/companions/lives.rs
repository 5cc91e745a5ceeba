//! The processes of companions, until it was told how each has ended.

use crate::clock::{self, SECOND};
use crate::process::Exit;

/// How long it may take until somebody who can know has told how one ended, and until there is
/// another.
const KNOWN: u64 = SECOND;

/// A companion's process that has ended, though nobody had asked it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// What it was for.
    pub role: String,
    /// Its number.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
    /// When that was noticed, by the clock of belay and by that of the world.
    pub died_ns: u64,
    /// The same, in milliseconds since 1970.
    pub died_wall_ms: u64,
    /// It was killed because it had not got on for so many milliseconds.
    pub silence_ms: Option<u64>,
    /// The next process, and when there was one.
    pub next: Option<(u32, u64)>,
}

#[derive(Debug)]
struct Life {
    role: String,
    pid: u32,
    silence_ms: Option<u64>,
    died: Option<(u64, u64)>,
    next: Option<(u32, u64)>,
    /// There will be no other.
    is_last: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Lives(Vec<Life>);

impl Lives {
    /// There is a process with that role, which was started or found.
    pub fn begin(&mut self, role: &str, pid: u32) {
        let now = clock::now();
        for last in self.0.iter_mut().filter(|last| last.role == role && last.next.is_none()) {
            last.next = Some((pid, now));
        }
        let role = role.to_owned();
        let (silence_ms, died, next, is_last) = (None, None, None, false);
        self.0.push(Life { role, pid, silence_ms, died, next, is_last });
    }

    /// It is killed, as it has not got on for so long.
    pub fn hangs(&mut self, pid: u32, silence_ms: u64) {
        for life in self.0.iter_mut().filter(|life| life.pid == pid && life.died.is_none()) {
            life.silence_ms = Some(silence_ms);
        }
    }

    /// It has ended.
    pub fn end(&mut self, pid: u32) {
        for life in self.0.iter_mut().filter(|life| life.pid == pid && life.died.is_none()) {
            life.died = Some((clock::now(), clock::wall_ms()));
        }
    }

    /// It has ended, and no other comes in its place.
    pub fn end_for_good(&mut self, pid: u32) {
        self.end(pid);
        self.0.iter_mut().filter(|life| life.pid == pid).for_each(|life| life.is_last = true);
    }

    /// Nothing is to be told of its end, which was asked for.
    pub fn forget(&mut self, pid: u32) {
        self.0.retain(|life| life.pid != pid || life.died.is_some());
    }

    /// Those that have ended, once each, as soon as `exit_of` knows how, and there is another if
    /// one is to come, or after a while.
    pub fn take_ends(&mut self, now: u64, exit_of: impl Fn(u32) -> Option<Exit>) -> Vec<End> {
        let mut ends = Vec::new();
        self.0.retain(|life| {
            let Some((died_ns, died_wall_ms)) = life.died else { return true };
            let exit = exit_of(life.pid);
            let is_late = now.saturating_sub(died_ns) > KNOWN;
            let is_known = exit.is_some() && (life.next.is_some() || life.is_last);
            if !is_known && !is_late {
                return true;
            }
            ends.push(End {
                role: life.role.clone(),
                pid: life.pid,
                exit: exit.unwrap_or(Exit::Unknown),
                died_ns,
                died_wall_ms,
                silence_ms: life.silence_ms,
                next: life.next,
            });
            false
        });
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_told_once_when_all_of_it_is_known() {
        let mut lives = Lives::default();
        lives.begin("store", 1);
        lives.begin("cache", 2);
        let now = clock::now();
        assert!(lives.take_ends(now, |_| Some(Exit::Code(0))).is_empty(), "they live");
        lives.hangs(1, 3000);
        lives.end(1);
        assert!(lives.take_ends(now, |_| Some(Exit::Signal(9))).is_empty(), "there is no other");
        lives.begin("store", 3);
        assert!(lives.take_ends(now, |_| None).is_empty(), "nobody knows how");
        let ends = lives.take_ends(now, |pid| (pid == 1).then_some(Exit::Signal(9)));
        let [end] = &ends[..] else { panic!("{ends:?}") };
        assert_eq!((end.role.as_str(), end.pid, end.exit), ("store", 1, Exit::Signal(9)));
        assert_eq!((end.silence_ms, end.next.map(|(pid, _)| pid)), (Some(3000), Some(3)));
        assert!(lives.take_ends(now, |_| Some(Exit::Signal(9))).is_empty());
        // Of this one nobody ever knows.
        lives.end(2);
        let ends = lives.take_ends(clock::now() + 2 * KNOWN, |_| None);
        assert_eq!((ends[0].exit, ends[0].next), (Exit::Unknown, None));
        // After this one none comes.
        lives.begin("cache", 4);
        lives.end_for_good(4);
        let ends = lives.take_ends(clock::now(), |_| Some(Exit::Code(1)));
        assert_eq!((ends[0].pid, ends[0].next), (4, None));
        // And of this one nothing is told.
        lives.forget(3);
        lives.end(3);
        assert!(lives.take_ends(clock::now() + 2 * KNOWN, |_| None).is_empty());
    }
}
