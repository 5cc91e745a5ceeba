//! Whether the stores of a volume are as they should be, and whether the mapping leads to all that
//! is on them and to nothing else.
//!
//! An object's file names the object, and the mapping names the file; so no two objects share one.
//! Hence it is enough to count: if a store has more files than objects that lead there, nothing
//! leads to some of them.

use crate::mapping::Mapped;
use crate::volume::{Error, Logical, Result};
use belay_disk::{BLOCK, Disk, ZEROS};
use belay_object::ObjectId;
use belay_store::FileId;
use roaring::RoaringTreemap;

/// What was found to be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// On which store, if it is on one, in the order of the volume's members.
    pub store: Option<usize>,
    /// Which object it is in, if it is in one.
    pub object: Option<ObjectId>,
    /// What it is.
    pub what: String,
}

/// What a check has looked at, and what it has found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each store's own, without its findings.
    pub stores: Vec<belay_store::check::Report>,
    /// The objects that the mapping has.
    pub objects: RoaringTreemap,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How many findings there are besides.
    pub unlisted: u64,
}

/// Findings that are listed.
const MOST: usize = 1000;
/// Blocks of the mapping that are asked for at once.
const BLOCKS: usize = 256;

impl Report {
    fn add(&mut self, store: Option<usize>, object: Option<ObjectId>, what: String) {
        if self.findings.len() < MOST {
            self.findings.push(Finding { store, object, what });
        } else {
            self.unlisted += 1;
        }
    }
}

impl<D: Disk> Logical<D> {
    /// Reads all of all stores, and compares the mapping with what is on them. Changes are to be
    /// part of a checkpoint by then. Tells `progress` how many blocks were read since it was told
    /// last.
    ///
    /// # Errors
    /// None but those of a store that has failed before; what is wrong is in the report.
    pub fn check(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Report> {
        let mut report = Report::default();
        for (store, one) in self.stores.iter_mut().enumerate() {
            let mut found = one.check_with(progress).map_err(|why| Error::Store { store, why })?;
            let mapping = self.mappings.get(store).copied();
            for finding in std::mem::take(&mut found.findings) {
                let owner = finding.owner.filter(|_| finding.file != mapping);
                let what = match (finding.file, owner) {
                    (Some(_), None) => format!("the mapping: {}", finding.what),
                    _ => finding.what,
                };
                report.add(Some(store), owner.map(ObjectId), what);
            }
            report.unlisted += std::mem::take(&mut found.unlisted);
            report.stores.push(found);
        }
        let mut led = vec![0; self.stores.len()];
        for store in 0..self.stores.len() {
            self.check_mapping(store, &mut led, &mut report);
        }
        let damaged = !report.findings.is_empty();
        for (store, led) in led.into_iter().enumerate() {
            let files = report.stores.get(store).map_or(0, |one| one.files);
            // One of them is the mapping.
            let lost = files.saturating_sub(led + 1);
            let one = report.stores.get_mut(store);
            if let Some(one) = one.filter(|one| lost > 0 && one.has_given_up) {
                one.notes.push(format!("{lost} of its files belong to no object: they are left over from what was damaged"));
            } else if lost > 0 && !damaged {
                let what = format!("{lost} of its files belong to no object");
                report.add(Some(store), None, what);
            }
        }
        Ok(report)
    }

    /// Goes through the mapping of one store. What the ones before it have is compared, and not
    /// looked up again.
    fn check_mapping(&mut self, store: usize, led: &mut [u64], report: &mut Report) {
        let mut from = 0;
        loop {
            let Some((one, mapping)) = self.stores.get_mut(store).zip(self.mappings.get(store))
            else {
                return;
            };
            let blocks = match one.written(*mapping, from, BLOCKS) {
                Ok(blocks) => blocks,
                Err(why) => {
                    report.add(Some(store), None, format!("the mapping cannot be read: {why}"));
                    return;
                }
            };
            let Some(last) = blocks.last() else { return };
            from = last + 1;
            for block in blocks {
                self.check_block(store, block, led, report);
            }
        }
    }

    fn check_block(&mut self, store: usize, block: u64, led: &mut [u64], report: &mut Report) {
        let mut contents = Vec::new();
        for (one, mapping) in self.stores.iter_mut().zip(&self.mappings) {
            let mut content = ZEROS;
            contents.push(one.read(*mapping, block, &mut content).ok().map(|()| content));
        }
        // What cannot be read was found before.
        let Some(Some(own)) = contents.get(store) else { return };
        let first = contents.iter().position(|one| one.is_some()).unwrap_or(store);
        if contents.iter().flatten().any(|other| other != own) && first == store {
            let what = format!("block {block} of the mapping is not the same on all stores");
            report.add(None, None, what);
        }
        // The first store that has it whole is the one that is asked.
        if first != store {
            return;
        }
        for object in Self::objects_in(block) {
            match self.find(object) {
                Ok(None) => {}
                Ok(Some(mapped)) => {
                    report.objects.insert(object.0);
                    match self.leads_to(object, mapped) {
                        Ok(()) => {
                            led.get_mut(mapped.store).into_iter().for_each(|count| *count += 1);
                        }
                        Err(why) => report.add(None, Some(object), why),
                    }
                }
                Err(why) => {
                    report.objects.insert(object.0);
                    report.add(None, Some(object), why.to_string());
                }
            }
        }
    }

    /// Whether the file that an object is said to have is there, and its own.
    fn leads_to(&mut self, object: ObjectId, mapped: Mapped) -> Result<(), String> {
        let Mapped { store, file } = mapped;
        let is_mapping = self.mappings.get(store) == Some(&file);
        let one = self.store(store).map_err(|why| why.to_string())?;
        let found = one.attributes(file).map_err(|why| format!("its file: {why}"))?;
        match found.owner == object.0 && !is_mapping {
            true => Ok(()),
            false => Err(format!("its file {file} of store {store} is another object's")),
        }
    }

    /// Where an object is, for whoever looks at the stores themselves: the store, and the file
    /// there.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn place_of(&mut self, object: ObjectId) -> Result<Option<(usize, FileId)>> {
        Ok(self.find(object)?.map(|mapped| (mapped.store, mapped.file)))
    }

    /// The file with the mapping on a store.
    pub fn mapping_of(&self, store: usize) -> Option<FileId> {
        self.mappings.get(store).copied()
    }
}

const _: () = assert!(BLOCK == belay_object::PAGE);
