//! What requests do. Whether the caller may do it is the kernel's business (`default_permissions`).

mod data;
mod extended;
mod names;

pub use crate::attributes::MOST_BYTES;
pub use extended::Set;
pub use names::Rename;

use crate::attributes::{DIRECTORY, Kind, LINK, Metadata, TYPE, Time};
use crate::directory::{self, Entry};
use crate::error::{Error, Result};
use crate::ids;
use crate::own::{FIRST, IDS, ORPHANS, ROOT, SECRET};
use crate::secret::Secret;
use crate::view::View;
use belay_memory::Memory;
use belay_object::{Class, Lower, ObjectId, PAGE, Room};
use rustix::io::Errno;

/// Who makes a request, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time.
    pub now: Time,
}

impl Caller {
    /// This process, now.
    pub fn own() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { uid, gid, now: Time::now() }
    }
}

/// What is to be changed of a file's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permissions: the 12 bits below the type.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The length.
    pub size: Option<u64>,
    /// When it was read last.
    pub accessed: Option<Time>,
    /// When its data were changed last.
    pub modified: Option<Time>,
}

/// A file, as a caller is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub object: ObjectId,
    /// Its length in bytes.
    pub size: u64,
    /// All else.
    pub metadata: Metadata,
}

/// How full a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its blocks.
    pub room: Room,
    /// How many files there are; extended attributes count as one.
    pub files: u64,
    /// How many more there can be, if they are empty.
    pub more: u64,
}

/// Empty files that a block can hold at most: so many inodes of a store.
const FILES_A_BLOCK: u64 = 16;
/// The most names that a file can have.
const MOST_LINKS: u32 = 1_000_000_000;

/// What is kept from one request to the next. Another life of the module finds it out again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memo {
    /// Where the next free number is looked for.
    next: u64,
    /// The volume's secret.
    secret: Option<Secret>,
}

/// One request on the namespace.
#[derive(Debug)]
pub struct Namespace<'n, 'v, M: Memory, B: Lower> {
    view: &'n mut View<'v, M, B>,
    caller: Caller,
    memo: &'n mut Memo,
}

impl<'n, 'v, M: Memory, B: Lower> Namespace<'n, 'v, M, B> {
    /// A request of that caller's.
    pub fn new(view: &'n mut View<'v, M, B>, caller: Caller, memo: &'n mut Memo) -> Self {
        Self { view, caller, memo }
    }

    /// Who makes it.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Makes an empty namespace: the directory at the top, which belongs to the caller, and what
    /// the module keeps for itself.
    ///
    /// # Errors
    /// Those of the cache.
    pub fn format(&mut self, secret: Secret) -> Result<(), B::Error> {
        let own = self.fresh(DIRECTORY | 0o700, 0);
        for object in [IDS, ORPHANS, SECRET] {
            self.view.make(object, Class::Metadata, own);
        }
        secret.write(self.view)?;
        let mut root = self.fresh(DIRECTORY | 0o755, 0);
        root.parent = ROOT;
        self.view.make(ROOT, Class::Metadata, root);
        ids::mark_own(self.view)
    }

    fn fresh(&self, mode: u32, device: u32) -> Metadata {
        let now = self.caller.now;
        let links = if mode & TYPE == DIRECTORY { 2 } else { 1 };
        Metadata {
            mode,
            uid: self.caller.uid,
            gid: self.caller.gid,
            links,
            device,
            accessed: now,
            modified: now,
            changed: now,
            made: now,
            parent: ObjectId(0),
            entries: 0,
            extended: ObjectId(0),
            generation: 0,
        }
    }

