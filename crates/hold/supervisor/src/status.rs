//! The state of a mount as `belay status` shows it.
//!
//! The JSON is an interface: fields are added, but none changes its meaning or goes without
//! [`SCHEMA_VERSION`] growing. All times are in microseconds unless the name says otherwise.

mod render;

use crate::blackout::Summary;
use crate::companions::CompanionStatus;
use crate::degraded::ReadOnly;
use crate::degraded::{Kind, Reason};
use crate::image::AtStart;
use crate::process::Exit;
use crate::stalled::Stalled;
use crate::text::escaped;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Version of the JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// What a mount is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The first daemon is not ready.
    Starting,
    /// The daemon serves.
    Serving,
    /// A crash is being recovered from.
    Recovering,
    /// The daemon does not start, and is started again and again.
    Waiting,
    /// Belay was asked to stop.
    Stopping,
    /// Belay gave up.
    GaveUp,
    /// Belay and the daemon were killed: the mount is there, and nobody serves it.
    Dead,
    /// Belay was killed, and the daemon serves on by itself.
    Unheld,
}

impl State {
    /// The name as in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Recovering => "recovering",
            Self::Waiting => "waiting",
            Self::Stopping => "stopping",
            Self::GaveUp => "gave-up",
            Self::Dead => "dead",
            Self::Unheld => "unheld",
        }
    }
}

/// The state of one mount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Where it is mounted; before the mount, where it will probably be; empty if not known.
    pub mountpoint: String,
    /// The same as bytes, if it is not UTF-8; else `null`.
    #[serde(default)]
    pub mountpoint_bytes: Option<Vec<u8>>,
    /// What it is doing.
    pub state: State,
    /// The daemon's generation, counted from 0.
    pub generation: u32,
    /// Crashes so far, those that the user asked for included.
    pub crashes: u64,
    /// Of these: crashes and restarts that the user asked for.
    pub planned: u64,
    /// Of these: restarts.
    #[serde(default)]
    pub restarts: u64,
    /// Blackouts.
    pub blackout_us: Summary,
    /// Requests.
    pub requests: Requests,
    /// What successors were given back.
    pub restored: Restored,
    /// What was done about the daemon's effects.
    pub effects: EffectCounts,
    /// The daemon's image, under the policy `epoch`.
    pub image: Option<ImageStatus>,
    /// Checkpoints; `null` under any other policy than `epoch`.
    #[serde(default)]
    pub epoch: Option<Epoch>,
    /// Nodes that the kernel knows.
    pub nodes_cached: u64,
    /// Open files and directories.
    pub open_handles: u64,
    /// How open requests are settled.
    pub policy: String,
    /// Who says so, or why.
    #[serde(default)]
    pub policy_reason: String,
    /// The daemon.
    pub daemon: Daemon,
    /// The supervisor.
    pub supervisor: Process,
    /// The keeper.
    pub keeper: Process,
    /// How often a new supervisor took over.
    pub takeovers: u64,
    /// Seconds since belay started.
    pub uptime_seconds: u64,
    /// Where the crash reports are.
    pub report_dir: String,
    /// How many were written.
    pub reports: u64,
    /// How many could not be.
    #[serde(default)]
    pub reports_failed: u64,
    /// What belay and the daemon have said in the background; `null` in the foreground.
    #[serde(default)]
    pub log: Option<String>,
    /// Something was lost, or cannot be kept now: there are reasons below.
    pub degraded: bool,
    /// Whether the kernel resends requests; if not, belay keeps copies.
    pub resend: bool,
    /// Why nothing can be changed, and where what was acknowledged is kept; `null` as long as all
    /// is well.
    #[serde(default)]
    pub read_only: Option<ReadOnly>,
    /// What was lost, or cannot be kept now; the oldest first.
    #[serde(default)]
    pub degraded_reasons: Vec<Reason>,
    /// How many more there are.
    #[serde(default)]
    pub degraded_unlisted: u64,
    /// Starts of the daemon that failed; they are no crashes.
    #[serde(default)]
    pub failed_starts: u64,
    /// What the daemon is waited for; `null` unless it is.
    #[serde(default)]
    pub waiting: Option<Wait>,
    /// Processes that the daemon needs beside it.
    #[serde(default)]
    pub companions: Vec<CompanionStatus>,
    /// The process that waits to be the next daemon; `null` while there is none.
    #[serde(default)]
    pub standby: Option<Process>,
    /// Daemons that end, one after the other, before they have answered a request that waits;
    /// `null` unless they do.
    #[serde(default)]
    pub stalled: Option<Stalled>,
}

