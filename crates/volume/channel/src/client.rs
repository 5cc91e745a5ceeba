//! A connection that is made anew when the other end has died.

use crate::frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// The first pause between two tries to connect, and the longest. Nothing tells when somebody binds
/// a socket; a successor is there within milliseconds.
const PAUSES: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(20)];

/// So many deaths in a row are nothing to stand back for: nobody is to wait longer than he must.
const USUAL: u32 = 3;
/// How much longer one stands back after each further death, at most.
const APART: Duration = Duration::from_millis(200);
/// Nobody stands back for longer.
const LONGEST: Duration = Duration::from_secs(1);

/// The other end has died. What was asked last may have been done, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("who was asked has died")]
pub struct Lost;

/// Who is told when somebody else is waited for.
pub trait Waits: std::fmt::Debug + Send {
    /// From now on, or no more.
    fn wait(&self, waits: bool);

    /// Whether nobody is to be waited for any more who is not there.
    fn gives_up(&self) -> bool {
        false
    }
}

/// Nobody is told.
impl Waits for () {
    fn wait(&self, _waits: bool) {}
}

/// A way to ask whoever listens at a path.
#[derive(Debug)]
pub struct Connection<A, R> {
    path: PathBuf,
    stream: Option<UnixStream>,
    waits: Box<dyn Waits>,
    messages: PhantomData<(A, R)>,
}

impl<A: Serialize, R: DeserializeOwned> Connection<A, R> {
    /// One to that path. Nobody need be there yet.
    pub fn new(path: &Path, waits: Box<dyn Waits>) -> Self {
        Self { path: path.to_owned(), stream: None, waits, messages: PhantomData }
    }

    /// Whether somebody has been there, as far as is known.
    pub fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether nobody is waited for any more who is not there.
    pub fn gives_up(&self) -> bool {
        self.waits.gives_up()
    }

    /// Waits until somebody is there.
    ///
    /// # Errors
    /// [`Lost`] if that is given up.
    pub fn open(&mut self) -> Result<(), Lost> {
        if self.stream.is_some() {
            return Ok(());
        }
        self.waits.wait(true);
        let [mut pause, longest] = PAUSES;
        while self.stream.is_none() && !self.waits.gives_up() {
            self.stream = UnixStream::connect(&self.path).ok();
            if self.stream.is_none() {
                thread::sleep(pause);
                pause = (pause * 2).min(longest);
            }
        }
        self.waits.wait(false);
        self.stream.as_ref().map(|_| ()).ok_or(Lost)
    }

    /// So many lives have died while they were asked for something: once it is several, waits for a
    /// time that is another one for each who asks, and longer each time. Whoever is there serves
    /// others meanwhile. False if that one has died, of nothing that was asked here.
    pub fn stand_back(&mut self, deaths: u32) -> bool {
        if deaths == 0 {
            return true;
        }
        let longest = (APART * deaths.saturating_sub(USUAL)).min(LONGEST);
        let chance = RandomState::new().hash_one(deaths) as f64 / u64::MAX as f64;
        self.waits.wait(true);
        thread::sleep(longest.mul_f64(chance));
        self.waits.wait(false);
        // Nobody answers before he is asked: something to be read is the end.
        let ends = |stream: &UnixStream| {
            let mut polled = [PollFd::new(stream, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())) != Ok(0)
        };
        if self.stream.as_ref().is_none_or(ends) {
            self.stream = None;
        }
        self.is_open()
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`Lost`] if nobody is there, or who was asked dies.
    pub fn ask(&mut self, ask: &A) -> Result<R, Lost> {
        let asked = |stream: &mut UnixStream| -> io::Result<R> {
            frame::send(stream, ask)?;
            frame::receive(stream)
        };
        let stream = self.stream.as_mut().ok_or(Lost)?;
        self.waits.wait(true);
        let answer = asked(stream).map_err(|_| Lost);
        self.waits.wait(false);
        if answer.is_err() {
            self.stream = None;
        }
        answer
    }

    /// Asks until somebody has answered: only what can be done twice.
    pub fn ask_until_answered(&mut self, ask: &A) -> R {
        loop {
            if let Ok(answer) = self.open().and_then(|()| self.ask(ask)) {
                return answer;
            }
        }
    }
}
