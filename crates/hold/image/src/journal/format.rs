//! What a journal looks like.
//!
//! ```text
//! 0     header, one sector
//! 4096  table: for each run its place in the image and its length (8 bytes each)
//! ...   from the next multiple of 4096 on, the data of all runs, one behind the other
//! ```
//!
//! All numbers are little-endian. A disk writes a sector whole or not at all, so the header is what
//! it was before a commit or what the commit has written. Its check value is over its own fields,
//! the table and the data: whether those belong to the header is known by that alone.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes of the header.
pub(super) const HEADER: usize = 512;
/// Where the table starts.
pub(super) const TABLE: u64 = 4096;
/// Bytes of a run in the table.
pub(super) const ENTRY: usize = 16;
/// Unit in which the table is written and read.
pub(super) const TABLE_PIECE: usize = 4096;

const MAGIC: [u8; 8] = *b"belayjnl";
const VERSION: u32 = 2;
const EMPTY: u32 = 0;
const WHOLE: u32 = 1;

// Byte offsets in the header.
const AT_VERSION: usize = 8;
const AT_STATE: usize = 12;
const AT_FIELDS: usize = 16;
const AT_CHECK: usize = AT_FIELDS + 8 * FIELDS;
const AT_OWN_CHECK: usize = HEADER - 8; // over the header alone
const FIELDS: usize = 9;

/// What the header of a journal says that holds a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) epoch: u64,
    /// The number of the image's device, for people: it may change at a boot.
    pub(super) device: u64,
    /// The image's inode number; 0 if none stays.
    pub(super) inode: u64,
    /// The image's greatest length before.
    pub(super) start: u64,
    /// Where it is cut, before anything is written.
    pub(super) cut: u64,
    /// Its length afterwards.
    pub(super) length: u64,
    /// Runs.
    pub(super) count: u64,
    /// Bytes of them all.
    pub(super) bytes: u64,
    /// What tells the file system from another in its place ([`super::filesystem::number`]).
    pub(super) number: u64,
}

/// What a header can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Of a journal that holds nothing.
    Empty,
    /// Nothing: whoever made the file was cut off before this was on the disk.
    Blank,
    /// Corrupt.
    Torn,
    /// Of a commit: with the check value of it all.
    Whole(Header, u128),
    /// Of another version.
    Version(u32),
    /// None of belay's.
    Unknown,
}

impl Parsed {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty | Self::Blank)
    }
}

impl Header {
    /// What the check value starts from.
    pub(super) fn hasher(&self) -> Xxh3 {
        let mut hasher = Xxh3::new();
        let bytes = self.encode(0);
        hasher.update(bytes.get(..AT_CHECK).unwrap_or_default());
        hasher
    }

    /// As bytes, with the check value of it all.
    pub(super) fn encode(&self, check: u128) -> [u8; HEADER] {
        let Self { epoch, device, inode, start, cut, length, count, bytes, number } = *self;
        let mut out = blank(WHOLE);
        for (i, field) in
            [epoch, device, inode, start, cut, length, count, bytes, number].into_iter().enumerate()
        {
            put(&mut out, AT_FIELDS + 8 * i, &field.to_le_bytes());
        }
        put(&mut out, AT_CHECK, &check.to_le_bytes());
        sign(out)
    }

    /// Where the data start, and the first byte behind them. `None` if there is no such place.
    pub(super) fn data(&self) -> Option<(u64, u64)> {
        let table = self.count.checked_mul(ENTRY as u64)?;
        let start = TABLE.checked_add(table)?.checked_next_multiple_of(TABLE)?;
        Some((start, start.checked_add(self.bytes)?))
    }
}

/// The header of a journal that holds nothing.
pub(super) fn empty() -> [u8; HEADER] {
    sign(blank(EMPTY))
}

fn blank(state: u32) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    put(&mut out, 0, &MAGIC);
    put(&mut out, AT_VERSION, &VERSION.to_le_bytes());
    put(&mut out, AT_STATE, &state.to_le_bytes());
    out
}

fn sign(mut out: [u8; HEADER]) -> [u8; HEADER] {
    let check = xxh3_64(out.get(..AT_OWN_CHECK).unwrap_or_default());
    put(&mut out, AT_OWN_CHECK, &check.to_le_bytes());
    out
}

/// Reads a header, of which there is nothing behind it if `alone`; of a shorter file all that there
/// is, with zeros behind it.
pub(super) fn parse(header: &[u8; HEADER], alone: bool) -> Parsed {
    // Many a disk image begins with zeros as well.
    if alone && header.iter().all(|byte| *byte == 0) {
        return Parsed::Blank;
    }
    if !header.starts_with(&MAGIC) {
        return Parsed::Unknown;
    }
    let version = u32::from_le_bytes(get(header, AT_VERSION));
    if version != VERSION {
        return Parsed::Version(version);
    }
    if sign(*header) != *header {
        return Parsed::Torn;
    }
    let [epoch, device, inode, start, cut, length, count, bytes, number] =
        std::array::from_fn(|i: usize| u64::from_le_bytes(get(header, AT_FIELDS + 8 * i)));
    let check = u128::from_le_bytes(get(header, AT_CHECK));
    match u32::from_le_bytes(get(header, AT_STATE)) {
        EMPTY => Parsed::Empty,
        WHOLE => Parsed::Whole(
            Header { epoch, device, inode, start, cut, length, count, bytes, number },
            check,
        ),
        _ => Parsed::Torn,
    }
}

/// A run, as it is in the table.
pub(super) fn entry(offset: u64, len: u64) -> [u8; ENTRY] {
    let mut out = [0; ENTRY];
    put(&mut out, 0, &offset.to_le_bytes());
    put(&mut out, 8, &len.to_le_bytes());
    out
}

/// Offset and length of a run in the table.
pub(super) fn parse_entry(entry: &[u8; ENTRY]) -> (u64, u64) {
    (u64::from_le_bytes(get(entry, 0)), u64::from_le_bytes(get(entry, 8)))
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    for (place, byte) in out.iter_mut().skip(at).zip(bytes) {
        *place = *byte;
    }
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}
