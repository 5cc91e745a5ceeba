//! Requests that are answered when something is durable: those that sync, and direct I/O.

use super::{Serving, failed, lock};
use belay_channel::{CacheAnswer, CacheAsk, Connection};
use belay_object::ObjectId;
use belay_posix::dispatch::Direct;
use std::sync::mpsc::Receiver;

/// A request that is answered when something is durable.
pub(super) struct Synced {
    objects: Vec<u64>,
    pub(super) unique: u64,
    /// Empty if nobody is to be answered.
    reply: Vec<u8>,
    /// Its transaction, if that is undone should it fail.
    revocable: Option<u64>,
}

impl Synced {
    /// One that asks for that alone.
    pub(super) fn new(objects: Vec<ObjectId>, unique: u64, reply: Vec<u8>) -> Self {
        let objects = objects.into_iter().map(|object| object.0).collect();
        Self { objects, unique, reply, revocable: None }
    }
}

impl From<Direct> for Synced {
    fn from(direct: Direct) -> Self {
        let Direct { number, objects, unique, reply } = direct;
        Self { revocable: Some(number), ..Self::new(objects, unique, reply) }
    }
}

impl Serving {
    /// Answers what is synced, when it is durable. What has come meanwhile is synced together. It
    /// holds up nobody but those who wait for it, so its waiting shows nowhere.
    pub(super) fn sync_all(&self, asked: &Receiver<Synced>) {
        // A request that waits for this is in flight for as long as a disk takes.
        let mut cache: Connection<CacheAsk, CacheAnswer> =
            Connection::new(&self.cache, Box::new(self.pulse.clone()));
        while let Ok(first) = asked.recv() {
            let together: Vec<Synced> = std::iter::once(first).chain(asked.try_iter()).collect();
            let is_one = together.len() == 1;
            let objects = together.iter().flat_map(|one| one.objects.iter().copied()).collect();
            let done = cache.ask_until_answered(&CacheAsk::Sync(objects));
            for Synced { unique, reply, objects, revocable } in together {
                // What one of them fails of says nothing of the others.
                let mut is_synced = || {
                    cache.ask_until_answered(&CacheAsk::Sync(objects.clone())) == CacheAnswer::Done
                };
                let is_durable = done == CacheAnswer::Done || !is_one && is_synced();
                let is_done = match revocable {
                    None => is_durable,
                    Some(one) if is_durable => {
                        self.settle(one);
                        true
                    }
                    // What stays may be durable by now, or was dropped, as the file is damaged.
                    Some(one) => self.stays(one) && is_synced(),
                };
                let reply = if is_done || reply.is_empty() { reply } else { failed(unique) };
                if let Err(why) = self.reply(&reply) {
                    let _ = self.over.send(Err(why));
                    return;
                }
            }
        }
    }

    /// What direct I/O has written is durable: it stays.
    fn settle(&self, number: u64) {
        lock(&self.state).module.settle(number);
        self.settled.notify_all();
    }

    /// It could not be made durable, and is undone. Gives whether it stays all the same.
    fn stays(&self, number: u64) -> bool {
        let undone = lock(&self.state).module.undo(number);
        self.settled.notify_all();
        undone.map_or_else(
            |why| {
                tracing::error!("what could not be made durable cannot be undone: {why}");
                false
            },
            |is_undone| !is_undone,
        )
    }
}
