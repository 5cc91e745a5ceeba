//! The policy `buffer`: no image, so nothing is to be committed; what the daemon holds is stored by its own end, or file by
//! file (docs/buffer.md).

use super::Supervisor;
use crate::process::Exit;
use belay_image::overlay::{Capacity, Overlay};
use belay_recorder::control::{ending, flags, options};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What tells a file from another, and from itself as it was before it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    /// Of the file at `path`; `None` if there is none.
    fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

impl Supervisor {
    /// Whether the policy is `buffer`.
    pub(super) fn buffers(&self) -> bool {
        self.config.option_bits() & options::BUFFER != 0
    }

    /// Whether the daemon stores the content of files one by one, and all else at once.
    pub(super) fn buffers_files(&self) -> bool {
        self.config.option_bits() & options::BUFFER_FILES != 0
    }

    fn nothing_written(&self) -> Overlay<'_, std::sync::Arc<belay_sys::Mapping>> {
        Overlay::new(&self.memory, self.layout.epochs, Capacity::MOUNT)
    }

    /// Epochs begin before the first daemon.
    pub(super) fn begin_buffer(&self) {
        let overlay = self.nothing_written();
        let begun = overlay.is_begun();
        if let Err(why) =
            begun.and_then(|begun| if begun { Ok(()) } else { overlay.discard_current(0) })
        {
            tracing::error!("{why}");
        }
    }

    /// A generation is about to be started: what its store is like.
    pub(super) fn mark_stores(&mut self) {
        self.book.stores = self.config.stores.iter().map(|path| Mark::of(path.as_path())).collect();
    }

    /// Whether the daemon has stored something since its start.
    fn has_stored(&self) -> bool {
        let now = self.config.stores.iter().map(|path| Mark::of(path.as_path()));
        !self.book.stores.is_empty() && now.ne(self.book.stores.iter().copied())
    }

    /// The daemon has ended with `exit`, after it was told to, or by its own wish. Whether what it held is stored, so that it
    /// must not be done a second time.
    pub(super) fn ended_and_stored(&mut self, exit: Exit) -> bool {
        if !self.buffers() || self.buffers_files() {
            return false;
        }
        let told = self.control().retiring() == Some(self.book.generation);
        // It hears of the end of its mount by a signal as well, and then asks to unmount, or is told by the kernel.
        let ends = told
            || exit == Exit::Code(0)
            || self.control().ending(self.book.generation) & ending::UNMOUNTS != 0
            || self.control().has(flags::DISCONNECTED);
        let stored = ends && (told && exit == Exit::Code(0) || self.has_stored());
        if stored && exit != Exit::Code(0) {
            tracing::warn!(
                "the daemon {} when it had stored what it held: that is not done again",
                exit.show()
            );
        }
        stored && self.drop_buffered()
    }

    /// What was acknowledged is stored: a new epoch begins, which drops the op-log.
    fn drop_buffered(&self) -> bool {
        let overlay = self.nothing_written();
        match overlay.seal() {
            Ok(Some(ended)) => overlay.set_committed(ended).is_ok(),
            Ok(None) => false,
            Err(why) => {
                tracing::error!("{why}");
                false
            }
        }
    }
}
