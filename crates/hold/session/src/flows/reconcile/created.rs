//! Opening a file that a dead generation had created for a CREATE without answering it: also one
//! whose own mode forbids that, which is widened for a moment.

use crate::flows::flow::Parked;
use crate::flows::reconcile::state::{Question, Widen};
use crate::flows::step::Step;
use crate::message::{read, set_mode};
use crate::session::Session;
use belay_memory::Memory;
use belay_wire::abi::{CreateIn, OutHeader};
use belay_wire::errno::{EACCES, EPERM};
use belay_wire::{EntryOut, OpenOut, Request, build};
use zerocopy::IntoBytes;

impl<M: Memory> Session<M> {
    /// The reply that a CREATE would have had which has made `entry`: the file is opened first.
    pub(crate) fn open_created(
        &mut self,
        parked: &Parked,
        request: &Request<'_>,
        mut entry: EntryOut,
    ) -> Result<Vec<u8>, Step> {
        let widened = parked.slot.and_then(|slot| self.store.slot_widened(slot));
        match (parked.probe.opened, parked.probe.widen, widened) {
            (None, Widen::Needed, _) => {
                let mode = widened.unwrap_or(entry.attr.mode & 0o7777);
                if let Some(slot) = parked.slot {
                    self.store.slot_set_widened(slot, mode);
                }
                let wide = set_mode(mode | 0o600);
                let message = build::setattr(self.questions.ids(entry.nodeid), &wide);
                return Err(Step::ask(message, Question::WidenCreated));
            }
            (None, ..) => {
                let flags = request.body_as::<CreateIn>().map_or(0, |create| create.flags);
                let ids = self.questions.ids(entry.nodeid);
                let message = build::open(ids, self.flags_again(flags));
                return Err(Step::ask(message, Question::OpenCreated));
            }
            (Some(_), Widen::Undone, Some(mode)) => {
                entry.attr.mode = entry.attr.mode & !0o7777 | mode;
            }
            (Some(_), _, Some(mode)) => {
                let back = set_mode(mode);
                let message = build::setattr(self.questions.ids(entry.nodeid), &back);
                return Err(Step::ask(message, Question::NarrowCreated));
            }
            (Some(_), ..) => {}
        }
        let open = parked.probe.opened.unwrap_or_default();
        Ok(build::reply(request.header.unique, &[entry.as_bytes(), open.as_bytes()].concat()))
    }

    pub(crate) fn opened_created(&mut self, id: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        let open = reply.get(16..).and_then(read::<OpenOut>).filter(|_| errno == 0);
        let Some(probe) = self.parked(id).map(|parked| parked.probe) else { return };
        let refused = (errno == EPERM || errno == EACCES) && probe.widen == Widen::No;
        if let (None, Some(entry), false) = (open, probe.entry, refused) {
            self.forget_later(vec![(entry.nodeid, 1)]);
        }
        self.with_parked(id, |parked| match open {
            Some(open) => parked.probe.opened = Some(open),
            None if refused => parked.probe.widen = Widen::Needed,
            None => parked.failed = Some(errno),
        });
    }

    pub(crate) fn widened_created(&mut self, id: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        self.with_parked(id, |parked| match errno {
            0 => parked.probe.widen = Widen::Done,
            errno => parked.failed = Some(errno),
        });
    }

    pub(crate) fn narrowed_created(&mut self, id: u64) {
        self.with_parked(id, |parked| parked.probe.widen = Widen::Undone);
    }
}
