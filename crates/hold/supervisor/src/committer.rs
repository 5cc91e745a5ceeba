//! The committer: brings sealed epochs to the image, in a thread of its own, while the daemon goes
//! on in the next one (Membrane, section 4.3.3).
//!
//! What it needs to know lies in the recorder, so that the committer of the next supervisor begins
//! where this one was: a commit that was not finished is made all over.
//!
//! What it asks may give no answer for ever, so nobody waits for this thread but by
//! [`Committer::hanging`], which has a bound.

mod steps;

pub use steps::{On, Steps};

use crate::clock;
use crate::image::Files;
use crate::scout::{Scouts, Sent};
use crate::text::counted;
use belay_image::journal::{self, HostFile, Stage, Storage};
use belay_image::overlay::{Capacity, Overlay, Sealed};
use belay_recorder::Layout;
use belay_sys::Mapping;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How soon a commit that has failed is tried again: the disk may have room by then.
const AGAIN: Duration = Duration::from_secs(1);
/// How often it is said that commits fail.
const TOLD: u64 = 60_000_000_000;

/// How often it is tried at the end.
const LAST_TRIES: u32 = 10;

/// What the committer works on, and with.
#[derive(Debug)]
pub struct CommitJob {
    /// The recorder.
    pub memory: Arc<Mapping>,
    /// How it is laid out.
    pub layout: Layout,
    /// To wake the supervisor by: a duplicate of an event counter that no daemon has.
    pub event: OwnedFd,
    /// The image and its journal.
    pub files: Mutex<Files>,
    /// A journal that had to be made again, for whoever keeps its lock.
    pub new_journal: Arc<Mutex<Option<OwnedFd>>>,
    /// Device and inode of the image, as the user has named it.
    pub image: (u64, u64),
    /// Where a daemon leaves what it has opened for its image.
    pub image_mail: OwnedFd,
    /// The image was there.
    pub opened: AtomicBool,
    /// Look at what is there.
    pub scouts: Arc<Scouts>,
    /// When something was committed last, CLOCK_MONOTONIC nanoseconds; 0 for never.
    pub last: Arc<AtomicU64>,
    /// Why nothing can be committed now.
    pub failing: Arc<Mutex<Option<Failing>>>,
    /// What it is at.
    pub steps: Steps,
}

/// Commits that fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Since when, CLOCK_MONOTONIC nanoseconds.
    pub since: u64,
    /// How often it was tried.
    pub tries: u32,
    /// Why the last one failed.
    pub why: String,
    /// What is to be committed was written over by somebody: that does not pass.
    pub corrupt: bool,
    /// It has not failed, but does not come back.
    pub hangs: bool,
}

impl Failing {
    /// For people.
    pub fn show(&self) -> String {
        let Self { tries, why, .. } = self;
        match self.hangs {
            true => format!("checkpoints do not reach the image: {why}"),
            false => {
                let tries = counted((*tries).into(), "try", "tries");
                format!("checkpoints do not reach the image ({tries}): {why}")
            }
        }
    }
}

/// The thread that commits. It ends soon after this is dropped.
#[derive(Debug)]
pub struct Committer {
    wake: SyncSender<()>,
    /// Set when it is to end; says whether the daemon came to a clean end.
    end: Arc<OnceLock<bool>>,
    ended: Receiver<Result<(), String>>,
    last: Arc<AtomicU64>,
    /// What `last` was when it was asked for news.
    heard: u64,
    failing: Arc<Mutex<Option<Failing>>>,
    new_journal: Arc<Mutex<Option<OwnedFd>>>,
    steps: Steps,
}

/// What the thread hears by.
#[derive(Debug)]
struct Orders {
    waker: Receiver<()>,
    end: Arc<OnceLock<bool>>,
    ended: Sender<Result<(), String>>,
}

impl Committer {
    /// Starts it. A thread that cannot be had now is tried for again for as long as `patience`.
    ///
    /// # Errors
    /// If no thread is to be had.
    pub fn start(job: CommitJob, patience: Duration) -> Result<Self, String> {
        let (committer, orders) = Self::new(&job);
        crate::threads::start_within(patience, "committer", move || job.work(&orders))
            .map_err(|(why, _)| format!("cannot start a thread: {why}"))?;
        Ok(committer)
    }

