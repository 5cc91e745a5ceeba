//! The standby: the process of the next generation, started while this one serves. It waits at a
//! gate, in the shim's constructor: what takes longest of a start is behind it then, and nothing of
//! the daemon's own has run.
//!
//! Invariant: it is used only if it was started with what would be used now, and told what it is to
//! be only then; in all other cases the next process is started as without it, and nobody hears of
//! that. It is nobody's daemon while it waits: its death is no crash, and its life no leftover. It
//! ends with the supervisor, however that ends, and even if it is stopped.

use super::Supervisor;
use super::child::Start;
use super::parts::deadlines::Due;
use super::parts::standby::Key;
use crate::look::FileStat;
use crate::process::{Watched, started};
use belay_recorder::control::Options;
use belay_sys::gate;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::io;

impl Key {
    /// That of a process that is about to be started.
    pub(super) fn of(start: &Start) -> Self {
        let Start { command, setup, file, told, .. } = start;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let variable =
            |(name, value): (&OsStr, Option<&OsStr>)| (name.to_owned(), value.map(OsStr::to_owned));
        let inherited = |(fd, number): &(_, i32)| {
            let stat = FileStat::known(fd).ok();
            (*number, stat.map(|stat| (stat.device, stat.inode)))
        };
        Self {
            file: file.stat,
            words: words.map(OsStr::to_owned).collect(),
            environment: command.get_envs().map(variable).collect(),
            told: told.clone(),
            descriptors: setup.descriptors.iter().map(inherited).collect(),
            namespace: setup.mount_namespace.clone(),
            mark: setup.mark,
        }
    }
}

impl Supervisor {
    /// A daemon has come to serve: the next one's process is started when all else is done that is
    /// due then. That is some milliseconds after a recovery, so those who have waited for it come
    /// first; and not later, as the next death may be soon.
    pub(super) fn await_standby(&mut self) {
        if self.config.standby {
            self.deadlines.set(Due::Standby, self.standby.earliest());
        }
    }

    /// It is time to start it, if the daemon has gone on.
    pub(super) fn start_standby(&mut self) {
        if !self.life.serves() || self.book.stop.is_some() || self.standby.pid().is_some() {
            return;
        }
        match self.spawn_standby() {
            Ok(pid) => tracing::debug!("process {pid} waits to be the next generation"),
            Err(error) => {
                tracing::debug!("no process waits to be the next generation: {error}");
                self.standby.pause();
                self.await_standby();
            }
        }
    }

    fn spawn_standby(&mut self) -> io::Result<u32> {
        let mut start = self.prepare_start(None, self.book.generation.wrapping_add(1), false)?;
        // The thread that starts it must live as long as this process.
        if !start.is_near() {
            return Err(io::Error::other("somebody else would have to be waited for"));
        }
        let key = Key::of(&start);
        let (ours, its) = gate::make()?;
        start.waits_at(its);
        start.setup.at_end_of_parent = Some(Signal::KILL);
        let process = self.execute(start)?;
        let pid = process.pid;
        let since = started(pid).ok().flatten().unwrap_or(0);
        self.standby.is_started(process, since, ours, key);
        Ok(pid)
    }

    /// Has the process that waits go on as that generation, if there is one that will do for this
    /// start. Gives when it was started.
    pub(super) fn let_standby_in(
        &mut self,
        start: &Start,
        generation: u32,
        options: Options,
    ) -> Option<(Watched, u64)> {
        self.standby.pid()?;
        let mut standby = self.standby.let_in(&Key::of(start), generation, options.bits());
        if let Some((process, since @ 0)) = &mut standby {
            // It could not be seen when it was started.
            *since = started(process.pid).ok().flatten().unwrap_or(0);
        }
        if standby.is_none() {
            self.let_standby_go();
            self.standby.pause();
        }
        standby
    }

    /// Looks whether it is still there, and wanted.
    pub(super) fn check_standby(&mut self) {
        if self.book.stop.is_some() {
            self.let_standby_go();
        } else if self.standby.is_dead() {
            self.let_standby_go();
            self.standby.pause();
            self.await_standby();
        }
    }

    /// It is not to be the next one.
    pub(super) fn let_standby_go(&mut self) {
        if let Some(pid) = self.standby.let_go() {
            self.helpers.mirror.forget(pid);
        }
    }
}
