//! Whether names and objects are as they should be: each name leads to an object, each object has
//! the names that it counts, directories are a tree, and the list of the objects' numbers has them
//! all and no others.
//!
//! Only what is below the cache is looked at, and nothing is changed. Memory has a bit for each
//! object, the names of the directories, and what files with several names count.

mod numbers;
mod tree;

use crate::attributes::{Kind, Metadata};
use crate::directory::Entry;
use crate::own::{FIRST, ORPHANS, ROOT, SECRET};
use crate::secret::Secret;
use belay_object::{Attributes, Lower, ObjectId, PAGE};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};
use tree::Tree;

/// What was found to be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which object it is about, if it is about one.
    pub object: Option<ObjectId>,
    /// By which name that is reached, if it has one.
    pub path: Option<Vec<u8>>,
    /// What it is.
    pub what: String,
}

/// What a check has looked at, and what it has found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Directories.
    pub directories: u64,
    /// Other files.
    pub files: u64,
    /// Files that were removed while they were in use, and are still there. The next mount removes
    /// them.
    pub orphans: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How many findings there are besides.
    pub unlisted: u64,
    /// The paths of the objects that were asked for, as far as they have any.
    pub paths: BTreeMap<ObjectId, Vec<u8>>,
}

/// Findings that are listed.
const MOST: usize = 1000;
/// The longest path that is told as a whole.
const LONGEST: usize = 4096;

/// What is known of an object.
struct Known {
    size: u64,
    metadata: Metadata,
}

/// Where a directory is: the one that it is in, and its name there.
type Parent = (usize, Box<[u8]>);

struct Checker<'c, B> {
    below: &'c mut B,
    report: Report,
    wanted: &'c BTreeSet<ObjectId>,
    /// Is told of each name.
    progress: &'c mut dyn FnMut(u64),
    /// Objects that something leads to.
    seen: RoaringTreemap,
    /// Directories that were found.
    places: Vec<Parent>,
    /// Of what has several names: how many were found, and how many it counts.
    links: BTreeMap<ObjectId, (u32, u32)>,
    /// Directories that are to be looked at: which, and what is known of them.
    ahead: Vec<(ObjectId, usize, Known)>,
    /// The volume's secret, if it can be had.
    secret: Option<Secret>,
}

/// Looks at all names and objects. `objects`: those that the layer below has; `wanted`: those whose
/// paths are to be told. Tells `progress` how many names were looked at since it was told last.
pub fn check<B: Lower>(
    below: &mut B,
    objects: impl IntoIterator<Item = u64>,
    wanted: &BTreeSet<ObjectId>,
    progress: &mut dyn FnMut(u64),
) -> Report {
    let mut report = run(below, objects, wanted, progress);
    // Of what has several names it is known in the end only that they are too few or too many.
    let nameless = report.findings.iter().filter(|one| one.path.is_none());
    let nameless: BTreeSet<ObjectId> = nameless.filter_map(|one| one.object).collect();
    if !nameless.is_empty() {
        let paths = run(below, std::iter::empty(), &nameless, &mut |_| {}).paths;
        for finding in report.findings.iter_mut().filter(|one| one.path.is_none()) {
            finding.path = finding.object.and_then(|object| paths.get(&object).cloned());
        }
    }
    report
}

fn run<B: Lower>(
    below: &mut B,
    objects: impl IntoIterator<Item = u64>,
    wanted: &BTreeSet<ObjectId>,
    progress: &mut dyn FnMut(u64),
) -> Report {
    let mut checker = Checker {
        below,
        report: Report::default(),
        wanted,
        progress,
        seen: RoaringTreemap::new(),
        places: Vec::new(),
        links: BTreeMap::new(),
        ahead: Vec::new(),
        secret: None,
    };
    checker.secret();
    checker.names();
    checker.orphans();
    checker.links();
    checker.numbers(objects);
    checker.report
}

