//! Operations on names.

use std::time::Duration;

use rustix::fs::{
    self, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, XattrFlags,
    linkat, mkdirat, openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::{Done, Executor, data};
use crate::ops::{ANOTHER_TIME, Attr, RenameHow, Value};

/// Attribute names that a file system adds on its own are not compared.
const OURS: &str = "user.";

impl Executor {
    pub(super) fn truncate(&self, path: &str, len: u64) -> Done {
        nix::unistd::truncate(&self.absolute(path), i64::try_from(len).unwrap_or(i64::MAX))?;
        Ok(Value::Unit)
    }

    pub(super) fn mkdir(&mut self, path: &str, mode: u32) -> Done {
        mkdirat(&self.root_fd, path, Mode::from_raw_mode(mode))?;
        self.inodes.forget(path);
        Ok(Value::Unit)
    }

    pub(super) fn rmdir(&mut self, path: &str) -> Done {
        let mut result = unlinkat(&self.root_fd, path, AtFlags::REMOVEDIR);
        // PERM is what fusefat says of a directory that is not empty.
        if matches!(result, Err(Errno::NOTEMPTY | Errno::PERM)) && self.closed_one {
            if self.await_release(path, Duration::from_millis(500)) {
                result = unlinkat(&self.root_fd, path, AtFlags::REMOVEDIR);
            } else if self.slots.is_empty() {
                self.closed_one = false;
            }
        }
        result?;
        self.inodes.forget(path);
        Ok(Value::Unit)
    }

    pub(super) fn unlink(&mut self, path: &str) -> Done {
        unlinkat(&self.root_fd, path, AtFlags::empty())?;
        self.inodes.forget(path);
        Ok(Value::Unit)
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, how: RenameHow) -> Done {
        let fd = &self.root_fd;
        match how {
            RenameHow::Plain => renameat(fd, from, fd, to)?,
            RenameHow::NoReplace => renameat_with(fd, from, fd, to, RenameFlags::NOREPLACE)?,
            RenameHow::Exchange => renameat_with(fd, from, fd, to, RenameFlags::EXCHANGE)?,
        }
        if how == RenameHow::Exchange {
            self.inodes.exchange(from, to);
        } else {
            self.inodes.rename(from, to);
        }
        Ok(Value::Unit)
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> Done {
        linkat(&self.root_fd, from, &self.root_fd, to, AtFlags::empty())?;
        self.inodes.link(from, to);
        Ok(Value::Unit)
    }

    pub(super) fn symlink(&mut self, target: &str, path: &str) -> Done {
        symlinkat(target, &self.root_fd, path)?;
        self.inodes.forget(path);
        Ok(Value::Unit)
    }

    pub(super) fn readlink(&self, path: &str) -> Done {
        let target = readlinkat(&self.root_fd, path, Vec::new())?;
        Ok(Value::Text(target.to_string_lossy().into_owned()))
    }

    pub(super) fn stat(&mut self, path: &str, follow: bool) -> Done {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let era = self.inodes.era();
        let stat = statat(&self.root_fd, path, flags)?;
        // Through a symbolic link it is another object that has the number.
        let link = follow && readlinkat(&self.root_fd, path, Vec::new()).is_ok();
        let by_path = self.directories_by_path
            && FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let stable =
            if link || by_path { Some(true) } else { self.inodes.see(path, stat.st_ino, era) };
        Ok(Value::Attr(attr(&stat, stable)))
    }

    pub(super) fn statfs(&self, path: &str) -> Done {
        let fs = fs::statfs(self.absolute(path))?;
        Ok(Value::Fs { kind: fs.f_type, name_max: u64::try_from(fs.f_namelen).unwrap_or(0) })
    }

    pub(super) fn chmod(&self, path: &str, mode: u32) -> Done {
        fs::chmodat(&self.root_fd, path, Mode::from_raw_mode(mode), AtFlags::empty())?;
        Ok(Value::Unit)
    }

    pub(super) fn utimens(&self, path: &str, seconds: i64, nanos: i64) -> Done {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
        let times = Timestamps { last_access: time, last_modification: time };
        fs::utimensat(&self.root_fd, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        let stat = statat(&self.root_fd, path, AtFlags::SYMLINK_NOFOLLOW)?;
        if stat.st_mtime != seconds {
            // Not set (sshfs: the times of a link), so it tells only when the file was made.
            return Ok(Value::Text(ANOTHER_TIME.to_owned()));
        }
        Ok(Value::Time(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(-1)))
    }

    pub(super) fn set_xattr(
        &self,
        path: &str,
        name: &str,
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Done {
        let mut flags = XattrFlags::empty();
        flags.set(XattrFlags::CREATE, create);
        flags.set(XattrFlags::REPLACE, replace);
        fs::setxattr(self.absolute(path), name, value, flags)?;
        Ok(Value::Unit)
    }

    pub(super) fn get_xattr(&self, path: &str, name: &str) -> Done {
        let mut value = vec![0; 65536];
        let len = fs::getxattr(self.absolute(path), name, &mut value)?;
        Ok(data(&value[..len]))
    }

    pub(super) fn list_xattr(&self, path: &str) -> Done {
        let mut list = vec![0; 65536];
        let len = fs::listxattr(self.absolute(path), &mut list)?;
        let names =
            list[..len].split(|b| *b == 0).map(|name| String::from_utf8_lossy(name).into_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(OURS)).collect();
        names.sort_unstable();
        Ok(Value::Names(names))
    }

    pub(super) fn remove_xattr(&self, path: &str, name: &str) -> Done {
        fs::removexattr(self.absolute(path), name)?;
        Ok(Value::Unit)
    }

    pub(super) fn write_file(&mut self, path: &str, bytes: &[u8]) -> Done {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = openat(&self.root_fd, path, flags, Mode::from_raw_mode(0o644))?;
        self.inodes.forget(path);
        self.closed_one = true;
        std::io::Write::write_all(&mut std::fs::File::from(fd), bytes)?;
        Ok(Value::Unit)
    }

    pub(super) fn read_file(&self, path: &str) -> Done {
        let fd = openat(&self.root_fd, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut std::fs::File::from(fd), &mut all)?;
        Ok(data(&all))
    }
}

/// The comparable part of attributes.
pub(super) fn attr(stat: &Stat, ino_stable: Option<bool>) -> Attr {
    let file_type = FileType::from_raw_mode(stat.st_mode);
    let kind = match file_type {
        FileType::RegularFile => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        _ => '?',
    };
    Attr {
        kind,
        mode: stat.st_mode & 0o7777,
        size: (kind != 'd').then(|| u64::try_from(stat.st_size).unwrap_or(u64::MAX)),
        nlink: (kind == 'f').then_some(stat.st_nlink),
        ino_stable,
    }
}
