//! Checkpoints, under the policy `epoch`: when to ask for one, and what commits it.

use super::{SECOND, Supervisor};
use crate::committer::{Committer, Place};
use crate::process::Exit;
use belay_recorder::Store;
use belay_recorder::control::{Counter, options};
use std::sync::Arc;

impl Supervisor {
    fn has_epochs(&self) -> bool {
        self.config.option_bits() & options::EPOCH != 0
    }

    pub(super) fn start_committer(&mut self) {
        if !self.has_epochs() {
            return;
        }
        match self.commit_place() {
            Ok(place) => self.committer = Some(Committer::start(place)),
            Err(why) => tracing::error!("cannot commit checkpoints: {why}"),
        }
    }

    fn commit_place(&self) -> Result<Place, String> {
        let image = self.config.image.clone().ok_or("no image is known")?;
        let device = belay_sys::dup_cloexec(self.device()).map_err(|why| why.to_string())?;
        Ok(Place { memory: Arc::clone(&self.memory), layout: self.layout, device, image })
    }

    /// The daemon has said that something has changed.
    pub(super) fn wake_committer(&self) {
        if let Some(committer) = &self.committer {
            committer.wake();
        }
    }

    /// When the next checkpoint is to be asked for.
    pub(super) fn next_checkpoint(&self) -> Option<u64> {
        self.has_epochs().then_some(self.next_checkpoint.0)
    }

    /// Asks for a checkpoint if the last is long enough ago and somebody has done something since.
    pub(super) fn ask_for_checkpoint(&mut self, now: u64) {
        let (at, requests) = self.next_checkpoint;
        if !self.has_epochs() || now < at {
            return;
        }
        let served = self.control().counter(Counter::Requests);
        self.next_checkpoint = (now + self.config.checkpoint_ms * (SECOND / 1000), served);
        if served != requests && self.complete_or_first() {
            self.control().ask_for_checkpoint();
            // It may sleep.
            let file = Store::new(Arc::clone(&self.memory), self.layout).some_file();
            let _ = rustix::io::write(self.device(), &belay_wire::build::kick(file));
        }
    }

    fn complete_or_first(&self) -> bool {
        self.complete || self.book.generation == 0
    }

    /// No further generation is to come: what can be committed is. `false` if something was lost.
    pub(super) fn end_epochs(&mut self, exit: Option<Exit>) -> bool {
        if !self.has_epochs() {
            return true;
        }
        if let Some(committer) = self.committer.take() {
            committer.finish();
        }
        let clean = exit == Some(Exit::Code(0));
        let ended = self.commit_place().and_then(|place| place.end(clean));
        if let Err(why) = &ended {
            tracing::error!("{why}");
        }
        if !clean {
            tracing::warn!(
                "the daemon did not come to a clean end: its image is as it was at the last checkpoint, and what was \
                 done since is not on it"
            );
        }
        ended.is_ok()
    }
}
