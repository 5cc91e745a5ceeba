//! How a volume is made, and opened at the newest checkpoint that all stores have.

use crate::label::Label;
use belay_disk::{BLOCK, Disk, ZEROS};
use belay_object::{Credit, ObjectId, Room};
use belay_store::root::{self, Checkpoint};
use belay_store::{Class, FileId, Identity, Parameters, Store};
use std::io;
use thiserror::Error;

/// Why the logical layer cannot do what it was asked for.
#[derive(Debug, Error)]
pub enum Error {
    /// A store cannot.
    #[error("store {store}: {why}")]
    Store {
        /// Which one, in the order of the volume's members.
        store: usize,
        /// Why not.
        why: belay_store::Error,
    },
    /// There is no such object.
    #[error("there is no {0}")]
    NoObject(ObjectId),
    /// There is one already.
    #[error("there is {0} already")]
    Exists(ObjectId),
    /// The block of the mapping that had it was damaged, and was replaced since.
    #[error("where {0} was is lost: the mapping was damaged")]
    Lost(ObjectId),
    /// More than an object can have, or than there can be.
    #[error("an object cannot be that large")]
    TooLarge,
    /// No room is left.
    #[error("no room is left on the volume")]
    NoSpace,
    /// The stores are none of one volume, or not all of it.
    #[error("{0}")]
    NoVolume(String),
    /// What the layer keeps makes no sense.
    #[error("the mapping is wrong: {0}")]
    Damaged(&'static str),
}

impl Error {
    /// Whether it is of something that cannot be had, while all else is as good as before.
    pub(crate) fn is_unreadable(&self) -> bool {
        match self {
            Self::Store { why, .. } => why.is_unreadable(),
            Self::Lost(_) => true,
            _ => false,
        }
    }

    /// Whether a disk could not read something, and may be able to later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Store { why, .. } if why.may_pass())
    }
}

/// What the logical layer answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The logical layer of a volume that is open.
#[derive(Debug)]
pub struct Logical<D> {
    pub(crate) stores: Vec<Store<D>>,
    /// The file with the mapping, on each store.
    pub(crate) mappings: Vec<FileId>,
    /// How many stores were opened at a checkpoint before their last one.
    penultimate: usize,
    /// Of which branch the next checkpoint is, if not of that of the last one.
    branch: Option<u64>,
}

impl<D: Disk> Logical<D> {
    /// Makes a volume of these disks, each with the name of its store, and its first checkpoint.
    ///
    /// # Errors
    /// If a disk is too small, or fails.
    pub fn format(
        volume: [u8; 16],
        disks: Vec<([u8; 16], D)>,
        parameters: Parameters,
    ) -> Result<Self> {
        let members: Vec<[u8; 16]> = disks.iter().map(|(name, _)| *name).collect();
        let (mut stores, mut mappings) = (Vec::new(), Vec::new());
        for (number, (store, disk)) in disks.into_iter().enumerate() {
            let identity = Identity { volume, store, members: members.clone() };
            let made = Store::format(disk, &identity, parameters).and_then(|mut made| {
                let mapping = made.create(0, Class::Protected, b"")?;
                // Its first page is there from the start: what later ones take is known by that.
                made.write(mapping, 0, &ZEROS)?;
                made.set_size(mapping, BLOCK as u64)?;
                made.set_label(Label::new(mapping).to_bytes())?;
                Ok((made, mapping))
            });
            let (made, mapping) = made.map_err(|why| Error::Store { store: number, why })?;
            stores.push(made);
            mappings.push(mapping);
        }
        let mut this = Self { stores, mappings, penultimate: 0, branch: None };
        this.checkpoint()?;
        Ok(this)
    }

    /// Opens a volume at the newest checkpoint that all of its stores have. The disks may come in
    /// any order.
    ///
    /// # Errors
    /// If they are not those of one volume, all of it; if a disk fails.
    pub fn open(disks: Vec<D>) -> Result<Self> {
        Self::open_if(disks, |_| true)
    }

    /// The same for this volume alone: nothing is written to another one's disks.
    ///
    /// # Errors
    /// As for [`Logical::open`]; if it is another volume.
    pub fn open_own(volume: [u8; 16], disks: Vec<D>) -> Result<Self> {
        Self::open_if(disks, |found| found == volume)
    }

