//! Hidden names, on record before the daemon can know them, and the errand that removes a hidden
//! file.

use crate::flows::flow::{Errand, Flow};
use crate::flows::hide::state::Question;
use crate::flows::injection::Injection;
use crate::flows::restore::missing::Missed;
use crate::flows::step::Step;
use crate::parts::hidden::{PREFIX, is_hidden_name};
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::Counter;
use belay_recorder::{Node, NodeFlags};
use belay_wire::build;

impl<M: Memory> Session<M> {
    /// Gives `node` a hidden name in `parent`, on record; the one it has, if it has one.
    pub(crate) fn intend(&mut self, node: Node, parent: Node) -> Option<Vec<u8>> {
        if let Some(name) = self.hidden_name(node) {
            return Some(name);
        }
        self.store.begin();
        let serial = self.store.next_hidden_serial();
        let mut name = PREFIX.to_vec();
        name.extend(
            format!(
                "{:x}-{serial:x}",
                self.control().instant(belay_recorder::control::Instant::Attached)
            )
            .bytes(),
        );
        let added = self.store.dentry_set(parent, &name, node).is_ok();
        self.store.commit();
        added.then_some(name)
    }

    pub(crate) fn hidden_name(&self, node: Node) -> Option<Vec<u8>> {
        self.store
            .dentries(node)
            .map(|dentry| self.store.dentry_name(dentry))
            .find(|name| is_hidden_name(name))
    }

    /// The hidden name was not taken after all. Part of no change.
    pub(crate) fn drop_intent(&mut self, node: Node) {
        self.hidden.forget_remover(node);
        let mut forget = Vec::new();
        self.store.begin();
        self.drop_hidden_name(node, &mut forget);
        self.store.commit();
        self.forget_later(forget);
    }

    /// Part of a change.
    pub(crate) fn drop_hidden_name(&mut self, node: Node, forget: &mut Vec<(u64, u64)>) {
        let dentry = self
            .store
            .dentries(node)
            .find(|dentry| is_hidden_name(&self.store.dentry_name(*dentry)));
        if let Some(dentry) = dentry {
            let parent = self.store.dentry_parent(dentry);
            self.end_lone(node);
            self.store.dentry_remove(dentry);
            // The kernel may have forgotten the directory already.
            self.store.release_unused(parent, self.life.ids(), forget);
        }
    }

    /// A node lost a name. If only hidden names are left, it is now hidden; if none, unlinked.
    pub(crate) fn after_unname(&mut self, node: Node) {
        let mut names = self.store.dentries(node).map(|d| self.store.dentry_name(d)).peekable();
        if names.peek().is_none() {
            drop(names);
            self.store.node_flag(node, NodeFlags::UNLINKED, true);
            return;
        }
        let all_hidden = names.all(|name| is_hidden_name(&name));
        drop(names);
        if all_hidden && !self.store.node_flags(node).intersects(NodeFlags::HIDDEN) {
            self.store.node_flag(node, NodeFlags::HIDDEN, true);
            self.notice.overflow_if(!self.store.hidden_add(node));
            self.hidden.add(node);
            self.begin_lone(node);
            self.count(Counter::Hidden);
        }
    }

    /// Removes hidden files whose last handle is gone.
    pub(crate) fn remove_hidden(&mut self) {
        let done: Vec<_> = self
            .hidden
            .iter()
            .filter(|node| !self.is_in_use(*node) && self.remover_of(*node).is_none())
            .collect();
        for node in done {
            self.park_errand(Flow::RemoveHidden(Errand::new(node)));
        }
    }

    /// The errand that removes a hidden file.
    pub(crate) fn remover_of(&self, node: Node) -> Option<u64> {
        let removes = |flow: &Flow| matches!(flow, Flow::RemoveHidden(e) if e.about == node);
        self.tasks.iter().find(|task| removes(&task.flow)).map(|task| task.id)
    }

    pub(crate) fn remove_hidden_step(&mut self, errand: Errand<Node>) -> Step {
        let node = errand.about;
        if errand.failed {
            return Step::Done;
        }
        if self.is_moving(node) || self.logged.is_kept() && self.is_numbering(0) {
            return Step::Blocked;
        }
        let dentry = self
            .store
            .dentries(node)
            .find(|dentry| is_hidden_name(&self.store.dentry_name(*dentry)));
        let Some(dentry) = dentry else { return Step::Done };
        let (parent, name) = (self.store.dentry_parent(dentry), self.store.dentry_name(dentry));
        let Some(id) = self.store.bound(parent, self.life.ids()) else {
            return match self.restore_node(parent) {
                Missed::Step(step) => step,
                Missed::Failed(_) | Missed::Nameless => Step::Done,
            };
        };
        if let Some(step) = self.meet_hidden(parent, &name) {
            return step;
        }
        let ids = self.questions.ids(id);
        Step::ask(build::unlink(ids, &name), Question::RemoveHidden { node })
    }

    /// Whether the daemon is at work on a hidden file's names: they are on record before they are
    /// there.
    fn is_moving(&self, file: Node) -> bool {
        let moves = |asked: &Injection| match asked {
            Injection::Hide(question) => question.moves() == Some(file),
            _ => false,
        };
        self.questions.iter().any(moves)
    }

    pub(crate) fn removed_hidden(&mut self, id: u64, node: Node) {
        let mut forget = Vec::new();
        self.store.begin();
        self.drop_hidden_name(node, &mut forget);
        if self.store.node_flags(node).intersects(NodeFlags::HIDDEN) {
            self.store.node_flag(node, NodeFlags::HIDDEN, false);
            let named = self.store.dentries(node).next().is_some();
            self.store.node_flag(node, NodeFlags::UNLINKED, !named);
            self.store.hidden_remove(node);
            self.hidden.remove(node);
        }
        self.store.release_unused(node, self.life.ids(), &mut forget);
        self.store.commit();
        self.forget_later(forget);
        self.tasks.resume(id, |task| {
            match task.flow.request_mut().map(|parked| &mut parked.hide) {
                Some(hide) => hide.dropped(),
                None => task.flow.set_done(true),
            }
        });
    }
}
