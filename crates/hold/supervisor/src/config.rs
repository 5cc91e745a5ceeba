//! What one `belay run` was asked to do: fixed for the whole life of the mount.

mod checkpoints;
mod medium;

pub use checkpoints::{CheckpointConfig, FlushBy, LEAST_OVERLAY, MOST_LOG, MOST_OVERLAY, Syncs};
pub use medium::Medium;

use crate::companions::Companion;
use crate::image::Image;
use crate::text::OsText;
use belay_recorder::control::Options;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// What the recorder may take besides what is on record: rooms that were needed once, of logs and
/// copies most of all.
pub(crate) const RECORDER_SLACK: u64 = 256 << 20;
/// Version of [`Config`] and of the other things that keeper and supervisor hand to each other.
pub const VERSION: u32 = 1;

/// How to resolve requests whose outcome is unknown after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The best policy for the daemon: what its profile says, else by what can be seen of it.
    #[default]
    Auto,
    /// Ask the successor what had already happened, then reissue the rest.
    Reconcile,
    /// Log the daemon's system calls that have effects, and continue from there.
    Journal,
    /// Make a request's writes to a disk image all or nothing.
    Transaction,
    /// Hold image writes back until a checkpoint, and replay what was done since.
    Epoch,
    /// Replay what was acknowledged but is not stored yet.
    Buffer,
    /// Ask the successor, which keeps records of its own, what has happened, then reissue the rest.
    Records,
    /// Reissue everything blindly: for comparison studies, not for data that matters.
    Blind,
}

/// How long a daemon holds what it has acknowledged, under the policy `buffer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// The content of a file until it is flushed or synced.
    Flush,
    /// The content of a file until it is synced, or its last handle is released.
    Close,
    /// The content of a file until its last handle is released, synced or not, and also what its
    /// length is set to by no handle.
    Release,
    /// Everything, until the daemon ends.
    #[default]
    End,
}

impl Policy {
    /// The name as in options and JSON; `auto` is shown as what it stands for.
    pub fn effective(self) -> &'static str {
        match self {
            Self::Auto | Self::Reconcile => "reconcile",
            Self::Journal => "journal",
            Self::Transaction => "transaction",
            Self::Epoch => "epoch",
            Self::Buffer => "buffer",
            Self::Records => "records",
            Self::Blind => "blind",
        }
    }
}

