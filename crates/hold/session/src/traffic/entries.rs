//! Which node a directory entry is: the place where one kernel inode stays one.

use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::{Counter, Flags};
use belay_recorder::{Node, NodeFlags};
use belay_wire::abi::Statx;
use belay_wire::reply::{ino_offset, nlink_offset};
use belay_wire::{Attr, EntryOut, Opcode, get_u32, get_u64, put_u32, put_u64};
use std::mem::offset_of;

/// S_IFDIR >> 12.
pub(crate) const DIRECTORY: u32 = 4;

/// Whether what is of this kind and has so many links may have another name.
pub(crate) fn may_have_links(kind: u32, nlink: u32) -> bool {
    nlink > 1 && kind != DIRECTORY
}

/// The kind of file that a mode has: its S_IFMT >> 12.
pub(crate) fn kind_of(mode: u32) -> u32 {
    (mode >> 12) & 15
}

/// Of the mask of statx(2): the inode number is there.
const STATX_INO: u32 = 0x100;

impl<M: Memory> Session<M> {
    /// Finds or makes the node of an entry that the daemon returned for `name` in `parent`, counts
    /// a lookup for kernel and daemon, and turns the entry into the kernel's terms. Part of a
    /// change. With `created`, the name did not exist before, so it is no older node. `None` if
    /// there is no room: then nothing is counted, and the daemon is to forget one lookup.
    pub(crate) fn entry(
        &mut self,
        parent: Node,
        name: &[u8],
        entry: &mut EntryOut,
        created: bool,
    ) -> Option<Node> {
        let node = self.identify(parent, name, entry, created)?;
        self.store.count_for_kernel(node);
        self.store.count_for_daemon(node);
        if self.name(parent, name, node).is_none() {
            self.take_back(node);
            return None;
        }
        self.meet(parent, name);
        entry.nodeid = self.store.key(node);
        entry.generation = 0; // a key is never used twice
        self.present(node, &mut entry.attr);
        Some(node)
    }

    /// A lookup that was counted for kernel and daemon does not count: the kernel has not got the
    /// entry. What the daemon has counted by nothing else it does not know from now on. Part of a
    /// change.
    pub(crate) fn take_back(&mut self, node: Node) {
        if node == Node::ROOT {
            return;
        }
        let mut forget = Vec::new();
        self.store.set_count(node, self.store.count(node).saturating_sub(1));
        let counted = self.store.daemon_count(node).saturating_sub(1);
        self.store.set_daemon_count(node, counted);
        if counted == 0 {
            self.store.unbind(node);
        }
        self.store.release_unused(node, self.life.ids(), &mut forget);
        self.forget_later(forget);
    }

    fn identify(
        &mut self,
        parent: Node,
        name: &[u8],
        entry: &EntryOut,
        created: bool,
    ) -> Option<Node> {
        let id = entry.nodeid;
        let kind = kind_of(entry.attr.mode);
        let numbered = self.is_numbered(entry);
        let old = || {
            // Not known to this generation, and still here: its children or handles need it.
            self.store.child(parent, name).filter(|old| {
                !created
                    && self.store.bound(*old, self.life.ids()).is_none()
                    && self.is_same(*old, kind, entry)
            })
        };
        let has_links = may_have_links(kind, entry.attr.nlink);
        let mut counted = 0;
        if let Some(known) = self.store.node_by_id(self.life.ids(), id) {
            let is_kind = self.store.kind(known) == kind || known == Node::ROOT;
            if !is_kind {
                // The daemon uses the id for something else now: the old node is gone from it.
                self.store.unbind(known);
            } else if !has_links && self.is_gone(known) && old().is_some() {
                // So has one that does not wait for FORGET when a name goes, and is asked for what
                // another life had shown.
                counted = self.store.daemon_count(known);
                self.store.unbind(known);
            } else if !has_links || old().is_none() {
                if self.renumbers(known, entry.attr.ino) {
                    self.renumber(known, entry.attr.ino, entry.attr.nlink);
                }
                self.index_links(known, kind, entry.attr.nlink, numbered);
                return Some(known);
            }
            // Another link of the file was asked for first: where nothing has told that the two are
            // one, they are two for the kernel, which has the older one open, perhaps.
        }
        let mut node = old();
        // Not where another link is another node, also for the kernel: it would take the two for
        // one inode, and leave out what it has to do about one of them (a rename over the other,
        // say). Nor where a number of an earlier life may be another file's now.
        let links_are_one = !self.control().has(Flags::LINKS_APART) && !self.volatile();
        if node.is_none() && !created && has_links && !numbered && links_are_one {
            node = self.store.unbound_by_ino(self.life.ids(), entry.attr.ino, kind);
        }
        let node = match node {
            Some(node) => {
                self.pin(node, (entry.attr.ino, entry.attr.nlink));
                self.count(Counter::NodesRestored);
                node
            }
            None => {
                let numbering = if numbered { NodeFlags::INO_IS_ID } else { NodeFlags::empty() };
                let Some(node) = self.store.node_new(kind, entry.attr.ino, numbering) else {
                    self.notice.overflow();
                    return None;
                };
                self.number(node, numbered, entry.attr.nlink);
                node
            }
        };
        self.store.bind(node, self.life.ids(), id);
        if counted > 0 {
            self.store.set_daemon_count(node, counted);
        }
        self.index_links(node, kind, entry.attr.nlink, numbered);
        Some(node)
    }

