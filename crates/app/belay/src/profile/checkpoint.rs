//! When checkpoints are made, and how: from the command line, else from the daemon's profile, else
//! as usual.

use crate::size::{parse_size, parse_size_or_zero};
use anyhow::Result;
use belay_supervisor::config::{CheckpointConfig, FlushBy, Syncs};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a profile or a command line says of checkpoints; the rest is left to the other, or as
/// usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields, default)]
pub struct Wishes {
    /// Under the policy `epoch`: time from one checkpoint to the next [default: 5s].
    #[arg(long = "checkpoint-interval", value_name = "DURATION",
        value_parser = humantime::parse_duration)]
    #[serde(with = "durations", skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// Bytes written to the image that trigger a checkpoint [default: 40M].
    #[arg(long = "checkpoint-dirty", value_name = "SIZE", value_parser = parse_size)]
    #[serde(with = "sizes", skip_serializing_if = "Option::is_none")]
    pub dirty: Option<u64>,
    /// Bytes in the op-log that trigger a checkpoint [default: 64M].
    #[arg(long = "checkpoint-log", value_name = "SIZE", value_parser = parse_size)]
    #[serde(with = "sizes", skip_serializing_if = "Option::is_none")]
    pub log: Option<u64>,
    /// Bytes of either that trigger an early checkpoint, if the last one is already safe and
    /// checkpoints hold requests up for at most a hundredth of the time; 0 for never [default: 8M;
    /// 0 with `--flush restart`].
    #[arg(long = "checkpoint-early", value_name = "SIZE", value_parser = parse_size_or_zero)]
    #[serde(with = "sizes_or_zero", skip_serializing_if = "Option::is_none")]
    pub early: Option<u64>,
    /// What an application's fsync does [default: now]. (Linux does not tell FUSE daemons of sync
    /// and syncfs.)
    #[arg(long = "checkpoint-fsync", value_enum, value_name = "WHEN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<FsyncName>,
    /// How long checkpoints may fail to reach the image before an application's fsync fails with
    /// EIO [default: 60s].
    #[arg(long = "fsync-timeout", value_name = "DURATION",
        value_parser = humantime::parse_duration)]
    #[serde(with = "durations", skip_serializing_if = "Option::is_none")]
    pub fsync_timeout: Option<Duration>,
    /// Under the policy `epoch`: space for writes to the image between two checkpoints; memory may
    /// hold twice that [default: 128M].
    #[arg(long = "overlay-size", value_name = "SIZE", value_parser = parse_size)]
    #[serde(with = "sizes", skip_serializing_if = "Option::is_none")]
    pub overlay: Option<u64>,
}

/// What an application's fsync(2) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FsyncName {
    /// It makes a checkpoint, and returns when that is safe.
    Now,
    /// It returns when the next checkpoint is safe, whenever that is made.
    Wait,
}

/// How a daemon is made to write all that it holds, for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FlushName {
    /// By fsync of its root directory.
    Fsyncdir,
    /// As when a file is closed.
    Flush,
    /// It writes at its end only: it is ended and started again.
    Restart,
}

impl FlushName {
    /// The name as on the command line.
    pub fn name(self) -> &'static str {
        FlushBy::from(self).name()
    }
}

impl From<FlushName> for FlushBy {
    fn from(name: FlushName) -> Self {
        match name {
            FlushName::Fsyncdir => Self::Fsyncdir,
            FlushName::Flush => Self::Flush,
            FlushName::Restart => Self::Restart,
        }
    }
}

