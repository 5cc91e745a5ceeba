//! The process with the logical layer and its stores.
//!
//! It keeps nothing to itself: what is not in the last checkpoint is in the cache's memory, and comes again. So after any error of a
//! change it opens its stores at their last checkpoint.

mod taking;

use crate::ending::{Left, asked_to_end};
use crate::lasting::Lasting;
use crate::place::{Place, Role};
use crate::pulse::{AwaitedDisk, Pulse};
use crate::report::{Opening, StoreReport, now_us};
use anyhow::{Context, Result};
use belay_channel::{Server, Service, StoreAnswer, StoreAsk};
use belay_disk::{FileDisk, OpenError};
use belay_logical::Logical;
use belay_object::{Attributes, Class, Credit, Lower, ObjectId, Operation, PAGE, Transaction};
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};
use taking::{Next, Taking};

/// How long a disk may be in use by a process that is about to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often that is looked at: nothing tells.
const LOOK: Duration = Duration::from_millis(1);
/// How long it takes until stores that could not be opened are tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Pages that are read at once.
const MOST_PAGES: u32 = 1024;

/// Runs it.
///
/// # Errors
/// Those of the system calls. Stores that cannot be opened are no reason to end: whoever asks is told why.
pub fn run(place: &Place, stores: Vec<PathBuf>) -> Result<i32> {
    let stop = asked_to_end(place, Role::Store)?;
    let _role = place.take(Role::Store)?;
    let pulse = Pulse::of(place, Role::Store)?;
    let mut service = Stores {
        left: Left::new(place, &[Role::Namespace, Role::Cache])?,
        is_alone: false,
        pulse,
        report: StoreReport::of(place),
        place: place.clone(),
        id: place.volume()?,
        paths: stores.into_iter().map(|path| (path, Rc::default())).collect(),
        volume: None,
        opened: Instant::now(),
        failed: None,
        writer: None,
        taking: None,
        answered: Vec::new(),
        intents: None,
    };
    let _ = service.volume();
    let socket = place.socket(Role::Store);
    let mut server =
        Server::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
    server.run(&mut service, &stop)?;
    Ok(0)
}

struct Stores {
    pulse: Pulse,
    left: Left,
    is_alone: bool,
    place: Place,
    report: StoreReport,
    /// Which volume it is.
    id: [u8; 16],
    /// Each with what is remembered of its disk.
    paths: Vec<(PathBuf, Rc<RefCell<Lasting>>)>,
    /// `None` if they are closed.
    volume: Option<Logical<AwaitedDisk>>,
    /// When they were opened last.
    opened: Instant,
    /// When they could not be opened, and why.
    failed: Option<(Instant, String)>,
    /// Who may change something.
    writer: Option<u64>,
    /// The checkpoint that is being taken, or what is being appended to the intent log. Until that is done nothing else is changed.
    taking: Option<Taking>,
    /// Answers to who has asked for it.
    answered: Vec<(u64, Answered)>,
    intents: Option<Vec<Vec<u8>>>,
}

type Answered = std::result::Result<StoreAnswer, String>;

impl Stores {
    /// The stores, which are opened if they are not.
    fn volume(&mut self) -> std::result::Result<&mut Logical<AwaitedDisk>, String> {
        // Nothing was changed, and what could not be read may be readable now.
        let is_unresolved = self.volume.as_ref().is_some_and(Logical::is_unresolved);
        if is_unresolved && self.taking.is_none() && self.opened.elapsed() > PAUSE {
            self.volume = None;
        }
        if self.volume.is_none() {
            if let Some((since, why)) = &self.failed
                && since.elapsed() < PAUSE
            {
                return Err(why.clone());
            }
            let begin = Instant::now();
            match self.open() {
                Ok(volume) => {
                    self.report.add(&self.place, opening(&volume, begin));
                    self.volume = Some(volume);
                    self.opened = Instant::now();
                    if self.failed.take().is_some() {
                        tracing::warn!("the stores are open again");
                    }
                }
                Err(why) => {
                    let why = format!("{why:#}");
                    if self.failed.as_ref().is_none_or(|(_, before)| *before != why) {
                        tracing::error!("cannot open the stores: {why}; trying again");
                    }
                    self.failed = Some((Instant::now(), why));
                }
            }
        }
        match (&mut self.volume, &self.failed) {
            (Some(volume), _) => Ok(volume),
            (None, failed) => Err(failed.as_ref().map_or_else(String::new, |(_, why)| why.clone())),
        }
    }

