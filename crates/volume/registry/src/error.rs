//! Why a definition cannot be had.

use crate::name::VolumeName;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a definition cannot be read or written.
#[derive(Debug, Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {what} {}: {why}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        why: io::Error,
    },
    /// No volume is called so.
    #[error(
        "there is no volume {0}: `belay volume list` shows those that there are, and `belay volume create` makes one"
    )]
    NoVolume(VolumeName),
    /// It may be in a folder that this user cannot look into.
    #[error("there is no volume {name} of this user, and {} can be read by root alone: try it as root", path.display())]
    Hidden {
        /// What was looked for.
        name: VolumeName,
        /// The folder.
        path: PathBuf,
    },
    /// A volume is called so already.
    #[error("there is a volume {name} already ({}): choose another name, or remove that one with `belay volume forget {name}`", path.display())]
    Exists {
        /// Its name.
        name: VolumeName,
        /// Its definition.
        path: PathBuf,
    },
    /// Somebody else could have written it.
    #[error("{} is not trusted: {why}; `chown` and `chmod go-w` it if it is right", path.display())]
    NotBelieved {
        /// A folder or a file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// What is in the file is no definition.
    #[error("{} is not a valid volume definition: {why}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// There is no place for definitions.
    #[error("this user has no place for the names of volumes: set HOME, or XDG_CONFIG_HOME")]
    NoPlace,
}

/// What a registry answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;
