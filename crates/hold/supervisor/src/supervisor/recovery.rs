//! From the death of a generation to the end of its recovery.
//!
//! Invariant: the lease moves to the next generation before requests are resent, the dead one is
//! fenced or the next one started, so that nothing of the dead one can take it. The blackout runs
//! from the death to the successor's first reply; whatever is not needed for that happens after the
//! successor's start, or after its first replies.

use super::Supervisor;
use super::lifecycle::{Command, Death, Event, Worthless, count_worth};
use super::watch::DESTROYED;
use crate::clock;
use crate::detection::Detection;
use crate::inflight::Snapshot;
use crate::ledger::Crash;
use crate::mounts;
use crate::process::{Exit, Watched};
use crate::report::{self, Outcome};
use crate::verdict::{self, Next, Worth, blame, worth};
use belay_effects::remains::{self};
use belay_recorder::Blame;
use belay_recorder::control::{Counter, Instant, Lease, Options};
use rustix::io::Errno;
use signal_hook::consts::SIGKILL;
use std::io;

impl Supervisor {
    /// The daemon crashed: start the next generation.
    pub(super) fn crashed(&mut self, pid: u32, exit: Exit, detection: Detection, died_ns: u64) {
        if !self.control().is_valid() {
            self.give_up(DESTROYED);
            return;
        }
        let worth = self.worth_of_life();
        let ended = self.life_that_ended(exit, died_ns);
        if !self.move_lease_on() {
            // A living process of this generation holds it, or cannot be looked at now: not a crash
            // yet.
            return;
        }
        self.daemon.take_cause();
        let dead = self.book.generation;
        let outside = self.was_from_outside(dead, exit);
        let blame = blame(exit, &detection, outside);
        self.control().set_blame(dead, blame);
        self.count_forward(dead, blame, &detection);
        // Such a death counts against a request, and that has an end of its own.
        let tried = worth == Worth::Nothing && self.requests().has_alone(dead);
        self.process_is_gone();
        self.daemon.is_gone();
        let left = self.left_by(Some(pid));
        let connections = self.late.take_connections();
        let interrupted = self.book.crash.take();
        // What comes later may be its successor's.
        self.drain_stderr();
        let stderr = self.words.take();
        // The successor will settle them and take further ones.
        let in_flight = Snapshot::take(&self.recorder.store());
        let journals = if self.keeps_logs() { self.requests().journals() } else { Vec::new() };
        let control = self.control();
        let (crash, interrupted) = match interrupted {
            // A checkpoint on the way of a recovery is part of that.
            Some(crash) if detection == Detection::Checkpoint => (crash, None),
            interrupted => {
                let crash = Crash {
                    generation: self.book.generation,
                    pid,
                    exit,
                    detection: detection.clone(),
                    // Applications have been waiting since the first death.
                    died_ns: interrupted.as_ref().map_or(died_ns, |crash| crash.died_ns),
                    died_wall_ms: clock::wall_ms(),
                    spawned_ns: 0,
                    decision_top: control.decision_top(),
                    counters: control.counters().map(|(_, value)| value).collect(),
                    in_flight: Vec::new(),
                    journals,
                    remains: None,
                    stderr,
                    killed: Vec::new(),
                    read_only: None,
                };
                (crash, interrupted)
            }
        };
        let goes_on = crash.generation != dead;
        self.resend();
        // In this order: what the dead daemon has read goes with who asks only after that.
        self.helpers.nudge.end();
        let ready = self.control().instant(Instant::Ready) != 0;
        let next = verdict::next(ready, worth, exit, &detection);
        let counts = next != Next::Later && detection != Detection::Checkpoint;
        if counts {
            self.book.tally.crashed();
        }
        self.book.last_exit = Some(exit);
        self.hear_losses();
        self.book.degraded.died();
        if next == Next::Anew {
            count_worth(&mut self.book, clock::now(), worth, tried, blame, &detection);
        }
        self.book.generation = dead.wrapping_add(1);
        self.book.spawned = None;
        self.book.crash = Some(crash);
        self.keep_book();
        self.live(Event::Died);
        if self.life.ended().is_some() {
            return;
        }
        let worthless = self.what_makes_it_worthless(ready, exit);
        // Before the start: should all of belay be killed then, a successor with nothing to wait
        // for waits for nobody.
        self.fence(left, connections);
        let is_its_own = worth == Worth::Nothing && blame == Blame::Own;
        let (now, cause) = (clock::now(), detection.clone());
        let death = Death { now, next, detection: cause, is_its_own, worthless };
        let commands = self.decide(Event::Fenced(death));
        // What the mount is given up for can wait until that death was told of.
        let gives_up = |command: &Command| matches!(command, Command::GiveUp(_));
        let (late, soon): (Vec<_>, Vec<_>) = commands.into_iter().partition(gives_up);
        soon.into_iter().for_each(|command| self.carry_out(command));
        let asked = !in_flight.is_empty();
        if goes_on {
            // It has not served, but there is less left to be done by the next.
            self.book.tries.unproductive = 0;
            tracing::debug!(
                "daemon {pid} (generation {dead}) has ended for a checkpoint on the way"
            );
            self.take_notes();
            self.keep_book();
        } else {
            self.tell_of_crash(interrupted, in_flight);
        }
        self.count_stalled(ended, worth, &detection, asked);
        late.into_iter().for_each(|command| self.carry_out(command));
    }

