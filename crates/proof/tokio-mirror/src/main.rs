//! A daemon for tests: shows a folder, read-only. It reads its device without waiting, when epoll
//! says that there is something, in one thread of tokio: what daemons of the crate `fuse3` do.
//!
//! Usage: `belay-tokio-mirror FOLDER MOUNTPOINT`
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fuse3::raw::prelude::*;
use fuse3::{FileType, MountOptions, Timestamp};
use futures_util::stream::{Stream, iter};

/// The root's number for the kernel.
const ROOT: u64 = 1;
/// Nothing is kept by the kernel, so that everything asks this daemon.
const TTL: Duration = Duration::ZERO;
const LARGEST_WRITE: NonZeroU32 = NonZeroU32::new(128 << 10).unwrap();

/// The folder, and where each file was that the kernel has asked for, by inode number.
struct Mirror {
    root: PathBuf,
    paths: Mutex<HashMap<u64, PathBuf>>,
}

impl Mirror {
    fn paths(&self) -> MutexGuard<'_, HashMap<u64, PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, inode: u64) -> io::Result<PathBuf> {
        match inode {
            ROOT => Ok(self.root.clone()),
            inode => self.paths().get(&inode).cloned().ok_or(io::ErrorKind::NotFound.into()),
        }
    }

    fn attr(&self, path: &Path) -> io::Result<FileAttr> {
        let meta = path.symlink_metadata()?;
        let number = if path == self.root { ROOT } else { meta.ino() };
        self.paths().insert(number, path.to_owned());
        Ok(attr(number, &meta))
    }

    /// What is in a directory, from the entry after `offset` on.
    fn list(&self, inode: u64, offset: u64) -> io::Result<Vec<(OsString, i64, FileAttr)>> {
        let path = self.path(inode)?;
        let mut names = vec![OsString::from("."), OsString::from("..")];
        for entry in fs::read_dir(&path)? {
            names.push(entry?.file_name());
        }
        names.sort();
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for (at, name) in names.into_iter().enumerate().skip(skip) {
            let own = name == "." || name == "..";
            let attr = if own { self.attr(&path) } else { self.attr(&path.join(&name)) };
            found.push((name, at as i64 + 1, attr?));
        }
        Ok(found)
    }
}

fn attr(ino: u64, meta: &Metadata) -> FileAttr {
    let time = |seconds, nanos| Timestamp::new(seconds, u32::try_from(nanos).unwrap_or(0));
    FileAttr {
        ino,
        size: meta.size(),
        blocks: meta.blocks(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        kind: kind(meta),
        perm: (meta.mode() & 0o7777) as u16,
        nlink: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: u32::try_from(meta.rdev()).unwrap_or(0),
        blksize: 4096,
    }
}

fn kind(meta: &Metadata) -> FileType {
    let kind = meta.file_type();
    match kind {
        _ if kind.is_dir() => FileType::Directory,
        _ if kind.is_symlink() => FileType::Symlink,
        _ if kind.is_fifo() => FileType::NamedPipe,
        _ if kind.is_socket() => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

impl Filesystem for Mirror {
    async fn init(&self, _: Request) -> fuse3::Result<ReplyInit> {
        Ok(ReplyInit::new(LARGEST_WRITE))
    }

    async fn destroy(&self, _: Request) {}

    async fn lookup(&self, _: Request, parent: u64, name: &OsStr) -> fuse3::Result<ReplyEntry> {
        let attr = self.attr(&self.path(parent)?.join(name))?;
        Ok(ReplyEntry { ttl: TTL, attr, generation: 0 })
    }

    async fn getattr(
        &self,
        _: Request,
        inode: u64,
        _: Option<u64>,
        _: u32,
    ) -> fuse3::Result<ReplyAttr> {
        Ok(ReplyAttr { ttl: TTL, attr: self.attr(&self.path(inode)?)? })
    }

    async fn readlink(&self, _: Request, inode: u64) -> fuse3::Result<ReplyData> {
        let target = fs::read_link(self.path(inode)?)?;
        Ok(ReplyData { data: Bytes::copy_from_slice(target.as_os_str().as_bytes()) })
    }

    async fn open(&self, _: Request, inode: u64, _: u32) -> fuse3::Result<ReplyOpen> {
        File::open(self.path(inode)?)?;
        Ok(ReplyOpen { fh: 0, flags: 0 })
    }

    async fn read(
        &self,
        _: Request,
        inode: u64,
        _: u64,
        offset: u64,
        size: u32,
    ) -> fuse3::Result<ReplyData> {
        let file = File::open(self.path(inode)?)?;
        let mut data = vec![0; size as usize];
        let mut filled = 0;
        while let Some(rest) = data.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + filled as u64)? {
                0 => break,
                got => filled += got,
            }
        }
        data.truncate(filled);
        Ok(ReplyData { data: data.into() })
    }

    async fn opendir(&self, _: Request, inode: u64, _: u32) -> fuse3::Result<ReplyOpen> {
        fs::read_dir(self.path(inode)?)?;
        Ok(ReplyOpen { fh: 0, flags: 0 })
    }

    async fn readdir<'a>(
        &'a self,
        _: Request,
        parent: u64,
        _: u64,
        offset: i64,
    ) -> fuse3::Result<ReplyDirectory<impl Stream<Item = fuse3::Result<DirectoryEntry>> + Send + 'a>>
    {
        let found = self.list(parent, u64::try_from(offset).unwrap_or(0))?;
        let entry = |(name, offset, attr): (OsString, i64, FileAttr)| {
            Ok(DirectoryEntry { inode: attr.ino, kind: attr.kind, name, offset })
        };
        Ok(ReplyDirectory { entries: iter(found.into_iter().map(entry).collect::<Vec<_>>()) })
    }

    async fn readdirplus<'a>(
        &'a self,
        _: Request,
        parent: u64,
        _: u64,
        offset: u64,
        _: u64,
    ) -> fuse3::Result<
        ReplyDirectoryPlus<impl Stream<Item = fuse3::Result<DirectoryEntryPlus>> + Send + 'a>,
    > {
        let entry = |(name, offset, attr): (OsString, i64, FileAttr)| {
            Ok(DirectoryEntryPlus {
                inode: attr.ino,
                generation: 0,
                kind: attr.kind,
                name,
                offset,
                attr,
                entry_ttl: TTL,
                attr_ttl: TTL,
            })
        };
        let found = self.list(parent, offset)?;
        Ok(ReplyDirectoryPlus { entries: iter(found.into_iter().map(entry).collect::<Vec<_>>()) })
    }
}

async fn serve(root: PathBuf, mountpoint: PathBuf) -> Result<()> {
    let mut options = MountOptions::default();
    options.fs_name("tokio-mirror").read_only(true).default_permissions(true);
    let mirror = Mirror { root, paths: Mutex::default() };
    let mount = Session::new(options).mount_with_unprivileged(mirror, &mountpoint).await;
    mount.context("mounting")?.await.context("serving")
}

fn main() -> Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [root, mountpoint] = arguments.as_slice() else {
        bail!("usage: belay-tokio-mirror FOLDER MOUNTPOINT");
    };
    let root = Path::new(root).canonicalize().context("looking for the folder")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(root, PathBuf::from(mountpoint)))
}
