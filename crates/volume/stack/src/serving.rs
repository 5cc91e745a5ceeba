//! How several threads serve one device.
//!
//! One of them at a time has the turn: it reads messages, and handles what needs nothing of another
//! process, which costs no thread more than a lone one. Before it waits for somebody it gives the
//! turn away, and the next one reads. So a message that lacks something of the stores, or room,
//! holds up nobody else.
//!
//! A request that takes one checkpoint after another is done by a thread for such ([`long`]).
//!
//! A FORGET is handled by who has the turn, whatever it waits for: no message that came later may
//! be handled before, as it could take a file up again, or the number of one that is gone.
//!
//! What direct I/O has written is answered when it is durable, and undone if it cannot be made
//! that. Until then its file is held, and a message that needs it waits. If the process dies
//! meanwhile, its next life does the same, before it tells belay whether that has happened.

mod long;
mod lost;
mod syncs;

use crate::memory::Memory;
use crate::place::{Place, Role};
use crate::pulse::Pulse;
use anyhow::{Context, Result};
use belay_cache::answers::Answers;
use belay_channel::{CacheAnswer, CacheAsk, Connection, RemoteStore};
use belay_posix::Time;
use belay_posix::dispatch::{Module, Outcome};
use belay_posix::fetch::Fetched;
use belay_sys::Mapping;
use belay_wire::errno::{EAGAIN, EINTR, EIO, ENODATA, ENODEV, ENOENT};
use belay_wire::{Opcode, Request, Unique, build, record};
use long::{Handled, Interrupted, Long};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use syncs::Synced;

/// The largest message: a write, and what is before its data.
const LARGEST: usize = (1 << 20) + 4096;

/// Threads at the most. If all of them wait for somebody, so does who comes next.
const MOST_THREADS: usize = 32;

/// So often is something fetched for a message before others wait for it: what was fetched becomes
/// old if others change it, and a listing lacks something of each file.
const PATIENCE: u32 = 32;

/// When an earlier life's work is taken up: those who have waited for this one come first, and ask
/// the same process.
const LATER: Duration = Duration::from_millis(10);

/// A module that is asked by several threads.
pub type Shared = Module<Arc<Mapping>, Fetched<RemoteStore>>;

/// What all threads share.
struct Serving {
    device: File,
    memory: Memory,
    pulse: Pulse,
    store: PathBuf,
    cache: PathBuf,
    /// Held by who reads the device. False when nobody is to read it any more.
    turn: Mutex<bool>,
    state: Mutex<State>,
    /// Something is settled that direct I/O has written.
    settled: Condvar,
    /// Threads, and those of them that wait for the turn.
    threads: AtomicUsize,
    idle: AtomicUsize,
    syncs: Sender<Synced>,
    long: Sender<Long>,
    interrupted: Mutex<Interrupted>,
    over: Sender<Result<()>>,
}

struct State {
    module: Shared,
    answers: Answers,
}

/// Serves until it is unmounted. If it is not the first life of the module that does in this mount,
/// it removes what an earlier one was told to forget and did not.
///
/// # Errors
/// If the device cannot be read or written to.
pub fn serve(
    place: &Place,
    pulse: Pulse,
    memory: Memory,
    module: Shared,
    device: File,
    is_first: bool,
) -> Result<()> {
    let (syncs, later) = channel();
    let (long, come) = channel();
    let (over, ends) = channel();
    // What an earlier life has published, and nobody was told of.
    for direct in module.unsettled() {
        let _ = syncs.send(direct.into());
    }
    let serving = Arc::new(Serving {
        device,
        memory,
        pulse,
        store: place.socket(Role::Store),
        cache: place.socket(Role::Cache),
        turn: Mutex::new(true),
        state: Mutex::new(State { module, answers: Answers::default() }),
        settled: Condvar::new(),
        threads: AtomicUsize::new(0),
        idle: AtomicUsize::new(0),
        syncs,
        long,
        interrupted: Mutex::default(),
        over,
    });
    // First, as somebody may be waiting.
    serving.add_thread().context("cannot start a thread")?;
    let syncing = Arc::clone(&serving);
    let spawned =
        thread::Builder::new().name("sync".into()).spawn(move || syncing.sync_all(&later));
    spawned.context("cannot start a thread")?;
    let doing = Arc::clone(&serving);
    let spawned =
        thread::Builder::new().name("long".into()).spawn(move || long::serve(&doing, &come));
    spawned.context("cannot start a thread")?;
    if !is_first {
        let serving = Arc::clone(&serving);
        let spawned = thread::Builder::new().name("forget".into()).spawn(move || {
            thread::sleep(LATER);
            Worker::new(&serving).forget_lost();
        });
        spawned.context("cannot start a thread")?;
    }
    // Who waits for another process then has nobody left who asks.
    ends.recv().context("the threads have ended")?
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that serves, and what it has to ask others with.
struct Worker<'a> {
    serving: &'a Arc<Serving>,
    turn: Option<MutexGuard<'a, bool>>,
    store: Option<RemoteStore>,
    cache: Connection<CacheAsk, CacheAnswer>,
}

