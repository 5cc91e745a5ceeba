//! Bringing back nodes, handles and locks in a successor, as the first request needs them.
//!
//! | module | answers |
//! | --- | --- |
//! | here | nodes |
//! | [`handles`] | handles, also of files whose mode forbids that by now |
//! | [`locks`] | locks, before anybody else can take them |
//! | [`met`] | names that this life's daemon has been asked for |
//! | [`vouch`] | directories that have another inode number |
//! | [`lost`] | what cannot be had again, and who says so |
//! | [`missing`], [`state`] | what is missing for a request; what is asked for it |

mod handles;
mod locks;
mod lost;
mod met;
mod vouch;

pub(crate) mod missing;
pub(crate) mod state;

use crate::decision::Progress;
use crate::flows::flow::Parked;
use crate::flows::restore::missing::{Missed, Missing};
use crate::flows::restore::state::Question;
use crate::flows::step::Step;
use crate::message::{read, target_dir};
use crate::session::Session;
use crate::traffic::entries::kind_of;
use belay_memory::Memory;
use belay_recorder::Node;
use belay_recorder::control::Counter;
use belay_wire::abi::OutHeader;
use belay_wire::errno::{ENOENT, ESTALE};
use belay_wire::{EntryOut, Request, build};

/// The longest path that is restored.
const MAX_DEPTH: usize = 4096;

impl<M: Memory> Session<M> {
    /// The daemon's answer to a question of this flow.
    pub(crate) fn on_restore_reply(&mut self, task: u64, question: Question, reply: &[u8]) {
        match question {
            Question::RestoreNode { node, parent, name } => {
                self.restored_node(task, node, parent, &name, reply);
            }
            Question::Meet { parent, name, child } => {
                self.met_name(task, parent, &name, child, reply);
            }
            Question::MeetRoot => self.met_root(task),
            Question::Vouch { node } => self.vouched(task, node, reply),
            Question::Reopen { handle } => self.reopened(task, handle, reply),
            Question::ReadMode { handle, errno } => self.mode_read(task, handle, errno, reply),
            Question::WidenMode { handle, mode } => self.mode_widened(task, handle, mode, reply),
            Question::NarrowMode { handle } => self.mode_narrowed(task, handle),
            Question::NarrowLeft { handle } => self.left_narrowed(task, handle),
            Question::Relock { lock } => self.relocked(task, lock, reply),
        }
    }

    pub(crate) fn restore(&mut self, missing: Missing) -> Missed {
        match missing {
            Missing::Node(node) => self.restore_node(node),
            Missing::Handle(handle) => self.restore_handle(handle),
            Missing::Gone | Missing::Lost => Missed::Failed(ESTALE),
        }
    }

    /// Looks up the nearest ancestor of `node` that this generation does not know.
    pub(crate) fn restore_node(&mut self, node: Node) -> Missed {
        let mut node = node;
        for _ in 0..MAX_DEPTH {
            let Some(dentry) = self.store.dentries(node).next() else {
                return Missed::Nameless;
            };
            let parent = self.store.dentry_parent(dentry);
            let Some(id) = self.store.bound(parent, self.life.ids()) else {
                node = parent;
                continue;
            };
            if let Some(step) = self.doubt_step(node) {
                return step;
            }
            let name = self.store.dentry_name(dentry);
            if let Some(task) = self.mover_of(parent, &name) {
                return Missed::Step(Step::After(task));
            }
            if !self.restored.begin(node) {
                return Missed::Step(Step::Blocked);
            }
            let message = build::lookup(self.questions.ids(id), &name);
            return Missed::Step(Step::ask(message, Question::RestoreNode { node, parent, name }));
        }
        Missed::Failed(ESTALE)
    }

    /// A rename that was in flight at the crash and is not settled: until it is, nobody knows what
    /// its names mean.
    pub(crate) fn mover_of(&self, parent: Node, name: &[u8]) -> Option<u64> {
        let key = self.store.key(parent);
        let mover = self.tasks.iter().find(|task| {
            let begun = |parked: &&Parked| {
                parked.resent.is_some_and(|resent| resent.progress == Progress::Started)
            };
            let parked = task.flow.request().filter(begun);
            let Some(request) = parked.and_then(|parked| Request::parse(parked.message()).ok())
            else {
                return false;
            };
            let names = request.names();
            target_dir(&request).is_some_and(|to| {
                (request.header.nodeid == key && names.first == Some(name))
                    || (to == key && names.second == Some(name))
            })
        });
        mover.map(|task| task.id)
    }

    pub(crate) fn restored_node(
        &mut self,
        task: u64,
        node: Node,
        parent: Node,
        name: &[u8],
        reply: &[u8],
    ) {
        self.restored.end(node);
        let Some(header) = read::<OutHeader>(reply) else { return };
        let entry = reply.get(16..).and_then(read::<EntryOut>).filter(|entry| entry.nodeid != 0);
        let errno = -header.error;
        match entry.filter(|_| errno == 0) {
            Some(entry) if self.is_same(node, kind_of(entry.attr.mode), &entry) => {
                self.is_found(node, &entry);
                self.meet(parent, name);
            }
            found if found.is_some() || errno == ENOENT || errno == 0 => {
                // The name is gone or is something else's now; the node may have other names.
                if found.is_none_or(|entry| !self.doubt(node, parent, name, &entry)) {
                    self.is_replaced(node, parent, name, found.as_ref());
                }
            }
            _ => self.tasks.resume(task, |task| task.flow.refuse(errno)),
        }
        self.tasks.resume(task, |_| {});
    }

    /// A name of `node` leads to something else now, or to nothing.
    pub(crate) fn is_replaced(
        &mut self,
        node: Node,
        parent: Node,
        name: &[u8],
        found: Option<&EntryOut>,
    ) {
        if let Some(entry) = found {
            self.forget_later(vec![(entry.nodeid, 1)]);
            self.count(Counter::Failed); // the daemon would have gone on with it
            self.tell_renumbered(node, entry);
        }
        self.tell_gone(node, (parent, name), found);
        self.store.begin();
        if self.store.child(parent, name) == Some(node) {
            self.unname(parent, name);
        }
        self.store.commit();
    }

    /// The daemon was asked for `node`, and this is it.
    pub(crate) fn is_found(&mut self, node: Node, entry: &EntryOut) {
        let unknown = self.store.bound(node, self.life.ids()) != Some(entry.nodeid);
        self.store.begin();
        if unknown {
            self.store.bind(node, self.life.ids(), entry.nodeid);
        }
        self.store.count_for_daemon(node);
        self.pin(node, (entry.attr.ino, entry.attr.nlink));
        self.store.commit();
        if unknown {
            self.count(Counter::NodesRestored);
        }
    }
}