impl<B: Lower> Checker<'_, B> {
    fn add(&mut self, object: Option<ObjectId>, path: Option<Vec<u8>>, what: impl Into<String>) {
        if self.report.findings.len() < MOST {
            self.report.findings.push(Finding { object, path, what: what.into() });
        } else {
            self.report.unlisted += 1;
        }
    }

    /// What is known of an object; or why nothing is.
    fn known(&mut self, object: ObjectId) -> Result<Known, String> {
        match self.below.attributes(object) {
            Err(why) => Err(why.to_string()),
            Ok(None) => Err("the object that it leads to is gone".to_owned()),
            Ok(Some(Attributes { size, attributes, .. })) => {
                Ok(Known { size, metadata: Metadata::read(&attributes, size)? })
            }
        }
    }

    fn path(&self, place: usize, name: &[u8]) -> Vec<u8> {
        let (mut parts, mut at, mut length) = (vec![name], place, name.len());
        while let Some((above, name)) = self.places.get(at).filter(|_| at > 0) {
            length += name.len() + 1;
            if length > LONGEST {
                parts.push(b"...");
                break;
            }
            parts.push(name);
            at = *above;
        }
        parts.reverse();
        [b"/".as_slice(), &parts.join(&b'/')].concat()
    }

    /// Without the secret no name can be made, and those that are looked for are found slowly.
    fn secret(&mut self) {
        let mut page = [0; PAGE];
        let found = self.known(SECRET).and_then(|_| {
            self.below.read(SECRET, 0, &mut page).map_err(|why| why.to_string())?;
            Secret::from_page(&page).ok_or("it is missing".to_owned())
        });
        match found {
            Ok(secret) => self.secret = Some(secret),
            Err(why) => self.add(Some(SECRET), None, why),
        }
    }

    /// All that can be reached from the directory at the top.
    fn names(&mut self) {
        self.places.push((0, Box::default()));
        match self.known(ROOT) {
            Ok(known) if known.metadata.kind() == Kind::Directory => {
                if known.metadata.parent != ROOT {
                    self.add(Some(ROOT), Some(b"/".to_vec()), "it has a directory above it");
                }
                self.seen.insert(ROOT.0);
                self.want(ROOT, b"/".to_vec());
                self.extended(ROOT, &known, |_| Some(b"/".to_vec()));
                self.ahead.push((ROOT, 0, known));
            }
            Ok(_) => self.add(Some(ROOT), Some(b"/".to_vec()), "it is no directory"),
            Err(why) => self.add(Some(ROOT), Some(b"/".to_vec()), why),
        }
        while let Some((directory, place, known)) = self.ahead.pop() {
            self.report.directories += 1;
            self.directory(directory, place, &known);
        }
    }

    fn want(&mut self, object: ObjectId, path: Vec<u8>) {
        if self.wanted.contains(&object) {
            self.report.paths.entry(object).or_insert(path);
        }
    }

    fn directory(&mut self, directory: ObjectId, place: usize, known: &Known) {
        let mut tree = Tree::new(directory, known.size, self.secret);
        let (mut count, mut below) = (0, 0);
        while let Some(entries) = tree.next(self.below) {
            count += entries.len() as u64;
            for entry in entries {
                (self.progress)(1);
                below += u32::from(self.entry(directory, place, &entry));
            }
        }
        let wrong = tree.wrong;
        let own = match place {
            0 => b"/".to_vec(),
            _ => {
                let (above, name) = self.places.get(place).cloned().unwrap_or_default();
                self.path(above, &name)
            }
        };
        let is_whole = wrong.is_empty();
        for what in wrong {
            self.add(Some(directory), Some(own.clone()), what);
        }
        let Metadata { entries, links, .. } = known.metadata;
        if is_whole && count != entries {
            let what = format!("it has {count} names, and counts {entries}");
            self.add(Some(directory), Some(own.clone()), what);
        }
        if is_whole && links != below + 2 {
            let what = format!("it has {below} directories, and counts {}", i64::from(links) - 2);
            self.add(Some(directory), Some(own), what);
        }
    }

    /// Looks at what a name leads to; tells whether it is a directory.
    fn entry(&mut self, directory: ObjectId, place: usize, entry: &Entry) -> bool {
        let object = entry.object;
        let said_directory = entry.kind == 0o4;
        if object.0 < FIRST {
            let path = self.path(place, &entry.name);
            self.add(Some(object), Some(path), "it leads to what the volume keeps for itself");
            return said_directory;
        }
        if self.wanted.contains(&object) {
            let path = self.path(place, &entry.name);
            self.want(object, path);
        }
        let is_first = self.seen.insert(object.0);
        let known = match self.known(object) {
            Ok(known) => known,
            Err(why) => {
                self.count(said_directory);
                let path = self.path(place, &entry.name);
                self.add(Some(object), Some(path), why);
                return said_directory;
            }
        };
        let is_directory = known.metadata.kind() == Kind::Directory;
        let wrong = |this: &mut Self, what: &str| {
            let path = this.path(place, &entry.name);
            this.add(Some(object), Some(path), what);
        };
        if known.metadata.mode >> 12 != u32::from(entry.kind) {
            wrong(self, "its directory says that it is of another kind");
        }
        if is_directory {
            if !is_first {
                wrong(self, "it is a directory with two names");
                return true;
            }
            if known.metadata.parent != directory {
                wrong(self, "it is in another directory than it says");
            }
            self.extended(object, &known, |this| Some(this.path(place, &entry.name)));
            self.places.push((place, entry.name.as_slice().into()));
            self.ahead.push((object, self.places.len() - 1, known));
            return true;
        }
        let links = known.metadata.links;
        if is_first {
            self.count(false);
            self.extended(object, &known, |this| Some(this.path(place, &entry.name)));
        }
        match (is_first, links) {
            (true, 1) => {}
            // That it counts one was found right when its first name was.
            (false, 1) => self.links.entry(object).or_insert((1, 1)).0 += 1,
            (_, links) => self.links.entry(object).or_insert((0, links)).0 += 1,
        }
        false
    }

    fn count(&mut self, is_directory: bool) {
        match is_directory {
            true => self.report.directories += 1,
            false => self.report.files += 1,
        }
    }

    /// The object with the extended attributes of a file, if it has one.
    fn extended(
        &mut self,
        object: ObjectId,
        known: &Known,
        path: impl FnOnce(&Self) -> Option<Vec<u8>>,
    ) {
        let extended = known.metadata.extended;
        if extended.0 == 0 {
            return;
        }
        let is_first = extended.0 >= FIRST && self.seen.insert(extended.0);
        let path = path(self);
        if let Some(path) = &path {
            self.want(extended, path.clone());
        }
        let why = match self.below.attributes(extended) {
            Ok(Some(_)) if is_first => return,
            Ok(Some(_)) => "they are those of another file".to_owned(),
            Ok(None) => "they are gone".to_owned(),
            Err(why) => why.to_string(),
        };
        self.add(Some(object), path, format!("its extended attributes: {why}"));
    }

    /// What was removed while it was in use.
    fn orphans(&mut self) {
        let known = match self.known(ORPHANS) {
            Ok(known) => known,
            Err(why) => {
                let what = format!("the list of files that were removed while in use: {why}");
                return self.add(Some(ORPHANS), None, what);
            }
        };
        let (mut tree, mut entries) = (Tree::new(ORPHANS, known.size, self.secret), Vec::new());
        while let Some(more) = tree.next(self.below) {
            entries.extend(more);
        }
        for what in tree.wrong {
            let what = format!("the list of files that were removed while in use: {what}");
            self.add(Some(ORPHANS), None, what);
        }
        for Entry { object, .. } in entries {
            self.report.orphans += 1;
            if !self.seen.insert(object.0) {
                self.add(Some(object), None, "it was removed, and has a name");
                continue;
            }
            match self.known(object) {
                Ok(known) => self.extended(object, &known, |_| None),
                Err(why) => self.add(Some(object), None, format!("it was removed: {why}")),
            }
        }
    }

    fn links(&mut self) {
        for (object, (found, counted)) in std::mem::take(&mut self.links) {
            if found != counted {
                let what = format!("it has {found} names, and counts {counted}");
                self.add(Some(object), None, what);
            }
        }
    }
}
