//! A shorter menu, for daemons that corrupt files which are worked on while they are open.
//!
//! A file is written whole when it is made, and closed before anything else is done to it. It can
//! be cut shorter, but not made longer; renamed, but a directory cannot; and directories stay
//! small, since such daemons search them again and again.

use rand::Rng;
use rand::seq::IndexedRandom;

use super::menu::{Context, Make};
use super::model::Class;
use crate::ops::{Op, RenameHow};

/// The longest file that is written by one request (libfuse 2, `big_writes`). What comes behind the
/// first one may come to a successor, which cannot append to a file that it has not made.
const WHOLE: u32 = 128 << 10;

/// Weights and makers, as in the long menu.
pub(super) const MENU: &[(u32, Make)] = &[
    (90, |c| {
        let path = c.tree.any(Class::File, c.rng);
        c.tree.add(&path, Class::File);
        Some(Op::WriteFile { path, len: c.length().min(WHOLE), seed: c.rng.random() })
    }),
    (60, |c| {
        let path = c.tree.existing(Class::File, c.rng);
        Some(Op::ReadFile { path })
    }),
    (20, |c| {
        let path = c.tree.existing(Class::File, c.rng);
        Some(Op::Truncate { path, len: c.offset() / 8 })
    }),
    (35, |c| {
        let path = c.tree.any(Class::Dir, c.rng);
        c.tree.add(&path, Class::Dir);
        Some(Op::Mkdir { path, mode: 0o755 })
    }),
    (20, |c| {
        let path = c.tree.existing(Class::Dir, c.rng);
        if c.tree.is_empty(&path) {
            c.tree.remove(&path);
        }
        Some(Op::Rmdir { path })
    }),
    (35, |c| {
        let path = c.tree.existing(Class::File, c.rng);
        c.tree.remove(&path);
        Some(Op::Unlink { path })
    }),
    (40, |c| {
        let from = c.tree.existing(Class::File, c.rng);
        let over = c.rng.random_bool(0.4);
        let to =
            if over { c.tree.existing(Class::File, c.rng) } else { c.tree.any(Class::File, c.rng) };
        c.tree.rename(&from, &to);
        Some(Op::Rename { from, to, how: RenameHow::Plain })
    }),
    (60, |c| {
        let path = c.file_or_dir()?;
        Some(Op::Stat { path, follow: c.rng.random() })
    }),
    (4, |c| Some(Op::Statfs { path: c.tree.dir(c.rng) })),
    (15, |c| {
        let path = c.file_or_dir()?;
        // What a FAT can tell: from 1980 on, every other second.
        let seconds = c.rng.random_range(160_000_000..1_000_000_000) * 2;
        Some(Op::Utimens { path, seconds, nanos: 0 })
    }),
    (25, |c| Some(Op::ListDir { path: c.tree.dir(c.rng) })),
    (10, |c| {
        let path = c.tree.full(c.rng)?;
        let slot = c.hands.stream_to_fill(c.rng);
        c.hands.list(slot, &path);
        Some(Op::DirOpen { slot, path })
    }),
    (15, |c| {
        let slot = c.hands.stream(c.rng)?;
        Some(Op::DirNext { slot, count: c.rng.random_range(1..40) })
    }),
    (6, |c| {
        let slot = c.hands.stream(c.rng)?;
        c.hands.end_list(slot);
        Some(Op::DirRest { slot })
    }),
    (1, |c| {
        let path = c.tree.new_full()?;
        Some(Op::Fill { path, count: c.rng.random_range(20..=60) })
    }),
    (2, |c| c.purge()),
];

impl Context<'_> {
    fn file_or_dir(&mut self) -> Option<String> {
        let class = *[Class::File, Class::File, Class::Dir].choose(self.rng)?;
        Some(self.tree.existing(class, self.rng))
    }
}
