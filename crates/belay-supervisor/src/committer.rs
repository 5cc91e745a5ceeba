//! The committer: brings sealed epochs to the image, in a thread of its own, while the daemon goes on in the next one
//! (Membrane, section 4.3.3).
//!
//! What it needs to know lies in the recorder, so that the committer of the next supervisor begins where this one was:
//! a commit that was not finished is made all over.

use crate::clock;
use belay_effects::area::Area;
use belay_image::journal::{self, HostFile, beside};
use belay_image::overlay::{Capacity, Overlay};
use belay_recorder::{Layout, Store};
use belay_sys::Mapping;
use rustix::fd::OwnedFd;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How soon a commit that has failed is tried again: the disk may have room by then.
const AGAIN: Duration = Duration::from_secs(1);
/// How often it is said that commits fail.
const TOLD: u64 = 60_000_000_000;

/// What a commit works on.
struct Place {
    memory: Arc<Mapping>,
    layout: Layout,
    /// To wake the daemon by.
    device: OwnedFd,
}

/// The thread that commits. It ends with this.
#[derive(Debug)]
pub struct Committer {
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts it. `device` is a duplicate of the FUSE device.
    pub fn start(memory: Arc<Mapping>, layout: Layout, device: OwnedFd) -> Self {
        let (wake, waker) = channel();
        let place = Place { memory, layout, device };
        let thread = std::thread::Builder::new()
            .name("committer".to_owned())
            .spawn(move || place.work(&waker))
            .inspect_err(|why| tracing::error!("cannot start a thread that commits: {why}"))
            .ok();
        Self { wake: Some(wake), thread }
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
            let path = image(&self.memory, self.layout)?;
            let files = || {
                let image = HostFile::image(&path)?;
                let journal = HostFile::create_journal(&beside(&path))?;
                Ok::<_, journal::Error>((image, journal))
            };
            let (image, journal) = files().map_err(|why| why.to_string())?;
            journal::commit(&journal, &image, &*self.memory, &sealed, &mut |_| {})
                .map_err(|why| why.to_string())?;
            overlay.set_committed(sealed.epoch).map_err(|why| why.to_string())?;
            journal::mark_empty(&journal).map_err(|why| why.to_string())?;
        } else {
            overlay.set_committed(sealed.epoch).map_err(|why| why.to_string())?;
        }
        // Somebody may wait for just that.
        let file = Store::new(Arc::clone(&self.memory), self.layout).some_file();
        let _ = rustix::io::write(&self.device, &belay_wire::build::kick(file));
        Ok(true)
    }
}

/// The image, as the daemon has opened it.
fn image(memory: &Arc<Mapping>, layout: Layout) -> Result<PathBuf, String> {
    let image = Area::new(memory, layout).image();
    let image = image.ok_or("there is an epoch to be committed, and no image is known")?;
    Ok(PathBuf::from(OsStr::from_bytes(&image.path)))
}

/// The daemon has come to its end: what it wrote last is committed if that was a clean one, and else dropped. No
/// committer may be at work.
///
/// # Errors
/// If it cannot be committed; the message says what becomes of it.
pub fn end(
    memory: &Arc<Mapping>,
    layout: Layout,
    device: OwnedFd,
    clean: bool,
) -> Result<(), String> {
    let place = Place { memory: Arc::clone(memory), layout, device };
    place.commit()?;
    if clean {
        let sealed = place.overlay().seal().map_err(|why| why.to_string())?;
        if sealed.is_some() {
            place.commit()?;
        }
    }
    let Ok(path) = image(memory, layout) else { return Ok(()) };
    let files = || {
        let image = HostFile::image(&path)?;
        match HostFile::journal(&beside(&path))? {
            Some(journal) => journal.remove_journal(&image),
            None => Ok(()),
        }
    };
    files().map_err(|why: journal::Error| why.to_string())
}
