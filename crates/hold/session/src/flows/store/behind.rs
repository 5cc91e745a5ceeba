//! A file whose length is set while nobody has it open for writing, by a daemon that stores nothing
//! but when a file is closed (policy `buffer`, until `release`): belay opens the file and closes it
//! again. Its caller does not wait for that, since the change is on record until it is over.

use crate::flows::flow::{Errand, Flow};
use crate::flows::step::Step;
use crate::flows::store::state::Question;
use crate::message::read;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::Options;
use belay_wire::abi::OutHeader;
use belay_wire::errno::EIO;
use belay_wire::{OpenOut, build};
use smallvec::SmallVec;

const O_RDWR: u32 = 2;

impl<M: Memory> Session<M> {
    /// Whether a flush stores nothing.
    pub(crate) fn by_close(&self) -> bool {
        self.life.has(Options::BUFFER_CLOSE)
    }

    /// Whether nothing stores the content of a file but its last RELEASE.
    pub(crate) fn by_release(&self) -> bool {
        self.life.has(Options::BUFFER_RELEASE)
    }

    /// Whether somebody has a file open for writing, belay included.
    pub(crate) fn is_open(&self, file: u64) -> bool {
        self.has_writers(file) || self.stores.has_open(file)
    }

    /// Sees to it that what is on record of a file is stored, if no close that is to come does
    /// that.
    pub(crate) fn close_behind(&mut self, file: u64) {
        let asked = |flow: &Flow| matches!(flow, Flow::CloseBehind(e) if e.about == file);
        if self.by_release()
            && self.holds(file)
            && !self.is_open(file)
            && !self.tasks.iter().any(|task| asked(&task.flow))
        {
            self.park_errand(Flow::CloseBehind(Errand::new(file)));
        }
    }

    /// A name has gone: files that were to be stored, and are not there any more, need not be.
    pub(crate) fn drop_nameless(&mut self) {
        if !self.by_release() {
            return;
        }
        let files = self.tasks.iter().filter_map(|task| match &task.flow {
            Flow::CloseBehind(errand) => Some(errand.about),
            _ => None,
        });
        let gone =
            |file: &u64| self.store.node_by_key(*file).is_some_and(|node| self.is_gone(node));
        let gone: SmallVec<[u64; 2]> = files.filter(gone).collect();
        gone.into_iter().for_each(|file| self.drop_stored(file));
    }

    pub(crate) fn close_behind_step(&mut self, file: u64) -> Step {
        if let Some((id, fh)) = self.stores.opened(file) {
            let ids = self.questions.ids(id);
            let unique = ids.unique;
            self.stores.begin(unique, file);
            let message = build::release(ids, fh, O_RDWR, false);
            return Step::ask(message, Question::CloseBehind { file, unique });
        }
        // Who has it open now closes it later.
        let node = self.store.node_by_key(file).filter(|_| self.holds(file) && !self.is_open(file));
        let Some(id) = node.and_then(|node| self.store.bound(node, self.life.ids())) else {
            return Step::Done;
        };
        self.stores.begin_open(file, id);
        Step::ask(build::open(self.questions.ids(id), O_RDWR), Question::OpenBehind { file })
    }

    pub(crate) fn opened_behind(&mut self, task: u64, file: u64, reply: &[u8]) {
        let done = read::<OutHeader>(reply).is_some_and(|header| header.error == 0);
        let open = reply.get(16..).and_then(read::<OpenOut>).filter(|_| done);
        self.stores.end_open(file, open.map(|open| open.fh));
        // What cannot be opened now stays on record.
        self.tasks.resume(task, |task| task.flow.set_done(open.is_none()));
    }

    pub(crate) fn closed_behind(&mut self, task: u64, file: u64, unique: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(EIO, |header| -header.error);
        let alone = self.stores.end(unique);
        self.stores.close(file);
        let closed = !self.is_open(file);
        if errno != 0 {
            self.tell_refused(file, errno);
        } else if alone && closed && self.holds(file) {
            self.drop_stored(file);
        }
        // What came meanwhile is stored by another turn, or by the close that is to come.
        let again = errno == 0 && closed && self.holds(file);
        self.tasks.resume(task, |task| task.flow.set_done(!again));
    }
}