    /// Whether a node has lost its last name, and nobody has it open.
    pub(crate) fn is_gone(&self, node: Node) -> bool {
        node != Node::ROOT
            && self.store.opens(node) == 0
            && self.store.dentries(node).next().is_none()
    }

    /// Whether the daemon has no inode numbers but its node ids. One other number tells that it
    /// has: from then on a number that is the id is so by chance, as happens where both are small
    /// (ntfs-3g). Of one that keeps records both mean the same in all of its lives, and the number
    /// stays when the kernel forgets the node.
    fn is_numbered(&self, entry: &EntryOut) -> bool {
        let own = self.control().has(Flags::OWN_INODES);
        if !own && entry.attr.ino != entry.nodeid {
            self.control().raise(Flags::OWN_INODES);
        }
        !own && entry.attr.ino == entry.nodeid && !self.life.keeps_records()
    }

    /// The daemon has linked `node` and calls the link `id`: whether a file's links are one node
    /// for it shows here.
    pub(crate) fn learn_of_link(&self, node: Node, id: u64) {
        let apart = self.store.bound(node, self.life.ids()).is_some_and(|bound| bound != id);
        if apart && !self.control().has(Flags::LINKS_APART) {
            self.control().raise(Flags::LINKS_APART);
        }
    }

    fn index_links(&self, node: Node, kind: u32, nlink: u32, numbered: bool) {
        if may_have_links(kind, nlink) && !numbered && node != Node::ROOT {
            self.store.index_by_ino(node);
        }
    }

    /// Whether what a successor shows under an old node's name can be that node.
    pub(crate) fn is_same(&self, node: Node, kind: u32, entry: &EntryOut) -> bool {
        self.store.kind(node) == kind
            && (self.store.ino(node) == entry.attr.ino || self.is_pinned(node) || self.volatile())
    }

    /// Records the name; what it meant before loses it.
    pub(crate) fn name(&mut self, parent: Node, name: &[u8], node: Node) -> Option<()> {
        if node == Node::ROOT || name == b"." || name == b".." {
            return Some(());
        }
        self.store.node_flag(node, NodeFlags::UNLINKED | NodeFlags::LONE, false);
        match self.store.dentry_set(parent, name, node) {
            Ok(None) => Some(()),
            Ok(Some(old)) => {
                let mut forget = Vec::new();
                self.store.release_unused(old, self.life.ids(), &mut forget);
                self.forget_later(forget);
                Some(())
            }
            Err(()) => {
                self.notice.overflow();
                None
            }
        }
    }

    /// Turns attributes of `node` into what applications have seen of it.
    pub(crate) fn present(&self, node: Node, attr: &mut Attr) {
        let flags = self.store.node_flags(node);
        if self.is_pinned(node) {
            attr.ino = self.store.ino(node);
        }
        if flags.intersects(NodeFlags::HIDDEN) {
            attr.nlink = attr.nlink.saturating_sub(1);
        }
    }

    /// A reply with attributes of a node that the daemon knows: the number that it has from now on,
    /// and what applications are to see. Part of a change.
    pub(crate) fn show(&mut self, opcode: Opcode, node: Node, message: &mut [u8]) -> Option<()> {
        if !self.shows(node) {
            return Some(());
        }
        let (ino, nlink) = (ino_offset(opcode)?, nlink_offset(opcode)?);
        let has_number = |mask| mask & STATX_INO != 0;
        if opcode == Opcode::STATX
            && !get_u32(message, ino - offset_of!(Statx, ino)).is_some_and(has_number)
        {
            return None;
        }
        let given = (get_u64(message, ino)?, get_u32(message, nlink)?);
        let mut attr = Attr { ino: given.0, nlink: given.1, ..Attr::default() };
        if self.renumbers(node, attr.ino) {
            self.renumber(node, attr.ino, attr.nlink);
        }
        self.present(node, &mut attr);
        (put_u64(message, ino, attr.ino) && put_u32(message, nlink, attr.nlink)).then_some(())
    }

    /// Whether [`Self::show`] may change anything.
    pub(crate) fn shows(&self, node: Node) -> bool {
        self.volatile() || self.presents(node)
    }

    /// Whether [`Self::present`] would change anything.
    fn presents(&self, node: Node) -> bool {
        let flags = self.store.node_flags(node);
        flags.intersects(NodeFlags::INO_IS_ID | NodeFlags::INO_PINNED | NodeFlags::HIDDEN)
    }

    /// `name` in `parent` is no more.
    pub(crate) fn unname(&mut self, parent: Node, name: &[u8]) -> Option<Node> {
        let dentry = self.store.dentry_find(parent, name)?;
        let node = self.store.dentry_node(dentry);
        self.store.dentry_remove(dentry);
        self.after_unname(node);
        let mut forget = Vec::new();
        self.store.release_unused(node, self.life.ids(), &mut forget);
        self.store.release_unused(parent, self.life.ids(), &mut forget);
        self.forget_later(forget);
        Some(node)
    }
}
