//! The layers below, in another process.

use crate::client::{Connection, Lost, Waits};
use crate::frame;
use crate::message::{StoreAnswer, StoreAsk};
use crate::transport::Transport;
use belay_object::{
    Attributes, Class, Credit, Lower, ObjectId, Operation, PAGE, Room, Transaction,
};
use std::path::Path;
use thiserror::Error;

/// Why the layers below cannot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// They have died. A next life of theirs is at the last checkpoint.
    #[error("the process with the stores has died")]
    Lost,
    /// Life after life of theirs has died while it was asked for the same.
    #[error("the process with the stores dies again and again while it is asked for this")]
    Deadly,
    /// They say why.
    #[error("{0}")]
    Refused(String),
    /// What was asked for is damaged, and how.
    #[error("{0}")]
    Damaged(String),
    /// The disk could not read what it takes, and may be able to later.
    #[error("{0}")]
    Failing(String),
    /// What they say is no answer to what they were asked.
    #[error("the process with the stores gave an answer of another kind")]
    Nonsense,
}

impl From<Lost> for Error {
    fn from(_: Lost) -> Self {
        Self::Lost
    }
}

/// The process with the stores, as another one asks it.
#[derive(Debug)]
pub struct RemoteStore<T = Connection<StoreAsk, StoreAnswer>> {
    transport: T,
    writes: bool,
}

/// So many lives may die of one question of a reader. The cache, which may lose as many answers to
/// such a one as the reader does, has twice the patience.
const MOST_DEATHS: u32 = 8;

/// Bytes that all intents have at most, each with something besides: no store has that much room
/// for them.
const MOST_INTENTS: usize = 64 << 20;
/// Room for what is beside the bytes of a message.
const BESIDE: usize = 64;

impl RemoteStore {
    /// For a process that reads ([`RemoteStore::reader_over`]), which listens at that path.
    pub fn reader(path: &Path, waits: Box<dyn Waits>) -> Self {
        Self::reader_over(Connection::new(path, waits))
    }

    /// For the cache ([`RemoteStore::writer_over`]).
    pub fn writer(path: &Path, waits: Box<dyn Waits>) -> Self {
        Self::writer_over(Connection::new(path, waits))
    }
}

impl<T: Transport> RemoteStore<T> {
    /// For a process that reads. It does not notice when the other one dies, but for the time that
    /// it takes.
    pub fn reader_over(transport: T) -> Self {
        Self { transport, writes: false }
    }

    /// For the cache, of which there is one at a time. It is told of each death ([`Error::Lost`]),
    /// and asks nothing more until it has begun anew ([`RemoteStore::renew`]).
    pub fn writer_over(transport: T) -> Self {
        Self { transport, writes: true }
    }

    /// Whether nothing is known of a death.
    pub fn is_open(&self) -> bool {
        self.transport.is_open()
    }

    /// Waits for the next life of the other process.
    ///
    /// # Errors
    /// [`Error::Lost`] if that has died as well, or is not waited for any more.
    pub fn renew(&mut self) -> Result<(), Error> {
        self.transport.open()?;
        match self.transport.ask(&StoreAsk::Write)? {
            StoreAnswer::Done => Ok(()),
            other => Err(refused(other)),
        }
    }

    fn ask(&mut self, ask: &StoreAsk) -> Result<StoreAnswer, Error> {
        let answer = match self.writes {
            true => self.transport.ask(ask)?,
            false => self.until_answered(ask)?,
        };
        match answer {
            StoreAnswer::Refused(why) => Err(Error::Refused(why)),
            StoreAnswer::Damaged(how) => Err(Error::Damaged(how)),
            StoreAnswer::Failing(why) => Err(Error::Failing(why)),
            answer => Ok(answer),
        }
    }

