//! The stores of a volume, opened: nobody else has them meanwhile, and nothing is written to those
//! that are only looked at.

use anyhow::{Context, Result, anyhow, bail};
use belay_disk::{Disk, FileDisk, OpenError, Shadow};
use belay_logical::Logical;
use belay_registry::{Definition, Registry, Store, Uuid, VolumeName};
use belay_store::root::{self, Checkpoint};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Fewer blocks are no store.
const SMALLEST: u64 = 256;

/// A disk of a volume that is looked at.
pub type Looked = Shadow<FileDisk>;

/// A volume by its name.
#[derive(Debug)]
pub struct Named {
    /// What it is called.
    pub name: VolumeName,
    /// Which stores it has.
    pub definition: Definition,
    /// Where that is written down.
    path: PathBuf,
}

impl Named {
    /// The volume with that name.
    pub fn find(name: &VolumeName) -> Result<Self> {
        let (definition, path) = Registry::of_user()?.find(name)?;
        Ok(Self { name: name.clone(), definition, path })
    }

    /// Opens a disk of it, whatever is on that.
    pub fn disk(&self, store: &Store) -> Result<Looked> {
        Ok(Shadow::new(self.opened(store, FileDisk::open_read_only(&store.path))?))
    }

    /// Opens its store on a disk, to be changed.
    pub fn disk_to_change(&self, store: &Store) -> Result<FileDisk> {
        self.disk_and_checkpoints(store).map(|(disk, ..)| disk)
    }

    /// All stores, each with its disk and the last checkpoint that all of them have: at that the
    /// volume is opened.
    pub fn disks_and_checkpoints(&self) -> Result<Vec<(&Store, FileDisk, Checkpoint)>> {
        let mut all = Vec::new();
        for store in &self.definition.stores {
            let (disk, last, before) = self.disk_and_checkpoints(store)?;
            all.push((store, disk, last, before));
        }
        let common = all.iter().map(|(_, _, last, _)| last.epoch).min();
        let each = all.into_iter().map(|(store, disk, last, before)| {
            let is_common = |one: &Checkpoint| Some(one.epoch) == common;
            // If it has none of that epoch, opening the volume tells why.
            let one = before.filter(|before| !is_common(&last) && is_common(before));
            (store, disk, one.unwrap_or(last))
        });
        Ok(each.collect())
    }

    /// The last checkpoint, and the one before if that is still there.
    fn disk_and_checkpoints(
        &self,
        store: &Store,
    ) -> Result<(FileDisk, Checkpoint, Option<Checkpoint>)> {
        let disk = self.opened(store, FileDisk::open(&store.path))?;
        let (last, before) = self.belongs(store, &disk)?;
        Ok((disk, last, before))
    }

    fn opened(&self, store: &Store, opened: Result<FileDisk, OpenError>) -> Result<FileDisk> {
        opened.map_err(|why| match why {
            OpenError::System { why, .. } if why.kind() == ErrorKind::NotFound => anyhow!(
                "{} of the volume {} is missing; bring it back, or write into {} where it is now",
                store.path.display(),
                self.name,
                self.path.display()
            ),
            why @ OpenError::InUse(_) => {
                anyhow!(
                    "{why}; unmount the volume {} first, or wait for another command on it",
                    self.name
                )
            }
            why => anyhow!(why),
        })
    }

    /// Opens all stores, each of which must belong to the volume.
    pub fn open(&self) -> Result<Logical<Looked>> {
        let mut disks = Vec::new();
        for store in &self.definition.stores {
            let disk = self.disk(store)?;
            self.belongs(store, &disk)?;
            disks.push(disk);
        }
        Logical::open(disks).with_context(|| format!("the volume {} cannot be opened", self.name))
    }

    /// Opens all stores, to be changed.
    pub fn open_to_change(&self) -> Result<Logical<FileDisk>> {
        let stores = self.definition.stores.iter();
        let disks = stores.map(|store| self.disk_to_change(store)).collect::<Result<Vec<_>>>()?;
        let opened = Logical::open_own(self.definition.id.into_bytes(), disks);
        opened.with_context(|| format!("the volume {} cannot be opened", self.name))
    }

    /// The last checkpoint on a disk, and the one before, if what is there is a store of this
    /// volume.
    fn belongs(&self, store: &Store, disk: &impl Disk) -> Result<(Checkpoint, Option<Checkpoint>)> {
        let path = store.path.display();
        let (found, before) = checkpoints(&store.path, disk)?;
        let (volume, own) = (found.identity.volume, found.identity.store);
        let Definition { id, stores } = &self.definition;
        if volume != *id.as_bytes() {
            let other = Uuid::from_bytes(volume);
            bail!(
                "{path} is a store of another volume ({other}), and not of {} ({id}); write into {} where the right one is",
                self.name,
                self.path.display()
            );
        }
        if !stores.iter().any(|one| one.id.as_bytes() == &own) {
            let own = Uuid::from_bytes(own);
            bail!(
                "{path} is store {own} of the volume {}, which {} does not name",
                self.name,
                self.path.display()
            );
        }
        Ok((found, before))
    }

    /// The path of a store, by its place among the members of the volume.
    pub fn store_path(&self, number: usize) -> String {
        let store = self.definition.stores.get(number);
        store.map_or_else(|| format!("store {number}"), |store| store.path.display().to_string())
    }
}

/// The last checkpoint on a disk, and the one before, of whichever volume it is a store.
pub fn checkpoints(path: &Path, disk: &impl Disk) -> Result<(Checkpoint, Option<Checkpoint>)> {
    let path = path.display();
    if disk.blocks() < SMALLEST {
        bail!("{path} is too small: there is no store of a belay volume on it");
    }
    let all = root::checkpoints(disk).map_err(|why| anyhow!("{path}: {why}"))?;
    let mut all = all.into_iter();
    let Some(last) = all.next() else { bail!("{path}: it has no checkpoint") };
    Ok((last, all.next()))
}
