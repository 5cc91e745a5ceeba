//! Nodes: what the kernel calls an inode of the mount.
//!
//! The kernel's name of a node, its *key*, is a slot number and a reuse count, given by belay and
//! never by a daemon, so it means the same thing in every generation. While a generation knows
//! the node too, the node is *bound* to that generation's id of it.

mod flags;

pub use flags::NodeFlags;

use crate::index::{Index, hash_bytes};
use crate::layout::NODE_WORDS;
use crate::store::{NODE_FREE, NODE_TOP, NODES_LIVE, Store};
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

/// A node's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub(crate) u32);

impl Node {
    /// The root of the mount; its key and the daemon's id of it are both 1.
    pub const ROOT: Self = Self(1);
}

/// Nodes of one number in the inode-number index. A file is one node in each life: hardly two.
const MOST_OF_A_NUMBER: usize = 64;

const ID: usize = 0; // the daemon's id, or the next free slot
const BORN: usize = 1; // generation of the id | reuse count
const COUNT: usize = 2; // lookups that the kernel holds
const DAEMON_COUNT: usize = 3; // lookups that the bound generation holds
const INO: usize = 4; // inode number as applications saw it
const LINKS: usize = 5; // next by id | first dentry
const STATE: usize = 6; // children | flags
const OPEN: usize = 7; // open handles | next by ino

/// Position of the file type among the flags.
const KIND_SHIFT: u32 = 8;

/// The flags in the word of a record that has them.
#[inline]
fn flags(state: u64) -> NodeFlags {
    NodeFlags::from_bits_retain(low(state))
}

impl<M: Memory> Store<M> {
    #[inline]
    fn node(&self, node: Node) -> usize {
        self.layout.nodes + node.0 as usize * NODE_WORDS
    }

    pub(crate) fn format_root(&self) {
        let at = self.node(Node::ROOT);
        self.set(at + COUNT, 1);
        self.set(at + INO, 1);
        self.set(at + STATE, pair(0, NodeFlags::LIVE.bits() | (4 << KIND_SHIFT)));
    }

    /// The node that the kernel calls `key`.
    #[inline]
    pub fn node_by_key(&self, key: u64) -> Option<Node> {
        let node = Node(low(key));
        let [born, state] = self.memory.load_fields(self.node(node), [BORN, STATE]);
        (self.is_below_top(node)
            && flags(state).contains(NodeFlags::LIVE)
            && low(born) == high(key))
        .then_some(node)
    }

    #[inline]
    fn is_below_top(&self, node: Node) -> bool {
        self.below_top(node.0, &self.tops.nodes, NODE_TOP, self.layout.capacity.nodes)
    }

    /// The node that the kernel calls `key`, and what `generation` calls it: [`Store::node_by_key`]
    /// and [`Store::bound`] in one look at the record, for every request asks this.
    ///
    /// # Errors
    /// The node, if the generation does not know it; `None` if there is none of that key.
    #[inline]
    pub fn id_by_key(&self, key: u64, generation: u32) -> Result<(Node, u64), Option<Node>> {
        let node = Node(low(key));
        let [id, born, state] = self.memory.load_fields(self.node(node), [ID, BORN, STATE]);
        if !self.is_below_top(node)
            || !flags(state).contains(NodeFlags::LIVE)
            || low(born) != high(key)
        {
            return Err(None);
        }
        if node == Node::ROOT {
            return Ok((node, 1));
        }
        let is_bound = flags(state).contains(NodeFlags::BOUND) && high(born) == generation;
        if is_bound { Ok((node, id)) } else { Err(Some(node)) }
    }

    /// The kernel's name of a node.
    #[inline]
    pub fn key(&self, node: Node) -> u64 {
        pair(low(self.word(self.node(node) + BORN)), node.0)
    }

    /// The id of `node` in `generation`, if that generation knows it.
    #[inline]
    pub fn bound(&self, node: Node, generation: u32) -> Option<u64> {
        if node == Node::ROOT {
            return Some(1);
        }
        let at = self.node(node);
        (flags(self.word(at + STATE)).contains(NodeFlags::BOUND)
            && high(self.word(at + BORN)) == generation)
            .then(|| self.word(at + ID))
    }

    /// The node that `generation` calls `id`.
    pub fn node_by_id(&self, generation: u32, id: u64) -> Option<Node> {
        if id == 1 {
            return Some(Node::ROOT);
        }
        self.index_find(Index::Id, id_hash(generation, id), |item| {
            self.bound(Node(item), generation) == Some(id)
        })
        .map(Node)
    }

    /// A live node in the inode-number index with number `ino` and file type `kind`, that
    /// `generation` does not know yet. The number is the daemon's, and not one that was kept for
    /// applications alone.
    pub fn unbound_by_ino(&self, generation: u32, ino: u64, kind: u32) -> Option<Node> {
        self.index_find(Index::Ino, ino_hash(ino), |item| {
            let node = Node(item);
            self.ino(node) == ino
                && self.kind(node) == kind
                && !self.node_flags(node).contains(NodeFlags::INO_PINNED)
                && self.bound(node, generation).is_none()
        })
        .map(Node)
    }