    fn open_if(disks: Vec<D>, is_own: impl Fn([u8; 16]) -> bool) -> Result<Self> {
        let mut found: Vec<(D, Vec<Checkpoint>)> = Vec::new();
        for (store, disk) in disks.into_iter().enumerate() {
            let checkpoints =
                root::checkpoints(&disk).map_err(|why| Error::Store { store, why })?;
            found.push((disk, checkpoints));
        }
        let members = same_volume(&found)?;
        let volume = found.first().and_then(|(_, checkpoints)| checkpoints.first());
        if !volume.is_some_and(|one| is_own(one.identity.volume)) {
            return Err(Error::NoVolume("its stores are another volume's".into()));
        }
        let place = |checkpoints: &[Checkpoint]| {
            let name = checkpoints.first().map(|one| one.identity.store);
            members.iter().position(|member| Some(*member) == name)
        };
        found.sort_by_key(|(_, checkpoints)| place(checkpoints));
        let has = |epoch| move |one: &&Checkpoint| one.epoch == epoch;
        let newest = found.first().and_then(|(_, checkpoints)| {
            let epochs = checkpoints.iter().map(|one| one.epoch);
            epochs
                .filter(|epoch| {
                    found.iter().all(|(_, all)| all.iter().any(|one| one.epoch == *epoch))
                })
                .max()
        });
        let newest = newest.ok_or_else(|| {
            Error::NoVolume(
                "its stores have no checkpoint in common: one of them is an old copy".into(),
            )
        })?;
        let has_newer = |(_, all): &&(D, Vec<Checkpoint>)| all.iter().any(|one| one.epoch > newest);
        let penultimate = found.iter().filter(has_newer).count();
        let common = found.iter().filter_map(|(_, all)| all.iter().find(has(newest)));
        // Before anything is written: to open a store is to drop what came later.
        let labels = common.map(|one| Label::read(&one.label())).collect::<Result<Vec<_>>>()?;
        if labels.iter().any(|one| labels.first().is_some_and(|first| !one.is_with(first))) {
            return Err(Error::NoVolume(
                "its stores have gone different ways: one of them belongs to a copy of the volume that was used by itself"
                    .into(),
            ));
        }
        let mut stores = Vec::new();
        for (store, (disk, checkpoints)) in found.into_iter().enumerate() {
            let Some(checkpoint) = checkpoints.iter().find(has(newest)) else { continue };
            let opened = Store::open(disk, checkpoint);
            stores.push(opened.map_err(|why| Error::Store { store, why })?);
        }
        let mappings = labels.iter().map(Label::mapping).collect();
        Ok(Self { stores, mappings, penultimate, branch: None })
    }

    /// Whoever opens a volume to change it begins a branch of its history, which has this number:
    /// one that no other opening has. Of two checkpoints with one epoch, each on another store, it
    /// is known by that whether they are of one volume, or of two that were copies of each other.
    pub fn begin_branch(&mut self, number: u64) {
        self.branch = Some(number);
    }

    /// How many of the stores were opened at their penultimate checkpoint, as another one had not
    /// taken the last yet.
    pub fn penultimate(&self) -> usize {
        self.penultimate
    }

    /// Whether a store cannot tell yet what was overwritten before it was opened. Nothing can be
    /// changed then; it looks again when it is opened again.
    pub fn is_unresolved(&self) -> bool {
        self.resolved().is_err()
    }

    /// An error of a store that is not, for whoever would change something: also on another store,
    /// as all of it is opened again.
    pub(crate) fn resolved(&self) -> Result<()> {
        let mut stores = self.stores.iter().enumerate();
        stores
            .try_for_each(|(store, one)| one.resolved().map_err(|why| Error::Store { store, why }))
    }

    /// The epoch that is under way: that of the next checkpoint.
    pub fn epoch(&self) -> u64 {
        self.stores.first().map_or(0, Store::epoch)
    }

    /// Has all stores take a checkpoint; gives its epoch. Nothing else may be done meanwhile, nor
    /// after an error.
    ///
    /// # Errors
    /// If a disk fails. The volume has this checkpoint then, or the one before.
    pub fn checkpoint(&mut self) -> Result<u64> {
        self.begin_checkpoint()?;
        self.each(Store::flush)?;
        self.seal_checkpoint()?;
        self.each(Store::flush)?;
        self.end_checkpoint()
    }

    /// The first step of a checkpoint, for whoever reads while the disks are flushed
    /// ([`Store::begin_checkpoint`]). A flush of all disks comes next, of which the volume is told
    /// ([`Logical::flushed`]).
    ///
    /// # Errors
    /// As for [`Logical::checkpoint`].
    pub fn begin_checkpoint(&mut self) -> Result<()> {
        if let Some(branch) = self.branch.take() {
            self.relabel(|label| label.branch = branch.into())?;
        }
        self.each(Store::begin_checkpoint).map(|_| ())
    }

    /// The second step, when all disks were flushed. A flush of all of them comes next.
    ///
    /// # Errors
    /// As for [`Logical::checkpoint`].
    pub fn seal_checkpoint(&mut self) -> Result<()> {
        self.each(Store::seal_checkpoint).map(|_| ())
    }

