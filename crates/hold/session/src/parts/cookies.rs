//! Where directory streams stand: cookies, and where they are in the record.

use belay_recorder::{Handle, StreamPosition};
use belay_wire::Dirents;

/// Bytes of the longest record of a listing.
const LONGEST: usize = 24 + 1024;

/// The cookie at which a directory stream goes on as a rule, and where the record of that stream
/// has it, so that it is not searched for. For the handle that last had its bucket: the numbers of
/// open handles are small.
#[derive(Debug, Default)]
pub(crate) struct Cookies(Vec<Option<Known>>);

#[derive(Clone, Copy, Debug)]
struct Known {
    handle: Handle,
    cookie: u64,
    /// Behind the entry of that cookie.
    at: StreamPosition,
}

impl Cookies {
    const PLACES: usize = 64;

    fn bucket(handle: Handle) -> usize {
        handle.number() as usize % Self::PLACES
    }

    fn known(&self, handle: Handle) -> Option<Known> {
        (*self.0.get(Self::bucket(handle))?).filter(|known| known.handle == handle)
    }

    /// Where the record goes on behind `cookie`, if that is what is known.
    pub(crate) fn get(&self, handle: Handle, cookie: u64) -> Option<StreamPosition> {
        self.known(handle).filter(|known| known.cookie == cookie).map(|known| known.at)
    }

    pub(crate) fn set(&mut self, handle: Handle, cookie: u64, at: StreamPosition) {
        if self.0.is_empty() {
            self.0.resize(Self::PLACES, None);
        }
        if let Some(bucket) = self.0.get_mut(Self::bucket(handle)) {
            *bucket = Some(Known { handle, cookie, at });
        }
    }

    /// The record is cut, or the handle is closed, whose number may be another's soon.
    pub(crate) fn forget(&mut self, handle: Handle) {
        if self.known(handle).is_some()
            && let Some(bucket) = self.0.get_mut(Self::bucket(handle))
        {
            *bucket = None;
        }
    }
}

/// Cookie of the last entry, and where that ends. Found from the end, for a listing of a large
/// directory has thousands: behind its fixed part a record has its name and at most 7 zeros, so the
/// nearest place from which that is so, back from the end, is where the last one starts. (No name
/// has a zero byte, so none can hold what looks like a length.)
pub(crate) fn last_cookie(entries: &[u8]) -> Option<(u64, usize)> {
    let mut at = entries.len() & !7;
    while let Some(before) = at.checked_sub(8) {
        at = before;
        let Some(&[o0, o1, o2, o3, o4, o5, o6, o7, n0, n1, n2, n3]) =
            entries.get(at + 8..at + 20).and_then(|bytes| <&[u8; 12]>::try_from(bytes).ok())
        else {
            continue;
        };
        let name = u32::from_ne_bytes([n0, n1, n2, n3]) as usize;
        if name > 0 && (at + 24 + 7).saturating_add(name) & !7 == entries.len() {
            let cookie = u64::from_ne_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
            return Some((cookie, entries.len()));
        }
        if entries.len() - at > LONGEST {
            break;
        }
    }
    Dirents::new(entries).last().map(|item| (item.off, item.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_wire::push_dirent;

    #[test]
    fn the_last_cookie_is_that_of_the_last_record() {
        for len in 1..300 {
            let mut listing = Vec::new();
            for (i, name) in [&b"x"[..], &vec![b'a'; len]].into_iter().enumerate() {
                assert_eq!(last_cookie(&listing), (i > 0).then_some((7, 32)));
                assert!(push_dirent(&mut listing, usize::MAX, 1, 7 + 4 * i as u64, 8, name));
            }
            assert_eq!(
                last_cookie(&listing),
                Some((11, listing.len())),
                "with a name of {len} bytes"
            );
            // Without its padding the last record is none; the kernel would not take it either.
            if len % 8 != 0 {
                listing.pop();
                assert_eq!(last_cookie(&listing), Some((7, 32)));
            }
        }
        assert_eq!(last_cookie(&[0; 64]), None);
    }
}