    /// What a caller is told of a file.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub fn node(&mut self, object: ObjectId) -> Result<Node, B::Error> {
        if object != ROOT && object.0 < FIRST {
            return Err(Errno::STALE.into());
        }
        let metadata = self.view.metadata(object)?;
        // What has extended attributes in it is no file.
        if metadata.mode & TYPE == 0 {
            return Err(Errno::STALE.into());
        }
        Ok(Node { object, size: self.view.size(object)?, metadata })
    }

    /// How full the volume is.
    ///
    /// # Errors
    /// Those of reading.
    pub fn usage(&mut self) -> Result<Usage, B::Error> {
        let room = self.view.room()?;
        let (files, more) = ids::count(self.view)?;
        Ok(Usage { room, files, more: more.min(room.for_users().saturating_mul(FILES_A_BLOCK)) })
    }

    /// All objects that there are, for a check.
    ///
    /// # Errors
    /// Those of reading.
    pub fn objects(&mut self) -> Result<Vec<ObjectId>, B::Error> {
        ids::list(self.view)
    }

    fn directory(&mut self, object: ObjectId) -> Result<Metadata, B::Error> {
        let node = self.node(object)?;
        match node.metadata.kind() {
            Kind::Directory => Ok(node.metadata),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// What a name leads to. `.` and `..` are names as well.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`.
    pub fn lookup(&mut self, parent: ObjectId, name: &[u8]) -> Result<Node, B::Error> {
        let found = self.directory(parent)?;
        let object = match name {
            b"." => parent,
            b".." => found.parent,
            name => self.entry(parent, name)?.object,
        };
        self.node(object)
    }

    fn entry(&mut self, parent: ObjectId, name: &[u8]) -> Result<Entry, B::Error> {
        check_name(name)?;
        Ok(self.find(parent, name)?.ok_or(Errno::NOENT)?)
    }

    fn find(&mut self, parent: ObjectId, name: &[u8]) -> Result<Option<Entry>, B::Error> {
        use belay_cache::Error::Lower;
        match self.secret() {
            Ok(secret) => return directory::find(self.view, secret, parent, name),
            Err(Error::Damaged(_)) => {}
            Err(Error::Cache(Lower(why))) if B::is_damaged(&why) => {}
            Err(why) => return Err(why),
        }
        // All names are there. New ones cannot be made.
        let all = directory::list(self.view, parent, 0, usize::MAX)?;
        Ok(all.into_iter().find(|entry| entry.name == name))
    }

    fn secret(&mut self) -> Result<Secret, B::Error> {
        if let Some(secret) = self.memo.secret {
            return Ok(secret);
        }
        let secret = Secret::read(self.view)?;
        Ok(*self.memo.secret.insert(secret))
    }

    /// Makes a file of any kind but a symbolic link.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` if the directory is removed, and those of a lookup.
    pub fn make(
        &mut self,
        parent: ObjectId,
        name: &[u8],
        mode: u32,
        device: u32,
    ) -> Result<Node, B::Error> {
        check_name(name)?;
        let above = self.directory(parent)?;
        if above.links == 0 {
            return Err(Errno::NOENT.into());
        }
        if self.find(parent, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let is_directory = mode & TYPE == DIRECTORY;
        let object = ids::take(self.view, &mut self.memo.next)?;
        let mut new = self.fresh(mode, device);
        if above.mode & 0o2000 != 0 {
            new.gid = above.gid;
            if is_directory {
                new.mode |= 0o2000;
            }
        }
        if is_directory {
            new.parent = parent;
        }
        let class = if new.kind() == Kind::File { Class::Data } else { Class::Metadata };
        self.view.make(object, class, new);
        self.add_name(parent, name, object, mode)?;
        self.node(object)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As for [`Namespace::make`]; `ENAMETOOLONG` for a target of a page or more, `ENOENT` for an
    /// empty one.
    pub fn symlink(
        &mut self,
        parent: ObjectId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Node, B::Error> {
        if target.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if target.len() >= PAGE {
            return Err(Errno::NAMETOOLONG.into());
        }
        let made = self.make(parent, name, LINK | 0o777, 0)?;
        let page = self.view.new_page(made.object, 0)?;
        if let Some(room) = page.get_mut(..target.len()) {
            room.copy_from_slice(target);
        }
        self.view.set_size(made.object, target.len() as u64)?;
        self.node(made.object)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn readlink(&mut self, object: ObjectId) -> Result<Vec<u8>, B::Error> {
        let node = self.node(object)?;
        if node.metadata.kind() != Kind::Link {
            return Err(Errno::INVAL.into());
        }
        let page = self.view.page(object, 0)?;
        Ok(page.get(..node.size as usize).unwrap_or_default().to_vec())
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// `EPERM` for a directory, `EMLINK`, `EEXIST`, and those of a lookup.
    pub fn link(
        &mut self,
        object: ObjectId,
        parent: ObjectId,
        name: &[u8],
    ) -> Result<Node, B::Error> {
        check_name(name)?;
        let above = self.directory(parent)?;
        let node = self.node(object)?;
        if node.metadata.kind() == Kind::Directory {
            return Err(Errno::PERM.into());
        }
        if above.links == 0 || node.metadata.links == 0 {
            return Err(Errno::NOENT.into());
        }
        if node.metadata.links >= MOST_LINKS {
            return Err(Errno::MLINK.into());
        }
        if self.find(parent, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let now = self.caller.now;
        let metadata = self.view.change(object)?;
        metadata.links += 1;
        metadata.changed = now;
        self.add_name(parent, name, object, node.metadata.mode)?;
        self.node(object)
    }

    /// Changes the metadata of a file.
    ///
    /// # Errors
    /// `EISDIR` or `EINVAL` for the length of what is no file, `EFBIG`; those of reading.
    pub fn change(&mut self, object: ObjectId, change: Change) -> Result<Node, B::Error> {
        let node = self.node(object)?;
        let now = self.caller.now;
        if let Some(size) = change.size {
            match node.metadata.kind() {
                Kind::File => {}
                Kind::Directory => return Err(Errno::ISDIR.into()),
                Kind::Link | Kind::Special => return Err(Errno::INVAL.into()),
            }
            if size > MOST_BYTES {
                return Err(Errno::FBIG.into());
            }
            self.view.set_size(object, size)?;
        }
        let metadata = self.view.change(object)?;
        if let Some(mode) = change.mode {
            metadata.mode = metadata.mode & TYPE | mode & 0o7777;
        }
        metadata.uid = change.uid.unwrap_or(metadata.uid);
        metadata.gid = change.gid.unwrap_or(metadata.gid);
        metadata.accessed = change.accessed.unwrap_or(metadata.accessed);
        if change.size.is_some() {
            metadata.modified = now;
        }
        metadata.modified = change.modified.unwrap_or(metadata.modified);
        metadata.changed = now;
        self.node(object)
    }
}

/// Whether a name can be one.
pub(crate) fn check_name(name: &[u8]) -> std::result::Result<(), Errno> {
    match name {
        [] | b"." | b".." => Err(Errno::INVAL),
        name if name.len() > directory::NAME_MAX => Err(Errno::NAMETOOLONG),
        name if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}
