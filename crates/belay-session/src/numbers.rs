//! Inode numbers: applications see one number for a file, whatever the daemon's lives say, and no
//! number for two files.
//!
//! A daemon without numbers of its own (its numbers are its node ids) is given the keys of the
//! nodes. Numbers of others are passed on. Where they mean nothing to the next life
//! ([`options::VOLATILE_INODES`]), a node that has another one there is *pinned*: applications go
//! on seeing what they saw last. Then the daemon knows nothing of a number that is in use, and may
//! give it to another file, which is given its key instead.

use crate::session::Session;
use belay_recorder::control::options;
use belay_recorder::{Memory, Node, node_flags};

impl<M: Memory> Session<M> {
    /// Whether numbers of one life mean nothing in the next.
    pub(crate) fn volatile(&self) -> bool {
        self.options & options::VOLATILE_INODES != 0
    }

    /// Whether applications see the recorded number of `node`, and not the daemon's.
    pub(crate) fn is_pinned(&self, node: Node) -> bool {
        self.store.node_flags(node) & (node_flags::INO_IS_ID | node_flags::INO_PINNED) != 0
    }

    /// Applications go on seeing the recorded number. Part of a change.
    pub(crate) fn pin(&self, node: Node) {
        self.store.node_flag(node, node_flags::INO_PINNED, true);
        self.store.index_by_ino(node);
    }

    /// This life's daemon gives a new node its number. Part of a change.
    pub(crate) fn number(&self, node: Node, numbered: bool) {
        if numbered {
            self.store.set_ino(node, self.store.key(node));
        } else if self.volatile() && self.is_taken(node, self.store.ino(node)) {
            self.store.set_ino(node, self.store.key(node));
            self.pin(node);
        }
    }

    /// Whether [`Self::renumber`] would change anything.
    pub(crate) fn renumbers(&self, node: Node, ino: u64) -> bool {
        self.volatile()
            && node != Node::ROOT
            && !self.is_pinned(node)
            && self.store.ino(node) != ino
    }

    /// The daemon, which knows `node`, shows another number for it than before, as one does that
    /// makes its numbers of paths and has renamed: applications see that from now on, also in the
    /// next life. Part of a change.
    pub(crate) fn renumber(&self, node: Node, ino: u64) {
        if self.is_taken(node, ino) {
            self.pin(node);
        } else {
            self.store.set_ino(node, ino);
        }
    }

    /// Whether applications know another node by this number, of which the daemon knows nothing.
    fn is_taken(&self, node: Node, ino: u64) -> bool {
        self.store.pinned_by_ino(ino).is_some_and(|other| other != node)
    }
}
