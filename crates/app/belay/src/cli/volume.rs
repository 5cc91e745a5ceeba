//! What can be asked of `belay volume`.

use super::volume_mount::VolumeMount;
use super::{Status, Stop};
use crate::size::parse_size;
use belay_registry::VolumeName;
use clap::{Args, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};

/// `belay volume`.
#[derive(Debug, Args)]
pub struct Volume {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands on volumes.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount a volume: each of its processes may crash, and applications notice a pause.
    #[command(
        long_about = "Mount a volume: each of its processes may crash, and applications notice a pause.\n\n\
        belay stays in the foreground and reports when the volume serves; with --background it returns at that point. Ctrl-C, \
        SIGTERM and SIGHUP unmount; a second such signal unmounts by force. At the end everything written is brought to the \
        stores.\n\n\
        What was written but not synced may be lost in a power failure, as with any file system. All operations survive up to \
        some point, at most about five seconds before the failure, and so does everything that was synced (fsync).",
        after_help = "Example: belay volume mount --background scratch /mnt/scratch"
    )]
    Mount(VolumeMount),
    /// Unmount a volume, and bring what was written to its stores.
    #[command(long_about = "Unmount a volume, and bring what was written to its stores.\n\n\
        This works like `belay stop`: a volume that is in use stays mounted, and belay names what uses it. MOUNT may also be the \
        name of a volume that is mounted only once. If the current directory has a file of that name, MOUNT means that file.")]
    Umount(Stop),
    /// Show mounted volumes and their processes.
    #[command(long_about = "Show mounted volumes and their processes.\n\n\
        This works like `belay status`, which `belay status --help` describes; `companions` are the processes of a volume other than \
        its namespace module, which is the daemon: [{role, pid, restarts, report}]. MOUNT may also be the name of a \
        volume that is mounted only once. If the current directory has a file of that name, MOUNT means that file.")]
    Status(Status),
    /// Create a volume, and give it a name.
    #[command(
        long_about = "Create a volume, and give it a name.\n\n\
        A store is an image file, which is created with the given SIZE, or an existing file or block device, which is \
        used as a whole. It needs at least 16 MiB. A store that already holds something is refused. Each file of the volume is on \
        one of its stores, so the volume needs all of them: there is no redundancy yet. If anything fails, nothing is left \
        behind.\n\n\
        A new image takes up room on its file system as it is used. If that file system fills up, nothing can be brought to the \
        store any more, and fsync fails until there is room again. With --preallocate, the image takes all its room now.\n\n\
        With --data in-place, a block of a file is overwritten in place. The file stays together on \
        the disk, but the contract is weaker: a block that is being overwritten during a power failure may be lost, and then gives an \
        I/O error. With --data out-of-place, such a block has its old content or what was written.",
        after_help = "Examples:\n  belay volume create scratch --store ~/scratch.img:8G\n  \
        belay volume create photos --store /dev/sdb --store /dev/sdc"
    )]
    Create(Create),
    /// Give a name to a volume that exists: one that was forgotten, or is another machine's.
    #[command(
        long_about = "Give a name to a volume that exists: one that was forgotten, or is another machine's.\n\n\
        The stores say which volume they belong to. All of them must be named, in any order. Nothing on them is changed.",
        after_help = "Example: belay volume import photos --store /dev/sdb --store /dev/sdc"
    )]
    Import(Import),
    /// List the volumes that have a name here.
    #[command(long_about = "List the volumes that have a name here.\n\n\
        With --json: one object {schema_version, volumes: [{name, definition, id, stores: [{path, id, bytes}], error}]}; bytes is \
        null if nothing is at that path.")]
    List(List),
    /// Read all of a volume, and report what is wrong with which file.
    #[command(long_about = "Read all of a volume, and report what is wrong with which file.\n\n\
        Each block is compared with its checksum, what is in use with what is marked as in use, and names with what they lead to. \
        Nothing is changed. The volume must not be mounted. Data left by an unclean shutdown is reported but is not damage; the next \
        mount recovers it.\n\n\
        With --json: one object {schema_version, volume, id, state (clean, damaged, unchecked), error, checkpoint, files, directories, \
        harmed, stores: [{path, id, files, data_blocks, metadata_blocks}], waiting_bytes, memory, orphans, findings: [{path, path_bytes, \
        object, store, what}], findings_unlisted, notes}.\n\n\
        Exit status: 0 if the volume is clean, 1 if something is wrong, 2 if it could not be checked.")]
    Check(Check),
    /// Decode and show any block of a volume.
    #[command(
        long_about = "Decode and show any block of a volume.\n\n\
        Without an option, shows the checkpoint of each store, or of STORE, and where things are on it. STORE is a path, or a number \
        counted from 0 in the order of `belay volume list`; with an option, the first store is the default. docs/volume-layout.md \
        describes what is shown. Nothing is changed. The volume must not be mounted.",
        after_help = "Examples:\n  belay volume dump scratch\n  belay volume dump scratch --block 1\n  \
        belay volume dump scratch --object 1"
    )]
    Dump(Dump),
    /// Give up what was synced but can no longer be read, so that the volume can be mounted.
    #[command(
        name = "cut-log",
        long_about = "Give up what was synced but can no longer be read, so that the volume can be mounted.\n\n\
        What is synced goes to the intent log of the volume's first store, and stays there until the next checkpoint, about five seconds \
        later. If the machine stops before that, the next mount reads the log. If a block of the log is then damaged, `mount` refuses, \
        because what was synced may be lost. This command ends the log before that block: what was synced before it is kept, what comes \
        after it is lost. An intact log stays as it is.\n\n\
        If something was synced after a checkpoint whose root is damaged in both of its places, `mount` refuses as well. This command \
        makes the volume continue from the checkpoint before that, and gives up what was done since.\n\n\
        If the disk may become readable again later, wait for that instead. The volume must not be mounted."
    )]
    CutLog(CutLog),
    /// Remove the name of a volume. Its data stays on its stores.
    #[command(long_about = "Remove the name of a volume. Its data stays on its stores.\n\n\
        Prints the stores, so that you can delete or reuse them. `belay volume import` brings the volume back.")]
    Forget(Forget),
}

