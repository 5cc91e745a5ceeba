//! The extended attributes of files.

use super::Namespace;
use crate::attributes::TYPE;
use crate::error::{Error, Result};
use crate::extended::{self, ALL_MAX, Extended, VALUE_MAX, check_name};
use crate::ids;
use crate::own::FIRST;
use belay_memory::Memory;
use belay_object::{Class, Lower, ObjectId, PAGE};
use rustix::io::Errno;

/// What may be there when one is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// It need not be there.
    Any,
    /// It must not be there.
    Create,
    /// It must be there.
    Replace,
}

impl<M: Memory, B: Lower> Namespace<'_, '_, M, B> {
    /// The object with the extended attributes of a file, if it has some.
    pub(super) fn extended_of(&mut self, object: ObjectId) -> Result<Option<ObjectId>, B::Error> {
        let at = self.node(object)?.metadata.extended;
        if at.0 == 0 {
            return Ok(None);
        }
        let found = self.view.metadata(at)?;
        match at.0 >= FIRST && found.mode & TYPE == 0 && found.parent == object {
            true => Ok(Some(at)),
            false => Err(Error::Damaged("extended attributes are those of another file")),
        }
    }

    /// All extended attributes of a file.
    ///
    /// # Errors
    /// Those of reading.
    pub fn extended(&mut self, object: ObjectId) -> Result<Vec<Extended>, B::Error> {
        const WRONG: &str = "extended attributes are wrong";
        let Some(at) = self.extended_of(object)? else { return Ok(Vec::new()) };
        let size = usize::try_from(self.view.size(at)?).unwrap_or(usize::MAX);
        if size > ALL_MAX {
            return Err(Error::Damaged(WRONG));
        }
        let mut bytes = Vec::with_capacity(size.next_multiple_of(PAGE));
        for page in 0..size.div_ceil(PAGE) {
            bytes.extend_from_slice(self.view.page(at, page as u64)?);
        }
        bytes.truncate(size);
        extended::decode(&bytes).ok_or(Error::Damaged(WRONG))
    }

    /// What an extended attribute says.
    ///
    /// # Errors
    /// `ENODATA` if there is none; those of its name, and of reading.
    pub fn get_extended(&mut self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>, B::Error> {
        check_name(name)?;
        let found = self.extended(object)?.into_iter().find(|one| one.name == name);
        Ok(found.ok_or(Errno::NODATA)?.value)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`, `E2BIG`, `ENOSPC`; those of its name, and of reading.
    pub fn set_extended(
        &mut self,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: Set,
    ) -> Result<(), B::Error> {
        check_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(Errno::TOOBIG.into());
        }
        let mut all = self.extended(object)?;
        match (all.iter_mut().find(|one| one.name == name), how) {
            (Some(_), Set::Create) => return Err(Errno::EXIST.into()),
            (None, Set::Replace) => return Err(Errno::NODATA.into()),
            (Some(one), _) => one.value = value.to_vec(),
            (None, _) => all.push(Extended { name: name.to_vec(), value: value.to_vec() }),
        }
        self.put_extended(object, &all)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As for [`Namespace::get_extended`].
    pub fn remove_extended(&mut self, object: ObjectId, name: &[u8]) -> Result<(), B::Error> {
        check_name(name)?;
        let mut all = self.extended(object)?;
        let before = all.len();
        all.retain(|one| one.name != name);
        if all.len() == before {
            return Err(Errno::NODATA.into());
        }
        self.put_extended(object, &all)
    }

    fn put_extended(&mut self, object: ObjectId, all: &[Extended]) -> Result<(), B::Error> {
        let bytes = extended::encode(all)?;
        let old = self.extended_of(object)?;
        let at = match (old, all) {
            (_, []) => {
                self.drop_extended(object)?;
                ObjectId(0)
            }
            (Some(at), _) => at,
            (None, _) => {
                let at = ids::take(self.view, &mut self.memo.next)?;
                let mut new = self.fresh(0, 0);
                new.parent = object;
                self.view.make(at, Class::Metadata, new);
                at
            }
        };
        for (page, content) in (0..).zip(bytes.chunks(PAGE)) {
            let mut whole = [0; PAGE];
            whole.get_mut(..content.len()).unwrap_or_default().copy_from_slice(content);
            if *self.view.page(at, page)? != whole {
                *self.view.page_mut(at, page)? = whole;
            }
        }
        if !all.is_empty() {
            self.view.set_size(at, bytes.len() as u64)?;
        }
        let now = self.caller.now;
        let metadata = self.view.change(object)?;
        metadata.extended = at;
        metadata.changed = now;
        Ok(())
    }

    /// Removes the object with the extended attributes of a file, which does not name it any more
    /// then, or goes as well.
    pub(super) fn drop_extended(&mut self, object: ObjectId) -> Result<(), B::Error> {
        let Some(extended) = self.extended_of(object)? else { return Ok(()) };
        self.view.remove(extended);
        ids::give_back(self.view, extended)
    }
}
