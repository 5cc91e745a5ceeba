//! The simulated daemon's directory listings and locks.

use super::daemon::{Daemon, Outcome};
use super::disk::EAGAIN;
use super::memory::Rng;
use belay_wire::abi::*;
use belay_wire::{Opcode, Request, build, push_dirent, push_direntplus};

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub ino: u64,
    pub owner: u64,
    pub start: u64,
    pub end: u64,
    pub kind: u32,
    pub flock: bool,
}

impl Daemon {
    pub(super) fn list(&mut self, read: &ReadIn, plus: bool) -> Vec<u8> {
        let disk = self.disk.clone();
        let disk = disk.borrow();
        let open = self.handles.get_mut(&read.fh).unwrap();
        if read.offset == 0 {
            // Another order in each life.
            let mut rng = Rng::new(u64::from(self.generation) + 7);
            let dots = [(b".".to_vec(), open.ino), (b"..".to_vec(), open.ino)];
            let names = disk.get(open.ino).children.iter().map(|(n, i)| (n.clone(), *i));
            let mut listing: Vec<_> =
                dots.into_iter().chain(names).map(|e| (rng.number(), e)).collect();
            listing.sort();
            open.listing = listing.into_iter().map(|(_, entry)| entry).collect();
        }
        let scale = 3 + u64::from(self.generation % 4);
        assert_eq!(read.offset % scale, 0, "daemon: a cookie of another life");
        let skip = (read.offset / scale) as usize;
        assert!(skip <= open.listing.len(), "daemon: a cookie of another life");
        let listing = open.listing.clone();
        let mut out = Vec::new();
        for (i, (name, ino)) in listing.iter().enumerate().skip(skip) {
            let off = (i as u64 + 1) * scale;
            let kind = disk.inodes.get(ino).map_or(8, |inode| inode.mode >> 12);
            let number = disk.inodes.get(ino).map_or(*ino, |inode| inode.number);
            let number = if self.flavour.numbered { u64::from(u32::MAX) } else { number };
            let limit = read.size as usize;
            if !plus {
                if !push_dirent(&mut out, limit, number, off, kind, name) {
                    break;
                }
                continue;
            }
            let room = belay_wire::dirents::direntplus_len(name.len());
            if out.len() + room > limit {
                break;
            }
            let current = disk.get(self.handles[&read.fh].ino).children.get(name) == Some(ino);
            if current {
                self.met.insert((self.handles[&read.fh].ino, name.clone()));
            }
            let entry = if current { self.entry(*ino) } else { EntryOut::default() };
            push_direntplus(&mut out, limit, &entry, number, off, kind, name);
        }
        out
    }

    pub(super) fn lock(&mut self, request: &Request<'_>, ino: u64) -> Outcome {
        let unique = request.header.unique;
        let lk: LkIn = request.body_as().unwrap();
        self.open(lk.fh, ino);
        let flock = lk.lk_flags & LK_FLOCK != 0;
        let new = Held {
            ino,
            owner: lk.owner,
            start: lk.lk.start,
            end: lk.lk.end,
            kind: lk.lk.type_,
            flock,
        };
        if !take_lock(&mut self.locks, new) {
            if request.opcode() == Opcode::SETLKW {
                return Outcome::Wait;
            }
            return Outcome::Reply(build::reply_error(unique, EAGAIN));
        }
        Outcome::Reply(build::reply_ok(unique))
    }
}

/// Takes, changes or drops a lock; `false` if somebody else's is in the way.
pub fn take_lock(locks: &mut Vec<Held>, new: Held) -> bool {
    let overlaps = |l: &Held| {
        l.ino == new.ino && l.flock == new.flock && l.start <= new.end && new.start <= l.end
    };
    let conflict = |l: &Held| overlaps(l) && l.owner != new.owner && (l.kind == 1 || new.kind == 1);
    if new.kind != 2 && locks.iter().any(conflict) {
        return false;
    }
    let mut parts = Vec::new();
    locks.retain(|l| {
        let mine = overlaps(l) && l.owner == new.owner;
        if mine && l.start < new.start {
            parts.push(Held { end: new.start - 1, ..*l });
        }
        if mine && l.end > new.end {
            parts.push(Held { start: new.end + 1, ..*l });
        }
        !mine
    });
    locks.extend(parts);
    if new.kind != 2 {
        locks.push(new);
    }
    true
}
