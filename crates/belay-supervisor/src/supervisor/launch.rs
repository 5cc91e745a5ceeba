//! Starting a generation.
//!
//! Invariant: the lease is `{generation, 0}` before a process of that generation is started, and
//! the instants are cleared only then, when nobody can set them.

use super::{PROCESS, SECOND, Supervisor};
use crate::clock;
use crate::fusermount::may_mount;
use crate::instances::standin;
use crate::ledger::Life;
use crate::process::Watched;
use belay_recorder::control::Counter;
use belay_sys::{ChildSetup, PrivateMountNamespace, dup_cloexec, prepare_child};
use rustix::fs::FileType;
use rustix::process::{Resource, getrlimit};
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Where a daemon finds the recorder; device and event counter follow. High, so that daemons which
/// count on low numbers, or close them, are not disturbed.
const DESCRIPTORS: u64 = 200;

impl Supervisor {
    /// Starts the generation that the book names. A failure becomes a start failure or a crash.
    pub(super) fn launch(&mut self) {
        self.complete = false;
        self.cause = None;
        self.conclude_at = None;
        self.ages.clear();
        self.unread = None;
        self.control().clear_instants();
        let control = self.control();
        control.set_poison_after(self.config.poison_after);
        self.set_read_only();
        self.book.life = Life {
            started_ns: clock::now(),
            requests: control.counter(Counter::Requests),
            poisoned: control.counter(Counter::Poisoned),
        };
        match self.spawn() {
            Ok(watched) => {
                self.book.spawned = Some(watched.pid);
                if let Some(crash) = &mut self.book.crash {
                    crash.spawned_ns = clock::now();
                }
                // The number may have belonged to a process before.
                self.exits.retain(|exited| exited.pid != watched.pid);
                self.daemon = None;
                self.spawned = Some(watched);
                self.keep_book();
                tracing::debug!(
                    "generation {} is process {:?}",
                    self.book.generation,
                    self.book.spawned
                );
            }
            Err(error) => self.not_started(&error),
        }
    }

    fn spawn(&mut self) -> io::Result<Watched> {
        let [recorder, device, event, post, mail] = descriptor_numbers();
        let mut setup = ChildSetup {
            descriptors: vec![
                (dup_cloexec(as_fd(&self.fds.recorder))?, recorder),
                (dup_cloexec(as_fd(&self.fds.device))?, device),
                (dup_cloexec(as_fd(&self.fds.event))?, event),
                (dup_cloexec(as_fd(&self.fds.post))?, post),
                (dup_cloexec(as_fd(&self.fds.mail))?, mail),
            ],
            ..ChildSetup::default()
        };
        let mut command = Command::new(&self.config.program);
        if self.book.generation > 0
            && let Some(mount) = &self.book.mount
        {
            // The successor must find its mountpoint as it was before the mount: a look at the
            // mount itself would wait for the very daemon that looks.
            if may_mount() {
                let mountpoint = CString::new(mount.mountpoint.0.as_bytes())
                    .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
                setup.mount_namespace = Some(PrivateMountNamespace { mountpoint });
            } else {
                // A mount table of its own is not for everybody: the shim sees to it.
                let is_file = mounted_on_file(&self.control().mount_data());
                command.env("BELAY_STANDIN", standin(&self.config.instance, is_file)?);
                command.env("BELAY_MOUNTPOINT", &mount.mountpoint.0);
            }
        }
        let mut words = self.config.command.iter().map(|word| &word.0);
        if let Some(name) = words.next() {
            command.arg0(name);
        }
        command.args(words);
        command.stderr(Stdio::from(dup_cloexec(as_fd(&self.fds.stderr_write))?));
        command.env("LD_PRELOAD", self.preload());
        command.env("BELAY_PRELOAD", &self.config.preload.0);
        command.env(
            "BELAY_SHIM",
            format!(
                "v1:recorder={recorder}:device={device}:event={event}:post={post}:mail={mail}:\
                 generation={}",
                self.book.generation
            ),
        );
        let apart = setup.mount_namespace.is_some();
        prepare_child(&mut command, setup);
        let child = command.spawn()?;
        let watched = Watched::open(child.id());
        let watched = watched.ok_or_else(|| io::Error::other("cannot watch its process"))?;
        if apart {
            self.mirror.note(watched.pid);
        }
        self.listen(&watched, PROCESS).map_err(io::Error::other)?;
        Ok(watched)
    }

    fn preload(&self) -> OsString {
        let mut value = self.config.shim.as_os_str().to_owned();
        if !self.config.preload.0.is_empty() {
            value.push(":");
            value.push(&self.config.preload.0);
        }
        value
    }

    fn not_started(&mut self, error: &io::Error) {
        let program = self.config.program.display().to_string();
        if self.book.generation == 0 {
            tracing::error!("cannot start {program}: {error}; is it a program of this machine?");
            self.finish(1);
            return;
        }
        tracing::warn!("cannot start {program} again: {error}");
        self.book.unproductive = self.book.unproductive.saturating_add(1);
        if let Some(crash) = &mut self.book.crash {
            crash.detection = crate::ledger::Detection::NotStarted { why: error.to_string() };
        }
        if self.is_crash_loop() {
            self.give_up(&format!("{program} could not be started again: {error}"));
            return;
        }
        self.launch_later();
        self.keep_book();
    }

    /// Starts the next generation: at once, unless the last ones came to nothing.
    pub(super) fn launch_soon(&mut self) {
        if self.book.unproductive < 3 {
            self.launch();
        } else {
            self.launch_later();
        }
    }

    fn launch_later(&mut self) {
        let steps = self.book.unproductive.min(6);
        self.launch_at = Some(clock::now() + (SECOND / 1000) * (10 << steps));
    }
}

fn as_fd(fd: &rustix::fd::OwnedFd) -> rustix::fd::BorrowedFd<'_> {
    rustix::fd::AsFd::as_fd(fd)
}

/// Whether the mount covers a file, as its options say.
fn mounted_on_file(data: &[u8]) -> bool {
    let mode = data.split(|byte| *byte == b',').find_map(|word| word.strip_prefix(b"rootmode="));
    let mode = mode.and_then(|mode| std::str::from_utf8(mode).ok());
    mode.and_then(|mode| u32::from_str_radix(mode, 8).ok())
        .is_some_and(|mode| FileType::from_raw_mode(mode) == FileType::RegularFile)
}

fn descriptor_numbers() -> [i32; 5] {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let first = DESCRIPTORS.min(limit.saturating_sub(8)).max(10);
    let first = i32::try_from(first).unwrap_or(200);
    [first, first + 1, first + 2, first + 3, first + 4]
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_as_mountpoints_are_told_from_directories() {
        assert!(super::mounted_on_file(b"rw,fd=4,rootmode=100000,user_id=0"));
        assert!(super::mounted_on_file(b"rw,rootmode=100644"));
        for data in [&b"rw,rootmode=40000"[..], b"", b"rootmode=x"] {
            assert!(!super::mounted_on_file(data));
        }
    }

    #[test]
    fn descriptors_are_below_the_limit() {
        let [first, .., last] = super::descriptor_numbers();
        assert!(first >= 10 && last == first + 4);
    }
}
