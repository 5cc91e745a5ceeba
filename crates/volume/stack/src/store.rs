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
use belay_disk::{FileDisk, OpenError};
use belay_logical::Logical;
use belay_service::Stores;
use belay_service::stores::Surroundings;
use flushing::Flushing;
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a disk may be in use by a process that is about to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often that is looked at: nothing tells.
const LOOK: Duration = Duration::from_millis(1);

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
}

impl Surroundings for Given {
    type Disk = AwaitedDisk;
    type Flush = Flushing;

    fn disks(&mut self) -> Result<Vec<AwaitedDisk>> {
        let begin = Instant::now();
        let mut disks = Vec::new();
        for (path, lasting) in &self.paths {
            disks.push(loop {
                match FileDisk::open(path) {
                    Err(OpenError::InUse(_)) if begin.elapsed() < PATIENCE => thread::sleep(LOOK),
                    opened => {
                        break AwaitedDisk::new(opened?, self.pulse.clone(), Rc::clone(lasting));
                    }
                }
            });
        }
        Ok(disks)
    }

    fn flush<'d>(&mut self, disks: impl Iterator<Item = &'d AwaitedDisk>) -> Result<Flushing> {
        Flushing::of(disks, self.pulse.clone())
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn opened(&mut self, volume: &Logical<AwaitedDisk>, took: Duration) {
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
