//! The log of one request: entries appended by whichever thread works on it.
//!
//! An entry becomes part of the log by one store, that of the log's length, after all of it is in
//! place; so a log read after its writer's death ends in a whole entry. An outcome is filled in
//! later, its mark last. Entries carry a check value over their words and payload, the request and
//! their place, and so does the length: what a wild write has hit is not taken for true.

use crate::call::Kind;
use belay_memory::Memory;
use belay_recorder::Layout;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const UNIQUE: usize = 0;
const LENGTH: usize = 1; // flags (8 bits) | check (24) | words in use, those of the head not counted
const OPAQUE: usize = 2;
const DIVERGED: usize = 4; // the request that did something else when it was done again
const CURSOR: usize = 3; // of the life that does the request again
const HEAD: usize = 8;

const KIND: usize = 0; // kind | bytes of the payload
const DIGEST: usize = 1;
const BEFORE: usize = 3;
const CHECK: usize = 4;
const RESULT: usize = 5;
const ERRNO: usize = 6;
const DONE: usize = 7; // CHECK of the outcome, 0 while there is none
const ENTRY: usize = 8;

/// The image writes of the request are to be carried out, whatever happens.
pub const COMMITTED: u32 = 2;
/// Image writes of the request have reached the image before it was committed, as the log is full.
pub const TORN: u32 = 4;

/// The log of a request.
#[derive(Debug)]
pub struct Log<'m, M> {
    memory: &'m M,
    at: usize,
    words: usize,
}

impl<M> Clone for Log<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for Log<'_, M> {}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its first word in the log.
    pub at: usize,
    /// What kind of entry, as its writer named it.
    pub kind: u32,
    /// Bytes that follow it.
    pub payload: usize,
    /// What tells it from other entries of its kind; of an image write, its place in the image.
    pub digest: u64,
    /// What was known of the thing before.
    pub before: u64,
    /// What came of it: the result and errno. `None`: not known.
    pub outcome: Option<(i64, i32)>,
}

/// What an entry starts with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// See [`Entry::kind`].
    pub kind: u32,
    /// See [`Entry::digest`].
    pub digest: u64,
    /// See [`Entry::before`].
    pub before: u64,
}

impl<'m, M: Memory> Log<'m, M> {
    /// The log in place `index`: that of the slot with this number, or, behind the last slot, that
    /// of what has no slot.
    #[inline]
    pub fn new(memory: &'m M, layout: &Layout, index: usize) -> Self {
        let index = index.min(layout.capacity.slots);
        Self { memory, at: layout.logs + index * layout.log_words, words: layout.log_words }
    }

    /// The request that the log is of; 0 for none.
    #[inline]
    pub fn unique(&self) -> u64 {
        self.memory.load(self.at + UNIQUE)
    }

    /// Flags ([`COMMITTED`] and so on).
    #[inline]
    pub fn flags(&self) -> u32 {
        (self.memory.load(self.at + LENGTH) >> 56) as u32
    }

    /// Words of entries.
    #[inline]
    pub fn used(&self) -> usize {
        (self.memory.load(self.at + LENGTH) as u32 as usize).min(self.words.saturating_sub(HEAD))
    }

    /// Bytes of the memory in which the log may lie: for giving back what a long one took.
    pub fn range(&self) -> (usize, usize) {
        (self.at * 8, self.words * 8)
    }

    /// Words from its start on that whoever comes next may want to read: of one that was dropped,
    /// or is corrupt, its head.
    pub fn wanted(&self) -> usize {
        let used = if self.unique() != 0 && self.is_whole() { self.used() } else { 0 };
        HEAD + used
    }

    /// Makes this the empty log of `unique`.
    #[inline]
    pub fn begin(&self, unique: u64) {
        self.memory.store(self.at + UNIQUE, 0);
        self.memory.store(self.at + LENGTH, length(unique, 0, 0));
        self.memory.store(self.at + UNIQUE, unique);
    }

    /// Whether the log's head is as its writers left it.
    #[inline]
    pub fn is_whole(&self) -> bool {
        let found = self.memory.load(self.at + LENGTH);
        let unique = self.unique();
        found == length(unique, self.flags(), found as u32 as usize) || (found == 0 && unique == 0)
    }