    /// A live node in the inode-number index with this number that is not `node`, and that counts.
    pub fn other_by_ino(
        &self,
        node: Node,
        ino: u64,
        counts: impl Fn(Node) -> bool,
    ) -> Option<Node> {
        self.index_find(Index::Ino, ino_hash(ino), |item| {
            let other = Node(item);
            other != node && self.ino(other) == ino && counts(other)
        })
        .map(Node)
    }

    /// Makes a node of file type `kind` (`mode >> 12`). `None` if the store is full.
    pub fn node_new(&self, kind: u32, ino: u64, flags: NodeFlags) -> Option<Node> {
        let free = self.header(NODE_FREE);
        let slot = if free != 0 {
            let slot = u32::try_from(free).ok()?;
            self.put(NODE_FREE, self.word(self.node(Node(slot)) + ID));
            slot
        } else {
            let top = self.header(NODE_TOP);
            if top as usize >= self.layout.capacity.nodes {
                return None;
            }
            self.put(NODE_TOP, top + 1);
            u32::try_from(top).ok()?
        };
        let node = Node(slot);
        let at = self.node(node);
        for (field, value) in [(COUNT, 0), (DAEMON_COUNT, 0), (INO, ino), (LINKS, 0), (OPEN, 0)] {
            self.init(at + field, value);
        }
        self.set(
            at + STATE,
            pair(0, (NodeFlags::LIVE | flags).bits() | ((kind & 15) << KIND_SHIFT)),
        );
        self.adjust(NODES_LIVE, 1);
        Some(node)
    }

    /// Binds `node` to `generation`'s `id`, with no lookups held yet.
    pub fn bind(&self, node: Node, generation: u32, id: u64) {
        if node == Node::ROOT {
            return;
        }
        let at = self.node(node);
        if self.node_flags(node).contains(NodeFlags::BY_ID) {
            self.index_remove(Index::Id, node.0);
        }
        self.set(at + ID, id);
        self.set_high(at + BORN, generation);
        self.set(at + DAEMON_COUNT, 0);
        self.node_flag(node, NodeFlags::BOUND | NodeFlags::BY_ID, true);
        self.index_insert(Index::Id, node.0);
    }

    /// The daemon knows `node` no longer.
    pub fn unbind(&self, node: Node) {
        self.node_flag(node, NodeFlags::BOUND, false);
    }

    /// Frees a node that nothing refers to; the session decides when.
    pub(crate) fn node_free(&self, node: Node) {
        let at = self.node(node);
        let flags = self.node_flags(node);
        self.freed.set(true);
        if flags.contains(NodeFlags::BY_ID) {
            self.index_remove(Index::Id, node.0);
        }
        if flags.contains(NodeFlags::BY_INO) {
            self.index_remove(Index::Ino, node.0);
        }
        self.set(at + STATE, 0);
        self.set_low(at + BORN, low(self.word(at + BORN)).wrapping_add(1));
        self.set(at + ID, self.header(NODE_FREE));
        self.put(NODE_FREE, u64::from(node.0));
        self.adjust(NODES_LIVE, -1);
    }

    /// How many nodes there are besides the root.
    pub fn nodes_live(&self) -> u64 {
        self.header(NODES_LIVE)
    }

    /// Puts a node into the inode-number index, unless so many are in it under this number that it
    /// tells no file from another.
    pub fn index_by_ino(&self, node: Node) {
        if !self.node_flags(node).contains(NodeFlags::BY_INO) && !self.is_crowded(self.ino(node)) {
            self.node_flag(node, NodeFlags::BY_INO, true);
            self.index_insert(Index::Ino, node.0);
        }
    }

    /// Whether no more nodes of this number are indexed: some daemons show one for all files.
    fn is_crowded(&self, ino: u64) -> bool {
        let same = |item| self.ino(Node(item)) == ino;
        self.index_count(Index::Ino, ino_hash(ino), MOST_OF_A_NUMBER, same) >= MOST_OF_A_NUMBER
    }

    /// Lookups that the kernel holds.
    pub fn count(&self, node: Node) -> u64 {
        self.word(self.node(node) + COUNT)
    }

    /// Sets the lookups that the kernel holds.
    pub fn set_count(&self, node: Node, count: u64) {
        self.set(self.node(node) + COUNT, count);
    }

    /// Lookups that the bound generation holds.
    pub fn daemon_count(&self, node: Node) -> u64 {
        self.word(self.node(node) + DAEMON_COUNT)
    }

    /// Sets the lookups that the bound generation holds.
    pub fn set_daemon_count(&self, node: Node, count: u64) {
        self.set(self.node(node) + DAEMON_COUNT, count);
    }

    /// Counts a lookup of the bound generation. Others can write to it: it may be at its end.
    pub fn count_for_daemon(&self, node: Node) {
        self.set_daemon_count(node, self.daemon_count(node).saturating_add(1));
    }

