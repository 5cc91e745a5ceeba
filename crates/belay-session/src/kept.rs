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
        if let Some(node) = self.store.node_by_key(self.store.slot_node(slot)) {
            self.set_kept(node, true);
        }
    }

    /// The daemon has carried out the request in `slot`, by which it may have stored a file.
    pub fn note_unkept(&mut self, slot: Slot, opcode: Opcode) {
        let node = self.store.node_by_key(self.store.slot_node(slot));
        let stored = |node: &Node| opcode != Opcode::RELEASE || self.store.opens(*node) <= 1;
        if let Some(node) = node.filter(stored) {
            self.set_kept(node, false);
        }
    }

    fn is_kept(&self, node: Node) -> bool {
        self.store.node_flags(node) & node_flags::KEPT != 0
    }

    fn set_kept(&mut self, node: Node, kept: bool) {
        if self.is_kept(node) != kept {
            self.store.begin();
            self.store.node_flag(node, node_flags::KEPT, kept);
            self.store.commit();
        }
    }

    /// The daemon has died: what it had kept is lost, unless it is not known (`trusted`) what has left it.
    pub fn end_kept(&mut self, trusted: bool) {
        if !self.control().has(flags::KEEPS_WRITES) {
            return;
        }
        let nodes = self.store.live_handles().map(|handle| self.store.open_facts(handle).node);
        let nodes: Vec<_> = nodes.filter(|node| self.is_kept(*node)).collect();
        for node in nodes {
            // It may be open more than once.
            if trusted && self.is_kept(node) {
                let path = self.path_of(self.store.key(node));
                self.control().lose(
                    Loss::Data,
                    &format!(
                        "/{path}: what was written since it was last flushed has died with the daemon, as far as that kept \
                         it to itself: use --policy buffer"
                    ),
                );
            }
            self.set_kept(node, false);
        }
    }
}
