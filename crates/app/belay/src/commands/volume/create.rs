//! `belay volume create`. Either there is a volume with a name in the end, or nothing that was not
//! there before.

use crate::cli::volume::{Create, Data, StoreArgument};
use crate::messages::Out;
use crate::signature;
use anyhow::{Context, Result, anyhow, bail};
use belay_disk::{BLOCK, Disk, FileDisk, ZEROS};
use belay_logical::Logical;
use belay_posix::{Caller, Secret};
use belay_registry::{Definition, Registry, Store, Uuid, definition};
use belay_store::{DataMode, Geometry, Parameters};
use belay_supervisor::text::bytes;
use rustix::fs::statvfs;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, Metadata};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The smallest store in bytes.
const LEAST: u64 = 16 << 20;
/// What [`MetadataExt::blocks`] counts in.
const SECTOR: u64 = 512;
/// The exit status of what a signal has ended, without its number.
const BY_SIGNAL: i32 = 128;

/// Runs it.
pub fn run(options: &Create) -> Result<i32> {
    let registry = Registry::of_user()?;
    registry.check_new(&options.name)?;
    if options.stores.len() > definition::STORES {
        bail!("a volume has at most {} stores", definition::STORES);
    }
    // What a signal would cut off it would leave behind.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("cannot have signals wait")?;
    }
    let mut made = Made::default();
    for store in &options.stores {
        made.add(store, options)?;
    }
    let definition = made.format(options)?;
    if interrupted.load(Relaxed) {
        drop(made);
        bail_quietly();
        return Ok(BY_SIGNAL + SIGINT);
    }
    let path = registry.add(&options.name, &definition)?;
    let told = tell(options, &definition, &made, &path);
    made.is_kept = true;
    told?;
    Ok(0)
}

fn bail_quietly() {
    crate::messages::say("belay: interrupted, and nothing is left behind\n");
}

fn tell(options: &Create, definition: &Definition, made: &Made, path: &Path) -> Result<()> {
    let mut out = Out;
    let name = &options.name;
    writeln!(out, "created volume {name} ({})", definition.id)?;
    for (number, disk) in made.disks.iter().enumerate() {
        let size = bytes(disk.blocks().saturating_mul(BLOCK as u64));
        let new = match made.is_new(disk.path()) {
            true if options.preallocate => ", a new image, preallocated",
            true => ", a new image, which takes up space as it is used",
            false => "",
        };
        writeln!(out, "  store {number}: {}, {size}{new}", disk.path().display())?;
    }
    writeln!(out, "  defined in {}", path.display())?;
    for (path, wanted, free) in made.short_of_room() {
        writeln!(
            out,
            "  only {} is free in {}, and the new images there may grow by {}: if it fills up, fsync fails until there is space again \
             (--preallocate allocates it now)",
            bytes(free),
            path.display(),
            bytes(wanted)
        )?;
    }
    if options.data == Data::InPlace {
        writeln!(
            out,
            "  data are written in place: a block that is being overwritten when the power fails may be lost"
        )?;
    }
    if options.twin_offset == "0" {
        writeln!(out, "  metadata are written in place: it does not survive crashes")?;
    }
    writeln!(out, "next: `belay volume mount {name} DIRECTORY`")?;
    Ok(())
}

/// What was made so far. It goes again, unless it is kept.
#[derive(Debug, Default)]
struct Made {
    disks: Vec<FileDisk>,
    /// Images that are new.
    new: Vec<PathBuf>,
    /// Roots were written.
    is_formatted: bool,
    is_kept: bool,
}

impl Made {
    fn is_new(&self, path: &Path) -> bool {
        self.new.iter().any(|new| new == path)
    }

    /// Opens a store, or makes its image.
    fn add(&mut self, store: &StoreArgument, options: &Create) -> Result<()> {
        let shown = store.path.display();
        let path = resolved(&store.path)?;
        let is_there = path.symlink_metadata().is_ok();
        if self.disks.iter().any(|disk| disk.path() == path) {
            bail!("{shown} is named twice");
        }
        let disk = match (is_there, store.size) {
            (true, Some(_)) => {
                bail!(
                    "{shown} is there already: leave out the size to use it as it is, or remove it"
                )
            }
            (false, None) => bail!(
                "there is nothing at {shown}: say how large an image is to be made, such as --store {shown}:8G"
            ),
            (false, Some(size)) => {
                enough(&store.path, size)?;
                let disk = FileDisk::create(&path, size)?;
                self.new.push(path);
                if options.preallocate {
                    disk.preallocate()?;
                }
                disk
            }
            (true, None) => {
                if let Some(device) = loop_device(&path) {
                    bail!(
                        "{shown} is what is behind {}: use that, or detach it before (losetup --detach)",
                        device.display()
                    );
                }
                let disk = FileDisk::open(&path)?;
                enough(&store.path, disk.blocks().saturating_mul(BLOCK as u64))?;
                if let Some(what) = signature::of(&disk)?.filter(|_| !options.force) {
                    let or = match what == signature::STORE {
                        true => "use it with `belay volume import`, ",
                        false => "",
                    };
                    bail!(
                        "{shown} holds {what}: {or}choose another place, or overwrite it with --force"
                    );
                }
                disk
            }
        };
        self.disks.push(disk);
        Ok(())
    }

