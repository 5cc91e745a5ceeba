//! What the policy `transaction` keeps: the transaction under way, and whose it is.

use super::turn::{CurrentTurn, Turn};
use belay_effects::WriteSet;
use belay_recorder::Slot;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The transaction under way.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// The request; 0 for none.
    pub(super) unique: u64,
    pub(super) write_set: WriteSet,
    /// The log was too short: from here on writes go through.
    pub(super) torn: bool,
}

/// All that the policy keeps.
#[derive(Debug)]
pub(crate) struct Transactions {
    transaction: Mutex<Transaction>,
    pub(super) current: CurrentTurn,
    /// None is under way.
    pub(super) idle: Condvar,
    /// The one under way is not to be answered. Changed under the lock; who took such a request
    /// sees it without, when it asks for the next.
    pub(super) unanswered: AtomicBool,
    /// How many wait for that: most daemons have one thread, and nobody is to be woken.
    pub(super) waiting: AtomicU32,
    /// The write set is not empty. A thread sees what it wrote itself; one that was told of it by
    /// another has synchronised with that.
    pub(super) differs: AtomicBool,
    /// The descriptor by which the daemon has the image.
    pub(super) fd: AtomicI32,
}

impl Default for Transactions {
    fn default() -> Self {
        Self {
            transaction: Mutex::new(Transaction::default()),
            current: CurrentTurn::default(),
            idle: Condvar::new(),
            unanswered: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            differs: AtomicBool::new(false),
            fd: AtomicI32::new(-1),
        }
    }
}

impl Transactions {
    pub(super) fn lock(&self) -> MutexGuard<'_, Transaction> {
        self.transaction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request that has this turn is on record in `slot`.
    pub(crate) fn assign(&self, turn: Turn, slot: Option<Slot>) {
        if let Some(number) = turn.number {
            self.current.assign(number, slot);
        }
    }

    /// The request that has this turn is not given to the daemon now.
    pub(crate) fn leave(&self, turn: Turn) {
        let mut transaction = self.lock();
        if transaction.unique == turn.unique && transaction.write_set.is_empty() {
            self.end(&mut transaction);
        }
    }

    /// None is under way any more.
    pub(super) fn end(&self, transaction: &mut Transaction) {
        transaction.unique = 0;
        self.unanswered.store(false, Relaxed);
        self.current.pass();
        transaction.torn = false;
        // Who waits has said so under the lock that is held here.
        if self.waiting.load(Relaxed) > 0 {
            self.idle.notify_one();
        }
    }
}
