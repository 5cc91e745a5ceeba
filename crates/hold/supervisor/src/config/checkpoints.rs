//! What is wished of checkpoints, under the policy `epoch`.

use belay_image::overlay::{Capacity, PAGE};
use belay_recorder::control;
use serde::{Deserialize, Serialize};

/// The most that the overlay can be given for an epoch, in bytes.
pub const MOST_OVERLAY: u64 = (Capacity::MOUNT.pages * PAGE) as u64;
/// The least: one request may write some MiB.
pub const LEAST_OVERLAY: u64 = 4 << 20;
/// The most that the op-log holds, in bytes: its records and data.
pub const MOST_LOG: u64 = 128 << 20;

/// How a daemon is made to write all that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlushBy {
    /// By FSYNCDIR of its root, opened for reading and writing.
    #[default]
    Fsyncdir,
    /// By FLUSH of its root.
    Flush,
    /// By its end, as after an unmount; another one is started then.
    Restart,
}

impl FlushBy {
    /// The name as in profiles and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsyncdir => "fsyncdir",
            Self::Flush => "flush",
            Self::Restart => "restart",
        }
    }
}

/// What an application's fsync(2) and the like do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Syncs {
    /// They cause a checkpoint, and return when it is safe.
    #[default]
    Now,
    /// They return when the next checkpoint is safe, and cause none.
    Wait,
}

/// When checkpoints are made, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointConfig {
    /// How the daemon is made to write.
    pub flush: FlushBy,
    /// How long after a checkpoint the next one is made, in milliseconds.
    pub interval_ms: u64,
    /// Bytes written to the image at which one is made.
    pub dirty_bytes: u64,
    /// Bytes in the op-log at which one is made.
    pub log_bytes: u64,
    /// Bytes that can be written to the image between two.
    pub overlay_bytes: u64,
    /// Bytes of either at which one is made early, where that costs little; 0 for never.
    pub early_bytes: u64,
    /// What fsync(2) does.
    pub syncs: Syncs,
    /// How long commits may fail before it fails too, in milliseconds.
    pub sync_timeout_ms: u64,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            flush: FlushBy::default(),
            interval_ms: 5000,
            dirty_bytes: 40 << 20,
            log_bytes: 64 << 20,
            overlay_bytes: 128 << 20,
            early_bytes: 8 << 20,
            syncs: Syncs::default(),
            sync_timeout_ms: 60_000,
        }
    }
}

impl CheckpointConfig {
    /// For the shim.
    pub fn for_control(&self) -> control::CheckpointSettings {
        control::CheckpointSettings {
            flush: match self.flush {
                FlushBy::Fsyncdir => control::FlushBy::FsyncDir,
                FlushBy::Flush => control::FlushBy::Flush,
                FlushBy::Restart => control::FlushBy::Restart,
            },
            syncs_wait: self.syncs == Syncs::Wait,
            dirty_bytes: self.dirty_bytes,
            log_bytes: self.log_bytes,
            overlay_bytes: self.overlay_bytes,
            early_bytes: self.early_bytes,
        }
    }

    /// What cannot be, for people.
    ///
    /// # Errors
    /// If that is so; the message says what to change.
    pub fn check(&self) -> Result<(), String> {
        let Self { overlay_bytes, dirty_bytes, log_bytes, interval_ms, .. } = *self;
        let mib = |bytes: u64| bytes >> 20;
        if !(LEAST_OVERLAY..=MOST_OVERLAY).contains(&overlay_bytes) {
            return Err(format!(
                "the overlay of an epoch can have {} to {} MiB (--overlay-size)",
                mib(LEAST_OVERLAY),
                mib(MOST_OVERLAY)
            ));
        }
        if dirty_bytes > overlay_bytes / 4 * 3 {
            return Err(format!(
                "a checkpoint at {dirty_bytes} dirty bytes is too late for an overlay of {overlay_bytes}: a quarter of \
                 it is for what is written until the checkpoint is made; lower --checkpoint-dirty or raise --overlay-size"
            ));
        }
        if log_bytes > MOST_LOG {
            return Err(format!("the op-log holds {} MiB; lower --checkpoint-log", mib(MOST_LOG)));
        }
        if interval_ms == 0 {
            return Err("checkpoints without a pause in between would leave no time for anything else; raise \
                 --checkpoint-interval"
                .to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_and_said() {
        let good = CheckpointConfig::default();
        good.check().unwrap();
        let dirty = CheckpointConfig { dirty_bytes: 100 << 20, ..good };
        assert!(dirty.check().unwrap_err().contains("--checkpoint-dirty"));
        let large = CheckpointConfig { overlay_bytes: MOST_OVERLAY + 1, ..good };
        assert!(large.check().unwrap_err().contains("--overlay-size"));
        let small = CheckpointConfig { overlay_bytes: 1 << 20, dirty_bytes: 4096, ..good };
        assert!(small.check().is_err());
        let log = CheckpointConfig { log_bytes: MOST_LOG + 1, ..good };
        assert!(log.check().unwrap_err().contains("--checkpoint-log"));
        let never = CheckpointConfig { interval_ms: 0, ..good };
        assert!(never.check().is_err());
        // No trigger at all but an application's wish: a time and sizes that are not reached.
        CheckpointConfig { interval_ms: u64::MAX, ..good }.check().unwrap();
    }
}
