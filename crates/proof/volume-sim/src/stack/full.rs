//! A volume that is full.

use super::{Failure, Lives, Stack};
use crate::disk::SimDisk;
use belay_cache::Error;
use belay_object::{Class, ObjectId, Operation, PAGE, Room};
use rand::Rng;

/// Objects that the random operations do not use: one that fills the volume, and those that take
/// room from the start.
const FILLER: ObjectId = ObjectId(77);
const BALLAST: u64 = 100;

impl Stack {
    /// A transaction found no room. Nothing may be left that could make some, and what takes away
    /// finds it.
    pub(super) fn refused<'d>(
        &mut self,
        disks: &'d [SimDisk],
        lives: &mut Lives<'d>,
    ) -> Result<(), String> {
        self.outcome.refusals += 1;
        let pending = lives.module.0.pending();
        if pending > 0 {
            return Err(format!("it is said to be full, with {pending} transactions in the log"));
        }
        let objects: Vec<ObjectId> = self.now.keys().copied().collect();
        // Some of them, so that it becomes full again soon.
        for object in objects {
            if self.random.random_range(0..3) == 0 {
                self.remove(disks, lives, object)?;
            }
        }
        Ok(())
    }

    /// Removes an object, for which there must be room.
    fn remove<'d>(
        &mut self,
        disks: &'d [SimDisk],
        lives: &mut Lives<'d>,
        object: ObjectId,
    ) -> Result<(), String> {
        loop {
            match self.publish(lives, &Operation::Delete { object }, true) {
                Ok(()) => break,
                Err(Error::Full) => self.checkpoint(disks, lives)?,
                Err(why) => return Err(format!("to remove {object}: {why}")),
            }
        }
        let mut effect = self.now.clone();
        effect.remove(&object);
        self.published(effect);
        Ok(())
    }

    /// Publishes one operation.
    fn publish(
        &mut self,
        lives: &mut Lives<'_>,
        operation: &Operation<'_>,
        takes_away: bool,
    ) -> Result<(), Failure> {
        self.unique += 1;
        let module = &mut lives.module.0;
        let mut draft = module.draft();
        if takes_away {
            draft.takes_away();
        }
        module.add(&mut draft, operation);
        module.commit(draft, self.unique, b"").map(|_| ())
    }

    /// Fills the volume with small files, and removes some of them here and there, until so many
    /// blocks are free for sure.
    ///
    /// # Errors
    /// What is wrong.
    pub fn fill_but(&mut self, blocks: u64) -> Result<(), String> {
        let disks = std::mem::take(&mut self.disks);
        let done = self.fill_but_on(&disks, blocks);
        self.disks = disks;
        done
    }

    fn fill_but_on(&mut self, disks: &[SimDisk], blocks: u64) -> Result<(), String> {
        let mut lives = self.begin(disks)?;
        let mut objects = Vec::new();
        while self.make(&mut lives, ObjectId(BALLAST + objects.len() as u64))? {
            let object = ObjectId(BALLAST + objects.len() as u64);
            objects.push(object);
            for page in 0..self.random.random_range(0..4) {
                self.append(&mut lives, object, page)?;
            }
        }
        loop {
            self.settle(&mut lives)?;
            let room = lives.lower.room().map_err(|why| why.to_string())?;
            if objects.is_empty() || sure(&room) >= blocks {
                break;
            }
            let object = objects.swap_remove(self.random.random_range(0..objects.len()));
            self.remove_quietly(&mut lives, object)?;
        }
        self.ballast = objects;
        Ok(())
    }

    fn make(&mut self, lives: &mut Lives<'_>, object: ObjectId) -> Result<bool, String> {
        let create = Operation::Create { object, class: Class::Data, attributes: b"" };
        self.publish_at_last(lives, &create, false)
    }

    /// Removes an object, for which there must be room. Nobody dies.
    fn remove_quietly(&mut self, lives: &mut Lives<'_>, object: ObjectId) -> Result<(), String> {
        match self.publish_at_last(lives, &Operation::Delete { object }, true)? {
            true => Ok(()),
            false => Err(format!("there is no room to remove {object}")),
        }
    }

    fn publish_at_last(
        &mut self,
        lives: &mut Lives<'_>,
        operation: &Operation<'_>,
        takes_away: bool,
    ) -> Result<bool, String> {
        loop {
            match self.publish(lives, operation, takes_away) {
                Ok(()) => return Ok(true),
                Err(Error::Full) => self.settle(lives)?,
                Err(Error::NoSpace) => return Ok(false),
                Err(why) => return Err(why.to_string()),
            }
        }
    }

    /// Removes all, fills the volume with one file, and removes that; gives how much room there was
    /// on a store before it, how many pages it got, and how much room there is in the end.
    ///
    /// # Errors
    /// What is wrong.
    pub fn empty_and_fill(&mut self) -> Result<(u64, u64, u64), String> {
        let disks = std::mem::take(&mut self.disks);
        let done = self.empty_and_fill_on(&disks);
        self.disks = disks;
        done
    }

    fn empty_and_fill_on(&mut self, disks: &[SimDisk]) -> Result<(u64, u64, u64), String> {
        let say = |why: belay_logical::Error| why.to_string();
        let mut lives = self.begin(disks)?;
        let objects: Vec<ObjectId> = self.now.keys().copied().collect();
        for object in objects {
            self.remove_quietly(&mut lives, object)?;
        }
        self.now.clear();
        for object in std::mem::take(&mut self.ballast) {
            self.remove_quietly(&mut lives, object)?;
        }
        self.settle(&mut lives)?;
        let before = sure(&lives.lower.room().map_err(say)?);
        self.make(&mut lives, FILLER)?;
        let mut page = 0;
        while self.append(&mut lives, FILLER, page)? {
            page += 1;
        }
        self.remove_quietly(&mut lives, FILLER)?;
        self.settle(&mut lives)?;
        Ok((before, page, sure(&lives.lower.room().map_err(say)?)))
    }

    /// Has all that is published in a checkpoint.
    fn settle(&mut self, lives: &mut Lives<'_>) -> Result<(), String> {
        let taken = lives.cache.0.checkpoint(&mut lives.lower);
        taken.map_err(|why| why.to_string())?;
        let epoch = lives.lower.epoch() - 1;
        self.checkpoints.insert(epoch, self.now.clone());
        Ok(())
    }

    /// Writes one page more; false if there is no room.
    fn append(
        &mut self,
        lives: &mut Lives<'_>,
        object: ObjectId,
        page: u64,
    ) -> Result<bool, String> {
        loop {
            self.unique += 1;
            let module = &mut lives.module.0;
            let known = module.attributes(&mut lives.lower, object);
            let known = known.map_err(|why: Failure| why.to_string())?.ok_or("it is gone")?;
            let mut draft = module.draft();
            let (class, size) = (known.class, known.size);
            draft.tell(object, belay_cache::Known { class, size, is_whole: false });
            let written =
                module.write::<belay_logical::Error>(&mut draft, object, page, &[[7; PAGE]]);
            let size = (page + 1) * PAGE as u64;
            module.add(&mut draft, &Operation::SetSize { object, size });
            let done = match written {
                Ok(()) => {
                    module.commit::<belay_logical::Error>(draft, self.unique, b"").map(|_| ())
                }
                Err(why) => {
                    module.drop_draft(draft);
                    Err(why)
                }
            };
            match done {
                Ok(()) => return Ok(true),
                Err(Error::Full) => self.settle(lives)?,
                Err(Error::NoSpace) => return Ok(false),
                Err(why) => return Err(why.to_string()),
            }
        }
    }
}

/// What can be written for sure to whichever store, but for what files take besides their pages.
fn sure(room: &Room) -> u64 {
    room.credit.blocks.saturating_sub(room.reserve())
}
