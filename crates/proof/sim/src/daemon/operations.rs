//! What the simulated daemon does of each operation.

use super::Daemon;
use crate::disk::*;
use belay_wire::abi::*;
use belay_wire::{Opcode, Request, build};
use zerocopy::IntoBytes;

impl Daemon {
    pub(super) fn carry_out(&mut self, request: &Request<'_>, ino: u64) -> Res<Vec<u8>> {
        let names = request.names();
        let first = names.first.unwrap_or(&[]);
        let second = names.second.unwrap_or(&[]);
        let disk = self.disk.clone();
        let done = Ok(Vec::new());
        self.check_met(request, ino);
        match request.opcode() {
            Opcode::LOOKUP => {
                let found = disk.borrow().lookup(ino, first);
                self.made(found)
            }
            Opcode::MKDIR => {
                let mode = request.body_as::<MkdirIn>().unwrap().mode;
                let made = disk.borrow_mut().make(ino, first, DIR | mode & 0o7777, b"");
                self.made(made)
            }
            Opcode::MKNOD => {
                let mode = request.body_as::<MknodIn>().unwrap().mode;
                let made = disk.borrow_mut().make(ino, first, mode, b"");
                self.made(made)
            }
            Opcode::SYMLINK => {
                let made = disk.borrow_mut().make(ino, first, LINK | 0o777, second);
                self.made(made)
            }
            Opcode::LINK => {
                let old = self.ino(request.body_as::<LinkIn>().unwrap().oldnodeid);
                if !self.flavour.links {
                    return Err(EPERM);
                }
                disk.borrow_mut().link(old, ino, first)?;
                self.made(Ok(old))
            }
            Opcode::CREATE => {
                let create: CreateIn = request.body_as().unwrap();
                let found = disk.borrow().lookup(ino, first);
                let file = match found {
                    Ok(_) if create.flags & 0o200 != 0 => return Err(EEXIST),
                    Ok(file) => file,
                    Err(_) => disk.borrow_mut().make(ino, first, create.mode, b"")?,
                };
                let entry = self.entry(file);
                let open = self.new_handle(file, create.flags);
                Ok([entry.as_bytes(), open.as_bytes()].concat())
            }
            Opcode::UNLINK => {
                disk.borrow_mut().unlink(ino, first)?;
                self.purge();
                done
            }
            Opcode::RMDIR => {
                disk.borrow_mut().rmdir(ino, first)?;
                self.purge();
                done
            }
            Opcode::RENAME | Opcode::RENAME2 => {
                let two =
                    request.body_as::<Rename2In>().filter(|_| request.opcode() == Opcode::RENAME2);
                let flags = two.map_or(0, |rename| rename.flags);
                let to = self.ino(request.body_as::<RenameIn>().unwrap().newdir);
                disk.borrow_mut().rename(ino, first, to, second, flags)?;
                self.purge();
                done
            }
            Opcode::GETATTR => {
                let get: GetattrIn = request.body_as().unwrap();
                if get.getattr_flags & GETATTR_FH != 0 {
                    self.open(get.fh, ino);
                }
                Ok(self.attr_reply(ino, request.header.nodeid))
            }
            Opcode::SETATTR => {
                let set: SetattrIn = request.body_as().unwrap();
                if set.valid.contains(SetattrValid::FH) {
                    self.open(set.fh, ino);
                }
                if set.valid.contains(SetattrValid::SIZE) {
                    disk.borrow_mut().get_mut(ino).data.resize(set.size as usize, 0);
                }
                if set.valid.contains(SetattrValid::MODE) {
                    let mut disk = disk.borrow_mut();
                    let mode = &mut disk.get_mut(ino).mode;
                    *mode = *mode & TYPE | set.mode & 0o7777;
                }
                Ok(self.attr_reply(ino, request.header.nodeid))
            }
            Opcode::READLINK => Ok(disk.borrow().get(ino).data.clone()),
            Opcode::OPEN => {
                let flags = request.body_as::<OpenIn>().unwrap().flags;
                disk.borrow().may_open(ino, flags)?;
                Ok(self.new_handle(ino, flags).as_bytes().to_vec())
            }
            Opcode::OPENDIR => {
                let flags = request.body_as::<OpenIn>().unwrap().flags;
                Ok(self.new_handle(ino, flags).as_bytes().to_vec())
            }
            Opcode::FSYNC | Opcode::FSYNCDIR => {
                let fsync: FsyncIn = request.body_as().unwrap();
                // As fuse2fs: all is written, but only for what is open for writing.
                if self.open(fsync.fh, ino).flags & 3 != 0 {
                    self.dirty = false;
                }
                done
            }
            Opcode::RELEASE | Opcode::RELEASEDIR => {
                let release: ReleaseIn = request.body_as().unwrap();
                self.open(release.fh, ino);
                self.handles.remove(&release.fh);
                if release.release_flags & RELEASE_FLOCK_UNLOCK != 0 {
                    let owner = release.lock_owner;
                    self.locks.retain(|l| !l.flock || l.ino != ino || l.owner != owner);
                }
                self.purge();
                done
            }
            Opcode::FLUSH => {
                let flush: FlushIn = request.body_as().unwrap();
                if ino == ROOT {
                    // As fusefat: all is written, whatever is closed.
                    self.dirty = false;
                    return Ok(Vec::new());
                }
                self.open(flush.fh, ino);
                let owner = flush.lock_owner;
                self.locks.retain(|l| l.flock || l.ino != ino || l.owner != owner);
                done
            }
            Opcode::READ => {
                let read: ReadIn = request.body_as().unwrap();
                self.open(read.fh, ino);
                Ok(disk.borrow().read(ino, read.offset as usize, read.size as usize))
            }
            Opcode::WRITE => {
                let write: WriteIn = request.body_as().unwrap();
                let flags = self.open(write.fh, ino).flags;
                let data = &request.body[40..][..write.size as usize];
                let mut at = write.offset as usize;
                let (head, tail) = data.split_at(data.len() / 2);
                if flags & 0o2000 != 0 {
                    at = disk.borrow().get(ino).data.len();
                }
                disk.borrow_mut().write(ino, at, head);
                self.clock.tick(); // half of it is there
                disk.borrow_mut().write(ino, at + head.len(), tail);
                for (_, kh) in self.polls.extract_if(.., |(polled, _)| *polled == ino) {
                    let body = NotifyPollWakeupOut { kh };
                    self.notes.push(build::notify(notify::POLL, body.as_bytes()));
                }
                Ok(WriteOut { size: write.size, padding: 0 }.as_bytes().to_vec())
            }
            Opcode::SETXATTR => {
                let flags = request.body_as::<SetxattrInShort>().unwrap().flags;
                let value = request.xattr_value().unwrap();
                disk.borrow_mut().set_xattr(ino, first, value, flags)?;
                done
            }
            Opcode::GETXATTR => disk.borrow().get(ino).xattrs.get(first).cloned().ok_or(ENODATA),
            Opcode::REMOVEXATTR => {
                disk.borrow_mut().remove_xattr(ino, first)?;
                done
            }
            Opcode::READDIR | Opcode::READDIRPLUS => {
                let read: ReadIn = request.body_as().unwrap();
                self.open(read.fh, ino);
                Ok(self.list(&read, request.opcode() == Opcode::READDIRPLUS))
            }
            Opcode::POLL => {
                let poll: PollIn = request.body_as().unwrap();
                self.open(poll.fh, ino);
                let ready = !disk.borrow().get(ino).data.is_empty();
                if !ready && poll.flags & POLL_SCHEDULE_NOTIFY != 0 {
                    self.polls.push((ino, poll.kh));
                }
                Ok(PollOut { revents: ready.into(), padding: 0 }.as_bytes().to_vec())
            }
            other => panic!("daemon: unexpected {other}"),
        }
    }
}
