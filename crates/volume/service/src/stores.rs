//! The logical layer with its stores, as it is asked by other processes.
//!
//! It keeps nothing to itself: what is not in the last checkpoint is in the cache's memory, and
//! comes again. So after any error of a change, and for another one that changes something, it
//! opens its stores at their last checkpoint.

mod taking;

use anyhow::Result;
use belay_channel::{StoreAnswer, StoreAsk};
use belay_disk::Disk;
use belay_logical::Logical;
use belay_object::{
    Attributes, Class, Credit, Lower, ObjectId, Operation, PAGE, Room, Transaction,
};
use std::io;
use std::time::Duration;
use taking::{Next, Taking};

/// How long it takes until stores that could not be opened are tried again.
pub const PAUSE: Duration = Duration::from_secs(1);
/// Pages that are read at once.
const MOST_PAGES: u32 = 1024;

/// What a process gives to its stores.
pub trait Surroundings {
    /// A disk.
    type Disk: Disk;
    /// A flush of some of them.
    type Flush: Flush;

    /// Opens the disks, in any order.
    ///
    /// # Errors
    /// Why one of them cannot be opened.
    fn disks(&mut self) -> Result<Vec<Self::Disk>>;

    /// A number that was never given to anybody ([`Logical::begin_branch`]).
    fn branch(&mut self) -> u64;

    /// Begins to flush these, in the background.
    ///
    /// # Errors
    /// Why that cannot be begun.
    fn flush<'d>(&mut self, disks: impl Iterator<Item = &'d Self::Disk>) -> Result<Self::Flush>
    where
        Self::Disk: 'd;

    /// The time, since some moment before the first question.
    fn now(&self) -> Duration;

    /// The stores were opened, which took so long: it is told.
    fn opened(&mut self, volume: &Logical<Self::Disk>, took: Duration);
}

/// A flush of disks that goes on in the background.
pub trait Flush {
    /// Whether it is over.
    fn is_over(&self) -> bool;

    /// Waits for its end; gives how that of each disk has ended.
    fn end(self) -> Vec<io::Result<()>>;
}

/// The stores, and what is under way with them.
#[derive(Debug)]
pub struct Stores<S: Surroundings> {
    surroundings: S,
    /// Which volume it is.
    id: [u8; 16],
    /// `None` if they are closed.
    volume: Option<Logical<S::Disk>>,
    /// When they were opened last.
    opened: Duration,
    /// When they could not be opened, and why.
    failed: Option<(Duration, String)>,
    /// Who may change something.
    writer: Option<u64>,
    /// Something was changed since the last checkpoint.
    is_ahead: bool,
    /// The checkpoint that is being taken, or what is being appended to the intent log. Until that
    /// is done nothing else is changed.
    taking: Option<Taking<S::Flush>>,
    /// Answers to who has asked for it.
    answered: Vec<(u64, Answered)>,
    intents: Option<Vec<Vec<u8>>>,
}

type Answered = std::result::Result<StoreAnswer, String>;

impl<S: Surroundings> Stores<S> {
    /// Those of this volume, which are opened when they are needed.
    pub fn new(id: [u8; 16], surroundings: S) -> Self {
        Self {
            surroundings,
            id,
            volume: None,
            opened: Duration::ZERO,
            failed: None,
            writer: None,
            is_ahead: false,
            taking: None,
            answered: Vec::new(),
            intents: None,
        }
    }

    /// What they were given.
    pub fn surroundings(&mut self) -> &mut S {
        &mut self.surroundings
    }

    /// Opens them, if they are not. Why they cannot be opened, whoever asks for something is told.
    pub fn open(&mut self) {
        let _ = self.volume();
    }

