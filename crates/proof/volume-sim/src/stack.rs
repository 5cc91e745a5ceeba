//! Cache, logical layer and stores at work, each of which dies at any step, alone or with the others, or loses power.

mod full;
mod torn;

use crate::Random;
use crate::asked::Asked;
use crate::disk::{Power, SimDisk};
use crate::memory::SimMemory;
use crate::sabotage::Sabotage;
use belay_cache::answers::Answers;
use belay_cache::intent::replay;
use belay_cache::publisher::Draft;
use belay_cache::{Capacity, Cleaner, Error, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::{Class, ObjectId, Operation, PAGE};
use belay_store::{DataMode, Parameters, bounds};
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Objects that there can be.
const OBJECTS: u64 = 40;
/// Pages of an object that are written.
const PAGES: u64 = 30;

/// What an object must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    size: u64,
    attributes: Vec<u8>,
    pages: BTreeMap<u64, u8>,
}

type Model = BTreeMap<ObjectId, Known>;
type Lower<'d> = Logical<&'d SimDisk>;
type Failure = Error<belay_logical::Error>;

/// What came of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Transactions that were published.
    pub transactions: u64,
    /// Checkpoints that were taken.
    pub checkpoints: u64,
    /// Deaths of the namespace module in the middle of something.
    pub module_deaths: u64,
    /// Of these, those in which the transaction was published all the same.
    pub published_by_the_dead: u64,
    /// Deaths of the cache.
    pub cache_deaths: u64,
    /// Deaths of the layers below.
    pub lower_deaths: u64,
    /// Of cache or lower layers: those at the very end of a checkpoint, which is not taken again.
    pub at_the_end: u64,
    /// Power failures.
    pub power_failures: u64,
    /// Objects that were synced.
    pub syncs: u64,
    /// Of these, those that a power failure met before the next checkpoint.
    pub promises_kept: u64,
    /// Transactions for which there was no room.
    pub refusals: u64,
    /// Blocks that the stores took, at most, for what transactions had to pay for.
    pub taken: u64,
    /// What they had paid for.
    pub paid: u64,
    /// Pages that were torn.
    pub torn: u64,
    /// Pages that were read and compared.
    pub pages: u64,
}

/// A volume without its namespace.
pub struct Stack {
    disks: Vec<SimDisk>,
    power: Power,
    memory: SimMemory,
    layout: Layout,
    random: Random,
    generation: u32,
    unique: u64,
    /// What all transactions that were published come to.
    now: Model,
    /// The same for those that are, or may be, in a checkpoint.
    checkpoints: BTreeMap<u64, Model>,
    /// Objects that were synced, and not changed since: what they must be after a power failure.
    promised: BTreeMap<ObjectId, Known>,
    /// What was there at the last sync and after it: one of these is right after a power failure.
    names: Vec<Model>,
    /// Data are written in place: of pages that were overwritten since the last checkpoint, any content may be there, or none.
    in_place: bool,
    /// What pages have become since then.
    overwritten: torn::Overwritten,
    /// Objects that take room, and are not looked at.
    ballast: Vec<ObjectId>,
    sabotage: Option<Sabotage>,
    /// What came of it so far.
    pub outcome: Outcome,
}

/// The processes of a volume that live.
struct Lives<'d> {
    module: (Publisher<SimMemory>, SimMemory),
    cache: (Cleaner<SimMemory>, SimMemory),
    lower: Lower<'d>,
}