    /// Why no further daemon would come farther than the last, if that is so. A mount that can go
    /// on read-only does.
    fn what_makes_it_worthless(&mut self, ready: bool, exit: Exit) -> Option<Worthless> {
        let corrupt = self.is_record_corrupt(ready, exit);
        let looping = corrupt || self.life.is_crash_loop(&self.book, clock::now());
        let lost = !self.consider_read_only(looping) && looping;
        let too_large = self.trim_record().map(Worthless::TooLarge);
        let worthless = if corrupt { Worthless::Corrupt } else { Worthless::CrashLoop };
        too_large.or_else(|| lost.then_some(worthless))
    }

    /// What can wait until the successor is on its way.
    fn tell_of_crash(&mut self, interrupted: Option<Crash>, in_flight: Snapshot) {
        self.take_notes();
        let waits = self.waiting().is_some();
        if let Some(crash) = &mut self.book.crash {
            crash.in_flight = in_flight.describe();
            crash.remains = Self::remains_of(&self.fds, &self.recorder.layout(), crash.generation);
            let told = format!(
                "daemon {} (generation {}) {}; noticed by {}",
                crash.pid,
                crash.generation,
                crash.exit.show(),
                report::show_detection(&crash.detection)
            );
            // One every few seconds is nothing to tell of, and of a start that has failed more is
            // told below.
            match crash.detection {
                Detection::Checkpoint => tracing::debug!("{told}"),
                _ if waits => tracing::debug!("{told}"),
                _ => tracing::info!("{told}"),
            }
        }
        let words = self.book.crash.as_ref().map(|crash| crash.stderr.clone()).unwrap_or_default();
        self.tell_of_program(words.get(words.len().saturating_sub(5)..).unwrap_or_default());
        if self.book.tries.waiting.as_ref().is_some_and(|waiting| waiting.over_ns == 0) {
            let words = self.book.crash.as_ref().map(|crash| crash.stderr.clone());
            self.tell_of_wait(&words.unwrap_or_default());
        }
        if let Some(crash) = interrupted
            && !self.is_one_of_many(&crash)
        {
            self.write_report(&crash, Outcome::Interrupted, None);
        }
        if self.life.ended().is_none() {
            self.keep_book();
        }
    }

    fn worth_of_life(&self) -> Worth {
        let control = self.control();
        let open = control.instant(Instant::Open) != 0
            || self.book.generation == 0 && control.instant(Instant::Ready) != 0;
        let requests = control.counter(Counter::Requests).wrapping_sub(self.book.life.requests);
        let poisoned = control.counter(Counter::Poisoned).wrapping_sub(self.book.life.poisoned);
        worth(open, control.instant(Instant::FirstReply) != 0, requests, poisoned)
    }

    /// Takes the lease for the next generation. False if a living process of this mount has just
    /// taken it for this one.
    fn move_lease_on(&mut self) -> bool {
        let next = Lease { generation: self.book.generation.wrapping_add(1), pid: 0 };
        loop {
            let lease = self.control().lease();
            if lease == next {
                return true;
            }
            let dead = self.process().map(|watched| watched.pid);
            if lease.generation == self.book.generation && lease.pid != 0 && dead != Some(lease.pid)
            {
                let process = Watched::find(lease.pid).map_err(io::Error::from);
                let serves = process.and_then(|process| {
                    process.map_or(Ok(None), |process| self.may_serve(&process))
                });
                match serves {
                    Ok(None) => {}
                    Ok(Some(_)) => {
                        self.follow_lease();
                        return false;
                    }
                    // One that cannot be looked at now is looked at again.
                    Err(_) => return false,
                }
            }
            // A lease that makes no sense was written by a daemon gone mad: it is overwritten.
            if self.control().change_lease(lease, next) {
                return true;
            }
        }
    }

