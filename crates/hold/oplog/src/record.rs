//! What is known of a request, and how it is laid out.
//!
//! A record is [`HEAD`] words, then the request's body, its name changes and its pieces of data,
//! each filled up to whole words. Its check value is over all of that, its epoch and its place, so
//! that neither what a wild write has hit nor what an older epoch left in the same place is taken
//! for true. The data themselves are not checked: it would cost as much as copying them, and a wild
//! write may as well have hit them before they came here.

use crate::pages::{PAGE_BYTES, Piece, Pieces};
use belay_memory::Memory;
use smallvec::SmallVec;
use std::borrow::Cow;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::IntoBytes;

/// Words of a record in front of the body.
pub(crate) const HEAD: usize = 15;
/// Byte of a record at which its check value is.
const CHECK: usize = 8;
/// Words of a piece.
pub(crate) const PIECE: usize = 2;
/// Words of a name change in front of the name.
const NAME: usize = 4;

/// As one of [`Facts::files`]: nobody knows which files the request has changed.
pub const EVERY_FILE: u64 = u64::MAX;

/// What a record says of its request, apart from body, names and data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The kernel's id of the request, see [`crate::Oplog::retract`].
    pub unique: u64,
    /// Opcode.
    pub opcode: u32,
    /// Who asked.
    pub uid: u32,
    /// Who asked.
    pub gid: u32,
    /// Who asked.
    pub pid: u32,
    /// CLOCK_REALTIME when the daemon got the request, in nanoseconds.
    pub time: u64,
    /// The kernel's key of the node. Those of further nodes are in the body.
    pub node: u64,
    /// Which files' data, length or times the request changes, or reads to copy them; 0 for none,
    /// [`EVERY_FILE`] if that is not known. They are told apart by any number that is the same for
    /// all links of a file, and of no other file: where a daemon gives links nodes of their own,
    /// that is not the key. For WRITE the first is the file written to. For all others these are
    /// barriers (see the crate): SETATTR, FALLOCATE, COPY_FILE_RANGE, OPEN and CREATE with O_TRUNC,
    /// SETXATTR and so on.
    pub files: [u64; 2],
    /// The reply's errno, positive; 0 for success.
    pub errno: i32,
    /// The number of bytes that a WRITE or COPY_FILE_RANGE was said to have written; for others
    /// what the caller likes.
    pub size: u64,
    /// What a reply with an entry said of the node.
    pub entry: Entry,
}

/// What a reply with an entry said of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The key by which the kernel knows the node; 0 for none.
    pub key: u64,
    /// Inode number.
    pub ino: u64,
    /// Mode, with the type.
    pub mode: u32,
}

/// What a request has made of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameChange<'a> {
    /// Key of the directory.
    pub parent: u64,
    /// The name.
    pub name: Cow<'a, [u8]>,
    /// Key of the node that it named before; 0 for none.
    pub before: u64,
    /// Key of the node that it names now; 0 for none.
    pub after: u64,
}

/// What followed a request's header. Nearly all have less, and thousands are to be read without an
/// allocation for each.
pub type Body = SmallVec<[u8; 96]>;

/// A record, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The request and its reply.
    pub facts: Facts,
    /// What followed the request's header; of WRITE only the first 40 bytes.
    pub body: Body,
    /// What became of names, in this order.
    pub names: Vec<NameChange<'static>>,
    pub(crate) pieces: Pieces,
    pub(crate) words: usize,
}

/// The log holds something that was not written by its owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the op-log is damaged")]
pub struct Corrupt;

/// What is to become a record.
#[derive(Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) body: &'a [u8],
    pub(crate) names: &'a [NameChange<'a>],
    pub(crate) pieces: &'a [Piece],
}

