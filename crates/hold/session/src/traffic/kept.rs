//! What a daemon keeps to itself of what it has acknowledged, where nobody has said that it does
//! (policy `journal`, chosen by belay): what has left it, as far as its calls are seen, is of no
//! concern here.
//!
//! A file that is open, and of which something is kept, has [`NodeFlags::KEPT`]. A FLUSH, FSYNC or
//! RELEASE takes that away if something left the daemon by it, or by a WRITE since. What is closed
//! and kept all the same, and names, are on a list (`control/kept.rs`). Whatever may have been
//! stored goes from there: all of it when a FLUSH, FSYNC or RELEASE has stored something, since
//! nobody knows what else that was. If the daemon dies, what is left is told.

use crate::message::header_of;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::{Flags, Kept, Loss};
use belay_recorder::{Node, NodeFlags, Slot};
use belay_wire::abi::{RENAME_EXCHANGE, Rename2In, RenameIn, SetattrIn, SetattrValid};
use belay_wire::{Opcode, OpcodeSet, Request};

/// Requests by which a daemon may store what it has kept before.
pub const STORES: OpcodeSet =
    OpcodeSet::new(&[Opcode::FLUSH, Opcode::FSYNC, Opcode::FSYNCDIR, Opcode::RELEASE]);
/// Requests of which something is to leave the daemon.
pub const LEAVES: OpcodeSet = OpcodeSet::new(&[
    Opcode::WRITE,
    Opcode::SETATTR,
    Opcode::CREATE,
    Opcode::MKNOD,
    Opcode::MKDIR,
    Opcode::SYMLINK,
    Opcode::LINK,
    Opcode::RENAME,
    Opcode::RENAME2,
    Opcode::UNLINK,
    Opcode::RMDIR,
]);
/// Those that make a name: nothing of it is lost once that is removed.
const MAKES: OpcodeSet =
    OpcodeSet::new(&[Opcode::CREATE, Opcode::MKNOD, Opcode::MKDIR, Opcode::SYMLINK, Opcode::LINK]);
/// Those about the content of a file.
const CONTENT: OpcodeSet = OpcodeSet::new(&[Opcode::WRITE, Opcode::SETATTR]);
const RENAMES: OpcodeSet = OpcodeSet::new(&[Opcode::RENAME, Opcode::RENAME2]);

/// Paths that are told at a death, one by one: the ring of losses is short.
const TOLD: usize = 10;
const LOST: &str = "what was done to it since it was last stored has died with the daemon, as far as that kept it to itself: \
                    use --policy buffer";

impl<M: Memory> Session<M> {
    /// The daemon answers the request in `slot`, one of [`LEAVES`], and nothing of it was seen to
    /// leave the daemon. Gives whether that counts: a daemon may be asked for what is so already.
    pub fn note_kept(&mut self, slot: Slot) -> bool {
        let Some(sent) = self.store.slot_request(slot) else { return false };
        let body = self.take_body(slot);
        let counts = self.keep(&Request { header: header_of(&sent), body: &body });
        self.put_body(body);
        counts
    }

    fn keep(&mut self, request: &Request<'_>) -> bool {
        let opcode = request.opcode();
        let Some(node) = self.store.node_by_key(request.header.nodeid) else { return false };
        if opcode == Opcode::SETATTR {
            // Whether that is another size than before is not known: it is believed of a daemon
            // only that keeps other things.
            let sets = |set: SetattrIn| set.valid.contains(SetattrValid::SIZE);
            if !request.body_as().is_some_and(sets) || !self.keeps() {
                return false;
            }
        }
        if CONTENT.has(opcode) {
            if self.store.opens(node) > 0 {
                self.set(node, NodeFlags::KEPT, true);
                self.set(node, NodeFlags::LEFT, false);
            } else {
                self.keep_closed(node, opcode);
            }
            return true;
        }
        let names = request.names();
        let Some(first) = names.first else { return false };
        let path = self.path_below(request.header.nodeid, first);
        let mut kept = self.control().kept();
        match opcode {
            Opcode::UNLINK | Opcode::RMDIR => {
                match kept.find(&path) {
                    Some(by) if MAKES.has(Opcode(by)) => {}
                    // It may be one that found no room when it was made: nothing is said in doubt.
                    None if kept.more > 0 => kept.more -= 1,
                    _ => {
                        kept.remove(&path);
                        kept.add(opcode.0, path);
                    }
                }
            }
            Opcode::RENAME | Opcode::RENAME2 => {
                let dir = request.body_as().map(|rename: RenameIn| rename.newdir);
                let (Some(dir), Some(second)) = (dir, names.second) else { return false };
                let to = self.path_below(dir, second);
                let exchanges = |rename: Rename2In| rename.flags & RENAME_EXCHANGE != 0;
                if opcode == Opcode::RENAME2 && request.body_as().is_some_and(exchanges) {
                    kept.add(opcode.0, path);
                    kept.add(opcode.0, to);
                } else if !kept.rename(&path, &to) {
                    kept.add(opcode.0, to);
                }
            }
            _ => kept.add(opcode.0, path),
        }
        self.control().set_kept(&kept);
        true
    }

    /// The daemon answers the WRITE in `slot`, which may be lost with the daemon's connection.
    pub fn note_sent(&mut self, slot: Slot) {
        if let Some(node) = self.store.node_by_key(self.store.slot_node(slot)) {
            self.set(node, NodeFlags::SENT, true);
        }
    }

