//! An op-log in a file: what was acknowledged and could not be done again by itself, for `belay
//! replay`.
//!
//! docs/epochs.md describes the format for others. In short: 64 bytes that say how long the parts
//! are, with check values; a head and, for each operation, its description, as JSON; the data
//! behind each; and, in front of them, one byte an operation that says how far it has come, the
//! only part that is ever changed.
//!
//! A file may come from anywhere: nothing in it is used before it is checked, and no path of it
//! leads out of the mount.

mod operation;

pub use operation::{Nanoseconds, Operation, Step, Text, steps};

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Seek, SeekFrom};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// How a file begins.
pub const MAGIC: [u8; 8] = *b"belayops";
/// The version of the format.
pub const VERSION: u32 = 1;
/// Bytes in front of the head.
pub const FIXED: usize = 64;
/// The longest head, and the longest description of an operation, in bytes.
const MOST: usize = 4 << 20;
/// The most operations: many times what an op-log has room for.
const MOST_STEPS: usize = 1 << 24;

/// Where an op-log comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Where the file system was mounted.
    pub mountpoint: String,
    /// The daemon's command line.
    pub command: String,
    /// Its image.
    pub image: Text,
    /// When the file was written: RFC 3339, UTC.
    pub time: String,
    /// The epoch that the operations are of: they come behind the checkpoint that ended the one
    /// before.
    pub epoch: u64,
    /// Why it was written.
    pub reason: String,
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing was done.
    #[default]
    Waiting,
    /// It was begun, and nobody knows more.
    Begun,
    /// It was carried out.
    Applied,
    /// It was tried, and failed.
    Failed,
    /// It was left out because the user said so.
    Skipped,
}

const STATES: [State; 5] =
    [State::Waiting, State::Begun, State::Applied, State::Failed, State::Skipped];

impl State {
    /// Its byte in the file.
    pub fn byte(self) -> u8 {
        self as u8
    }

    /// Whether it is neither applied nor left out.
    pub fn is_left(self) -> bool {
        !matches!(self, Self::Applied | Self::Skipped)
    }
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where it comes from.
    pub head: Head,
    /// What is to be done.
    pub steps: Vec<Step>,
    /// How far each has come.
    pub states: Vec<State>,
    /// Where in the file the states are: byte offset of the first.
    pub states_at: u64,
}

/// Why a file is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is something else.
    #[error("it is no op-log of belay's")]
    Other,
    /// It is of a belay to come.
    #[error("it has version {0} of the format, and this belay knows version 1")]
    Version(u32),
    /// It is cut short, or was altered.
    #[error("it is damaged: its check value or its lengths are wrong")]
    Damaged,
    /// It was made by somebody who knows how to make check values.
    #[error("operation {0} is none that belay writes")]
    Operation(u64),
}

/// A file with these operations, none of which has begun. `None` if there is too much of something.
pub fn encode(head: &Head, steps: &[Step]) -> Option<Vec<u8>> {
    let head = serde_json::to_vec(head).ok().filter(|head| head.len() <= MOST)?;
    if steps.len() > MOST_STEPS {
        return None;
    }
    let mut body = Vec::new();
    for step in steps {
        let text = serde_json::to_vec(step).ok().filter(|text| text.len() <= MOST)?;
        body.extend(u32::try_from(text.len()).ok()?.to_le_bytes());
        body.extend(u32::try_from(step.data.len()).ok()?.to_le_bytes());
        body.extend(text);
        body.extend_from_slice(&step.data);
    }
    let mut file = Vec::with_capacity(FIXED + head.len() + steps.len() + body.len());
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend(u32::try_from(head.len()).ok()?.to_le_bytes());
    file.extend((steps.len() as u64).to_le_bytes());
    file.extend((body.len() as u64).to_le_bytes());
    file.extend(digest(&head, &body).to_le_bytes());
    file.extend([0; 8]);
    let check = xxh3_64(&file);
    file.extend(check.to_le_bytes());
    file.extend(head);
    file.resize(file.len() + steps.len(), State::Waiting.byte());
    file.extend(body);
    Some(file)
}

fn digest(head: &[u8], body: &[u8]) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(head);
    hasher.update(body);
    hasher.digest128()
}

/// What the first bytes say, before anything else is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    head: usize,
    count: usize,
    length: usize,
    check: u128,
}