/// The choices of one `belay run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// [`VERSION`].
    pub version: u32,
    /// The daemon's program file, absolute.
    pub program: PathBuf,
    /// The daemon's command line, its name first, as the user gave it.
    pub command: Vec<OsText>,
    /// The shim library.
    pub shim: PathBuf,
    /// The daemon is one that no library can be loaded into: the relay is started in its place, and
    /// starts it.
    #[serde(default)]
    pub relay: bool,
    /// The user's own LD_PRELOAD; empty if there is none.
    pub preload: OsText,
    /// Folder of this mount in the state directory.
    pub instance: PathBuf,
    /// The mountpoint, as far as it can be told from the command line.
    pub guessed_mountpoint: Option<OsText>,
    /// Consecutive crashes without a served request after which belay gives up; 0: never.
    pub max_crashes: u32,
    /// Consecutive crashes after which the request that they are due to fails; 0: never.
    pub poison_after: u32,
    /// For how long starts that fail are made again, in milliseconds.
    pub retry_for_ms: u64,
    /// The daemon may end by itself, and has ended then.
    pub ends_itself: bool,
    /// How long a request may be in flight, and the supervisor do nothing, in milliseconds;
    /// never 0.
    pub hang_timeout_ms: Option<u64>,
    /// How long a successor may take until it is ready, in milliseconds.
    pub start_timeout_ms: u64,
    /// Resident memory of the daemon above which it is restarted, in bytes.
    pub memory_limit: Option<u64>,
    /// Memory that the recorder may take, in bytes, whatever is on record.
    pub recorder_limit: u64,
    /// How open requests are settled.
    pub policy: Policy,
    /// Who says so, or why, for people.
    pub policy_reason: String,
    /// Nobody has said that all of the daemon's calls are seen.
    pub unproven: bool,
    /// What the daemon answers and keeps to itself is looked for.
    #[serde(default)]
    pub watched: bool,
    /// What the daemon has answered to a write may be lost with its connection.
    #[serde(default)]
    pub loses_unconnected: bool,
    /// The daemon ends with its connection, and answers EIO before.
    pub ends_unconnected: bool,
    /// When checkpoints are made, and how, under the policy `epoch`.
    pub checkpoints: CheckpointConfig,
    /// Until when the daemon holds what it has acknowledged, under the policy `buffer`.
    pub until: Until,
    /// Files that may be what the daemon stores to, under that policy.
    pub stores: Vec<OsText>,
    /// The daemon's image, under the policy `epoch`.
    pub image: Option<Image>,
    /// How the user has named it; absolute.
    #[serde(default)]
    pub image_as: Option<OsText>,
    /// Keep copies of requests instead of asking the kernel to resend them.
    pub no_resend: bool,
    /// The daemon's inode numbers change between its lives.
    pub volatile_inodes: bool,
    /// What gives the daemon its names, if that is a file which nobody changes: they may be trusted
    /// instead of numbers.
    pub medium: Option<Medium>,
    /// Why the program is probably no FUSE daemon, and what to do: said if it mounts nothing.
    #[serde(default)]
    pub doubt: Option<String>,
    /// Where belay and the daemon talk to, if they are in the background.
    #[serde(default)]
    pub log: Option<OsText>,
    /// How long that was before: belay shortens only what comes behind.
    #[serde(default)]
    pub log_begin: u64,
    /// More messages.
    pub verbose: u8,
    /// Process id of the keeper that the user started.
    pub keeper_pid: u32,
    /// Children that this process had before (a shell may become belay by `exec`): not the
    /// daemon's.
    pub bystanders: Vec<u32>,
    /// Processes that the daemon needs beside it, in the order in which they are started.
    #[serde(default)]
    pub companions: Vec<Companion>,
    /// The file by which the daemon shows that it waits for a companion (see
    /// [`belay_memory::pulse`]): that is no hang of its own.
    #[serde(default)]
    pub pulse: Option<OsText>,
    /// The process of the next generation is started while one serves, and waits at a gate: for
    /// daemons of which nothing runs before their own library does, and that need nothing of the
    /// mount table but what is there when they are mounted.
    #[serde(default)]
    pub standby: bool,
    /// What keeper and supervisor name in their command lines, for people: the volume, the
    /// mountpoint, or the daemon's program.
    #[serde(default)]
    pub holds: Option<OsText>,
    /// Signals that did not come to who started belay, nor to what that starts: the daemon has it
    /// as it would be without belay.
    #[serde(default)]
    pub blocked_signals: u64,
}

impl Config {
    /// Has what this process says go to the log, where there is one, as to a file of limited
    /// length.
    pub fn mind_log(&self) {
        if self.log.is_some() {
            crate::outgoing::keep_short(self.log_begin);
        }
    }

    /// The hang limit. `None`: for ever.
    pub fn hang_timeout(&self) -> Option<Duration> {
        self.hang_timeout_ms.map(Duration::from_millis)
    }

    /// The command line for people.
    pub fn command_line(&self) -> String {
        crate::text::command_line(self.command.iter().map(|word| word.0.as_os_str()))
    }

    /// What the shim is told of the user's choices.
    pub fn options(&self) -> Options {
        let mut options = Options::empty();
        if self.no_resend {
            options |= Options::NO_RESEND;
        }
        options |= match self.policy {
            Policy::Blind => Options::BLIND_REPLAY,
            Policy::Records => Options::RECORDS,
            Policy::Journal => Options::JOURNAL,
            Policy::Transaction => Options::TRANSACTION,
            Policy::Epoch => Options::EPOCH,
            Policy::Buffer => {
                Options::EPOCH
                    | Options::BUFFER
                    | match self.until {
                        Until::End => Options::empty(),
                        Until::Flush => Options::BUFFER_FILES,
                        Until::Close => Options::BUFFER_FILES | Options::BUFFER_CLOSE,
                        Until::Release => {
                            Options::BUFFER_FILES | Options::BUFFER_CLOSE | Options::BUFFER_RELEASE
                        }
                    }
            }
            Policy::Auto | Policy::Reconcile => Options::empty(),
        };
        if self.unproven {
            options |= Options::UNPROVEN;
        }
        // Under the others what is acknowledged is on record.
        let unrecorded = matches!(
            self.policy,
            Policy::Auto | Policy::Reconcile | Policy::Journal | Policy::Transaction
        );
        if self.watched && unrecorded {
            options |= Options::WATCHED;
        }
        if self.loses_unconnected && unrecorded {
            options |= Options::LOSES_UNCONNECTED;
        }
        if self.ends_unconnected {
            options |= Options::ENDS_UNCONNECTED;
        }
        if self.volatile_inodes {
            options |= Options::VOLATILE_INODES;
        }
        options
    }
}