impl Stack {
    /// A new volume.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(seed: u64, stores: u8, capacity: Capacity) -> Result<Self, String> {
        Self::with(seed, stores, capacity, 6000)
    }

    /// The same with disks of so many blocks.
    ///
    /// # Errors
    /// What is wrong.
    pub fn with(seed: u64, stores: u8, capacity: Capacity, blocks: u64) -> Result<Self, String> {
        let power = Power::default();
        let disks: Vec<SimDisk> = (0..stores).map(|_| SimDisk::with(blocks, &power)).collect();
        let named = disks.iter().zip(0..).map(|(disk, number): (_, u8)| ([number + 1; 16], disk));
        let twin_offset = [16, 4, 8, 32][(seed % 4) as usize];
        let in_place = seed / 4 % 2 == 1;
        let data = if in_place { DataMode::InPlace } else { DataMode::OutOfPlace };
        let parameters = Parameters { twin_offset, data, ..Parameters::default().small() };
        let made = Logical::format([9; 16], named.collect(), parameters);
        let made = made.map_err(|why| why.to_string())?;
        let (epoch, room) = (made.epoch() - 1, made.room().map_err(|why| why.to_string())?);
        drop(made);
        let layout = Layout::new(capacity);
        let memory = SimMemory::new(layout.words);
        Shared::new(memory.another(), layout).initialize(epoch, 0, &room);
        Ok(Self {
            disks,
            power,
            memory,
            layout,
            random: Random::seed_from_u64(seed),
            generation: 0,
            unique: 0,
            now: Model::new(),
            checkpoints: BTreeMap::from([(epoch, Model::new())]),
            promised: BTreeMap::new(),
            names: Vec::new(),
            in_place,
            overwritten: torn::Overwritten::new(),
            ballast: Vec::new(),
            sabotage: None,
            outcome: Outcome::default(),
        })
    }

    /// Has namespace modules that begin from now on do something wrong.
    pub fn sabotage(&mut self, sabotage: Sabotage) {
        self.sabotage = Some(sabotage);
    }

    /// Works until so many things are done, with deaths in between.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run(&mut self, count: usize) -> Result<(), String> {
        let disks = std::mem::take(&mut self.disks);
        let done = self.run_on(&disks, count);
        self.disks = disks;
        done
    }

    /// Works for a while without coming to an end: what was published stays in the memory.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run_some(&mut self, count: usize) -> Result<(), String> {
        let disks = std::mem::take(&mut self.disks);
        let begun = self.begin(&disks);
        let done = begun
            .and_then(|mut lives| (0..count).try_for_each(|_| self.transact(&disks, &mut lives)));
        self.disks = disks;
        done
    }

    fn run_on(&mut self, disks: &[SimDisk], count: usize) -> Result<(), String> {
        let mut lives = self.begin(disks)?;
        for _ in 0..count {
            match self.random.random_range(0..100) {
                0..70 => {
                    self.transact(disks, &mut lives)?;
                    // What is kept of these must not be older than what is published next.
                    for _ in 0..self.random.random_range(0..8) {
                        self.look(&mut lives)?;
                    }
                }
                70..80 => {
                    self.checkpoint(disks, &mut lives)?;
                    for _ in 0..self.random.random_range(0..60) {
                        self.look(&mut lives)?;
                    }
                }
                80..90 => self.look(&mut lives)?,
                90..97 => self.sync(disks, &mut lives)?,
                97 => lives = self.begin(disks)?,
                98 => lives = self.lose_power(disks)?,
                _ => self.compare(&mut lives)?,
            }
        }
        self.compare(&mut lives)?;
        // All of it reaches the stores, and nothing is left in the memory.
        self.begin_cache().0.checkpoint(&mut lives.lower).map_err(|why| why.to_string())?;
        self.compare(&mut lives)?;
        let shared = Shared::new(self.memory.another(), self.layout);
        lives.module = self.begin_module(None)?;
        for (what, pool) in [("frames", shared.frames()), ("cells", shared.cells())] {
            let (free, all) = (pool.free(), pool.count());
            if free != all {
                return Err(format!("{free} of {all} {what} are free"));
            }
        }
        self.check(disks)
    }

    /// A process gone mad flips so many bits of the memory; the others go on with what they find. Whatever they say of it, none of them may
    /// panic, nor work for ever.
    ///
    /// # Errors
    /// If the volume cannot be opened, whose disks nobody has touched.
    pub fn scribble(&mut self, flips: usize) -> Result<(), String> {
        let disks = std::mem::take(&mut self.disks);
        let mut lower = open(&disks)?;
        for _ in 0..flips {
            // Most of the memory is pages: what is before them is met as often.
            let most = [8, self.layout.frames, self.layout.words][self.random.random_range(0..3)];
            let (at, bit) = (self.random.random_range(0..most), self.random.random_range(0..64));
            self.memory.flip(at, bit);
        }
        let shared = || Shared::new(self.memory.another(), self.layout);
        let attached = Publisher::attach::<belay_logical::Error>(shared(), 1 << 20);
        if let Ok(mut module) = attached {
            for object in (0..OBJECTS).map(ObjectId) {
                let _ = module.attributes(&mut lower, object);
                let _ = module.read(&mut lower, object, 0, &mut [0; PAGE]);
            }
            let mut draft = module.draft();
            let _ = module.write::<belay_logical::Error>(&mut draft, ObjectId(1), 0, &[[1; PAGE]]);
            let _ = module.commit::<belay_logical::Error>(draft, 1, b"");
        }
        let cleaner = Cleaner::new(shared());
        let _ = cleaner.sync(&mut lower, &[ObjectId(1)]);
        let _ = cleaner.checkpoint(&mut lower);
        drop(lower);
        self.disks = disks;
        Ok(())
    }

    fn check(&self, disks: &[SimDisk]) -> Result<(), String> {
        let mut lower = open(disks)?;
        for store in lower.stores() {
            let report = store.check().map_err(|why| why.to_string())?;
            if !report.findings.is_empty() {
                return Err(format!("the check finds: {:?}", report.findings));
            }
        }
        Ok(())
    }

    /// All processes begin, at whatever there is.
    fn begin<'d>(&mut self, disks: &'d [SimDisk]) -> Result<Lives<'d>, String> {
        self.power.end_at(None);
        let lower = open(disks)?;
        let module = self.begin_module(None)?;
        Ok(Lives { module, cache: self.begin_cache(), lower })
    }

    fn begin_cache(&self) -> (Cleaner<SimMemory>, SimMemory) {
        let view = self.memory.another();
        (Cleaner::new(Shared::new(view.clone(), self.layout)), view)
    }

    /// A life of the namespace module begins. If the one before died when it published request `open`, with that effect, this tells
    /// whether it was published.
    fn begin_module(
        &mut self,
        open: Option<(u64, Model)>,
    ) -> Result<(Publisher<SimMemory>, SimMemory), String> {
        self.generation += 1;
        let view = self.memory.another().sabotaged(self.sabotage, self.layout);
        let shared = Shared::new(view.clone(), self.layout);
        // Nothing, little and all of what is read from below is kept.
        let kept = [0, 1 << 20, 1 << 24][self.random.random_range(0..3)];
        let module = Publisher::attach(shared.clone(), self.generation);
        let module = module.map_err(|why: Failure| why.to_string())?.keeping(kept);
        if let Some((unique, effect)) = open
            && let Some(reply) = Answers::default().to(&shared, unique)
        {
            if reply != reply_to(unique) {
                return Err(format!("request {unique} has another reply"));
            }
            self.outcome.published_by_the_dead += 1;
            self.published(effect);
        }
        Ok((module, view))
    }

    fn lose_power<'d>(&mut self, disks: &'d [SimDisk]) -> Result<Lives<'d>, String> {
        self.outcome.power_failures += 1;
        for disk in disks {
            disk.power_failure(&mut self.random);
        }
        self.power.end_at(None);
        self.memory.clear();
        let mut lower = open(disks)?;
        let epoch = lower.epoch() - 1;
        let model = self.checkpoints.get(&epoch).cloned();
        let model = model.ok_or_else(|| format!("checkpoint {epoch} was never taken"))?;
        // A second power failure may cut that off.
        let end = self.power.steps() + self.random.random_range(0..400);
        self.power.end_at(self.random.random::<bool>().then_some(end));
        let mut replayed = replay(&mut lower);
        if replayed.is_err() && self.power.is_off() {
            for disk in disks {
                disk.power_failure(&mut self.random);
            }
            self.power.end_at(None);
            lower = open(disks)?;
            replayed = replay(&mut lower);
        }
        self.power.end_at(None);
        let next = replayed.map_err(|why| why.to_string())?;
        self.mend(&mut lower, next, &model)?;
        let room = lower.room().map_err(|why| why.to_string())?;
        let shared = Shared::new(self.memory.another(), self.layout);
        shared.initialize(lower.epoch() - 1, next, &room);
        self.now = self.recovered(&mut lower, model)?;
        self.checkpoints = BTreeMap::from([(lower.epoch() - 1, self.now.clone())]);
        self.promised.clear();
        self.names.clear();
        self.overwritten.clear();
        let module = self.begin_module(None)?;
        let mut lives = Lives { module, cache: self.begin_cache(), lower };
        self.compare(&mut lives)?;
        Ok(lives)
    }

    /// Makes a transaction of some operations, and publishes it; the module may die at any store.
    fn transact<'d>(&mut self, disks: &'d [SimDisk], lives: &mut Lives<'d>) -> Result<(), String> {
        let dies = self.random.random_range(0..6) == 0;
        if dies {
            // Most stores are those of pages.
            let most = [40, 700, 4000][self.random.random_range(0..3)];
            lives.module.1.dies_after(Some(self.random.random_range(0..most)));
        }
        self.unique += 1;
        let unique = self.unique;
        let mut effect = self.now.clone();
        let mut draft = lives.module.0.draft();
        let count = self.random.random_range(1..5);
        let mut full = false;
        for _ in 0..count {
            match self.operation(lives, &mut draft, &mut effect) {
                Ok(true) => break,
                Ok(false) => {}
                Err(Error::Full) => {
                    full = true;
                    break;
                }
                Err(_) if lives.module.1.is_dead() => break,
                Err(why) => return Err(why.to_string()),
            }
        }
        if dies && !lives.module.1.is_dead() && self.random.random() {
            // In the middle of what counts.
            lives.module.1.dies_after(Some(self.random.random_range(0..60)));
        }
        let published = match full {
            true => {
                lives.module.0.drop_draft(draft);
                Err(Error::Full)
            }
            false => {
                lives.module.0.commit::<belay_logical::Error>(draft, unique, &reply_to(unique))
            }
        };
        if lives.module.1.is_dead() {
            self.outcome.module_deaths += 1;
            let before = self.outcome.published_by_the_dead;
            lives.module = self.begin_module(Some((unique, effect)))?;
            if self.outcome.published_by_the_dead > before && self.random.random_bool(0.3) {
                // Nor is the answer lost if a checkpoint takes it out of the log before anybody asks.
                self.checkpoint(disks, lives)?;
                let now = self.now.clone();
                lives.module = self.begin_module(Some((unique, now)))?;
                if self.outcome.published_by_the_dead != before + 2 {
                    return Err(format!("request {unique} has lost its answer"));
                }
            }
            return Ok(());
        }
        lives.module.1.dies_after(None);
        match published {
            Ok(_) => {
                self.published(effect);
                self.outcome.transactions += 1;
                Ok(())
            }
            Err(Error::Full) => self.checkpoint(disks, lives),
            Err(Error::NoSpace) => self.refused(disks, lives),
            Err(why) => Err(why.to_string()),
        }
    }

    /// A transaction was published, with that effect.
    fn published(&mut self, effect: Model) {
        self.promised.retain(|object, known| effect.get(object) == Some(known));
        if self.in_place {
            self.note_overwritten(&effect);
        }
        if !self.names.is_empty() {
            self.names.push(effect.clone());
        }
        self.now = effect;
    }

    /// Adds a random operation; true if nothing may come after it.
    fn operation(
        &mut self,
        lives: &mut Lives<'_>,
        draft: &mut Draft,
        effect: &mut Model,
    ) -> Result<bool, Failure> {
        let random = &mut self.random;
        let module = &mut lives.module.0;
        let object = ObjectId(random.random_range(0..OBJECTS));
        let attributes = vec![random.random(); random.random_range(0..160)];
        let page = random.random_range(0..PAGES);
        let Some(known) = effect.get_mut(&object) else {
            let class = if random.random() { Class::Data } else { Class::Metadata };
            module.create(draft, object, class, &attributes);
            effect.insert(object, Known { attributes, ..Known::default() });
            return Ok(false);
        };
        match random.random_range(0..100) {
            0..60 => {
                let byte: u8 = random.random();
                let count = random.random_range(1..4);
                let content = vec![[byte; PAGE]; count];
                // Not all is told: what is not is taken for the worst.
                if random.random_range(0..4) > 0
                    && let Some(found) = module.attributes(&mut lives.lower, object)?
                {
                    let (class, size) = (found.class, found.size);
                    let known = belay_cache::Known { class, size, is_whole: false };
                    draft.tell(object, known);
                }
                module.write(draft, object, page, &content)?;
                known.pages.extend((page..page + count as u64).map(|page| (page, byte)));
                let end = (page + count as u64) * PAGE as u64;
                if known.size < end {
                    // Longer is not final, but it is an operation of that kind: it comes last.
                    module.add(draft, &Operation::SetSize { object, size: end });
                    known.size = end;
                    return Ok(true);
                }
                Ok(false)
            }
            60..75 => {
                let size = page * PAGE as u64;
                module.add(draft, &Operation::SetSize { object, size });
                known.size = size;
                known.pages.retain(|other, _| *other < page);
                Ok(true)
            }
            75..85 => {
                module.add(draft, &Operation::SetAttributes { object, attributes: &attributes });
                known.attributes = attributes;
                Ok(false)
            }
            85..92 => {
                module.add(draft, &Operation::Punch { object, page, count: 3 });
                known.pages.retain(|other, _| !(page..page + 3).contains(other));
                Ok(true)
            }
            _ => {
                module.add(draft, &Operation::Delete { object });
                effect.remove(&object);
                Ok(true)
            }
        }
    }

    /// Takes a checkpoint. The cache may die at any store, the layers below at any write.
    fn checkpoint<'d>(
        &mut self,
        disks: &'d [SimDisk],
        lives: &mut Lives<'d>,
    ) -> Result<(), String> {
        match self.random.random_range(0..5) {
            0 => {
                let most = [8, 60, 4000][self.random.random_range(0..3)];
                lives.cache.1.dies_after(Some(self.random.random_range(0..most)));
            }
            1 => {
                let most = [3, 20, 100][self.random.random_range(0..3)];
                let end = self.power.steps() + self.random.random_range(0..most);
                self.power.end_at(Some(end));
            }
            _ => {}
        }
        // What it will have.
        let epoch = lives.lower.epoch();
        let shared = Shared::new(self.memory.another(), self.layout);
        self.checkpoints.insert(epoch, self.now.clone());
        let by = lives.cache.1.clone();
        let mut asked = Asked::new(&mut lives.lower, by, Some((shared, bounds::SLACK)));
        let taken = lives.cache.0.checkpoint(&mut asked);
        let (took, paid) = asked.seen()?;
        (self.outcome.taken, self.outcome.paid) =
            (self.outcome.taken + took, self.outcome.paid + paid);
        if lives.cache.1.is_dead() {
            self.outcome.cache_deaths += 1;
            self.power.end_at(None);
            // The layers below live on, and may have taken it.
            self.outcome.at_the_end += u64::from(lives.lower.epoch() > epoch);
            // Whoever is in the middle of a change below has no other choice than its last checkpoint.
            if self.random.random() {
                lives.lower = open(disks)?;
            }
            self.forget_unsealed();
            lives.cache = self.begin_cache();
            return Ok(());
        }
        lives.cache.1.dies_after(None);
        if self.power.is_off() {
            self.outcome.lower_deaths += 1;
            self.power.end_at(None);
            lives.lower = open(disks)?;
            self.outcome.at_the_end += u64::from(lives.lower.epoch() > epoch);
            return Ok(());
        }
        self.power.end_at(None);
        taken.map_err(|why| why.to_string())?;
        self.overwritten.clear();
        self.outcome.checkpoints += 1;
        Ok(())
    }

    /// Syncs an object: what it is, and all that was done to names before, is there after a power failure.
    fn sync<'d>(&mut self, disks: &'d [SimDisk], lives: &mut Lives<'d>) -> Result<(), String> {
        let object = ObjectId(self.random.random_range(0..OBJECTS));
        match self.random.random_range(0..6) {
            0 => {
                lives.cache.1.dies_after(Some(self.random.random_range(0..3)));
            }
            1 => {
                let end = self.power.steps() + self.random.random_range(0..6);
                self.power.end_at(Some(end));
            }
            _ => {}
        }
        let by = lives.cache.1.clone();
        let mut asked = Asked::new(&mut lives.lower, by, None);
        let synced = lives.cache.0.sync(&mut asked, &[object]);
        if (synced.is_err() || self.power.is_off()) && self.names.is_empty() {
            // It may be in the log all the same, and need not.
            let now = std::iter::once(&self.now);
            self.names = self.checkpoints.values().chain(now).cloned().collect();
        }
        if lives.cache.1.is_dead() {
            lives.cache = self.begin_cache();
        }
        lives.cache.1.dies_after(None);
        if self.power.is_off() {
            // The layers below have died, and nothing was promised.
            self.power.end_at(None);
            lives.lower = open(disks)?;
            return Ok(());
        }
        self.power.end_at(None);
        match synced {
            Ok(true) => {
                self.outcome.syncs += 1;
                self.names = vec![self.now.clone()];
                if let Some(known) = self.now.get(&object) {
                    self.promised.insert(object, known.clone());
                }
                Ok(())
            }
            Ok(false) => self.checkpoint(disks, lives),
            Err(_) => Ok(()),
        }
    }

    /// What is there after a power failure, which must be right: the names of some moment since the last promise, and what was promised.
    fn recovered(&mut self, lower: &mut Lower<'_>, checkpoint: Model) -> Result<Model, String> {
        let say = |why: belay_logical::Error| why.to_string();
        let mut found = Model::new();
        for object in (0..OBJECTS).map(ObjectId) {
            let Some(attributes) = belay_object::Lower::attributes(lower, object).map_err(say)?
            else {
                continue;
            };
            let mut known = Known {
                size: attributes.size,
                attributes: attributes.attributes,
                pages: BTreeMap::new(),
            };
            for page in 0..PAGES + 4 {
                let mut content = [0; PAGE];
                lower.read(object, page, &mut content).map_err(say)?;
                if content != [content[0]; PAGE] {
                    return Err(format!("page {page} of {object} is mixed"));
                }
                if content[0] != 0 {
                    known.pages.insert(page, content[0]);
                }
            }
            found.insert(object, known);
        }
        let seen = names_of(&found);
        let fits = |model: &Model| names_of(model) == seen;
        if self.names.is_empty() {
            // Nothing was promised: it is the checkpoint.
            let wanted = without_zeros(&checkpoint);
            let is_it = if self.in_place { self.may_be(&found, &wanted)? } else { found == wanted };
            return match is_it {
                true => Ok(found),
                false => Err("it is not as the checkpoint".to_owned()),
            };
        }
        if !self.names.iter().any(fits) {
            return Err(format!(
                "the names are those of no moment since the last promise: {seen:?}"
            ));
        }
        for (object, promised) in &self.promised {
            self.outcome.promises_kept += 1;
            let is = found.get(object);
            let promised = without_zero_pages(promised);
            if is != Some(&promised) {
                return Err(format!("{object} is {is:?}, not {promised:?}"));
            }
        }
        Ok(found)
    }

    /// An epoch that was not sealed ends somewhere else.
    fn forget_unsealed(&mut self) {
        let shared = Shared::new(self.memory.another(), self.layout);
        let last = shared.last_sealed();
        self.checkpoints.retain(|epoch, _| *epoch <= last);
    }

    /// Reads one page.
    fn look(&mut self, lives: &mut Lives<'_>) -> Result<(), String> {
        let object = ObjectId(self.random.random_range(0..OBJECTS));
        let page = self.random.random_range(0..PAGES + 2);
        self.outcome.pages += 1;
        self.look_at(lives, object, page)
    }

    fn look_at(&self, lives: &mut Lives<'_>, object: ObjectId, page: u64) -> Result<(), String> {
        let say = |why: Failure| format!("{object}: {why}");
        let found = lives.module.0.attributes(&mut lives.lower, object).map_err(say)?;
        let known = self.now.get(&object);
        let (found, known) = match (found, known) {
            (None, None) => return Ok(()),
            (Some(found), Some(known)) => (found, known),
            (found, known) => return Err(format!("{object} is {found:?}, not {known:?}")),
        };
        if (found.size, &found.attributes) != (known.size, &known.attributes) {
            return Err(format!("{object} is {found:?}, not {known:?}"));
        }
        let mut content = [1; PAGE];
        lives.module.0.read(&mut lives.lower, object, page, &mut content).map_err(say)?;
        let wanted = known.pages.get(&page).copied().unwrap_or(0);
        match content == [wanted; PAGE] {
            true => Ok(()),
            false => Err(format!("page {page} of {object} is {}, not {wanted}", content[0])),
        }
    }

    fn compare(&mut self, lives: &mut Lives<'_>) -> Result<(), String> {
        self.outcome.pages += OBJECTS * (PAGES + 4);
        for object in (0..OBJECTS).map(ObjectId) {
            for page in 0..PAGES + 4 {
                self.look_at(lives, object, page)?;
            }
        }
        Ok(())
    }
}

/// What is told of objects but their data.
fn names_of(model: &Model) -> Vec<(ObjectId, u64, Vec<u8>)> {
    let one =
        |(object, known): (&ObjectId, &Known)| (*object, known.size, known.attributes.clone());
    model.iter().map(one).collect()
}

fn without_zero_pages(known: &Known) -> Known {
    let pages = known.pages.iter().filter(|(_, byte)| **byte != 0);
    Known { pages: pages.map(|(page, byte)| (*page, *byte)).collect(), ..known.clone() }
}

fn without_zeros(model: &Model) -> Model {
    model.iter().map(|(object, known)| (*object, without_zero_pages(known))).collect()
}

/// The layers below, begun anew.
fn open(disks: &[SimDisk]) -> Result<Lower<'_>, String> {
    Logical::open(disks.iter().collect()).map_err(|why| why.to_string())
}

/// What a request is answered with.
fn reply_to(unique: u64) -> Vec<u8> {
    let length = (unique * 37 % 90) as usize;
    vec![unique as u8; length]
}
