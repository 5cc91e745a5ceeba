//! The secret of a volume, by which names are hashed. A directory has room for a few names of one
//! hash only: who could choose such names would keep others from being made.

use crate::directory::FIRST;
use crate::error::{Error, Result};
use crate::own::SECRET;
use crate::view::{Page, View};
use belay_memory::Memory;
use belay_object::{Lower, ObjectId, PAGE};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use siphasher::sip::SipHasher13;
use std::fmt;
use std::hash::Hasher;

const BYTES: usize = 16;

/// A volume's secret. Callers of the volume never learn it; who may read its stores does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// One that is known already: of tests, and of simulations.
    pub const fn known(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// One that nobody knows.
    ///
    /// # Errors
    /// If the kernel has no random numbers.
    pub fn random() -> std::result::Result<Self, Errno> {
        let mut bytes = [0; BYTES];
        let got = getrandom(&mut bytes, GetRandomFlags::empty())?;
        // So few come at once, or not at all (getrandom(2)).
        if got == BYTES { Ok(Self(bytes)) } else { Err(Errno::IO) }
    }

    /// The least key that a name can have in a directory.
    pub(crate) fn hash(self, directory: ObjectId, name: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(&directory.0.to_le_bytes());
        hasher.write(name);
        (hasher.finish() >> 3).max(FIRST)
    }

    /// That of a volume, by the page that it is in; `None` if there is none.
    pub(crate) fn from_page(page: &Page) -> Option<Self> {
        let bytes: [u8; BYTES] = page.first_chunk().copied()?;
        (bytes != [0; BYTES]).then_some(Self(bytes))
    }

    pub(crate) fn read<M: Memory, B: Lower>(view: &mut View<'_, M, B>) -> Result<Self, B::Error> {
        const MISSING: &str = "the volume's secret is missing";
        if view.size(SECRET)? < PAGE as u64 {
            return Err(Error::Damaged(MISSING));
        }
        Self::from_page(view.page(SECRET, 0)?).ok_or(Error::Damaged(MISSING))
    }

    /// Keeps it in an object that was just made.
    pub(crate) fn write<M: Memory, B: Lower>(
        self,
        view: &mut View<'_, M, B>,
    ) -> Result<(), B::Error> {
        view.set_size(SECRET, PAGE as u64)?;
        let page = view.new_page(SECRET, 0)?;
        if let Some(room) = page.first_chunk_mut() {
            *room = self.0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values were computed by another implementation of SipHash-1-3, which was checked by the
    /// vector of SipHash's paper.
    #[test]
    fn hashes_are_those_of_the_layout() {
        let secret = Secret::known(std::array::from_fn(|at| at as u8));
        assert_eq!(secret.hash(ObjectId(7), b"name"), 0x18d0_8034_dd13_4fdb);
        let long = b"a file with a long name.txt";
        assert_eq!(secret.hash(ObjectId(1), long), 0x1c9f_c843_9956_ea05);
    }

    #[test]
    fn no_two_volumes_have_one_and_none_is_shown() {
        let [one, other] = [Secret::random().unwrap(), Secret::random().unwrap()];
        assert!(one != other && one != Secret::known([0; BYTES]));
        assert_eq!(format!("{one:?}"), "Secret");
    }
}