    /// Adds lookups of the bound generation that nobody else counts. One store, which may come at
    /// any moment, also in a change: the count means nothing to another generation.
    pub fn add_daemon_count(&self, node: Node, more: u64) {
        let count = self.daemon_count(node).saturating_add(more);
        self.memory().store(self.node(node) + DAEMON_COUNT, count);
    }

    /// Counts a lookup of the kernel.
    pub fn count_for_kernel(&self, node: Node) {
        self.set_count(node, self.count(node).saturating_add(1));
    }

    /// Inode number as applications saw it.
    pub fn ino(&self, node: Node) -> u64 {
        self.word(self.node(node) + INO)
    }

    /// Changes the inode number.
    pub fn set_ino(&self, node: Node, ino: u64) {
        let indexed = self.node_flags(node).contains(NodeFlags::BY_INO);
        if indexed {
            self.index_remove(Index::Ino, node.0);
            self.node_flag(node, NodeFlags::BY_INO, false);
        }
        self.set(self.node(node) + INO, ino);
        if indexed {
            self.index_by_ino(node);
        }
    }

    /// File type, `mode >> 12`.
    pub fn kind(&self, node: Node) -> u32 {
        (self.node_flags(node).bits() >> KIND_SHIFT) & 15
    }

    /// The nodes there are, in no order that means something.
    pub fn some_nodes(&self) -> impl Iterator<Item = Node> + '_ {
        let top = u32::try_from(self.header(NODE_TOP)).unwrap_or(0);
        let top = top.min(self.layout.capacity.nodes as u32);
        (2..top).map(Node).filter(|node| self.node_flags(*node).contains(NodeFlags::LIVE))
    }

    /// The key of a regular file that the kernel knows, if one is found soon: one that is open, if
    /// there is one, as what is not may just have been forgotten.
    pub fn some_file(&self) -> Option<u64> {
        /// S_IFREG >> 12.
        const FILE: u32 = 8;
        const LOOKS: u32 = 4096;
        let top = u32::try_from(self.header(NODE_TOP)).unwrap_or(0);
        let top = top.min(self.layout.capacity.nodes as u32).min(LOOKS);
        let known = |node: &Node| {
            self.node_flags(*node).contains(NodeFlags::LIVE)
                && self.kind(*node) == FILE
                && self.count(*node) > 0
        };
        let mut files = (0..top).map(Node).filter(known);
        let some = files.next()?;
        let is_open = |node: &Node| self.opens(*node) > 0;
        let open = Some(some).filter(is_open).or_else(|| files.find(is_open));
        Some(self.key(open.unwrap_or(some)))
    }

    /// Flags, see [`NodeFlags`].
    pub fn node_flags(&self, node: Node) -> NodeFlags {
        flags(self.word(self.node(node) + STATE))
    }

    /// Sets or clears flags.
    pub fn node_flag(&self, node: Node, bits: NodeFlags, on: bool) {
        let flags = self.node_flags(node).bits();
        let flags = if on { flags | bits.bits() } else { flags & !bits.bits() };
        self.set_low(self.node(node) + STATE, flags);
    }

    /// Dentries below this node.
    pub fn children(&self, node: Node) -> u32 {
        high(self.word(self.node(node) + STATE))
    }

    pub(crate) fn set_children(&self, node: Node, children: u32) {
        self.set_high(self.node(node) + STATE, children);
    }

    /// Open handles.
    pub fn opens(&self, node: Node) -> u32 {
        high(self.word(self.node(node) + OPEN))
    }

    pub(crate) fn set_opens(&self, node: Node, opens: u32) {
        self.set_high(self.node(node) + OPEN, opens);
    }

    pub(crate) fn first_dentry(&self, node: Node) -> u32 {
        low(self.word(self.node(node) + LINKS))
    }

    pub(crate) fn set_first_dentry(&self, node: Node, dentry: u32) {
        self.set_low(self.node(node) + LINKS, dentry);
    }

    pub(crate) fn node_next_by_id(&self, item: u32) -> u32 {
        high(self.word(self.node(Node(item)) + LINKS))
    }

    pub(crate) fn set_node_next_by_id(&self, item: u32, next: u32) {
        self.set_high(self.node(Node(item)) + LINKS, next);
    }

    pub(crate) fn node_next_by_ino(&self, item: u32) -> u32 {
        low(self.word(self.node(Node(item)) + OPEN))
    }

    pub(crate) fn set_node_next_by_ino(&self, item: u32, next: u32) {
        self.set_low(self.node(Node(item)) + OPEN, next);
    }

    pub(crate) fn node_id_hash(&self, item: u32) -> u32 {
        let at = self.node(Node(item));
        id_hash(high(self.word(at + BORN)), self.word(at + ID))
    }

    pub(crate) fn node_ino_hash(&self, item: u32) -> u32 {
        ino_hash(self.ino(Node(item)))
    }
}

fn id_hash(generation: u32, id: u64) -> u32 {
    hash_bytes(u64::from(generation) + 1, &id.to_ne_bytes())
}

fn ino_hash(ino: u64) -> u32 {
    hash_bytes(0, &ino.to_ne_bytes())
}
