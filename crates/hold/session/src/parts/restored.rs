//! What is being brought back in this life, and what this life has shown so far.
//!
//! Nodes and handles of the record get numbers again that others had: whoever asks about one that
//! may have gone compares keys.

use super::met::Met;
use belay_recorder::{Handle, Node};
use belay_wire::EntryOut;
use std::collections::{HashMap, HashSet};

/// How many losses are told in a daemon's life.
const MOST_TOLD: usize = 1024;
/// So many inode numbers are kept whatever the number of nodes.
const FEW: usize = 1024;

/// How far reopening a handle is. A file whose mode forbids it is made accessible for an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reopen {
    /// An injected request is under way.
    Busy,
    /// OPEN failed with this error: look at the mode.
    Ask(i32),
    /// Widen this mode.
    Widen(u32),
    /// Open, having widened this mode.
    Open(u32),
    /// The OPEN is under way; this mode must be put back.
    Opening(u32),
    /// Put this mode back; the handle is then open, or lost.
    Narrow(u32, Option<u64>),
    /// That is under way.
    Narrowing(Option<u64>),
}

/// A way to a file: names, and what they led to.
pub(crate) type Way = Vec<(Vec<u8>, Node)>;

/// A directory of which it is not known whether it is the one that it was.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    /// The key of the directory that it may be.
    pub(crate) key: u64,
    pub(crate) parent: Node,
    pub(crate) name: Vec<u8>,
    /// What the daemon shows there.
    pub(crate) entry: EntryOut,
    /// Ways to files that were below it; the last one is gone first.
    ways: Vec<Way>,
    /// What the daemon calls the nodes of the last way, as far as it was gone.
    ids: Vec<u64>,
}

impl Doubt {
    /// Whether `entry`, shown as `name` in `parent`, is the directory with this key: files below it
    /// can tell.
    pub(crate) fn new(
        key: u64,
        (parent, name): (Node, &[u8]),
        entry: EntryOut,
        ways: Vec<Way>,
    ) -> Self {
        Self { key, parent, name: name.to_vec(), entry, ways, ids: Vec::new() }
    }

    /// What is asked next: the daemon's id of a directory, and a name in it.
    pub(crate) fn next(&self) -> Option<(u64, &[u8])> {
        let id = self.ids.last().copied().unwrap_or(self.entry.nodeid);
        Some((id, &self.ways.last()?.get(self.ids.len())?.0))
    }

    /// The answer to that. Gives the node that it led to, and whether that is the file at the way's
    /// end.
    pub(crate) fn go_on(&mut self, answer: Option<&EntryOut>) -> Option<(Node, bool)> {
        let at = self.ids.len();
        self.ids.extend(answer.map(|entry| entry.nodeid));
        let way = self.ways.last()?;
        Some((way.get(at)?.1, at + 1 == way.len()))
    }

    /// What the daemon is to forget of the way that was gone.
    pub(crate) fn take_ids(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ids)
    }

    /// The way led nowhere: gives whether there is another.
    pub(crate) fn drop_way(&mut self) -> bool {
        self.ways.pop();
        !self.ways.is_empty()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Nodes that are being looked up.
    nodes: HashSet<Node>,
    /// Names that the daemon has been asked for, in lives after the first.
    met: Option<Met>,
    reopening: HashMap<Handle, Reopen>,
    /// Directories of which it is not known whether they are what they were.
    doubts: HashMap<Node, Doubt>,
    /// Handles that the daemon has opened again for reading only, and by which error it refused
    /// more.
    read_only: HashMap<Handle, i32>,
    /// Handles by which something that is written comes again, and goes to its place.
    placed: HashSet<Handle>,
    /// What applications see of a file whose number they keep, by the number that the daemon has
    /// for it in this life.
    shown: HashMap<u64, u64>,
    /// Keys of nodes that were looked up because their number was another's as well.
    asked: HashSet<u64>,
    /// Nodes of which it was said that they cannot be had again.
    told_lost: HashSet<u64>,
}

impl Restored {
    /// Nothing is brought back yet. In lives after the first, names are kept that the daemon was
    /// asked for.
    pub(crate) fn new(successor: bool) -> Self {
        Self { met: successor.then(Met::default), ..Self::default() }
    }

    /// Whether this is a life after the first.
    #[inline]
    pub(crate) fn is_successor(&self) -> bool {
        self.met.is_some()
    }

    /// Has so many names at most be known, of which none is known now.
    pub(crate) fn know_names(&mut self, buckets: usize) {
        self.met = self.met.take().map(|_| Met::with_buckets(buckets));
    }

    /// The daemon has been asked for a name in the directory whose key that is.
    #[inline]
    pub(crate) fn meet(&mut self, parent: impl FnOnce() -> u64, name: &[u8]) {
        if let Some(met) = &mut self.met {
            met.add(parent(), name);
        }
    }

    /// Whether it has been asked for that name, as far as is known; in the first life, for all.
    pub(crate) fn has_met(&self, parent: u64, name: &[u8]) -> bool {
        self.met.as_ref().is_none_or(|met| met.has(parent, name))
    }