    /// Drops the log.
    #[inline]
    pub fn drop(&self) {
        self.memory.store(self.at + UNIQUE, 0);
        self.memory.store(self.at + LENGTH, length(0, self.flags(), self.used()));
    }

    /// Notes that `unique` has done what is not on record (gone beyond the log, come from an
    /// unknown thread): its journal is of no use. One store, which any thread may make.
    #[inline]
    pub fn mark_opaque(&self, unique: u64) {
        self.memory.store(self.at + OPAQUE, unique);
    }

    /// Whether that was noted.
    pub fn is_opaque(&self, unique: u64) -> bool {
        unique != 0 && self.memory.load(self.at + OPAQUE) == unique
    }

    /// Notes that `unique` did something else when it was done again, in whichever of its threads.
    pub fn mark_diverged(&self, unique: u64) {
        self.memory.store(self.at + DIVERGED, unique);
    }

    /// Whether that was noted.
    pub fn is_diverged(&self, unique: u64) -> bool {
        unique != 0 && self.memory.load(self.at + DIVERGED) == unique
    }

    /// How far the request that is done again has come, see [`crate::Cursor`].
    #[inline]
    pub fn cursor(&self) -> usize {
        self.memory.load(self.at + CURSOR) as usize
    }

    /// Sets it.
    #[inline]
    pub fn set_cursor(&self, at: usize) {
        self.memory.store(self.at + CURSOR, at as u64);
    }

    /// Sets flags, in one store.
    #[inline]
    pub fn raise(&self, flags: u32) {
        // One that is corrupt stays so.
        let old = if self.is_whole() { 0 } else { self.memory.load(self.at + LENGTH) };
        let new = length(self.unique(), self.flags() | flags, self.used());
        self.memory
            .store(self.at + LENGTH, if old == 0 { new } else { old | u64::from(flags) << 56 });
    }

    /// Appends an entry whose outcome is not known yet. `None` if the log is full.
    #[inline]
    pub fn append(&self, head: &Head, payload: &[u8]) -> Option<Entry> {
        let entry = self.prepare(head, payload)?;
        self.publish(&entry);
        Some(entry)
    }

    /// Appends an entry together with its outcome. `None` if the log is full.
    #[inline]
    pub fn append_done(&self, head: &Head, payload: &[u8], outcome: (i64, i32)) -> Option<Entry> {
        let mut entry = self.prepare(head, payload)?;
        self.finish(&mut entry, outcome);
        self.publish(&entry);
        Some(entry)
    }

    fn prepare(&self, head: &Head, payload: &[u8]) -> Option<Entry> {
        let used = self.used();
        let need = ENTRY + payload.len().div_ceil(8);
        if self.unique() == 0
            || !self.is_whole()
            || HEAD + used + need > self.words
            || payload.len() > u32::MAX as usize
        {
            return None;
        }
        let at = HEAD + used;
        let words = [pair(head.kind, payload.len() as u32), head.digest, 0, head.before];
        self.memory.store_words(self.at + at, words);
        let check = self.check(at, words) ^ digest_payload(head.kind, payload);
        self.memory.store_words(self.at + at + CHECK, [check, 0, 0, 0]);
        self.memory.store_bytes(self.at + at + ENTRY, payload);
        Some(Entry {
            at,
            kind: head.kind,
            payload: payload.len(),
            digest: head.digest,
            before: head.before,
            outcome: None,
        })
    }

    fn publish(&self, entry: &Entry) {
        let end = entry.at - HEAD + ENTRY + entry.payload.div_ceil(8);
        self.memory.store(self.at + LENGTH, length(self.unique(), self.flags(), end));
    }

    /// Records what came of an entry.
    #[inline]
    pub fn finish(&self, entry: &mut Entry, outcome: (i64, i32)) {
        let at = self.at + entry.at;
        let (result, errno) = (outcome.0 as u64, outcome.1 as u32);
        self.memory.store(at + RESULT, result);
        self.memory.store(at + ERRNO, u64::from(errno));
        self.memory.store(at + DONE, self.check_outcome(entry.at, result, u64::from(errno)));
        entry.outcome = Some(outcome);
    }

