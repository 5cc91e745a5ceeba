//! Files that are open and unlinked, or renamed over (see [`over`]): no successor could find them
//! any more, so they live on under a hidden name until their last handle is released.
//!
//! | module | answers |
//! | --- | --- |
//! | here | names of open files that are removed; directories with hidden files |
//! | [`over`] | renames over open files, and undoing what was done for one that fails |
//! | [`names`] | hidden names on record, and removing what has no other |
//! | [`state`] | how far hiding is; what is asked for it |

mod names;
mod over;

pub(crate) mod state;

use crate::flows::flow::{Parked, Task};
use crate::flows::hide::state::{Hide, Question};
use crate::flows::restore::missing::Missed;
use crate::flows::restore::missing::Missing;
use crate::flows::step::Step;
use crate::message::{read, target_dir};
use crate::parts::caller::Caller;
use crate::parts::hidden::is_hidden_name;
use crate::parts::slots::Active;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::{Node, NodeFlags};
use belay_wire::abi::{OutHeader, Rename2In};
use belay_wire::errno::ENOENT;
use belay_wire::{Opcode, Request, Unique, build};

impl<M: Memory> Session<M> {
    /// The daemon's answer to a question of this flow.
    pub(crate) fn on_hide_reply(&mut self, task: u64, question: &Question, reply: &[u8]) {
        if self.logged.is_kept() {
            self.log_injected(task, question, reply);
        }
        match *question {
            Question::HideByRename { node } => self.hidden_by_rename(task, node, reply),
            Question::HideByLink { node } => self.hidden_by_link(task, node, reply),
            Question::HideTarget { node } => self.moved_target(task, node, reply),
            Question::DropTarget => self.dropped_target(task),
            Question::MoveHidden { node, from, to } => {
                self.moved_hidden(task, node, (from, to), reply);
            }
            Question::RemoveHidden { node } => self.removed_hidden(task, node),
            Question::Unhide { .. } => self.unhidden(task, reply),
        }
    }

    /// Whether a request removes the only name of an open file, or a directory with hidden files.
    pub(crate) fn hide_needed(&self, request: &Request<'_>) -> bool {
        match request.opcode() {
            Opcode::RMDIR => self.hidden_in_victim(request).is_some(),
            _ => self.victim(request).is_some() || self.hidden_in_victim(request).is_some(),
        }
    }

    /// The open node whose only name a request takes away, with that name's directory.
    fn victim(&self, request: &Request<'_>) -> Option<(Node, Node)> {
        if self.life.keeps_records() {
            return None; // it keeps what is open as well, and finds it again
        }
        let names = request.names();
        let from = self.store.node_by_key(request.header.nodeid)?;
        let (parent, name, source) = match request.opcode() {
            Opcode::UNLINK => (from, names.first?, None),
            Opcode::RENAME | Opcode::RENAME2 => {
                if request.opcode() == Opcode::RENAME2
                    && request.body_as::<Rename2In>()?.flags & !4 != 0
                {
                    return None; // an exchange or NOREPLACE removes nothing
                }
                let to = self.store.node_by_key(target_dir(request)?)?;
                (to, names.second?, self.store.child(from, names.first?))
            }
            _ => return None,
        };
        let node = self.store.child(parent, name)?;
        let visible =
            self.store.dentries(node).filter(|d| !is_hidden_name(&self.store.dentry_name(*d)));
        (self.is_in_use(node)
            && self.store.kind(node) != crate::traffic::entries::DIRECTORY
            // Hidden already: it had a name that the kernel did not know.
            && !self.store.node_flags(node).intersects(NodeFlags::HIDDEN)
            && source != Some(node)
            && visible.count() == 1)
            .then_some((node, parent))
    }

    /// Whether a file is open, or will be by a request that is under way: the daemon may have it
    /// open already, and the kernel lets names go meanwhile.
    fn is_in_use(&self, node: Node) -> bool {
        self.store.opens(node) > 0 || self.is_being_opened(node)
    }

    fn is_being_opened(&self, node: Node) -> bool {
        let key = self.store.key(node);
        let opens = |active: &Active| {
            active.opcode == Opcode::OPEN
                && !active.sent
                && self.store.slot_node(active.slot) == key
        };
        let waits = |task: &Task| {
            task.flow.opcode() == Opcode::OPEN
                && Request::parse(task.flow.message()).is_ok_and(|open| open.header.nodeid == key)
        };
        self.slots.iter().any(opens) || self.tasks.iter().any(waits)
    }

