//! Room in the op-log where files are stored one by one (policy `buffer`, docs/buffer.md): a WRITE
//! that finds none waits until the daemon has stored the file with the most data on record, by a
//! FLUSH of belay's own.
//!
//! What changes that file waits meanwhile, so that all that is on record of it came before, and its
//! handle stays open.

use crate::flows::flow::{Errand, Flow};
use crate::flows::step::Step;
use crate::flows::store::state::Question;
use crate::logged::files::O_ACCMODE;
use crate::message::read;
use crate::parts::stores::WAITING;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::Handle;
use belay_wire::abi::OutHeader;
use belay_wire::build;

impl<M: Memory> Session<M> {
    /// Whether files are stored early where the room is short: by a daemon that stores by nothing
    /// but a close none can be.
    pub(crate) fn makes_room(&self) -> bool {
        !self.by_close()
    }

    /// A request waits for room, or for a file that is being stored. Whether that is any use.
    pub(crate) fn make_room(&mut self) -> bool {
        if self.stores.may_relieve() {
            let heaviest = self.heaviest();
            self.stores.relieve(heaviest.map(|(file, _)| file));
            if let Some((_, handle)) = heaviest {
                self.park_errand(Flow::Store(Errand::new(handle)));
            }
        }
        self.stores.is_relieving()
    }

    /// The file with the most data on record that can be stored, and the key of the handle by which
    /// all of that came.
    fn heaviest(&self) -> Option<(u64, u64)> {
        let weights = self.logged.log()?.weights();
        let files = weights.into_iter().filter(|(file, _)| !self.stores.is_vain(*file));
        files.into_iter().find_map(|(file, _)| {
            let mut handles = self.store.live_handles();
            let handle = handles.find(|handle| self.stores(*handle, file).is_some())?;
            Some((file, self.store.handle_key(handle)))
        })
    }

    /// The daemon's ids of a file and of its handle, if that stores all that is on record of it.
    fn stores(&self, handle: Handle, file: u64) -> Option<(u64, u64)> {
        let open = self.store.open_description(handle);
        let writes = !open.directory && open.flags & O_ACCMODE != 0;
        if !writes || self.store.key(open.node) != file {
            return None;
        }
        let id = self.store.bound(open.node, self.life.ids())?;
        let fh = self.store.handle_bound(handle, self.life.ids())?;
        self.came_by(file, self.store.handle_key(handle)).then_some((id, fh))
    }

    /// The errand that has the daemon store a file.
    pub(crate) fn store_step(&mut self, key: u64) -> Step {
        let Some(file) = self.stores.relieved_by() else { return Step::Done };
        let under_way = self.slots.iter().any(|active| {
            !active.sent && WAITING.has(active.opcode) && self.store.slot_node(active.slot) == file
        });
        if under_way {
            return Step::Blocked;
        }
        let handle = self.store.handle_by_key(key);
        let found = handle.and_then(|handle| Some((handle, self.stores(handle, file)?)));
        let Some((handle, (id, fh))) = found else {
            self.store_ended(file, false);
            return Step::Done;
        };
        let ids = self.questions.ids(id);
        let unique = ids.unique;
        self.stores.begin(unique, file);
        Step::ask(build::flush(ids, fh), Question::Store { handle, unique })
    }

    pub(crate) fn stored(&mut self, task: u64, unique: u64, reply: &[u8]) {
        let alone = self.stores.end(unique);
        let done = read::<OutHeader>(reply).is_some_and(|header| header.error == 0);
        if let Some(file) = self.stores.relieved_by() {
            self.store_ended(file, done && alone);
        }
        self.tasks.resume(task, |task| task.flow.set_done(true));
    }

    fn store_ended(&mut self, file: u64, stored: bool) {
        self.stores.end_relief();
        if stored {
            self.drop_stored(file);
        }
        if self.logged.log().is_some_and(|log| log.holds(file)) {
            self.stores.note_vain(file);
        }
    }
}
