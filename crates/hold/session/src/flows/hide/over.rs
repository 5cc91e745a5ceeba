//! Renames over an open file: the file lives on under a hidden name, the rename goes on, and if
//! that fails the file has its own name back.

use crate::flows::flow::{Parked, Task};
use crate::flows::hide::state::{Hide, Question};
use crate::flows::step::Step;
use crate::message::{entry_of, read, target_dir};
use crate::parts::hidden::is_hidden_name;
use crate::parts::scheduler::Wait;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::{Flags, Loss};
use belay_recorder::{Dentry, Node, NodeFlags};
use belay_wire::abi::OutHeader;
use belay_wire::errno::ENOENT;
use belay_wire::{Opcode, Request, Unique, build};

impl<M: Memory> Session<M> {
    pub(crate) fn hidden_by_link(&mut self, id: u64, node: Node, reply: &[u8]) {
        let entry = entry_of(reply);
        let one_node =
            entry.is_some_and(|e| self.store.bound(node, self.life.ids()) == Some(e.nodeid));
        if let Some(entry) = entry {
            self.learn_of_link(node, entry.nodeid);
            // With other names besides, others may change the count as well.
            self.store.begin();
            let lone = entry.attr.nlink == 2;
            self.store.node_flag(node, NodeFlags::LONE, lone);
            if one_node {
                self.store.count_for_daemon(node);
            }
            self.store.commit();
            if lone {
                self.hidden.note_lone(node, self.visible_path(node));
            }
            if !one_node {
                self.forget_later(vec![(entry.nodeid, 1)]);
            }
        }
        // Where links are nodes of their own, the daemon must also move the open file's node to the
        // hidden name, or that node has no name after the rename over it and cannot be opened again
        // (and libfuse leaves a hidden file of its own behind at a crash). A rename onto a link of
        // the same file changes nothing but the daemon's nodes. So also where the link exists
        // already, which a dead generation had made: the hidden name is this file's alone.
        self.hidden.note_link(one_node);
        self.with_parked(id, |parked| {
            parked.hide = if one_node { Hide::Kept } else { Hide::NoLink };
        });
    }

    pub(crate) fn moved_target(&mut self, id: u64, node: Node, reply: &[u8]) {
        // If it is not there any more, a dead generation had moved it.
        let ok = read::<OutHeader>(reply)
            .is_some_and(|header| header.error == 0 || header.error == -ENOENT);
        if !ok {
            self.drop_intent(node);
        }
        self.with_parked(id, |parked| parked.hide = if ok { Hide::Away } else { Hide::GaveUp });
    }

    /// Whatever the daemon said: the name is gone, or it was not there.
    pub(crate) fn dropped_target(&mut self, id: u64) {
        self.with_parked(id, |parked| parked.hide = Hide::Kept);
    }

    /// Removes the name that a request renames over, now that its open file has a hidden one, if
    /// the two files of the request may be one: a daemon that gives each link a node of its own
    /// gets such requests. The hidden name is a link as well, and rename(2) does nothing between
    /// two links of a file. So the RENAME to the hidden name has left the target in place, and the
    /// request would leave its source, which the kernel takes for gone. Without belay it is gone:
    /// libfuse hides an open target by RENAME alone. To do this twice, in a successor, does no
    /// harm: the file has its hidden name, and a rename that was carried out does not come here
    /// again.
    pub(crate) fn drop_target(
        &mut self,
        parked: &mut Parked,
        request: &Request<'_>,
        node: Node,
        parent_id: u64,
    ) -> Option<Step> {
        let names = request.names();
        let from = self.store.node_by_key(request.header.nodeid)?;
        let source = self.store.child(from, names.first?);
        if source.is_some_and(|source| !self.may_be_one_file(source, node)) {
            parked.hide = Hide::Kept;
            return None;
        }
        let unlink = build::unlink(self.questions.ids(parent_id), names.second?);
        Some(Step::ask(unlink, Question::DropTarget))
    }

    /// Whether two nodes can be links of one file: unless their inode numbers are different and
    /// mean something.
    fn may_be_one_file(&self, one: Node, other: Node) -> bool {
        self.store.kind(one) == self.store.kind(other)
            && (self.store.ino(one) == self.store.ino(other)
                || self.is_pinned(one)
                || self.is_pinned(other)
                || self.volatile())
    }

    /// A rename over an open file has failed (`error`: the reply's): the file's hidden second name
    /// goes again, or its first comes back, before the caller hears of it. So whoever dies in
    /// between has a successor that begins anew. Gives whether there is something to be undone.
    pub(crate) fn undoes(&mut self, unique: u64, opcode: Opcode, error: i32) -> bool {
        if !matches!(opcode, Opcode::RENAME | Opcode::RENAME2) {
            return false;
        }
        let is_it = |task: &&Task| Unique::unmarked(task.flow.unique()) == unique;
        let Some(task) = self.tasks.iter().find(is_it) else { return false };
        let (id, waits) = (task.id, task.wait == Wait::Reply(unique));
        let Some(mut parked) = task.flow.request().cloned() else { return false };
        if parked.hide.is_undone() {
            return true; // the daemon answers twice
        }
        if error == 0 || !waits || !self.begin_undo(&mut parked, error) {
            return false;
        }
        self.with_parked(id, |place| *place = parked);
        self.tasks.kick();
        true
    }

