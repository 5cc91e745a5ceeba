//! The end: asked for, by itself, or because nothing else is left.

use super::Supervisor;
use super::lifecycle::{Event, StopInput};
use super::undead::cannot_be_killed;
use crate::clock;
use crate::fusermount;
use crate::handover::Note;
use crate::heartbeat;
use crate::instances;
use crate::mounts;
use crate::process::{Exit, Watched, reap, waits_in_exec};
use crate::protocol::Answer;
use crate::report::Outcome;
use crate::status::State;
use crate::text::{OsText, count};
use belay_recorder::control::{Options, ending};
use rustix::fd::AsFd;
use signal_hook::consts::{SIGKILL, SIGTERM};
use std::sync::Arc;
use std::time::Duration;

/// How long a killed daemon may take to be gone whose image is to be written to.
const DEATH: Duration = Duration::from_secs(1);
/// How often it is looked whether companions have ended: nothing else is left to be done.
const LOOK: Duration = Duration::from_millis(2);

impl Supervisor {
    /// Somebody wants belay to stop; a second wish ends all patience.
    pub(super) fn request_stop(&mut self) {
        if self.life.ended().is_some() {
            // All that is left are companions.
            if !self.companions.hurry() {
                tracing::warn!(
                    "{}: unmounted; what was written is being stored (asked to stop once more, belay ends at once)",
                    self.mountpoint()
                );
            }
            return;
        }
        self.helpers.nudge.end();
        if self.book.stop.is_none() {
            tracing::debug!("asked to stop");
        }
        self.live(Event::StopAsked { now: clock::now() });
        self.keep_book();
        self.pursue_stop();
    }

    /// Something may have changed of what the next step towards the end depends on, if there is a
    /// wish to stop.
    pub(super) fn pursue_stop(&mut self) {
        if self.book.stop.is_some() && self.life.ended().is_none() {
            self.live(Event::StopPursued(self.stop_input()));
        }
    }

    /// What the next step towards the end depends on.
    pub(super) fn stop_input(&self) -> StopInput {
        StopInput {
            now: clock::now(),
            process: self.process().is_some(),
            may_stop: self.may_stop(),
            execs: self.book.stop.is_some() && self.waits_in_exec(),
            finds_out: self.book.tries.last > 0 && mounts::is_disconnected(self.device()),
        }
    }

    /// Whether the daemon was seen to wait in an exec.
    fn waits_in_exec(&self) -> bool {
        self.process().is_some_and(|process| waits_in_exec(process.pid))
    }

    /// Whether the daemon has its unmount, and data that was acknowledged and is nowhere else: it
    /// is to write that now, which takes as long as it takes.
    pub(super) fn is_storing(&self) -> bool {
        let unmounts = || {
            mounts::is_disconnected(self.device())
                || self.control().ending(self.book.generation) & ending::UNMOUNTS != 0
        };
        self.has_epochs()
            && self.book.content.read_only.is_none()
            && self.book.mounts.held.is_some()
            && self.process().is_some()
            && unmounts()
            && self.has_to_store()
    }

    /// The daemon is given more time, as it writes what nobody else has.
    pub(super) fn let_it_store(&mut self, first: bool) {
        self.keep_book();
        if first {
            tracing::warn!(
                "{}: unmounted; the daemon has still to write what it had acknowledged, and is waited for (asked to stop once \
                 more, belay ends it)",
                self.mountpoint()
            );
        }
    }

    /// Unmounted, the daemon ends by itself and as it should; one whose mount is in use is asked to
    /// give it up.
    pub(super) fn tell_daemon_to_end(&mut self) {
        let process = self.process().and_then(Watched::try_clone);
        match (process, self.book.mounts.held.clone()) {
            (Some(process), Some(mount)) => {
                let device = belay_sys::dup_cloexec(self.device()).ok();
                let scouts = Arc::clone(&self.helpers.scouts);
                if let Err(error) = mounts::release(mount, device, process, scouts) {
                    // Its time is not over: it is tried again in that.
                    self.lacks_thread(&format!("cannot start a thread that unmounts: {error}"));
                    return;
                }
            }
            // What is refused is said.
            _ => _ = self.signal_daemon(SIGTERM),
        }
        self.live(Event::DaemonTold);
        self.keep_book();
    }

    /// Takes the mount off; those who use it get errors. `patience`: how long this may wait for
    /// what the machine lacks. Gives what is to be said if the mount stays.
    pub(super) fn take_mount_off(&self, patience: Duration) -> Option<String> {
        let mount = self.book.mounts.held.as_ref()?;
        let done = mounts::abort_and_detach(mount, self.device(), &self.helpers.scouts, patience);
        let why = done.err()?;
        let why = format!(
            "not unmounted yet: {why}; what is left there gives errors, and `belay stop` takes it away later"
        );
        tracing::warn!("{}: {why}", mount.mountpoint.show());
        Some(why)
    }

    /// The daemon was killed, and is not gone: it waits in the kernel for a file system whose
    /// server does not answer, which no signal ends. Of its own code nothing runs any more.
    pub(super) fn leave_behind(&mut self) {
        if let Some(process) = self.process() {
            tracing::error!("{}", cannot_be_killed(process.pid));
        }
        self.finish(1);
    }

