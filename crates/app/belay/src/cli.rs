//! What can be asked for on the command line.

mod parsed;
mod processes;
mod run;
pub mod state_dir;
pub mod volume;
mod volume_mount;

pub use processes::{CacheProcess, NamespaceProcess, StoreProcess};
pub use run::Run;
pub use volume_mount::VolumeMount;

use belay_supervisor::process::{parse_signal, signal_name};
use clap::{Args, Parser, Subcommand, ValueEnum};
use state_dir::StateDir;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Hold the mount of a FUSE daemon: when it crashes, applications wait a few milliseconds and go
/// on.
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
        belay. belay stays in the foreground, even if the daemon goes into the background, and reports when the mount serves; \
        with --background it returns at that point. Its \
        exit status is that of the daemon's last clean exit. Ctrl-C, SIGTERM and SIGHUP unmount; a second such \
        signal unmounts by force. Any other signal that ends belay, such as SIGQUIT, leaves the mount held in \
        the background until `belay stop`.",
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
        degraded_reasons, degraded_unlisted, resend, read_only, failed_starts, waiting (all in docs/status-json.md). With MOUNT, only the object of that mount. Fields may be added; schema_version \
        increases when a field is removed or changes its meaning.\n\n\
        Exit status: 0 if the status is shown, even if there are no mounts; 1 if belay holds no mount at MOUNT, or a belay does \
        not answer; 3 if the state directory that was named does not exist.")]
    Status(Status),
    /// Unmount, and end the daemon and belay.
    #[command(long_about = "Unmount, and end the daemon and belay.\n\n\
        A mount that is in use continues as before: belay names what uses it, and exits with status 1. --lazy takes the mount out \
        of the tree at once, and serves open files until they are closed; then belay ends. --force ends a mount even if it is in \
        use, as Ctrl-C and SIGTERM do: the daemon is asked to end, and killed after 10 seconds; processes that use the mount get \
        errors.")]
    Stop(Stop),
    /// Crash the daemon on purpose and wait for its recovery: your own chaos test.
    Crash(Crash),
    /// Restart the daemon, for example after its program was updated.
    Restart(Mount),
    /// Make a checkpoint now (volumes, policy `epoch`), and return when it is safe from a power
    /// failure.
    #[command(
        long_about = "Make a checkpoint now, and return when it is safe from a power failure.\n\n\
        Everything written before is then on the stores of the volume or, under the policy `epoch`, on the image. Other mounts have no \
        checkpoints."
    )]
    Checkpoint(Mount),
    /// Apply what was acknowledged but could not be replayed: the op-log of a mount that became
    /// read-only.
    #[command(
        long_about = "Apply what was acknowledged but could not be replayed.\n\n\
        Under the policy `epoch`, a mount becomes read-only if its daemons die replaying what was \
        acknowledged since the last checkpoint. belay keeps these operations in a file, which `belay status` \
        and the crash report name. Once the daemon is fixed, unmount and remount the image, with \
        or without belay, and apply the file: belay carries out the operations in order, by ordinary \
        system calls below MOUNT, and records its progress in the file. What was applied is not \
        applied again.\n\n\
        belay stops at the first operation whose outcome differs from the one it had then; `--keep-going` continues, \
        `--skip` leaves out the operation at which the last run stopped. At the end everything is made durable \
        (syncfs, and fsync of MOUNT). Keep a copy of both the image and the file from before: if the machine, or a daemon \
        without belay, dies before the end, start again with these copies.\n\n\
        Exit status: 0 if everything is applied, 1 if something is not.",
        after_help = "Examples:\n  belay replay --list disk.img.belay-oplog\n  \
        belay replay disk.img.belay-oplog /mnt/disk"
    )]
    Replay(Replay),
    /// Find out which policy a daemon needs, by crashing it hundreds of times.
    #[command(
        long_about = "Find out which policy a daemon needs, by crashing it hundreds of times.\n\n\
        Everything after `--` is the daemon's own command line. qualify first does each operation on the \
        bare daemon, which shows the right outcome. Then, under each policy, it crashes the daemon at \
        every point of the request that the operation is about, and compares what the application got, what \
        is in the file system, and whether the mount still serves. The daemon needs the first policy \
        under which nobody notices anything. qualify writes a profile, \
        which `belay run --policy auto` (the default) follows.\n\n\
        Run it on a scratch back end: an empty directory, or a test account. A policy \
        under test may turn out to be wrong, which leaves the back end in an inconsistent state. \
        A disk image (a file among the daemon's arguments) is not touched: qualify works on copies \
        of it, so it should be small. qualify works in a directory of its own below the \
        mountpoint, and removes it at the end.\n\n\
        Exit status: 0 if the daemon is certified, 1 if it is not or something failed. docs/qualify.md \
        describes the table.",
        after_help = "Examples:\n  belay qualify -- bindfs /srv/scratch /mnt/scratch\n  \
        belay qualify --check 'ntfsfix -n {}' -- ntfs-3g scratch.img /mnt/scratch"
    )]
    Qualify(Box<crate::qualify::options::Options>),
    /// Bring a disk image to a checkpoint after a power failure.
    #[command(
        long_about = "Bring a disk image to a checkpoint after a power failure.\n\n\
        Under the policy `epoch`, belay brings an image from one checkpoint to the next by way of a \
        journal: IMAGE.belay-journal beside it, or where `belay run --journal` put it, or, if \
        it could not be beside the image, in $BELAY_JOURNAL_DIR (else /var/lib/belay/journals for root, \
        $XDG_STATE_HOME/belay/journals or ~/.local/state/belay/journals for others). After a power \
        failure in between, the contents of the journal are written to the image again or, if the journal is \
        incomplete, dropped; in both cases the image is then at a checkpoint. `belay run` does \
        this by itself when it starts; this command is for using the image without it. The \
        journal is removed at the end.\n\n\
        With --json: one object {schema_version, image, dry_run, journals: [{path, done (nothing, \
        dropped, discarded, applied), checkpoint, places, bytes}], error}.\n\n\
        Exit status: 0 if the image is at a checkpoint, 1 if something was refused or failed; with \
        --dry-run, 3 if there is something to do.",
        after_help = "Example: belay repair /srv/disk.img"
    )]
    Repair(Repair),
    /// Volumes: belay's own file systems, every process of which may crash.
    #[command(
        long_about = "Volumes: belay's own file systems, every process of which may crash.\n\n\
        A volume consists of stores, which are image files or block devices. It has a name, by which belay finds a file in \
        /etc/belay/volumes (for root) or ~/.config/belay/volumes ($XDG_CONFIG_HOME is respected) that says where its stores are. A \
        user's own names take precedence over root's. If $BELAY_VOLUMES_DIR is set, it replaces both directories.\n\n\
        See docs/volumes.md for more.",
        after_help = "Example:\n  belay volume create scratch --store ~/scratch.img:8G\n  belay volume mount scratch /mnt/scratch\n  belay volume umount /mnt/scratch"
    )]
    Volume(volume::Volume),
    /// Show what this machine, user and daemon allow, and how to get what is missing.
    Doctor(Doctor),
    /// Print shell completions.
    Completions {
        /// The shell that they are for.
        shell: clap_complete::Shell,
    },
    /// Print a manual page, or write all of them into a directory.
    #[command(
        long_about = "Print a manual page, or write all of them into a directory.\n\n\
        Without COMMAND, prints belay's own page. With --dir, creates the directory if it does not exist, and reports what was \
        written.",
        after_help = "Examples:\n  belay man volume mount | man -l -\n  \
        belay man --dir /usr/local/share/man/man1"
    )]
    Man {
        /// The command, such as `run` or `volume mount`; or the path of a directory, as with
        /// `--dir`.
        #[arg(conflicts_with = "dir")]
        command: Vec<PathBuf>,
        /// Write the pages of belay and of all its commands into this directory.
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
    /// Go where a process may have to wait forever (for belay itself).
    #[command(hide = true)]
    Scout,
    /// Started in place of a daemon that no library can be loaded into (for belay itself).
    #[command(hide = true)]
    Relay {
        /// A descriptor that the program is found by.
        #[arg(long)]
        held: Option<i32>,
        /// The mountpoint, if the daemon is to be led elsewhere until it has mounted.
        #[arg(long, requires = "instead")]
        mountpoint: Option<PathBuf>,
        /// Where it is led to.
        #[arg(long, requires = "mountpoint")]
        instead: Option<PathBuf>,
        /// The daemon's program.
        program: PathBuf,
        /// The daemon's command line, its name first.
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// The process of a volume with its stores (for belay itself).
    #[command(hide = true)]
    VolumeStore(StoreProcess),
    /// The process of a volume's cache (for belay itself).
    #[command(hide = true)]
    VolumeCache(CacheProcess),
    /// The process of a volume's namespace module: a FUSE daemon (for belay itself).
    #[command(hide = true)]
    VolumeNamespace(NamespaceProcess),
    /// Ask a mount for something that changes nothing (for belay itself).
    #[command(hide = true)]
    Ask {
        /// The process that it is started by.
        parent: u32,
        /// The mountpoint.
        mount: PathBuf,
    },
}

impl Command {
    /// How many more messages are asked for.
    pub fn verbose(&self) -> u8 {
        match self {
            Self::Run(run) => run.verbose,
            Self::Volume(volume) => volume.command.verbose(),
            Self::Supervise(hidden) | Self::Keep(hidden) => hidden.verbose,
            Self::VolumeStore(process) => process.verbose,
            Self::VolumeCache(process) => process.verbose,
            _ => 0,
        }
    }
}

/// Options of the processes that belay starts for itself.
#[derive(Debug, Args)]
pub struct Hidden {
    /// What it holds, for people; not used otherwise.
    #[arg(allow_hyphen_values = true)]
    pub holds: Option<OsString>,
    /// More messages.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `belay status`.
#[derive(Clone, Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub state: StateDir,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The mountpoint, or the name of a mounted volume; without it, all mounts.
    pub mount: Option<PathBuf>,
}

/// A command on one mount.
#[derive(Debug, Args)]
pub struct Mount {
    #[command(flatten)]
    pub state: StateDir,
    /// The mountpoint, or the name of a mounted volume.
    pub mount: PathBuf,
}

/// `belay stop`.
#[derive(Clone, Debug, Args)]
pub struct Stop {
    #[command(flatten)]
    pub state: StateDir,
    /// Unmount even if the mount is in use; what uses it gets errors.
    #[arg(long, conflicts_with = "lazy")]
    pub force: bool,
    /// Unmount at once, and serve open files until they are closed.
    #[arg(long)]
    pub lazy: bool,
    /// The mountpoint, or the name of a mounted volume.
    pub mount: PathBuf,
}

/// `belay crash`.
#[derive(Debug, Args)]
pub struct Crash {
    #[command(flatten)]
    pub state: StateDir,
    /// The mountpoint, or the name of a mounted volume.
    pub mount: PathBuf,
    /// Which process to crash; for a volume, the daemon is its namespace module.
    #[arg(long, value_enum, default_value_t = Victim::Daemon)]
    pub process: Victim,
    /// The signal that kills the daemon, by name or number (STOP: the daemon hangs until `belay run
    /// --hang-timeout` ends it).
    #[arg(long, value_name = "NAME", default_value = "KILL", value_parser = signal)]
    pub signal: i32,
    /// How many times to crash it.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Time from one crash to the next.
    #[arg(long, value_name = "DURATION", default_value = "1s",
        value_parser = humantime::parse_duration)]
    pub every: Duration,
}