    /// The entry whose first word is `at` (0: the first). `None` at the end.
    ///
    /// # Errors
    /// If there is something that is no entry of this request: the log is not to be trusted.
    pub fn entry(&self, at: usize) -> Result<Option<Entry>, Corrupt> {
        let at = at.max(HEAD);
        let end = HEAD + self.used();
        if !self.is_whole() {
            return Err(Corrupt);
        }
        if at >= end {
            return Ok(None);
        }
        let [kind, digest, before, check, result, errno, done] = self
            .memory
            .load_fields(self.at + at, [KIND, DIGEST, BEFORE, CHECK, RESULT, ERRNO, DONE]);
        let payload = kind as u32 as usize;
        let whole = at + ENTRY + payload.div_ceil(8) <= end;
        if !whole {
            return Err(Corrupt);
        }
        let mut bytes = vec![0; payload];
        if payload > 0 {
            self.memory.load_bytes(self.at + at + ENTRY, &mut bytes);
        }
        if check
            != self.check(at, [kind, digest, 0, before])
                ^ digest_payload((kind >> 32) as u32, &bytes)
        {
            return Err(Corrupt);
        }
        let outcome = (done != 0 && done == self.check_outcome(at, result, errno))
            .then_some((result as i64, errno as u32 as i32));
        let kind = (kind >> 32) as u32;
        Ok(Some(Entry { at, kind, payload, digest, before, outcome }))
    }

    /// The entry behind `entry`.
    ///
    /// # Errors
    /// As for [`Log::entry`].
    pub fn after(&self, entry: &Entry) -> Result<Option<Entry>, Corrupt> {
        self.entry(entry.at + ENTRY + entry.payload.div_ceil(8))
    }

    /// All entries, as far as they can be trusted, and whether that is to the end.
    pub fn entries(&self) -> (Vec<Entry>, bool) {
        let mut entries = Vec::new();
        let mut next = self.entry(0);
        while let Ok(Some(entry)) = next {
            entries.push(entry);
            next = self.after(&entry);
        }
        (entries, next.is_ok())
    }

    /// Copies an entry's payload from byte `from` on, as much as there is room for; gives its
    /// length.
    pub fn payload(&self, entry: &Entry, out: &mut [u8]) -> usize {
        let n = entry.payload.min(out.len());
        if let Some(out) = out.get_mut(..n) {
            self.memory.load_bytes(self.at + entry.at + ENTRY, out);
        }
        n
    }

    /// Byte offset, in the memory, of an entry's payload.
    #[inline]
    pub fn payload_at(&self, entry: &Entry) -> usize {
        (self.at + entry.at + ENTRY) * 8
    }

    #[inline]
    fn check(&self, at: usize, words: [u64; 4]) -> u64 {
        let [a, b, c, d] = words;
        digest_words(self.unique() ^ (at as u64) << 40, &[a, b, c, d])
    }

    #[inline]
    fn check_outcome(&self, at: usize, result: u64, errno: u64) -> u64 {
        digest_words(self.unique() ^ (at as u64) << 40, &[result, errno]) | 1
    }
}

/// The log holds something that its request's threads did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// The word of a log's length.
#[inline]
fn length(unique: u64, flags: u32, used: usize) -> u64 {
    let plain = u64::from(flags) << 56 | used as u64;
    plain | (digest_words(unique, &[plain]) >> 40) << 32
}

/// A number for a payload, 0 for none. Of an image write the data are not looked at: it would cost
/// as much as copying them, and a wild write may have hit them before the daemon wrote them as
/// well.
#[inline]
fn digest_payload(kind: u32, payload: &[u8]) -> u64 {
    if payload.is_empty() || kind == Kind::Image as u32 { 0 } else { digest(0, payload) }
}

#[inline]
fn pair(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

/// A number for a few words, under a seed.
#[inline]
fn digest_words(seed: u64, words: &[u64]) -> u64 {
    // A product folded: enough against accidents, and a few instructions (nobody attacks who could
    // not write to the log anyway).
    words.iter().fold(seed ^ 0x9e37_79b9_7f4a_7c15, |state, word| {
        let wide = u128::from(state ^ word) * 0xd6e8_feb8_6659_fd93_u128 + 0xa076_1d64_78bd_642f;
        (wide as u64) ^ (wide >> 64) as u64
    })
}

/// A number for a byte string, under a seed.
#[inline]
pub fn digest(seed: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}
