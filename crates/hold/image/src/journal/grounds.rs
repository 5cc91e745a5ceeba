//! What an image is in the end: files and disks, however many devices there are on the way.
//!
//! A loop device is followed to its file, also if that is a device again; a partition to its disk;
//! what is made of other devices (dm, md) to each of these, of which it has some part that nobody
//! but the kernel knows. On the way each device that could be named as an image itself is one of
//! the grounds.

use super::behind::Behind;
use super::device::{Device, SECTOR};
use belay_sys::PinnedFile;
use rustix::fd::AsFd;
use rustix::fs::{CWD, FileType, OFlags};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Devices on one way: more than anybody stacks. What is behind them is not known.
const DEEPEST: usize = 16;
/// Grounds of one image.
const MOST: usize = 64;

/// One thing that a write to the image may write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// What it is.
    pub behind: Behind,
    /// Where it can be opened; `None` where nothing that is known leads to it.
    pub path: Option<PathBuf>,
    /// The image has all of it, and is known to.
    pub is_whole: bool,
}

/// The file behind a loop device.
pub(super) struct File {
    /// Its path, if that leads to it.
    path: Option<(PathBuf, Metadata)>,
    device: u64,
    inode: u64,
    /// Where in it the device begins, in bytes.
    pub(super) offset: u64,
    /// What the kernel says itself, and not only the name that the file had.
    is_sure: bool,
}

impl File {
    /// That of the loop device `device`, which can be opened as `node`.
    pub(super) fn of(device: &Device, node: Option<&Path>) -> Option<Self> {
        let named = std::fs::read(device.disk.join("loop/backing_file")).ok()?;
        let named = named.strip_suffix(b"\n").unwrap_or(&named).to_vec();
        let path = PathBuf::from(OsString::from_vec(named)).canonicalize().ok();
        let found = path.and_then(|path| path.metadata().ok().map(|meta| (path, meta)));
        // What is there by now may be no device at all.
        let open = |node| {
            let pinned = PinnedFile::at(CWD, node).ok();
            let pinned = pinned.filter(|pinned| pinned.kind() == FileType::BlockDevice)?;
            pinned.open(OFlags::RDONLY | OFlags::NONBLOCK).ok()
        };
        let told = node.and_then(open).and_then(|node| belay_sys::loop_file(node.as_fd()).ok());
        Some(match (told, found) {
            (Some(told), found) => Self {
                // The name may be another file's by now.
                path: found
                    .filter(|(_, meta)| (meta.dev(), meta.ino()) == (told.device, told.inode)),
                device: told.device,
                inode: told.inode,
                offset: told.offset,
                is_sure: true,
            },
            (None, Some((path, meta))) => Self {
                device: meta.dev(),
                inode: meta.ino(),
                offset: device.number("loop/offset"),
                path: Some((path, meta)),
                is_sure: false,
            },
            (None, None) => return None,
        })
    }

    /// The file, if its path leads to it.
    pub(super) fn regular(&self) -> Option<&(PathBuf, Metadata)> {
        self.path.as_ref().filter(|(_, meta)| meta.is_file())
    }

    /// The device that it is, and its node.
    pub(super) fn block(&self) -> Option<(u64, &Path)> {
        let (path, meta) = self.path.as_ref()?;
        meta.file_type().is_block_device().then_some((meta.rdev(), path))
    }

    /// Whether a loop device of `size` sectors can be of this file. Where whoever made the device
    /// has other mounts, the path may be another file's here.
    pub(super) fn can_be_of(&self, size: u64) -> bool {
        let fits = |(_, meta): &(PathBuf, Metadata)| {
            size <= meta.len().saturating_sub(self.offset) / SECTOR
        };
        self.is_sure || self.regular().is_none_or(fits)
    }
}

/// A way from the image to what is behind it.
#[derive(Clone, Copy)]
struct Way {
    start: u64,
    length: u64,
    /// See [`Behind::through`].
    through: u64,
    depth: usize,
}

impl Way {
    fn behind(self, device: u64, inode: u64) -> Behind {
        Behind { device, inode, start: self.start, length: self.length, through: self.through }
    }
}

/// What the device `number` is in the end, which can be opened as `node`.
pub(super) fn grounds(number: u64, node: Option<PathBuf>, sys: &Path) -> Vec<Ground> {
    let mut found = Vec::new();
    let way = Way { start: 0, length: u64::MAX, through: 0, depth: 0 };
    follow(number, node, way, sys, &mut found);
    found.truncate(MOST);
    found
}

/// That of a file.
pub(super) fn of_file(path: &Path, meta: &Metadata) -> Ground {
    let way = Way { start: 0, length: u64::MAX, through: 0, depth: 0 };
    let behind = way.behind(meta.dev(), meta.ino());
    Ground { behind, path: Some(path.to_path_buf()), is_whole: true }
}

fn follow(number: u64, node: Option<PathBuf>, way: Way, sys: &Path, found: &mut Vec<Ground>) {
    let device = Device::of(number, sys).filter(|_| way.depth < DEEPEST && found.len() < MOST);
    let mut add = |behind: Behind, path: Option<PathBuf>, whole: bool| {
        found.push(Ground { behind, path, is_whole: whole && behind.through == 0 });
    };
    let all = way.start == 0 && way.length == u64::MAX;
    let Some(device) = device else { return add(way.behind(number, 0), node, all) };
    let size = device.of_own("size").saturating_mul(SECTOR);
    // A size that is not told is none.
    let rest = if size == 0 { u64::MAX } else { size.saturating_sub(way.start) };
    let length = way.length.min(rest);
    let deeper = Way { length, depth: way.depth + 1, ..way };
    if !device.partition.is_empty() {
        add(way.behind(number, 0), node, all);
        if let Some((disk, node)) = device.above(sys) {
            let start = device.of_own("start").saturating_mul(SECTOR).saturating_add(way.start);
            follow(disk, node, Way { start, ..deeper }, sys, found);
        }
        return;
    }
    if let Some(file) =
        File::of(&device, node.as_deref()).filter(|file| file.can_be_of(size / SECTOR))
    {
        let start = file.offset.saturating_add(way.start);
        let deeper = Way { start, ..deeper };
        if let Some((disk, node)) = file.block() {
            return follow(disk, Some(node.to_path_buf()), deeper, sys, found);
        }
        let path = file.regular();
        let end = start.saturating_add(length).saturating_add(SECTOR);
        // A limit that is no shorter than the file is none.
        let unlimited = all && device.number("loop/sizelimit") == 0;
        let is_all = start == 0 && path.is_some_and(|(_, meta)| unlimited || end > meta.len());
        // Another name of the file must meet this one: nothing of it is left.
        let length = if is_all { u64::MAX } else { length };
        let behind = Way { length, ..deeper }.behind(file.device, file.inode);
        let lost = path.is_none().then(|| way.behind(number, 0));
        add(behind, path.map(|(path, _)| path.clone()), is_all);
        // Its file cannot be opened; but who names the same device can be met.
        if let Some(lost) = lost {
            add(lost, node, all);
        }
        return;
    }
    add(way.behind(number, 0), node, all);
    let through = if way.through == 0 { number } else { way.through };
    for (part, node) in device.parts(sys) {
        let way = Way { start: 0, length: u64::MAX, through, depth: way.depth + 1 };
        follow(part, node, way, sys, found);
    }
}
