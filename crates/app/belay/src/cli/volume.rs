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
    /// Mount a volume: every process of it may crash, and applications notice a pause.
    #[command(
        long_about = "Mount a volume: every process of it may crash, and applications notice a pause.\n\n\
        belay stays in the foreground and says when the volume serves; with --background it returns then. Ctrl-C, SIGTERM and \
        SIGHUP unmount; a second one does so by force. At the end all that was written is brought to the stores.\n\n\
        What was written and not synced may be lost with the power of the machine, as with any file system: all operations are \
        there up to some point, at most about five seconds before, and all that was synced (fsync).",
        after_help = "Example: belay volume mount --background scratch /mnt/scratch"
    )]
    Mount(VolumeMount),
    /// Unmount a volume; what was written is brought to its stores.
    #[command(long_about = "Unmount a volume; what was written is brought to its stores.\n\n\
        It is as `belay stop`: a volume that is in use stays mounted, and what uses it is named. MOUNT may also be the name \
        of a volume that is mounted once. If the current directory has a file of that name, MOUNT means that file.")]
    Umount(Stop),
    /// Show mounted volumes and their processes.
    #[command(long_about = "Show mounted volumes and their processes.\n\n\
        It is as `belay status`, which `belay status --help` describes; `companions` are the processes of a volume beside its \
        namespace module, which is the daemon: [{role, pid, restarts, report}]. MOUNT may also be the name of a \
        volume that is mounted once. If the current directory has a file of that name, MOUNT means that file.")]
    Status(Status),
    /// Make a volume, and give it a name.
    #[command(
        long_about = "Make a volume, and give it a name.\n\n\
        A store is an image file, which is made with the SIZE that is named, or a file or block device that is there, which is \
        used as a whole. It takes at least 16 MiB. What holds something already is refused. Each file of the volume is on one of \
        its stores, so that the volume needs all of them: there is no redundancy yet. If anything fails, nothing is left \
        behind.\n\n\
        A new image takes room on its file system as it is used. If that runs out, nothing can be brought to the store any more, and \
        fsync fails, until there is room again. With --preallocate the image takes all its room now.\n\n\
        With --data in-place a block of a file is overwritten where it is, as the paper on Loris has it. The file stays together on \
        the disk, but the contract is weaker: a block that is being overwritten when the power fails may be lost, and is an I/O error \
        then. With --data out-of-place it is what it was before or what was written.",
        after_help = "Examples:\n  belay volume create scratch --store ~/scratch.img:8G\n  \
        belay volume create photos --store /dev/sdb --store /dev/sdc"
    )]
    Create(Create),
    /// List the volumes that have a name here.
    #[command(long_about = "List the volumes that have a name here.\n\n\
        With --json: one object {schema_version, volumes: [{name, definition, id, stores: [{path, id, bytes}], error}]}; bytes is \
        null if nothing is there.")]
    List(List),
    /// Read all of a volume, and say what is wrong with which file.
    #[command(long_about = "Read all of a volume, and say what is wrong with which file.\n\n\
        Each block is compared with its checksum, what is in use with what is marked as such, and names with what they lead to. \
        Nothing is changed. The volume must not be mounted. What a volume keeps that was not unmounted is no damage: it is said, and \
        the next mount sees to it.\n\n\
        With --json: one object {schema_version, volume, id, state (clean, damaged, unchecked), error, checkpoint, files, directories, \
        harmed, stores: [{path, id, files, data_blocks, metadata_blocks}], waiting_bytes, memory, orphans, findings: [{path, path_bytes, \
        object, store, what}], findings_unlisted, notes}.\n\n\
        Exit status: 0 if it is clean, 1 if something is wrong, 2 if it could not be checked.")]
    Check(Check),
    /// Show any block of a volume, as what it is.
    #[command(
        long_about = "Show any block of a volume, as what it is.\n\n\
        Without an option, the checkpoint of each store, or of STORE, and where things are on it. STORE is a number from 0 on, in the \
        order of `belay volume list`, or a path; options show the first one without it. docs/volume-layout.md describes what is shown. Nothing is \
        changed. The volume must not be mounted.",
        after_help = "Examples:\n  belay volume dump scratch\n  belay volume dump scratch --block 1\n  \
        belay volume dump scratch --object 1"
    )]
    Dump(Dump),
    /// Give up what was synced and can no longer be read, so that the volume can be mounted.
    #[command(
        name = "cut-log",
        long_about = "Give up what was synced and can no longer be read, so that the volume can be mounted.\n\n\
        What is synced goes to the intent log of the volume's first store, and is there until the next checkpoint, about five seconds \
        later. If the machine stops before that, the next mount reads it. If a block of the log is damaged then, `mount` refuses, as what \
        was synced may be lost. This command ends the log before that block: what was synced before it is kept, what is behind it is lost. \
        A log that is whole stays as it is.\n\n\
        If something was synced after a checkpoint whose root is damaged in both of its places, `mount` refuses as well. This command has \
        the volume go on from the checkpoint before that, and give up what was done since.\n\n\
        If the disk may be readable again later, wait for that instead. The volume must not be mounted."
    )]
    CutLog(CutLog),
    /// Remove the name of a volume. Its data stay on its stores.
    #[command(long_about = "Remove the name of a volume. Its data stay on its stores.\n\n\
        The stores are said, so that they can be removed, or used for something else.")]
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
    /// What it is to be called: up to 64 of a-z, 0-9, `.`, `_` and `-`.
    pub name: VolumeName,
    /// An image file, which is made if a size such as 8G is named, or a block device.
    #[arg(long = "store", value_name = "PATH[:SIZE]", required = true)]
    pub stores: Vec<StoreArgument>,
    /// Where data go when a block of a file is overwritten.
    #[arg(long, value_enum, default_value_t = Data::OutOfPlace)]
    pub data: Data,
    /// How many blocks the two places of a block of metadata are apart; 0: they are one, and no crash is survived (for comparison).
    #[arg(long, value_name = "BLOCKS", default_value = "16", value_parser = ["0", "4", "8", "16", "32"])]
    pub twin_offset: String,
    /// Take the room of new images at once, so that it cannot run out later.
    #[arg(long)]
    pub preallocate: bool,
    /// Overwrite what is on a store.
    #[arg(long)]
    pub force: bool,
}

/// Where data go when a block of a file is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Data {
    /// To another block: nothing is ever torn.
    OutOfPlace,
    /// To the same block, which a power failure meanwhile may tear.
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
        match parse_size(size) {
            Ok(size) if !path.is_empty() => Ok(Self { path: path.into(), size: Some(size) }),
            Ok(_) => Err("a store has a path".to_owned()),
            Err(why) if !size.contains('/') => Err(why),
            Err(_) => Ok(whole),
        }
    }
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
    /// Which of its stores: a number from 0 on, or a path.
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
    /// A physical file, by the number of its inode.
    #[arg(long, value_name = "N")]
    pub file: Option<u64>,
    /// An object; STORE is found by itself.
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