impl Start {
    /// Reads what a file of `length` bytes starts with.
    ///
    /// # Errors
    /// If it is no op-log, of another version, or has not the length that it says.
    pub fn parse(start: &[u8; FIXED], length: u64) -> Result<Self, Malformed> {
        let mut fixed = Reader(start);
        if fixed.take::<8>() != Some(MAGIC) {
            return Err(Malformed::Other);
        }
        let version = fixed.take().map_or(0, u32::from_le_bytes);
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        Self::rest(start, fixed)
            .filter(|start| start.end() == Some(length))
            .ok_or(Malformed::Damaged)
    }

    fn rest(start: &[u8; FIXED], mut fixed: Reader<'_>) -> Option<Self> {
        let head = fixed.take().map(u32::from_le_bytes)? as usize;
        let count = usize::try_from(fixed.take().map(u64::from_le_bytes)?).ok()?;
        let length = usize::try_from(fixed.take().map(u64::from_le_bytes)?).ok()?;
        let check = fixed.take().map(u128::from_le_bytes)?;
        let zeros: [u8; 8] = fixed.take()?;
        let own = fixed.take().map(u64::from_le_bytes)?;
        let right = own == xxh3_64(start.get(..FIXED - 8)?) && zeros == [0; 8];
        let fits = head <= MOST && count <= MOST_STEPS;
        (right && fits).then_some(Self { head, count, length, check })
    }

    /// Where the file ends.
    fn end(&self) -> Option<u64> {
        let parts = [FIXED, self.head, self.count, self.length];
        parts.into_iter().try_fold(0_u64, |sum, part| sum.checked_add(part as u64))
    }

    /// Where in the file the states are.
    fn states_at(&self) -> u64 {
        (FIXED + self.head) as u64
    }
}

/// How many operations of a file are not applied, and not left out. Little is read, whatever the
/// file says; it may be damaged.
///
/// # Errors
/// If it is no op-log, or those of reading it.
pub fn left(mut file: impl Read + Seek, length: u64) -> io::Result<u64> {
    let mut start = [0; FIXED];
    if length < FIXED as u64 {
        return Err(io::Error::other(Malformed::Other));
    }
    file.read_exact(&mut start)?;
    let start = Start::parse(&start, length).map_err(io::Error::other)?;
    file.seek(SeekFrom::Start(start.states_at()))?;
    let mut states = file.take(start.count as u64);
    let (mut piece, mut left) = ([0; 4096], 0);
    loop {
        let read = states.read(&mut piece)?;
        let Some(piece) = piece.get(..read).filter(|piece| !piece.is_empty()) else {
            return Ok(left);
        };
        for byte in piece {
            let state = STATES.get(usize::from(*byte));
            let state = state.ok_or_else(|| io::Error::other(Malformed::Damaged))?;
            left += u64::from(state.is_left());
        }
    }
}

/// Reads a file.
///
/// # Errors
/// If it is not as [`encode`] makes it.
pub fn decode(file: &[u8]) -> Result<Kept, Malformed> {
    let (fixed, rest) = file.split_first_chunk().ok_or(Malformed::Other)?;
    let start = Start::parse(fixed, file.len() as u64)?;
    read(start, rest).ok_or(Malformed::Damaged)?
}

fn read(start: Start, rest: &[u8]) -> Option<Result<Kept, Malformed>> {
    let (head, rest) = rest.split_at_checked(start.head)?;
    let (states, body) = rest.split_at_checked(start.count)?;
    if start.check != digest(head, body) {
        return None;
    }
    let head: Head = serde_json::from_slice(head).ok()?;
    let states: Option<Vec<State>> =
        states.iter().map(|byte| STATES.get(usize::from(*byte)).copied()).collect();
    let mut body = Reader(body);
    let mut steps = Vec::new();
    for number in 0..start.count {
        let (text, data) = (body.length()?, body.length()?);
        let text = body.bytes(text).filter(|text| text.len() <= MOST)?;
        let data = body.bytes(data)?.to_vec();
        let step = serde_json::from_slice::<Step>(text).ok();
        let sound = step.filter(|step: &Step| step.operation.is_sound());
        let Some(step) = sound else { return Some(Err(Malformed::Operation(number as u64))) };
        steps.push(Step { data, ..step });
    }
    body.0.is_empty().then_some(())?;
    Some(Ok(Kept { head, steps, states: states?, states_at: start.states_at() }))
}

/// What is left to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.take()?)).ok()
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}
