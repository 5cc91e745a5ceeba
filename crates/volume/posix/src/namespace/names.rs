//! Names: adding, removing, renaming.

use super::{Namespace, Node, check_name};
use crate::attributes::{BLOCKS, CHARACTERS, DIRECTORY, FIFO, FILE, Kind, LINK, SOCKET, TYPE};
use crate::directory::{self, Entry};
use crate::error::{Error, Result};
use crate::ids;
use crate::own::{ORPHANS, ROOT};
use belay_memory::Memory;
use belay_object::{Lower, ObjectId};
use belay_wire::abi::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
use rustix::io::Errno;
use std::collections::BTreeSet;

/// How a file is renamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rename {
    /// What has the new name is replaced.
    #[default]
    Replace,
    /// Nothing may have the new name.
    NoReplace,
    /// The two are exchanged.
    Exchange,
    /// What has the new name is replaced, and a whiteout is left in the old place: a device with
    /// number 0, by which file systems that lie above another one say that a name of that one is
    /// gone.
    Whiteout,
    /// The same, but nothing may have the new name.
    NoReplaceWhiteout,
}

impl Rename {
    /// What these flags of renameat2(2) ask for; `None` if they do not go together.
    pub fn from_flags(flags: u32) -> Option<Self> {
        const BOTH: u32 = RENAME_NOREPLACE | RENAME_WHITEOUT;
        Some(match flags {
            0 => Self::Replace,
            RENAME_NOREPLACE => Self::NoReplace,
            RENAME_EXCHANGE => Self::Exchange,
            RENAME_WHITEOUT => Self::Whiteout,
            BOTH => Self::NoReplaceWhiteout,
            _ => return None,
        })
    }

    /// Those flags.
    pub fn flags(self) -> u32 {
        match self {
            Self::Replace => 0,
            Self::NoReplace => RENAME_NOREPLACE,
            Self::Exchange => RENAME_EXCHANGE,
            Self::Whiteout => RENAME_WHITEOUT,
            Self::NoReplaceWhiteout => RENAME_NOREPLACE | RENAME_WHITEOUT,
        }
    }

    fn is_only_new(self) -> bool {
        self.flags() & RENAME_NOREPLACE != 0
    }

    fn leaves_whiteout(self) -> bool {
        self.flags() & RENAME_WHITEOUT != 0
    }
}

impl<M: Memory, B: Lower> Namespace<'_, '_, M, B> {
    pub(super) fn add_name(
        &mut self,
        parent: ObjectId,
        name: &[u8],
        object: ObjectId,
        mode: u32,
    ) -> Result<(), B::Error> {
        let secret = self.secret()?;
        directory::insert(self.view, secret, parent, (name, object, (mode >> 12) as u8))?;
        self.touch(parent, i32::from(mode & TYPE == DIRECTORY))
    }

    fn remove_name(&mut self, parent: ObjectId, entry: &Entry) -> Result<(), B::Error> {
        directory::remove(self.view, parent, entry.key)?;
        self.touch(parent, -i32::from(is_directory(entry)))
    }

    /// The names of a directory have changed, and so many directories have come.
    fn touch(&mut self, parent: ObjectId, directories: i32) -> Result<(), B::Error> {
        let now = self.caller.now;
        let metadata = self.view.change(parent)?;
        metadata.links = metadata.links.saturating_add_signed(directories);
        (metadata.modified, metadata.changed) = (now, now);
        Ok(())
    }

    /// Takes a name from what is no directory. If it was the last one, the file stays until
    /// [`Namespace::forget`].
    ///
    /// # Errors
    /// `EISDIR`, and those of a lookup.
    pub fn unlink(&mut self, parent: ObjectId, name: &[u8]) -> Result<(), B::Error> {
        self.directory(parent)?;
        let entry = self.entry(parent, name)?;
        if is_directory(&entry) {
            return Err(Errno::ISDIR.into());
        }
        self.unname(parent, &entry)
    }