    /// Asks until a life of it has answered, or none is waited for any more: only what can be done
    /// twice. What life after life dies of fails alone. A life counts only if it was there to be
    /// asked.
    fn until_answered(&mut self, ask: &StoreAsk) -> Result<StoreAnswer, Error> {
        let mut deaths = 0;
        while deaths < MOST_DEATHS {
            self.transport.open()?;
            if !self.transport.stand_back(deaths) {
                continue;
            }
            match self.transport.ask(ask) {
                Ok(answer) => return Ok(answer),
                Err(Lost) if self.transport.gives_up() => return Err(Error::Lost),
                Err(Lost) => deaths += 1,
            }
        }
        Err(Error::Deadly)
    }

    fn number(&mut self, ask: &StoreAsk) -> Result<u64, Error> {
        match self.ask(ask)? {
            StoreAnswer::Number(number) => Ok(number),
            other => Err(refused(other)),
        }
    }
}

fn refused(answer: StoreAnswer) -> Error {
    match answer {
        StoreAnswer::Refused(why) => Error::Refused(why),
        _ => Error::Nonsense,
    }
}

impl<T: Transport> Lower for RemoteStore<T> {
    type Error = Error;

    fn epoch(&mut self) -> Result<u64, Error> {
        self.number(&StoreAsk::Epoch)
    }

    fn is_damaged(why: &Error) -> bool {
        matches!(why, Error::Damaged(_))
    }

    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Error> {
        match self.ask(&StoreAsk::Attributes(object.0))? {
            StoreAnswer::Attributes(found) => {
                Ok(found.map(|(size, is_metadata, attributes)| Attributes {
                    size,
                    class: if is_metadata { Class::Metadata } else { Class::Data },
                    attributes,
                }))
            }
            other => Err(refused(other)),
        }
    }

    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Error> {
        let mut page = page;
        for part in out.chunks_mut(frame::MOST / 2) {
            let count = part.len().div_ceil(PAGE) as u32;
            match self.ask(&StoreAsk::Read { object: object.0, page, count })? {
                StoreAnswer::Bytes(bytes) if bytes.len() == part.len() => {
                    part.copy_from_slice(&bytes)
                }
                other => return Err(refused(other)),
            }
            page += u64::from(count);
        }
        Ok(())
    }

    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Error> {
        let mut one = Transaction::new();
        one.add(operation);
        match self.ask(&StoreAsk::Apply(one.bytes().to_vec()))? {
            StoreAnswer::Done => Ok(()),
            other => Err(refused(other)),
        }
    }

    fn checkpoint(&mut self, upto: u64) -> Result<u64, Error> {
        self.number(&StoreAsk::Checkpoint(upto))
    }

    fn upto(&mut self) -> Result<u64, Error> {
        self.number(&StoreAsk::Upto)
    }

    fn room(&mut self) -> Result<Room, Error> {
        match self.ask(&StoreAsk::Room)? {
            StoreAnswer::Room([capacity, free, least, stores, blocks, pairs]) => {
                Ok(Room { capacity, free, least, stores, credit: Credit { blocks, pairs } })
            }
            other => Err(refused(other)),
        }
    }

    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        if bytes.len() > frame::MOST - BESIDE {
            // A checkpoint is as good, and not much longer.
            return Ok(false);
        }
        match self.ask(&StoreAsk::AppendIntent(bytes.to_vec()))? {
            StoreAnswer::Appended(done) => Ok(done),
            other => Err(refused(other)),
        }
    }

    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        let count = self.number(&StoreAsk::Intents)?;
        let count = u32::try_from(count).map_err(|_| Error::Nonsense)?;
        let mut one = |number| match self.ask(&StoreAsk::Intent(number))? {
            StoreAnswer::Bytes(bytes) => Ok(bytes),
            other => Err(refused(other)),
        };
        let mut all: Vec<Vec<u8>> = Vec::new();
        let mut left = MOST_INTENTS;
        for number in 0..count {
            let bytes = one(number)?;
            left = left.checked_sub(bytes.len() + BESIDE).ok_or(Error::Nonsense)?;
            all.push(bytes);
        }
        Ok(all)
    }
}
