//! The committer: brings sealed epochs to the image, in a thread of its own, while the daemon goes on in the next one
//! (Membrane, section 4.3.3).
//!
//! What it needs to know lies in the recorder, so that the committer of the next supervisor begins where this one was:
//! a commit that was not finished is made all over.

use crate::clock;
use crate::image::Image;
use belay_image::journal;
use belay_image::overlay::{Capacity, Overlay};
use belay_recorder::{Layout, Store};
use belay_sys::Mapping;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How soon a commit that has failed is tried again: the disk may have room by then.
const AGAIN: Duration = Duration::from_secs(1);
/// How often it is said that commits fail.
const TOLD: u64 = 60_000_000_000;

/// How often it is tried at the end.
const LAST_TRIES: u32 = 10;

/// What a commit works on.
#[derive(Debug)]
pub struct Place {
    /// The recorder.
    pub memory: Arc<Mapping>,
    /// How it is laid out.
    pub layout: Layout,
    /// To wake the daemon by: a duplicate of the FUSE device.
    pub device: OwnedFd,
    /// To wake the supervisor by: a duplicate of its event counter.
    pub event: OwnedFd,
    /// The image.
    pub image: Image,
    /// When something was committed last, CLOCK_MONOTONIC nanoseconds; 0 for never.
    pub last: Arc<AtomicU64>,
}

/// The thread that commits. It ends with this.
#[derive(Debug)]
pub struct Committer {
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    last: Arc<AtomicU64>,
}

impl Committer {
    /// Starts it.
    pub fn start(place: Place) -> Self {
        let (wake, waker) = channel();
        let last = Arc::clone(&place.last);
        let thread = std::thread::Builder::new()
            .name("committer".to_owned())
            .spawn(move || place.work(&waker))
            .inspect_err(|why| tracing::error!("cannot start a thread that commits: {why}"))
            .ok();
        Self { wake: Some(wake), thread, last }
    }

    /// When something was committed last, if it was by this one.
    pub fn last(&self) -> Option<u64> {
        Some(self.last.load(Relaxed)).filter(|at| *at != 0)
    }

    /// There may be something to be committed.
    pub fn wake(&self) {
        if let Some(wake) = &self.wake {
            let _ = wake.send(());
        }
    }

    /// Commits what is sealed, and ends. What cannot be committed stays in the journal or is lost, which is said.
    pub fn finish(mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Place {
    fn work(&self, waker: &Receiver<()>) {
        let mut told = 0;
        let mut wait = Duration::ZERO;
        loop {
            let last = match waker.recv_timeout(wait) {
                Err(RecvTimeoutError::Disconnected) => true,
                Ok(()) | Err(RecvTimeoutError::Timeout) => false,
            };
            wait = match self.commit() {
                Ok(_) => Duration::from_secs(3600),
                Err(why) => {
                    if last || clock::now().saturating_sub(told) > TOLD || told == 0 {
                        told = clock::now();
                        tracing::error!("{why}");
                    }
                    AGAIN
                }
            };
            if last {
                return;
            }
        }
    }

    fn overlay(&self) -> Overlay<'_, Arc<Mapping>> {
        Overlay::new(&self.memory, self.layout.epochs, Capacity::MOUNT)
    }

    /// Commits the epoch that is sealed, if there is one.
    fn commit(&self) -> Result<bool, String> {
        let overlay = self.overlay();
        let Some(sealed) = overlay.sealed().map_err(|why| why.to_string())? else {
            return Ok(false);
        };
        if !sealed.is_empty() {
            let (image, journal) = self.image.open().map_err(|why| why.to_string())?;
            journal::commit(&journal, &image, &*self.memory, &sealed, &mut |_| {})
                .map_err(|why| why.to_string())?;
            overlay.set_committed(sealed.epoch).map_err(|why| why.to_string())?;
            journal::mark_empty(&journal).map_err(|why| why.to_string())?;
        } else {
            overlay.set_committed(sealed.epoch).map_err(|why| why.to_string())?;
        }
        self.last.store(clock::now(), Relaxed);
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        // Somebody may wait for just that.
        let file = Store::new(Arc::clone(&self.memory), self.layout).some_file();
        let _ = rustix::io::write(&self.device, &belay_wire::build::kick(file));
        Ok(true)
    }
}

impl Place {
    /// The daemon has come to its end, and no committer is at work: what it wrote last is committed if that
    /// was a clean one, and else dropped. The journal is removed.
    ///
    /// # Errors
    /// If it cannot be committed; the message says what becomes of it.
    pub fn end(&self, clean: bool) -> Result<(), String> {
        self.commit_in_the_end()?;
        if clean && self.overlay().seal().map_err(|why| why.to_string())?.is_some() {
            self.commit_in_the_end()?;
        }
        self.image.remove_journal().map_err(|why| why.to_string())
    }

    /// Commits what is sealed. What keeps it from that may pass.
    fn commit_in_the_end(&self) -> Result<(), String> {
        let mut tries = 1;
        loop {
            match self.commit() {
                Ok(_) => return Ok(()),
                Err(why) if tries >= LAST_TRIES => return Err(why),
                Err(why) if tries == 1 => tracing::warn!("{why}; trying again for a while"),
                Err(_) => {}
            }
            tries += 1;
            std::thread::sleep(AGAIN);
        }
    }
}
