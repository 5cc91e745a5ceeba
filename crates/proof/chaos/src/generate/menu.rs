//! The operations to choose from, each with its weight and how its arguments are chosen.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;

use super::model::{Class, Hands, Tree};
use super::{Scope, plain, reading};
use crate::ops::Op;
use belay_fixtures::zoo::Work;

/// What an operation is chosen from.
pub struct Context<'a> {
    pub rng: &'a mut ChaCha12Rng,
    pub tree: &'a mut Tree,
    pub hands: &'a mut Hands,
    pub scope: Scope,
}

pub(super) type Make = fn(&mut Context<'_>) -> Option<Op>;

/// Weights and makers. A maker that has nothing to work on gives none, and another is drawn.
const MENU: &[(u32, Make)] = &[
    (90, |c| c.open()),
    (25, |c| {
        let slot = c.any_slot()?;
        c.hands.empty(slot);
        Some(Op::Close { slot })
    }),
    (8, |c| c.dup()),
    (40, |c| Some(Op::Read { slot: c.slot(|h| h.read)?, len: c.length() })),
    (50, |c| Some(Op::Pread { slot: c.slot(|h| h.read)?, off: c.offset(), len: c.length() })),
    (70, |c| Some(Op::Write { slot: c.slot(|h| h.write)?, len: c.length(), seed: c.rng.random() })),
    (70, |c| {
        let slot = c.slot(|h| h.write && !h.append)?;
        Some(Op::Pwrite { slot, off: c.offset(), len: c.length(), seed: c.rng.random() })
    }),
    (25, |c| c.seek()),
    (15, |c| Some(Op::Ftruncate { slot: c.slot(|h| h.write)?, len: c.offset() })),
    (12, |c| {
        let path = c.tree.existing(Class::File, c.rng);
        Some(Op::Truncate { path, len: c.offset() })
    }),
    (12, |c| c.fallocate()),
    (10, |c| {
        let slot = c.any_slot()?;
        Some(Op::Fsync { slot, data_only: c.rng.random() })
    }),
    (8, |c| {
        let from = c.slot(|h| h.read)?;
        let to = c.slot(|h| h.write && !h.append)?;
        Some(Op::CopyRange { from, to, len: c.length() })
    }),
    (12, |c| Some(Op::MmapRead { slot: c.slot(|h| h.read)? })),
    (15, |c| {
        let slot = c.slot(|h| h.read && h.write && !h.append)?;
        Some(Op::MmapWrite { slot, off: c.offset(), len: c.length(), seed: c.rng.random() })
    }),
    (40, |c| Some(Op::Fstat { slot: c.any_slot()? })),
    (6, |c| {
        let slot = c.any_slot()?;
        Some(Op::Fchmod { slot, mode: c.mode() })
    }),
    (15, |c| {
        let slot = c.any_slot()?;
        Some(Op::Flock { slot, how: c.lock_how() })
    }),
    (15, |c| c.range_lock()),
    (10, |c| {
        let slot = c.any_slot()?;
        Some(Op::TestLock {
            slot,
            off: c.rng.random_range(0..100),
            len: c.rng.random_range(0..100),
        })
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
    (45, |c| c.unlink()),
    (40, |c| c.rename_file()),
    (12, |c| c.rename_dir()),
    (20, |c| c.link()),
    (15, |c| c.symlink()),
    (10, |c| {
        let path = c.tree.existing(Class::Symlink, c.rng);
        Some(Op::Readlink { path })
    }),
    (60, |c| {
        let path = c.tree.anything(c.rng);
        Some(Op::Stat { path, follow: c.rng.random() })
    }),
    (10, |c| {
        let path = c.tree.existing(Class::Alias, c.rng);
        Some(Op::Stat { path, follow: false })
    }),
    (4, |c| Some(Op::Statfs { path: c.tree.dir(c.rng) })),
    (15, |c| {
        let path = c.tree.anything(c.rng);
        Some(Op::Chmod { path, mode: c.mode() | 0o700 })
    }),
    (15, |c| {
        let path = c.tree.anything(c.rng);
        Some(Op::Utimens {
            path,
            seconds: c.rng.random_range(0..2_000_000_000),
            nanos: c.rng.random_range(0..1_000_000_000),
        })
    }),
    (15, |c| c.set_xattr()),
    (12, |c| {
        let path = c.xattr_path();
        Some(Op::GetXattr { path, name: c.xattr_name() })
    }),
    (8, |c| {
        let path = c.xattr_path();
        Some(Op::ListXattr { path })
    }),
    (8, |c| {
        let path = c.xattr_path();
        Some(Op::RemoveXattr { path, name: c.xattr_name() })
    }),
    (25, |c| {
        let class = *[Class::File, Class::Append, Class::Symlink].choose(c.rng)?;
        let path = c.tree.existing(class, c.rng);
        Some(Op::ReadFile { path })
    }),
    (25, |c| Some(Op::ListDir { path: c.tree.dir(c.rng) })),
    (3, |c| Some(Op::ListDir { path: c.tree.full(c.rng)? })),
    (10, |c| {
        let path = c.tree.full(c.rng)?;
        let slot = c.hands.stream_to_fill(c.rng);
        c.hands.list(slot, &path);
        Some(Op::DirOpen { slot, path })
    }),
    (20, |c| {
        let slot = c.hands.stream(c.rng)?;
        Some(Op::DirNext { slot, count: c.rng.random_range(1..200) })
    }),
    (6, |c| {
        let slot = c.hands.stream(c.rng)?;
        c.hands.end_list(slot);
        Some(Op::DirRest { slot })
    }),
    (2, |c| c.fill()),
    (2, |c| c.purge()),
];

impl Context<'_> {
    /// The next operation.
    pub fn operation(&mut self) -> Op {
        let menu = match self.scope.work {
            Work::All => MENU,
            Work::WholeFiles => plain::MENU,
            Work::Read => reading::MENU,
        };
        loop {
            if let Ok((_, make)) = menu.choose_weighted(self.rng, |(weight, _)| *weight)
                && let Some(op) = make(self)
                && (self.scope.xattrs || !op.is_on_xattrs())
            {
                return op;
            }
        }
    }
}