    /// The last step, when all disks were flushed again. Gives the epoch that has ended.
    ///
    /// # Errors
    /// As for [`Logical::checkpoint`].
    pub fn end_checkpoint(&mut self) -> Result<u64> {
        self.each(Store::end_checkpoint).map(Option::unwrap_or_default)
    }

    /// How a flush of each of the disks has ended.
    ///
    /// # Errors
    /// As for [`Logical::checkpoint`].
    pub fn flushed(&mut self, done: Vec<io::Result<()>>) -> Result<()> {
        let mut done = done.into_iter();
        self.each(|store| store.flushed(done.next().unwrap_or(Ok(())))).map(|_| ())
    }

    /// The disks, in the order of the stores.
    pub fn disks(&self) -> impl Iterator<Item = &D> {
        self.stores.iter().map(Store::disk)
    }

    /// Has each of the stores do something; gives what the last one gives.
    fn each<T>(
        &mut self,
        mut act: impl FnMut(&mut Store<D>) -> belay_store::Result<T>,
    ) -> Result<Option<T>> {
        let mut last = None;
        for (number, store) in self.stores.iter_mut().enumerate() {
            last = Some(act(store).map_err(|why| Error::Store { store: number, why })?);
        }
        Ok(last)
    }

    fn label(&self, store: usize) -> Result<Label> {
        let one = self.stores.get(store).ok_or(Error::Damaged("there is no store"))?;
        let label = one.label().map_err(|why| Error::Store { store, why })?;
        Label::read(&label)
    }

    /// Up to which transaction the last checkpoint reaches.
    pub fn upto(&self) -> u64 {
        self.label(0).map_or(0, |label| label.upto.get())
    }

    /// Up to which transaction the next one will.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn set_upto(&mut self, upto: u64) -> Result<()> {
        self.relabel(|label| label.upto = upto.into())
    }

    fn relabel(&mut self, change: impl Fn(&mut Label)) -> Result<()> {
        self.resolved()?;
        for store in 0..self.stores.len() {
            let mut label = self.label(store)?;
            change(&mut label);
            let set = self.store(store)?.set_label(label.to_bytes());
            set.map_err(|why| Error::Store { store, why })?;
        }
        Ok(())
    }

    /// What was appended to the intent log since the last checkpoint.
    ///
    /// # Errors
    /// Those of the store.
    pub fn intents(&self) -> Result<Vec<Vec<u8>>> {
        let store = self.stores.first().ok_or(Error::Damaged("there is no store"))?;
        store.intents().map_err(|why| Error::Store { store: 0, why })
    }

    /// How much room all stores have together, and what can be taken on each of them: which one an
    /// object is on, and the next one will be, is not asked.
    ///
    /// # Errors
    /// None that stores without mistakes give.
    pub fn room(&self) -> Result<Room> {
        let mut all = Room { least: u64::MAX, ..Room::default() };
        for (store, one) in self.stores.iter().enumerate() {
            let from = |why| Error::Store { store, why };
            let free = one.free_blocks().map_err(from)?;
            all.capacity += one.capacity();
            all.free += free;
            all.least = all.least.min(free);
            all.stores += 1;
            let (blocks, pairs) = one.credit().map_err(from)?;
            let credit = Credit { blocks, pairs };
            all.credit = if store == 0 { credit } else { all.credit.least(credit) };
        }
        Ok(all)
    }

    /// The stores, for a check.
    pub fn stores(&mut self) -> impl Iterator<Item = &mut Store<D>> {
        self.stores.iter_mut()
    }

    pub(crate) fn store(&mut self, store: usize) -> Result<&mut Store<D>> {
        self.stores.get_mut(store).ok_or(Error::Damaged("it names a store that there is not"))
    }
}

/// The members of the volume that all of these belong to.
fn same_volume<D>(found: &[(D, Vec<Checkpoint>)]) -> Result<Vec<[u8; 16]>> {
    let identities: Vec<&Identity> =
        found.iter().filter_map(|(_, checkpoints)| Some(&checkpoints.first()?.identity)).collect();
    let bad = |why: &str| Err(Error::NoVolume(why.to_owned()));
    let Some(first) = identities.first() else { return bad("it has no store") };
    for (number, one) in identities.iter().enumerate() {
        if one.volume != first.volume || one.members != first.members {
            return bad("its stores belong to different volumes");
        }
        if !first.members.contains(&one.store) {
            return bad("one of its stores is none of its own");
        }
        if identities.iter().take(number).any(|other| other.store == one.store) {
            return bad("two of its stores are one, and a copy of it");
        }
    }
    match first.members.len() == identities.len() {
        true => Ok(first.members.clone()),
        false => bad("some of its stores are missing"),
    }
}