    fn open(&self) -> Result<Logical<AwaitedDisk>> {
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
        Ok(Logical::open_own(self.id, disks)?)
    }

    /// Changes something. After an error nothing is known of what is in memory, so all of it is dropped.
    fn change(&mut self, change: impl FnOnce(&mut Logical<AwaitedDisk>) -> Answered) -> Answered {
        let changed = change(self.volume()?);
        if matches!(changed, Err(_) | Ok(StoreAnswer::Failing(_))) {
            self.volume = None;
        }
        changed
    }

    fn apply(&mut self, bytes: Vec<u8>) -> Answered {
        let one = Transaction::decode(bytes).map_err(|why| why.to_string())?;
        self.change(|volume| {
            for operation in one.operations() {
                let operation = operation.map_err(|why| why.to_string())?;
                if matches!(operation, Operation::Pages { .. }) {
                    return Err("pages of the cache came down".to_owned());
                }
                match Lower::apply(volume, &operation) {
                    Ok(()) => {}
                    // It was looked up, and nothing was done.
                    Err(how) if is_damage(&how) && is_damaged(volume, operation.object()) => {
                        return Ok(StoreAnswer::Damaged(how.to_string()));
                    }
                    Err(why) => return refused(&why),
                }
            }
            Ok(StoreAnswer::Done)
        })
    }

    fn read(&mut self, object: u64, page: u64, count: u32) -> Answered {
        if count > MOST_PAGES || page.checked_add(u64::from(count)).is_none() {
            return Err("so many pages are not read at once".to_owned());
        }
        let mut out = vec![0; count as usize * PAGE];
        let volume = self.volume()?;
        volume.read(ObjectId(object), page, &mut out).map_err(|why| why.to_string())?;
        Ok(StoreAnswer::Bytes(out))
    }

    fn intents(&mut self) -> std::result::Result<&[Vec<u8>], String> {
        if self.intents.is_none() {
            self.intents = Some(self.volume()?.intents().map_err(|why| why.to_string())?);
        }
        Ok(self.intents.as_deref().unwrap_or_default())
    }

    /// Begins a checkpoint, which is answered when it is there: `None`, or why it cannot be taken.
    fn begin_checkpoint(&mut self, client: u64, upto: u64) -> Option<Answered> {
        let volume = self.volume().map_err(anyhow::Error::msg);
        match volume.and_then(|volume| Taking::begin(volume, client, upto)) {
            Ok(begun) => {
                self.taking = Some(begun);
                None
            }
            Err(why) => Some(self.gives_up(&why)),
        }
    }

    /// Begins to append to the intent log, which is answered when it is durable: `None`, or why it is not.
    fn begin_append(&mut self, client: u64, bytes: &[u8]) -> Option<Answered> {
        let volume = self.volume().map_err(anyhow::Error::msg);
        match volume.and_then(|volume| Taking::append(volume, client, bytes)) {
            Ok(Some(begun)) => {
                self.taking = Some(begun);
                None
            }
            Ok(None) => Some(Ok(StoreAnswer::Appended(false))),
            Err(why) => Some(self.gives_up(&why)),
        }
    }

    /// Goes on with it, and waits for a flush if that is not over: `None` if it goes on later.
    fn go_on(&mut self) -> Option<(u64, Answered)> {
        let taking = self.taking.take()?;
        let client = taking.client;
        let gone_on =
            self.volume().map_err(anyhow::Error::msg).and_then(|volume| taking.go_on(volume));
        match gone_on {
            Ok(Next::Flush(taking)) => {
                self.taking = Some(taking);
                None
            }
            Ok(Next::Done(answer)) => Some((client, Ok(answer))),
            Err(why) => Some((client, self.gives_up(&why))),
        }
    }

    /// After an error nothing is known of what is in memory, so all of it is dropped.
    fn gives_up(&mut self, why: &anyhow::Error) -> Answered {
        self.volume = None;
        why.downcast_ref().map_or_else(|| Err(format!("{why:#}")), refused)
    }

