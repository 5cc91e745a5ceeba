//! What the processes of a volume are told. Belay starts them; the name is for whoever looks at
//! command lines.

use super::volume_mount::MountOption;
use clap::{Args, Parser};
use std::path::PathBuf;

/// The process with the stores.
#[derive(Debug, Args)]
pub struct StoreProcess {
    /// More messages.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Where the processes of the volume meet.
    #[arg(long)]
    pub place: PathBuf,
    /// The stores.
    #[arg(long = "store", required = true)]
    pub stores: Vec<PathBuf>,
    /// The volume.
    pub name: String,
}

/// The process of the cache.
#[derive(Debug, Args)]
pub struct CacheProcess {
    /// More messages.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Where the processes of the volume meet.
    #[arg(long)]
    pub place: PathBuf,
    /// The number of the mount.
    #[arg(long)]
    pub mount: u64,
    /// How much memory it takes, in bytes, if there is none yet.
    #[arg(long)]
    pub memory: u64,
    /// The volume.
    pub name: String,
}

/// The process of the namespace module.
#[derive(Debug, Parser)]
pub struct NamespaceProcess {
    /// Where the processes of the volume meet.
    #[arg(long)]
    pub place: PathBuf,
    /// The number of the mount.
    #[arg(long)]
    pub mount: u64,
    /// What is not allowed on it.
    #[arg(long, value_enum)]
    pub forbids: Vec<MountOption>,
    /// The volume.
    pub name: String,
    /// The mountpoint.
    pub mountpoint: PathBuf,
}