    /// Makes a volume of the stores.
    fn format(&mut self, options: &Create) -> Result<Definition> {
        let id = Uuid::new_v4();
        let named: Vec<(Uuid, &FileDisk)> =
            self.disks.iter().map(|disk| (Uuid::new_v4(), disk)).collect();
        let store = |(id, disk): &(Uuid, &FileDisk)| Store { id: *id, path: disk.path().into() };
        let definition = Definition { id, stores: named.iter().map(store).collect() };
        // Before anything is written.
        definition.to_text().map_err(|why| anyhow!(why))?;
        self.is_formatted = true;
        let parameters = parameters(options);
        let disks = named.into_iter().map(|(id, disk)| (id.into_bytes(), disk)).collect();
        let mut logical =
            Logical::format(id.into_bytes(), disks, parameters).map_err(|why| self.failed(why))?;
        let secret = Secret::random().context("there are no random numbers for its secret")?;
        belay_posix::format(&mut logical, Caller::own(), secret).map_err(|why| self.failed(why))?;
        for path in &self.new {
            // So that it has its name after a power failure.
            let folder = path.parent().unwrap_or(Path::new("/"));
            File::open(folder)
                .and_then(|folder| folder.sync_all())
                .with_context(|| format!("cannot make {} durable", path.display()))?;
        }
        Ok(definition)
    }

    /// Folders on file systems that have less room than the new images there may still take, with
    /// both in bytes.
    fn short_of_room(&self) -> Vec<(&Path, u64, u64)> {
        let mut wanted: BTreeMap<u64, (&Path, u64)> = BTreeMap::new();
        for path in &self.new {
            let Ok(image) = path.metadata() else { continue };
            let folder = path.parent().unwrap_or(Path::new("/"));
            let more = image.len().saturating_sub(image.blocks().saturating_mul(SECTOR));
            wanted.entry(image.dev()).or_insert((folder, 0)).1 += more;
        }
        let free = |folder: &Path| {
            statvfs(folder).ok().map(|found| found.f_bavail.saturating_mul(found.f_frsize))
        };
        let all = wanted.into_values();
        all.filter_map(|(folder, wanted)| Some((folder, wanted, free(folder)?)))
            .filter(|(_, wanted, free)| free < wanted)
            .collect()
    }

    fn failed(&self, why: impl std::fmt::Display) -> anyhow::Error {
        let paths: Vec<String> =
            self.disks.iter().map(|disk| disk.path().display().to_string()).collect();
        anyhow!("cannot make a volume of {}: {why}", paths.join(" and "))
    }

    /// Has no store be on a disk any more.
    fn wipe(disk: &FileDisk) {
        let Ok(geometry) = Geometry::new(disk.blocks(), Parameters::default()) else { return };
        for place in (0..2).flat_map(|epoch| geometry.root_places(epoch)) {
            // What cannot be written was not written before either.
            let _ = disk.write(place, &ZEROS);
        }
        let _ = disk.flush();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        for path in &self.new {
            let _ = std::fs::remove_file(path);
        }
        for disk in self.disks.iter().filter(|disk| self.is_formatted && !self.is_new(disk.path()))
        {
            Self::wipe(disk);
        }
    }
}

fn parameters(options: &Create) -> Parameters {
    let defaults = Parameters::default();
    Parameters {
        twin_offset: options.twin_offset.parse().unwrap_or(defaults.twin_offset),
        data: match options.data {
            Data::OutOfPlace => DataMode::OutOfPlace,
            Data::InPlace => DataMode::InPlace,
        },
        ..defaults
    }
}

fn enough(path: &Path, size: u64) -> Result<()> {
    if size < LEAST {
        let (path, size, least) = (path.display(), bytes(size), bytes(LEAST));
        bail!("{path} is too small: it has {size}, and a store takes at least {least}");
    }
    Ok(())
}

/// The loop device that has a file behind it, if there is one: whoever uses that has no lock of the
/// file.
fn loop_device(path: &Path) -> Option<PathBuf> {
    let own = path.metadata().ok().filter(Metadata::is_file)?;
    let mut devices = fs::read_dir("/sys/block").ok()?.flatten();
    let is_it = |device: &DirEntry| {
        let behind = fs::read(device.path().join("loop/backing_file")).ok();
        let behind = behind.as_ref().map(|path| OsStr::from_bytes(path.trim_ascii_end()));
        let found = behind.and_then(|path| Path::new(path).metadata().ok());
        found.is_some_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
    };
    devices.find(is_it).map(|device| Path::new("/dev").join(device.file_name()))
}

/// The path as it is written down: absolute, and without links as far as it is there.
fn resolved(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    if path.exists() {
        return path.canonicalize().with_context(|| format!("cannot look at {shown}"));
    }
    if path.symlink_metadata().is_ok() {
        bail!("{shown} is a link that leads to nothing: remove it, or make what it leads to");
    }
    let absolute = std::path::absolute(path).with_context(|| format!("{shown} is no path"))?;
    let (folder, name) = absolute
        .parent()
        .zip(absolute.file_name())
        .with_context(|| format!("{shown} is no path of a file"))?;
    let folder = folder.canonicalize().with_context(|| {
        format!("cannot make {shown}: {} is not there; make the folder first", folder.display())
    })?;
    Ok(folder.join(name))
}