    /// The same for a request that is to fail with `error` (negative) without the daemon's word.
    pub(crate) fn begin_undo(&self, parked: &mut Parked, error: i32) -> bool {
        let message = parked.message();
        let hidden = Request::parse(message).ok().and_then(|request| self.hidden_target(&request));
        let undo = match parked.hide {
            Hide::Kept if self.hidden.links_work() => Hide::Drop(error),
            // Also what a dead generation had begun: of two links of a file that leaves both.
            Hide::Kept | Hide::None => Hide::Back(error),
            _ => return false,
        };
        if hidden.is_some() {
            parked.hide = undo;
        }
        hidden.is_some()
    }

    /// The file that a rename goes over, with its directory and hidden name, if it has one.
    fn hidden_target(&self, request: &Request<'_>) -> Option<(Node, Node, Vec<u8>)> {
        let to = self.store.node_by_key(target_dir(request)?)?;
        let node = self.store.child(to, request.names().second?)?;
        Some((node, to, self.hidden_name(node)?))
    }

    /// Takes that further, up to the answer.
    pub(crate) fn undo_step(&mut self, parked: &mut Parked, request: &Request<'_>) -> Option<Step> {
        let (Hide::Back(error) | Hide::Drop(error) | Hide::Undone(error)) = parked.hide else {
            return None;
        };
        let asked = self.undo(parked.hide, request);
        let reply = || build::reply_error(request.header.unique, -error);
        Some(asked.unwrap_or_else(|| self.answer(parked, &reply())))
    }

    fn undo(&mut self, hide: Hide, request: &Request<'_>) -> Option<Step> {
        let (node, to, hidden) = self.hidden_target(request)?;
        let name = request.names().second?;
        let id = self.store.bound(to, self.life.ids())?;
        let ids = self.questions.ids(id);
        match hide {
            Hide::Back(_) => {
                let message = build::rename(ids, id, &hidden, name);
                Some(Step::ask(message, Question::Unhide { node }))
            }
            // If the two names were links of one file, that has left both.
            Hide::Drop(_) => {
                Some(Step::ask(build::unlink(ids, &hidden), Question::RemoveHidden { node }))
            }
            _ => None,
        }
    }

    pub(crate) fn unhidden(&mut self, id: u64, reply: &[u8]) {
        let done = read::<OutHeader>(reply).is_some_and(|header| header.error == 0);
        self.with_parked(id, |parked| {
            if let Hide::Back(error) = parked.hide {
                parked.hide = if done { Hide::Drop(error) } else { Hide::Undone(error) };
            }
        });
    }

    /// The name of a file is gone: from the next request on the daemon is to count right.
    pub(crate) fn begin_lone(&mut self, node: Node) {
        self.hidden.begin_lone(node, self.slots.newest());
    }

    /// How many links it has is not known any more. Part of a change.
    pub(crate) fn end_lone(&mut self, node: Node) {
        self.hidden.end_lone(node);
        self.store.node_flag(node, NodeFlags::LONE, false);
    }

    /// The daemon says how many links a file has, in answer to the request `unique`. After a rename
    /// over the name of one that belay has linked for that, some say two for ever: that is told,
    /// once in a mount.
    pub(crate) fn check_links(&mut self, node: Node, unique: u64, nlink: u32) {
        let both = NodeFlags::HIDDEN | NodeFlags::LONE;
        if !self.store.node_flags(node).contains(both) {
            return;
        }
        // What was under way with the rename may tell of before. A successor has nothing of that.
        if self.hidden.is_before_lone(node, Unique::unmarked(unique)) {
            return;
        }
        let path = self.hidden.end_lone(node);
        self.store.begin();
        self.store.node_flag(node, NodeFlags::LONE, false);
        self.store.commit();
        if nlink > 1 && !self.control().has(Flags::MISCOUNTS) {
            self.control().raise(Flags::MISCOUNTS);
            let path = path.unwrap_or_else(|| self.path_of(self.store.key(node)));
            self.control().lose(
                Loss::Links,
                &format!(
                    "/{path}: the daemon counts {nlink} links of this open file, which has one left since another was renamed \
                     over it; of such files programs are shown a wrong count, and perhaps another mode (SEMANTICS.md, L46)"
                ),
            );
            self.notice.tell();
        }
    }

    /// The name by which people know a file that has a hidden one as well.
    fn visible_path(&self, node: Node) -> String {
        let visible = |dentry: &Dentry| !is_hidden_name(&self.store.dentry_name(*dentry));
        let Some(dentry) = self.store.dentries(node).find(visible) else {
            return self.path_of(self.store.key(node));
        };
        let name = self.store.dentry_name(dentry);
        let path = self.path_below(self.store.key(self.store.dentry_parent(dentry)), &name);
        String::from_utf8_lossy(&path).into_owned()
    }
}
