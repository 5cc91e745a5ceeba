//! Directories whose inode number is another than before the crash: a daemon may give them a new
//! one itself, when it copies a directory up, say. Whether it is the same one is told by what is in
//! it: if a file that was below it is found there, under the same names, with its own number, it
//! is. A directory with nothing known in it, or with other files under these names, has been
//! replaced.
//!
//! Files are never known by their names alone (but see `VOLATILE_INODES`): behind the mount these
//! may have been exchanged.

use crate::flows::flow::Parked;
use crate::flows::restore::missing::Missed;
use crate::flows::restore::state::Question;
use crate::flows::step::Step;
use crate::message::entry_of;
use crate::parts::restored::{Doubt, Way};
use crate::session::Session;
use crate::traffic::entries::{DIRECTORY, kind_of};
use belay_memory::Memory;
use belay_recorder::Node;
use belay_recorder::control::Counter;
use belay_wire::{EntryOut, Opcode, Request, build};

/// How many files are asked for, at most.
const WITNESSES: usize = 4;
/// How many nodes are looked at to find them, and how deep below.
const NODES: usize = 1 << 16;
const DEPTH: usize = 64;

impl<M: Memory> Session<M> {
    /// Begins to find out whether `entry` is the directory `node`. `false` if nobody can tell.
    pub(crate) fn doubt(
        &mut self,
        node: Node,
        parent: Node,
        name: &[u8],
        entry: &EntryOut,
    ) -> bool {
        let directory = |kind| kind == DIRECTORY;
        if !directory(self.store.kind(node)) || !directory(kind_of(entry.attr.mode)) {
            return false;
        }
        let ways = self.ways_below(node);
        if ways.is_empty() {
            return false;
        }
        let doubt = Doubt::new(self.store.key(node), (parent, name), *entry, ways);
        self.restored.set_doubt(node, doubt);
        true
    }

    /// What is asked next of a directory that is in doubt.
    pub(crate) fn doubt_step(&mut self, node: Node) -> Option<Missed> {
        // Another node may have its place by now.
        let (id, name) = self.restored.doubt(node, self.store.key(node))?.next()?;
        let name = name.to_vec();
        if !self.restored.begin(node) {
            return Some(Missed::Step(Step::Blocked));
        }
        let message = build::lookup(self.questions.ids(id), &name);
        Some(Missed::Step(Step::ask(message, Question::Vouch { node })))
    }

    pub(crate) fn vouched(&mut self, task: u64, node: Node, reply: &[u8]) {
        self.restored.end(node);
        if let Some(mut doubt) = self.restored.take_doubt(node, self.store.key(node)) {
            let entry = entry_of(reply);
            let step = doubt.go_on(entry.as_ref());
            let found = entry.zip(step).map(|(entry, (child, last))| {
                let kind = kind_of(entry.attr.mode);
                let same =
                    self.store.kind(child) == kind && self.store.ino(child) == entry.attr.ino;
                if last { same.then_some(true) } else { (kind == DIRECTORY).then_some(false) }
            });
            match found.flatten() {
                Some(true) => {
                    self.forget_way(&mut doubt);
                    self.is_found(node, &doubt.entry);
                    self.meet(doubt.parent, &doubt.name);
                    self.count(Counter::Renumbered);
                }
                Some(false) => self.restored.set_doubt(node, doubt),
                None => {
                    self.forget_way(&mut doubt);
                    if doubt.drop_way() {
                        self.restored.set_doubt(node, doubt);
                    } else {
                        self.is_replaced(node, doubt.parent, &doubt.name, Some(&doubt.entry));
                    }
                }
            }
        }
        self.tasks.resume(task, |_| {});
    }

    /// The daemon is to forget what it was asked for on a way.
    fn forget_way(&mut self, doubt: &mut Doubt) {
        self.forget_later(doubt.take_ids().into_iter().map(|id| (id, 1)).collect());
    }

    /// Ways to files below a directory whose numbers mean something; those that are open first.
    fn ways_below(&self, top: Node) -> Vec<Way> {
        let open = self.store.live_handles().map(|handle| self.store.open_description(handle).node);
        let mut ways: Vec<Way> = Vec::new();
        for node in open.chain(self.store.some_nodes()).take(NODES) {
            if self.store.kind(node) == DIRECTORY || self.is_pinned(node) {
                continue;
            }
            let known = |way: &Way| way.last().is_some_and(|last| last.1 == node);
            if !ways.iter().any(known)
                && let Some(way) = self.way(top, node)
            {
                ways.push(way);
                if ways.len() == WITNESSES {
                    break;
                }
            }
        }
        ways.reverse(); // they are taken from the end
        ways
    }

    fn way(&self, top: Node, node: Node) -> Option<Way> {
        let (mut way, mut at) = (Vec::new(), node);
        while at != top {
            let dentry = self.store.dentries(at).next().filter(|_| way.len() < DEPTH)?;
            way.push((self.store.dentry_name(dentry), at));
            at = self.store.dentry_parent(dentry);
        }
        way.reverse();
        Some(way)
    }

    /// The directory that a LOOKUP is to find and that this life's daemon does not know: with
    /// another number it would be taken for a new one, and what is below the old one would be lost.
    /// One look into the record for each LOOKUP in lives after the first.
    fn led_to(&self, request: &Request<'_>) -> Option<Node> {
        if !self.restored.is_successor() || request.opcode() != Opcode::LOOKUP {
            return None;
        }
        let parent = self.store.node_by_key(request.header.nodeid)?;
        let node = self.store.child(parent, request.names().first?)?;
        self.is_unknown_directory(node).then_some(node)
    }

    fn is_unknown_directory(&self, node: Node) -> bool {
        self.store.kind(node) == DIRECTORY && self.store.bound(node, self.life.ids()).is_none()
    }

    /// Whether a LOOKUP has to wait until such a directory is found again.
    #[inline]
    pub(crate) fn leads_back(&self, request: &Request<'_>) -> bool {
        self.restored.is_successor() && self.led_to(request).is_some()
    }

    pub(crate) fn lead_step(&mut self, parked: &mut Parked, request: &Request<'_>) -> Option<Step> {
        let node = self.led_to(request).filter(|_| parked.looked.names == 0)?;
        match self.restore_node(node) {
            Missed::Step(step) => Some(step),
            Missed::Failed(_) | Missed::Nameless => {
                parked.looked.names = 1;
                None
            }
        }
    }

    /// Whether an entry of a listing would take the place of such a directory: the kernel is to ask
    /// for it by itself.
    pub(crate) fn displaces(&self, parent: Node, name: &[u8], entry: &EntryOut) -> bool {
        self.restored.is_successor()
            && self.store.child(parent, name).is_some_and(|node| {
                self.is_unknown_directory(node)
                    && !self.is_same(node, kind_of(entry.attr.mode), entry)
            })
    }
}