/// A daemon that does not start, and is started again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Why the last start failed.
    pub reason: String,
    /// The daemon's own last words.
    pub words: Vec<String>,
    /// What may help; `null` if belay does not know.
    pub hint: Option<String>,
    /// How many starts have failed.
    pub tries: u32,
    /// Seconds since the first of them.
    pub since_seconds: u64,
    /// Seconds to the next one; `null` while it is under way.
    pub next_seconds: Option<u64>,
    /// Seconds until belay gives up.
    pub left_seconds: u64,
}

/// Requests of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// In flight now.
    pub in_flight: u64,
    /// Handed to daemons so far.
    pub total: u64,
    /// Reissued after a crash.
    pub reissued: u64,
    /// Settled by asking the successor.
    pub reconciled: u64,
    /// Answered from the recorded reply.
    pub recorded: u64,
    /// Failed because of a crash.
    pub failed: u64,
    /// Of these: because daemons died of them.
    pub poisoned: u64,
}

/// What successors were given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Nodes.
    pub nodes: u64,
    /// Open handles.
    pub handles: u64,
    /// Locks.
    pub locks: u64,
    /// Directory streams.
    pub streams: u64,
    /// Directories that have another inode number in the successor.
    pub renumbered: u64,
}

/// Counts of what was done about effects, under the policies `journal` and `transaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectCounts {
    /// Calls that were answered from a journal.
    pub replayed: u64,
    /// Calls whose outcome was found by a probe.
    pub probed: u64,
    /// Requests that failed because they did something else when they were done again.
    pub diverged: u64,
    /// Times that a thread without a request had an effect, so that journals were void.
    pub untagged: u64,
    /// Requests that were answered by another thread than the one that took them.
    pub handed_over: u64,
    /// Transactions that were committed.
    pub committed: u64,
    /// Of these: carried out for a dead generation.
    pub finished: u64,
    /// Transactions that were too long.
    pub torn: u64,
}

/// An image between checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageStatus {
    /// Its path.
    pub path: String,
    /// Where its journal lies.
    pub journal: String,
    /// What was done at the start about a commit that a power failure had cut off.
    pub at_start: AtStart,
    /// The number of the epoch under way.
    pub epoch: u64,
    /// The last one that is on the image, safe against power failure.
    pub committed: u64,
}

/// Checkpoints, under the policy `epoch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Bytes written to the image in this epoch.
    pub dirty_bytes: u64,
    /// Requests in the op-log.
    pub log_records: u64,
    /// Bytes in the op-log.
    pub log_bytes: u64,
    /// Seconds since an epoch was brought to the image; `null` if this supervisor has not yet.
    pub last_commit_seconds: Option<u64>,
    /// Checkpoints that could not be made because the daemon did not write.
    pub failed: u32,
    /// How the daemon is made to write.
    pub flush: String,
    /// What was acknowledged is being done again in a successor; `null` if not.
    #[serde(default)]
    pub rolling_forward: Option<Forward>,
    /// The mount is gone, and the daemon, or belay after it, has still to write what was
    /// acknowledged.
    #[serde(default)]
    pub storing: bool,
}

/// How far doing the op-log again is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// The record that is done.
    pub record: u64,
    /// How many there are.
    pub of: u64,
}

/// A daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// Its process id; `null` while there is none.
    pub pid: Option<u32>,
    /// Its command line.
    pub command: String,
    /// How the last one ended; `null` if none has.
    pub exit: Option<Exit>,
}

/// A process of belay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
}

impl Status {
    /// Where it is mounted, or will probably be, as the system names it.
    pub fn place(&self) -> Option<PathBuf> {
        match &self.mountpoint_bytes {
            Some(bytes) => Some(OsString::from_vec(bytes.clone()).into()),
            None => (!self.mountpoint.is_empty()).then(|| self.mountpoint.clone().into()),
        }
    }

