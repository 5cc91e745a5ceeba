//! Names that this life's daemon has been asked for. The kernel keeps names across a crash, and so
//! asks a successor to remove or move one that it has never been asked to look up, which some
//! daemons take for impossible, and die of. Such a name is looked up first, in the name of who
//! asks.
//!
//! Only in lives after the first. What has been asked for is known by a table of fixed size; what
//! that has lost is looked up once more, which does no harm. A lookup that gives the daemon's node
//! to nobody is taken back when the request that it was made for is answered, and not before: until
//! then the daemon knows the name by it.
//!
//! The root has no name. Its attributes are what the kernel asks for first where it checks
//! permissions itself, and has still after a crash; some daemons set up what they have of the root
//! only then.

use crate::flows::flow::{Parked, Task};
use crate::flows::hide::state::Hide;
use crate::flows::restore::state::Question;
use crate::flows::step::Step;
use crate::message::{entry_of, read, target_dir};
use crate::session::Session;
use crate::traffic::entries::kind_of;
use belay_memory::Memory;
use belay_oplog::Record;
use belay_recorder::Node;
use belay_wire::abi::{InHeader, OutHeader};
use belay_wire::errno::ENOENT;
use belay_wire::{Opcode, OpcodeSet, Request, Unique, build};

/// What takes names away. What makes one needs no daemon to know that it was not there.
const REMOVING: OpcodeSet =
    OpcodeSet::new(&[Opcode::UNLINK, Opcode::RMDIR, Opcode::RENAME, Opcode::RENAME2]);
/// The same, and what makes names.
const NAMING: OpcodeSet = OpcodeSet::new(&[
    Opcode::UNLINK,
    Opcode::RMDIR,
    Opcode::RENAME,
    Opcode::RENAME2,
    Opcode::LINK,
    Opcode::SYMLINK,
    Opcode::MKNOD,
    Opcode::MKDIR,
    Opcode::CREATE,
]);
/// A request's names that mean entries of directories, with these directories' keys.
fn entries_of<'a>(request: &Request<'a>) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
    let names = request.names();
    let first = names.first.map(|name| (request.header.nodeid, name));
    let second = target_dir(request).zip(names.second);
    [first, second].into_iter().flatten()
}

/// For whom a lookup is borrowed: a request, or an errand of belay's own.
fn borrower(task: &Task) -> u64 {
    match Unique::unmarked(task.flow.unique()) {
        0 => belay_wire::Unique::own(task.id).word(),
        unique => unique,
    }
}

impl<M: Memory> Session<M> {
    /// Has so many names at most be known to have been asked for, of which none is known now. For
    /// tests: a name is lost from the table by chance, and with one bucket at the next name.
    pub fn know_names(&mut self, buckets: usize) {
        self.restored.know_names(buckets);
    }

    /// This life's daemon has been asked for that name, and has not forgotten it.
    #[inline]
    pub(crate) fn meet(&mut self, parent: Node, name: &[u8]) {
        self.restored.meet(|| self.store.key(parent), name);
    }

    /// The same, where the directory is not known by a node.
    pub(crate) fn meet_by_key(&mut self, parent: u64, name: &[u8]) {
        self.restored.meet(|| parent, name);
    }