    /// The daemon answers the request in `slot`, and something may have left the daemon by it: what
    /// it had kept before may be stored.
    pub fn note_left(&mut self, slot: Slot, opcode: Opcode) {
        let node = self.store.node_by_key(self.store.slot_node(slot));
        if opcode == Opcode::WRITE {
            if let Some(node) = node.filter(|node| self.has(*node, NodeFlags::KEPT)) {
                self.set(node, NodeFlags::LEFT, true);
            }
        } else if STORES.has(opcode)
            && let Some(node) = node.filter(|node| !self.stays_open(*node, opcode))
        {
            self.set(node, NodeFlags::KEPT | NodeFlags::LEFT | NodeFlags::SENT, false);
        }
        if self.keeps() {
            let mut kept = self.control().kept();
            kept.clear(|by| {
                let alike = |set: OpcodeSet| set.has(opcode) && set.has(Opcode(by));
                STORES.has(opcode) || by == opcode.0 || alike(CONTENT) || alike(RENAMES)
            });
            self.control().set_kept(&kept);
        }
    }

    /// The daemon answers the request in `slot`, one of [`STORES`], and nothing was seen to leave
    /// the daemon by it.
    pub fn note_nothing_left(&mut self, slot: Slot, opcode: Opcode) {
        let node = self.store.node_by_key(self.store.slot_node(slot));
        let Some(node) = node.filter(|node| !self.stays_open(*node, opcode)) else { return };
        self.set(node, NodeFlags::SENT, false);
        if self.has(node, NodeFlags::LEFT) {
            self.set(node, NodeFlags::KEPT | NodeFlags::LEFT, false);
        }
        if opcode == Opcode::RELEASE && self.has(node, NodeFlags::KEPT) {
            self.set(node, NodeFlags::KEPT, false);
            self.keep_closed(node, Opcode::WRITE);
        }
    }

    /// Whether a request is a RELEASE, and not the last.
    fn stays_open(&self, node: Node, opcode: Opcode) -> bool {
        opcode == Opcode::RELEASE && self.store.opens(node) > 1
    }

    fn keep_closed(&self, node: Node, opcode: Opcode) {
        let gone = NodeFlags::HIDDEN | NodeFlags::UNLINKED;
        if !self.store.node_flags(node).intersects(gone) {
            let mut kept = self.control().kept();
            kept.add(opcode.0, self.path_of(self.store.key(node)).into_bytes());
            self.control().set_kept(&kept);
        }
    }

    /// A name is removed: that it was made is no loss any more. Part of a change.
    pub(crate) fn unkeep(&self, parent: Node, name: &[u8]) {
        if !self.keeps() {
            return;
        }
        let path = self.path_below(self.store.key(parent), name);
        let mut kept = self.control().kept();
        if kept.find(&path).is_some_and(|by| MAKES.has(Opcode(by))) {
            kept.remove(&path);
            self.control().set_kept(&kept);
        }
    }

    /// Whether the daemon was seen to keep something to itself.
    fn keeps(&self) -> bool {
        self.control().has(Flags::KEEPS_WRITES)
    }

    pub(crate) fn path_below(&self, dir: u64, name: &[u8]) -> Vec<u8> {
        let mut path = self.path_of(dir).into_bytes();
        if !path.is_empty() {
            path.push(b'/');
        }
        // As `path_of` gives it.
        path.extend(String::from_utf8_lossy(name).bytes());
        path
    }

    fn has(&self, node: Node, flag: NodeFlags) -> bool {
        self.store.node_flags(node).intersects(flag)
    }

    /// `flags` are one, or are to go.
    fn set(&mut self, node: Node, flags: NodeFlags, to: bool) {
        if self.has(node, flags) != to {
            self.store.begin();
            self.store.node_flag(node, flags, to);
            self.store.commit();
        }
    }

    /// The daemon has died: what it had kept is lost, unless it is not known (`trusted`) what has
    /// left it.
    pub fn end_kept(&mut self, trusted: bool) {
        if !self.keeps() {
            return;
        }
        let mut paths = self.end(NodeFlags::KEPT);
        let kept = self.control().kept();
        self.control().set_kept(&Kept::default());
        if !trusted {
            return;
        }
        for path in kept.list().iter().map(|kept| String::from_utf8_lossy(&kept.path)) {
            if !paths.iter().any(|known| *known == path) {
                paths.push(path.into_owned());
            }
        }
        self.tell_lost(&paths, kept.more as usize, LOST);
    }

    /// The daemon has died, and what it had begun is over: what it had sent is lost if a connection
    /// was `cut` before all of it was answered.
    pub fn end_sent(&mut self, cut: bool) {
        let paths = self.end(NodeFlags::SENT);
        if cut {
            self.tell_lost(
                &paths,
                0,
                "the daemon and its connection broke before its server had confirmed what was written since the last flush: \
                 some of it may be lost (SEMANTICS.md, L43)",
            );
        }
    }

    fn tell_lost(&self, paths: &[String], more: usize, what: &str) {
        let (told, rest) = paths.split_at(paths.len().min(TOLD));
        for path in told {
            self.control().lose(Loss::Data, &format!("/{path}: {what}"));
        }
        let more = more.saturating_add(rest.len());
        if more > 0 {
            self.control().lose(Loss::Data, &format!("{more} more: {what}"));
        }
    }

    /// Takes `flag` from all files that are open. The paths of those that had it.
    fn end(&mut self, flag: NodeFlags) -> Vec<String> {
        let nodes =
            self.store.live_handles().map(|handle| self.store.open_description(handle).node);
        let nodes: Vec<_> = nodes.filter(|node| self.has(*node, flag)).collect();
        let mut paths = Vec::new();
        for node in nodes {
            // It may be open more than once.
            if self.has(node, flag) {
                paths.push(self.path_of(self.store.key(node)));
                self.set(node, flag, false);
            }
        }
        paths
    }
}
