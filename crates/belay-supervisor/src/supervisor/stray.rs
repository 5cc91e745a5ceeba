//! Starts that come to nothing, and what they leave behind: a command that is no daemon, but starts one.
//!
//! Invariant: nothing is taken away but what a process serves that this start has left.

use super::{SECOND, Supervisor};
use crate::clock;
use crate::mounts::{self, Mount, MountFact};
use crate::process::Exit;
use crate::text::command_line;
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
            let place = Path::new(OsStr::from_bytes(&mount.mountpoint));
            let quoted = command_line([place.as_os_str()]);
            let done = if self.takes_stray(&mount) {
                "has unmounted it".to_owned()
            } else {
                format!("does not hold: unmount it (`umount {quoted}`)")
            };
            tracing::error!(
                "{command}: it {exit} and left a mount at {quoted}, which another program serves and belay {done}. Name that \
                 program itself"
            );
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
        if self.tail.take().iter().any(own) {
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

    /// Unmounts it, if a process serves it that this start has left. Before the start nothing was there, but somebody else may
    /// have mounted something since.
    fn takes_stray(&mut self, mount: &Mount) -> bool {
        let fact = MountFact::of(mount);
        let left = self.leftovers();
        left.iter().any(|process| mounts::serves(process.pid, &mount.device))
            && mounts::detach(&fact, None, &self.scouts)
    }
}
