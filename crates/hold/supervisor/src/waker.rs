//! Waking a daemon that sleeps in the kernel's read, by a thread of its own.
//!
//! What wakes it is a write to the FUSE device, and that waits in the kernel until the daemon has
//! answered INIT; a daemon that never does would hold up whoever writes. Nothing that a daemon can
//! write is believed in the question whether it has.

use crate::threads;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};

/// Wishes that wait to be made; further ones are dropped, as one is as good as several.
const WISHES: usize = 4;

/// One wish to wake the daemon.
#[derive(Debug)]
struct Kick {
    device: OwnedFd,
    message: Vec<u8>,
    /// Whether it is to be told that the kernel refuses the message.
    worth: bool,
}

/// The thread that wakes daemons; it ends with the last of these.
#[derive(Clone, Debug)]
pub struct Waker {
    wishes: SyncSender<Kick>,
    refused: Arc<AtomicBool>,
}

impl Waker {
    /// Starts it. What was refused is counted at `event`, which no daemon has.
    ///
    /// # Errors
    /// Those of starting a thread, and of duplicating a descriptor.
    pub fn start(event: &OwnedFd) -> std::io::Result<Self> {
        let event = event.try_clone()?;
        let (sender, wishes) = sync_channel::<Kick>(WISHES);
        let refused = Arc::new(AtomicBool::new(false));
        let waker = Self { wishes: sender, refused: Arc::clone(&refused) };
        let thread = threads::start("waker", move || {
            for kick in wishes {
                let done = rustix::io::write(&kick.device, &kick.message);
                if done.is_err() && kick.worth {
                    refused.store(true, Relaxed);
                    let _ = rustix::io::write(&event, &1_u64.to_ne_bytes());
                }
            }
        });
        thread.map_err(|(error, _)| error)?;
        Ok(waker)
    }

    /// Wakes one of the daemon's threads, by a file that the kernel knows (see
    /// [`belay_wire::build::kick`]). `worth`: if the kernel refuses that, as it knows no file, it
    /// is to be told.
    pub fn kick(&self, device: OwnedFd, file: Option<u64>, worth: bool) {
        let message = belay_wire::build::kick(file);
        let _ = self.wishes.try_send(Kick { device, message, worth });
    }

    /// Whether one that was worth it has been refused since this was asked last.
    pub fn was_refused(&self) -> bool {
        self.refused.swap(false, Relaxed)
    }
}
