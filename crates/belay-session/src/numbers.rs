//! Inode numbers: applications see one number for a file, whatever the daemon's lives say, and no
//! number for two files.
//!
//! A daemon without numbers of its own (its numbers are its node ids) is given the keys of the
//! nodes. Numbers of others are passed on. Where they mean nothing to the next life
//! ([`options::VOLATILE_INODES`]), a node that has another one there is *pinned*: applications go
//! on seeing what they saw last. Then the daemon knows nothing of a number that is in use, and may
//! give it to another file, which is given one that is in nobody's use instead.

use crate::entries::DIRECTORY;
use crate::session::Session;
use belay_recorder::control::options;
use belay_recorder::{Memory, Node, node_flags};

/// Numbers that belay gives beside a daemon's own: programs with 32 bits for a number can take them.
const SPARE: u64 = 1 << 31;
/// The same, where those are in use.
const LAST_SPARE: u64 = 1 << 61;

impl<M: Memory> Session<M> {
    /// Whether numbers of one life mean nothing in the next.
    pub(crate) fn volatile(&self) -> bool {
        self.options & options::VOLATILE_INODES != 0
    }

    /// Whether applications see the recorded number of `node`, and not the daemon's.
    pub(crate) fn is_pinned(&self, node: Node) -> bool {
        self.store.node_flags(node) & (node_flags::INO_IS_ID | node_flags::INO_PINNED) != 0
    }

    /// Applications go on seeing the recorded number of a node for which the daemon has the number `own` now, and so many links,
    /// unless the recorded one is another's as well: then they see that of the daemon, or a spare one. Part of a change.
    pub(crate) fn pin(&self, node: Node, (own, nlink): (u64, u32)) {
        // A link of the same file would have the same number in this life, too.
        let is_anothers = |other| {
            !self.may_be_links(node, other, nlink)
                || !self.is_pinned(other) && self.store.bound(other, self.generation).is_some()
        };
        if self.store.other_by_ino(node, self.store.ino(node), is_anothers).is_some() {
            if !self.is_taken(node, own, nlink) {
                self.store.set_ino(node, own);
                self.index(node);
                return;
            }
            self.store.set_ino(node, self.spare(node));
        }
        self.keep_number(node);
    }

    fn keep_number(&self, node: Node) {
        self.store.node_flag(node, node_flags::INO_PINNED, true);
        self.store.index_by_ino(node);
    }

    /// Whether `other` may be a link of the same file as `node`, which has so many.
    fn may_be_links(&self, node: Node, other: Node, nlink: u32) -> bool {
        let kind = self.store.kind(node);
        nlink > 1 && kind != DIRECTORY && kind == self.store.kind(other)
    }

    /// A number that no other node has, for a node whose daemon has numbers of its own: those count from low ones up, as keys do.
    fn spare(&self, node: Node) -> u64 {
        let key = self.store.key(node);
        let is_free = |ino: &u64| self.store.other_by_ino(node, *ino, |_| true).is_none();
        [SPARE | key & (SPARE - 1), LAST_SPARE | key].into_iter().find(is_free).unwrap_or(key)
    }

    /// Where numbers of one life mean nothing in the next, nodes are looked for by what applications see.
    fn index(&self, node: Node) {
        if self.volatile() {
            self.store.index_by_ino(node);
        }
    }

    /// This life's daemon gives a new node with so many links its number. Part of a change.
    pub(crate) fn number(&self, node: Node, numbered: bool, nlink: u32) {
        if numbered {
            self.store.set_ino(node, self.store.key(node));
            self.index(node);
        } else if self.volatile() && self.is_taken(node, self.store.ino(node), nlink) {
            self.store.set_ino(node, self.spare(node));
            self.keep_number(node);
        } else {
            self.index(node);
        }
    }

    /// Whether [`Self::renumber`] would change anything.
    pub(crate) fn renumbers(&self, node: Node, ino: u64) -> bool {
        self.volatile()
            && !self.is_pinned(node)
            && (self.store.ino(node) != ino || node == Node::ROOT)
    }

    /// The daemon, which knows `node`, shows another number for it than before, as one does that
    /// makes its numbers of paths and has renamed: applications see that from now on, also in the
    /// next life. Part of a change.
    pub(crate) fn renumber(&self, node: Node, ino: u64, nlink: u32) {
        if node == Node::ROOT {
            // It is never looked up, and never renamed: the first number stays.
            let is_taken = self.is_taken(node, ino, nlink);
            self.store.set_ino(node, if is_taken { self.spare(node) } else { ino });
            self.keep_number(node);
        } else if self.is_taken(node, ino, nlink) {
            self.pin(node, (ino, nlink));
        } else {
            self.store.set_ino(node, ino);
            self.index(node);
        }
    }

    /// Whether applications know another node by this number, of which the daemon knows nothing: it is kept for that one, or will be
    /// when this life is asked for it. It may be a link of the same file, which has that number in this life, too (mergerfs).
    fn is_taken(&self, node: Node, ino: u64, nlink: u32) -> bool {
        let is_taken = |other| {
            self.is_pinned(other)
                || self.store.bound(other, self.generation).is_none()
                    && !self.may_be_links(node, other, nlink)
        };
        self.store.other_by_ino(node, ino, is_taken).is_some()
    }
}
