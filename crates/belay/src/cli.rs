//! What can be asked for on the command line.

use crate::profile::InodeNumbers;
use crate::profile::checkpoint::{FlushName, Wishes};
use crate::size::parse_size;
use belay_supervisor::Policy;
use belay_supervisor::config::Until;
use belay_supervisor::process::{parse_signal, signal_name};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Hold the mount of a FUSE daemon: when it crashes, applications wait a few milliseconds and go on.
#[derive(Debug, Parser)]
#[command(name = "belay", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a FUSE daemon and keep its mount through every crash.
    #[command(
        long_about = "Start a FUSE daemon and keep its mount through every crash.\n\n\
        Everything after `--` is the daemon's own command line, as you would type it without \
        belay. belay stays in the foreground, also for daemons that go into the background, and says when the mount serves; \
        with --background it returns then. Its \
        exit status is that of the daemon's last clean exit. Ctrl-C, SIGTERM and SIGHUP unmount; a second \
        one does so by force. Any other signal that ends it, such as SIGQUIT, leaves the mount held in \
        the background, until `belay stop`.",
        after_help = "Examples:\n  belay run -- sshfs host:/data /mnt/data\n  \
        belay run --background -- bindfs /srv/data /mnt/data"
    )]
    Run(Box<Run>),
    /// Show held mounts: state, crashes, blackouts.
    #[command(long_about = "Show held mounts: state, crashes, blackouts.\n\n\
        With --json: one object {schema_version, mounts: [...]}, each mount with at least \
        schema_version, mountpoint, mountpoint_bytes, state (starting, serving, recovering, waiting, stopping, gave-up, dead, \
        unheld), \
        generation, crashes, planned, restarts, blackout_us {count, median, p99, max, last}, requests \
        {in_flight, total, reissued, reconciled, recorded, failed, poisoned}, restored {nodes, handles, \
        locks, streams, renumbered}, effects, image, epoch, nodes_cached, open_handles, policy, policy_reason, daemon {pid, command, exit}, \
        supervisor {pid}, keeper {pid}, takeovers, uptime_seconds, report_dir, reports, reports_failed, log, degraded, \
        degraded_reasons, degraded_unlisted, resend, read_only, failed_starts, waiting (all in docs/status-json.md). With MOUNT, the object of that mount alone. Fields may be added; schema_version \
        grows when one goes or changes its meaning.\n\n\
        Exit status: 0 if it is shown, also if there is no mount; 1 if belay holds none at MOUNT, or one says nothing of \
        itself; 3 if the state directory that was named is not there.")]
    Status(Status),
    /// Unmount, and end the daemon and belay.
    #[command(long_about = "Unmount, and end the daemon and belay.\n\n\
        A mount that is in use goes on as before: what uses it is named, and the exit status is 1. With --lazy it is taken out of \
        the tree at once, and who has files open is served until they are closed; belay ends then. With --force it ends all the \
        same, as it does for Ctrl-C and SIGTERM: the daemon is asked to end, killed after 10 seconds, and who uses the mount gets \
        errors.")]
    Stop(Stop),
    /// Crash the daemon on purpose and wait for its recovery: your own chaos test.
    Crash(Crash),
    /// Restart the daemon, for example after its program was updated.
    Restart(Mount),
    /// Make a checkpoint now (policy `epoch`), and return when it is on the image, safe from a loss of power.
    Checkpoint(Mount),
    /// Apply what was acknowledged and could not be done again: the op-log of a mount that became read-only.
    #[command(
        long_about = "Apply what was acknowledged and could not be done again.\n\n\
        Under the policy `epoch`, a mount whose daemons die of doing again what was acknowledged since \
        the last checkpoint becomes read-only, and these operations are kept in a file (`belay status` \
        and the crash report name it). When the daemon is mended, unmount, mount the image again, with \
        or without belay, and apply the file: the operations are carried out in their order by ordinary \
        system calls below MOUNT, and the file notes how far it has come. What was applied is not \
        applied again.\n\n\
        At the first operation that does not come out as it did then, it stops; `--keep-going` goes on, \
        `--skip` leaves out the one at which the last run stopped. At the end all is made durable \
        (syncfs, and fsync of MOUNT). If the machine, or a daemon without belay, dies before that, begin again with a copy \
        of the image and of the file from before: keep both.\n\n\
        Exit status: 0 if all is applied, 1 if something is not.",
        after_help = "Examples:\n  belay replay --list disk.img.belay-oplog\n  \
        belay replay disk.img.belay-oplog /mnt/disk"
    )]
    Replay(Replay),
    /// Find out which policy a daemon needs, by crashing it hundreds of times.
    #[command(
        long_about = "Find out which policy a daemon needs, by crashing it hundreds of times.\n\n\
        Everything after `--` is the daemon's own command line. Each operation is done on the bare \
        daemon first, which shows what is right. Then, under each policy, the daemon is crashed at \
        every point of the request that the operation is about, and what the application got, what \
        is in the file system, and whether the mount still serves is compared. The first policy \
        under which nobody notices anything is the one that the daemon needs; a profile is written, \
        by which `belay run --policy auto` (the default) goes.\n\n\
        Run it on a scratch back end: an empty directory, an account of no importance. The policies \
        under test may turn out to be wrong, and then what is behind the mount is left in between. \
        A disk image (a file among the daemon's arguments) is not touched: qualify works on copies \
        of it, so it should be small. All work is done in a directory of its own below the \
        mountpoint, which is removed in the end.\n\n\
        Exit status: 0 if the daemon is certified, 1 if it is not or something failed. The table is \
        described in docs/qualify.md.",
        after_help = "Examples:\n  belay qualify -- bindfs /srv/scratch /mnt/scratch\n  \
        belay qualify --check 'ntfsfix -n {}' -- ntfs-3g scratch.img /mnt/scratch"
    )]
    Qualify(Box<crate::qualify::Options>),
    /// Bring a disk image to a checkpoint after a loss of power.
    #[command(
        long_about = "Bring a disk image to a checkpoint after a loss of power.\n\n\
        Under the policy `epoch` an image is brought from one checkpoint to the next by way of a \
        journal: IMAGE.belay-journal beside it, or where `belay run --journal` wanted it, or, if \
        there was no place beside it, in $BELAY_JOURNAL_DIR (else /var/lib/belay/journals for root, \
        $XDG_STATE_HOME/belay/journals or ~/.local/state/belay/journals for others). If the power \
        goes meanwhile, what is in the journal is written to the image again, or, if the journal had \
        not got that far, dropped; in both cases the image is at a checkpoint then. `belay run` does \
        that by itself when it starts; this command is for whoever wants the image otherwise. The \
        journal is removed in the end.\n\n\
        With --json: one object {schema_version, image, dry_run, journals: [{path, done (nothing, \
        dropped, discarded, applied), checkpoint, places, bytes}], error}.\n\n\
        Exit status: 0 if the image is at a checkpoint, 1 if something is refused or failed; with \
        --dry-run 3 if there is something to do.",
        after_help = "Example: belay repair /srv/disk.img"
    )]
    Repair(Repair),
    /// Tell what this machine, user and daemon allow, and how to get what is missing.
    Doctor(Doctor),
    /// Print shell completions.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page, or write all of them into a directory.
    #[command(
        long_about = "Print a manual page, or write all of them into a directory.\n\n\
        Without COMMAND it is belay's own page. With --dir, the directory is made if it is not there, and what was written \
        is said.",
        after_help = "Examples:\n  belay man run | man -l -\n  \
        belay man --dir /usr/local/share/man/man1"
    )]
    Man {
        /// The command, such as `run`; or, as `--dir` has it, the path of a directory.
        #[arg(conflicts_with = "dir")]
        command: Option<PathBuf>,
        /// Write the pages of belay and of all commands into this directory.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// The supervisor (for belay itself).
    #[command(hide = true)]
    Supervise(Hidden),
    /// A new keeper (for belay itself).
    #[command(hide = true)]
    Keep(Hidden),
    /// A backtrace (for belay itself).
    #[command(hide = true)]
    Autopsy,
    /// Go where one may have to wait for ever (for belay itself).
    #[command(hide = true)]
    Scout,
    /// Ask a mount for something that changes nothing (for belay itself).
    #[command(hide = true)]
    Ask {
        /// The process that it is started by.
        parent: u32,
        /// The mountpoint.
        mount: PathBuf,
    },
}

