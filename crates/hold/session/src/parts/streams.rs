//! Directory streams: where they stand, and the rest of those that a dead generation began.

use super::cookies::Cookies;
use super::hidden::is_hidden_name;
use belay_recorder::{Handle, StreamPosition};
use belay_wire::errno::{ENOSYS, EOPNOTSUPP};
use belay_wire::{Dirents, DirentsPlus, EntryOut, push_dirent, push_direntplus};
use std::collections::HashMap;

/// An entry of a successor's listing.
#[derive(Clone, Debug)]
struct Item {
    ino: u64,
    kind: u32,
    name: Vec<u8>,
    /// Its position, if an earlier reply has given it out: whoever has kept that comes back to it.
    cookie: Option<u64>,
}

/// The rest of a directory stream that a successor continues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remainder {
    listing: Vec<Item>,
    complete: bool,
    /// The daemon has none of the kind of listing that it was asked for first.
    other_kind: bool,
    next: u64,
    failed: Option<i32>,
    /// Cookie of the last entry given out, and which item comes next.
    served: Option<(u64, usize)>,
    pending: Vec<Item>,
}

impl Remainder {
    /// By which error the successor's listing has failed.
    pub(crate) fn failed(&self) -> Option<i32> {
        self.failed
    }

    /// What to ask for next: the kind of listing, where one with attributes is `wanted`, and from
    /// which cookie on. `None` if the successor's listing is complete.
    pub(crate) fn to_ask(&self, wanted: bool) -> Option<(bool, u64)> {
        (!self.complete).then_some((wanted != self.other_kind, self.next))
    }

    /// Takes a part of the successor's listing: what it answered, without header, and by which
    /// error. `plus`: with attributes.
    pub(crate) fn take(&mut self, plus: bool, errno: i32, body: &[u8]) {
        let first = self.listing.is_empty();
        if matches!(errno, ENOSYS | EOPNOTSUPP) && first && !self.other_kind {
            self.other_kind = true;
            return;
        }
        let mut take = |ino, off, kind, name: &[u8]| {
            self.next = off;
            if !is_hidden_name(name) {
                self.listing.push(Item { ino, kind, name: name.to_vec(), cookie: None });
            }
        };
        if plus {
            DirentsPlus::new(body).for_each(|e| take(e.ino, e.off, e.type_, e.name));
        } else {
            Dirents::new(body).for_each(|e| take(e.ino, e.off, e.type_, e.name));
        }
        if errno != 0 {
            self.failed = Some(errno);
        }
        self.complete = body.is_empty() || (errno != 0 && first);
    }

    /// The item that comes next in a stream that stands at `cookie`, if it goes on where it was
    /// served last.
    pub(crate) fn served_at(&self, cookie: u64) -> Option<usize> {
        self.served.filter(|(served, _)| *served == cookie).map(|(_, at)| at)
    }

    /// The stream stands elsewhere: `given` are the entries of its record up to there, `later`
    /// those behind. Comes first what an earlier reply gave out behind that, in its order and with
    /// its positions.
    pub(crate) fn stand(&mut self, given: &[u8], later: &[u8]) {
        let mut left: HashMap<&[u8], &Item> =
            self.listing.iter().map(|item| (&item.name[..], item)).collect();
        for item in Dirents::new(given) {
            left.remove(item.name);
        }
        self.pending.clear();
        for known in Dirents::new(later) {
            if let Some(item) = left.remove(known.name) {
                self.pending.push(Item { cookie: Some(known.off), ..item.clone() });
            }
        }
        let others = self.listing.iter().filter(|item| left.contains_key(&item.name[..]));
        self.pending.extend(others.cloned());
    }

    /// Serves items from `at` on, in at most `limit` bytes; `plus`: with attributes. Gives the
    /// reply's entries, and those that are to go on record.
    pub(crate) fn serve(
        &mut self,
        mut at: usize,
        plus: bool,
        limit: usize,
        next_cookie: impl Fn() -> u64,
    ) -> (Vec<u8>, Vec<u8>) {
        let (mut body, mut stream) = (Vec::new(), Vec::new());
        while let Some(item) = self.pending.get(at) {
            let cookie = item.cookie.unwrap_or_else(&next_cookie);
            let fits = if plus {
                // Without a node id the kernel takes the name and looks up later.
                let none = EntryOut::default();
                push_direntplus(&mut body, limit, &none, item.ino, cookie, item.kind, &item.name)
            } else {
                push_dirent(&mut body, limit, item.ino, cookie, item.kind, &item.name)
            };
            if !fits {
                break;
            }
            if item.cookie.is_none() {
                push_dirent(&mut stream, usize::MAX, item.ino, cookie, item.kind, &item.name);
            }
            at += 1;
            self.served = Some((cookie, at));
        }
        (body, stream)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Cookies up to which directory streams are recorded.
    cookies: Cookies,
    /// Directory handles restored in this generation and not rewound since.
    restored: HashMap<Handle, Option<Remainder>>,
}

impl Streams {
    /// Where the record goes on behind `cookie`, if that is known.
    pub(crate) fn position(&self, handle: Handle, cookie: u64) -> Option<StreamPosition> {
        self.cookies.get(handle, cookie)
    }

    /// It goes on there.
    pub(crate) fn set_position(&mut self, handle: Handle, cookie: u64, at: StreamPosition) {
        self.cookies.set(handle, cookie, at);
    }

    /// The record is cut.
    pub(crate) fn forget_position(&mut self, handle: Handle) {
        self.cookies.forget(handle);
    }

    /// The handle is closed, whose number may be another's soon.
    #[inline]
    pub(crate) fn close(&mut self, handle: Handle) {
        self.rewind(handle);
        self.cookies.forget(handle);
    }

    /// The stream begins anew: it is this generation's own now.
    #[inline]
    pub(crate) fn rewind(&mut self, handle: Handle) {
        if !self.restored.is_empty() {
            self.restored.remove(&handle);
        }
    }

    /// A dead generation has begun the stream of this handle.
    pub(crate) fn restore(&mut self, handle: Handle) {
        self.restored.insert(handle, None);
    }

    /// Whether any stream goes on that a dead generation has begun.
    #[inline]
    pub(crate) fn has_restored(&self) -> bool {
        !self.restored.is_empty()
    }

    /// Whether this one does.
    pub(crate) fn is_restored(&self, handle: Handle) -> bool {
        self.restored.contains_key(&handle)
    }

    /// Takes the rest of such a stream, to be put back.
    pub(crate) fn take_rest(&mut self, handle: Handle) -> Option<Remainder> {
        Some(self.restored.get_mut(&handle)?.take().unwrap_or_default())
    }

    /// Puts it back.
    pub(crate) fn put_rest(&mut self, handle: Handle, rest: Remainder) {
        self.restored.insert(handle, Some(rest));
    }

    /// The rest of a stream that is being listed.
    pub(crate) fn rest_mut(&mut self, handle: Handle) -> Option<&mut Remainder> {
        self.restored.get_mut(&handle)?.as_mut()
    }
}
