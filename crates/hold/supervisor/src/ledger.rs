//! The supervisor's own state, kept where it outlives the supervisor.
//!
//! Invariant: the ledger file holds two slots; a write goes to the older one and ends with its
//! header. Whatever instruction the writer dies at, one slot is whole, and it is the newest
//! finished write or the one before. Behind the slots is a word of another kind (see `heartbeat`).

mod others;
mod tally;
pub(crate) use others::MOST_SECONDS;
pub use others::Mounts;
pub use tally::Tally;

use crate::autopsy::journal::Journal;
use crate::config::VERSION;
use crate::degraded::{ReadOnly, Reasons};
use crate::detection::Detection;
use crate::error::{Error, Result};
use crate::memfile::{read_at, write_at};
use crate::process::Exit;
use crate::programs::Identity;
use crate::stalled::Row;
use crate::stores::Seen;
use belay_effects::remains::Remains;
use rustix::fd::{AsFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hasher};

const SLOT: u64 = 1 << 20;
/// Where the word is by which the supervisor shows that it gets on.
pub const HEART: u64 = 2 * SLOT;
/// How long a ledger is.
pub const BYTES: u64 = HEART + 8;
const HEADER: usize = 24;

/// What the supervisor knows and its successor must know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Book {
    /// [`VERSION`].
    pub version: u32,
    /// The generation that serves, or is being started.
    pub generation: u32,
    /// When belay was started, monotonic nanoseconds.
    pub started_ns: u64,
    /// What is counted for the user.
    pub tally: Tally,
    /// How the starts go.
    pub tries: Tries,
    /// The mount, and others.
    pub mounts: Mounts,
    /// What becomes of what was acknowledged.
    pub content: Content,
    /// Which program serves, and which does not.
    pub program: Program,
    /// It was said that the mount serves.
    pub has_served: bool,
    /// The process that came to serve last.
    pub served_pid: Option<u32>,
    /// The process started for this generation.
    pub spawned: Option<u32>,
    /// The one of its descendants that serves, if it went into the background.
    pub background: Option<Known>,
    /// The life of the current generation.
    pub life: Life,
    /// The crash whose recovery is under way.
    pub crash: Option<Crash>,
    /// How the last daemon ended.
    pub last_exit: Option<Exit>,
    /// The wish to stop, if there is one.
    pub stop: Option<Stop>,
    /// Whether the kernel did what RESEND asks for.
    pub resend: Option<bool>,
    /// Why the mount is degraded.
    pub degraded: Reasons,
    /// Lives in a row that have answered nobody.
    pub stalled: Row,
}

/// How the starts of the daemon go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tries {
    /// Consecutive lives without a served request.
    pub unproductive: u32,
    /// Consecutive lives in which nobody asked for anything, or nobody got an answer but EIO.
    pub idle: u32,
    /// Since when daemons have been killed by others before they served anybody, monotonic
    /// nanoseconds.
    pub outside_since: Option<u64>,
    /// What keeps the daemon from coming to serve, while or soon after that is so.
    pub waiting: Option<Waiting>,
    /// Daemons that were started when the mount had gone, to do again what one had acknowledged.
    pub last: u32,
    /// Belay gave up on this mount.
    pub gave_up: bool,
}

/// What becomes of what daemons have acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// How often doing the op-log again has failed.
    pub forward: Forward,
    /// What the daemon may store to was like at its start, under the policy `buffer`.
    pub stores: Vec<Seen>,
    /// The mount shows the last checkpoint, and nothing can be changed.
    pub read_only: Option<ReadOnly>,
    /// It was said that the daemon keeps writes to itself.
    pub keeps_writes: bool,
}

/// Consecutive deaths of daemons that were given what had been done before, under the policy
/// `epoch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// Of the daemon's own making.
    pub own: u32,
    /// All, but for those that were asked for.
    pub all: u32,
}

