//! What a record says of its request: who is concerned, where that is, what becomes of names.

use super::{Change, Sent};
use crate::message::{COUNTED, count_of, read, target_dir};
use crate::parts::hidden::is_hidden_name;
use crate::session::Session;
use belay_memory::Memory;
use belay_oplog::{EVERY_FILE, Entry, Facts, NameChange};
use belay_recorder::control::Flags;
use belay_recorder::{Dentry, Node};
use belay_wire::abi::{CopyFileRangeIn, InHeader, LinkIn, RENAME_EXCHANGE, Rename2In};
use belay_wire::{EntryOut, Opcode, Request, Unique};
use smallvec::SmallVec;

/// The bit of a file's number that is an inode number.
const INODE: u64 = 1 << 62;
/// The longest path to a node.
const MAX_DEPTH: usize = 4096;

/// What a request finds, as far as its record needs it; to be asked for before it is applied.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// The names of its nodes.
    pub(crate) names: Vec<NameChange<'static>>,
    /// What it makes of names, if that is known beforehand.
    pub(crate) changes: Vec<Change>,
    /// What the name that it makes meant.
    pub(crate) name: u64,
}

impl<M: Memory> Session<M> {
    pub(crate) fn facts(&self, sent: &Sent<'_>, reply: &[u8], time: u64) -> Facts {
        let header = sent.header;
        let opcode = Opcode(header.opcode);
        let entry = belay_wire::is_entry_reply(opcode)
            .then(|| reply.get(belay_wire::ENTRY_OFFSET..).and_then(read::<EntryOut>))
            .flatten();
        let size = match opcode {
            opcode if COUNTED.has(opcode) => count_of(opcode, reply),
            _ => sent.sake,
        };
        let entry = entry.map_or(Entry::default(), |entry| Entry {
            key: entry.nodeid,
            ino: entry.attr.ino,
            mode: entry.attr.mode,
        });
        // It may have been there, and been cut; or have the number of a file that is gone.
        let files = match opcode {
            Opcode::CREATE if self.buffers_files() => [entry.key, 0],
            _ if self.buffers_files() => [header.nodeid, 0],
            Opcode::CREATE | Opcode::MKNOD => self.file_of(entry.key),
            _ => self.files_of(sent),
        };
        Facts {
            unique: Unique::unmarked(header.unique),
            opcode: header.opcode,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            time,
            node: header.nodeid,
            files,
            errno: 0,
            size,
            entry,
        }
    }

    /// Which files' data or times a request changes.
    fn files_of(&self, sent: &Sent<'_>) -> [u64; 2] {
        let header = sent.header;
        match Opcode(header.opcode) {
            Opcode::WRITE
            | Opcode::SETATTR
            | Opcode::OPEN
            | Opcode::FALLOCATE
            | Opcode::SETXATTR
            | Opcode::REMOVEXATTR
            | Opcode::IOCTL => self.file_of(header.nodeid),
            Opcode::COPY_FILE_RANGE | Opcode::COPY_FILE_RANGE_64 => {
                let to = read::<CopyFileRangeIn>(sent.body).map_or(0, |copy| copy.nodeid_out);
                match (self.file_of(header.nodeid), self.file_of(to)) {
                    ([from, 0], [to, 0]) => [from, to],
                    _ => [EVERY_FILE, 0],
                }
            }
            Opcode::LINK => {
                self.file_of(read::<LinkIn>(sent.body).map_or(0, |link| link.oldnodeid))
            }
            // Names come and go; what a file holds, and when it was written, stays.
            _ => [0, 0],
        }
    }

    /// The number of the file that a node is, the same for all of its links: its inode number, if
    /// the daemon has such.
    fn file_of(&self, key: u64) -> [u64; 2] {
        let node = self.store.node_by_key(key).filter(|node| !self.is_pinned(*node));
        match node.filter(|_| self.control().has(Flags::OWN_INODES)) {
            Some(node) => [self.store.ino(node) | INODE, 0],
            // Another node may be the same file: what is between is not to be passed over.
            None if self.control().has(Flags::LINKS_APART) => [key, EVERY_FILE],
            None => [key, 0],
        }
    }