impl Command {
    /// How many more messages are asked for.
    pub fn verbose(&self) -> u8 {
        match self {
            Self::Mount(mount) => mount.verbose,
            _ => 0,
        }
    }
}

/// `belay volume create`.
#[derive(Debug, Args)]
pub struct Create {
    /// The name of the volume: up to 64 of a-z, 0-9, `.`, `_` and `-`.
    pub name: VolumeName,
    /// An image file, which is created if a size such as 8G is given, or a block device.
    #[arg(long = "store", value_name = "PATH[:SIZE]", required = true)]
    pub stores: Vec<StoreArgument>,
    /// Where data goes when a block of a file is overwritten.
    #[arg(long, value_enum, default_value_t = Data::OutOfPlace)]
    pub data: Data,
    /// Distance in blocks between the two places of a metadata block; 0: they are the same, and no
    /// crash is survived (for comparison).
    #[arg(long, value_name = "BLOCKS", default_value = "16", value_parser = ["0", "4", "8", "16", "32"])]
    pub twin_offset: String,
    /// Allocate new images in full now, so that their file system cannot run out of space later.
    #[arg(long)]
    pub preallocate: bool,
    /// Overwrite what is on a store.
    #[arg(long)]
    pub force: bool,
}

/// Where data goes when a block of a file is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Data {
    /// To another block: nothing is ever torn.
    OutOfPlace,
    /// To the same block, which a power failure may tear.
    InPlace,
}

/// A store that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreArgument {
    /// Where it is.
    pub path: PathBuf,
    /// How large it is to be, if it is to be made.
    pub size: Option<u64>,
}

impl std::str::FromStr for StoreArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a store has a path".to_owned());
        }
        let whole = Self { path: text.into(), size: None };
        // Names of devices have colons.
        let Some((path, size)) = text.rsplit_once(':').filter(|_| !Path::new(text).exists()) else {
            return Ok(whole);
        };
        if size.is_empty() {
            return Err("no size follows the colon: write one, as in scratch.img:8G".to_owned());
        }
        match parse_size(size) {
            Ok(size) if !path.is_empty() => Ok(Self { path: path.into(), size: Some(size) }),
            Ok(_) => Err("a store has a path".to_owned()),
            Err(why) if !size.contains('/') => Err(why),
            Err(_) => Ok(whole),
        }
    }
}

/// `belay volume import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The name that the volume is to have: up to 64 of a-z, 0-9, `.`, `_` and `-`.
    pub name: VolumeName,
    /// An image file or a block device that is a store of it.
    #[arg(long = "store", value_name = "PATH", required = true)]
    pub stores: Vec<PathBuf>,
}

/// `belay volume list`.
#[derive(Debug, Args)]
pub struct List {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `belay volume check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The volume.
    pub name: VolumeName,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `belay volume dump`.
#[derive(Debug, Args)]
pub struct Dump {
    /// The volume.
    pub name: VolumeName,
    /// The store: a path, or a number counted from 0.
    pub store: Option<String>,
    #[command(flatten)]
    pub what: What,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What is to be shown.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct What {
    /// A block of the store.
    #[arg(long, value_name = "N")]
    pub block: Option<u64>,
    /// The root of the last checkpoint.
    #[arg(long)]
    pub root: bool,
    /// A physical file, by its inode number.
    #[arg(long, value_name = "N")]
    pub file: Option<u64>,
    /// An object; its store is found automatically.
    #[arg(long, value_name = "N")]
    pub object: Option<u64>,
}

/// `belay volume cut-log`.
#[derive(Debug, Args)]
pub struct CutLog {
    /// The volume.
    pub name: VolumeName,
}

/// `belay volume forget`.
#[derive(Debug, Args)]
pub struct Forget {
    /// The volume.
    pub name: VolumeName,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_path_and_a_size() {
        let store = |path: &str, size| Ok(StoreArgument { path: path.into(), size });
        for (text, parsed) in [
            ("a.img:8G", store("a.img", Some(8 << 30))),
            ("/dev/sdb", store("/dev/sdb", None)),
            ("/by-path/pci-0:1/x", store("/by-path/pci-0:1/x", None)),
            ("a:b:16M", store("a:b", Some(16 << 20))),
        ] {
            assert_eq!(text.parse::<StoreArgument>(), parsed);
        }
        for wrong in ["", ":8G", "a.img:8Q", "a.img:"] {
            assert!(wrong.parse::<StoreArgument>().is_err(), "{wrong}");
        }
    }
}
