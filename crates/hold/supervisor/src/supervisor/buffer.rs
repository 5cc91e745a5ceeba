//! The policy `buffer`: no image, so nothing is to be committed; what the daemon holds is stored by
//! its own end, or file by file (docs/buffer.md).

use super::Supervisor;
use crate::look::{Found, Links, look};
use crate::mounts;
use crate::process::Exit;
use crate::stores::{Folders, Seen};
use crate::text::OsText;
use belay_image::overlay::Overlay;
use belay_recorder::control::{Flags, Options, ending};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

impl Supervisor {
    /// Whether the policy is `buffer`.
    pub(super) fn buffers(&self) -> bool {
        self.config.options().contains(Options::BUFFER)
    }

    /// Whether the daemon stores the content of files one by one, and all else at once.
    pub(super) fn buffers_files(&self) -> bool {
        self.config.options().contains(Options::BUFFER_FILES)
    }

    fn nothing_written(&self) -> Overlay<'_, std::sync::Arc<belay_sys::Mapping>> {
        self.recorder.overlay()
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
        if !self.looks.stores.are_held() {
            self.looks.stores =
                Folders::new(self.config.stores.iter().map(|path| self.folder(path)).collect());
        }
        let stores = self.config.stores.iter().enumerate();
        self.book.content.stores =
            stores.map(|(at, path)| self.look_at(at, path.as_path())).collect();
    }

    /// The folder that `path` is in, held: the daemon may mount on it.
    fn folder(&self, path: &OsText) -> Option<OwnedFd> {
        let path = path.as_path();
        if self.is_hidden(path) {
            return None;
        }
        self.look(path.parent()?).there().map(|there| there.pinned)
    }

    /// What the store of that number is like, as far as that can be seen without asking the daemon
    /// for it.
    fn look_at(&self, number: usize, path: &Path) -> Seen {
        Seen::of(&self.look_behind(path, self.looks.stores.of(number)))
    }

    /// What is at `path`: through `folder`, which was held before, if the held mount is on the way
    /// to it by now.
    pub(super) fn look_behind(&self, path: &Path, folder: Option<BorrowedFd<'_>>) -> Found {
        if !self.is_hidden(path) {
            return self.look(path);
        }
        let (Some(folder), Some(name)) = (folder, path.file_name()) else { return Found::Unknown };
        match look(&self.helpers.scouts, Some(folder), Path::new(name), Links::Themselves) {
            // A link may lead into the mount as well.
            Found::There(there) if there.stat.is_link() => Found::Unknown,
            found => found,
        }
    }

    /// What is at `path`, unless the way to it leads through the held mount.
    pub(super) fn look(&self, path: &Path) -> Found {
        match self.is_hidden(path) {
            true => Found::Unknown,
            false => look(&self.helpers.scouts, None, path, Links::Followed),
        }
    }

    /// Whether the way to `path` leads through the held mount. Who goes it waits for the daemon,
    /// which may wait for belay.
    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        self.book.mounts.held.as_ref().is_some_and(|mount| mounts::hides(mount, path))
    }

    /// Whether the daemon has stored something since its start. Of what cannot be seen, nothing is
    /// known.
    fn has_stored(&self) -> bool {
        let mut stores = self.config.stores.iter().zip(&self.book.content.stores).enumerate();
        stores
            .any(|(at, (path, before))| self.look_at(at, path.as_path()).has_changed_since(*before))
    }

    /// The daemon has ended with `exit`, after it was told to, or by its own wish. Whether what it
    /// held is stored, so that it must not be done a second time.
    pub(super) fn ended_and_stored(&mut self, exit: Exit) -> bool {
        if !self.buffers() || self.buffers_files() {
            return false;
        }
        let told = self.control().retiring() == Some(self.book.generation);
        // It hears of the end of its mount by a signal as well, and then asks to unmount, or is
        // told by the kernel.
        let ends = told
            || exit == Exit::Code(0)
            || self.control().ending(self.book.generation) & ending::UNMOUNTS != 0
            || self.control().has(Flags::DISCONNECTED);
        let stored = ends && (told && exit == Exit::Code(0) || self.has_stored());
        if stored && exit != Exit::Code(0) {
            tracing::warn!(
                "the daemon {} when it had stored what it held: that is not replayed",
                exit.told()
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
