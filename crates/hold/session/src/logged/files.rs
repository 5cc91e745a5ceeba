//! What is on record where the daemon stores the content of files one by one, and all else at once
//! (policy `buffer`, docs/buffer.md): what changes the content of a file, until that is stored.
//!
//! All records of a file go at once, so that what is left never is older than what was stored.

use super::Sent;
use crate::message::read;
use crate::session::Session;
use belay_memory::Memory;
use belay_oplog::{Facts, Record};
use belay_recorder::Node;
use belay_recorder::control::Loss;
use belay_wire::abi::{InHeader, SetattrIn, SetattrValid};
use belay_wire::errno::ENOSYS;
use belay_wire::{Opcode, OpcodeSet, Request, get_u64};

/// Requests after which the content of a file may be stored.
pub(crate) const STORING: OpcodeSet =
    OpcodeSet::new(&[Opcode::FLUSH, Opcode::FSYNC, Opcode::RELEASE]);
/// The longest path that is told.
const MAX_DEPTH: usize = 256;
pub(crate) const O_ACCMODE: u32 = 3;

impl<M: Memory> Session<M> {
    /// The daemon gets a request by which it may store a file.
    pub(crate) fn begin_storing(&mut self, request: &Request<'_>) {
        if STORING.has(request.opcode()) && self.buffers_files() {
            self.stores.begin(request.header.unique, request.header.nodeid);
        }
    }

    /// Whether a successful request is on record until its file is stored.
    pub(crate) fn is_held(&self, sent: &Sent<'_>) -> bool {
        match Opcode(sent.header.opcode) {
            Opcode::CREATE => true,
            // Without a handle nothing would be stored later, so it is at once.
            Opcode::WRITE
            | Opcode::FALLOCATE
            | Opcode::OPEN
            | Opcode::SETXATTR
            | Opcode::REMOVEXATTR => self.has_writers(sent.header.nodeid),
            Opcode::SETATTR => {
                let sets = read::<SetattrIn>(sent.body).map(|set| set.valid);
                let file = sent.header.nodeid;
                let cuts = sets.is_some_and(|sets| sets.contains(SetattrValid::SIZE));
                cuts && self.by_release() || self.has_writers(file) && (cuts || self.holds(file))
            }
            _ => false,
        }
    }

    pub(crate) fn holds(&self, file: u64) -> bool {
        self.logged.log().is_some_and(|log| log.holds(file))
    }

    /// Whether a file is open for writing.
    pub(crate) fn has_writers(&self, file: u64) -> bool {
        self.store.node_by_key(file).is_some_and(|node| {
            self.store.opens(node) > 0
                && self.store.live_handles().any(|handle| {
                    let open = self.store.open_description(handle);
                    open.node == node && open.flags & O_ACCMODE != 0
                })
        })
    }

    /// Whether a handle, by the kernel's key, is open for writing.
    fn writes(&self, handle: u64) -> bool {
        let handle = self.store.handle_by_key(handle);
        handle.is_some_and(|handle| self.store.open_description(handle).flags & O_ACCMODE != 0)
    }

    /// The daemon has carried out a request by which it may have stored a file.
    pub(crate) fn note_stored(&mut self, header: &InHeader, body: &[u8], errno: i32) {
        let opcode = Opcode(header.opcode);
        if !self.buffers_files() || !STORING.has(opcode) {
            return;
        }
        let alone = self.stores.end(header.unique);
        let file = header.nodeid;
        let closed = opcode == Opcode::RELEASE && !self.is_open(file);
        if self.logged.is_answering() {
            return;
        }
        if errno != 0 {
            if closed && self.by_close() {
                self.tell_refused(file, errno);
            }
            return;
        }
        let stored = match opcode {
            // All handles were released after what came by them; but a length may have been set by
            // none.
            Opcode::RELEASE => closed && (alone || !self.by_release()),
            Opcode::FLUSH if self.by_close() => false,
            Opcode::FSYNC if self.by_release() => false,
            // All at once: of what came by another handle nobody knows, and by one that only reads
            // nothing need be stored. Both begin with their handle.
            _ => {
                alone
                    && get_u64(body, 0)
                        .is_some_and(|handle| self.writes(handle) && self.came_by(file, handle))
            }
        };
        if stored && (self.holds(file) || self.stores.has_told_unstored(file)) {
            self.drop_stored(file);
        } else if closed {
            self.close_behind(file);
        }
    }

