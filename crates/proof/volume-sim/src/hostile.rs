//! What somebody else wrote, and whoever reads it all the same: disks, memory and objects with
//! anything in them. Fuzz targets and tests say with some bytes what is wrong.
//!
//! | module | answers |
//! | --- | --- |
//! | [`objects`] | objects in memory, below a namespace or a cache, with anything in them |
//! | [`image`] | a volume on a disk, any block of which says something else |
//! | [`cache`] | a cache's memory, any word of which says something else |
//! | [`namespace`] | a namespace whose objects say something else, and any message of the kernel |
//!
//! Nothing here may end in a panic, take long or much memory, write to where nothing may be, or
//! give out bytes that nobody wrote.

pub mod cache;
pub mod image;
pub mod namespace;
pub mod objects;

use crate::SECRET;
use belay_cache::{Cleaner, Publisher, Shared};
use belay_memory::Memory;
use belay_object::Lower;
use belay_posix::namespace::{Change, Rename, Set};
use belay_posix::{Caller, Memo, Namespace, ROOT, Result, View};

/// Bytes that say what is wrong. When they are used up, there are zeros.
#[derive(Clone, Debug)]
pub struct Bytes<'d>(&'d [u8]);

impl<'d> Bytes<'d> {
    /// These.
    pub fn new(bytes: &'d [u8]) -> Self {
        Self(bytes)
    }

    /// Whether they are used up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next one.
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// The next two, as a number less than `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let number = usize::from(self.byte()) | usize::from(self.byte()) << 8;
        number.checked_rem(end).unwrap_or(0)
    }

    /// A number of which little or much can be said: a small one, a large one, or any.
    pub fn number(&mut self) -> u64 {
        let kind = self.byte();
        let mut word = [0; 8];
        match kind {
            // Most fuzzers need a byte for this.
            0..128 => u64::from(kind),
            128..160 => u64::MAX - u64::from(self.byte()),
            160..192 => 1u64.rotate_left(self.byte().into()).wrapping_sub(u64::from(kind & 1)),
            _ => {
                let bytes = self.take(8);
                word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                u64::from_le_bytes(word)
            }
        }
    }

    /// The next so many, or what there is.
    pub fn take(&mut self, count: usize) -> &'d [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// A page of a file: which one, and of which round.
fn page_of(file: u8, page: u8, round: u8) -> [u8; 4096] {
    let mut content = [file ^ 0x55; 4096];
    content[..3].copy_from_slice(&[file, page, round]);
    content
}

/// Does one request.
fn request<M: Memory, B: Lower>(
    publisher: &mut Publisher<M>,
    below: &mut B,
    act: impl FnOnce(&mut Namespace<'_, '_, M, B>) -> Result<(), B::Error>,
) -> Result<(), B::Error> {
    let mut view = View::new(publisher, below);
    act(&mut Namespace::new(&mut view, Caller::default(), &mut Memo::default()))?;
    view.commit(7, b"answered")
}

/// A request.
type Act<'a, M, B> = &'a dyn Fn(&mut Namespace<'_, '_, M, B>) -> Result<(), <B as Lower>::Error>;

/// Files of a directory.
const FILES: u8 = 3;
/// Pages of a file.
const PAGES: u8 = 4;

/// Makes files of all kinds, some of them in the log of the cache only.
fn fill<M: Memory + Clone, B: Lower>(shared: &Shared<M>, below: &mut B) {
    let mut publisher =
        Publisher::attach::<B::Error>(shared.clone(), 1).expect("a memory that is whole");
    let mut memo = Memo::default();
    let mut view = View::new(&mut publisher, below);
    Namespace::new(&mut view, Caller::default(), &mut memo)
        .format(SECRET)
        .expect("an empty volume");
    view.commit(0, b"").expect("room");
    let mut do_it = |act: Act<'_, M, B>| {
        request(&mut publisher, below, act).expect("a request");
    };
    do_it(&|all| all.make(ROOT, b"d", 0o040_755, 0).map(|_| ()));
    for file in 0..FILES {
        do_it(&|all| {
            let made = all.make(ROOT, &[b'a' + file], 0o100_644, 0)?;
            for page in 0..PAGES {
                let content = page_of(file, page, 0);
                all.write(made.object, Some(u64::from(page) * 4096), &content)?;
            }
            all.set_extended(made.object, b"user.a", b"value", Set::Any)
        });
    }
    do_it(&|all| all.symlink(ROOT, b"link", b"target").map(|_| ()));
    do_it(&|all| {
        let directory = all.lookup(ROOT, b"d")?.object;
        for number in 0..20 {
            // So long that the directory has several pages.
            let name = format!("{number:0200}");
            all.make(directory, name.as_bytes(), 0o010_644, 0)?;
        }
        Ok(())
    });
    do_it(&|all| {
        let made = all.make(ROOT, b"gone", 0o100_644, 0)?;
        all.write(made.object, None, b"some data")?;
        all.unlink(ROOT, b"gone")
    });
    Cleaner::new(shared.clone()).checkpoint(below).expect("a checkpoint");
}