    /// Removes an empty directory, which stays without a name until [`Namespace::forget`].
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOTEMPTY`, and those of a lookup.
    pub fn rmdir(&mut self, parent: ObjectId, name: &[u8]) -> Result<(), B::Error> {
        self.directory(parent)?;
        let entry = self.entry(parent, name)?;
        if !is_directory(&entry) {
            return Err(Errno::NOTDIR.into());
        }
        if self.directory(entry.object)?.entries > 0 {
            return Err(Errno::NOTEMPTY.into());
        }
        self.unname(parent, &entry)
    }

    fn unname(&mut self, parent: ObjectId, entry: &Entry) -> Result<(), B::Error> {
        self.remove_name(parent, entry)?;
        self.lose(entry)
    }

    /// A file has one name less. If it is damaged the name goes alone: what it leads to stays, as
    /// nobody knows where its blocks are, and which other names it has.
    fn lose(&mut self, entry: &Entry) -> Result<(), B::Error> {
        let object = entry.object;
        if self.is_damaged(entry)? {
            return Ok(());
        }
        let now = self.caller.now;
        let metadata = self.view.change(object)?;
        metadata.changed = now;
        metadata.links = match metadata.kind() {
            Kind::Directory => 0,
            _ => metadata.links.saturating_sub(1),
        };
        if metadata.links > 0 {
            return Ok(());
        }
        let secret = self.secret()?;
        let name = object.0.to_le_bytes();
        directory::insert(self.view, secret, ORPHANS, (&name, object, 0))
    }

    fn remove_object(&mut self, object: ObjectId) -> Result<(), B::Error> {
        self.drop_extended(object)?;
        self.view.remove(object);
        ids::give_back(self.view, object)
    }

    /// Nobody knows a file any more: it goes if it has no name. Gives whether it went. Of what has
    /// names nothing is read.
    ///
    /// # Errors
    /// `ESTALE` if there is none; those of reading.
    pub fn forget(&mut self, object: ObjectId) -> Result<bool, B::Error> {
        let name = object.0.to_le_bytes();
        let Some(entry) = self.find(ORPHANS, &name)? else { return Ok(false) };
        if self.node(object)?.metadata.links > 0 {
            return Ok(false);
        }
        directory::remove(self.view, ORPHANS, entry.key)?;
        self.remove_object(object)?;
        Ok(true)
    }

    /// Those of these files that may have no name. Of the tens of thousands that the kernel forgets
    /// at once nearly all have names.
    ///
    /// # Errors
    /// Those of reading.
    pub fn maybe_nameless(&mut self, nodes: &[ObjectId]) -> Result<Vec<ObjectId>, B::Error> {
        if self.view.metadata(ORPHANS)?.entries > nodes.len() as u64 {
            return Ok(nodes.to_vec());
        }
        let orphans: BTreeSet<ObjectId> = self.orphans(usize::MAX)?.into_iter().collect();
        Ok(nodes.iter().copied().filter(|node| orphans.contains(node)).collect())
    }

    /// Files without names that are not forgotten.
    ///
    /// # Errors
    /// Those of reading.
    pub fn orphans(&mut self, most: usize) -> Result<Vec<ObjectId>, B::Error> {
        let found = directory::list(self.view, ORPHANS, 0, most)?;
        Ok(found.into_iter().map(|entry| entry.object).collect())
    }

    /// Renames a file.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &mut self,
        (from, name): (ObjectId, &[u8]),
        (to, new_name): (ObjectId, &[u8]),
        how: Rename,
    ) -> Result<(), B::Error> {
        self.directory(from)?;
        let target = self.directory(to)?;
        let entry = self.entry(from, name)?;
        check_name(new_name)?;
        let there = self.find(to, new_name)?;
        if target.links == 0 {
            return Err(Errno::NOENT.into());
        }
        match (how, &there) {
            (how, Some(_)) if how.is_only_new() => return Err(Errno::EXIST.into()),
            (Rename::Exchange, None) => return Err(Errno::NOENT.into()),
            _ => {}
        }
        // A directory may not come below itself, for which it must leave the one that it is in.
        let moves = from != to;
        if moves && is_directory(&entry) && self.is_below(to, entry.object)? {
            return Err(Errno::INVAL.into());
        }
        if let Some(there) = &there
            && moves
            && is_directory(there)
            && self.is_below(from, there.object)?
        {
            let errno = if how == Rename::Exchange { Errno::INVAL } else { Errno::NOTEMPTY };
            return Err(errno.into());
        }
        if there.as_ref().is_some_and(|there| there.object == entry.object) {
            return Ok(());
        }
        let kind = entry.kind;
        match there {
            None => {
                self.remove_name(from, &entry)?;
                self.add_name(to, new_name, entry.object, u32::from(kind) << 12)?;
            }
            Some(there) if how == Rename::Exchange => {
                directory::replace(self.view, from, entry.key, there.object, there.kind)?;
                directory::replace(self.view, to, there.key, entry.object, kind)?;
                let moved = i32::from(is_directory(&entry)) - i32::from(is_directory(&there));
                self.touch(from, -moved)?;
                self.touch(to, moved)?;
                self.moved(&there, from)?;
            }
            Some(there) => {
                match (is_directory(&entry), is_directory(&there)) {
                    (true, false) => return Err(Errno::NOTDIR.into()),
                    (false, true) => return Err(Errno::ISDIR.into()),
                    (true, true) if self.directory(there.object)?.entries > 0 => {
                        return Err(Errno::NOTEMPTY.into());
                    }
                    _ => {}
                }
                // A directory that is replaced by one: as many as before.
                self.remove_name(from, &entry)?;
                directory::replace(self.view, to, there.key, entry.object, kind)?;
                self.touch(to, 0)?;
                self.lose(&there)?;
                if !is_directory(&entry) {
                    self.view.keep(entry.object);
                }
            }
        }
        if how.leaves_whiteout() {
            self.make(from, name, CHARACTERS, 0)?;
        }
        self.moved(&entry, to)
    }

    /// A file has come into a directory. One that is damaged can be put aside.
    fn moved(&mut self, entry: &Entry, to: ObjectId) -> Result<(), B::Error> {
        if !is_directory(entry) && self.is_damaged(entry)? {
            return Ok(());
        }
        let now = self.caller.now;
        let metadata = self.view.change(entry.object)?;
        metadata.changed = now;
        if is_directory(entry) {
            metadata.parent = to;
        }
        Ok(())
    }

    /// Whether `directory` is `above`, or somewhere below it.
    fn is_below(&mut self, directory: ObjectId, above: ObjectId) -> Result<bool, B::Error> {
        let mut at = directory;
        for _ in 0..DEEPEST {
            if at == above {
                return Ok(true);
            }
            if at == ROOT {
                return Ok(false);
            }
            at = self.directory(at)?.parent;
        }
        Err(Error::Damaged("a directory is below itself"))
    }

    /// The names of a directory behind a key, with what they lead to. `.` has key 1 and `..` key 2.
    ///
    /// # Errors
    /// `ENOTDIR`; those of reading.
    pub fn list(
        &mut self,
        object: ObjectId,
        behind: u64,
        most: usize,
    ) -> Result<Vec<Entry>, B::Error> {
        let parent = self.directory(object)?.parent;
        let kind = (DIRECTORY >> 12) as u8;
        let dots = [(1, object, &b"."[..]), (2, parent, b"..")];
        let dots = dots.into_iter().filter(|(key, ..)| *key > behind);
        let mut found: Vec<Entry> = dots
            .map(|(key, object, name)| Entry { key, object, kind, name: name.to_vec() })
            .collect();
        found.extend(directory::list(self.view, object, behind.max(2), most)?);
        Ok(found)
    }

    /// What a name leads to, as [`Namespace::node`]; `None` if what is known of it cannot be read,
    /// makes no sense, or is not to be had now. The name is whole then.
    ///
    /// # Errors
    /// Those that say nothing of the file.
    pub fn listed(&mut self, entry: &Entry) -> Result<Option<Node>, B::Error> {
        match self.node(entry.object) {
            Ok(node) => Ok(Some(node)),
            Err(Error::Cache(belay_cache::Error::Lower(why))) if !B::is_lacking(&why) => Ok(None),
            // A listing that waited for all its files might never find all of them free.
            Err(Error::Cache(belay_cache::Error::Held(_))) => Ok(None),
            Err(Error::Damaged(_) | Error::Errno(Errno::STALE)) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Whether what is known of a file is damaged. Its name is whole then. If only the disk fails,
    /// that is an error.
    fn is_damaged(&mut self, entry: &Entry) -> Result<bool, B::Error> {
        match self.node(entry.object) {
            Ok(_) => Ok(false),
            Err(Error::Cache(belay_cache::Error::Lower(why))) if B::is_damaged(&why) => Ok(true),
            Err(Error::Damaged(_) | Error::Errno(Errno::STALE)) => Ok(true),
            Err(why) => Err(why),
        }
    }

    /// A name that leads to what is damaged, and is no directory: the name can be removed, for
    /// which the kernel looks it up.
    ///
    /// # Errors
    /// Those of a lookup.
    pub fn damaged(&mut self, parent: ObjectId, name: &[u8]) -> Result<Option<Entry>, B::Error> {
        let entry = self.entry(parent, name)?;
        let is_file = matches!(
            u32::from(entry.kind) << 12,
            FILE | LINK | FIFO | SOCKET | BLOCKS | CHARACTERS
        );
        Ok((is_file && self.is_damaged(&entry)?).then_some(entry))
    }
}

/// Directories above one another.
const DEEPEST: usize = 1 << 20;

fn is_directory(entry: &Entry) -> bool {
    u32::from(entry.kind) << 12 == DIRECTORY
}
