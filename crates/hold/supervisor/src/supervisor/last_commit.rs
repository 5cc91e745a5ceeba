//! The end of epochs: what the daemon has left is committed or kept, and what is neither is said.

use super::Supervisor;
use super::lifecycle::Event;
use crate::clock;
use crate::committer::{Committer, Failing};
use crate::detection::Detection;
use crate::process::Exit;
use crate::text::count;
use belay_recorder::control::Flags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// How many daemons may be started to bring about a clean end.
const LAST_STARTS: u32 = 2;
/// How soon it is looked anew whether the last commit is over, and who has asked for something.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

impl Supervisor {
    /// The daemon has ended with the mount, or is to, but not cleanly: what it had acknowledged is
    /// not all on its image. Another one is started on the last checkpoint, is given it again, and
    /// finds the mount gone. `false` if that is not called for, or was to no avail.
    pub(super) fn start_once_more(&mut self, pid: u32, exit: Exit, died_ns: u64) -> bool {
        if !self.has_epochs()
            || self.is_clean_end(exit)
            || self.buffers() && self.unsaved() == Some(0)
            || self.book.mounts.held.is_none()
            || self.book.tries.last >= LAST_STARTS
            // Nobody waits for another one any more: what is left goes to a file.
            || self.book.stop.is_some_and(|stop| stop.repeated)
            || self.book.content.read_only.is_some()
            || self.is_corrupt()
            // It would wait for the same disk.
            || self.hanging_commit().is_some()
        {
            return false;
        }
        self.book.tries.last += 1;
        self.take_mount_off(Duration::ZERO);
        // It is given as much time as the one before.
        self.live(Event::StartsOnceMore { now: clock::now() });
        tracing::warn!(
            "daemon {pid} {} when its mount ended: another one is started to replay what it had acknowledged",
            exit.told()
        );
        self.crashed(pid, exit, Detection::Death, died_ns);
        true
    }

    /// Whether the daemon, which has ended, has written all that it held. When it has found the
    /// mount gone, all is in a checkpoint, or else it could not write, whatever it says; unless it
    /// writes at its end only.
    fn is_clean_end(&self, exit: Exit) -> bool {
        let generation = self.book.generation;
        // One that was to end on the way has not been given all.
        let forwards = self.control().forward().is_some_and(|(other, _)| other == generation);
        exit == Exit::Code(0)
            && (self.buffers_files()
                || !forwards
                    && (!self.control().has(Flags::DISCONNECTED)
                        || self.control().retiring() == Some(generation))
                || self.unsaved() == Some(0))
    }

    /// Whether the epoch that is to be committed was written over: no daemon can bring that to the
    /// image, nor one after it.
    pub(super) fn is_corrupt(&self) -> bool {
        self.has_epochs() && !self.buffers() && self.overlay().sealed().is_err()
    }

    /// No further generation is to come: what can be committed is.
    ///
    /// # Errors
    /// What has become of it if what was acknowledged is not all where it is to be.
    pub(super) fn end_epochs(&mut self, exit: Option<Exit>) -> Result<(), String> {
        if !self.has_epochs() {
            return Ok(());
        }
        // Of a mount that is read-only nothing comes behind the checkpoint, not even what its
        // daemon wrote at its end.
        let read_only = self.book.content.read_only.is_some();
        let clean = !read_only && exit.is_some_and(|exit| self.is_clean_end(exit));
        let unsaved = if clean || read_only { Some(0) } else { self.unsaved() };
        let kept = match unsaved {
            Some(0) => None,
            _ => self.keep_oplog("the daemon did not come to a clean end").ok(),
        };
        let ended = match self.buffers() {
            true => Ok(()),
            false => self.commit_last(clean),
        };
        if let Err(why) = &ended {
            tracing::error!("{why}");
        }
        let place = if self.buffers() { "what it stores to" } else { "its image" };
        match unsaved {
            Some(0) if clean || read_only || self.book.mounts.held.is_none() => ended,
            Some(0) => {
                if ended.is_ok() {
                    tracing::warn!(
                        "the daemon did not come to a clean end: {place} is as it was at the last checkpoint, with all that \
                         was acknowledged"
                    );
                }
                ended
            }
            _ => {
                let count = unsaved.map(|number| count(number as u64, "request"));
                let fate = kept.map_or_else(
                    || "lost".to_owned(),
                    |(path, _)| format!("kept in {}: see `belay replay --help`", path.display()),
                );
                let lost = format!(
                    "the daemon did not come to a clean end: {place} is as it was at the last checkpoint, and what was \
                     acknowledged since ({}) is {fate}",
                    count.as_deref().unwrap_or("nobody knows how much")
                );
                tracing::error!("{lost}");
                Err(match ended {
                    Ok(()) => lost,
                    Err(why) => format!("{why}; {lost}"),
                })
            }
        }
    }

    /// Has what is sealed committed, and what the daemon has left if its end was `clean`. That is
    /// waited for as long as it gets on.
    fn commit_last(&mut self, clean: bool) -> Result<(), String> {
        let committer = match self.desk.take_committer() {
            Some(committer) => {
                committer.end(clean);
                committer
            }
            None => Committer::start_to_end(self.commit_job()?, clean),
        };
        let limit = self.hang_limit();
        let ended = loop {
            if let Some(ended) = committer.ended() {
                break ended;
            }
            if let Some(hanging) = committer.hanging(clock::now(), limit) {
                break Err(self.given_up(&hanging));
            }
            self.serve_in_the_end();
        };
        self.hold_journal(committer.new_journal());
        ended
    }

    /// What becomes of what is not on the image, as that gives no answer.
    fn given_up(&self, hanging: &Failing) -> String {
        let why = &hanging.why;
        let (overlay, image) = (self.overlay(), self.config.image.as_ref());
        if overlay.sealed().is_ok_and(|sealed| sealed.is_none()) {
            return format!("{why}: the image has the last checkpoint, and its journal is left");
        }
        format!(
            "{why}, and is not waited for any more: checkpoint {} is not on the image, and what it has is lost unless the \
             journal has it; when it gives answers again, run `belay repair {}`",
            overlay.epoch().unwrap_or(1).saturating_sub(1),
            image.map(|image| image.path.show()).unwrap_or_default()
        )
    }

    /// Answers those who ask how it is. What they wish comes to nothing any more, but they are told
    /// of the end.
    fn serve_in_the_end(&mut self) {
        let mut fds =
            [self.events.counter(), &self.fds.control].map(|fd| PollFd::new(fd, PollFlags::IN));
        let _ = poll(&mut fds, Some(&LOOK));
        self.events.reset_counter();
        self.serve_all_clients();
    }
}
