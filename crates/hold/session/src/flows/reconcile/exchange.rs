//! RENAME2 with RENAME_EXCHANGE: which of two files is where.

use crate::decision::Finding;
use crate::message::target_dir;
use crate::session::Session;
use crate::traffic::entries::kind_of;
use belay_memory::Memory;
use belay_recorder::Node;
use belay_recorder::control::Loss;
use belay_wire::{EntryOut, Request};

impl<M: Memory> Session<M> {
    /// Whether two files were exchanged, by what the first of the names leads to now.
    pub(super) fn exchanged(&self, request: &Request<'_>, entry: &EntryOut) -> Finding {
        let names = request.names();
        let child = |key: Option<u64>, name: Option<&[u8]>| {
            let parent = self.store.node_by_key(key?)?;
            self.store.child(parent, name?)
        };
        let old = child(Some(request.header.nodeid), names.first);
        let new = child(target_dir(request), names.second);
        let is = |node: Option<Node>| {
            node.is_some_and(|node| self.is_same(node, kind_of(entry.attr.mode), entry))
        };
        match (is(old), is(new)) {
            (true, false) => Finding::NotDone,
            (false, true) => Finding::Done,
            (true, true) => {
                self.tell_of_exchange(request);
                Finding::Foreign
            }
            (false, false) => Finding::Foreign,
        }
    }

    /// The daemon's numbers do not tell which of two files is which: an exchange of them may be
    /// made twice.
    fn tell_of_exchange(&self, request: &Request<'_>) {
        let names = request.names();
        let path = |key: Option<u64>, name: Option<&[u8]>| {
            let path = self.path_below(key.unwrap_or_default(), name.unwrap_or_default());
            format!("/{}", String::from_utf8_lossy(&path))
        };
        let what = format!(
            "{} and {}: they were to be exchanged as the daemon died, and may have been twice",
            path(Some(request.header.nodeid), names.first),
            path(target_dir(request), names.second)
        );
        self.control().lose(Loss::Request, &what);
    }
}
