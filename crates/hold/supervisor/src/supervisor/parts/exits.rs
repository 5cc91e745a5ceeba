//! Processes that have ended, until somebody asks how.

use crate::outsiders::Outsiders;
use crate::process::{Exit, Exited};
use std::collections::VecDeque;

/// So many are remembered.
const MOST: usize = 256;

/// The last of them.
#[derive(Debug)]
pub(crate) struct Exits {
    last: VecDeque<Exited>,
    outsiders: Outsiders,
}

impl Default for Exits {
    fn default() -> Self {
        Self { last: VecDeque::new(), outsiders: Outsiders::new() }
    }
}

impl Exits {
    /// Notes one more.
    pub fn add(&mut self, exited: Exited) {
        self.last.push_back(exited);
        let excess = self.last.len().saturating_sub(MOST);
        self.last.drain(..excess);
    }

    /// How process `pid` has ended.
    pub fn of(&self, pid: u32) -> Option<Exit> {
        self.last.iter().rfind(|exited| exited.pid == pid).map(|exited| exited.exit)
    }

    /// The same, which is forgotten with that.
    pub fn take(&mut self, pid: u32) -> Option<Exit> {
        let found = self.last.iter().rposition(|exited| exited.pid == pid)?;
        self.last.remove(found).map(|exited| exited.exit)
    }

    /// Whether the SIGKILL of a process that has just ended came from another process, see
    /// [`Outsiders::is_one`].
    pub fn is_from_outside(&mut self) -> Option<bool> {
        self.outsiders.is_one()
    }

    /// Forgets that number, which belongs to another process now.
    pub fn forget(&mut self, pid: u32) {
        self.last.retain(|exited| exited.pid != pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_end_of_a_number_is_told_once() {
        let mut exits = Exits::default();
        for (pid, code) in [(1, 1), (2, 2), (1, 3)] {
            exits.add(Exited { pid, exit: Exit::Code(code) });
        }
        assert_eq!(exits.take(1), Some(Exit::Code(3)));
        exits.forget(1);
        assert_eq!(
            (exits.take(1), exits.take(2), exits.take(2)),
            (None, Some(Exit::Code(2)), None)
        );
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut exits = Exits::default();
        for pid in 0..=MOST as u32 {
            exits.add(Exited { pid, exit: Exit::Code(0) });
        }
        assert_eq!(exits.take(0), None);
        assert!(exits.take(1).is_some());
    }
}