    /// The kernel is not told what a RELEASE comes to: who has written has its success, and will
    /// not hear of this otherwise. What is on record of the file stays there.
    pub(crate) fn tell_refused(&mut self, file: u64, errno: i32) {
        if errno == ENOSYS || !self.holds(file) || self.stores.has_told_most() {
            return;
        }
        if self.stores.tells_undone(file) {
            let (path, why) = (self.path_of(file), std::io::Error::from_raw_os_error(errno));
            let what =
                format!("/{path}: the daemon has failed to store it when it was closed ({why})");
            self.control().lose(Loss::Data, &what);
            self.notice.tell();
        }
    }

    /// What is on record of a file is stored.
    pub(crate) fn drop_stored(&mut self, file: u64) {
        let facts =
            Facts { opcode: Opcode::FLUSH.0, node: file, files: [file, 0], ..Facts::default() };
        // Without room for that it is done again, which changes nothing.
        self.logged.append(&facts, &[], &[], None);
        if !self.holds(file) {
            self.stores.has_stored();
        }
        if let Some(told) = self.stores.take_unstored(file) {
            self.control().lose(Loss::Stored, &told);
            self.notice.tell();
        }
        self.tell_log_sizes();
    }

    /// Whether all that is on record of a file came by one handle.
    pub(crate) fn came_by(&self, file: u64, handle: u64) -> bool {
        let Some(log) = self.logged.log() else { return false };
        log.of_file(file).all(|record| {
            record.is_ok_and(|record| handle_of(&record).is_none_or(|other| other == handle))
        })
    }

    /// Something that was acknowledged is not on record: that is said, once for each file.
    pub(crate) fn tell_unstored(&mut self, file: u64) {
        if self.stores.tells_unstored(file) {
            let what = format!(
                "/{}: the op-log has no room for what was written to it, which is lost if the daemon dies before the file \
                 is closed or synced",
                self.path_of(file)
            );
            self.control().lose(Loss::Unstored, &what);
            self.notice.tell();
            self.stores.note_unstored(file, what);
        }
    }

    /// Where a file is below the mountpoint, for people.
    pub(crate) fn path_of(&self, file: u64) -> String {
        let mut names = Vec::new();
        let mut node = self.store.node_by_key(file);
        while let Some(at) = node.filter(|node| *node != Node::ROOT && names.len() < MAX_DEPTH) {
            let dentry = self.store.dentries(at).next();
            names.push(dentry.map_or(b"?".to_vec(), |dentry| self.store.dentry_name(dentry)));
            node = dentry.map(|dentry| self.store.dentry_parent(dentry));
        }
        names.reverse();
        String::from_utf8_lossy(&names.join(&b'/')).into_owned()
    }

    /// The names that a node has now.
    pub(crate) fn names_now(&self, key: u64) -> Vec<(u64, Vec<u8>)> {
        if !self.buffers_files() {
            return Vec::new();
        }
        let Some(node) = self.store.node_by_key(key) else { return Vec::new() };
        let name = |dentry| {
            (self.store.key(self.store.dentry_parent(dentry)), self.store.dentry_name(dentry))
        };
        self.store.dentries(node).map(name).collect()
    }

    /// The handles that the kernel has closed, and the dead daemon had been told of.
    pub(crate) fn closing(&self) -> Vec<u64> {
        let closes = self
            .store
            .slot_requests()
            .filter(|(_, request)| Opcode(request.opcode) == Opcode::RELEASE);
        closes
            .filter_map(|(slot, _)| {
                let (body, _) = self.store.slot_body(slot);
                get_u64(&body, 0)
            })
            .collect()
    }
}

/// The handle by which a record's request came; `None` if by none.
fn handle_of(record: &Record) -> Option<u64> {
    match Opcode(record.facts.opcode) {
        // Both begin with their handle.
        Opcode::WRITE | Opcode::FALLOCATE => get_u64(&record.body, 0),
        _ => None,
    }
}
