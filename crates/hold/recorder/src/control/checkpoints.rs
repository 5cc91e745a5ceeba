//! What supervisor and shim tell each other of checkpoints, under the policy `epoch`.

use super::block::Control;
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

const W_ASKED: usize = 10;
const W_FLUSH_BY: usize = 192; // 1: syncs wait | how the daemon is made to write
const W_DIRTY: usize = 193;
const W_LOG: usize = 194;
const W_ROOM: usize = 195;
const W_RETIRING: usize = 196; // 1 | generation
const W_FAILED: usize = 197; // how often | errno
const W_LOGGED: usize = 198; // records, then bytes
const W_TRIM: usize = 200;
const W_EARLY: usize = 201;
const W_SYNCS_FAILED: usize = 202;
const W_FORWARD_LENGTH: usize = 203;
const W_FORWARD_AIM: usize = 204; // epoch | records

/// How a daemon is made to write all that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum FlushBy {
    /// OPENDIR of the root for reading and writing, FSYNCDIR, RELEASEDIR.
    #[default]
    FsyncDir,
    /// FLUSH of the root.
    Flush,
    /// It does so at its end only: it is told that the mount has gone, and another one is started.
    Restart,
}

/// What is wished of checkpoints: set by the supervisor before the first start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// How the daemon is made to write.
    pub flush: FlushBy,
    /// Applications that ask for their data to be safe wait for the next checkpoint, and cause
    /// none.
    pub syncs_wait: bool,
    /// Bytes in the overlay at which one is due.
    pub dirty_bytes: u64,
    /// Bytes in the op-log at which one is due.
    pub log_bytes: u64,
    /// Bytes that an epoch can have in the overlay.
    pub overlay_bytes: u64,
    /// Bytes in either at which one is made early, where that costs little; 0 for never.
    pub early_bytes: u64,
}

impl<M: Memory> Control<'_, M> {
    /// What is wished of checkpoints.
    pub fn checkpoint_settings(&self) -> CheckpointSettings {
        let word = self.memory.load(W_FLUSH_BY);
        CheckpointSettings {
            flush: match low(word) {
                1 => FlushBy::Flush,
                2 => FlushBy::Restart,
                _ => FlushBy::FsyncDir,
            },
            syncs_wait: high(word) != 0,
            dirty_bytes: self.memory.load(W_DIRTY),
            log_bytes: self.memory.load(W_LOG),
            overlay_bytes: self.memory.load(W_ROOM),
            early_bytes: self.memory.load(W_EARLY),
        }
    }

    /// Sets that.
    pub fn set_checkpoint_settings(&self, wishes: &CheckpointSettings) {
        self.memory.store(W_FLUSH_BY, pair(u32::from(wishes.syncs_wait), wishes.flush as u32));
        self.memory.store(W_DIRTY, wishes.dirty_bytes);
        self.memory.store(W_LOG, wishes.log_bytes);
        self.memory.store(W_ROOM, wishes.overlay_bytes);
        self.memory.store(W_EARLY, wishes.early_bytes);
    }

    /// How many checkpoints the supervisor has asked for.
    #[inline]
    pub fn checkpoints_asked(&self) -> u64 {
        self.memory.load(W_ASKED)
    }

    /// Asks for a further one. Only the supervisor does.
    pub fn ask_for_checkpoint(&self) {
        self.memory.store(W_ASKED, self.checkpoints_asked().wrapping_add(1));
    }

    /// How often the supervisor has declared that whoever waits for a checkpoint to be safe is to
    /// hear that it is not.
    #[inline]
    pub fn syncs_failed(&self) -> u64 {
        self.memory.load(W_SYNCS_FAILED)
    }

    /// Declares that once more. Only the supervisor does.
    pub fn fail_syncs(&self) {
        self.memory.store(W_SYNCS_FAILED, self.syncs_failed().wrapping_add(1));
    }

    /// How often the supervisor has asked for memory to be given back that no epoch uses.
    #[inline]
    pub fn trims_asked(&self) -> u64 {
        self.memory.load(W_TRIM)
    }

    /// Asks for that. Only the supervisor does.
    pub fn ask_for_trim(&self) {
        self.memory.store(W_TRIM, self.trims_asked().wrapping_add(1));
    }

    /// The generation that was told that its mount has gone, so that it writes what it holds and
    /// ends.
    pub fn retiring(&self) -> Option<u32> {
        let word = self.memory.load(W_RETIRING);
        (high(word) != 0).then_some(low(word))
    }

    /// Notes that `generation` was told so.
    pub fn set_retiring(&self, generation: u32) {
        self.memory.store(W_RETIRING, pair(1, generation));
    }

    /// How many records the op-log has that is being done again.
    pub fn forward_length(&self) -> u64 {
        self.memory.load(W_FORWARD_LENGTH)
    }

    /// Sets that.
    pub fn set_forward_length(&self, records: u64) {
        self.memory.store(W_FORWARD_LENGTH, records);
    }

    /// After how many records of the op-log of which epoch a daemon was to be ended for a
    /// checkpoint on the way, the last time that this was considered; 0: not at all.
    pub fn forward_aim(&self) -> (u32, u32) {
        let word = self.memory.load(W_FORWARD_AIM);
        (high(word), low(word))
    }

    /// Sets that.
    pub fn set_forward_aim(&self, epoch: u32, records: u32) {
        self.memory.store(W_FORWARD_AIM, pair(epoch, records));
    }

    /// How much the op-log has: records, bytes.
    pub fn logged(&self) -> (u64, u64) {
        let [records, bytes] = self.memory.load_fields(W_LOGGED, [0, 1]);
        (records, bytes)
    }

    /// Sets that. Only the shim does.
    #[inline]
    pub fn set_logged(&self, records: u64, bytes: u64) {
        self.memory.store_words(W_LOGGED, [records, bytes]);
    }

    /// How many checkpoints have failed because the daemon could not write, and the last one's
    /// errno.
    pub fn checkpoints_failed(&self) -> (u32, u32) {
        let word = self.memory.load(W_FAILED);
        (high(word), low(word))
    }

    /// Counts one that has failed. Only the shim does, with its session held.
    pub fn count_failed_checkpoint(&self, errno: i32) {
        let (count, _) = self.checkpoints_failed();
        self.memory.store(W_FAILED, pair(count.saturating_add(1), errno.unsigned_abs()));
    }
}
