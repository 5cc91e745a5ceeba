//! The held mount, and the other mounts that it must be told from.

use crate::mounts::MountFact;
use serde::{Deserialize, Serialize};

/// Other mounts of one daemon that are remembered.
pub(crate) const MOST_SECONDS: usize = 16;

/// Mounts that a supervisor knows of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mounts {
    /// The held one, once there is one.
    pub held: Option<MountFact>,
    /// FUSE file systems that were there before the first daemon, by `major:minor`.
    before: Vec<String>,
    /// Other mounts of the daemon, of which the kernel has said that it serves them; and of those
    /// before, what is still to be taken away.
    seconds: Vec<MountFact>,
    /// Where the daemon has said that it has another one, which has not been found yet.
    unseen: Vec<String>,
}

impl Mounts {
    /// Where these were there before.
    pub(crate) fn new(before: Vec<String>) -> Self {
        Self { before, ..Self::default() }
    }

    /// FUSE file systems that were there before the first daemon.
    pub(crate) fn before(&self) -> &[String] {
        &self.before
    }

    /// Whether the file system of that device was there before.
    pub(crate) fn was_there(&self, device: &String) -> bool {
        self.before.contains(device)
    }

    /// The daemon has said that it has another mount there.
    pub(crate) fn told(&mut self, place: String) {
        if self.unseen.len() < MOST_SECONDS {
            self.unseen.push(place);
        }
    }

    /// Takes the places where one was said to be, and was not found yet.
    pub(crate) fn take_unseen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unseen)
    }

    /// Another mount of the daemon. Whether it was not known.
    pub(crate) fn add_second(&mut self, fact: &MountFact) -> bool {
        let new = !self.seconds.contains(fact) && self.seconds.len() < MOST_SECONDS;
        if new {
            self.seconds.push(fact.clone());
        }
        new
    }

    /// Takes all of these.
    pub(crate) fn take_seconds(&mut self) -> Vec<MountFact> {
        std::mem::take(&mut self.seconds)
    }
}
