//! Starts that come to nothing, and what they leave behind: a command that is no daemon, but starts
//! one.
//!
//! Invariant: nothing is taken away but what a process serves that this start has left, or started.
//! While what was started lives, that is no process that belay could hold: none that has the
//! recorder in memory, and so may be the daemon in a moment.

use super::Supervisor;
use super::parts::deadlines::Due;
use super::parts::looks::stray::SOON;
use crate::clock;
use crate::clock::SECOND;
use crate::mounts::{self, Mount, MountFact};
use crate::process::{Exit, maps_file};
use crate::text::command_line;
use belay_recorder::control::InitState;
use belay_sys::mailbox::has_mail;
use rustix::fd::AsFd;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How long what has been left behind may take to mount.
const MOUNTS: u64 = SECOND;
impl Supervisor {
    /// The first daemon ended without a mount.
    pub(super) fn never_mounted(&mut self, exit: Exit, code: i32, explain: bool) {
        self.drain_stderr();
        let command = self.config.command_line();
        let said = self.said();
        let exit = exit.told();
        if let Some(mount) = self.stray_mount() {
            let taken = self.takes_stray(&mount);
            tell_of_stray(&command, &format!("{exit} and left"), &mount, taken);
        } else if explain {
            tracing::error!(
                "{command}: it {exit} and did not mount anything: {said}. Is it a FUSE \
                 daemon? Name the daemon itself, not a script that starts it, and give it all that it needs to mount"
            );
        } else {
            tracing::error!(
                "{command}: it {exit} before it had mounted anything; {said}. Not started again"
            );
        }
        self.finish(code);
    }

    /// The first daemon had mounted, and ended with an error before anybody was served.
    pub(super) fn never_served(&mut self, exit: Exit) {
        self.drain_stderr();
        tracing::error!(
            "{}: it {} before it served its mount; {}. Not started again",
            self.config.command_line(),
            exit.told(),
            self.said()
        );
    }

    /// Where the daemon's own words are, if it has said any; those of belay in it do not count.
    fn said(&mut self) -> &'static str {
        let own = |line: &String| !line.starts_with("belay: ") && !line.trim().is_empty();
        if self.words.take().iter().any(own) {
            "what it says itself is above"
        } else {
            "it says nothing itself"
        }
    }

    /// What is at the mountpoint, or comes there soon from what is left of the start.
    fn stray_mount(&mut self) -> Option<Mount> {
        let place = self.place().map(|place| place.as_path().to_owned())?;
        let end = clock::now().saturating_add(MOUNTS);
        loop {
            let found = mounts::at(&place).filter(Mount::is_fuse);
            if found.is_some() || clock::now() > end || self.leftovers().is_empty() {
                return found;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Unmounts it, if a process serves it that this start has left. Before the start nothing was
    /// there, but somebody else may have mounted something since.
    fn takes_stray(&mut self, mount: &Mount) -> bool {
        let fact = MountFact::of(mount);
        let left = self.leftovers();
        left.iter().any(|process| mounts::serves(process.pid, &mount.device))
            && mounts::detach(&fact, None, &self.helpers.scouts)
    }

    /// What was started has not mounted: it is looked whether another program does.
    pub(super) fn begin_to_look_for_stray(&mut self) {
        self.looks.stray.begin();
        match self.book.generation {
            0 => self.deadlines.set(Due::Stray, clock::now().saturating_add(SOON)),
            _ => self.deadlines.cancel(Due::Stray),
        }
    }

    /// Looks whether what was started waits for another program that has mounted in its place, and
    /// refuses it then.
    pub(super) fn look_for_stray(&mut self, now: u64) {
        self.adopt_device();
        let mounted = self.book.mounts.held.is_some() || mounts::was_mounted(self.device());
        let begun =
            self.control().init_state() != InitState::None || has_mail(self.fds.mail.as_fd());
        if self.book.generation > 0 || self.life.ended().is_some() || mounted || begun {
            return;
        }
        let found = self.stray_of_another();
        let device = found.as_ref().map(|mount| mount.device.clone());
        match (self.looks.stray.see(device), found) {
            (Ok(()), Some(mount)) => self.refuse_stray(&mount),
            (Ok(()), None) => {}
            (Err(pause), _) => self.deadlines.set(Due::Stray, now.saturating_add(pause)),
        }
    }

    /// What is at the mountpoint, if it came since the start, and is served by a process that belay
    /// does not hold.
    fn stray_of_another(&mut self) -> Option<Mount> {
        let mount = mounts::at(self.place()?.as_path()).filter(Mount::is_fuse)?;
        if self.book.mounts.was_there(&mount.device) {
            return None;
        }
        let mut serving = self.leftovers();
        serving.retain(|process| mounts::serves(process.pid, &mount.device));
        // What cannot be seen now may be.
        let held = |pid: u32| maps_file(pid, self.fds.recorder.as_fd()).unwrap_or(true);
        let other = !serving.is_empty() && !serving.iter().any(|process| held(process.pid));
        other.then_some(mount)
    }

    /// Ends what was started, and takes away what it has had mounted.
    fn refuse_stray(&mut self, mount: &Mount) {
        // Before its end, which may be that of who serves the mount.
        let fact = MountFact::of(mount);
        self.kill_last();
        let taken = mounts::detach(&fact, None, &self.helpers.scouts);
        let command = self.config.command_line();
        tell_of_stray(
            &command,
            "has not mounted anything itself, and waits while there is",
            mount,
            taken,
        );
        self.finish(1);
    }
}

/// Says that `command` has had another program mount. `how`: it did what, in front of "a mount at".
fn tell_of_stray(command: &str, how: &str, mount: &Mount, taken: bool) {
    let place = Path::new(OsStr::from_bytes(&mount.mountpoint));
    let quoted = command_line([place.as_os_str()]);
    let done = if taken {
        "belay has unmounted it".to_owned()
    } else {
        format!("belay does not hold it: unmount it (`umount {quoted}`)")
    };
    tracing::error!(
        "{command}: it {how} a mount at {quoted}, which another program serves, and {done}. Name that program \
         itself"
    );
}