    /// The same for people; empty if it is not known.
    pub fn shown(&self) -> String {
        self.place().map(|place| escaped(place.as_os_str())).unwrap_or_default()
    }

    /// What is said of a daemon that was killed and does not end; `None` if there is none.
    pub fn stays(&self) -> Option<&str> {
        let reason = self.degraded_reasons.iter().find(|reason| reason.kind == Kind::Kill)?;
        let awaited = matches!(self.state, State::Recovering | State::Stopping);
        awaited.then_some(reason.what.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::degraded::Kind;
    use crate::stalled::{Doing, Ended, Part};
    use snapbox::{assert_data_eq, file};

    fn example() -> Status {
        Status {
            schema_version: SCHEMA_VERSION,
            mountpoint: "/mnt/data".into(),
            mountpoint_bytes: None,
            state: State::GaveUp,
            generation: 2,
            crashes: 2,
            planned: 1,
            restarts: 0,
            blackout_us: Summary { count: 2, median: 900, p99: 1000, max: 1000, last: 900 },
            requests: Requests { in_flight: 1, total: 10, ..Requests::default() },
            restored: Restored::default(),
            effects: EffectCounts { replayed: 3, ..EffectCounts::default() },
            image: Some(ImageStatus {
                path: "/srv/disk.img".into(),
                journal: "/srv/disk.img.belay-journal".into(),
                at_start: AtStart::Applied,
                epoch: 4,
                committed: 2,
            }),
            epoch: None,
            nodes_cached: 5,
            open_handles: 1,
            policy: "reconcile".into(),
            policy_reason: "--policy".into(),
            daemon: Daemon { pid: Some(3), command: "d".into(), exit: Some(Exit::Signal(9)) },
            supervisor: Process { pid: 4 },
            keeper: Process { pid: 5 },
            takeovers: 0,
            uptime_seconds: 61,
            report_dir: "/run/belay/x/reports".into(),
            reports: 2,
            reports_failed: 0,
            log: Some("/run/belay/x/log".into()),
            degraded: true,
            resend: true,
            read_only: Some(ReadOnly {
                reason: "r".into(),
                oplog: Some("/i.belay-oplog".into()),
                operations: 7,
            }),
            degraded_reasons: vec![Reason {
                kind: Kind::Data,
                what: "w".into(),
                since: "2026-11-20T12:10:22.083Z".into(),
            }],
            degraded_unlisted: 3,
            failed_starts: 4,
            waiting: Some(Wait {
                reason: "it exited with code 1".into(),
                words: vec!["read: Connection reset by peer".into()],
                hint: None,
                tries: 4,
                since_seconds: 61,
                next_seconds: Some(8),
                left_seconds: 539,
            }),
            companions: Vec::new(),
            standby: Some(Process { pid: 6 }),
            stalled: Some(Stalled {
                lives: 3,
                since_seconds: 2,
                ends: vec![Ended {
                    generation: 1,
                    lived_ms: 40,
                    exit: Exit::Signal(9),
                    doing: Doing::Restoring,
                    operation: None,
                    nodes: Part { done: 2, of: 5 },
                    handles: Part { done: 0, of: 1 },
                    locks: Part::default(),
                }],
                hint: "see to it".into(),
            }),
        }
    }

    #[test]
    fn the_json_is_as_documented() {
        // This text is an interface. If it changes in another way than by new fields, raise
        // SCHEMA_VERSION and say so in the changelog.
        let json = serde_json::to_string_pretty(&example()).expect("json") + "\n";
        assert_data_eq!(json, file!["../tests/snapshots/status.json": Text].raw());
    }

    #[test]
    fn a_restart_is_no_crash_to_people() {
        let text = Status { crashes: 4, planned: 3, restarts: 1, ..example() }.render();
        assert!(text.contains("  crashes     3 (2 asked for), besides 1 restart\n"), "{text}");
        assert!(example().render().contains("  crashes     2 (1 asked for)\n"));
    }

    #[test]
    fn people_see_what_matters() {
        assert_data_eq!(example().render(), file!["../tests/snapshots/status.txt"].raw());
    }
}
