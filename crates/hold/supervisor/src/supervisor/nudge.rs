//! Waking a daemon that is asleep where only a message of the kernel's wakes it.
//!
//! What belay itself has for a daemon its shim gives to whoever reads the device, or waits for it
//! through the C library. A daemon that waits by other means (io_uring, system calls of its own)
//! comes when the kernel has something: so the mount is asked for something that changes nothing.
//! It need not be one of these: a mount on which the kernel knows no regular file cannot be kicked
//! otherwise (see [`belay_wire::build::kick`]).
//!
//! Invariant: who asks uses the mount, and so keeps others from unmounting it. So it is ended as
//! soon as nobody takes what it asks, with the life that it was to wake, and before anything is
//! unmounted; and none is made while somebody wants the end.

use super::Supervisor;
use super::parts::clients::Wait;
use super::parts::deadlines::Due;
use super::parts::nudge::FIRST;
use crate::asker;
use crate::clock;
use crate::clock::SECOND;
use crate::mounts;
use belay_recorder::control::Instant;
use std::process::Stdio;

/// How long a request may wait that wakes whoever can be woken by it.
const WAITS: u64 = SECOND / 10;

impl Supervisor {
    /// Wakes one of the daemon's threads, or all that wait. Where the kernel knows no file by which
    /// that could be done quietly, it takes a request, if it is `worth` that.
    pub(super) fn wake_daemon(&self, worth: bool) {
        let file = self.recorder.store().some_file();
        if let Ok(device) = belay_sys::dup_cloexec(self.device()) {
            self.helpers.nudge.kick(device, file, worth);
        }
    }

    /// The kernel has refused to wake the daemon quietly when that was worth a request.
    pub(super) fn nudge_if_refused(&mut self) {
        if self.helpers.nudge.was_refused() {
            self.nudge_daemon();
        }
    }

    /// Has the mount asked for something that changes nothing, by a process of its own.
    fn nudge_daemon(&mut self) {
        let asking = self.helpers.nudge.asking();
        // Whoever can be woken by a request has one to read.
        let is_unread = || asking > 0 && mounts::has_unread(self.device());
        if self.helpers.nudge.is_enough() || self.is_to_end() || is_unread() {
            return;
        }
        let Some(mount) = &self.book.mounts.held else { return };
        let mut asker = asker::command(&mount.mountpoint.0);
        asker.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match asker.spawn() {
            Ok(child) => {
                self.helpers.nudge.add(child);
                self.deadlines.set(Due::NudgeLook, clock::now().saturating_add(WAITS));
            }
            Err(why) => tracing::debug!("nobody to wake the daemon by: {why}"),
        }
    }

    /// Whether somebody wants the mount to end.
    fn is_to_end(&self) -> bool {
        self.book.stop.is_some()
            || self.clients.has_waiting(|wait| matches!(wait, Wait::Unmount(_)))
    }

    /// Ends what asks the mount, if nobody takes what it asks: who could be woken by that has been.
    pub(super) fn end_vain_nudge(&mut self, now: u64) {
        if self.helpers.nudge.is_empty() {
            return;
        }
        // Else it has not come so far yet, or is about to be answered.
        match mounts::has_unread(self.device()) {
            true => self.helpers.nudge.end(),
            false => {
                self.deadlines.set(Due::NudgeLook, now.saturating_add(WAITS));
                self.nudge_if_asked(); // when it asked there may have been no room
            }
        }
    }

    /// The shim has work for the daemon, and could wake nobody.
    pub(super) fn nudge_if_asked(&mut self) {
        let asked = self.control().nudges_asked();
        if self.helpers.nudge.is_asked(asked) {
            self.nudge_daemon();
        }
    }

    /// Whether the daemon of this generation has attached and does not serve yet.
    fn is_starting(&self) -> bool {
        let control = self.control();
        self.life.starts()
            && control.instant(Instant::Attached) != 0
            && control.instant(Instant::Open) == 0
    }

    /// A generation is being started: it is given some time to serve.
    pub(super) fn begin_to_watch_start(&mut self) {
        let first = self.book.life.started_ns.saturating_add(FIRST);
        self.deadlines.set(Due::Nudge, first);
    }

    /// One that attaches later, or that another supervisor has started, is watched from then on.
    pub(super) fn watch_start(&mut self) {
        if self.deadlines.at(Due::Nudge).is_none() && self.is_starting() {
            self.begin_to_watch_start();
        }
    }

    /// Wakes a successor that should have begun, and finds out daemons that are out of reach.
    pub(super) fn nudge_in_time(&mut self, now: u64) {
        if !self.is_starting() {
            return;
        }
        let generation = self.book.generation;
        let pause = self.helpers.nudge.pause(generation);
        self.deadlines.set(Due::Nudge, now.saturating_add(pause));
        if generation > 0 {
            self.wake_daemon(true);
        } else {
            self.check_reach();
        }
    }

    /// The kernel has its first message, INIT, before a mount can be seen, and the shim notes the
    /// first read of the device before it is made. Where there is a mount, no message and no such
    /// note, somebody has read by a way that the shim does not see. How long the daemon takes plays
    /// no part in that: a slow one leaves the message where it is.
    fn check_reach(&mut self) {
        self.find_mount();
        let read = self.control().instant(Instant::FirstRead) != 0;
        if read || self.book.mounts.held.is_none() {
            return;
        }
        // In this order: what is read in between is noted before, and a mount that ends in between
        // had nothing to read.
        let unread = mounts::has_unread(self.device());
        let read = self.control().instant(Instant::FirstRead) != 0;
        if unread || read || mounts::is_disconnected(self.device()) {
            return;
        }
        self.refuse_daemon(
            "it reads the FUSE device by other means than the C library's functions (io_uring, or system calls of its own), \
             where belay cannot see what it does: it cannot be held. Run it without belay, or set it to plain reads",
        );
    }
}
