//! Blocks are damaged: what is read is right, or an error; what is healthy is read; a check says
//! what is damaged; and when the disks are as they were, so is all of the volume.

use super::history::State;
use super::request::Answer;
use super::{Lives, Stop, Whole, wrong};
use crate::disk::{FAULTS, Fault, SimDisk};
use crate::posix::ours;
use belay_disk::Shadow;
use belay_logical::Logical;
use belay_object::PAGE;
use belay_posix::check::check;
use rand::Rng;
use std::collections::BTreeSet;

/// What a check says.
enum Said {
    /// It cannot be opened.
    NoVolume,
    /// These paths are damaged, and so much else.
    Findings(BTreeSet<String>, usize),
}

impl Whole {
    /// Damages some blocks, reads all of it, and heals them. All of it is in a checkpoint.
    pub(super) fn damage(&mut self, lives: &mut Lives, wanted: &State) -> Result<(), Stop> {
        let disks = self.disks.clone();
        let victim = self.victim(wanted).filter(|_| self.random.random());
        match &victim {
            Some((_, disk, block)) => {
                let kinds = [Fault::FlippedBit, Fault::Zeros, Fault::Unreadable];
                let fault = kinds[self.random.random_range(0..kinds.len())];
                self.put(&disks[*disk], fault, Some(*block));
            }
            None => {
                let mut roots = BTreeSet::new();
                for _ in 0..self.random.random_range(1..6) {
                    let number = self.random.random_range(0..disks.len());
                    let disk = &disks[number];
                    let written = disk.written();
                    let block = written[self.random.random_range(0..written.len())];
                    // If a checkpoint has no root any more, nothing tells that it was there.
                    if disk.is_root(block) && !roots.insert(number) {
                        continue;
                    }
                    let fault = FAULTS[self.random.random_range(0..FAULTS.len())];
                    self.put(disk, fault, Some(block));
                }
            }
        }
        // Nothing is known of it but what is on the disks.
        lives.stores.restart();
        *lives.module.borrow_mut() = self.begin_module(&lives.stores)?;
        let failed = self.read_all(lives, wanted)?;
        self.outcome.damaged_reads += failed.len() as u64;
        let said = self.said();
        match (&said, &victim) {
            (Said::NoVolume, None) => {}
            (Said::Findings(paths, count), None) => {
                if *count == 0 && !failed.is_empty() {
                    return Err(wrong(format!(
                        "{failed:?} cannot be read, and the check is clean"
                    )));
                }
                // What the check does not name is healthy, if it knows the names of all that it
                // finds. Of what has several names it tells one.
                let has_more = |path: &String| {
                    let told = wanted.tree.get(path).map_or("", |(told, _)| told);
                    !told.contains(" 1 links") && !told.starts_with("40") && !told.starts_with("41")
                };
                let unnamed = failed.iter().find(|path| !paths.contains(*path) && !has_more(path));
                if let (Some(path), true) = (unnamed, paths.len() == *count) {
                    return Err(wrong(format!(
                        "{path} cannot be read, and only {paths:?} is damaged"
                    )));
                }
            }
            (said, Some((names, ..))) => {
                let Said::Findings(paths, _) = said else {
                    return Err(wrong("a volume with one damaged page cannot be opened"));
                };
                if failed != *names || names.is_disjoint(paths) {
                    return Err(wrong(format!(
                        "a page of {names:?} is damaged, {failed:?} cannot be read, and the check says {paths:?}"
                    )));
                }
            }
        }
        if !failed.is_empty() {
            self.outcome.found_damaged += 1;
        }
        for disk in &disks {
            disk.heal();
        }
        lives.stores.restart();
        *lives.module.borrow_mut() = self.begin_module(&lives.stores)?;
        self.compare(lives, wanted)
    }

    fn put(&mut self, disk: &SimDisk, fault: Fault, block: Option<u64>) {
        let done = match block {
            Some(block) => disk.fault_at(block, fault, &mut self.random),
            None => disk.fault(fault, &mut self.random),
        };
        if done.is_some() {
            *self.outcome.faults.entry(fault).or_default() += 1;
        }
    }

    /// A page that no other is like, and the one block that has it: the names of its file, the
    /// disk, and the block.
    fn victim(&mut self, wanted: &State) -> Option<(BTreeSet<String>, usize, u64)> {
        let files: Vec<(&u64, &[u8])> =
            wanted.files.iter().map(|(file, data)| (file, data.as_slice())).collect();
        let (file, data) = files.get(self.random.random_range(0..files.len().max(1)))?;
        let pages: Vec<&[u8]> = data.chunks(PAGE).collect();
        let page = pages.get(self.random.random_range(0..pages.len().max(1)))?;
        let mut content = page.to_vec();
        content.resize(PAGE, 0);
        let same = files.iter().flat_map(|(_, data)| data.chunks(PAGE)).filter(|other| {
            content.starts_with(other) && content[other.len()..].iter().all(|byte| *byte == 0)
        });
        if same.count() != 1 || content.iter().all(|byte| *byte == 0) {
            return None;
        }
        let mut found = Vec::new();
        for (number, disk) in self.disks.iter().enumerate() {
            found.extend(disk.holding(&content).into_iter().map(|block| (number, block)));
        }
        let &[(disk, block)] = found.as_slice() else { return None };
        let is_of = |(_, (_, other)): &(&String, &(String, Option<u64>))| *other == Some(**file);
        let names = wanted.tree.iter().filter(is_of).map(|(path, _)| path.clone()).collect();
        Some((names, disk, block))
    }

    /// Reads all: which paths cannot be read. What can be is right.
    fn read_all(&mut self, lives: &mut Lives, wanted: &State) -> Result<BTreeSet<String>, Stop> {
        let mut failed = BTreeSet::new();
        for (path, (told, _)) in &wanted.tree {
            let relative = path.trim_start_matches('/');
            let found =
                self.request(lives, false, |namespace| ours::told_at(namespace, relative))?;
            match found {
                Answer::Failed(_) => {
                    failed.insert(path.clone());
                }
                Answer::Done((is, data)) => {
                    let data_fit = data.as_deref() == wanted.data(path).map(|data| data.as_slice());
                    if is != *told || !data_fit {
                        return Err(wrong(format!("{path} is wrong on a damaged disk: {is:.300}")));
                    }
                    self.outcome.bytes += data.map_or(0, |data| data.len() as u64);
                }
                answer => return Err(wrong(format!("{path}: {answer:.300?}"))),
            }
        }
        Ok(failed)
    }

    /// What a check says, that changes nothing.
    fn said(&self) -> Said {
        let over: Vec<_> = self.disks.iter().cloned().map(Shadow::new).collect();
        let Ok(mut lower) = Logical::open(over) else { return Said::NoVolume };
        let Ok(found) = lower.check(&mut |_| {}) else { return Said::NoVolume };
        let objects = found.findings.iter().filter_map(|finding| finding.object).collect();
        let names = check(&mut lower, found.objects, &objects, &mut |_| {});
        let mut paths = BTreeSet::new();
        let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        paths.extend(names.paths.values().map(text));
        paths.extend(names.findings.iter().filter_map(|finding| finding.path.as_ref()).map(text));
        Said::Findings(paths, found.findings.len() + names.findings.len())
    }
}