    /// The names of the nodes that a request speaks of, as far as the log does not say so yet.
    pub(crate) fn names_of(&self, sent: &Sent<'_>) -> Vec<NameChange<'static>> {
        let request = Request { header: *sent.header, body: sent.body };
        let mut keys = SmallVec::<[u64; 4]>::new();
        keys.push(request.header.nodeid);
        keys.extend(target_dir(&request));
        match request.opcode() {
            Opcode::LINK => keys.extend(request.body_as::<LinkIn>().map(|link| link.oldnodeid)),
            Opcode::COPY_FILE_RANGE | Opcode::COPY_FILE_RANGE_64 => {
                keys.extend(request.body_as::<CopyFileRangeIn>().map(|copy| copy.nodeid_out));
            }
            _ => {}
        }
        let mut names = Vec::new();
        for key in keys {
            let mut node = self.store.node_by_key(key);
            for _ in 0..MAX_DEPTH {
                let Some(at) = node.filter(|node| *node != Node::ROOT) else { break };
                let key = self.store.key(at);
                if self.logged.has_placed(key) {
                    break;
                }
                // A hidden name may be one that is only about to be made.
                let visible = |dentry: &Dentry| !is_hidden_name(&self.store.dentry_name(*dentry));
                let dentry = self.store.dentries(at).find(visible);
                let Some(dentry) = dentry.or_else(|| self.store.dentries(at).next()) else { break };
                let parent = self.store.dentry_parent(dentry);
                names.push(NameChange {
                    parent: self.store.key(parent),
                    name: self.store.dentry_name(dentry).into(),
                    before: key,
                    after: key,
                });
                node = Some(parent);
            }
        }
        names
    }

    /// The key of what a name means, 0 for nothing.
    pub(crate) fn key_of_name(&self, parent: Node, name: &[u8]) -> u64 {
        self.store.child(parent, name).map_or(0, |node| self.store.key(node))
    }

    /// What a request of the kernel makes of names; to be asked before it is applied.
    fn changes_of(&self, header: &InHeader, body: &[u8]) -> Vec<Change> {
        if !self.logged.is_kept() {
            return Vec::new();
        }
        let request = Request { header: *header, body };
        let names = request.names();
        let (Some(parent), Some(first)) = (self.store.node_by_key(header.nodeid), names.first)
        else {
            return Vec::new();
        };
        let before = self.key_of_name(parent, first);
        let change = |after| (header.nodeid, first.to_vec(), before, after);
        match request.opcode() {
            Opcode::UNLINK | Opcode::RMDIR => vec![change(0)],
            Opcode::RENAME | Opcode::RENAME2 => {
                let Some(to) = target_dir(&request) else { return Vec::new() };
                let second = names.second.unwrap_or_default();
                let over = self.store.node_by_key(to).map_or(0, |to| self.key_of_name(to, second));
                let exchanges = request.opcode() == Opcode::RENAME2
                    && read::<Rename2In>(body)
                        .is_some_and(|rename| rename.flags & RENAME_EXCHANGE != 0);
                if before == over {
                    return Vec::new(); // two links of one file
                }
                let left = if exchanges { over } else { 0 };
                vec![(to, second.to_vec(), over, before), change(left)]
            }
            // What is made is known by the reply.
            _ => Vec::new(),
        }
    }

    /// The name that a request has made, once it is known as what.
    pub(crate) fn made(
        &self,
        header: &InHeader,
        body: &[u8],
        reply: &[u8],
        before: u64,
    ) -> Option<Change> {
        let request = Request { header: *header, body };
        let makes =
            belay_wire::is_entry_reply(request.opcode()) && request.opcode() != Opcode::LOOKUP;
        let entry = reply.get(belay_wire::ENTRY_OFFSET..).and_then(read::<EntryOut>)?;
        let name = request.names().first?;
        let by_names = self.logged.is_kept() && !self.buffers_files();
        (makes && by_names).then(|| (header.nodeid, name.to_vec(), before, entry.nodeid))
    }

    /// What a request finds.
    pub(crate) fn before_change(&self, header: &InHeader, body: &[u8]) -> Before {
        let sent = Sent { header, body, sake: 0 };
        // Files are found by the names that they have now.
        if !self.logged.is_kept() || self.buffers_files() || !self.is_logged(&sent) {
            return Before::default();
        }
        let request = Request { header: *header, body };
        let name = match (self.store.node_by_key(header.nodeid), request.names().first) {
            (Some(parent), Some(name)) => self.key_of_name(parent, name),
            _ => 0,
        };
        Before { names: self.names_of(&sent), changes: self.changes_of(header, body), name }
    }
}
