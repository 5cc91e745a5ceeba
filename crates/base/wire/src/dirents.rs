//! Directory listings: the bodies of replies to READDIR and READDIRPLUS.
//!
//! A listing is a sequence of records, each a fixed part, the name without a NUL, and zeros up to a
//! multiple of 8 bytes. Ranges and offsets here count bytes from the start of the listing, which is
//! the reply's body.

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{Dirent, DirentPlus, EntryOut, NAME_MAX};

/// One entry of a READDIR listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Inode number as applications see it.
    pub ino: u64,
    /// The daemon's cookie from which the listing goes on after this entry.
    pub off: u64,
    /// `DT_*`.
    pub type_: u32,
    /// The name; not empty, without a slash.
    pub name: &'a [u8],
    /// Where the record starts.
    pub start: usize,
    /// Where it ends, padding included; where the next one starts.
    pub end: usize,
}

/// One entry of a READDIRPLUS listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlus<'a> {
    /// As a LOOKUP would have given it; node id 0 if it was left out.
    pub entry: EntryOut,
    /// Inode number as applications see it.
    pub ino: u64,
    /// The daemon's cookie from which the listing goes on after this entry.
    pub off: u64,
    /// `DT_*`.
    pub type_: u32,
    /// The name; not empty, without a slash.
    pub name: &'a [u8],
    /// Where the record starts.
    pub start: usize,
    /// Where it ends, padding included; where the next one starts.
    pub end: usize,
}

/// Walks over records whose fixed part is a `T`.
#[derive(Clone, Copy, Debug)]
struct Walk<'a> {
    body: &'a [u8],
    at: usize,
    malformed: bool,
}

impl<'a> Walk<'a> {
    fn new(body: &'a [u8]) -> Self {
        Walk { body, at: 0, malformed: false }
    }

    /// The next record: its fixed part, its name and its range. Stops for good at the first bad
    /// one.
    fn step<T: FromBytes>(
        &mut self,
        namelen: impl Fn(&T) -> u32,
    ) -> Option<(T, &'a [u8], usize, usize)> {
        if self.malformed || self.at >= self.body.len() {
            return None;
        }
        let step = self.record(namelen);
        match &step {
            Some((_, _, _, end)) => self.at = *end,
            None => self.malformed = true,
        }
        step
    }

    fn record<T: FromBytes>(
        &self,
        namelen: impl Fn(&T) -> u32,
    ) -> Option<(T, &'a [u8], usize, usize)> {
        let start = self.at;
        let (fixed, rest) = T::read_from_prefix(self.body.get(start..)?).ok()?;
        let len = usize::try_from(namelen(&fixed)).ok()?;
        let name = rest.get(..len)?;
        let end = start.checked_add(record_len::<T>(len)?)?;
        if !valid_name(name) || end > self.body.len() {
            return None;
        }
        Some((fixed, name, start, end))
    }
}

/// Whether the kernel would take this name in a listing.
fn valid_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && !name.contains(&b'/')
}

/// Length of a record with a name of `len` bytes, padding included.
fn record_len<T>(len: usize) -> Option<usize> {
    size_of::<T>().checked_add(len)?.checked_next_multiple_of(8)
}

/// Length in bytes of a READDIR record with a name of `len` bytes.
#[must_use]
pub fn dirent_len(len: usize) -> usize {
    record_len::<Dirent>(len).unwrap_or(usize::MAX)
}

/// Length in bytes of a READDIRPLUS record with a name of `len` bytes.
#[must_use]
pub fn direntplus_len(len: usize) -> usize {
    record_len::<DirentPlus>(len).unwrap_or(usize::MAX)
}

/// Iterates over a READDIR listing.
///
/// Ends at the first record that is cut short or whose name is empty, longer than [`NAME_MAX`] or
/// has a slash; [`Dirents::malformed`] then tells so. What was returned before that is sound.
#[derive(Clone, Copy, Debug)]
pub struct Dirents<'a>(Walk<'a>);

impl<'a> Dirents<'a> {
    /// Over the body of a reply to READDIR.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Dirents(Walk::new(body))
    }

    /// Whether the iteration met a bad record. Only meaningful after the end.
    #[must_use]
    pub fn malformed(&self) -> bool {
        self.0.malformed
    }
}

impl<'a> Iterator for Dirents<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let (d, name, start, end) = self.0.step(|d: &Dirent| d.namelen)?;
        Some(Entry { ino: d.ino, off: d.off, type_: d.type_, name, start, end })
    }
}

/// Iterates over a READDIRPLUS listing; ends as [`Dirents`] does.
#[derive(Clone, Copy, Debug)]
pub struct DirentsPlus<'a>(Walk<'a>);

impl<'a> DirentsPlus<'a> {
    /// Over the body of a reply to READDIRPLUS.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        DirentsPlus(Walk::new(body))
    }

    /// Whether the iteration met a bad record. Only meaningful after the end.
    #[must_use]
    pub fn malformed(&self) -> bool {
        self.0.malformed
    }
}

impl<'a> Iterator for DirentsPlus<'a> {
    type Item = EntryPlus<'a>;

    fn next(&mut self) -> Option<EntryPlus<'a>> {
        let (d, name, start, end) = self.0.step(|d: &DirentPlus| d.dirent.namelen)?;
        Some(EntryPlus {
            entry: d.entry_out,
            ino: d.dirent.ino,
            off: d.dirent.off,
            type_: d.dirent.type_,
            name,
            start,
            end,
        })
    }
}

/// Appends a READDIR record.
///
/// `limit` is the most that `out` may hold afterwards, in bytes. False, and nothing is changed, if
/// the record does not fit or the name is one that [`Dirents`] would refuse.
pub fn push_dirent(
    out: &mut Vec<u8>,
    limit: usize,
    ino: u64,
    off: u64,
    type_: u32,
    name: &[u8],
) -> bool {
    let Some(dirent) = dirent(ino, off, type_, name) else {
        return false;
    };
    push(out, limit, dirent.as_bytes(), name, dirent_len(name.len()))
}

/// Appends a READDIRPLUS record; otherwise as [`push_dirent`].
pub fn push_direntplus(
    out: &mut Vec<u8>,
    limit: usize,
    entry: &EntryOut,
    ino: u64,
    off: u64,
    type_: u32,
    name: &[u8],
) -> bool {
    let Some(dirent) = dirent(ino, off, type_, name) else {
        return false;
    };
    let plus = DirentPlus { entry_out: *entry, dirent };
    push(out, limit, plus.as_bytes(), name, direntplus_len(name.len()))
}

/// The fixed part for a name; `None` for a name that must not be listed.
fn dirent(ino: u64, off: u64, type_: u32, name: &[u8]) -> Option<Dirent> {
    if !valid_name(name) {
        return None;
    }
    let namelen = u32::try_from(name.len()).ok()?;
    Some(Dirent { ino, off, namelen, type_ })
}

fn push(out: &mut Vec<u8>, limit: usize, fixed: &[u8], name: &[u8], len: usize) -> bool {
    let end = match out.len().checked_add(len) {
        Some(end) if end <= limit => end,
        _ => return false,
    };
    out.extend_from_slice(fixed);
    out.extend_from_slice(name);
    out.resize(end, 0);
    true
}
