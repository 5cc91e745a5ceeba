//! Inode numbers: applications see one number for a file, whatever the daemon's lives say, and no
//! number for two files.
//!
//! A daemon without numbers of its own (its numbers are its node ids) is given the keys of the
//! nodes. Numbers of others are passed on. Where they mean nothing to the next life
//! ([`Options::VOLATILE_INODES`]), a node that has another one there is *pinned*: applications go
//! on seeing what they saw last. Then the daemon knows nothing of a number that is in use, and may
//! give it to another file, which is given one that is in nobody's use instead.

use crate::flows::flow::Parked;
use crate::flows::restore::missing::Missed;
use crate::flows::step::Step;
use crate::message::read;
use crate::session::Session;
use crate::traffic::entries::{kind_of, may_have_links};
use belay_memory::Memory;
use belay_recorder::control::Options;
use belay_recorder::{InFlight, Node, NodeFlags, Slot};
use belay_wire::{EntryOut, Ids, build};

/// Numbers that belay gives beside a daemon's own: programs with 32 bits for a number can take
/// them.
const SPARE: u64 = 1 << 31;
/// The same, where those are in use.
const LAST_SPARE: u64 = 1 << 61;

impl<M: Memory> Session<M> {
    /// Whether numbers of one life mean nothing in the next.
    pub(crate) fn volatile(&self) -> bool {
        self.life.has(Options::VOLATILE_INODES)
    }

    /// Whether applications see the recorded number of `node`, and not the daemon's.
    pub(crate) fn is_pinned(&self, node: Node) -> bool {
        self.store.node_flags(node).intersects(NodeFlags::INO_IS_ID | NodeFlags::INO_PINNED)
    }

    /// The daemon has the number `own` in this life, and so many links, for a node that an earlier
    /// life knew: applications go on seeing the recorded one. Not if that is another's as well:
    /// then they see that of the daemon, or a spare one. A link of a file that this life has shown
    /// already has the number of that. Part of a change.
    pub(crate) fn pin(&mut self, node: Node, (own, nlink): (u64, u32)) {
        let seen = self.store.ino(node);
        let is_key = self.store.node_flags(node).intersects(NodeFlags::INO_IS_ID);
        if is_key || seen == own && !self.is_pinned(node) {
            return;
        }
        let has_links = self.has_links(node, nlink);
        let is_anothers = |other| {
            // A link of the same file would have the same number in this life, too.
            !has_links
                || self.store.kind(node) != self.store.kind(other)
                || self.store.bound(other, self.life.ids()).is_some()
        };
        if let Some(shown) = self.shown(node, own).filter(|_| has_links) {
            self.store.set_ino(node, shown);
        } else if seen != own && self.store.other_by_ino(node, seen, is_anothers).is_some() {
            let taken = self.is_taken(node, own, nlink);
            self.store.set_ino(node, if taken { self.spare(node) } else { own });
        }
        if self.store.ino(node) == own && !self.is_pinned(node) {
            self.index(node);
        } else {
            self.keep_number(node, own);
        }
    }

    /// Applications see the recorded number of this node, which is `own` for the daemon in this
    /// life, for good.
    fn keep_number(&mut self, node: Node, own: u64) {
        self.store.node_flag(node, NodeFlags::INO_PINNED, true);
        self.store.index_by_ino(node);
        let is_shown = |ino: u64| self.store.other_by_ino(Node::ROOT, ino, |_| true).is_some();
        let (seen, live) = (self.store.ino(node), self.store.nodes_live() as usize);
        self.restored.show((own, seen), live, is_shown);
    }

    /// What applications see of the file that has the number `own` for the daemon in this life, if
    /// this life has shown it already by another node than `node`, of the same kind.
    fn shown(&self, node: Node, own: u64) -> Option<u64> {
        let is_it = |other, pinned| {
            self.store.kind(other) == self.store.kind(node)
                && self.store.bound(other, self.life.ids()).is_some()
                && self.is_pinned(other) == pinned
        };
        let by_another = self.restored.shown(own);
        by_another
            .filter(|shown| self.store.other_by_ino(node, *shown, |o| is_it(o, true)).is_some())
            .or_else(|| self.store.other_by_ino(node, own, |o| is_it(o, false)).map(|_| own))
    }

    /// Whether `node`, of which the daemon says that it has so many links, may be another node's
    /// file.
    fn has_links(&self, node: Node, nlink: u32) -> bool {
        may_have_links(self.store.kind(node), nlink)
    }

    /// A name of a file with several links has turned up, and an earlier life knew another file by
    /// this number, which this life has not met: that one, if they may be one. To be looked up
    /// first, once.
    pub(crate) fn in_question(&self, parent: Node, name: &[u8], entry: &EntryOut) -> Option<Node> {
        let (kind, ino) = (kind_of(entry.attr.mode), entry.attr.ino);
        if self.life.generation() == 0 || !may_have_links(kind, entry.attr.nlink) {
            return None;
        }
        let is_known = |node: Node| self.store.kind(node) == kind;
        let is_old = |node| is_known(node) && self.store.bound(node, self.life.ids()).is_none();
        if self.store.node_by_id(self.life.ids(), entry.nodeid).is_some_and(is_known)
            || self.store.child(parent, name).is_some_and(is_old)
            || self.restored.shown(ino).is_some()
        {
            return None;
        }
        let is_met = |other| is_known(other) && self.store.bound(other, self.life.ids()).is_some();
        let is_unmet = |other| {
            is_known(other)
                && self.store.bound(other, self.life.ids()).is_none()
                && (self.volatile() || self.is_pinned(other))
                && self.store.dentries(other).next().is_some()
                && !self.restored.was_asked(self.store.key(other))
        };
        self.store
            .other_by_ino(Node::ROOT, ino, is_unmet)
            .filter(|_| self.store.other_by_ino(Node::ROOT, ino, is_met).is_none())
    }

