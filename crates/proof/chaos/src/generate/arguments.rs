//! How the arguments of operations are chosen.

use rand::Rng;
use rand::seq::IndexedRandom;

use super::SHARED;
use super::menu::Context;
use super::model::{Class, Held};
use crate::ops::{LockHow, LockOwner, Op, OpenHow, RenameHow, Slot, Whence};

/// What is done at an offset begins in the first half of this. Files grow beyond it when they are
/// appended to, until they are truncated or removed, which is about as likely.
const MAX_FILE: u64 = 512 * 1024;

impl Context<'_> {
    pub(super) fn slot(&mut self, fit: impl Fn(&Held) -> bool) -> Option<Slot> {
        self.hands.holding(self.rng, fit)
    }

    pub(super) fn any_slot(&mut self) -> Option<Slot> {
        self.slot(|_| true)
    }

    pub(super) fn length(&mut self) -> u32 {
        match self.rng.random_range(0..10) {
            0 => self.rng.random_range(0..3),
            1..5 => self.rng.random_range(1..300),
            5 => 4096,
            6..9 => self.rng.random_range(1..20_000),
            _ => self.rng.random_range(1..300_000),
        }
    }

    pub(super) fn offset(&mut self) -> u64 {
        match self.rng.random_range(0..8) {
            0 => 0,
            1 => 4096 * self.rng.random_range(0..16),
            2..6 => self.rng.random_range(0..30_000),
            _ => self.rng.random_range(0..MAX_FILE / 2),
        }
    }

    pub(super) fn mode(&mut self) -> u32 {
        *[0o600, 0o644, 0o755, 0o400, 0o444, 0o666, 0o777].choose(self.rng).unwrap_or(&0o644)
    }

    pub(super) fn lock_how(&mut self) -> LockHow {
        *[LockHow::Shared, LockHow::Exclusive, LockHow::Unlock]
            .choose(self.rng)
            .unwrap_or(&LockHow::Unlock)
    }

    pub(super) fn open(&mut self) -> Option<Op> {
        let append = self.rng.random_bool(0.15);
        let class = if append { Class::Append } else { Class::File };
        let create = self.rng.random_bool(0.6);
        let fresh = create && self.rng.random_bool(0.5);
        let path = if fresh {
            self.tree.any(class, self.rng)
        } else {
            self.tree.existing(class, self.rng)
        };
        let access = self.rng.random_range(0..10);
        let (read, write) = if append { (access < 5, true) } else { (access < 8, access >= 2) };
        let read = read || !self.scope.write_only;
        let excl = create && self.rng.random_bool(0.3);
        let how = OpenHow {
            read,
            write,
            create,
            excl,
            trunc: write && !append && self.rng.random_bool(0.12),
            append,
            mode: self.mode(),
        };
        let slot = self.hands.to_fill(self.rng);
        if create {
            self.tree.add(&path, class);
        }
        self.hands.put(slot, Held { read, write, append });
        Some(Op::Open { slot, path, how })
    }

    pub(super) fn dup(&mut self) -> Option<Op> {
        let from = self.any_slot()?;
        let to = self.hands.to_fill(self.rng);
        self.hands.put(to, self.hands.get(from)?);
        Some(Op::Dup { from, to })
    }

    pub(super) fn seek(&mut self) -> Option<Op> {
        let slot = self.any_slot()?;
        let kinds = [
            Whence::Start,
            Whence::Start,
            Whence::Current,
            Whence::End,
            Whence::Data,
            Whence::Hole,
        ];
        // Where data and holes begin depends on how the store below was written to.
        let kinds = if self.scope.finds_holes { &kinds[..] } else { &kinds[..4] };
        let from = *kinds.choose(self.rng)?;
        let off = i64::try_from(self.offset()).unwrap_or(0);
        // Not far beyond the end, so that files stay small.
        let off = match from {
            Whence::Current => off.min(1000) - 500,
            Whence::End => -off.min(5000),
            _ => off,
        };
        Some(Op::Seek { slot, from, off })
    }

    pub(super) fn fallocate(&mut self) -> Option<Op> {
        let slot = self.slot(|h| h.write)?;
        let modes: &[u32] = match (self.scope.special_modes, self.scope.beyond_ends) {
            (true, _) if !self.scope.finds_holes => &[0, 0, 1, 3],
            (true, true) => &[0, 0, 1, 3, 0x10],
            (true, false) => &[0, 0, 3, 0x10],
            (false, _) => &[0],
        };
        let mode = *modes.choose(self.rng)?;
        Some(Op::Fallocate { slot, mode, off: self.offset(), len: u64::from(self.length()).max(1) })
    }

    pub(super) fn range_lock(&mut self) -> Option<Op> {
        let slot = self.any_slot()?;
        let owner = *[LockOwner::Process, LockOwner::Description].choose(self.rng)?;
        let how = self.lock_how();
        Some(Op::RangeLock {
            slot,
            owner,
            how,
            off: self.rng.random_range(0..100),
            len: self.rng.random_range(0..50),
        })
    }

    pub(super) fn unlink(&mut self) -> Option<Op> {
        let class = *[Class::File, Class::File, Class::Append, Class::Symlink, Class::Alias]
            .choose(self.rng)?;
        let path = self.tree.existing(class, self.rng);
        self.tree.remove(&path);
        Some(Op::Unlink { path })
    }

    pub(super) fn rename_how(&mut self) -> RenameHow {
        match self.rng.random_range(0..10) {
            0..2 if self.scope.special_modes => RenameHow::NoReplace,
            2..4 if self.scope.special_modes => RenameHow::Exchange,
            _ => RenameHow::Plain,
        }
    }

    pub(super) fn rename_file(&mut self) -> Option<Op> {
        let class = *[Class::File, Class::File, Class::File, Class::Append, Class::Symlink]
            .choose(self.rng)?;
        let from = self.tree.existing(class, self.rng);
        let over = self.rng.random_bool(0.4);
        let to =
            if over { self.tree.existing(class, self.rng) } else { self.tree.any(class, self.rng) };
        let how = self.rename_how();
        if how == RenameHow::Plain {
            self.tree.rename(&from, &to);
        }
        Some(Op::Rename { from, to, how })
    }

    pub(super) fn rename_dir(&mut self) -> Option<Op> {
        let from = self.tree.existing(Class::Dir, self.rng);
        let to = self.tree.any_of_rank(&from, self.rng);
        let how = self.rename_how();
        if how == RenameHow::Plain {
            self.tree.rename(&from, &to);
        }
        Some(Op::Rename { from, to, how })
    }

    pub(super) fn link(&mut self) -> Option<Op> {
        let class = *[Class::File, Class::File, Class::Append].choose(self.rng)?;
        let from = self.tree.existing(class, self.rng);
        let class = if self.scope.links_are_one { class } else { Class::Alias };
        let to = self.tree.any(class, self.rng);
        self.tree.add(&to, class);
        Some(Op::Link { from, to })
    }

    pub(super) fn symlink(&mut self) -> Option<Op> {
        let path = self.tree.any(Class::Symlink, self.rng);
        self.tree.add(&path, Class::Symlink);
        let target = match self.rng.random_range(0..4) {
            0 => "nowhere".to_owned(),
            1 => format!("../{}", self.tree.top()),
            _ => format!("f{}", self.rng.random_range(0..8)),
        };
        Some(Op::Symlink { target, path })
    }

    pub(super) fn xattr_name(&mut self) -> String {
        format!("user.x{}", self.rng.random_range(0..3))
    }

    pub(super) fn xattr_path(&mut self) -> String {
        let class =
            *[Class::File, Class::Append, Class::Dir].choose(self.rng).unwrap_or(&Class::File);
        self.tree.existing(class, self.rng)
    }

    pub(super) fn set_xattr(&mut self) -> Option<Op> {
        let path = self.xattr_path();
        let how = self.rng.random_range(0..4);
        let len = self.rng.random_range(0..200);
        let name = self.xattr_name();
        Some(Op::SetXattr {
            path,
            name,
            len,
            seed: self.rng.random(),
            create: how == 0,
            replace: how == 1,
        })
    }

    pub(super) fn fill(&mut self) -> Option<Op> {
        let path = self.tree.new_full()?;
        Some(Op::Fill { path, count: self.rng.random_range(30..500) })
    }

    pub(super) fn purge(&mut self) -> Option<Op> {
        // In the shared tree another worker may be listing it.
        let path = self.tree.full(self.rng)?;
        if !self.scope.purges || self.hands.is_listing(&path) || self.tree.top() == SHARED {
            return None;
        }
        self.tree.drop_full(&path);
        Some(Op::Purge { path })
    }
}