/// Overwrites what was made, so that there is something newer than the checkpoint.
fn change<M: Memory + Clone, B: Lower>(shared: &Shared<M>, below: &mut B) {
    let mut publisher =
        Publisher::attach::<B::Error>(shared.clone(), 2).expect("a memory that is whole");
    let changed = request(&mut publisher, below, |all| {
        let file = all.lookup(ROOT, b"a")?.object;
        all.write(file, Some(4096), &page_of(0, 1, 1))
    });
    changed.expect("a write");
    let changed =
        request(&mut publisher, below, |all| all.make(ROOT, b"new", 0o100_644, 0).map(|_| ()));
    changed.expect("a file");
}

/// Does what users do, whatever comes of it; tells what it reads of which page of which file.
fn use_all<M: Memory, B: Lower>(
    publisher: &mut Publisher<M>,
    below: &mut B,
    mut read: impl FnMut(u8, u8, &[u8]),
) {
    for file in 0..FILES {
        let name = [b'a' + file];
        for page in 0..PAGES {
            // Each for itself: one that cannot be read says nothing of the others.
            let _ = request(publisher, below, |all| {
                let object = all.lookup(ROOT, &name)?.object;
                let content = all.read(object, u64::from(page) * 4096, 4096)?;
                read(file, page, &content);
                Ok(())
            });
        }
        let _ = request(publisher, below, |all| {
            let object = all.lookup(ROOT, &name)?.object;
            all.extended(object).map(|_| ())
        });
    }
    let _ = request(publisher, below, |all| {
        let object = all.lookup(ROOT, b"link")?.object;
        all.readlink(object).map(|_| ())
    });
    for directory in [&b"."[..], b"d"] {
        let _ = request(publisher, below, |all| {
            let object = all.lookup(ROOT, directory)?.object;
            for entry in all.list(object, 0, 100)? {
                let _ = all.listed(&entry);
            }
            Ok(())
        });
    }
    let _ = request(publisher, below, |all| all.usage().map(|_| ()));
    change_all(publisher, below);
}

/// Makes, writes to, renames and removes files, whatever comes of it.
fn change_all<M: Memory, B: Lower>(publisher: &mut Publisher<M>, below: &mut B) {
    let _ = request(publisher, below, |all| {
        let made = all.make(ROOT, b"made", 0o100_644, 0)?.object;
        all.write(made, Some(70_000), b"some data")?;
        all.set_extended(made, b"user.b", b"value", Set::Any)
    });
    let _ = request(publisher, below, |all| {
        let object = all.lookup(ROOT, b"a")?.object;
        all.write(object, Some(4000), &[1; 5000])
    });
    let _ = request(publisher, below, |all| {
        let object = all.lookup(ROOT, b"b")?.object;
        let shorter = Change { size: Some(5000), ..Change::default() };
        all.change(object, shorter).map(|_| ())
    });
    let _ = request(publisher, below, |all| all.make(ROOT, b"e", 0o040_755, 0).map(|_| ()));
    let _ = request(publisher, below, |all| {
        let directory = all.lookup(ROOT, b"d")?.object;
        all.rename((ROOT, b"c"), (directory, b"c"), Rename::Replace)
    });
    let _ =
        request(publisher, below, |all| all.rename((ROOT, b"d"), (ROOT, b"e"), Rename::Exchange));
    let gone = request(publisher, below, |all| all.unlink(ROOT, b"a"));
    let _ = request(publisher, below, |all| {
        for orphan in all.orphans(10)? {
            all.forget(orphan)?;
        }
        Ok(())
    });
    drop(gone);
}