/// The daemon's program: what has served, and what is at its path instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What was at the path when the current generation was started, unless that runs the held one.
    pub started: Option<Identity>,
    /// The one that has served last, which belay holds.
    pub served: Option<Identity>,
    /// The current generation runs the held one, as what is at the path does not serve.
    pub held: bool,
    /// What is at the path and did not come to serve, and why.
    pub rejected: Option<(Identity, String)>,
}

/// Starts that fail, and are made again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// When the first of them failed, monotonic nanoseconds.
    pub since_ns: u64,
    /// How many have failed since.
    pub tries: u32,
    /// Why the last one did.
    pub why: String,
    /// What the daemon said itself, its last lines.
    pub words: Vec<String>,
    /// What may help.
    pub hint: Option<String>,
    /// When the next one is due, monotonic nanoseconds.
    pub next_ns: u64,
    /// When a daemon came to serve after all, monotonic nanoseconds; 0 if none has. If that one
    /// soon has the same trouble, the same wait goes on.
    pub over_ns: u64,
}

impl Waiting {
    /// Whether it is under way: the last start has failed, and the next is due some time.
    pub fn lasts(&self) -> bool {
        self.over_ns == 0 && self.next_ns != 0
    }
}

/// A process, named for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its process id.
    pub pid: u32,
    /// When it was started, see [`crate::process::started`].
    pub started: u64,
}

/// When a generation began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// When its process was started, monotonic nanoseconds.
    pub started_ns: u64,
    /// The same as [`crate::process::started`] has it; 0 if that is not known.
    #[serde(default)]
    pub process_started: u64,
    /// The counter of requests at that time.
    pub requests: u64,
    /// That of requests which failed because daemons died of them.
    pub poisoned: u64,
    /// Those of nodes, handles and locks that successors were given back.
    #[serde(default)]
    pub restored: (u64, u64, u64),
}

/// A wish to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// When it came, monotonic nanoseconds.
    pub since_ns: u64,
    /// Until when the daemon may take its time, monotonic nanoseconds.
    pub until_ns: u64,
    /// Whether the daemon has been told.
    pub told: bool,
    /// No patience.
    pub at_once: bool,
    /// The wish was repeated: no daemon gets more time than that any more.
    pub repeated: bool,
    /// When the daemon was killed for it, monotonic nanoseconds.
    #[serde(default)]
    pub killed_ns: Option<u64>,
}

/// A crash, from the death of a generation to the end of its recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crash {
    /// The generation that died.
    pub generation: u32,
    /// Its process.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
    /// How that was noticed.
    pub detection: Detection,
    /// When, in monotonic nanoseconds.
    pub died_ns: u64,
    /// When, in milliseconds since 1970.
    pub died_wall_ms: u64,
    /// When the successor's process was there, monotonic nanoseconds; 0 before.
    pub spawned_ns: u64,
    /// How many decisions had been made before.
    pub decision_top: u64,
    /// The recorder's counters before recovery, in their order.
    pub counters: Vec<u64>,
    /// The requests in flight.
    pub in_flight: Vec<String>,
    /// What they had done outside of the daemon.
    #[serde(default)]
    pub journals: Vec<Journal>,
    /// What the daemon left behind. Not written down: it is in the recorder, for a while.
    #[serde(skip)]
    pub remains: Option<Box<Remains>>,
    /// The daemon's last lines.
    pub stderr: Vec<String>,
    /// Remaining processes of the dead generation that had to be killed.
    pub killed: Vec<u32>,
    /// With this crash the mount became read-only.
    #[serde(default)]
    pub read_only: Option<ReadOnly>,
}

/// The file that the [`Book`] is kept in.
#[derive(Debug)]
pub struct Ledger {
    file: OwnedFd,
    sequence: u64,
}

impl Ledger {
    /// Opens the ledger in `file` and reads the last book that was written whole, if any.
    pub fn open(file: OwnedFd) -> (Self, Option<Book>) {
        let slots = [0, 1].map(|slot| read_slot(&file, slot));
        let newest = slots.into_iter().flatten().max_by_key(|(sequence, _)| *sequence);
        let sequence = newest.as_ref().map_or(0, |(sequence, _)| *sequence);
        (Self { file, sequence }, newest.map(|(_, book)| book))
    }