    /// The first name of a request from the op-log that this life's daemon has not been asked for,
    /// with its number. `looked`: the names that were looked up for it, a bit each, which the table
    /// may have lost since.
    pub(crate) fn unmet_of<'a>(
        &self,
        request: &Request<'a>,
        looked: u8,
    ) -> Option<(usize, &'a [u8])> {
        if !REMOVING.has(request.opcode()) {
            return None;
        }
        let mut names = entries_of(request).enumerate().filter(|(at, _)| looked & 1 << at == 0);
        let unmet = |(parent, name)| !self.restored.has_met(parent, name);
        names.find(|(_, entry)| unmet(*entry)).map(|(at, (_, name))| (at, name))
    }

    /// This life's daemon was asked for the names of such a request, or for the one with this
    /// number.
    pub(crate) fn meet_logged(&mut self, record: &Record, number: Option<usize>) {
        let facts = &record.facts;
        let header = InHeader { opcode: facts.opcode, nodeid: facts.node, ..InHeader::default() };
        let request = Request { header, body: &record.body };
        if NAMING.has(request.opcode()) {
            for (at, (parent, name)) in entries_of(&request).enumerate() {
                if number.is_none_or(|number| number == at) {
                    self.meet_by_key(parent, name);
                }
            }
        }
    }

    fn has_met(&self, parent: u64, name: &[u8]) -> bool {
        if !self.restored.is_successor() {
            return true;
        }
        let unbound = |node: &Node| self.store.bound(*node, self.life.ids()).is_none();
        self.restored.has_met(parent, name) && self.child_of(parent, name).filter(unbound).is_none()
    }

    fn child_of(&self, parent: u64, name: &[u8]) -> Option<Node> {
        self.store.child(self.store.node_by_key(parent)?, name)
    }

    /// Whether a request has a name that this life's daemon has not been asked for.
    #[inline]
    pub(crate) fn names_unmet(&self, request: &Request<'_>) -> bool {
        self.restored.is_successor()
            && REMOVING.has(request.opcode())
            && entries_of(request).any(|(parent, name)| !self.has_met(parent, name))
    }

    /// Looks up a request's names first.
    pub(crate) fn meet_step(&mut self, parked: &mut Parked, request: &Request<'_>) -> Option<Step> {
        // Once its file is being hidden, a name may be gone by belay's own hand; it was looked up
        // before.
        if !self.restored.is_successor()
            || !REMOVING.has(request.opcode())
            || parked.hide != Hide::None
        {
            return None;
        }
        for (at, (parent, name)) in entries_of(request).enumerate() {
            if parked.looked.names & 1 << at != 0 || self.has_met(parent, name) {
                continue;
            }
            let parent = self.store.node_by_key(parent)?;
            let step = self.meet_name(parent, name);
            if matches!(step, Some(Step::Inject(..))) {
                parked.looked.names |= 1 << at;
            }
            if step.is_some() {
                return step;
            }
        }
        // As the kernel would have answered, had it looked.
        parked
            .looked
            .absent
            .then(|| self.answer(parked, &build::reply_error(request.header.unique, ENOENT)))
    }

    /// Looks up a hidden name, which is to be moved or taken away. The kernel never asks for it.
    pub(crate) fn meet_hidden(&mut self, parent: Node, name: &[u8]) -> Option<Step> {
        let met = self.restored.has_met(self.store.key(parent), name);
        if met { None } else { self.meet_name(parent, name) }
    }

    fn meet_name(&mut self, parent: Node, name: &[u8]) -> Option<Step> {
        let id = self.store.bound(parent, self.life.ids())?;
        if let Some(mover) = self.mover_of(parent, name) {
            return Some(Step::After(mover));
        }
        let child = self.store.child(parent, name);
        let child = child.filter(|node| self.store.bound(*node, self.life.ids()).is_none());
        if let Some(child) = child
            && !self.restored.begin(child)
        {
            return Some(Step::Blocked);
        }
        let message = build::lookup(self.questions.ids(id), name);
        Some(Step::ask(message, Question::Meet { parent, name: name.to_vec(), child }))
    }

    pub(crate) fn met_name(
        &mut self,
        id: u64,
        parent: Node,
        name: &[u8],
        child: Option<Node>,
        reply: &[u8],
    ) {
        if let Some(child) = child {
            self.restored.end(child);
        }
        self.meet(parent, name);
        let Some(task) = self.tasks.find(id) else { return };
        let lender = borrower(task);
        if let Some(entry) = entry_of(reply) {
            let known = self.store.node_by_id(self.life.ids(), entry.nodeid);
            let same = self.store.child(parent, name).filter(|node| {
                self.store.bound(*node, self.life.ids()).is_none()
                    && self.is_same(*node, kind_of(entry.attr.mode), &entry)
            });
            match known.or(same) {
                Some(Node::ROOT) | None => self.questions.borrow(lender, entry.nodeid),
                Some(node) => self.is_found(node, &entry),
            }
        }
        let absent = read::<OutHeader>(reply).is_some_and(|header| -header.error == ENOENT)
            || reply.len() > size_of::<OutHeader>() && entry_of(reply).is_none();
        self.tasks.resume(id, |task| {
            // Of one that came back after a crash, a part may have been done; and of two names, the
            // first is taken away.
            let fresh = !task.old;
            if let Some(parked) = task.flow.request_mut() {
                parked.looked.absent |= absent && fresh && parked.looked.names == 1;
            }
        });
    }

    /// Whether a request opens the root, of which this life's daemon has not been asked.
    #[inline]
    pub(crate) fn root_unmet(&self, request: &Request<'_>) -> bool {
        request.opcode() == Opcode::OPENDIR
            && request.header.nodeid == self.store.key(Node::ROOT)
            && !self.restored.has_met_root()
    }

    /// Asks for the root's attributes before it is opened.
    pub(crate) fn meet_root(&mut self) -> Option<Step> {
        if self.restored.has_met_root() {
            return None;
        }
        let id = self.store.bound(Node::ROOT, self.life.ids())?;
        Some(Step::ask(build::getattr(self.questions.ids(id), None), Question::MeetRoot))
    }

    pub(crate) fn met_root(&mut self, task: u64) {
        self.restored.meet_root(); // whatever was answered: the daemon was asked
        self.tasks.resume(task, |_| {});
    }

    /// The daemon forgets what it was asked to look up for the sake of a request, or an errand,
    /// that is over.
    pub(crate) fn give_back(&mut self, lender: u64) {
        let given = self.questions.give_back(lender);
        self.forget_later(given);
    }

    /// The same for a task.
    pub(crate) fn give_back_of(&mut self, task: &Task) {
        if self.questions.has_borrowed() {
            self.give_back(borrower(task));
        }
    }
}
