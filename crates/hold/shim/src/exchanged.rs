//! The image under its name, where that leads to another file by now.
//!
//! A daemon opens its image by a path, and each successor does so anew. Whoever may exchange the
//! file, or a folder on the way, would have the successor serve another one, and write to it what
//! was acknowledged on the first. Under the policy `epoch` belay knows the image: from its start
//! on, the name by which the user gave it, and its path without links, mean that file, which belay
//! holds by a descriptor. It is pinned only (`O_PATH`): the daemon opens it with rights of its own.

use crate::image_box::{Identity, identity};
use rustix::fs::stat;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An image by its names.
pub(crate) struct Named {
    identity: Identity,
    /// Absolute.
    names: [PathBuf; 2],
    /// The file of the start.
    pinned: OwnedFd,
}

impl Named {
    /// The image `identity`, held by `pinned`, that has these names.
    pub(crate) fn new(identity: Identity, names: [PathBuf; 2], pinned: OwnedFd) -> Self {
        Self { identity, names, pinned }
    }

    /// The number of the descriptor that pins it.
    pub(crate) fn number(&self) -> RawFd {
        self.pinned.as_raw_fd()
    }

    /// By what to open the image, if `path`, which the daemon names from the directory `dir`, is
    /// its name and leads to another file.
    #[cold]
    pub(crate) fn instead(&self, dir: i32, path: &CStr) -> Option<CString> {
        let name = Path::new(OsStr::from_bytes(path.to_bytes()));
        if dir != libc::AT_FDCWD && !name.is_absolute() {
            return None;
        }
        let name = std::path::absolute(name).ok()?;
        if !self.names.contains(&name) {
            return None;
        }
        let same = |found| identity(&found) == Some(self.identity);
        if stat(path).is_ok_and(same) {
            return None;
        }
        let file = CString::new(format!("/proc/self/fd/{}", self.number())).ok()?;
        // Where there is no /proc the name stays what it is.
        stat(&file).is_ok_and(same).then_some(file)
    }
}
