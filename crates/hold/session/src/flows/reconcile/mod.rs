//! Reconcile: asking a successor whether a request that was in flight already happened.

mod created;
mod exchange;
mod presence;
mod records;

pub(crate) mod state;

use crate::decision::{Action, Class, Finding, Progress, decide};
use crate::flows::reconcile::state::{Presence, Probe, Question, Resent};

use crate::flows::flow::Parked;
use crate::flows::step::Step;
use crate::message::{entry_of, read, target_dir};
use crate::session::Session;
use crate::traffic::entries::kind_of;
use belay_memory::Memory;
use belay_recorder::Node;
use belay_recorder::control::{Counter, Options};
use belay_wire::abi::{
    AttrOut, LinkIn, OutHeader, RENAME_EXCHANGE, Rename2In, SetattrIn, SetattrValid, WRITE_CACHE,
    WriteIn, WriteOut,
};
use belay_wire::errno::ENODATA;
use belay_wire::{EntryOut, Opcode, Request, build, handle_fields};
use zerocopy::IntoBytes;

const O_APPEND: u32 = 0o2000;
const XATTR_CREATE: u32 = 1;
/// The largest extended attribute (XATTR_SIZE_MAX).
const XATTR_MAX: u32 = 65_536;

impl<M: Memory> Session<M> {
    /// The successor's answer to a question of this flow.
    pub(crate) fn on_reconcile_reply(&mut self, task: u64, question: &Question, reply: &[u8]) {
        match question {
            Question::ProbeName => self.probed_name(task, reply),
            Question::ProbeTarget => self.probed_target(task, reply),
            Question::OpenCreated => self.opened_created(task, reply),
            Question::WidenCreated => self.widened_created(task, reply),
            Question::NarrowCreated => self.narrowed_created(task),
            Question::ProbeSize => self.probed_size(task, reply),
            Question::CutTail => self.cut_tail(task, reply),
            Question::ProbeXattr => self.probed_xattr(task, reply),
            Question::ProbePresence => self.probed_presence(task, reply),
            Question::RemoveAbsent => self.refused_absent(task, reply),
            Question::ProbeRecord => self.probed_record(task, reply),
        }
    }

    /// What kind of request this is, as far as doing it twice is concerned.
    fn class(&self, request: &Request<'_>) -> Class {
        if self.is_recorded(request) {
            return Class::Recorded;
        }
        match request.opcode() {
            Opcode::CREATE | Opcode::MKDIR | Opcode::MKNOD | Opcode::SYMLINK | Opcode::LINK => {
                Class::Create
            }
            Opcode::UNLINK | Opcode::RMDIR => Class::Remove,
            Opcode::RENAME => Class::Rename,
            Opcode::RENAME2 => match request.body_as::<Rename2In>() {
                Some(rename) if rename.flags & RENAME_EXCHANGE != 0 => Class::Exchange,
                _ => Class::Rename,
            },
            Opcode::WRITE if self.is_append(request) => Class::Append,
            Opcode::SETXATTR => match request.body_as::<[u32; 2]>() {
                Some([_, flags]) if flags & XATTR_CREATE != 0 => Class::XattrCreate,
                _ => Class::Idempotent,
            },
            Opcode::REMOVEXATTR => Class::XattrRemove,
            Opcode::RELEASE | Opcode::RELEASEDIR => Class::Release,
            _ => Class::Idempotent,
        }
    }

    fn is_append(&self, request: &Request<'_>) -> bool {
        request.body_as::<WriteIn>().is_some_and(|write| {
            write.write_flags & WRITE_CACHE == 0
                && self
                    .store
                    .handle_by_key(write.fh)
                    .map(|handle| self.store.open_description(handle).flags)
                    .is_some_and(|flags| flags & O_APPEND != 0 && !self.is_made_plain(flags))
        })
    }

    /// The rows of the decision table that need nothing of the successor.
    pub(crate) fn settle_early(
        &mut self,
        parked: &mut Parked,
        request: &Request<'_>,
    ) -> Option<Step> {
        let resent = parked.resent?;
        if self.life.has(Options::BLIND_REPLAY) {
            parked.resent = None;
            return None;
        }
        let row = decide(resent.progress, self.class(request), resent.finding)?;
        match row.action {
            Action::AnswerRecorded => {
                let step = match self.answer_recorded(parked) {
                    Some(step) => step,
                    None => self.list_again(parked, request)?,
                };
                self.count(Counter::Recorded);
                self.report(parked, row.id, 0, row.reason);
                Some(step)
            }
            Action::AnswerReleased => {
                if resent.progress == Progress::Poison {
                    return Some(self.set_aside(parked, row, 0));
                }
                parked.resent = None;
                let bound = handle_fields(request).iter().any(|_| !self.releases_unbound(request));
                if bound {
                    return None; // reopened already, for its locks: the successor must close it
                }
                self.report(parked, row.id, 0, row.reason);
                Some(self.answer(parked, &build::reply_ok(request.header.unique)))
            }
            Action::Fail => self.fail_for_good(parked, row),
            _ => None,
        }
    }