    /// Writes `book` so that it replaces the last one as a whole.
    ///
    /// # Errors
    /// Those of pwrite(2); a book too large for a slot. The last one then stays.
    pub fn write(&mut self, book: &Book) -> Result<()> {
        let wrap = |error| Error::system("write", "the ledger", error, "");
        let body = serde_json::to_vec(book)
            .map_err(|error| Error::refused("ledger", error.to_string(), ""))?;
        if body.len() as u64 > SLOT - HEADER as u64 {
            return Err(Error::refused("ledger", "it has grown too large", "report this as a bug"));
        }
        let sequence = self.sequence + 1;
        let at = (sequence % 2) * SLOT;
        write_at(self.file.as_fd(), &body, at + HEADER as u64).map_err(wrap)?;
        let mut header = Vec::with_capacity(HEADER);
        header.extend(sequence.to_ne_bytes());
        header.extend((body.len() as u64).to_ne_bytes());
        header.extend(checksum(sequence, &body).to_ne_bytes());
        write_at(self.file.as_fd(), &header, at).map_err(wrap)?;
        self.sequence = sequence;
        Ok(())
    }
}

fn read_slot(file: &OwnedFd, slot: u64) -> Option<(u64, Book)> {
    let header = read_at(file.as_fd(), HEADER, slot * SLOT).ok()?;
    let word = |i: usize| Some(u64::from_ne_bytes(header.get(i..i + 8)?.try_into().ok()?));
    let (sequence, length, sum) = (word(0)?, word(8)?, word(16)?);
    if sequence == 0 || length > SLOT - HEADER as u64 {
        return None;
    }
    let body = read_at(file.as_fd(), usize::try_from(length).ok()?, slot * SLOT + HEADER as u64);
    let body = body.ok()?;
    if body.len() as u64 != length || checksum(sequence, &body) != sum {
        return None;
    }
    let book: Book = serde_json::from_slice(&body).ok()?;
    (book.version == VERSION).then_some((sequence, book))
}

// The ledger lives as long as the processes of one program file, so the hash need not be stable
// across versions of the standard library.
fn checksum(sequence: u64, body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(sequence);
    hasher.write(body);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfile::create;

    fn book(generation: u32) -> Book {
        Book { version: VERSION, generation, ..Book::default() }
    }

    #[test]
    fn the_last_book_is_found_again() {
        let file = create("belay-test").expect("memfd");
        let (mut ledger, found) = Ledger::open(file.try_clone().expect("dup"));
        assert_eq!(found, None);
        for generation in 1..6 {
            ledger.write(&book(generation)).expect("write");
            let (_, found) = Ledger::open(file.try_clone().expect("dup"));
            assert_eq!(found, Some(book(generation)));
        }
    }

    #[test]
    fn a_torn_write_leaves_the_book_before() {
        let file = create("belay-test").expect("memfd");
        let (mut ledger, _) = Ledger::open(file.try_clone().expect("dup"));
        ledger.write(&book(1)).expect("write");
        ledger.write(&book(2)).expect("write");
        ledger.write(&book(3)).expect("write");
        // Book 4 would overwrite slot 0, which holds book 2: as far as any byte of it.
        let body = serde_json::to_vec(&book(4)).expect("json");
        for torn in 0..=body.len() {
            let part = body.get(..torn).expect("part");
            write_at(file.as_fd(), part, HEADER as u64).expect("write");
            let (_, found) = Ledger::open(file.try_clone().expect("dup"));
            assert_eq!(found, Some(book(3)), "torn after {torn} bytes");
        }
    }

    #[test]
    fn nonsense_is_no_book() {
        let file = create("belay-test").expect("memfd");
        write_at(file.as_fd(), &[0xff; 4096], 0).expect("write");
        assert_eq!(Ledger::open(file).1, None);
    }
}