impl Wishes {
    /// Whether they say nothing.
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }

    /// What is to be done, by these and, where they are silent, by `others`.
    ///
    /// # Errors
    /// If that cannot be; the message says what to change.
    pub fn settle(&self, others: &Self, flush: Option<FlushName>) -> Result<CheckpointConfig> {
        let usual = CheckpointConfig::default();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let overlay = self.overlay.or(others.overlay);
        let dirty = self.dirty.or(others.dirty);
        let checkpoints = CheckpointConfig {
            flush: flush.map_or(usual.flush, FlushBy::from),
            interval_ms: self.interval.or(others.interval).map_or(usual.interval_ms, millis),
            // A small overlay needs earlier checkpoints, if nothing else is said.
            dirty_bytes: dirty.unwrap_or_else(|| {
                overlay.map_or(usual.dirty_bytes, |room| usual.dirty_bytes.min(room / 2))
            }),
            log_bytes: self.log.or(others.log).unwrap_or(usual.log_bytes),
            overlay_bytes: overlay.unwrap_or(usual.overlay_bytes),
            // A restart is no small thing, however short it is.
            early_bytes: self.early.or(others.early).unwrap_or(match flush {
                Some(FlushName::Restart) => 0,
                _ => usual.early_bytes,
            }),
            syncs: match self.fsync.or(others.fsync) {
                Some(FsyncName::Wait) => Syncs::Wait,
                Some(FsyncName::Now) | None => Syncs::Now,
            },
            sync_timeout_ms: self
                .fsync_timeout
                .or(others.fsync_timeout)
                .map_or(usual.sync_timeout_ms, millis),
        };
        checkpoints.check().map_err(anyhow::Error::msg)?;
        Ok(checkpoints)
    }
}

mod durations {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = time.map(|time| humantime::format_duration(time).to_string());
        serializer.serialize_str(&text.unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Some).map_err(D::Error::custom)
    }
}

mod sizes {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        size: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&size.unwrap_or_default().to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        let text = String::deserialize(deserializer)?;
        crate::size::parse_size(&text).map(Some).map_err(D::Error::custom)
    }
}

mod sizes_or_zero {
    pub(super) use super::sizes::serialize;
    use serde::{Deserialize, Deserializer, de::Error};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        let text = String::deserialize(deserializer)?;
        crate::size::parse_size_or_zero(&text).map(Some).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_before_the_profile_and_that_before_what_is_usual() {
        let profile: Wishes = toml::from_str(
            "interval = \"30s\"\nfsync_timeout = \"2s\"\ndirty = \"8M\"\nfsync = \"wait\"\n",
        )
        .unwrap();
        let asked = Wishes { interval: Some(Duration::from_secs(1)), ..Wishes::default() };
        let settled = asked.settle(&profile, Some(FlushName::Restart)).unwrap();
        let expected = CheckpointConfig {
            flush: FlushBy::Restart,
            interval_ms: 1000,
            dirty_bytes: 8 << 20,
            early_bytes: 0,
            syncs: Syncs::Wait,
            sync_timeout_ms: 2000,
            ..CheckpointConfig::default()
        };
        assert_eq!(settled, expected);
        let none = Wishes::default();
        assert_eq!(none.settle(&none, None).unwrap(), CheckpointConfig::default());
        let again: Wishes = toml::from_str(&toml::to_string(&profile).unwrap()).unwrap();
        assert_eq!(again, profile);
        let never: Wishes = toml::from_str("early = \"0\"\n").unwrap();
        assert_eq!(none.settle(&never, None).unwrap().early_bytes, 0);
        let again: Wishes = toml::from_str(&toml::to_string(&never).unwrap()).unwrap();
        assert_eq!(again, never);
        let more = Wishes { early: Some(1 << 20), ..none };
        assert_eq!(more.settle(&never, None).unwrap().early_bytes, 1 << 20);
    }

    #[test]
    fn a_small_overlay_brings_its_checkpoints_with_it() {
        let small = Wishes { overlay: Some(16 << 20), ..Wishes::default() };
        assert_eq!(small.settle(&Wishes::default(), None).unwrap().dirty_bytes, 8 << 20);
        let wrong = Wishes { dirty: Some(16 << 20), ..small };
        assert!(wrong.settle(&Wishes::default(), None).is_err());
    }

    #[test]
    fn wrong_profiles_are_refused() {
        for wrong in ["interval = 5", "dirty = \"much\"", "fsync = \"never\"", "often = true"] {
            assert!(toml::from_str::<Wishes>(wrong).is_err(), "{wrong}");
        }
    }
}