    /// The other rows, once the nodes that the request names are known to the successor.
    pub(crate) fn settle_late(
        &mut self,
        parked: &mut Parked,
        request: &Request<'_>,
    ) -> Option<Step> {
        let resent = parked.resent?;
        let class = self.class(request);
        let row = decide(resent.progress, class, resent.finding)?;
        match row.action {
            Action::Ask => Some(self.ask(parked, request, class)),
            Action::AnswerDone => {
                let step = self.answer_done(parked, request, class);
                if matches!(step, Step::Answer(_)) {
                    self.count(Counter::Reconciled);
                    self.report(parked, row.id, 0, row.reason);
                }
                Some(step)
            }
            Action::Repair => {
                self.report(parked, row.id, 0, row.reason);
                let write: WriteIn = request.body_as()?;
                let id = self.node_id(request.header.nodeid)?;
                let cut = SetattrIn {
                    valid: SetattrValid::SIZE,
                    size: write.offset,
                    ..Default::default()
                };
                let message = build::setattr(self.questions.ids(id), &cut);
                Some(Step::ask(message, Question::CutTail))
            }
            Action::Fail => self.fail_for_good(parked, row),
            Action::Reissue | Action::AnswerRecorded | Action::AnswerReleased => {
                self.count(Counter::Reissued);
                self.report(parked, row.id, 0, row.reason);
                parked.resent = None;
                if resent.progress == Progress::Logged {
                    // What was looked at before it was given to the dead generation was as it
                    // should be.
                    parked.presence = Presence::There;
                    // And its names as they are now must not keep the successor from doing it
                    // again, step by step.
                    parked.looked.names = u8::MAX;
                }
                None
            }
        }
    }

    fn node_id(&self, key: u64) -> Option<u64> {
        self.store.bound(self.store.node_by_key(key)?, self.life.ids())
    }

    fn ask(&mut self, parked: &Parked, request: &Request<'_>, class: Class) -> Step {
        if class == Class::Recorded {
            return self.ask_record(request);
        }
        let names = request.names();
        let first = names.first.unwrap_or(&[]);
        let Some(id) = self.node_id(request.header.nodeid) else { return Step::Blocked };
        let ids = self.questions.ids(id);
        match class {
            Class::Append => Step::ask(build::getattr(ids, None), Question::ProbeSize),
            Class::XattrCreate | Class::XattrRemove => {
                Step::ask(build::getxattr(ids, first, XATTR_MAX), Question::ProbeXattr)
            }
            _ if parked.probe.target => {
                let to = target_dir(request).and_then(|key| self.node_id(key)).unwrap_or(id);
                let ids = belay_wire::Ids { nodeid: to, ..ids };
                let message = build::lookup(ids, names.second.unwrap_or(&[]));
                Step::ask(message, Question::ProbeTarget)
            }
            _ => Step::ask(build::lookup(ids, first), Question::ProbeName),
        }
    }

    /// The reply that the dead generation would have given.
    fn answer_done(&mut self, parked: &Parked, request: &Request<'_>, class: Class) -> Step {
        let unique = request.header.unique;
        if let Some(step) = self.answer_from_record(parked, unique) {
            return step;
        }
        let reply = match (class, parked.probe.entry) {
            (Class::Create, Some(entry)) if request.opcode() == Opcode::CREATE => {
                match self.open_created(parked, request, entry) {
                    Ok(reply) => reply,
                    Err(step) => return step,
                }
            }
            (Class::Create, Some(entry)) => build::reply(unique, entry.as_bytes()),
            (Class::Append, _) => {
                let size = request.body_as::<WriteIn>().map_or(0, |write| write.size);
                build::reply(unique, WriteOut { size, padding: 0 }.as_bytes())
            }
            _ => build::reply_ok(unique),
        };
        self.answer(parked, &reply)
    }

    pub(crate) fn probed_name(&mut self, id: u64, reply: &[u8]) {
        let Some(mut parked) = self.parked(id).cloned() else { return };
        let message = parked.message().to_vec();
        let Ok(request) = Request::parse(&message) else { return };
        let name = request.names().first.unwrap_or(&[]);
        let parent = self.store.node_by_key(request.header.nodeid);
        let class = self.class(&request);
        let entry = entry_of(reply);
        let finding = match (class, entry) {
            (Class::Create, None) => Finding::NotDone,
            (Class::Create, Some(entry)) => {
                if self.is_made_by(&request, &entry) {
                    parked.probe.entry = Some(entry);
                    Finding::Done
                } else {
                    self.forget_later(vec![(entry.nodeid, 1)]);
                    Finding::Foreign
                }
            }
            (Class::Exchange, Some(entry)) => self.exchanged(&request, &entry),
            (Class::Rename, None) => {
                parked.probe.target = true;
                Finding::NotAsked
            }
            (Class::Remove, None) => Finding::Done,
            (Class::Exchange, None) => Finding::Foreign,
            (_, Some(_)) => Finding::NotDone,
            (_, None) => Finding::Done,
        };
        if class != Class::Create
            && let (Some(entry), Some(parent)) = (entry, parent)
        {
            self.note(parent, name, &entry);
        }
        self.found(id, finding, parked.probe);
    }

