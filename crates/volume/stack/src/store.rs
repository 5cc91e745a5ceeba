//! The process with the logical layer and its stores.
//!
//! What it answers is decided in [`belay_service::stores`]. The process gives it the disks, which
//! it waits for, threads that flush them, and a clock.

mod flushing;

use crate::ending::{Left, asked_to_end};
use crate::lasting::Lasting;
use crate::place::{Place, Role};
use crate::pulse::{AwaitedDisk, Pulse};
use crate::report::{Opening, StoreReport, now_us};
use anyhow::{Context, Result};
use belay_channel::{Server, Service, StoreAnswer, StoreAsk};
use belay_disk::{FileDisk, OpenError, Whereabouts};
use belay_logical::Logical;
use belay_service::Stores;
use belay_service::stores::Surroundings;
use flushing::Flushing;
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long a disk may be in use by a process that is about to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often that is looked at: nothing tells.
const LOOK: Duration = Duration::from_millis(1);
/// How often it is looked whether the images are still at their paths.
const PRESENCE: Duration = Duration::from_secs(2);

/// Runs it.
///
/// # Errors
/// Those of the system calls. Stores that cannot be opened are no reason to end: whoever asks is
/// told why.
pub fn run(place: &Place, stores: Vec<PathBuf>) -> Result<i32> {
    let stop = asked_to_end(place, Role::Store)?;
    let _role = place.take(Role::Store)?;
    let pulse = Pulse::of(place, Role::Store)?;
    let given = Given {
        pulse: pulse.clone(),
        report: StoreReport::of(place),
        place: place.clone(),
        paths: stores.into_iter().map(|path| (path, Rc::default())).collect(),
        begun: Instant::now(),
        opened: Vec::new(),
        found: Vec::new(),
        looked: Instant::now(),
    };
    let mut process = Process {
        left: Left::new(place, &[Role::Namespace, Role::Cache])?,
        is_alone: false,
        pulse,
        stores: Stores::new(place.volume()?, given),
    };
    process.stores.open();
    let socket = place.socket(Role::Store);
    let mut server =
        Server::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
    server.run(&mut process, &stop)?;
    Ok(0)
}

struct Process {
    pulse: Pulse,
    left: Left,
    is_alone: bool,
    stores: Stores<Given>,
}

impl Service for Process {
    type Ask = StoreAsk;
    type Answer = StoreAnswer;

    fn turn(&mut self) {
        self.pulse.beat();
        self.stores.surroundings().look_for_images();
        self.is_alone = self.left.is_alone();
    }

    fn is_over(&self) -> bool {
        self.is_alone
    }

    fn answer(&mut self, client: u64, ask: StoreAsk) -> Option<StoreAnswer> {
        self.stores.answer(client, ask)
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        self.stores.flush().map(Flushing::wakes)
    }

    fn later(&mut self) -> Vec<(u64, StoreAnswer)> {
        self.stores.later()
    }
}

/// What the process gives to its stores.
struct Given {
    pulse: Pulse,
    place: Place,
    report: StoreReport,
    /// Each with what is remembered of its disk.
    paths: Vec<(PathBuf, Rc<RefCell<Lasting>>)>,
    begun: Instant,
    /// The disks of stores that are open, or are away and were. One that has no name any more is
    /// there as long as somebody has it open.
    opened: Vec<Arc<FileDisk>>,
    /// Disks of which it is not known whether they have the stores.
    found: Vec<Weak<FileDisk>>,
    /// When they were looked for last.
    looked: Instant,
}

impl Given {
    /// Looks from time to time whether the images are still at their paths, and tells who may
    /// believe that they are safe there.
    fn look_for_images(&mut self) {
        // What was away when it was to be opened is away, and was told of.
        if self.looked.elapsed() < PRESENCE || self.opened.len() < self.paths.len() {
            return;
        }
        self.looked = Instant::now();
        let found = self.opened.iter().map(|disk| Ok((disk.path(), disk.whereabouts()?)));
        // Where that cannot be seen now, all stays as it was told.
        let Ok(found) = found.collect::<io::Result<Vec<_>>>() else { return };
        let why = found.into_iter().find_map(|(path, is)| missing(path, is));
        if self.report.misses(&self.place, why.as_deref()) {
            match why {
                Some(why) => tracing::error!("{why}"),
                None => tracing::warn!("the images are at their paths again"),
            }
        }
    }
}

/// What is to be said of the image that was at this path.
fn missing(path: &Path, is: Whereabouts) -> Option<String> {
    let path = path.display();
    match is {
        Whereabouts::There => None,
        Whereabouts::Removed => Some(format!(
            "{path} was removed, and what is on the volume is gone as soon as process {} ends: copy what you need from the mount",
            std::process::id()
        )),
        Whereabouts::Moved(to) => Some(format!(
            "{path} was moved to {}: bring it back before the volume is unmounted, or write into the volume's file where it is then",
            to.display()
        )),
    }
}

impl Surroundings for Given {
    type Disk = AwaitedDisk;
    type Flush = Flushing;

    fn disks(&mut self) -> Result<Vec<AwaitedDisk>> {
        let begin = Instant::now();
        // What is at its path is closed first, as it is locked; a disk may be another one by now.
        let is_away = |disk: &Arc<FileDisk>| {
            matches!(disk.whereabouts(), Ok(Whereabouts::Moved(_) | Whereabouts::Removed))
        };
        self.opened.retain(is_away);
        let mut disks = Vec::new();
        for (path, lasting) in &self.paths {
            let away = self.opened.iter().find(|disk| disk.path() == path);
            let disk = match away {
                Some(disk) => Arc::clone(disk),
                None => loop {
                    match FileDisk::open(path) {
                        Err(OpenError::InUse(_)) if begin.elapsed() < PATIENCE => {
                            thread::sleep(LOOK);
                        }
                        opened => break Arc::new(opened?),
                    }
                },
            };
            disks.push(AwaitedDisk::new(disk, self.pulse.clone(), Rc::clone(lasting)));
        }
        self.found = disks.iter().map(|disk| Arc::downgrade(&disk.parts().0)).collect();
        Ok(disks)
    }

    fn branch(&mut self) -> u64 {
        RandomState::new().hash_one(std::process::id())
    }

    fn flush<'d>(&mut self, disks: impl Iterator<Item = &'d AwaitedDisk>) -> Result<Flushing> {
        Flushing::of(disks, self.pulse.clone())
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn opened(&mut self, volume: &Logical<AwaitedDisk>, took: Duration) {
        self.opened = self.found.iter().filter_map(Weak::upgrade).collect();
        let opening = Opening {
            pid: std::process::id(),
            at_us: now_us(),
            took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            epoch: Logical::epoch(volume).saturating_sub(1),
            penultimate: volume.penultimate() as u64,
        };
        self.report.add(&self.place, opening);
    }
}