/// A process of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Victim {
    /// The daemon.
    #[value(alias = "namespace")]
    Daemon,
    /// For a volume: the process with its stores.
    Store,
    /// For a volume: the process of its cache.
    Cache,
    /// Belay's supervisor.
    Supervisor,
    /// Belay's keeper, which holds the mount while the supervisor is dead.
    Keeper,
}

/// `belay repair`.
#[derive(Debug, Args)]
pub struct Repair {
    #[command(flatten)]
    pub state: StateDir,
    /// Where the journal is, if it is in none of the usual places.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Apply a journal that seems to belong to another image, or to an earlier state of this one.
    #[arg(long, conflicts_with = "discard")]
    pub force: bool,
    /// Drop the journal, whatever it holds (but never a file that is not a belay journal).
    #[arg(long)]
    pub discard: bool,
    /// Print what would be done, and change nothing.
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
    /// Only show what is in the file, and how much of it has been applied.
    #[arg(short, long, conflicts_with = "mount")]
    pub list: bool,
    /// Print what would be done, and do nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Continue after an operation that fails or has a different outcome.
    #[arg(short, long)]
    pub keep_going: bool,
    /// Leave out the operation at which the last run stopped.
    #[arg(long)]
    pub skip: bool,
    /// Apply the operations even to a directory where nothing is mounted, such as a copy of what is
    /// on the image.
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

    /// As SEMANTICS.md and the README promise it.
    #[test]
    fn a_daemon_that_does_not_start_again_is_waited_for_ten_minutes() {
        let Command::Run(run) = Cli::parse_from(["belay", "run", "--", "d"]).command else {
            panic!()
        };
        assert_eq!(run.retry_for, Duration::from_secs(600));
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
