//! Daemons that live but do not serve: hangs, runaway memory, starts without end.

use super::Supervisor;
use super::parts::deadlines::Due;
use crate::clock::{self, SECOND};
use crate::companions::pulse;
use crate::detection::Detection;
use crate::inflight::Requests;
use crate::mounts;
use crate::process::{descendants, is_stopped, resident_bytes};
use crate::text::{self, OsText};
use belay_recorder::control::{Counter, Instant};
use rustix::fd::AsFd;
use std::time::Duration;

/// When it is said that a first start is still waited for.
const TOLD: u64 = 10 * SECOND;

/// What is noted of a signal on request after which the daemon was killed all the same.
const THEN: &str = ", then a hang (";

impl Supervisor {
    /// Looks at the limits that only repeated looks tell of. A daemon beyond one of them is killed,
    /// and its end handled as a crash.
    pub(super) fn check_limits(&mut self) {
        let why = self.companions.gave_up(self.config.log.as_ref().map(OsText::show).as_deref());
        if let Some(why) = why.filter(|_| self.life.ended().is_none()) {
            self.give_up(&why);
            return;
        }
        if self.book.stop.is_some() || self.life.ended().is_some() || self.is_being_killed() {
            return;
        }
        if let Some(place) = self.companions.removed() {
            self.give_up(&format!(
                "{place} was removed by somebody else, and without it the processes of the volume do not find each other \
                 (systemd-logind removes it when a user's last session ends, unless `loginctl enable-linger` was called). What was \
                 written is being stored now: see below whether that succeeds, and mount the volume again"
            ));
            return;
        }
        if let Some(detection) = self.too_large().or_else(|| self.hanging()) {
            self.end_beyond_limit(detection);
        }
    }

    /// The generation of the book is to be ready in its time. The first start may wait for a
    /// password: it has no limit, and is told of.
    pub(super) fn limit_start(&mut self) {
        let limit = match self.book.generation {
            0 => TOLD,
            _ => self.config.start_timeout_ms.saturating_mul(SECOND / 1000),
        };
        let at = self.book.life.started_ns.saturating_add(limit);
        // An earlier supervisor has told it.
        match self.book.generation == 0 && at < clock::now() {
            true => self.deadlines.cancel(Due::Ready),
            false => self.deadlines.set(Due::Ready, at),
        }
    }

    /// That time is over.
    pub(super) fn check_start(&mut self, now: u64) {
        if self.life.serves() || self.control().instant(Instant::Ready) != 0 {
            return;
        }
        if self.book.generation == 0 {
            self.tell_of_start();
            return;
        }
        // It may not be killed, or is about to end.
        self.deadlines.set(Due::Ready, now.saturating_add(SECOND));
        if self.book.stop.is_none() && !self.is_being_killed() {
            self.end_beyond_limit(Detection::StartTimeout);
        }
    }

    /// Says that a first start is still waited for.
    fn tell_of_start(&self) {
        if self.book.stop.is_some() || self.is_being_killed() {
            return;
        }
        let reason = match self.config.pulse {
            None => "it may be asking for something, or wait for a server",
            Some(_) => "it may be recovering what was written, or wait for a disk",
        };
        tracing::info!(
            "{} does not serve yet, and is waited for: {reason} (Ctrl-C or SIGTERM ends it)",
            self.daemon_name()
        );
    }

    fn end_beyond_limit(&mut self, detection: Detection) {
        if self.kill_daemon() {
            // It hangs because somebody has asked for it: no request is to blame.
            let detection = match (self.daemon.take_cause(), detection) {
                (Some((Detection::Requested { signal }, _)), Detection::Hang { request }) => {
                    Detection::Requested { signal: format!("{signal}{THEN}{request})") }
                }
                (_, detection) => detection,
            };
            self.daemon.is_to_die(detection, clock::now());
        }
    }

    /// Whether belay has killed the daemon, whose end is awaited. One that was given a signal on
    /// request may well live on, so no limit is lifted for that.
    pub(super) fn is_being_killed(&self) -> bool {
        self.daemon.cause().is_some_and(|(cause, _)| match cause {
            Detection::Requested { signal } => signal.contains(THEN),
            _ => true,
        })
    }

