//! The process of the next generation, which waits while this one serves.

use crate::clock::{self, SECOND};
use crate::look::FileStat;
use crate::process::{Status, Watched};
use belay_sys::PrivateMountNamespace;
use rustix::fd::OwnedFd;
use signal_hook::consts::SIGKILL;
use std::ffi::OsString;

/// The longest pause after one that has ended while it waited, or could not be started.
const LONGEST: u64 = 64 * SECOND;

/// What a process was started with. Two that have the same are as good as each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The program file.
    pub file: FileStat,
    /// Its path, and the words.
    pub words: Vec<OsString>,
    /// What was changed of the environment.
    pub environment: Vec<(OsString, Option<OsString>)>,
    /// What the shim is told.
    pub told: String,
    /// What is inherited: by that number that device and inode.
    pub descriptors: Vec<(i32, Option<(u64, u64)>)>,
    /// What its mount table lacks.
    pub namespace: Option<PrivateMountNamespace>,
    /// The mark of its generation.
    pub mark: Option<u64>,
}

#[derive(Debug)]
struct Waits {
    process: Watched,
    /// When it was started, in clock ticks since the system's start.
    started: u64,
    /// Its end of the gate. Nobody else has it, so that the other end knows when this process is
    /// gone.
    gate: OwnedFd,
    key: Key,
    since: u64,
}

/// It, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Standby {
    waits: Option<Waits>,
    /// How many in a row came to nothing.
    vain: u32,
    /// None is started before that time because of those.
    not_before: u64,
}

impl Standby {
    /// This one waits from now on, `started` at that clock tick since the start of the system.
    pub fn is_started(&mut self, process: Watched, started: u64, gate: OwnedFd, key: Key) {
        self.waits = Some(Waits { process, started, gate, key, since: clock::now() });
    }

    /// Its number.
    pub fn pid(&self) -> Option<u32> {
        self.waits.as_ref().map(|waits| waits.process.pid)
    }

    /// Whether it has ended.
    pub fn is_dead(&self) -> bool {
        self.waits.as_ref().is_some_and(|waits| waits.process.is_dead())
    }

    /// Lets it in, if it lives, is not stopped and was started with the same, for that generation
    /// and with these options. Gives when it was started as well.
    pub fn let_in(&mut self, key: &Key, generation: u32, options: u64) -> Option<(Watched, u64)> {
        let Waits { process, gate, key: its, .. } = self.waits.as_ref()?;
        let is_usable = its == key && !process.is_dead() && goes_on(process.pid);
        if !is_usable || belay_sys::gate::open(gate, generation, options).is_err() {
            return None;
        }
        (self.vain, self.not_before) = (0, 0);
        self.waits.take().map(|waits| (waits.process, waits.started))
    }

    /// It is not needed any more. Gives its number.
    pub fn let_go(&mut self) -> Option<u32> {
        let Waits { process, since, .. } = self.waits.take()?;
        if clock::now().saturating_sub(since) > LONGEST {
            self.vain = 0;
        }
        // It would end by itself, unless it is stopped.
        let _ = process.signal(SIGKILL);
        Some(process.pid)
    }

    /// One came to nothing: gives how long there is to be none.
    pub fn pause(&mut self) -> u64 {
        let pause = (SECOND << self.vain.min(10)).min(LONGEST);
        self.vain = self.vain.saturating_add(1);
        self.not_before = clock::now().saturating_add(pause);
        pause
    }

    /// When the next one may be started.
    pub fn earliest(&self) -> u64 {
        clock::now().max(self.not_before)
    }
}

/// Whether a process runs or waits for its own purposes: nobody has stopped it, traces it at a
/// stop, or is killing it.
fn goes_on(pid: u32) -> bool {
    let Some(status) = Status::of(pid) else { return false };
    let state = status.fact("State:").and_then(|state| state.chars().next());
    matches!(state, Some('R' | 'S' | 'D')) && !status.is_killed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGSTOP;
    use std::process::{Child, Command};
    use std::time::Duration;

    fn key(told: &str) -> Key {
        let file = FileStat::known(&std::fs::File::open("/").expect("open")).expect("stat");
        let (words, environment, descriptors) = (Vec::new(), Vec::new(), Vec::new());
        let told = told.to_owned();
        Key { file, words, environment, told, descriptors, namespace: None, mark: Some(7) }
    }

    fn waiting() -> (Standby, Child, OwnedFd) {
        let child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let process = Watched::open(child.id()).expect("a process");
        let (gate, end) = belay_sys::gate::make().expect("a gate");
        let mut standby = Standby::default();
        standby.is_started(process, 77, gate, key("same"));
        (standby, child, end)
    }

    #[test]
    fn one_that_was_started_with_the_same_is_let_in() {
        let (mut standby, mut child, end) = waiting();
        assert_eq!(standby.pid(), Some(child.id()));
        let (process, started) = standby.let_in(&key("same"), 3, 5).expect("let in");
        assert_eq!((process.pid, started, standby.pid()), (child.id(), 77, None));
        assert_eq!(belay_sys::gate::pass(&end), Some((3, 5)));
        assert!(!process.is_dead());
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    #[test]
    fn another_one_is_let_go_and_told_nothing() {
        for (other, signal, is_away) in [
            ("other", None, false),
            ("same", Some(SIGKILL), false),
            ("same", Some(SIGSTOP), false),
            ("same", None, true),
        ] {
            let (mut standby, mut child, end) = waiting();
            if let Some(signal) = signal {
                let process = Watched::open(child.id()).expect("a process");
                process.signal(signal).expect("a signal");
                while !process.is_dead() && goes_on(child.id()) {
                    std::thread::yield_now();
                }
            }
            let end = (!is_away).then_some(end);
            assert!(standby.let_in(&key(other), 3, 5).is_none(), "{other}");
            assert_eq!((standby.let_go(), standby.pid()), (Some(child.id()), None));
            assert_eq!(end.and_then(|end| belay_sys::gate::pass(&end)), None);
            // It was killed, or is dead already.
            child.wait().expect("wait");
        }
    }

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew() {
        let (mut standby, mut child, _end) = waiting();
        let pauses: Vec<u64> = (0..8).map(|_| standby.pause() / SECOND).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64]);
        assert!(standby.earliest() > clock::now() + 60 * SECOND, "whoever wants one waits");
        let (process, _) = standby.let_in(&key("same"), 3, 5).expect("let in");
        assert!(standby.earliest() <= clock::now(), "the last one was of use");
        assert_eq!(standby.pause(), SECOND);
        let _ = process.signal(SIGKILL);
        assert!(process.wait_end(Duration::from_secs(60)));
        child.wait().expect("wait");
    }
}