    pub(super) fn force_stop(&mut self) {
        // If it cannot be now, it is when the daemon has ended.
        self.take_mount_off(Duration::ZERO);
        if self.process().is_none() {
            self.finish(0);
        } else if !self.kill_last() {
            self.finish(1);
        }
        // Its end is noticed like any other.
    }

    /// Ends belay on this mount, with exit code `code`.
    pub(super) fn finish(&mut self, code: i32) {
        self.conclude();
        if self.life.ended().is_some() {
            return;
        }
        heartbeat::beat(&self.fds.ledger, true);
        self.let_standby_go();
        self.helpers.nudge.end();
        self.drain_stderr();
        self.finish_effects();
        // From here on nothing comes of a wish; but who has one by now is told as well.
        self.live(Event::Ends { code });
        let lost = self.end_epochs(self.book.last_exit).err();
        let mut stays = None;
        if self.book.mounts.held.is_some() && !self.book.tries.gave_up {
            // Nothing else is left to be done, and it would stay behind.
            stays = self.take_mount_off(mounts::LACK);
            // One that waits to unmount (`auto_unmount`) has nothing to do any more.
            for helper in fusermount::helpers(&self.keeper.belay()) {
                let _ = helper.signal(SIGKILL);
            }
        }
        self.quell_at_the_end();
        if self.process().is_none_or(|process| process.is_dead()) {
            self.take_off_seconds();
        }
        let lost = lost.or_else(|| self.end_companions());
        let code = if lost.is_none() { code } else { code.max(1) };
        self.helpers.backtraces.finish();
        instances::retire_held(&self.folder);
        self.answer_ended(code, lost.or(stays).as_deref());
        self.keeper.tell(&Note::Done { code });
        self.live(Event::Ends { code });
    }

    /// Nobody needs the companions any more. Gives what is to be said if one did not bring home
    /// what it had.
    fn end_companions(&mut self) -> Option<String> {
        self.hear_companions();
        self.companions.end();
        while !self.companions.have_ended() {
            std::thread::sleep(LOOK);
            // Who asks meanwhile is told that it takes its time, and may have it end all the same.
            self.serve_all_clients();
            self.take_signals();
        }
        let ended = self.companions.take_ended();
        let log = self.config.log.as_ref().map(OsText::show);
        self.remember(reap());
        self.hear_last_of_companions();
        let failed = ended.into_iter().rev().find_map(|(role, pid)| {
            let exit = self.exits.take(pid).unwrap_or(Exit::Unknown);
            // Those that an earlier supervisor has started are the keeper's.
            let exit = self.await_exit_of(pid, exit);
            self.companions.failed(&role, exit, log.as_deref())
        });
        // Of what an earlier keeper was told nobody knows.
        let lost = failed.or_else(|| self.companions.gave_up(log.as_deref()));
        if self.book.tries.gave_up && self.companions.removed().is_some() {
            match &lost {
                None => tracing::warn!("what was written is on the stores"),
                Some(why) => {
                    tracing::error!("what was written since the last checkpoint is lost: {why}");
                }
            }
        }
        lost
    }

    /// No generation is to come that could carry out what the last one had committed.
    fn finish_effects(&self) {
        if !self.options().contains(Options::TRANSACTION) {
            return;
        }
        let process = self.process();
        if process.is_some_and(|process| !process.wait_end(DEATH)) {
            return; // it lives on without belay, and has what it had
        }
        // What the daemon has left as its image may be a file of anybody's.
        match self.helpers.scouts.finish(self.fds.recorder.as_fd(), self.fds.image_mail.as_fd()) {
            Ok(0) => {}
            Ok(n) => {
                let transactions = count(n as u64, "transaction");
                tracing::info!("carried out {transactions} that the daemon had committed");
            }
            Err(why) => tracing::error!("{why}; have the image checked"),
        }
    }

    /// Gives the mount up, so that nobody hangs on it.
    pub(super) fn give_up(&mut self, why: &str) {
        self.book.tries.gave_up = true;
        self.let_standby_go();
        if self.process().is_some() {
            self.kill_last();
        } else {
            // A new supervisor may not know yet which of them is the daemon.
            Self::kill_all(&self.leftovers());
        }
        if let Some(crash) = self.book.crash.take() {
            self.write_report(&crash, Outcome::GaveUp, None);
        }
        let place = self.mountpoint();
        // Callers that wait get an error now; closing the device, by ending, would do the same.
        if let Some(mount) = &self.book.mounts.held {
            mounts::abort(mount, || !mounts::is_disconnected(self.device()));
        }
        tracing::error!(
            "giving up on {place}: {why}. All requests on it fail from now on; clean up with \
             `umount {place}` or `fusermount3 -u {place}`, and see the reports in {}",
            self.folder.path().join(instances::REPORTS).display()
        );
        let status = self.status();
        debug_assert_eq!(status.state, State::GaveUp);
        if let Ok(json) = serde_json::to_vec_pretty(&status)
            && let Err(error) = self.folder.put("last-status.json", &json)
        {
            tracing::warn!("{error}");
        }
        self.finish(1);
    }

    fn answer_ended(&mut self, code: i32, lost: Option<&str>) {
        self.serve_all_clients();
        self.answer_waiting(|_| Some(Answer::Ended { code, lost: lost.map(str::to_owned) }));
        self.serve_further_lines();
    }
}
