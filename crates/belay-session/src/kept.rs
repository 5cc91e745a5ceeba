//! What a daemon keeps to itself of what it was given to write, where nobody has said that it does (policy `journal`, chosen
//! by belay): what has left it, as far as its calls are seen, is of no concern here.
//!
//! A file of which something is kept has [`node_flags::KEPT`] until the daemon has carried out a FLUSH or FSYNC of it, or the
//! last RELEASE: these are taken at their word. If the daemon dies before, it is told.

use crate::session::Session;
use belay_recorder::control::{Loss, flags};
use belay_recorder::{Memory, Node, Slot, node_flags};
use belay_wire::Opcode;

impl<M: Memory> Session<M> {
    /// The daemon answers the WRITE in `slot`, and nothing of it was seen to leave the daemon.
    pub fn note_kept(&mut self, slot: Slot) {
        self.mark(slot, node_flags::KEPT);
    }

    /// The daemon answers the WRITE in `slot`, which may be lost with the daemon's connection.
    pub fn note_sent(&mut self, slot: Slot) {
        self.mark(slot, node_flags::SENT);
    }

    fn mark(&mut self, slot: Slot, flag: u32) {
        if let Some(node) = self.store.node_by_key(self.store.slot_node(slot)) {
            self.set(node, flag, true);
        }
    }

    /// The daemon has carried out the request in `slot`, by which it may have stored a file.
    pub fn note_unkept(&mut self, slot: Slot, opcode: Opcode) {
        let node = self.store.node_by_key(self.store.slot_node(slot));
        let stored = |node: &Node| opcode != Opcode::RELEASE || self.store.opens(*node) <= 1;
        if let Some(node) = node.filter(stored) {
            self.set(node, node_flags::KEPT, false);
            self.set(node, node_flags::SENT, false);
        }
    }

    fn has(&self, node: Node, flag: u32) -> bool {
        self.store.node_flags(node) & flag != 0
    }

    fn set(&mut self, node: Node, flag: u32, to: bool) {
        if self.has(node, flag) != to {
            self.store.begin();
            self.store.node_flag(node, flag, to);
            self.store.commit();
        }
    }

    /// The daemon has died: what it had kept is lost, unless it is not known (`trusted`) what has left it.
    pub fn end_kept(&mut self, trusted: bool) {
        if !self.control().has(flags::KEEPS_WRITES) {
            return;
        }
        self.end(
            node_flags::KEPT,
            trusted,
            "what was written since it was last flushed has died with the daemon, as far as that kept it to itself: use \
             --policy buffer",
        );
    }

    /// The daemon has died, and what it had begun is over: what it had sent is lost if a connection was `cut` before all of
    /// it was answered.
    pub fn end_sent(&mut self, cut: bool) {
        self.end(
            node_flags::SENT,
            cut,
            "the daemon and its connection broke before its server had confirmed what was written since the last flush: \
             some of it may be lost (SEMANTICS.md, L43)",
        );
    }

    /// Takes `flag` from all files that are open, each of which has lost what `what` says, if anything is `lost`.
    fn end(&mut self, flag: u32, lost: bool, what: &str) {
        let nodes = self.store.live_handles().map(|handle| self.store.open_facts(handle).node);
        let nodes: Vec<_> = nodes.filter(|node| self.has(*node, flag)).collect();
        for node in nodes {
            // It may be open more than once.
            if lost && self.has(node, flag) {
                let path = self.path_of(self.store.key(node));
                self.control().lose(Loss::Data, &format!("/{path}: {what}"));
            }
            self.set(node, flag, false);
        }
    }
}