    /// Answers who is known by this number; `None` if the answer comes later ([`Stores::later`]).
    pub fn answer(&mut self, client: u64, ask: StoreAsk) -> Option<StoreAnswer> {
        use StoreAsk::{AppendIntent, Apply, Attributes, Checkpoint, Epoch, Read, Room};
        if !matches!(ask, Epoch | Attributes(_) | Read { .. } | Room) {
            // Who has asked for it may be dead, and this somebody who comes in its place.
            while self.taking.is_some() {
                let answered = self.go_on();
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

    /// The flush after which there may be an answer that comes later.
    pub fn flush(&self) -> Option<&S::Flush> {
        self.taking.as_ref().map(Taking::flush)
    }

    /// Answers that come later, and to whom. It is asked again and again.
    pub fn later(&mut self) -> Vec<(u64, StoreAnswer)> {
        if self.flush().is_some_and(Flush::is_over) {
            let answered = self.go_on();
            self.answered.extend(answered);
        }
        let answered = self.answered.drain(..);
        answered.map(|(client, one)| (client, one.unwrap_or_else(StoreAnswer::Refused))).collect()
    }

    /// The stores, which are opened if they are not.
    fn volume(&mut self) -> std::result::Result<&mut Logical<S::Disk>, String> {
        // Nothing was changed, and what could not be read may be readable now.
        let is_unresolved = self.volume.as_ref().is_some_and(Logical::is_unresolved);
        if is_unresolved && self.taking.is_none() && self.since(self.opened) > PAUSE {
            self.volume = None;
        }
        if self.volume.is_none() {
            if let Some((since, why)) = &self.failed
                && self.since(*since) < PAUSE
            {
                return Err(why.clone());
            }
            let begin = self.surroundings.now();
            match self.open_anew() {
                Ok(volume) => {
                    self.surroundings.opened(&volume, self.since(begin));
                    self.volume = Some(volume);
                    self.is_ahead = false;
                    self.opened = self.surroundings.now();
                    if self.failed.take().is_some() {
                        tracing::warn!("the stores are open again");
                    }
                }
                Err(why) => {
                    let why = format!("{why:#}");
                    if self.failed.as_ref().is_none_or(|(_, before)| *before != why) {
                        tracing::error!("cannot open the stores: {why}; trying again");
                    }
                    self.failed = Some((self.surroundings.now(), why));
                }
            }
        }
        match (&mut self.volume, &self.failed) {
            (Some(volume), _) => Ok(volume),
            (None, failed) => Err(failed.as_ref().map_or_else(String::new, |(_, why)| why.clone())),
        }
    }

    fn open_anew(&mut self) -> Result<Logical<S::Disk>> {
        let mut volume = Logical::open_own(self.id, self.surroundings.disks()?)?;
        volume.begin_branch(self.surroundings.branch());
        Ok(volume)
    }

    /// How long ago that was.
    fn since(&self, then: Duration) -> Duration {
        self.surroundings.now().saturating_sub(then)
    }

    /// Changes something. After an error nothing is known of what is in memory, so all of it is
    /// dropped.
    fn change(&mut self, change: impl FnOnce(&mut Logical<S::Disk>) -> Answered) -> Answered {
        let changed = change(self.volume()?);
        self.is_ahead = true;
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
        match self.volume()?.read(ObjectId(object), page, &mut out) {
            Ok(()) => Ok(StoreAnswer::Bytes(out)),
            Err(how) if is_damage(&how) => Ok(StoreAnswer::Damaged(how.to_string())),
            Err(why) => Err(why.to_string()),
        }
    }

    fn intents(&mut self) -> std::result::Result<&[Vec<u8>], String> {
        if self.intents.is_none() {
            self.intents = Some(self.volume()?.intents().map_err(|why| why.to_string())?);
        }
        Ok(self.intents.as_deref().unwrap_or_default())
    }

    /// Begins a checkpoint, which is answered when it is there: `None`, or why it cannot be taken.
    fn begin_checkpoint(&mut self, client: u64, upto: u64) -> Option<Answered> {
        match self.with_flush(|volume, flush| Taking::begin(volume, flush, client, upto)) {
            Ok(begun) => {
                self.taking = Some(begun);
                None
            }
            Err(why) => Some(self.gives_up(&why)),
        }
    }

    /// Begins to append to the intent log, which is answered when it is durable: `None`, or why it
    /// is not.
    fn begin_append(&mut self, client: u64, bytes: &[u8]) -> Option<Answered> {
        match self.with_flush(|volume, flush| Taking::append(volume, flush, client, bytes)) {
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
        match self.with_flush(|volume, flush| taking.go_on(volume, flush)) {
            Ok(Next::Flush(taking)) => {
                self.taking = Some(taking);
                None
            }
            Ok(Next::Done(answer)) => {
                self.is_ahead &= !matches!(answer, StoreAnswer::Number(_));
                Some((client, Ok(answer)))
            }
            Err(why) => Some((client, self.gives_up(&why))),
        }
    }

    /// Has the volume do something with what flushes its disks.
    fn with_flush<T>(
        &mut self,
        act: impl FnOnce(&mut Logical<S::Disk>, &mut S) -> Result<T>,
    ) -> Result<T> {
        self.volume().map_err(anyhow::Error::msg)?;
        match &mut self.volume {
            Some(volume) => act(volume, &mut self.surroundings),
            None => Err(anyhow::Error::msg("the stores are closed")),
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
                // What the last one has changed, this one need not know of: it may have lost its
                // memory.
                if self.is_ahead && self.writer != Some(client) {
                    self.volume = None;
                }
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
                let Room { capacity, free, least, stores, credit } = room;
                let Credit { blocks, pairs } = credit;
                Ok(StoreAnswer::Room([capacity, free, least, stores, blocks, pairs]))
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

fn is_damaged<D: Disk>(volume: &mut Logical<D>, object: ObjectId) -> bool {
    Lower::attributes(volume, object).is_err_and(|how| is_damage(&how))
}

fn is_damage(how: &belay_logical::Error) -> bool {
    Logical::<&dyn Disk>::is_damaged(how)
}