impl Serving {
    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let serving = Arc::clone(self);
        self.threads.fetch_add(1, SeqCst);
        let spawned = thread::Builder::new().name("serve".into()).spawn(move || {
            let served = Worker::new(&serving).serve();
            // The first to end tells; nobody hears the others.
            let _ = serving.over.send(served);
        });
        if spawned.is_err() {
            self.threads.fetch_sub(1, SeqCst);
        }
        spawned.map(|_| ())
    }

    /// Waits until something is settled that direct I/O has written.
    fn await_settled<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.settled.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn reply(&self, reply: &[u8]) -> Result<()> {
        if reply.is_empty() {
            return Ok(());
        }
        loop {
            return match (&self.device).write(reply) {
                Ok(_) => Ok(()),
                // Who asked has gone, or the mount has: the next read says so.
                Err(why) if matches!(why.raw_os_error(), Some(ENOENT | ENODEV)) => Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => Err(why).context("cannot write to the device"),
            };
        }
    }
}

impl<'a> Worker<'a> {
    fn new(serving: &'a Arc<Serving>) -> Self {
        let cache = Connection::new(&serving.cache, Box::new(serving.pulse.clone()));
        Self { serving, turn: None, store: None, cache }
    }

    fn serve(mut self) -> Result<()> {
        let mut buffer = vec![0; LARGEST];
        loop {
            if self.turn.is_none() {
                self.serving.idle.fetch_add(1, SeqCst);
                let turn = lock(&self.serving.turn);
                self.serving.idle.fetch_sub(1, SeqCst);
                self.turn = Some(turn);
            }
            if self.turn.as_deref() == Some(&false) {
                return Ok(());
            }
            let length = match (&self.serving.device).read(&mut buffer) {
                Ok(length) => length,
                Err(why) => match why.raw_os_error() {
                    Some(ENOENT | EINTR | EAGAIN) => continue,
                    code => {
                        if let Some(turn) = &mut self.turn {
                            **turn = false;
                        }
                        return match code {
                            // It was unmounted.
                            Some(ENODEV) => Ok(()),
                            _ => Err(why).context("cannot read the device"),
                        };
                    }
                },
            };
            let message = buffer.get(..length).unwrap_or_default();
            if let Some(reply) = self.answer(message) {
                self.serving.reply(&reply)?;
            }
        }
    }

    /// Has another thread read the device while this one waits.
    fn give_turn_away(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let (idle, threads) = (&self.serving.idle, &self.serving.threads);
        if idle.load(SeqCst) == 0 && threads.load(SeqCst) < MOST_THREADS {
            // If there is none to be had, who comes next waits for this one.
            let _ = self.serving.add_thread();
        }
        drop(turn);
    }

