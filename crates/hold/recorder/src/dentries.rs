//! Dentries: under which names the kernel has seen a node. They are the way back to it.

use crate::index::{Index, hash_bytes};
use crate::nodes::{Node, NodeFlags};
use crate::store::Store;
use belay_memory::Memory;
use belay_memory::words::{high, low, pair, tail};

const ENDS: usize = 0; // parent | node
const NEXT: usize = 1; // next in the index | next of the node
const KEY: usize = 2; // hash | length of the name
/// Words before the name.
pub(crate) const NAME: usize = 3;
/// The longest name that FUSE passes on (FUSE_NAME_MAX, fs/fuse/fuse_i.h).
pub const MAX_NAME: usize = 1024;

/// A dentry's place in the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry(u32);

impl<M: Memory> Store<M> {
    fn dentry(&self, dentry: u32) -> usize {
        self.block(dentry)
    }

    fn name_is(&self, item: u32, name: &[u8]) -> bool {
        let at = self.dentry(item) + NAME;
        let (whole, rest) = name.as_chunks::<8>();
        whole.iter().enumerate().all(|(i, chunk)| self.word(at + i) == u64::from_ne_bytes(*chunk))
            && (rest.is_empty() || self.word(at + whole.len()) == tail(rest))
    }

    /// The dentry `name` in `parent`.
    pub fn dentry_find(&self, parent: Node, name: &[u8]) -> Option<Dentry> {
        let hash = hash_bytes(u64::from(parent.0), name);
        self.index_find(Index::Name, hash, |item| {
            let at = self.dentry(item);
            high(self.word(at + ENDS)) == parent.0
                && self.word(at + KEY) == pair(hash, name.len() as u32)
                && self.name_is(item, name)
        })
        .map(Dentry)
    }

    /// The node that is known as `name` in `parent`.
    pub fn child(&self, parent: Node, name: &[u8]) -> Option<Node> {
        self.dentry_find(parent, name).map(|dentry| self.dentry_node(dentry))
    }

    /// Records that `name` in `parent` is `node`; gives the node that it was before, whose name
    /// this no longer is. `Err(())` if the store is full or the name too long.
    #[allow(clippy::result_unit_err, reason = "full is the only failure")]
    pub fn dentry_set(&self, parent: Node, name: &[u8], node: Node) -> Result<Option<Node>, ()> {
        let mut before = None;
        if let Some(dentry) = self.dentry_find(parent, name) {
            let old = self.dentry_node(dentry);
            if old == node {
                return Ok(None);
            }
            self.dentry_remove(dentry);
            before = Some(old);
        }
        if name.len() > MAX_NAME {
            return Err(());
        }
        let item = self.alloc(NAME * 8 + name.len()).ok_or(())?;
        let at = self.dentry(item);
        // The first word is the heap's link while the block is free: it is undone in any case.
        self.set(at + ENDS, pair(parent.0, node.0));
        self.init(at + NEXT, pair(0, self.first_dentry(node)));
        self.init(at + KEY, pair(hash_bytes(u64::from(parent.0), name), name.len() as u32));
        self.init_bytes(at + NAME, name);
        self.index_insert(Index::Name, item);
        self.set_first_dentry(node, item);
        self.set_children(parent, self.children(parent).saturating_add(1));
        Ok(before)
    }

    /// Removes a dentry. Its node and its parent stay, see [`Store::release_unused`].
    pub fn dentry_remove(&self, dentry: Dentry) {
        let item = dentry.0;
        let at = self.dentry(item);
        self.index_remove(Index::Name, item);
        let (parent, node) = (Node(high(self.word(at + ENDS))), self.dentry_node(dentry));
        let next = low(self.word(at + NEXT));
        if self.first_dentry(node) == item {
            self.set_first_dentry(node, next);
        } else {
            let mut previous = self.first_dentry(node);
            for _ in 0..65_536 {
                if previous == 0 {
                    break;
                }
                let link = self.dentry(previous) + NEXT;
                if low(self.word(link)) == item {
                    self.set_low(link, next);
                    break;
                }
                previous = low(self.word(link));
            }
        }
        self.set_children(parent, self.children(parent).saturating_sub(1));
        self.free(item, NAME * 8 + low(self.word(at + KEY)) as usize);
    }

    /// The node that a dentry names.
    pub fn dentry_node(&self, dentry: Dentry) -> Node {
        Node(low(self.word(self.dentry(dentry.0) + ENDS)))
    }

    /// The directory that a dentry is in.
    pub fn dentry_parent(&self, dentry: Dentry) -> Node {
        Node(high(self.word(self.dentry(dentry.0) + ENDS)))
    }

    /// The name of a dentry.
    pub fn dentry_name(&self, dentry: Dentry) -> Vec<u8> {
        let at = self.dentry(dentry.0);
        let mut name = vec![0; (low(self.word(at + KEY)) as usize).min(MAX_NAME)];
        self.memory.load_bytes(at + NAME, &mut name);
        name
    }

    /// The dentries of a node, the youngest first.
    pub fn dentries(&self, node: Node) -> impl Iterator<Item = Dentry> + '_ {
        let mut item = self.first_dentry(node);
        std::iter::from_fn(move || {
            let this = item;
            (this != 0).then(|| {
                item = low(self.word(self.dentry(this) + NEXT));
                Dentry(this)
            })
        })
        .take(65_536)
    }

    /// Frees `node` if neither the kernel, nor a handle, nor a child needs it, and then its
    /// parents likewise. What the bound generation still counts is added to `forget`.
    pub fn release_unused(&self, node: Node, generation: u32, forget: &mut Vec<(u64, u64)>) {
        let mut node = node;
        let mut parents = Vec::new(); // those that go too: hardly ever one
        loop {
            if self.is_unused(node) {
                if let Some(id) = self.bound(node, generation) {
                    let count = self.daemon_count(node);
                    if count > 0 {
                        forget.push((id, count));
                    }
                }
                for _ in 0..65_536 {
                    let first = self.first_dentry(node);
                    if first == 0 {
                        break;
                    }
                    let parent = self.dentry_parent(Dentry(first));
                    self.dentry_remove(Dentry(first));
                    if self.is_unused(parent) {
                        parents.push(parent);
                    }
                }
                self.node_free(node);
            }
            let Some(parent) = parents.pop() else { return };
            node = parent;
        }
    }

    /// Whether neither the kernel, nor a handle, nor a child needs a node.
    #[inline]
    fn is_unused(&self, node: Node) -> bool {
        node != Node::ROOT
            && self.node_flags(node) & (NodeFlags::LIVE | NodeFlags::HIDDEN) == NodeFlags::LIVE
            && self.count(node) == 0
            && self.children(node) == 0
            && self.opens(node) == 0
    }

    pub(crate) fn dentry_next_in_index(&self, item: u32) -> u32 {
        high(self.word(self.dentry(item) + NEXT))
    }

    pub(crate) fn set_dentry_next_in_index(&self, item: u32, next: u32) {
        self.set_high(self.dentry(item) + NEXT, next);
    }

    pub(crate) fn dentry_hash(&self, item: u32) -> u32 {
        high(self.word(self.dentry(item) + KEY))
    }
}
