//! The link to the keeper: what comes over it, and what happens when the keeper dies.

use super::Supervisor;
use super::parts::deadlines::Due;
use super::parts::tokens::LINK;
use crate::clock;
use crate::clock::SECOND;
use crate::handover::{Note, Received};
use crate::role::start_self;

impl Supervisor {
    pub(super) fn take_notes(&mut self) {
        while let Some(link) = self.keeper.link() {
            match link.receive(false) {
                Received::Note(Note::Exited(exited)) => self.remember([exited]),
                Received::Note(Note::Stop { .. }) => self.request_stop(),
                Received::Note(_) | Received::WithDescriptors(..) => {}
                Received::Nothing => break,
                Received::Closed => {
                    let now = clock::now();
                    let pause = self.keeper.died(now);
                    if pause == 0 {
                        self.replace_keeper();
                    } else {
                        self.deadlines.set(Due::Keeper, now.saturating_add(pause));
                        tracing::warn!("the keeper died as soon as it was started; trying again");
                    }
                }
            }
        }
    }

    /// Starts a new keeper after the death of the last.
    pub(super) fn replace_keeper(&mut self) {
        if self.life.ended().is_some() {
            return;
        }
        let hello = Note::Hello {
            from: std::process::id(),
            takeover: true,
            history: Vec::new(),
            stops: u32::from(self.book.stop.is_some()),
        };
        match start_self("keep", self.config.verbose, self.config.holds.as_ref(), &hello, &self.fds)
        {
            Ok((link, pid)) => {
                tracing::warn!("the keeper died; process {pid} takes its place");
                if let Err(error) = self.events.listen(&link, LINK) {
                    tracing::warn!("{error}");
                }
                self.keeper.is_replaced(link, pid, clock::now());
            }
            Err(error) => {
                tracing::warn!("{error}; trying again");
                self.deadlines.set(Due::Keeper, clock::now() + SECOND);
            }
        }
    }
}