    /// Starts one for the end alone. If no thread is to be had it works here.
    pub fn start_to_end(job: CommitJob, clean: bool) -> Self {
        let (committer, orders) = Self::new(&job);
        committer.end(clean);
        crate::threads::beside("committer", move || job.work(&orders));
        committer
    }

    fn new(job: &CommitJob) -> (Self, Orders) {
        // One message stands for any number, as a commit may take long.
        let (wake, waker) = sync_channel(1);
        let (tell, ended) = channel();
        let end = Arc::new(OnceLock::new());
        let orders = Orders { waker, end: Arc::clone(&end), ended: tell };
        let (last, new_journal) = (Arc::clone(&job.last), Arc::clone(&job.new_journal));
        let (failing, steps) = (Arc::clone(&job.failing), job.steps.clone());
        (Self { wake, end, ended, last, heard: 0, failing, new_journal, steps }, orders)
    }

    /// Whether something was committed since this was asked last.
    pub fn has_committed(&mut self) -> bool {
        let last = self.last.load(Relaxed);
        std::mem::replace(&mut self.heard, last) != last
    }

    /// When something was committed last, if it was by this one.
    pub fn last(&self) -> Option<u64> {
        Some(self.last.load(Relaxed)).filter(|at| *at != 0)
    }

    /// Why nothing can be committed now.
    pub fn failing(&self) -> Option<Failing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What gives it no answer, for `limit` nanoseconds by `now`.
    pub fn hanging(&self, now: u64, limit: u64) -> Option<Failing> {
        self.steps.hanging(now, limit)
    }

    /// When to ask for that next.
    pub fn next_look(&self, now: u64, limit: u64) -> Option<u64> {
        self.steps.next_look(now, limit)
    }

    /// A journal that had to be made again since the last call.
    pub fn new_journal(&self) -> Option<OwnedFd> {
        self.new_journal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// There may be something to be committed.
    pub fn wake(&self) {
        let _ = self.wake.try_send(());
    }

    /// The daemon has come to its end, clean or not: commits what is to be committed, and ends
    /// ([`Committer::ended`]).
    pub fn end(&self, clean: bool) {
        let _ = self.end.set(clean);
        self.wake();
    }

    /// How it has ended, if it has. What cannot be committed stays in the journal or is lost, which
    /// the error says.
    pub fn ended(&self) -> Option<Result<(), String>> {
        match self.ended.try_recv() {
            Ok(done) => Some(done),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err("what commits has ended without a word".to_owned()))
            }
        }
    }
}

impl CommitJob {
    fn work(self, orders: &Orders) {
        let mut told = 0;
        let mut wait = Duration::ZERO;
        let mut failed: Option<Instant> = None;
        loop {
            if let Err(RecvTimeoutError::Disconnected) = orders.waker.recv_timeout(wait) {
                return;
            }
            if let Some(clean) = orders.end.get() {
                let event = belay_sys::dup_cloexec(self.event.as_fd());
                let _ = orders.ended.send(self.end(*clean));
                if let Ok(event) = event {
                    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
                }
                return;
            }
            // What fails is tried again by time: that it failed wakes the daemon, and that in turn
            // the committer.
            wait = failed.map_or(Duration::ZERO, |at| AGAIN.saturating_sub(at.elapsed()));
            if !wait.is_zero() {
                continue;
            }
            let done = self.commit();
            self.note(done.as_ref().err());
            wait = match done {
                Ok(_) => {
                    failed = None;
                    Duration::from_secs(3600)
                }
                Err(why) => {
                    failed = Some(Instant::now());
                    if clock::now().saturating_sub(told) > TOLD || told == 0 {
                        told = clock::now();
                        tracing::error!("{why}");
                    }
                    AGAIN
                }
            };
        }
    }

    fn is_corrupt(&self) -> bool {
        self.overlay().sealed().is_err()
    }

    /// Tells the supervisor whether commits fail.
    fn note(&self, error: Option<&String>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.is_none() && error.is_none() {
            return;
        }
        *failing = error.map(|why| Failing {
            since: failing.as_ref().map_or_else(clock::now, |before| before.since),
            tries: failing.as_ref().map_or(1, |before| before.tries.saturating_add(1)),
            why: why.clone(),
            corrupt: self.is_corrupt(),
            hangs: false,
        });
        drop(failing);
        self.tell();
    }

