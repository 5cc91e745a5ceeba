//! The link to the keeper: what comes over it, and what happens when the keeper dies.

use super::deadlines::Due;
use super::{LINK, SECOND, Supervisor};
use crate::clock;
use crate::handover::{Note, Received};
use crate::keeper::start_self;

/// A keeper that lives for less is not replaced at once: the next one would die of the same.
const SHORT: u64 = SECOND;
/// The longest pause.
const LONGEST: u64 = 30 * SECOND;

/// How long to wait with a new keeper, when the last one has lived for `lived`, and came after such a pause.
fn pause(lived: u64, before: u64) -> u64 {
    if lived < SHORT { before.saturating_mul(2).clamp(SECOND / 10, LONGEST) } else { 0 }
}

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
                    let (started, before) = self.keeper_life;
                    let now = clock::now();
                    let pause = pause(now.saturating_sub(started), before);
                    self.keeper_life.1 = pause;
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
                self.keeper_life.0 = clock::now();
            }
            Err(error) => {
                tracing::warn!("{error}; trying again");
                self.deadlines.set(Due::Keeper, clock::now() + SECOND);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepers_that_die_at_once_are_waited_with() {
        assert_eq!(pause(SECOND, 0), 0);
        assert_eq!((pause(0, 0), pause(1, SECOND)), (SECOND / 10, 2 * SECOND));
        assert_eq!((pause(0, u64::MAX), pause(60 * SECOND, LONGEST)), (LONGEST, 0));
    }
}
