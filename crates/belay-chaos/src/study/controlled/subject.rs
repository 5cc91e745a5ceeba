//! Beds as subjects of the study.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use belay_study::{Look, Snapshot, Source, Subject, User};
use belay_testbed::process::wait_for_exit;
use belay_testbed::{Bed, BedOptions, Kind, mounts};

use super::image;
use super::model::Column;

/// Beds of one kind, run in one way.
#[derive(Debug)]
pub struct Beds {
    pub kind: Kind,
    pub column: Column,
    pub workdir: Option<PathBuf>,
    /// How long an unmount may take.
    pub limit: Duration,
}

impl Source for Beds {
    type Subject = Mounted;

    fn start(&mut self) -> Result<Mounted> {
        let options = BedOptions {
            workdir: self.workdir.clone(),
            repeatable: true,
            // Small, as it is made anew for each experiment.
            image_mib: 24,
            ..BedOptions::default()
        };
        let bed = Bed::start(self.kind, &self.column.mode(), &options)?;
        Ok(Mounted { bed, limit: self.limit })
    }

    fn stop(&mut self, subject: Mounted) -> Result<()> {
        subject.bed.stop()
    }

    /// The image must be looked at without its daemon.
    fn is_reusable(&self) -> bool {
        self.kind.backed_by_directory()
    }

    fn is_bare(&self) -> bool {
        self.column == Column::Bare
    }
}

/// A bed that is mounted.
#[derive(Debug)]
pub struct Mounted {
    bed: Bed,
    limit: Duration,
}

impl Subject for Mounted {
    fn root(&self) -> &Path {
        self.bed.root()
    }

    fn daemon_pid(&self) -> Result<u32> {
        self.bed.daemon_pid()
    }

    /// sshfs and avfs do everything as the user that they run as, and to fusefat all files are that user's.
    fn user(&self) -> User {
        let own = matches!(self.bed.kind(), Kind::Sshfs | Kind::Avfs | Kind::Fusefat);
        if own { User::Own } else { User::ORDINARY }
    }

    fn numbers_tell_links(&self) -> bool {
        self.bed.kind().numbers_tell_links()
    }

    fn is_idle(&self) -> bool {
        !mounts::requests_waiting(self.bed.mountpoint()).is_ok_and(|n| n > 0)
    }

    fn abandon(&self) {
        mounts::unmount_by_force(self.bed.mountpoint());
    }

    /// For an image that is the end of the mount: another daemon tells what is on it, and how much is free, of which a
    /// daemon that has written to it has a view of its own.
    fn look_behind(&self, name: &str, look: Look) -> Result<Option<Snapshot>> {
        let backing = self.bed.backing();
        if self.bed.kind().backed_by_directory() {
            return Snapshot::read(&backing.join(name), look).map(Some);
        }
        // What becomes of it is seen in the image.
        let last = self.bed.belay_pid().or_else(|| self.bed.daemon_pid().ok());
        let _ = mounts::unmount_clean(self.bed.mountpoint(), self.limit);
        mounts::unmount_by_force(self.bed.mountpoint());
        if let Some(pid) = last {
            ensure!(wait_for_exit(pid, self.limit)?, "process {pid} does not end");
        }
        if let Some(complaint) = image::complaint(self.bed.kind(), backing) {
            bail!("{complaint}");
        }
        let look = Look { free: true, ..look };
        image::look_into(self.bed.kind(), backing, name, look).map(Some)
    }

    fn has_server(&self) -> bool {
        self.bed.kind() == Kind::Sshfs
    }
}