    /// Whether it has been asked for the root's attributes; in the first life it has.
    #[inline]
    pub(crate) fn has_met_root(&self) -> bool {
        self.met.as_ref().is_none_or(Met::has_root)
    }

    /// It has been asked for them.
    pub(crate) fn meet_root(&mut self) {
        if let Some(met) = &mut self.met {
            met.add_root();
        }
    }

    /// A node is to be looked up: `false` if it is already.
    pub(crate) fn begin(&mut self, node: Node) -> bool {
        self.nodes.insert(node)
    }

    /// It is not any more.
    pub(crate) fn end(&mut self, node: Node) {
        self.nodes.remove(&node);
    }

    /// Whether any handle is being opened again.
    #[inline]
    pub(crate) fn is_reopening_any(&self) -> bool {
        !self.reopening.is_empty()
    }

    /// The handles that are being opened again.
    pub(crate) fn reopening(&self) -> impl Iterator<Item = Handle> {
        self.reopening.keys().copied()
    }

    /// How far opening this handle again is, if it is under way.
    pub(crate) fn reopen(&self, handle: Handle) -> Option<Reopen> {
        self.reopening.get(&handle).copied()
    }

    /// It is that far.
    pub(crate) fn set_reopen(&mut self, handle: Handle, state: Reopen) {
        self.reopening.insert(handle, state);
    }

    /// It is over. Gives how far it was.
    pub(crate) fn end_reopen(&mut self, handle: Handle) -> Option<Reopen> {
        self.reopening.remove(&handle)
    }

    /// A handle is lost: nothing more is done to open it.
    pub(crate) fn lose(&mut self, handle: Handle) {
        self.reopening.remove(&handle);
        self.read_only.remove(&handle);
        self.placed.remove(&handle);
    }

    /// A handle is closed, whose number may be another's soon.
    #[inline]
    pub(crate) fn close(&mut self, handle: Handle) {
        if !self.read_only.is_empty() {
            self.read_only.remove(&handle);
        }
        if !self.placed.is_empty() {
            self.placed.remove(&handle);
        }
    }

    /// Something that is written by a handle comes again: the handle is to be opened so that it
    /// goes to its place.
    pub(crate) fn place(&mut self, handle: Handle) {
        self.placed.insert(handle);
    }

    /// Whether a handle is to be opened so.
    pub(crate) fn is_placed(&self, handle: Handle) -> bool {
        self.placed.contains(&handle)
    }

    /// A handle can be opened for reading only, as the daemon refuses more by this error. `false`
    /// if that was known.
    pub(crate) fn make_read_only(&mut self, handle: Handle, errno: i32) -> bool {
        self.read_only.insert(handle, errno).is_none()
    }

    /// By which error the daemon has refused to open a handle for writing.
    pub(crate) fn refusal(&self, handle: Handle) -> Option<i32> {
        self.read_only.get(&handle).copied()
    }

    /// Whether there is a handle of that kind.
    #[inline]
    pub(crate) fn has_read_only(&self) -> bool {
        !self.read_only.is_empty()
    }

    /// Whether `node` is what it was is not known.
    pub(crate) fn set_doubt(&mut self, node: Node, doubt: Doubt) {
        self.doubts.insert(node, doubt);
    }

    /// What is not known of the node with this key, if something.
    pub(crate) fn doubt(&self, node: Node, key: u64) -> Option<&Doubt> {
        self.doubts.get(&node).filter(|doubt| doubt.key == key)
    }

    /// The same, to be decided.
    pub(crate) fn take_doubt(&mut self, node: Node, key: u64) -> Option<Doubt> {
        self.doubts.remove(&node).filter(|doubt| doubt.key == key)
    }

    /// Applications see the number `seen` of a file that has the number `own` for the daemon in
    /// this life. Of a record with `live` nodes a number is kept as long as one `is_shown` by it.
    pub(crate) fn show(
        &mut self,
        (own, seen): (u64, u64),
        live: usize,
        is_shown: impl Fn(u64) -> bool,
    ) {
        if self.shown.len() > 2 * live + FEW {
            self.shown.retain(|_, shown| is_shown(*shown));
        }
        self.shown.insert(own, seen);
    }

    /// What applications see of a file that has this number for the daemon, if it is another.
    pub(crate) fn shown(&self, own: u64) -> Option<u64> {
        self.shown.get(&own).copied()
    }

    /// The node with this key is looked up because its number is another's as well. Of a record
    /// with `live` nodes that is kept as long as the node `is_live`.
    pub(crate) fn ask(&mut self, key: u64, live: usize, is_live: impl Fn(u64) -> bool) {
        if self.asked.len() > live + FEW {
            self.asked.retain(|key| is_live(*key));
        }
        self.asked.insert(key);
    }

    /// Whether it was.
    pub(crate) fn was_asked(&self, key: u64) -> bool {
        self.asked.contains(&key)
    }

    /// Whether the loss of the node with this key is to be told: once, and of so many at most.
    pub(crate) fn tells_loss(&mut self, key: u64) -> bool {
        self.told_lost.len() < MOST_TOLD && self.told_lost.insert(key)
    }
}