    /// What a message is answered now, if anything.
    fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let request = Request::parse(message).ok()?;
        let unique = request.header.unique;
        if let Some(asked) = asked_for_record(&request) {
            let serving = self.serving;
            let mut state = lock(&serving.state);
            while state.module.is_unsettled(asked) {
                self.give_turn_away();
                state = serving.await_settled(state);
            }
            return Some(match state.answers.to(&serving.memory, asked) {
                Some(answer) => build::reply(unique, answer),
                None => build::reply_error(unique, ENODATA),
            });
        }
        let outcome = match request.opcode() {
            Opcode::FORGET | Opcode::BATCH_FORGET => self.handle_alone(message),
            Opcode::INTERRUPT => {
                lock(&self.serving.interrupted).note(&request);
                None
            }
            _ => match self.handle(message, unique, long::PARTS) {
                Handled::Done(outcome) => outcome,
                Handled::Long => {
                    let sent = self.serving.long.send(Long { message: message.to_vec(), unique });
                    return sent.err().map(|_| failed(unique));
                }
            },
        };
        self.reply_of(unique, outcome?)
    }

    /// What a request is answered now, by what came of it.
    fn reply_of(&self, unique: u64, outcome: Outcome) -> Option<Vec<u8>> {
        match outcome {
            Outcome::Reply(reply) => Some(reply),
            Outcome::Fault(reply, why) => {
                tracing::error!("I/O error: {why}");
                Some(reply)
            }
            Outcome::Nothing => None,
            // Why, the cache has said.
            Outcome::Full => Some(failed(unique)),
            // It was waited for.
            Outcome::Held(_) => Some(failed(unique)),
            Outcome::Sync(objects, reply) => self.sync(Synced::new(objects, unique, reply)),
            Outcome::Direct(direct) => self.sync(direct.into()),
        }
    }

    /// Has something synced, which is answered then.
    fn sync(&self, synced: Synced) -> Option<Vec<u8>> {
        let unique = synced.unique;
        self.serving.syncs.send(synced).err().map(|_| failed(unique))
    }

    /// Handles a message; others are handled while it waits for something. Of what takes more than
    /// so many checkpoints it does so many parts.
    fn handle(&mut self, message: &[u8], unique: u64, most_parts: u32) -> Handled {
        let mut fetched = Fetched::default();
        let (mut rounds, mut parts) = (0, 0);
        while rounds < PATIENCE {
            let serving = self.serving;
            let mut state = lock(&serving.state);
            let before = state.module.progress(unique);
            let handled = state.module.handle_with(&mut fetched, message, Time::now());
            if matches!(handled, Ok(Outcome::Held(_))) {
                self.give_turn_away();
                drop(self.serving.await_settled(state));
                continue;
            }
            let reached = state.module.progress(unique);
            drop(state);
            rounds += 1;
            match handled {
                Ok(Outcome::Full) => {
                    self.give_turn_away();
                    if !self.make_room() {
                        return Handled::Done(Some(Outcome::Full));
                    }
                    // What gets on may take as long as it takes.
                    if reached != before {
                        (rounds, parts) = (0, parts + 1);
                        if parts == most_parts {
                            return Handled::Long;
                        }
                    }
                }
                Ok(outcome) => return Handled::Done(Some(outcome)),
                Err(lack) => {
                    self.give_turn_away();
                    let mut store = self.store();
                    fetched.fetch(&mut store, lack);
                    self.store = Some(store);
                }
            }
        }
        Handled::Done(self.handle_alone(message))
    }

    /// Handles a message; nothing else is handled before it is done.
    fn handle_alone(&mut self, message: &[u8]) -> Option<Outcome> {
        let state = lock(&self.serving.state);
        self.handle_in(state, message)
    }

    fn handle_in(&mut self, mut state: MutexGuard<'a, State>, message: &[u8]) -> Option<Outcome> {
        let mut below = Fetched::waiting_for(self.store());
        let outcome = loop {
            match state.module.handle_with(&mut below, message, Time::now()) {
                Ok(Outcome::Full) if self.make_room() => {
                    // What would undo direct I/O takes room until that is durable, which another
                    // thread has to be told.
                    if state.module.has_unsettled() {
                        state = self.serving.await_settled(state);
                    }
                }
                Ok(Outcome::Held(_)) => state = self.serving.await_settled(state),
                Ok(outcome) => break Some(outcome),
                // It waits, and lacks nothing.
                Err(_) => break None,
            }
        };
        self.store = below.into_below();
        outcome
    }

    /// The way to the stores, which is opened when something is asked.
    fn store(&mut self) -> RemoteStore {
        let serving = self.serving;
        let new = || RemoteStore::reader(&serving.store, Box::new(serving.pulse.clone()));
        self.store.take().unwrap_or_else(new)
    }

    /// Has a checkpoint taken, which makes room.
    fn make_room(&mut self) -> bool {
        self.cache.ask_until_answered(&CacheAsk::Checkpoint) == CacheAnswer::Done
    }
}

fn failed(unique: u64) -> Vec<u8> {
    build::reply_error(unique, EIO)
}

/// Which request belay asks about.
fn asked_for_record(request: &Request<'_>) -> Option<u64> {
    let is_ours = Unique::new(request.header.unique).is_own();
    if !is_ours || request.opcode() != Opcode::GETXATTR {
        return None;
    }
    record::asked_by(request.names().first?)
}