    pub(crate) fn probed_target(&mut self, id: u64, reply: &[u8]) {
        let Some(parked) = self.parked(id).cloned() else { return };
        let finding = match entry_of(reply) {
            Some(entry) => {
                self.forget_later(vec![(entry.nodeid, 1)]);
                Finding::Done
            }
            None => Finding::NotDone,
        };
        self.found(id, finding, parked.probe);
    }

    pub(crate) fn probed_size(&mut self, id: u64, reply: &[u8]) {
        let Some(parked) = self.parked(id).cloned() else { return };
        let message = parked.message().to_vec();
        let write = Request::parse(&message).ok().and_then(|request| request.body_as::<WriteIn>());
        let size = reply.get(16..).and_then(read::<AttrOut>).map(|out| out.attr.size);
        let finding = match (write, size) {
            (Some(write), Some(size)) if size >= write.offset + u64::from(write.size) => {
                Finding::Done
            }
            (Some(write), Some(size)) if size > write.offset => Finding::Partial,
            _ => Finding::NotDone,
        };
        self.found(id, finding, parked.probe);
    }

    pub(crate) fn cut_tail(&mut self, id: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        self.with_parked(id, |parked| {
            if errno == 0 {
                parked.resent =
                    parked.resent.map(|old| Resent { finding: Finding::NotDone, ..old });
            } else {
                parked.failed = Some(errno);
            }
        });
    }

    pub(crate) fn probed_xattr(&mut self, id: u64, reply: &[u8]) {
        let Some(parked) = self.parked(id).cloned() else { return };
        let message = parked.message().to_vec();
        let Ok(request) = Request::parse(&message) else { return };
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        let finding = match request.opcode() {
            Opcode::REMOVEXATTR if errno == ENODATA => Finding::Done,
            Opcode::SETXATTR if errno == 0 => {
                if reply.get(16..) == request.xattr_value() {
                    Finding::Done
                } else {
                    Finding::Foreign
                }
            }
            _ => Finding::NotDone,
        };
        self.found(id, finding, parked.probe);
    }

    fn found(&mut self, id: u64, finding: Finding, probe: Probe) {
        self.with_parked(id, |parked| {
            parked.probe = probe;
            parked.resent = parked.resent.map(|old| Resent { finding, progress: old.progress });
            debug_assert!(
                parked
                    .resent
                    .is_none_or(|r| { matches!(r.progress, Progress::Started | Progress::Poison) })
            );
        });
    }

    /// Whether an entry is what a creating request would have made.
    fn is_made_by(&self, request: &Request<'_>, entry: &EntryOut) -> bool {
        let kind = kind_of(entry.attr.mode);
        match request.opcode() {
            Opcode::MKDIR => kind == 4,
            Opcode::SYMLINK => kind == 10,
            Opcode::CREATE => kind == 8,
            Opcode::MKNOD => request
                .body_as::<u32>()
                .is_some_and(|mode| kind_of(mode) == kind || (mode >> 12 == 0 && kind == 8)),
            Opcode::LINK => request
                .body_as::<LinkIn>()
                .and_then(|link| self.store.node_by_key(link.oldnodeid))
                .is_some_and(|old| {
                    self.store.bound(old, self.life.ids()) == Some(entry.nodeid)
                        || self.is_same(old, kind, entry)
                }),
            _ => false,
        }
    }

    /// Keeps what a probe has shown, if the kernel knows that node; else the successor forgets it.
    fn note(&mut self, parent: Node, name: &[u8], entry: &EntryOut) {
        let known = self.store.node_by_id(self.life.ids(), entry.nodeid).or_else(|| {
            self.store.child(parent, name).filter(|node| {
                self.store.bound(*node, self.life.ids()).is_none()
                    && self.is_same(*node, kind_of(entry.attr.mode), entry)
            })
        });
        let Some(node) = known.filter(|node| *node != Node::ROOT) else {
            self.forget_later(vec![(entry.nodeid, 1)]);
            return;
        };
        self.store.begin();
        if self.store.bound(node, self.life.ids()).is_none() {
            self.store.bind(node, self.life.ids(), entry.nodeid);
        }
        self.store.count_for_daemon(node);
        self.store.commit();
        self.meet(parent, name);
    }
}
