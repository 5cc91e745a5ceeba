//! What a daemon has behind its mount, without the daemon: for those that start it themselves.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::bed::default_workdir;
use crate::command::{Parts, daemon};
use crate::image;
use crate::kind::Kind;
use crate::sshd::Sshd;
use crate::zoo::Place;

/// MiB of an image: small, as whoever works with a scene makes copies of it.
const IMAGE: u64 = 32;

/// A daemon's places, with all that it needs behind its mount; not started. They go with this.
#[derive(Debug)]
pub struct Scene {
    kind: Kind,
    sshd: Option<Sshd>,
    place: Option<Place>,
    /// Last, so that it is removed when nothing uses it any more.
    dir: tempfile::TempDir,
}

impl Scene {
    /// Prepares what is behind the mount, and starts the server that it needs.
    ///
    /// # Errors
    /// If something is not installed, or cannot be prepared.
    pub fn prepare(kind: Kind) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("belay-scene-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(default_workdir())
            .context("making a directory")?;
        let mut scene = Self { kind, sshd: None, place: None, dir };
        let (mountpoint, backing) = (scene.mountpoint(), scene.backing());
        fs::create_dir(&mountpoint).context("making a directory")?;
        if kind.has_image() {
            image::make(kind, &backing, IMAGE)?;
        } else {
            fs::create_dir(&backing).context("making a directory")?;
        }
        if let Kind::Zoo(zoo) = kind {
            scene.place = Some(Place::prepare(zoo, scene.dir.path(), &backing, &mountpoint)?);
        }
        if kind == Kind::Sshfs {
            let folder = scene.dir.path().join("sshd");
            fs::create_dir(&folder).context("making a directory")?;
            scene.sshd = Some(Sshd::start(&folder)?);
        }
        Ok(scene)
    }

    /// Where the daemon is to be mounted.
    #[must_use]
    pub fn mountpoint(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// The directory or image behind the mount.
    #[must_use]
    pub fn backing(&self) -> PathBuf {
        self.dir.path().join("back")
    }

    /// The daemon's command line, program first.
    ///
    /// # Errors
    /// For a plain directory; if the program is not installed.
    pub fn command(&self) -> Result<Vec<OsString>> {
        daemon(&Parts {
            kind: self.kind,
            backing: &self.backing(),
            mountpoint: &self.mountpoint(),
            sshd: self.sshd.as_ref(),
            place: self.place.as_ref(),
            extra: &[],
            repeatable: true,
        })
    }

    /// The daemon's environment, beyond what it inherits.
    pub fn environment(&self) -> impl Iterator<Item = (&String, String)> {
        self.place.iter().flat_map(Place::environment)
    }

    /// Checks what is behind the mount when the daemon has ended.
    ///
    /// # Errors
    /// If it is not sound.
    pub fn check(&self) -> Result<()> {
        match &self.place {
            Some(place) => place.check(),
            None => image::check(self.kind, &self.backing()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_have_code_of_their_own_can_be_prepared() {
        for kind in Kind::all().filter(|kind| *kind != Kind::Dir) {
            let scene = Scene::prepare(kind).unwrap();
            let words = scene.command().unwrap();
            assert!(words.iter().any(|word| **word == *scene.mountpoint()), "{kind}: {words:?}");
            assert_eq!(scene.backing().is_file(), kind.has_image(), "{kind}");
            scene.check().unwrap();
        }
    }
}
