//! When the roll-forward closes what it has opened to write to it: before the file's name goes,
//! when it has many open, and at the end, unless an application goes on with it.
//!
//! Daemons of libfuse's high level keep a file that is open when its name goes, under a name of
//! their own. Its inode number, and its room, would not be free then for what comes next, as they
//! were before the crash.

use super::state::{Issue, Opened, RollForward};
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::Flags;
use belay_wire::Opcode;

/// How many files are kept open, to be written to again.
const MOST: usize = 64;
const O_ACCMODE: u32 = 3;

impl<M: Memory> Session<M> {
    /// The roll-forward is over, and has files open. Where one application has such a file open for
    /// writing, that becomes its handle: all that was done by it since the checkpoint was done by
    /// this one, and some daemons (fusefat) cannot go on writing by one that comes later.
    pub(super) fn hand_over(&mut self, forward: &mut RollForward) {
        // What is closed already is stored here; and so is everything if nobody will close anything
        // any more.
        let closing = if forward.files { self.closing() } else { Vec::new() };
        if forward.files && self.control().has(Flags::DISCONNECTED) {
            return;
        }
        forward.handles.retain(|key, Opened { fh, directory }| {
            if *directory {
                return true;
            }
            let closing = |handle| closing.contains(&self.store.handle_key(handle));
            let Some(node) = self.store.node_by_key(*key) else { return true };
            let mut writers = self.store.live_handles().filter(|handle| {
                let open = self.store.open_description(*handle);
                open.node == node && !open.directory && open.flags & O_ACCMODE != 0
            });
            let (Some(writer), None) = (writers.next(), writers.next()) else { return true };
            drop(writers);
            if closing(writer) {
                return true;
            }
            let lost = self.store.handle_bound(writer, self.life.ids()).is_none();
            if lost {
                self.rebind(writer, *fh);
            }
            !lost
        });
    }
}

impl RollForward {
    /// The node, the daemon's id of it, and the handle that are to be closed now, if any. `ends`:
    /// the daemon is to end now.
    pub(super) fn next_to_close(&mut self, ends: bool) -> Option<(u64, u64, Opened)> {
        let key = match &self.current {
            // Not one that the current request needs: it would be opened and closed for ever.
            None if ends || self.over || self.handles.len() > MOST => {
                self.handles.keys().next().copied()
            }
            Some(issue) if self.run == 0 && !self.files => self
                .handles
                .keys()
                .copied()
                .find(|key| self.loses(*key, issue) || self.cuts(*key, issue)),
            _ => None,
        };
        let key = key?;
        let opened = self.handles.remove(&key)?;
        // Of the root nobody tells; it is known as that.
        Some((key, self.ids.get(&key).map_or(1, |told| told.id), opened))
    }

    /// Whether a request sets how long a file is, or the like, without a handle: some daemons keep
    /// that with each handle.
    fn cuts(&self, key: u64, issue: &Issue) -> bool {
        let facts = &issue.record.facts;
        Opcode(facts.opcode) == Opcode::SETATTR
            && self.names.renewed(facts.node) == self.names.renewed(key)
    }

    /// Whether a request takes a name from the file that is known as `key`, or was once.
    fn loses(&self, key: u64, issue: &Issue) -> bool {
        let id = |key: u64| self.ids.get(&key).map(|told| told.id);
        let same = |other: u64| {
            self.names.renewed(other) == self.names.renewed(key)
                || id(other).is_some_and(|other| Some(other) == id(key))
        };
        let mut lost = issue.record.names.iter().filter(|change| change.before != change.after);
        lost.any(|change| {
            let known = self.names.at(change.parent, &change.name).unwrap_or(0);
            [change.before, known].into_iter().any(|other| other != 0 && same(other))
        })
    }
}