/// Options of the processes that belay starts for itself.
#[derive(Debug, Args)]
pub struct Hidden {
    /// More messages.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Where belay keeps sockets and reports.
#[derive(Debug, Args)]
pub struct StateDir {
    /// Directory for sockets and crash reports [default: $BELAY_STATE_DIR, else /run/belay for
    /// root, else $XDG_RUNTIME_DIR/belay, or /tmp/belay-UID without one (cron, su)].
    #[arg(long = "state-dir", value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl StateDir {
    /// Whether somebody has named one that is not there. The one that is taken otherwise is made by the first `belay run`.
    pub fn is_missing(&self) -> bool {
        let by_variable = || std::env::var_os("BELAY_STATE_DIR").is_some_and(|dir| !dir.is_empty());
        let is_gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        (self.dir.is_some() || by_variable()) && self.path().symlink_metadata().is_err_and(is_gone)
    }

    /// The directory, absolute as far as that can be had.
    pub fn path(&self) -> PathBuf {
        let dir = self.dir.clone().unwrap_or_else(belay_supervisor::instances::default_state_dir);
        std::path::absolute(&dir).unwrap_or(dir)
    }
}

/// `belay run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub state: StateDir,
    /// Give up after this many crashes in a row without one served request; 0: never.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub max_crashes: u32,
    /// Fail a request that the daemon has died of so many times in a row, and hold on to the mount;
    /// 0: never.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = poison_after)]
    pub poison_after: u32,
    /// Restart the daemon when a request has been in flight for longer than this, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub hang_timeout: Option<Duration>,
    /// Restart a successor that is not ready after this time.
    #[arg(long, value_name = "DURATION", default_value = "60s",
        value_parser = humantime::parse_duration)]
    pub start_timeout: Duration,
    /// For how long a daemon that does not start again (its server is away, for example) is started again and again, after
    /// growing pauses; applications wait meanwhile. 0s: give up at the first start that fails.
    #[arg(long, value_name = "DURATION", default_value = "10m",
        value_parser = humantime::parse_duration)]
    pub retry_for: Duration,
    /// The daemon may end by itself (`encfs --idle`): then the mount ends, instead of another one being started.
    #[arg(long)]
    pub ends_itself: bool,
    /// Restart the daemon when it uses more resident memory than this, such as 512M.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory_limit: Option<u64>,
    /// Give the mount up when what belay has on record of it takes more memory than this (at least 1G): what is on record is
    /// what the daemon's process says that it is. A daemon that takes more of that memory than what is on record is
    /// restarted in any case.
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = recorder_limit)]
    pub recorder_limit: u64,
    /// How requests are settled whose outcome a crash left open.
    #[arg(long, value_enum, default_value_t = PolicyName::Auto)]
    pub policy: PolicyName,
    /// Under the policy `epoch`: how the daemon is made to write all that it holds, for a checkpoint
    /// [default: what its profile says, else fsyncdir].
    #[arg(long, value_enum, value_name = "HOW")]
    pub flush: Option<FlushName>,
    #[command(flatten)]
    pub checkpoints: Wishes,
    /// Under the policy `buffer`: until when the daemon holds what it has acknowledged [default: what its profile says, else
    /// end].
    #[arg(long, value_enum, value_name = "WHEN")]
    pub buffer_until: Option<UntilName>,
    /// Under the policy `epoch`: the disk image that the daemon works on, if its command line does not
    /// tell.
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Under the policy `epoch`: where the journal of the image is to lie, instead of beside it.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Keep copies of requests instead of having the kernel resend them.
    #[arg(long)]
    pub no_resend: bool,
    /// Whether the daemon gives files the same inode numbers in each of its lives.
    #[arg(long, value_enum, default_value_t = NumbersName::Auto)]
    pub inode_numbers: NumbersName,
    /// Return as soon as the mount serves, and hold it in the background until `belay stop`. The exit status is 0 then; a start that
    /// fails is told as in the foreground, by its messages and the exit status. A daemon that asks at the terminal (for a
    /// password) cannot be started so.
    #[arg(short, long)]
    pub background: bool,
    /// With --background: where messages and the daemon's words go; of a file that becomes long the beginning is taken away
    /// [default: `log` in the mount's folder, which `belay status` names].
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
    /// Ask the successor what had already happened, then issue the rest again.
    Reconcile,
    /// Log the daemon's effectful system calls, and go on from there: for daemons that work on files.
    Journal,
    /// Make what a request writes to a disk image all or nothing: for daemons that write through.
    Transaction,
    /// Keep image writes back until a checkpoint, and issue again what was done since: for daemons that buffer.
    Epoch,
    /// Issue again what was answered and not stored yet: for daemons without an image that buffer.
    Buffer,
    /// Issue everything again, blindly: for comparison studies only.
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
            PolicyName::Blind => Self::Blind,
        }
    }
}

