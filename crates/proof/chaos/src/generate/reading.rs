//! A menu of what changes nothing, for mounts that can only be read. All workers read the same
//! files, so it has no locks.

use rand::Rng;

use super::menu::Make;
use super::model::{Class, Held};
use crate::ops::{Op, OpenHow};

/// Weights and makers, as in the long menu.
pub(super) const MENU: &[(u32, Make)] = &[
    (70, |c| {
        let slot = c.hands.to_fill(c.rng);
        let path = c.tree.existing(Class::File, c.rng);
        c.hands.put(slot, Held { read: true, write: false, append: false });
        let how = OpenHow { read: true, ..OpenHow::default() };
        Some(Op::Open { slot, path, how })
    }),
    (25, |c| {
        let slot = c.any_slot()?;
        c.hands.empty(slot);
        Some(Op::Close { slot })
    }),
    (8, |c| c.dup()),
    (50, |c| Some(Op::Read { slot: c.any_slot()?, len: c.length() })),
    (60, |c| Some(Op::Pread { slot: c.any_slot()?, off: c.offset(), len: c.length() })),
    (25, |c| c.seek()),
    (15, |c| Some(Op::MmapRead { slot: c.any_slot()? })),
    (40, |c| Some(Op::Fstat { slot: c.any_slot()? })),
    (60, |c| {
        let path = c.tree.anything(c.rng);
        Some(Op::Stat { path, follow: c.rng.random() })
    }),
    (20, |c| {
        let path = c.tree.existing(Class::Symlink, c.rng);
        Some(Op::Readlink { path })
    }),
    (4, |c| Some(Op::Statfs { path: c.tree.dir(c.rng) })),
    (8, |c| {
        let path = c.tree.anything(c.rng);
        Some(Op::GetXattr { path, name: c.xattr_name() })
    }),
    (8, |c| {
        let path = c.tree.anything(c.rng);
        Some(Op::ListXattr { path })
    }),
    (40, |c| {
        let path = c.tree.existing(Class::File, c.rng);
        Some(Op::ReadFile { path })
    }),
    (40, |c| Some(Op::ListDir { path: c.tree.dir(c.rng) })),
    (20, |c| {
        let path = c.tree.dir(c.rng);
        let slot = c.hands.stream_to_fill(c.rng);
        c.hands.list(slot, &path);
        Some(Op::DirOpen { slot, path })
    }),
    (30, |c| {
        let slot = c.hands.stream(c.rng)?;
        Some(Op::DirNext { slot, count: c.rng.random_range(1..200) })
    }),
    (8, |c| {
        let slot = c.hands.stream(c.rng)?;
        c.hands.end_list(slot);
        Some(Op::DirRest { slot })
    }),
];
