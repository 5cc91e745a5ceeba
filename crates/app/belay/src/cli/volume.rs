//! `belay volume`.

use super::volume_mount::VolumeMount;
use super::{Status, Stop};
use clap::Subcommand;

/// What can be done with volumes.
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Make one.
    Create {
        /// Name
        name: belay_registry::VolumeName,
        /// Store
        #[arg(long)]
        store: String,
    },
    /// Mount a volume: every process of it may crash, and applications notice a pause.
    #[command(
        long_about = "Mount a volume: every process of it may crash, and applications notice a pause.\n\n\
        belay stays in the foreground and says when the volume serves; with --background it returns then. Ctrl-C, SIGTERM and \
        SIGHUP unmount; a second one does so by force. At the end all that was written is brought to the stores.\n\n\
        What was written and not synced may be lost with the power of the machine, as with any file system: all operations are \
        there up to some point, at most five seconds before, and all that was synced (fsync).",
        after_help = "Example: belay volume mount --background scratch /mnt/scratch"
    )]
    Mount(VolumeMount),
    /// Unmount a volume; what was written is brought to its stores.
    Umount(Stop),
    /// Show mounted volumes and their processes, as `belay status` does.
    Status(Status),
}
