//! What can be asked for on the command line.

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
    /// Make a checkpoint now (volumes, policy `epoch`), and return when it is safe from a power failure.
    #[command(
        long_about = "Make a checkpoint now, and return when it is safe from a power failure.\n\n\
        All that was written before is then on the stores of a volume, or, under the policy `epoch`, on the image. Other mounts have no \
        checkpoints. MOUNT may also be the name of a volume that is mounted once. If the current directory has a file of that name, \
        MOUNT means that file."
    )]
    Checkpoint(Mount),
    /// Apply what was acknowledged and could not be replayed: the op-log of a mount that became read-only.
    #[command(
        long_about = "Apply what was acknowledged and could not be replayed.\n\n\
        Under the policy `epoch`, a mount whose daemons die of replaying what was acknowledged since \
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
    Qualify(Box<crate::qualify::options::Options>),
    /// Bring a disk image to a checkpoint after a power failure.
    #[command(
        long_about = "Bring a disk image to a checkpoint after a power failure.\n\n\
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
    /// Volumes: file systems of belay's own, every process of which may crash.
    #[command(
        long_about = "Volumes: file systems of belay's own, every process of which may crash.\n\n\
        A volume consists of stores, which are image files or block devices. It has a name, under which a file in \
        /etc/belay/volumes (for root) or ~/.config/belay/volumes ($XDG_CONFIG_HOME is respected) says where its stores are. A \
        user's own names come before root's. $BELAY_VOLUMES_DIR is looked into instead of both.\n\n\
        docs/volumes.md tells more.",
        after_help = "Example:\n  belay volume create scratch --store ~/scratch.img:8G\n  belay volume mount scratch /mnt/scratch\n  belay volume umount /mnt/scratch"
    )]
    Volume(volume::Volume),
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
    /// What is started in the place of a daemon that no library can be loaded into (for belay itself).
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
    /// What it holds, for people: nothing is done with it.
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
#[derive(Clone, Debug, Args)]
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
    /// Which process; of a volume, the daemon is its namespace module.
    #[arg(long, value_enum, default_value_t = Victim::Daemon)]
    pub process: Victim,
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

/// A process of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Victim {
    /// The daemon.
    #[value(alias = "namespace")]
    Daemon,
    /// Of a volume: the process with its stores.
    Store,
    /// Of a volume: that of its cache.
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