/// Until when a daemon holds what it has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UntilName {
    /// The content of a file until it is flushed (closed or synced); all else is stored at once.
    Flush,
    /// The content of a file until it is synced, or its last handle is released; all else is stored at once.
    Close,
    /// Everything until its own end.
    End,
}

impl From<UntilName> for Until {
    fn from(name: UntilName) -> Self {
        match name {
            UntilName::Flush => Self::Flush,
            UntilName::Close => Self::Close,
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
    /// They change.
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

/// `belay status`.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub state: StateDir,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The mountpoint; all mounts without it.
    pub mount: Option<PathBuf>,
}

/// A command on one mount.
#[derive(Debug, Args)]
pub struct Mount {
    #[command(flatten)]
    pub state: StateDir,
    /// The mountpoint.
    pub mount: PathBuf,
}

/// `belay stop`.
#[derive(Debug, Args)]
pub struct Stop {
    #[command(flatten)]
    pub state: StateDir,
    /// End it also if it is in use; who uses it gets errors.
    #[arg(long, conflicts_with = "lazy")]
    pub force: bool,
    /// Unmount at once, and serve who has files open to the end.
    #[arg(long)]
    pub lazy: bool,
    /// The mountpoint.
    pub mount: PathBuf,
}

/// `belay crash`.
#[derive(Debug, Args)]
pub struct Crash {
    #[command(flatten)]
    pub state: StateDir,
    /// The mountpoint.
    pub mount: PathBuf,
    /// The signal that kills the daemon, by name or number (STOP: it hangs, until `belay run --hang-timeout` ends it).
    #[arg(long, value_name = "NAME", default_value = "KILL", value_parser = signal)]
    pub signal: i32,
    /// How many times.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Time from one crash to the next.
    #[arg(long, value_name = "DURATION", default_value = "1s",
        value_parser = humantime::parse_duration)]
    pub every: Duration,
}

