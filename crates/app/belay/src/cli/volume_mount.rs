//! What can be asked of a volume that is, or is to be, mounted.

use super::state_dir::StateDir;
use crate::size::parse_size;
use belay_registry::VolumeName;
use belay_stack::device::Forbids;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// What a mount can forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MountOption {
    /// Set-uid and set-gid programs run as whoever starts them.
    Nosuid,
    /// Device nodes cannot be opened.
    Nodev,
    /// Programs cannot be run.
    Noexec,
}

impl MountOption {
    /// What it forbids.
    pub fn forbids(self) -> Forbids {
        match self {
            Self::Nosuid => Forbids::Suid,
            Self::Nodev => Forbids::Dev,
            Self::Noexec => Forbids::Exec,
        }
    }
}

/// `belay volume mount`.
#[derive(Debug, Args)]
pub struct VolumeMount {
    #[command(flatten)]
    pub state: StateDir,
    /// How much memory the cache takes, such as 512M. It holds what was written until a checkpoint
    /// has brought that to the stores; if more is written between two checkpoints, a checkpoint is
    /// made early.
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = parse_size)]
    pub memory: u64,
    /// Restart a process of the volume, or the supervisor, if it has made no progress for longer
    /// than this, such as 30s; 0: never. Waiting for a disk is not a hang.
    #[arg(long, value_name = "DURATION", default_value = "30s",
        value_parser = humantime::parse_duration)]
    pub hang_timeout: Duration,
    /// Fail a request after the namespace module has died of it this many times in a row, unless
    /// the request was done; 0: never.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub poison_after: u32,
    /// Give up after this many crashes of the namespace module in a row without one request served;
    /// 0: never.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub max_crashes: u32,
    /// Return as soon as the volume is mounted, and hold it in the background until it is
    /// unmounted.
    #[arg(short, long)]
    pub background: bool,
    /// What is not allowed on the mount, as in mount(8). If root mounts an image that somebody else
    /// may have written, its set-uid programs and device nodes have effect, unless they are
    /// forbidden. Ordinary users' volumes are always mounted with nosuid and nodev.
    #[arg(short, long, value_name = "OPTIONS", value_enum, value_delimiter = ',')]
    pub options: Vec<MountOption>,
    /// With --background: where messages go [default: `log` in the mount's folder, which `belay
    /// volume status` names].
    #[arg(long, value_name = "FILE", requires = "background")]
    pub log_file: Option<PathBuf>,
    /// More messages; twice for even more.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// The volume.
    pub name: VolumeName,
    /// The directory to mount it on.
    pub mountpoint: PathBuf,
}