    pub(crate) fn hide_step(
        &mut self,
        task: u64,
        parked: &mut Parked,
        request: &Request<'_>,
    ) -> Option<Step> {
        if let Some(step) = self.undo_step(parked, request) {
            return Some(step);
        }
        match request.opcode() {
            Opcode::RMDIR => return self.empty_victim(parked, request),
            Opcode::UNLINK => {}
            Opcode::RENAME | Opcode::RENAME2 => {
                if let Some(step) = self.empty_victim(parked, request) {
                    return Some(step);
                }
            }
            _ => return None,
        }
        if parked.hide == Hide::Renamed {
            return Some(self.answer(parked, &build::reply_ok(request.header.unique)));
        }
        if matches!(parked.hide, Hide::Kept | Hide::GaveUp) {
            return None;
        }
        let (node, parent) = self.victim(request)?;
        let parent_id = self.store.bound(parent, self.life.ids())?;
        if parked.hide == Hide::Away {
            return self.drop_target(parked, request, node, parent_id);
        }
        let Some(node_id) = self.store.bound(node, self.life.ids()) else {
            return Some(self.restored(Missing::Node(node)));
        };
        let message = parked.message().to_vec();
        if !self.record_start(&message, parked.slot) {
            return Some(Step::Blocked);
        }
        parked.slot = self.slots.find(Unique::unmarked(request.header.unique)).map(|s| s.1);
        // The hidden name is on record before the daemon can know it.
        let hidden = self.intend(node, parent)?;
        let header = &request.header;
        let remover = Caller { uid: header.uid, gid: header.gid, pid: 0 };
        self.hidden.set_remover(node, remover);
        let names = request.names();
        let ids = self.questions.ids(parent_id);
        if request.opcode() == Opcode::UNLINK {
            let name = names.first?;
            let rename = build::rename(ids, parent_id, name, &hidden);
            return Some(Step::ask(rename, Question::HideByRename { node }));
        }
        self.tasks.exclude(task, request.header.nodeid);
        target_dir(request).into_iter().for_each(|key| self.tasks.exclude(task, key));
        if parked.hide == Hide::NoLink {
            let name = names.second?;
            let rename = build::rename(ids, parent_id, name, &hidden);
            return Some(Step::ask(rename, Question::HideTarget { node }));
        }
        Some(Step::ask(build::link(ids, node_id, &hidden), Question::HideByLink { node }))
    }

    fn restored(&mut self, missing: Missing) -> Step {
        match self.restore(missing) {
            Missed::Step(step) => step,
            Missed::Failed(_) | Missed::Nameless => Step::Deliver,
        }
    }

    pub(crate) fn hidden_by_rename(&mut self, id: u64, node: Node, reply: &[u8]) {
        let ok = read::<OutHeader>(reply).is_some_and(|header| header.error == 0);
        if !ok {
            self.drop_intent(node);
        }
        self.with_parked(id, |parked| parked.hide = if ok { Hide::Renamed } else { Hide::GaveUp });
    }

    /// A hidden file in the directory that a request removes or renames over, with the directory
    /// that it can be moved to.
    fn hidden_in_victim(&self, request: &Request<'_>) -> Option<(Node, Node, Node, Vec<u8>)> {
        if self.hidden.is_empty() {
            return None;
        }
        let names = request.names();
        let (parent, name) = match target_dir(request) {
            Some(to) => (self.store.node_by_key(to)?, names.second?),
            None => (self.store.node_by_key(request.header.nodeid)?, names.first?),
        };
        let directory = self.store.child(parent, name)?;
        self.hidden.iter().find_map(|node| {
            let dentry =
                self.store.dentries(node).find(|d| self.store.dentry_parent(*d) == directory)?;
            Some((node, parent, directory, self.store.dentry_name(dentry)))
        })
    }

    /// Moves hidden files out of a directory that is to be removed: applications see it empty.
    fn empty_victim(&mut self, parked: &mut Parked, request: &Request<'_>) -> Option<Step> {
        if parked.hide == Hide::GaveUp {
            return None;
        }
        let (node, parent, directory, name) = self.hidden_in_victim(request)?;
        if let Some(remover) = self.remover_of(node) {
            return Some(Step::After(remover));
        }
        let to = self.store.bound(parent, self.life.ids())?;
        let Some(from) = self.store.bound(directory, self.life.ids()) else {
            return Some(self.restored(Missing::Node(directory)));
        };
        if let Some(step) = self.meet_hidden(directory, &name) {
            return Some(step);
        }
        // The new place is on record before the file can be there.
        self.store.begin();
        let added = self.store.dentry_set(parent, &name, node).is_ok();
        self.store.commit();
        self.notice.overflow_if(!added);
        let message = build::rename(self.questions.ids(from), to, &name, &name);
        Some(Step::ask(message, Question::MoveHidden { node, from: directory, to: parent }))
    }

    pub(crate) fn moved_hidden(
        &mut self,
        id: u64,
        node: Node,
        (from, to): (Node, Node),
        reply: &[u8],
    ) {
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        // If it is not there any more, a dead generation had moved it.
        let left = if errno == 0 || errno == ENOENT { from } else { to };
        self.store.begin();
        let dentry = self.store.dentries(node).find(|dentry| {
            self.store.dentry_parent(*dentry) == left
                && is_hidden_name(&self.store.dentry_name(*dentry))
        });
        if let Some(dentry) = dentry {
            self.store.dentry_remove(dentry);
        }
        self.store.commit();
        self.with_parked(id, |parked| {
            if left == to {
                parked.hide = Hide::GaveUp;
            }
        });
    }

    /// Whether a request names something in a directory where a compound change is under way.
    pub(crate) fn is_excluded(&self, request: &Request<'_>) -> bool {
        self.is_excluded_for(request, 0)
    }

    pub(crate) fn is_excluded_for(&self, request: &Request<'_>, task: u64) -> bool {
        request.names().first.is_some()
            && self.tasks.is_excluded(task, |key| {
                key == request.header.nodeid || Some(key) == target_dir(request)
            })
    }
}
