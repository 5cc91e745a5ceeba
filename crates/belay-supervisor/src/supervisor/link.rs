//! The link to the keeper: what comes over it, and what happens when the keeper dies.

use super::{LINK, SECOND, Supervisor};
use crate::clock;
use crate::handover::{Note, Received};
use crate::keeper::start_self;

impl Supervisor {
    pub(super) fn take_notes(&mut self) {
        while let Some(link) = &self.link {
            match link.receive(false) {
                Received::Note(Note::Exited(exited)) => self.remember([exited]),
                Received::Note(Note::Stop { .. }) => self.request_stop(),
                Received::Note(_) | Received::WithDescriptors(..) => {}
                Received::Nothing => break,
                Received::Closed => {
                    self.link = None;
                    self.keeper_pid = 0;
                    self.replace_keeper();
                }
            }
        }
    }

    pub(super) fn tell_keeper(&self, note: &Note) {
        if let Some(link) = &self.link {
            let _ = link.send(note);
        }
    }

    /// Starts a new keeper after the death of the last.
    pub(super) fn replace_keeper(&mut self) {
        if self.finished.is_some() {
            return;
        }
        let hello = Note::Hello {
            from: std::process::id(),
            takeover: true,
            history: Vec::new(),
            stops: u32::from(self.book.stop.is_some()),
        };
        match start_self("keep", self.config.verbose, &hello, &self.fds) {
            Ok((link, pid)) => {
                tracing::warn!("the keeper died; process {pid} takes its place");
                if let Err(error) = self.listen(&link, LINK) {
                    tracing::warn!("{error}");
                }
                self.link = Some(link);
                self.keeper_pid = pid;
            }
            Err(error) => {
                tracing::warn!("{error}; trying again");
                self.keeper_retry_ns = clock::now() + SECOND;
            }
        }
    }
}
