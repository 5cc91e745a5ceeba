//! A volume of belay's own as what loses its power: its one store is an image as any other, and a
//! name says where that is.

use anyhow::{Context, Result};
use belay_fixtures::process::{self, Process};
use belay_fixtures::{Belay, Kind, mounts};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What it is called.
pub const NAME: &str = "power";
/// Where belay looks for names.
pub const NAMES: &str = "BELAY_VOLUMES_DIR";
/// The least that a volume can have: so there are checkpoints for want of room.
const LEAST: &str = "8M";
/// What a volume has by default.
const USUAL: &str = "128M";
const LIMIT: Duration = Duration::from_secs(60);

/// A folder with the name of a volume.
#[derive(Clone, Debug)]
pub struct Volume {
    names: PathBuf,
    memory: &'static str,
}

impl Volume {
    /// The one that is named in this folder, or will be. It has as little memory as can be.
    pub fn in_folder(names: &Path) -> Self {
        Self { names: names.to_owned(), memory: LEAST }
    }

    /// With as much memory as it has by default.
    pub fn with_usual_memory(self) -> Self {
        Self { memory: USUAL, ..self }
    }

    /// The folder.
    pub fn names(&self) -> &Path {
        &self.names
    }

    fn file(&self) -> PathBuf {
        self.names.join(NAME).with_extension("toml")
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = Belay::find()?.command();
        command.arg("volume").args(words).env(NAMES, &self.names);
        Ok(command)
    }

    /// Makes a volume of that kind and size on a new image, which will be found at another place
    /// later.
    pub fn make(&self, kind: Kind, image: &Path, mib: u64, place: &Path) -> Result<()> {
        for old in [image.to_owned(), self.file()] {
            if old.exists() {
                std::fs::remove_file(&old)
                    .with_context(|| format!("removing {}", old.display()))?;
            }
        }
        let store = format!("{}:{mib}M", image.display());
        let data = if kind == Kind::VolumeInPlace { "in-place" } else { "out-of-place" };
        let words = ["create", NAME, "--data", data, "--store", &store];
        process::run_ok(self.command(&words)?, LIMIT)?;
        self.point_to(place)
    }

    /// Has the name say that the image is there.
    pub fn point_to(&self, place: &Path) -> Result<()> {
        let text = self.text()?;
        let lines = text.lines().map(|line| match line.starts_with("path = ") {
            true => format!("path = {:?}\n", place.display().to_string()),
            false => format!("{line}\n"),
        });
        std::fs::write(self.file(), lines.collect::<String>())
            .with_context(|| format!("writing {}", self.file().display()))
    }

    fn text(&self) -> Result<String> {
        let path = self.file();
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// Its memory goes, as it does with the power.
    pub fn forget_memory(&self) -> Result<()> {
        let text = self.text()?;
        let id = text.lines().find_map(|line| line.strip_prefix("id = ")).unwrap_or_default();
        let id: String = id.chars().filter(char::is_ascii_hexdigit).collect();
        let number = u128::from_str_radix(&id, 16);
        let number = number.with_context(|| format!("no id in {}", self.file().display()))?;
        let Some(place) = belay_stack::Place::find(number.to_be_bytes())? else { return Ok(()) };
        std::fs::remove_dir_all(place.path())
            .with_context(|| format!("removing {}", place.path().display()))
    }

    /// How it is mounted, with further arguments.
    pub fn mount(&self, mountpoint: &Path, state_dir: &Path, more: &[String]) -> Result<Command> {
        let mut command = self.command(&["mount", "--memory", self.memory, "--state-dir"])?;
        command.arg(state_dir).args(more).arg(NAME).arg(mountpoint);
        Ok(command)
    }

    /// Mounts it, has somebody look at it, and unmounts it. What it says goes to `log`.
    pub fn with<T>(
        &self,
        mountpoint: &Path,
        state_dir: &Path,
        log: &Path,
        look: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let mut process = Process::start(self.mount(mountpoint, state_dir, &[])?, log)?;
        let mounted = mounts::wait(mountpoint, true, LIMIT, || process.must_run())
            .and_then(|()| look(mountpoint))
            .and_then(|found| mounts::unmount_clean(mountpoint, LIMIT).map(|()| found))
            .and_then(|found| match process.wait(LIMIT)? {
                Some(status) if status.success() => Ok(found),
                other => anyhow::bail!("it ended with {other:?}"),
            });
        mounted.map_err(|why| {
            let words = process.tail();
            mounts::unmount_by_force(mountpoint);
            why.context(format!("mounting the volume again{words}"))
        })
    }

    /// Whether all is well on its store. It is not mounted.
    pub fn check(&self) -> Result<()> {
        process::run_ok(self.command(&["check", NAME])?, LIMIT).map(drop)
    }
}