    /// Has the kernel hand out again what the dead generation had read and not answered.
    pub(super) fn resend(&mut self) {
        if self.options().contains(Options::NO_RESEND) {
            return;
        }
        match mounts::resend(self.device()) {
            Ok(()) => self.book.resend = Some(true),
            // Of a connection that is gone nothing is to come again, and what it says means
            // nothing.
            Err(Errno::INVAL) if !mounts::is_disconnected(self.device()) => {
                tracing::debug!("this kernel has no RESEND: serving again from copies");
                self.book.resend = Some(false);
            }
            // Nothing is mounted yet, or no longer.
            Err(Errno::PERM | Errno::NODEV | Errno::INVAL) => {}
            Err(error) => tracing::warn!("cannot have requests resent: {error}"),
        }
    }

    /// Looks how far the current generation has come.
    pub(super) fn check_progress(&mut self) {
        if !self.life.starts() || self.daemon.holder().is_none() {
            return;
        }
        self.watch_start();
        self.find_mount();
        let control = self.control();
        let ready = control.instant(Instant::Ready) != 0;
        let open = control.instant(Instant::Open);
        if ready && self.control().held() < self.book.generation {
            self.hold_connections();
        }
        let open_ns = self.control().instant(Instant::Open).max(open);
        self.live(Event::Seen { now: clock::now(), ready, open_ns });
    }

    /// The daemon serves, and nothing was to be recovered from.
    pub(super) fn serves(&mut self) {
        self.hold_connections();
        self.begin_to_look_at_opened();
        self.begin_to_look_for_mount(clock::now());
        self.await_standby();
        self.wait_is_over();
        tracing::debug!("generation {} serves", self.book.generation);
        self.tell_serving();
        self.pursue_stop();
    }

    /// Concludes a recovery that is over, because it is time to or something else begins.
    pub(super) fn conclude(&mut self) {
        self.live(Event::Concludes);
    }

    /// The successor has settled all that was in flight at `open_ns`.
    pub(super) fn recovered(&mut self, open_ns: u64) {
        self.begin_to_look_for_mount(clock::now());
        self.await_standby();
        self.note_fenced();
        self.hold_connections();
        self.look_for_progress();
        let Some(crash) = self.book.crash.take() else {
            return;
        };
        self.wait_is_over();
        let now = clock::now();
        // Shared memory: an instant that cannot be is replaced by one that can.
        let sane = |at: u64| {
            if at > crash.died_ns && at <= now { at } else { now }
        };
        let mut end = sane(open_ns);
        let first_reply = self.control().instant(Instant::FirstReply);
        if first_reply != 0 {
            end = end.min(sane(first_reply));
        }
        let blackout = clock::micros(crash.died_ns, end);
        if crash.detection == Detection::Checkpoint {
            self.keep_book();
            self.answer_recovered(blackout);
            tracing::debug!("generation {} serves after a checkpoint", self.book.generation);
            return;
        }
        self.kept.count_blackout(&mut self.book, blackout);
        self.keep_book();
        self.answer_recovered(blackout);
        self.tell_serving();
        let path = self.write_report(&crash, Outcome::Recovered, Some(blackout));
        let shown = path.map(|path| format!("; report {}", path.display())).unwrap_or_default();
        tracing::info!(
            "generation {} serves after a blackout of {blackout} us{shown}",
            self.book.generation
        );
        self.keep_book();
        self.note_mount();
    }

    fn keeps_logs(&self) -> bool {
        self.options().intersects(Options::JOURNAL | Options::TRANSACTION)
    }

    /// Whether somebody else sent the signal that the daemon died of, if that is known.
    fn was_from_outside(&mut self, generation: u32, exit: Exit) -> Option<bool> {
        let Exit::Signal(signal) = exit else { return None };
        if self.control().own_signal(generation) == Some(signal) {
            return Some(false);
        }
        if signal == SIGKILL {
            return self.exits.is_from_outside();
        }
        let head =
            remains::read_head(&self.requests().view(), &self.recorder.layout(), generation)?;
        (head.signal == signal).then(|| head.is_from_outside())?
    }
}