    fn serve(&mut self, client: u64, ask: StoreAsk) -> Answered {
        match ask {
            StoreAsk::Write => {
                self.writer = Some(client);
                self.intents = None;
                Ok(StoreAnswer::Done)
            }
            StoreAsk::Epoch => Ok(StoreAnswer::Number(Logical::epoch(self.volume()?))),
            StoreAsk::Attributes(object) => {
                let told = |found: Attributes| {
                    (found.size, found.class == Class::Metadata, found.attributes)
                };
                match Lower::attributes(self.volume()?, ObjectId(object)) {
                    Ok(found) => Ok(StoreAnswer::Attributes(found.map(told))),
                    Err(how) if is_damage(&how) => Ok(StoreAnswer::Damaged(how.to_string())),
                    Err(why) => Err(why.to_string()),
                }
            }
            StoreAsk::Read { object, page, count } => self.read(object, page, count),
            StoreAsk::Apply(bytes) => self.apply(bytes),
            StoreAsk::Upto => Ok(StoreAnswer::Number(Logical::upto(self.volume()?))),
            StoreAsk::Room => {
                let room = self.volume()?.room().map_err(|why| why.to_string())?;
                let Credit { blocks, pairs } = room.credit;
                Ok(StoreAnswer::Room([room.capacity, room.free, room.available, blocks, pairs]))
            }
            StoreAsk::Intents => Ok(StoreAnswer::Number(self.intents()?.len() as u64)),
            StoreAsk::Intent(number) => {
                let found = self.intents()?.get(number as usize).cloned();
                Ok(StoreAnswer::Bytes(found.ok_or("there is no such intent")?))
            }
            StoreAsk::Checkpoint(_) | StoreAsk::AppendIntent(_) => {
                Err("this is answered later".to_owned())
            }
        }
    }
}

/// What a change is answered that was not made.
fn refused(why: &belay_logical::Error) -> Answered {
    match why.may_pass() {
        true => Ok(StoreAnswer::Failing(why.to_string())),
        false => Err(why.to_string()),
    }
}

fn is_damaged(volume: &mut Logical<AwaitedDisk>, object: ObjectId) -> bool {
    Lower::attributes(volume, object).is_err_and(|how| is_damage(&how))
}

fn is_damage(how: &belay_logical::Error) -> bool {
    Logical::<AwaitedDisk>::is_damaged(how)
}

fn opening(volume: &Logical<AwaitedDisk>, begin: Instant) -> Opening {
    Opening {
        pid: std::process::id(),
        at_us: now_us(),
        took_us: u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX),
        epoch: Logical::epoch(volume).saturating_sub(1),
        penultimate: volume.penultimate() as u64,
    }
}

impl Service for Stores {
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
        use StoreAsk::{AppendIntent, Apply, Attributes, Checkpoint, Epoch, Read, Room};
        if !matches!(ask, Epoch | Attributes(_) | Read { .. } | Room) {
            // Who has asked for it may be dead, and this somebody who comes in its place.
            while self.taking.is_some() {
                let answered = self.pulse.clone().waiting(|| self.go_on());
                self.answered.extend(answered);
            }
        }
        let changes = matches!(ask, Apply(_) | Checkpoint(_) | AppendIntent(_));
        let answered = match ask {
            _ if changes && self.writer != Some(client) => {
                Err("another process changes this volume now".to_owned())
            }
            Checkpoint(upto) => self.begin_checkpoint(client, upto)?,
            AppendIntent(bytes) => self.begin_append(client, &bytes)?,
            ask => self.serve(client, ask),
        };
        Some(answered.unwrap_or_else(StoreAnswer::Refused))
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        self.taking.as_ref().map(Taking::wakes)
    }

    fn later(&mut self) -> Vec<(u64, StoreAnswer)> {
        if self.taking.as_ref().is_some_and(Taking::is_flushed) {
            let answered = self.go_on();
            self.answered.extend(answered);
        }
        let answered = self.answered.drain(..);
        answered.map(|(client, one)| (client, one.unwrap_or_else(StoreAnswer::Refused))).collect()
    }
}
