//! Direct I/O: what is written to a file that was opened with `O_DIRECT`.
//!
//! The kernel sends such a write at once, with the flags of the open file, as it does without
//! `FOPEN_DIRECT_IO`. Mapped pages that it writes back have no flags: nobody waits for these.

use super::Module;
use belay_memory::Memory;
use belay_object::{Lower, ObjectId};
use belay_wire::abi::WriteIn;
use belay_wire::{Opcode, Request};
use rustix::fs::OFlags;

/// A request that was published, and is answered when it is durable. If it cannot be made durable
/// it is undone, and has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Direct {
    /// Its transaction.
    pub number: u64,
    /// What it has changed.
    pub objects: Vec<ObjectId>,
    /// The request.
    pub unique: u64,
    /// The answer; empty if an earlier life has published it, of which the answer is asked for.
    pub reply: Vec<u8>,
}

/// Whether a request is to be answered when what it does is durable.
pub(super) fn is_direct(request: &Request<'_>) -> bool {
    let asked = || request.body_as::<WriteIn>();
    request.opcode() == Opcode::WRITE
        && asked().is_some_and(|asked| asked.flags & OFlags::DIRECT.bits() != 0)
}

impl<M: Memory, B: Lower> Module<M, B> {
    /// What a request has done is durable: it stays, and its objects can be had.
    pub fn settle(&mut self, number: u64) {
        self.publisher.settle(number);
    }

    /// What a request has done cannot be made durable, and is undone. False if it is durable by
    /// now: then it stays. Its objects can be had.
    ///
    /// # Errors
    /// Those of the cache: what the request has done stays.
    pub fn undo(&mut self, number: u64) -> crate::Result<bool, B::Error> {
        Ok(self.publisher.undo(number)?)
    }

    /// Requests of an earlier life that were published, and are not known to be durable.
    pub fn unsettled(&self) -> Vec<Direct> {
        let all = self.publisher.unsettled().map(|(number, unique, objects)| {
            let objects = objects.iter().copied().collect();
            Direct { number, objects, unique, reply: Vec::new() }
        });
        all.collect()
    }

    /// Whether it is not known of something yet whether it stays.
    pub fn has_unsettled(&self) -> bool {
        self.publisher.unsettled().next().is_some()
    }

    /// Whether it is not known yet whether what a request has done stays.
    pub fn is_unsettled(&self, unique: u64) -> bool {
        self.publisher.unsettled().any(|(_, of, _)| of == unique)
    }
}