    /// The daemon has answered a LOOKUP, and another node is in question: gives whether the request
    /// is put to it again, after that one was looked up.
    pub(crate) fn asks_first(&mut self, unique: u64, slot: Slot, reply: &[u8]) -> bool {
        // Of most entries that tells, without a look at the request.
        let has_links =
            |entry: &EntryOut| may_have_links(kind_of(entry.attr.mode), entry.attr.nlink);
        let entry = (self.life.generation() > 0).then(|| read::<EntryOut>(reply)).flatten();
        let Some(entry) = entry.filter(has_links) else { return false };
        let Some(request) = self.store.slot_request(slot) else { return false };
        let (body, _) = self.store.slot_body(slot);
        let name = body.split(|byte| *byte == 0).next().unwrap_or(&[]);
        let parent = self.store.node_by_key(request.node);
        let Some(other) = parent.and_then(|parent| self.in_question(parent, name, &entry)) else {
            return false;
        };
        let other = self.store.key(other);
        let live = self.store.nodes_live() as usize;
        self.restored.ask(other, live, |key| self.store.node_by_key(key).is_some());
        self.forget_later(vec![(entry.nodeid, 1)]);
        let InFlight { node: nodeid, uid, gid, pid, .. } = request;
        let message = build::lookup(Ids { unique, nodeid, uid, gid, pid }, name);
        self.put_again(unique, message, slot, other);
        true
    }

    /// The other node that is in question is looked up before the request of this task goes to the
    /// daemon again.
    pub(crate) fn first_step(&mut self, parked: &mut Parked) -> Option<Step> {
        let node = self.store.node_by_key(parked.looked.first?);
        let missed = node
            .filter(|node| {
                parked.failed.is_none() && self.store.bound(*node, self.life.ids()).is_none()
            })
            .map(|node| self.restore_node(node));
        if let Some(Missed::Step(step)) = missed {
            return Some(step);
        }
        // Also if it could not be found: that is for those who ask for it.
        parked.looked.first = None;
        (parked.failed, parked.answered) = (None, false);
        None
    }

    /// A number that no other node has, for a node whose daemon has numbers of its own: those count
    /// from low ones up, as keys do.
    fn spare(&self, node: Node) -> u64 {
        let key = self.store.key(node);
        let is_free = |ino: &u64| self.store.other_by_ino(node, *ino, |_| true).is_none();
        [SPARE | key & (SPARE - 1), LAST_SPARE | key].into_iter().find(is_free).unwrap_or(key)
    }

    /// Where numbers of one life mean nothing in the next, nodes are looked for by what
    /// applications see.
    fn index(&self, node: Node) {
        if self.volatile() {
            self.store.index_by_ino(node);
        }
    }

    /// This life's daemon gives a new node with so many links its number. Part of a change.
    pub(crate) fn number(&mut self, node: Node, numbered: bool, nlink: u32) {
        if numbered {
            self.store.set_ino(node, self.store.key(node));
        }
        if numbered || !self.volatile() && self.life.generation() == 0 {
            return self.index(node);
        }
        let own = self.store.ino(node);
        let known = self.shown(node, own).filter(|_| self.has_links(node, nlink));
        if let Some(shown) = known.filter(|shown| *shown != own) {
            self.store.set_ino(node, shown);
            self.keep_number(node, own);
        } else if known.is_none() && self.is_taken(node, own, nlink) {
            self.store.set_ino(node, self.spare(node));
            self.keep_number(node, own);
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
    pub(crate) fn renumber(&mut self, node: Node, ino: u64, nlink: u32) {
        if node == Node::ROOT {
            // It is never looked up, and never renamed: the first number stays.
            let is_taken = self.is_taken(node, ino, nlink);
            self.store.set_ino(node, if is_taken { self.spare(node) } else { ino });
            self.keep_number(node, ino);
        } else if self.is_taken(node, ino, nlink) {
            self.pin(node, (ino, nlink));
        } else {
            self.store.set_ino(node, ino);
            self.index(node);
        }
    }

    /// Whether applications know another node by this number, of which the daemon knows nothing: it
    /// is kept for that one, or will be when this life is asked for it. It may be a link of the
    /// same file, which has that number in this life, too (mergerfs): where that could be asked
    /// ([`Self::in_question`]), it is known.
    fn is_taken(&self, node: Node, ino: u64, nlink: u32) -> bool {
        let has_links = self.has_links(node, nlink);
        let is_taken = |other| {
            let may_be_it = has_links
                && self.store.kind(node) == self.store.kind(other)
                && !self.restored.was_asked(self.store.key(other));
            let is_unmet = self.store.bound(other, self.life.ids()).is_none();
            self.is_pinned(other) || self.volatile() && is_unmet && !may_be_it
        };
        self.store.other_by_ino(node, ino, is_taken).is_some()
    }
}
