//! `belay stop`: the mount is taken off if nobody uses it; lazily, if that is wanted. Only `--force` and signals end what is in
//! use (`ending`).

use super::Supervisor;
use super::clients::Wait;
use super::ending::wish;
use crate::mounts::{self, Removed};
use crate::protocol::{Answer, StopHow};
use rustix::fd::AsFd;
use signal_hook::consts::SIGTERM;
use std::sync::mpsc::{Receiver, channel};

/// A mount that a thread is taking off: unmounting may wait for the daemon.
#[derive(Debug)]
pub(super) struct Unmounting {
    how: StopHow,
    removed: Receiver<Removed>,
}

impl Supervisor {
    /// Takes the next step of each wish to unmount: begins, or tells what came of it.
    pub(super) fn pursue_unmount(&mut self) {
        if self.finished.is_some() {
            return;
        }
        if let Some(unmounting) = &self.unmounting {
            let Ok(removed) = unmounting.removed.try_recv() else { return };
            let how = unmounting.how;
            self.unmounting = None;
            self.unmounted(how, removed);
        }
        if self.may_stop() {
            for how in [StopHow::Unused, StopHow::Lazy] {
                if self.unmounting.is_none() && self.has_waiting(|wait| wait == Wait::Unmount(how))
                {
                    self.begin_unmount(how);
                }
            }
        }
    }

    /// Whether nothing is to be done before the end: in a recovery, the applications that wait get their answers first, and
    /// what was acknowledged is done again.
    pub(super) fn may_stop(&self) -> bool {
        let nobody_waits = || !mounts::has_unread(self.device()) && self.requests().count() == 0;
        self.complete
            || self.book.generation == 0
            || self.waiting().is_some()
            || !self.has_epochs() && nobody_waits()
    }

    fn begin_unmount(&mut self, how: StopHow) {
        self.nudge.end();
        self.find_mount();
        let Some(mount) = self.book.mount.clone() else {
            // Nobody can use what is not there yet.
            self.answer_unmount(how, None);
            self.request_stop();
            return;
        };
        let event = match belay_sys::dup_cloexec(self.committed.as_fd()) {
            Ok(event) => event,
            Err(error) => {
                let why = format!("cannot duplicate a descriptor: {error}");
                self.answer_unmount(how, Some(&Answer::Refused { why }));
                return;
            }
        };
        let (tell, removed) = channel();
        self.unmounting = Some(Unmounting { how, removed });
        let device = belay_sys::dup_cloexec(self.device()).ok();
        let thread = std::thread::Builder::new().name("unmount".to_owned()).spawn(move || {
            let device = device.as_ref().map(AsFd::as_fd);
            let _ = tell.send(mounts::remove(&mount, device, how == StopHow::Lazy));
            let _ = rustix::io::write(&event, &1_u64.to_ne_bytes());
        });
        if let Err(error) = thread {
            self.unmounting = None;
            let why = format!("cannot start a thread that unmounts: {error}; try again");
            self.answer_unmount(how, Some(&Answer::Refused { why }));
        }
    }

    fn unmounted(&mut self, how: StopHow, removed: Removed) {
        match removed {
            Removed::Now if how == StopHow::Lazy => {
                self.answer_unmount(how, Some(&Answer::Detached));
            }
            // Some of it is open still.
            Removed::Before if how == StopHow::Lazy || !mounts::is_disconnected(self.device()) => {
                self.answer_unmount(how, Some(&Answer::Detached));
            }
            Removed::Now | Removed::Before => {
                // The daemon hears of it by itself, and gets the time that it gets when belay is asked to stop.
                if self.book.stop.is_none() {
                    self.book.stop = Some(wish(true));
                    self.keep_book();
                }
                self.answer_unmount(how, None);
                // One that still starts may wait for long before it finds that out.
                let starts = !self.complete && self.book.generation > 0 && !self.has_epochs();
                if let Some(process) = self.daemon.as_ref().or(self.spawned.as_ref())
                    && starts
                {
                    let _ = process.signal(SIGTERM);
                }
                // If none is there, it is over.
                self.pursue_stop();
            }
            Removed::InUse => self.answer_unmount(how, Some(&Answer::InUse)),
            Removed::Not(why) => self.answer_unmount(how, Some(&Answer::Refused { why })),
        }
    }

    /// Gives those who asked for this an answer; `None`: when it is over.
    fn answer_unmount(&mut self, how: StopHow, answer: Option<&Answer>) {
        match answer {
            Some(answer) => {
                self.answer_waiting(|wait| (wait == Wait::Unmount(how)).then(|| answer.clone()))
            }
            None => self.await_end(how),
        }
    }
}