    fn too_large(&self) -> Option<Detection> {
        let limit = self.config.memory_limit?;
        let bytes = resident_bytes(self.daemon.holder()?.pid)? + self.resident_behind();
        (bytes > limit).then_some(Detection::Memory { bytes, limit })
    }

    /// Resident memory of the daemon behind a relay, and of what it has started, in bytes.
    fn resident_behind(&self) -> u64 {
        self.behind_relay().into_iter().filter_map(resident_bytes).sum()
    }

    /// The processes that stand behind a relay, which is the daemon otherwise.
    fn behind_relay(&self) -> Vec<u32> {
        let relay = self.daemon.holder().filter(|_| self.config.relay);
        relay.map(|relay| descendants(&[relay.pid], &[])).unwrap_or_default()
    }

    /// Whether the daemon is stopped, or its relay.
    fn is_stopped(&self, pid: u32) -> bool {
        is_stopped(pid) || self.behind_relay().into_iter().any(is_stopped)
    }

    fn hanging(&mut self) -> Option<Detection> {
        let limit = self.config.hang_timeout()?;
        self.looks.hang.begin(clock::now());
        let stopped = self.daemon.holder().is_some_and(|daemon| is_stopped(daemon.pid));
        if !stopped && self.config.pulse.as_ref().is_some_and(|path| pulse(path).waits) {
            // What it waits for has its own limits, and hangs by itself if it does.
            self.looks.hang.clear();
            return None;
        }
        // Until all is settled, only the request that is settled now has been given to the daemon.
        let alone = (!self.life.serves()).then_some(self.book.generation);
        let requests = Requests::new(self.fds.recorder.as_fd(), self.recorder.layout());
        let oldest = self.looks.hang.oldest(requests, alone);
        let over = |age: u64| Duration::from_nanos(age) > limit;
        let span = |age: u64| text::span(Duration::from_nanos(age));
        let unread = if self.life.serves() { self.unread_for() } else { None };
        if let Some((request, age)) = oldest.filter(|(_, age)| over(*age)) {
            return Some(Detection::Hang { request: format!("{request}, {}", span(age)) });
        }
        if let Some(age) = unread.filter(|age| over(*age)) {
            let request = format!("the kernel has requests, none was read for {}", span(age));
            return Some(Detection::Hang { request });
        }
        let age = self.unknown_for().filter(|age| over(*age))?;
        let request = format!(
            "requests were read from the kernel, and the daemon has not begun with them for {}",
            span(age)
        );
        Some(Detection::Hang { request })
    }

    /// For how long (in nanoseconds) the daemon has had a request from the kernel that nobody knows
    /// of, and has begun nothing else, as far as repeated looks tell.
    ///
    /// A thread can be held up when it has read a request and the shim has not seen it yet: by a
    /// signal that stops the process, or by a handler of the daemon's that does not return. The
    /// kernel hands the request to nobody else, and there is no sign of it but that the kernel
    /// counts one more than there are.
    fn unknown_for(&mut self) -> Option<u64> {
        let requests = self.control().counter(Counter::Requests);
        let injected = self.control().counter(Counter::Injected);
        let has_unknown = self.has_unknown();
        self.looks.hang.unknown_for(has_unknown, (requests, injected), clock::now())
    }

    fn has_unknown(&self) -> bool {
        let Some(pid) = self.daemon.holder().map(|daemon| daemon.pid) else { return false };
        // Before, it has a limit of its own.
        if self.control().instant(Instant::Ready) == 0 {
            return false;
        }
        match mounts::waiting(self.book.mounts.held.as_ref(), self.device()) {
            Some(0) => false,
            // What nobody has read is looked at elsewhere, and may become known at any moment.
            Some(waiting) => {
                // While belay holds requests back, the kernel may hold others back behind them, and
                // counts them, too.
                let unknown = self.life.serves()
                    && self.control().parked() == 0
                    && waiting > self.requests().of_kernel();
                unknown && !mounts::has_unread(self.device()) || self.is_stopped(pid)
            }
            None => self.is_stopped(pid),
        }
    }

    /// For how long (in nanoseconds) requests have been waiting in the kernel while the daemon
    /// read none, as far as repeated looks tell.
    fn unread_for(&mut self) -> Option<u64> {
        let requests = self.control().counter(Counter::Requests);
        let is_unread = mounts::has_unread(self.device());
        self.looks.hang.unread_for(is_unread, requests, clock::now())
    }
}
