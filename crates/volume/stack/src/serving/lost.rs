//! Files that an earlier life of the module was told to forget, and that are there.
//!
//! A FORGET that a process has read comes to nobody again if it dies before it has done that, and
//! the kernel tells of no file twice. So each life looks at the files without names, of which there
//! are few, and asks belay which of them the kernel knows.

use super::{Worker, lock};
use belay_object::ObjectId;
use belay_posix::dispatch::Outcome;
use belay_posix::fetch::Fetched;
use belay_wire::errno::ENOENT;
use belay_wire::{build, record};
use std::io::Write;

impl Worker<'_> {
    /// Removes them. Others are served while this waits, unless there are some.
    pub(super) fn forget_lost(&mut self) {
        let serving = self.serving;
        let mut fetched = Fetched::default();
        loop {
            // Held to the end: no message is handled before they are gone, so none of their numbers
            // can be another file's meanwhile.
            let mut state = lock(&serving.state);
            let lack = match state.module.orphans_with(&mut fetched) {
                Ok(orphans) => {
                    let lost = orphans.into_iter().filter(|orphan| !self.is_known(*orphan));
                    let lost: Vec<u64> = lost.map(|orphan| orphan.0).collect();
                    if lost.is_empty() {
                        return;
                    }
                    return match self
                        .handle_in(state, &build::batch_forget(build::Ids::default(), &lost))
                    {
                        Some(Outcome::Nothing) => {}
                        Some(Outcome::Fault(_, why)) => tracing::error!("I/O error: {why}"),
                        // Why, the cache has said.
                        _ => {}
                    };
                }
                Err(Some(lack)) => lack,
                Err(None) => return,
            };
            drop(state);
            let mut store = self.store();
            fetched.fetch(&mut store, lack);
            self.store = Some(store);
        }
    }

    /// Whether the kernel knows a file.
    fn is_known(&self, object: ObjectId) -> bool {
        let question = build::notify(record::IS_KNOWN, &object.0.to_ne_bytes());
        let asked = (&self.serving.device).write(&question);
        !asked.is_err_and(|why| why.raw_os_error() == Some(ENOENT))
    }
}
