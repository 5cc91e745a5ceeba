//! How a process is started that all is prepared for.

use super::Supervisor;
use super::child::{Start, silent};
use super::parts::tokens::PROCESS;
use crate::process::{Watched, children_of_thread};
use crate::threads::Bounded;
use belay_sys::prepare_child;
use signal_hook::consts::SIGKILL;
use std::io;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// How long it may take until a program that somebody else serves has been started.
const EXEC: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Starts the process, and listens for its end.
    pub(super) fn execute(&mut self, start: Start) -> io::Result<Watched> {
        let near = start.is_near();
        let Start { mut command, setup, told, .. } = start;
        command.env("BELAY_SHIM", told);
        let apart = setup.mount_namespace.is_some();
        prepare_child(&mut command, setup);
        let mut child = match near {
            true => command.spawn()?,
            false => spawn_elsewhere(command)?,
        };
        let watched = self.watch_child(child.id());
        match &watched {
            Ok(watched) if apart => self.helpers.mirror.note(watched.pid),
            Ok(_) => {}
            // Nobody would hear of its end.
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        watched
    }

    fn watch_child(&self, pid: u32) -> io::Result<Watched> {
        let watched = Watched::find(pid)?;
        let watched = watched.ok_or_else(|| io::Error::other("cannot watch its process"))?;
        self.events.listen_to(&watched, PROCESS)?;
        Ok(watched)
    }
}

/// Starts a program that somebody else serves, or one whose mountpoint is on what somebody else
/// serves: to read its first page, or to go the way there, is to wait for that one. A start that
/// takes too long has failed, and what was started is killed.
fn spawn_elsewhere(mut command: Command) -> io::Result<Child> {
    static STARTS: Bounded = Bounded::new();
    let number = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&number);
    let start = move || {
        told.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), Relaxed);
        command.spawn()
    };
    STARTS.within(EXEC, "start", start).unwrap_or_else(|| {
        let thread = number.load(Relaxed);
        for child in children_of_thread(std::process::id(), thread) {
            let _ = Watched::open(child).map(|child| child.signal(SIGKILL));
        }
        Err(silent())
    })
}