    fn tell(&self) {
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Without its name, or without its lock, the journal is of no use.
    fn keep_in_place(&self, journal: &mut HostFile, image: &HostFile) -> Result<(), String> {
        if journal.keep_in_place(image).map_err(|why| why.to_string())? {
            tracing::warn!("{} was removed by somebody; it is there again", journal.name());
            let new = journal.file().try_clone().map_err(|why| why.to_string())?;
            *self.new_journal.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        }
        Ok(())
    }

    fn overlay(&self) -> Overlay<'_, Arc<Mapping>> {
        Overlay::new(&self.memory, self.layout.epochs, Capacity::MOUNT)
    }

    /// Whether a daemon has opened the image for writing. One that has not, as it is to read it
    /// only, must not have it written by belay: what is sealed is what the daemon says.
    fn is_the_daemons(&self) -> Result<bool, String> {
        if self.opened.load(Relaxed) {
            return Ok(true); // some daemon has
        }
        // It may have left anything else.
        let found = match self.scouts.image(self.image_mail.as_fd()) {
            Sent::Back(found) => found == Some(self.image),
            Sent::Away => {
                return Err("what the daemon has left as its image does not answer".into());
            }
            Sent::Not(error) => {
                return Err(format!("nobody to look at the daemon's image: {error}"));
            }
        };
        self.opened.store(found, Relaxed);
        Ok(found)
    }

    /// Commits the epoch that is sealed, if there is one.
    fn commit(&self) -> Result<bool, String> {
        let overlay = self.overlay();
        let Some(sealed) = overlay.sealed().map_err(|why| why.to_string())? else {
            return Ok(false);
        };
        if !sealed.is_empty() {
            self.steps.begin(On::Image);
            self.tell(); // from now on somebody looks whether it comes back
            let done = self.write(&sealed);
            self.steps.end();
            done?;
        } else {
            overlay.set_committed(sealed.epoch).map_err(|why| why.to_string())?;
        }
        self.last.store(clock::now(), Relaxed);
        self.tell();
        Ok(true)
    }

    fn write(&self, sealed: &Sealed) -> Result<(), String> {
        if !self.is_the_daemons()? {
            return Err("the image is not written to: no daemon of this mount has opened it for writing, though the \
                        recorder holds writes to it"
                .to_owned());
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Files { image, journal, .. } = &mut *files;
        self.steps.begin(On::Journal);
        self.keep_in_place(journal, image)?;
        self.steps.begin(On::Image);
        journal::commit(journal, image, &*self.memory, sealed, &mut |progress| {
            self.steps.begin(match progress.stage {
                Stage::Journal | Stage::Check => On::Journal,
                Stage::Image => On::Image,
            });
        })
        .map_err(|why| why.to_string())?;
        self.overlay().set_committed(sealed.epoch).map_err(|why| why.to_string())?;
        self.steps.begin(On::Journal);
        journal::mark_empty(journal).map_err(|why| why.to_string())
    }
}

impl CommitJob {
    /// The daemon has come to its end: what it wrote last is committed if that was a clean one, and
    /// else dropped. The journal is removed.
    ///
    /// # Errors
    /// If it cannot be committed; the message says what becomes of it.
    fn end(self, clean: bool) -> Result<(), String> {
        self.commit_in_the_end()?;
        if clean && self.overlay().seal().map_err(|why| why.to_string())?.is_some() {
            self.commit_in_the_end()?;
        }
        let files = self.files.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.steps.begin(On::Journal);
        let removed = files.remove_journal().map_err(|why| why.to_string());
        self.steps.end();
        removed
    }

    /// Commits what is sealed. What keeps it from that may pass.
    fn commit_in_the_end(&self) -> Result<(), String> {
        let mut tries = 1;
        loop {
            match self.commit() {
                Ok(_) => return Ok(()),
                Err(why) if tries >= LAST_TRIES || self.is_corrupt() => return Err(why),
                Err(why) if tries == 1 => tracing::warn!("{why}; trying again for a while"),
                Err(_) => {}
            }
            tries += 1;
            std::thread::sleep(AGAIN);
        }
    }
}
