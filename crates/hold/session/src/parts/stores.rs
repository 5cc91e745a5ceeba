//! Files that the daemon stores one by one (policy `buffer`): which are being stored, by whose
//! request, and what was said of those that are not.

use belay_wire::{Opcode, OpcodeSet, Request, Unique};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// Files that are told.
const MOST: usize = 1024;

/// What waits while its file is stored to make room, or has to be over before.
pub(crate) const WAITING: OpcodeSet = OpcodeSet::new(&[
    Opcode::WRITE,
    Opcode::SETATTR,
    Opcode::FALLOCATE,
    Opcode::OPEN,
    Opcode::RELEASE,
]);

/// How far room is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Relief {
    /// It need not be.
    #[default]
    Idle,
    /// This file is being stored.
    Storing(u64),
    /// There is nothing left that could be stored: what finds no room is told.
    Vain,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// Requests under way by which a file may be stored, since whose start nothing has come on
    /// record of it: number and file. What comes while such a request is carried out may have come
    /// too late for it.
    under_way: SmallVec<[(u64, u64); 4]>,
    relief: Relief,
    /// Files that the daemon did not store.
    vain: SmallVec<[u64; 4]>,
    /// Files that belay has open, or is opening: key, the daemon's ids of the file and of the
    /// handle. While it is so, nobody else's close stores them.
    open: SmallVec<[(u64, u64, Option<u64>); 2]>,
    /// Files of which acknowledged data is neither stored nor on record, and what was said of each.
    told_unstored: HashMap<u64, String>,
    /// Files of which something could not be done again.
    told_undone: HashSet<u64>,
}

impl Stores {
    /// The daemon gets a request by which it may store a file.
    pub(crate) fn begin(&mut self, unique: u64, file: u64) {
        let unique = Unique::unmarked(unique);
        self.under_way.retain(|(other, _)| *other != unique);
        self.under_way.push((unique, file));
    }

    /// Something of a file comes on record, or should.
    pub(crate) fn disturb(&mut self, file: u64) {
        self.under_way.retain(|(_, other)| *other != file);
    }

    /// Such a request is answered: whether nothing has come on record meanwhile.
    pub(crate) fn end(&mut self, unique: u64) -> bool {
        let before = self.under_way.len();
        self.under_way.retain(|(other, _)| *other != Unique::unmarked(unique));
        self.under_way.len() < before
    }

    /// Whether a request has to wait for a file to be stored, which makes room.
    #[inline]
    pub(crate) fn holds_back(
        &self,
        request: &Request<'_>,
        lacks_room: impl FnOnce() -> bool,
    ) -> bool {
        let opcode = request.opcode();
        self.relief == Relief::Storing(request.header.nodeid) && WAITING.has(opcode)
            || opcode == Opcode::WRITE && self.relief != Relief::Vain && lacks_room()
    }

    /// Whether room could be made, and is not being made.
    pub(crate) fn may_relieve(&self) -> bool {
        self.relief == Relief::Idle
    }

    /// Whether there is any use in waiting for room.
    pub(crate) fn is_relieving(&self) -> bool {
        self.relief != Relief::Vain
    }

    /// Room is made by storing this file; `None`: there is none that could be stored.
    pub(crate) fn relieve(&mut self, file: Option<u64>) {
        self.relief = file.map_or(Relief::Vain, Relief::Storing);
    }

    /// The file that is being stored to make room.
    pub(crate) fn relieved_by(&self) -> Option<u64> {
        match self.relief {
            Relief::Storing(file) => Some(file),
            _ => None,
        }
    }

    /// It is not being stored any more.
    pub(crate) fn end_relief(&mut self) {
        self.relief = Relief::Idle;
    }

    /// The daemon did not store this file.
    pub(crate) fn note_vain(&mut self, file: u64) {
        self.vain.push(file);
    }

    /// Whether it did not.
    pub(crate) fn is_vain(&self, file: u64) -> bool {
        self.vain.contains(&file)
    }

    /// A file was stored: there is room, and others may be stored now.
    pub(crate) fn has_stored(&mut self) {
        self.vain.clear();
        if self.relief == Relief::Vain {
            self.relief = Relief::Idle;
        }
    }

    /// Belay is opening a file, by the daemon's id.
    pub(crate) fn begin_open(&mut self, file: u64, id: u64) {
        self.open.push((file, id, None));
    }

    /// It has it open by this handle, or cannot open it.
    pub(crate) fn end_open(&mut self, file: u64, fh: Option<u64>) {
        let place = self.open.iter_mut().find(|(other, ..)| *other == file);
        if let (Some(_), Some((_, _, open))) = (fh, place) {
            *open = fh;
        } else {
            self.close(file);
        }
    }

    /// It has closed it.
    pub(crate) fn close(&mut self, file: u64) {
        self.open.retain(|(other, ..)| *other != file);
    }

    /// Whether belay has a file open, or is opening it.
    pub(crate) fn has_open(&self, file: u64) -> bool {
        self.open.iter().any(|(other, ..)| *other == file)
    }

    /// The daemon's ids of such a file and of its handle, if it is open.
    pub(crate) fn opened(&self, file: u64) -> Option<(u64, u64)> {
        let (_, id, fh) = self.open.iter().find(|(other, ..)| *other == file)?;
        Some((*id, (*fh)?))
    }

    /// Whether it is to be told that data of a file is neither stored nor on record: once for each
    /// file, and of so many at most.
    pub(crate) fn tells_unstored(&self, file: u64) -> bool {
        self.told_unstored.len() < MOST && !self.told_unstored.contains_key(&file)
    }

    /// This was told.
    pub(crate) fn note_unstored(&mut self, file: u64, what: String) {
        self.told_unstored.insert(file, what);
    }

    /// Whether something was.
    pub(crate) fn has_told_unstored(&self, file: u64) -> bool {
        self.told_unstored.contains_key(&file)
    }

    /// The file is stored: what was told is not so any more.
    pub(crate) fn take_unstored(&mut self, file: u64) -> Option<String> {
        self.told_unstored.remove(&file)
    }

    /// Whether it is not to be told any more of any file that it could not be stored.
    pub(crate) fn has_told_most(&self) -> bool {
        self.told_undone.len() >= MOST
    }

    /// Something of this file cannot be done again: whether that is to be told, once for each file.
    pub(crate) fn tells_undone(&mut self, file: u64) -> bool {
        self.told_undone.insert(file)
    }
}
