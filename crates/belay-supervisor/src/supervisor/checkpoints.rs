//! Checkpoints, under the policy `epoch`: when to ask for one, and what commits it.

use super::{SECOND, Supervisor};
use crate::clock;
use crate::committer::{Committer, Place};
use crate::ledger::{Detection, Stop};
use crate::mounts;
use crate::process::Exit;
use belay_image::overlay::{self, Overlay};
use belay_oplog::Oplog;
use belay_recorder::Store;
use belay_recorder::control::{Counter, flags, options};
use std::sync::Arc;

/// How many daemons may be started to bring about a clean end.
const LAST_STARTS: u32 = 2;

impl Supervisor {
    pub(super) fn has_epochs(&self) -> bool {
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
        (self.has_epochs() && self.book.read_only.is_none()).then_some(self.next_checkpoint.0)
    }

    /// Asks for a checkpoint if the last is long enough ago and somebody has done something since.
    pub(super) fn ask_for_checkpoint(&mut self, now: u64) {
        let (at, requests) = self.next_checkpoint;
        if !self.has_epochs() || now < at || self.book.read_only.is_some() {
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

    /// The daemon has ended with the mount, or is to, but not cleanly: what it had acknowledged is not all on
    /// its image. Another one is started on the last checkpoint, is given it again, and finds the mount gone.
    /// `false` if that is not called for, or was to no avail.
    pub(super) fn start_once_more(&mut self, pid: u32, exit: Exit, died_ns: u64) -> bool {
        if !self.has_epochs()
            || self.is_clean_end(exit)
            || self.book.mount.is_none()
            || self.book.last_starts >= LAST_STARTS
            || self.book.read_only.is_some()
        {
            return false;
        }
        self.book.last_starts += 1;
        if let Some(mount) = &self.book.mount {
            mounts::detach(mount);
            if !mounts::is_disconnected(self.device()) {
                mounts::abort(mount);
            }
        }
        if self.book.stop.is_some() {
            // It is given as much time as the one before.
            let since_ns = clock::now();
            self.book.stop = Some(Stop { since_ns, told: false, at_once: false });
        }
        tracing::warn!(
            "daemon {pid} {} when its mount ended: another one is started to do again what it had acknowledged",
            exit.show()
        );
        self.crashed(pid, exit, Detection::Death, died_ns);
        true
    }

    /// Whether the daemon, which has ended, has written all that it held. When it has found the mount gone, all
    /// is in a checkpoint, or else it could not write, whatever it says.
    fn is_clean_end(&self, exit: Exit) -> bool {
        exit == Exit::Code(0)
            && (!self.control().has(flags::DISCONNECTED) || self.unsaved() == Some(0))
    }

    /// How many requests were acknowledged that no checkpoint has; `None` if that cannot be told.
    fn unsaved(&self) -> Option<usize> {
        let size = overlay::Capacity::MOUNT;
        let epoch = Overlay::new(&self.memory, self.layout.epochs, size).epoch().ok()?;
        let at = self.layout.epochs + size.words();
        let memory = Arc::clone(&self.memory);
        let log = Oplog::open(memory, at, belay_oplog::Capacity::MOUNT, epoch).ok()?;
        Some(log.sizes().records)
    }

    /// No further generation is to come: what can be committed is. `false` if something was lost.
    pub(super) fn end_epochs(&mut self, exit: Option<Exit>) -> bool {
        if !self.has_epochs() {
            return true;
        }
        if let Some(committer) = self.committer.take() {
            committer.finish();
        }
        // Of a mount that is read-only nothing comes behind the checkpoint, not even what its daemon wrote at its end.
        let read_only = self.book.read_only.is_some();
        let clean = !read_only && exit.is_some_and(|exit| self.is_clean_end(exit));
        let unsaved = if clean || read_only { Some(0) } else { self.unsaved() };
        let kept = match unsaved {
            Some(0) => None,
            _ => self.keep_oplog("the daemon did not come to a clean end").ok(),
        };
        let ended = self.commit_place().and_then(|place| place.end(clean));
        if let Err(why) = &ended {
            tracing::error!("{why}");
        }
        match unsaved {
            Some(0) if clean || read_only => {}
            Some(0) => tracing::warn!(
                "the daemon did not come to a clean end: its image is as it was at the last checkpoint, with all that \
                 was acknowledged"
            ),
            _ => {
                let count = unsaved.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
                let fate = kept.map_or_else(
                    || "lost".to_owned(),
                    |(path, _)| format!("kept in {}: see `belay replay --help`", path.display()),
                );
                tracing::error!(
                    "the daemon did not come to a clean end: its image is as it was at the last checkpoint, and what was \
                     acknowledged since ({count} requests) is {fate}"
                );
            }
        }
        ended.is_ok() && unsaved == Some(0)
    }
}
