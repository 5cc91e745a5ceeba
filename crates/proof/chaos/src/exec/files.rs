//! Operations on open files.

use std::fs::File;
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{
    self, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, copy_file_range, fallocate,
    fchmod, fdatasync, flock, fstat, fsync, ftruncate, openat, seek,
};
use rustix::io::{self, Errno};

use super::names::attr;
use super::{Done, Executor, Open, data, number};
use crate::ops::{LockHow, LockOwner, OpenHow, Slot, Value, Whence};

impl Executor {
    pub(super) fn open(&mut self, slot: Slot, path: &str, how: OpenHow) -> Done {
        let _ = self.close(slot);
        let mut flags = OFlags::CLOEXEC;
        flags |= match (how.read, how.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        flags.set(OFlags::CREATE, how.create);
        flags.set(OFlags::EXCL, how.excl);
        flags.set(OFlags::TRUNC, how.trunc);
        flags.set(OFlags::APPEND, how.append);
        let fd = openat(&self.root_fd, path, flags, Mode::from_raw_mode(how.mode))?;
        // It is open, so the kernel keeps it.
        let era = self.inodes.era();
        let stat = fstat(&fd)?;
        let stable = self.inodes.see(path, stat.st_ino, era);
        self.slots.insert(slot, Open { fd, ino: stat.st_ino, locked: false });
        Ok(Value::Attr(attr(&stat, stable)))
    }

    pub(super) fn close(&mut self, slot: Slot) -> Done {
        let open = self.slots.remove(&slot).ok_or(super::Fault::EmptySlot)?;
        if open.locked {
            // The kernel releases such locks some time after close(2); this makes the time certain.
            let _ = flock(&open.fd, FlockOperation::NonBlockingUnlock);
            let _ = fcntl(&open.fd, FcntlArg::F_OFD_SETLK(&range(LockHow::Unlock, 0, 0)));
        }
        self.closed_one = true;
        Ok(Value::Unit)
    }

    pub(super) fn dup(&mut self, from: Slot, to: Slot) -> Done {
        let open = self.slot(from)?;
        let copy =
            Open { fd: io::fcntl_dupfd_cloexec(&open.fd, 0)?, ino: open.ino, locked: open.locked };
        if from != to {
            let _ = self.close(to);
            self.slots.insert(to, copy);
        }
        Ok(Value::Unit)
    }

    pub(super) fn read(&self, slot: Slot, len: u32) -> Done {
        let mut buffer = vec![0; len as usize];
        let got = io::read(&self.slot(slot)?.fd, &mut buffer)?;
        Ok(data(&buffer[..got]))
    }

    pub(super) fn pread(&self, slot: Slot, off: u64, len: u32) -> Done {
        let mut buffer = vec![0; len as usize];
        let got = io::pread(&self.slot(slot)?.fd, &mut buffer, off)?;
        Ok(data(&buffer[..got]))
    }

    pub(super) fn write(&self, slot: Slot, bytes: &[u8]) -> Done {
        Ok(number(io::write(&self.slot(slot)?.fd, bytes)?))
    }

    pub(super) fn pwrite(&self, slot: Slot, off: u64, bytes: &[u8]) -> Done {
        Ok(number(io::pwrite(&self.slot(slot)?.fd, bytes, off)?))
    }

    pub(super) fn seek(&self, slot: Slot, from: Whence, off: i64) -> Done {
        let absolute = u64::try_from(off).unwrap_or(0);
        let to = match from {
            Whence::Start => SeekFrom::Start(absolute),
            Whence::Current => SeekFrom::Current(off),
            Whence::End => SeekFrom::End(off),
            Whence::Data => SeekFrom::Data(absolute),
            Whence::Hole => SeekFrom::Hole(absolute),
        };
        let position = seek(&self.slot(slot)?.fd, to)?;
        Ok(Value::Number(i64::try_from(position).unwrap_or(i64::MAX)))
    }

    pub(super) fn ftruncate(&self, slot: Slot, len: u64) -> Done {
        ftruncate(&self.slot(slot)?.fd, len)?;
        Ok(Value::Unit)
    }

    pub(super) fn fallocate(&self, slot: Slot, mode: u32, off: u64, len: u64) -> Done {
        let (fd, flags) = (&self.slot(slot)?.fd, FallocateFlags::from_bits_retain(mode));
        fallocate(fd, flags, off, len)?;
        // What is reserved is a hole for SEEK_HOLE on tmpfs, but what is reserved once more is not
        // (mm/shmem.c, shmem_get_folio_gfp): a request that is reissued would show.
        let _ = fallocate(fd, flags, off, len);
        Ok(Value::Unit)
    }

    pub(super) fn fsync(&self, slot: Slot, data_only: bool) -> Done {
        let fd = &self.slot(slot)?.fd;
        if data_only {
            fdatasync(fd)?
        } else {
            fsync(fd)?
        }
        Ok(Value::Unit)
    }

    pub(super) fn copy_range(&self, from: Slot, to: Slot, len: u32) -> Done {
        let (from, to) = (&self.slot(from)?.fd, &self.slot(to)?.fd);
        Ok(number(copy_file_range(from, None, to, None, len as usize)?))
    }

    /// The file that a slot stands for, through a descriptor of its own; `None` if it is empty, as
    /// that cannot be mapped.
    fn mappable(&self, slot: Slot) -> Result<Option<File>, super::Fault> {
        let fd = &self.slot(slot)?.fd;
        let size = fstat(fd)?.st_size;
        Ok(if size > 0 { Some(File::from(io::fcntl_dupfd_cloexec(fd, 0)?)) } else { None })
    }

    pub(super) fn mmap_read(&self, slot: Slot) -> Done {
        let Some(file) = self.mappable(slot)? else {
            return Ok(data(&[]));
        };
        let map = vmap::Map::with_options().map(&file).map_err(mapping_error)?;
        Ok(data(&map))
    }

    pub(super) fn mmap_write(&self, slot: Slot, off: u64, bytes: &[u8]) -> Done {
        let Some(file) = self.mappable(slot)? else {
            return Ok(number(0));
        };
        let mut map = vmap::MapMut::with_options().write().map(&file).map_err(mapping_error)?;
        let start = usize::try_from(off).unwrap_or(usize::MAX) % map.len();
        let len = bytes.len().min(map.len() - start);
        map[start..start + len].copy_from_slice(&bytes[..len]);
        map.flush(&file, vmap::Flush::Sync).map_err(mapping_error)?;
        Ok(number(len))
    }

    pub(super) fn fstat(&self, slot: Slot) -> Done {
        let open = self.slot(slot)?;
        let stat = fstat(&open.fd)?;
        Ok(Value::Attr(attr(&stat, Some(stat.st_ino == open.ino))))
    }

    pub(super) fn fchmod(&self, slot: Slot, mode: u32) -> Done {
        fchmod(&self.slot(slot)?.fd, fs::Mode::from_raw_mode(mode))?;
        Ok(Value::Unit)
    }

    pub(super) fn flock(&mut self, slot: Slot, how: LockHow) -> Done {
        flock(
            &self.slot(slot)?.fd,
            match how {
                LockHow::Shared => FlockOperation::NonBlockingLockShared,
                LockHow::Exclusive => FlockOperation::NonBlockingLockExclusive,
                LockHow::Unlock => FlockOperation::NonBlockingUnlock,
            },
        )?;
        self.mark_locked(slot);
        Ok(Value::Unit)
    }

    pub(super) fn range_lock(
        &mut self,
        slot: Slot,
        owner: LockOwner,
        how: LockHow,
        off: u64,
        len: u64,
    ) -> Done {
        let lock = range(how, off, len);
        let fd = self.slot(slot)?.fd.as_fd();
        fcntl(
            fd,
            match owner {
                LockOwner::Process => FcntlArg::F_SETLK(&lock),
                LockOwner::Description => FcntlArg::F_OFD_SETLK(&lock),
            },
        )?;
        self.mark_locked(slot);
        Ok(Value::Unit)
    }

    pub(super) fn test_lock(&self, slot: Slot, off: u64, len: u64) -> Done {
        let mut lock = range(LockHow::Exclusive, off, len);
        fcntl(self.slot(slot)?.fd.as_fd(), FcntlArg::F_GETLK(&mut lock))?;
        let how = match i32::from(lock.l_type) {
            libc::F_RDLCK => LockHow::Shared,
            libc::F_WRLCK => LockHow::Exclusive,
            _ => {
                return Ok(Value::Lock { how: LockHow::Unlock, off: 0, len: 0 });
            }
        };
        let unsigned = |n: i64| u64::try_from(n).unwrap_or(u64::MAX);
        Ok(Value::Lock { how, off: unsigned(lock.l_start), len: unsigned(lock.l_len) })
    }

    fn mark_locked(&mut self, slot: Slot) {
        if let Some(open) = self.slots.get_mut(&slot) {
            open.locked = true;
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "lock types and SEEK_SET are small constants")]
fn range(how: LockHow, off: u64, len: u64) -> libc::flock {
    let kind = match how {
        LockHow::Shared => libc::F_RDLCK,
        LockHow::Exclusive => libc::F_WRLCK,
        LockHow::Unlock => libc::F_UNLCK,
    };
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: i64::try_from(off).unwrap_or(0),
        l_len: i64::try_from(len).unwrap_or(0),
        l_pid: 0,
    }
}

fn mapping_error(error: vmap::Error) -> Errno {
    error.raw_os_error().map_or(Errno::NOSTR, Errno::from_raw_os_error)
}
