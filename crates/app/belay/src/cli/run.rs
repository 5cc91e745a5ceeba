//! What can be asked of `belay run`.

use super::state_dir::StateDir;
use crate::profile::InodeNumbers;
use crate::profile::checkpoint::{FlushName, Wishes};
use crate::size::parse_size;
use belay_supervisor::Policy;
use belay_supervisor::config::Until;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// `belay run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub state: StateDir,
    /// Give up after this many crashes in a row without one request served; 0: never.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub max_crashes: u32,
    /// Fail a request after this many daemons in a row have died of it, and keep the mount;
    /// 0: never.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = poison_after)]
    pub poison_after: u32,
    /// Restart the daemon when a request has been in flight for longer than this, such as 30s, and
    /// replace a supervisor that has made no progress for that long [default: never, as with 0].
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub hang_timeout: Option<Duration>,
    /// Restart a successor that is not ready within this time.
    #[arg(long, value_name = "DURATION", default_value = "60s",
        value_parser = humantime::parse_duration)]
    pub start_timeout: Duration,
    /// How long to retry starting a daemon that does not start again (because its server is away,
    /// for example), after growing pauses; applications wait meanwhile. 0s: give up at the first
    /// start that fails.
    #[arg(long, value_name = "DURATION", default_value = "10m",
        value_parser = humantime::parse_duration)]
    pub retry_for: Duration,
    /// The daemon may end by itself (`encfs --idle`): then the mount ends, and no other daemon is
    /// started.
    #[arg(long)]
    pub ends_itself: bool,
    /// Restart the daemon when it uses more resident memory than this, such as 512M.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory_limit: Option<u64>,
    /// Give up the mount when belay's record of it takes more memory than this (at least 1G); what
    /// is on record is what the daemon's process says it is. A daemon that takes more of that
    /// memory than what is on record is restarted in any case.
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = recorder_limit)]
    pub recorder_limit: u64,
    /// How to resolve requests whose outcome is unknown after a crash.
    #[arg(long, value_enum, default_value_t = PolicyName::Auto)]
    pub policy: PolicyName,
    /// Under the policy `epoch`: how to make the daemon write everything it holds, for a checkpoint
    /// [default: what its profile says, else fsyncdir].
    #[arg(long, value_enum, value_name = "HOW")]
    pub flush: Option<FlushName>,
    #[command(flatten)]
    pub checkpoints: Wishes,
    /// Under the policy `buffer`: how long the daemon holds what it has acknowledged [default: what
    /// its profile says, else end].
    #[arg(long, value_enum, value_name = "WHEN")]
    pub buffer_until: Option<UntilName>,
    /// Under the policy `epoch`: the disk image that the daemon works on, if its command line does
    /// not tell which.
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Under the policy `epoch`: where to put the journal of the image, instead of beside it.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Keep copies of requests instead of having the kernel resend them.
    #[arg(long)]
    pub no_resend: bool,
    /// Whether the daemon gives files the same inode numbers in each life.
    #[arg(long, value_enum, default_value_t = NumbersName::Auto)]
    pub inode_numbers: NumbersName,
    /// Return as soon as the mount serves, and hold it in the background until `belay stop`. The
    /// exit status is then 0. A start that fails is reported as in the foreground, by its messages
    /// and the exit status; one that a signal interrupts ends with 128 plus the signal's number.
    /// The daemon's standard input is `/dev/null`, so a daemon that asks there or at the terminal
    /// (for a password) cannot be started this way. Its working directory and umask are those that
    /// belay is started with, so the file system of that directory cannot be unmounted meanwhile.
    #[arg(short, long)]
    pub background: bool,
    /// With --background: where messages of belay and the daemon go, with a separate file for each
    /// mount. belay appends to the file, or creates it for its owner alone (mode 0600). Only a
    /// regular file is accepted; a symbolic link is not followed. When the log grows long, belay
    /// drops its oldest messages, but never the earlier content of the file [default: `log` in the
    /// mount's folder, which `belay status` names].
    #[arg(long, value_name = "FILE", requires = "background")]
    pub log_file: Option<PathBuf>,
    /// More messages; twice for even more.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// The daemon and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Names of the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// The best one for the daemon.
    Auto,
    /// Ask the successor what had already happened, then reissue the rest.
    Reconcile,
    /// Log the daemon's system calls that have effects, and continue from there: for daemons that
    /// work on files.
    Journal,
    /// Make a request's writes to a disk image all or nothing: for daemons that write through.
    Transaction,
    /// Hold image writes back until a checkpoint, and replay what was done since: for daemons that
    /// buffer.
    Epoch,
    /// Replay what was acknowledged but is not stored yet: for daemons that buffer and have no
    /// image.
    Buffer,
    /// Ask the daemon's own records what had already happened, then reissue the rest: for daemons
    /// made for it, such as those of volumes.
    Records,
    /// Reissue everything blindly: for comparison studies only.
    #[value(hide = true)]
    Blind,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Auto => Self::Auto,
            PolicyName::Reconcile => Self::Reconcile,
            PolicyName::Journal => Self::Journal,
            PolicyName::Transaction => Self::Transaction,
            PolicyName::Epoch => Self::Epoch,
            PolicyName::Buffer => Self::Buffer,
            PolicyName::Records => Self::Records,
            PolicyName::Blind => Self::Blind,
        }
    }
}

/// Until when a daemon holds what it has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UntilName {
    /// The content of a file until it is flushed (closed or synced); everything else is stored at
    /// once.
    Flush,
    /// The content of a file until it is synced, or its last handle is released; everything else is
    /// stored at once.
    Close,
    /// The content of a file until its last handle is released, synced or not, and its length too
    /// if it is set while nobody has the file open; everything else is stored at once.
    Release,
    /// Everything, until the daemon ends.
    End,
}

impl From<UntilName> for Until {
    fn from(name: UntilName) -> Self {
        match name {
            UntilName::Flush => Self::Flush,
            UntilName::Close => Self::Close,
            UntilName::Release => Self::Release,
            UntilName::End => Self::End,
        }
    }
}

/// What a daemon's inode numbers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NumbersName {
    /// What the daemon's profile says, else stable.
    Auto,
    /// The same in each life.
    Stable,
    /// Different in each life.
    Volatile,
}

impl From<NumbersName> for Option<InodeNumbers> {
    fn from(name: NumbersName) -> Self {
        match name {
            NumbersName::Auto => None,
            NumbersName::Stable => Some(InodeNumbers::Stable),
            NumbersName::Volatile => Some(InodeNumbers::Volatile),
        }
    }
}

/// One crash says nothing of any single request that was in flight.
fn poison_after(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(crashes @ (0 | 2..=100)) => Ok(crashes),
        Ok(1) => Err("one crash does not tell which request was to blame; 2 is the least".into()),
        _ => Err("a number from 2 to 100 is needed, or 0".into()),
    }
}

/// Less is not enough for what one epoch may collect.
fn recorder_limit(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if size < 1 << 30 {
        return Err(format!("{text} is too little for what belay keeps; 1G is the least"));
    }
    Ok(size)
}
