//! The processes of companions, until it was told how each has ended.

use crate::clock::{self, SECOND};
use crate::process::Exit;
use std::collections::{BTreeMap, VecDeque};

/// How long it may take until somebody who can know has told how one ended, and until there is
/// another.
const KNOWN: u64 = SECOND;

/// Deaths within this time are told of together, if they are so many or more. No more are kept than
/// that.
const RECENT: u64 = 60 * SECOND;
const OFTEN: usize = 10;
const KEPT: usize = 1000;

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
pub(super) struct Lives {
    lives: Vec<Life>,
    /// When those with each role have died, as far as that is [`RECENT`], the oldest first.
    deaths: BTreeMap<String, VecDeque<(u64, u64)>>,
}

impl Lives {
    /// There is a process with that role, which was started or found.
    pub fn begin(&mut self, role: &str, pid: u32) {
        let now = clock::now();
        for last in self.lives.iter_mut().filter(|last| last.role == role && last.next.is_none()) {
            last.next = Some((pid, now));
        }
        let role = role.to_owned();
        let (silence_ms, died, next, is_last) = (None, None, None, false);
        self.lives.push(Life { role, pid, silence_ms, died, next, is_last });
    }

    /// It is killed, as it has not got on for so long.
    pub fn hangs(&mut self, pid: u32, silence_ms: u64) {
        for life in self.lives.iter_mut().filter(|life| life.pid == pid && life.died.is_none()) {
            life.silence_ms = Some(silence_ms);
        }
    }

    /// It has ended.
    pub fn end(&mut self, pid: u32) {
        for life in self.lives.iter_mut().filter(|life| life.pid == pid && life.died.is_none()) {
            let died = (clock::now(), clock::wall_ms());
            life.died = Some(died);
            let deaths = self.deaths.entry(life.role.clone()).or_default();
            if deaths.len() >= KEPT {
                deaths.pop_front();
            }
            deaths.push_back(died);
        }
    }

    /// Which have died again and again, how often within the last minute, and since when, in
    /// milliseconds since 1970.
    pub fn dying(&mut self, now: u64) -> Vec<(String, usize, u64)> {
        self.deaths.retain(|_, deaths| {
            deaths.retain(|(died, _)| now.saturating_sub(*died) < RECENT);
            !deaths.is_empty()
        });
        let often = self.deaths.iter().filter(|(_, deaths)| deaths.len() >= OFTEN);
        let told = |(role, deaths): (&String, &VecDeque<(u64, u64)>)| {
            Some((role.clone(), deaths.len(), deaths.front()?.1))
        };
        often.filter_map(told).collect()
    }

    /// It has ended, and no other comes in its place.
    pub fn end_for_good(&mut self, pid: u32) {
        self.end(pid);
        self.lives.iter_mut().filter(|life| life.pid == pid).for_each(|life| life.is_last = true);
    }

    /// Nothing is to be told of its end, which was asked for.
    pub fn forget(&mut self, pid: u32) {
        self.lives.retain(|life| life.pid != pid || life.died.is_some());
    }

    /// Those that have ended, once each, as soon as `exit_of` knows how, and there is another if
    /// one is to come, or after a while.
    pub fn take_ends(&mut self, now: u64, exit_of: impl Fn(u32) -> Option<Exit>) -> Vec<End> {
        let mut ends = Vec::new();
        self.lives.retain(|life| {
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
    fn who_dies_again_and_again_is_told_of_until_that_is_over() {
        let mut lives = Lives::default();
        for pid in 0..OFTEN as u32 {
            assert!(lives.dying(clock::now()).is_empty(), "{pid}");
            lives.begin("cache", pid);
            lives.begin("store", 100 + pid);
            lives.end(pid);
        }
        lives.end(100);
        let dying = lives.dying(clock::now());
        let [(role, times, since)] = &dying[..] else { panic!("{dying:?}") };
        assert_eq!((role.as_str(), *times), ("cache", OFTEN));
        assert!(*since <= clock::wall_ms());
        assert!(lives.dying(clock::now() + RECENT).is_empty(), "that was a while ago");
        for pid in 0..2 * KEPT as u32 {
            lives.begin("cache", pid);
            lives.end(pid);
        }
        let dying = lives.dying(clock::now());
        assert_eq!(dying[0].1, KEPT);
    }

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
