//! Directories whose inode number is another than before the crash: a daemon may give them a new one itself, when it copies
//! a directory up, say. Whether it is the same one is told by what is in it: if a file that was below it is found there, under
//! the same names, with its own number, it is. A directory with nothing known in it, or with other files under these names,
//! has been replaced.
//!
//! Files are never known by their names alone (but see `VOLATILE_INODES`): behind the mount these may have been exchanged.

use crate::entries::{DIRECTORY, kind_of};
use crate::injection::Injection;
use crate::message::entry_of;
use crate::restore::Missed;
use crate::session::Session;
use crate::task::{Step, Task};
use belay_memory::Memory;
use belay_recorder::Node;
use belay_recorder::control::Counter;
use belay_wire::{EntryOut, Opcode, Request, build};

/// How many files are asked for, at most.
const WITNESSES: usize = 4;
/// How many nodes are looked at to find them, and how deep below.
const NODES: usize = 1 << 16;
const DEPTH: usize = 64;

/// A directory of which it is not known whether it is the one that it was.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    key: u64,
    parent: Node,
    name: Vec<u8>,
    /// What the daemon shows there.
    entry: EntryOut,
    /// Ways to files that were below it: names, and what they led to.
    ways: Vec<Vec<(Vec<u8>, Node)>>,
    /// What the daemon calls the nodes of the last way, as far as it was gone.
    ids: Vec<u64>,
}

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
        let (key, name, entry) = (self.store.key(node), name.to_vec(), *entry);
        self.doubts.insert(node, Doubt { key, parent, name, entry, ways, ids: Vec::new() });
        true
    }

    /// What is asked next of a directory that is in doubt.
    pub(crate) fn doubt_step(&mut self, node: Node) -> Option<Missed> {
        // Another node may have its place by now.
        let doubt = self.doubts.get(&node).filter(|doubt| doubt.key == self.store.key(node))?;
        let id = doubt.ids.last().copied().unwrap_or(doubt.entry.nodeid);
        let name = doubt.ways.last()?.get(doubt.ids.len())?.0.clone();
        if !self.restoring.insert(node) {
            return Some(Missed::Step(Step::Blocked));
        }
        let message = build::lookup(self.injected_ids(id), &name);
        Some(Missed::Step(Step::Inject(message, Injection::Vouch { node })))
    }

    pub(crate) fn vouched(&mut self, task: u64, node: Node, reply: &[u8]) {
        self.restoring.remove(&node);
        let doubt = self.doubts.remove(&node);
        if let Some(mut doubt) = doubt.filter(|doubt| doubt.key == self.store.key(node)) {
            let at = doubt.ids.len();
            let way = doubt.ways.last().cloned().unwrap_or_default();
            let entry = entry_of(reply);
            doubt.ids.extend(entry.map(|entry| entry.nodeid));
            let found = entry.zip(way.get(at)).map(|(entry, (_, child))| {
                let kind = kind_of(entry.attr.mode);
                let same =
                    self.store.kind(*child) == kind && self.store.ino(*child) == entry.attr.ino;
                if at + 1 == way.len() {
                    same.then_some(true)
                } else {
                    (kind == DIRECTORY).then_some(false)
                }
            });
            match found.flatten() {
                Some(true) => {
                    self.drop_way(&mut doubt);
                    self.is_found(node, &doubt.entry);
                    self.meet(doubt.parent, &doubt.name);
                    self.count(Counter::Renumbered);
                }
                Some(false) => {
                    self.doubts.insert(node, doubt);
                }
                None => {
                    self.drop_way(&mut doubt);
                    doubt.ways.pop();
                    if doubt.ways.is_empty() {
                        self.is_replaced(node, doubt.parent, &doubt.name, Some(&doubt.entry));
                    } else {
                        self.doubts.insert(node, doubt);
                    }
                }
            }
        }
        self.with_task(task, |_| {});
    }

    /// The daemon is to forget what it was asked for on a way.
    fn drop_way(&mut self, doubt: &mut Doubt) {
        let ids = std::mem::take(&mut doubt.ids);
        self.forget_later(ids.into_iter().map(|id| (id, 1)).collect());
    }

    /// Ways to files below a directory whose numbers mean something; those that are open first.
    fn ways_below(&self, top: Node) -> Vec<Vec<(Vec<u8>, Node)>> {
        let open = self.store.live_handles().map(|handle| self.store.open_facts(handle).node);
        let mut ways: Vec<Vec<(Vec<u8>, Node)>> = Vec::new();
        for node in open.chain(self.store.some_nodes()).take(NODES) {
            if self.store.kind(node) == DIRECTORY || self.is_pinned(node) {
                continue;
            }
            let known = |way: &Vec<(Vec<u8>, Node)>| way.last().is_some_and(|last| last.1 == node);
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

    fn way(&self, top: Node, node: Node) -> Option<Vec<(Vec<u8>, Node)>> {
        let (mut way, mut at) = (Vec::new(), node);
        while at != top {
            let dentry = self.store.dentries(at).next().filter(|_| way.len() < DEPTH)?;
            way.push((self.store.dentry_name(dentry), at));
            at = self.store.dentry_parent(dentry);
        }
        way.reverse();
        Some(way)
    }

    /// The directory that a LOOKUP is to find and that this life's daemon does not know: with another number it would be
    /// taken for a new one, and what is below the old one would be lost. One look into the record for each LOOKUP in
    /// lives after the first.
    fn led_to(&self, request: &Request<'_>) -> Option<Node> {
        if self.met.is_none() || request.opcode() != Opcode::LOOKUP {
            return None;
        }
        let parent = self.store.node_by_key(request.header.nodeid)?;
        let node = self.store.child(parent, request.names().first?)?;
        self.is_unknown_directory(node).then_some(node)
    }

    fn is_unknown_directory(&self, node: Node) -> bool {
        self.store.kind(node) == DIRECTORY && self.store.bound(node, self.generation).is_none()
    }

    /// Whether a LOOKUP has to wait until such a directory is found again.
    #[inline]
    pub(crate) fn leads_back(&self, request: &Request<'_>) -> bool {
        self.met.is_some() && self.led_to(request).is_some()
    }

    pub(crate) fn lead_step(&mut self, task: &mut Task, request: &Request<'_>) -> Option<Step> {
        let node = self.led_to(request).filter(|_| task.met == 0)?;
        match self.restore_node(node) {
            Missed::Step(step) => Some(step),
            Missed::Failed(_) | Missed::Nameless => {
                task.met = 1;
                None
            }
        }
    }

    /// Whether an entry of a listing would take the place of such a directory: the kernel is to ask for it by itself.
    pub(crate) fn displaces(&self, parent: Node, name: &[u8], entry: &EntryOut) -> bool {
        self.met.is_some()
            && self.store.child(parent, name).is_some_and(|node| {
                self.is_unknown_directory(node)
                    && !self.is_same(node, kind_of(entry.attr.mode), entry)
            })
    }
}
