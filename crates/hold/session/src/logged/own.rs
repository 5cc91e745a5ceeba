//! What belay has asked a daemon for by itself changes the image as well: hiding files that are
//! open.

use super::facts::Before;
use super::{Change, Sent};
use crate::flows::hide::state::Question;
use crate::message::{read, target_dir};
use crate::parts::hidden::is_hidden_name;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::Node;
use belay_wire::abi::{InHeader, OutHeader};
use belay_wire::{Opcode, Request, Unique, put_u64};

/// A request of belay's own: opcode, directory, body, what becomes of names.
type Asked = (Opcode, u64, Vec<u8>, Vec<Change>);

fn rename((from, old): (u64, &[u8]), (to, new): (u64, &[u8]), key: u64) -> Asked {
    let body = [&to.to_ne_bytes()[..], old, b"\0", new, b"\0"].concat();
    let changes = vec![(to, new.to_vec(), 0, key), (from, old.to_vec(), key, 0)];
    (Opcode::RENAME, from, body, changes)
}

fn unlink(parent: u64, name: &[u8], key: u64) -> Asked {
    let body = [name, b"\0"].concat();
    (Opcode::UNLINK, parent, body, vec![(parent, name.to_vec(), key, 0)])
}

impl<M: Memory> Session<M> {
    /// What belay has asked a daemon for by itself changes the image as well.
    pub(crate) fn log_injected(&mut self, task: u64, question: &Question, reply: &[u8]) {
        let done = read::<OutHeader>(reply).is_some_and(|header| header.error == 0);
        let done = done && !self.buffers_files();
        let Some(task) = self.tasks.find(task).filter(|_| done) else {
            return;
        };
        let message = task.flow.message().to_vec();
        let request = Request::parse(&message).ok();
        let sake = Unique::unmarked(task.flow.unique());
        let hidden = |node: Node| {
            let dentry = self
                .store
                .dentries(node)
                .find(|dentry| is_hidden_name(&self.store.dentry_name(*dentry)))?;
            Some((self.store.key(self.store.dentry_parent(dentry)), self.store.dentry_name(dentry)))
        };
        let asked = match question {
            Question::HideByRename { node } | Question::HideTarget { node } => {
                let names = request.as_ref().map(Request::names);
                let name = names.and_then(|names| match question {
                    Question::HideByRename { .. } => names.first,
                    _ => names.second,
                });
                hidden(*node).zip(name).map(|((parent, to), from)| {
                    rename((parent, from), (parent, &to), self.store.key(*node))
                })
            }
            Question::HideByLink { node } => hidden(*node).map(|(parent, name)| {
                let key = self.store.key(*node);
                let body = [&key.to_ne_bytes()[..], &name, b"\0"].concat();
                (Opcode::LINK, parent, body, vec![(parent, name, 0, key)])
            }),
            Question::DropTarget => request.as_ref().and_then(|request| {
                let (to, name) = (target_dir(request)?, request.names().second?);
                let before = self.key_of_name(self.store.node_by_key(to)?, name);
                Some(unlink(to, name, before))
            }),
            Question::MoveHidden { node, from, to } => hidden(*node).map(|(_, name)| {
                let (from, to) = (self.store.key(*from), self.store.key(*to));
                rename((from, &name), (to, &name), self.store.key(*node))
            }),
            Question::RemoveHidden { node } => {
                hidden(*node).map(|(parent, name)| unlink(parent, &name, self.store.key(*node)))
            }
            Question::Unhide { node } => request.as_ref().and_then(|request| {
                let (to, name) = (target_dir(request)?, request.names().second?);
                let (at, from) = hidden(*node)?;
                Some(rename((at, &from), (to, name), self.store.key(*node)))
            }),
        };
        if let Some((opcode, nodeid, body, changes)) = asked {
            let header = InHeader { opcode: opcode.0, nodeid, ..InHeader::default() };
            let sent = Sent { header: &header, body: &body, sake };
            let before = Before { names: self.names_of(&sent), changes, name: 0 };
            let mut reply = reply.to_vec();
            if let Question::HideByLink { node } = question {
                // The daemon's id: the kernel never hears of this reply, and of the file it knows
                // the other name.
                let key = self.store.key(*node);
                let _ = put_u64(&mut reply, belay_wire::ENTRY_OFFSET, key);
            }
            self.append_logged(sent, &reply, before);
        }
    }
}