impl Draft<'_> {
    /// Words that it takes.
    pub(crate) fn words(&self) -> usize {
        let names = self.names.iter().map(|change| NAME + change.name.len().div_ceil(8));
        HEAD + self.body.len().div_ceil(8) + names.sum::<usize>() + PIECE * self.pieces.len()
    }

    /// Writes it out, for `seed`'s epoch and offset.
    pub(crate) fn encode(&self, seed: &Seed, out: &mut Vec<u8>) {
        let facts = self.facts;
        out.clear();
        let head: [u64; HEAD] = [
            pair(facts.opcode, self.words() as u32),
            0,
            seed.epoch,
            facts.unique,
            facts.time,
            pair(facts.uid, facts.gid),
            pair(facts.pid, facts.errno as u32),
            facts.node,
            facts.files[0],
            facts.files[1],
            facts.size,
            facts.entry.key,
            facts.entry.ino,
            pair(facts.entry.mode, self.body.len() as u32),
            pair(self.names.len() as u32, self.pieces.len() as u32),
        ];
        put_words(out, &head);
        put_bytes(out, self.body);
        for change in self.names {
            let length = change.name.len() as u64;
            put_words(out, &[change.parent, change.before, change.after, length]);
            put_bytes(out, &change.name);
        }
        for piece in self.pieces {
            let place = u32::from(piece.from) << 16 | u32::from(piece.length);
            put_words(out, &[piece.page, pair(piece.slot, place)]);
        }
        let check = seed.digest(out);
        if let Some(place) = out.get_mut(CHECK..CHECK + 8) {
            place.copy_from_slice(&check.to_ne_bytes());
        }
    }
}

/// What a record's check value depends on besides its content.
pub(crate) struct Seed {
    /// Its epoch.
    pub(crate) epoch: u64,
    /// Its first word, counted from that of the log.
    pub(crate) offset: usize,
}

impl Seed {
    fn digest(&self, bytes: &[u8]) -> u64 {
        let seed =
            self.epoch.rotate_left(32) ^ (self.offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        xxh3_64_with_seed(bytes, seed)
    }
}

impl Record {
    /// Reads the record that starts at word `at` and has at most `most` words.
    pub(crate) fn decode<M: Memory>(
        memory: &M,
        at: usize,
        most: usize,
        seed: &Seed,
    ) -> Result<Self, Corrupt> {
        let words = low(memory.load(at)) as usize;
        if !(HEAD..=most).contains(&words) {
            return Err(Corrupt);
        }
        let mut bytes = SmallVec::<[u8; 512]>::from_elem(0, words * 8);
        memory.load_bytes(at, &mut bytes);
        let place = bytes.get_mut(CHECK..CHECK + 8).ok_or(Corrupt)?;
        let check = u64::from_ne_bytes((&*place).try_into().map_err(|_| Corrupt)?);
        place.fill(0);
        if check != seed.digest(&bytes) {
            return Err(Corrupt);
        }
        // What follows is this record's own word, but who knows who wrote it.
        Self::parse(&bytes, seed.epoch).filter(|record| record.words == words).ok_or(Corrupt)
    }

    fn parse(bytes: &[u8], of_epoch: u64) -> Option<Self> {
        let mut rest = Reader(bytes);
        let [first, _, epoch, unique, time, user, process, node] = rest.words()?;
        let [file, other, size, key, ino, mode, counts] = rest.words()?;
        let body = Body::from_slice(rest.bytes(low(mode) as usize)?);
        let mut names = Vec::with_capacity(high(counts).min(4) as usize); // RENAME changes two
        for _ in 0..high(counts) {
            let [parent, before, after, length] = rest.words()?;
            let name = rest.bytes(usize::try_from(length).ok()?)?.to_vec();
            names.push(NameChange { parent, name: name.into(), before, after });
        }
        let mut pieces = Pieces::new();
        for _ in 0..low(counts) {
            let [page, place] = rest.words()?;
            let (slot, place) = (high(place), low(place));
            let piece = Piece { page, slot, from: (place >> 16) as u16, length: place as u16 };
            let ordered = pieces.last().is_none_or(|last| last.page < page);
            let inside = piece.length > 0 && piece.end() <= PAGE_BYTES;
            if !ordered || !inside || page >= u64::MAX / PAGE_BYTES as u64 {
                return None;
            }
            pieces.push(piece);
        }
        let facts = Facts {
            unique,
            opcode: high(first),
            uid: high(user),
            gid: low(user),
            pid: high(process),
            time,
            node,
            files: [file, other],
            errno: low(process) as i32,
            size,
            entry: Entry { key, ino, mode: high(mode) },
        };
        let whole = epoch == of_epoch && rest.0.is_empty();
        whole.then_some(Self { facts, body, names, pieces, words: low(first) as usize })
    }
}

/// What is left to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn words<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut words = [0; N];
        for word in &mut words {
            let (first, rest) = self.0.split_first_chunk()?;
            *word = u64::from_ne_bytes(*first);
            self.0 = rest;
        }
        Some(words)
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest.get(length.next_multiple_of(8) - length..)?;
        Some(bytes)
    }
}

fn put_words(out: &mut Vec<u8>, words: &[u64]) {
    out.extend_from_slice(words.as_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(8), 0);
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

fn low(word: u64) -> u32 {
    word as u32
}