/// `belay repair`.
#[derive(Debug, Args)]
pub struct Repair {
    #[command(flatten)]
    pub state: StateDir,
    /// Where the journal is, if it is where nobody would look for it.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Apply a journal that seems to belong to another image, or to an earlier state of it.
    #[arg(long, conflicts_with = "discard")]
    pub force: bool,
    /// Drop the journal, whatever it holds (but not a file that is no journal of belay's).
    #[arg(long)]
    pub discard: bool,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The image: a file or block device.
    pub image: PathBuf,
}

/// `belay replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// The file.
    pub file: PathBuf,
    /// Where the file system is mounted.
    #[arg(required_unless_present = "list")]
    pub mount: Option<PathBuf>,
    /// Only show what is in the file, and how far it has come.
    #[arg(short, long, conflicts_with = "mount")]
    pub list: bool,
    /// Say what would be done, and do nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Go on after an operation that fails or comes out otherwise.
    #[arg(short, long)]
    pub keep_going: bool,
    /// Leave out the operation at which the last run stopped.
    #[arg(long)]
    pub skip: bool,
    /// Apply them also to a directory where nothing is mounted, such as a copy of what is on the image.
    #[arg(long)]
    pub anywhere: bool,
    /// Print JSON: one object for each operation, and one at the end.
    #[arg(long)]
    pub json: bool,
}

/// `belay doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    pub state: StateDir,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// A daemon (and its arguments) to look at.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
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

/// Signals that end nobody.
const HARMLESS: [&str; 7] =
    ["SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGTSTP", "SIGTTIN", "SIGTTOU"];

fn signal(text: &str) -> Result<i32, String> {
    let signal = parse_signal(text)
        .ok_or_else(|| format!("no signal is called {text}; see `kill -l` for their names"))?;
    if HARMLESS.contains(&signal_name(signal).as_str()) {
        return Err(format!("{text} ends no daemon, so there would be no recovery to wait for"));
    }
    Ok(signal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn runs_are_parsed() {
        let words = "belay run --hang-timeout 30s --memory-limit 512M -v -- sshfs -f a:/b /mnt";
        let Command::Run(run) = Cli::parse_from(words.split(' ')).command else { panic!() };
        assert_eq!(run.hang_timeout, Some(Duration::from_secs(30)));
        assert_eq!((run.memory_limit, run.recorder_limit), (Some(512 << 20), 4 << 30));
        assert_eq!(run.command, ["sshfs", "-f", "a:/b", "/mnt"]);
    }

    #[test]
    fn bad_arguments_are_refused() {
        for words in [
            "belay run",
            "belay run --",
            "belay run --max-crashes x -- d",
            "belay crash /mnt --signal NOPE",
            "belay crash /mnt --signal CONT",
            "belay crash /mnt --count 0",
            "belay crash",
            "belay run --policy wild -- d",
            "belay run --poison-after 1 -- d",
            "belay run --poison-after 101 -- d",
        ] {
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{words}");
        }
    }
}
