//! The namespace of a volume, as the kernel asks it.

mod looks;

pub use looks::{moments, object_at, reached, tell, told_at, tree, tree_apart};

use crate::posix::acts::{Act, When};
use crate::posix::names::{Names, Result};
use crate::posix::told::{device, tell_times};
use belay_object::ObjectId;
use belay_posix::namespace::{Change, Node, Rename};
use belay_posix::{Error, Kind, ROOT, Time};
use rustix::io::Errno;

/// What a path leads to, without links: the directory, and the name in it.
fn parent<'p, N: Names>(namespace: &mut N, path: &'p str) -> Result<(ObjectId, &'p [u8]), N> {
    let mut at = ROOT;
    let mut names: Vec<&str> = path.split('/').collect();
    let last = names.pop().unwrap_or_default();
    for name in names {
        at = follow(namespace, at, name)?.object;
    }
    Ok((at, last.as_bytes()))
}

/// A name in the middle of a path: the links of this test lead nowhere.
fn follow<N: Names>(namespace: &mut N, at: ObjectId, name: &str) -> Result<Node, N> {
    let node = namespace.lookup(at, name.as_bytes())?;
    match node.metadata.kind() {
        Kind::Link => Err(Errno::NOENT.into()),
        Kind::Directory => Ok(node),
        _ => Err(Errno::NOTDIR.into()),
    }
}

/// What a path leads to.
fn found<N: Names>(namespace: &mut N, path: &str) -> Result<Node, N> {
    let (at, name) = parent(namespace, path)?;
    namespace.lookup(at, name)
}

/// A file that is opened for writing, without following links.
fn writing<N: Names>(namespace: &mut N, path: &str) -> Result<ObjectId, N> {
    let node = found(namespace, path)?;
    match node.metadata.kind() {
        Kind::Link => Err(Errno::LOOP.into()),
        Kind::Directory => Err(Errno::ISDIR.into()),
        Kind::Special => Err(Errno::OPNOTSUPP.into()),
        Kind::File => Ok(node.object),
    }
}

/// Opens a file or a directory, but nothing else, and no link.
///
/// # Errors
/// Those of the namespace.
pub fn open<N: Names>(namespace: &mut N, path: &str) -> Result<ObjectId, N> {
    let node = found(namespace, path)?;
    match node.metadata.kind() {
        Kind::File | Kind::Directory => Ok(node.object),
        _ => Err(Errno::OPNOTSUPP.into()),
    }
}

/// What has no name any more if this is done.
///
/// # Errors
/// Those of the namespace.
pub fn doomed<N: Names>(namespace: &mut N, act: &Act) -> Result<Option<ObjectId>, N> {
    let (path, by) = match act {
        Act::Unlink(path) | Act::Rmdir(path) => (path, None),
        Act::Rename(path, new, Rename::Replace | Rename::Whiteout) => {
            (new, Some(found(namespace, path)?.object))
        }
        _ => return Ok(None),
    };
    let node = found(namespace, path)?;
    let is_last = node.metadata.kind() == Kind::Directory || node.metadata.links == 1;
    Ok((is_last && by != Some(node.object)).then_some(node.object))
}

/// Does something.
///
/// # Errors
/// Those of the namespace.
pub fn act<N: Names>(namespace: &mut N, act: &Act, open: Option<ObjectId>) -> Result<Vec<u8>, N> {
    let done = match act {
        Act::Create(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.make(at, name, 0o100_644, 0)
        }
        Act::Mkdir(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.make(at, name, 0o040_755, 0)
        }
        Act::Symlink(target, path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.symlink(at, name, target.as_bytes())
        }
        Act::Link(path, new) => {
            let node = found(namespace, path)?;
            let (to, new_name) = parent(namespace, new)?;
            // As the kernel: what is there is found before what is wrong with the file.
            match namespace.lookup(to, new_name) {
                Ok(_) => return Err(Errno::EXIST.into()),
                Err(Error::Errno(Errno::NOENT)) => {}
                Err(why) => return Err(why),
            }
            namespace.link(node.object, to, new_name)
        }
        Act::Unlink(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.unlink(at, name)
        }
        Act::Rmdir(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.rmdir(at, name)
        }
        Act::Rename(path, new, how) => {
            let from = parent(namespace, path)?;
            let to = parent(namespace, new)?;
            namespace.rename(from, to, *how)
        }
        Act::Write(path, offset, data) => {
            let node = writing(namespace, path)?;
            namespace.write(node, *offset, data)
        }
        Act::Truncate(path, size) => {
            let node = writing(namespace, path)?;
            namespace.change(node, Change { size: Some(*size), ..Change::default() }).map(|_| ())
        }
        Act::Chmod(path, mode) => {
            let node = found(namespace, path)?;
            if node.metadata.kind() == Kind::Link {
                return Err(Errno::LOOP.into());
            }
            let change = Change { mode: Some(*mode), ..Change::default() };
            namespace.change(node.object, change).map(|_| ())
        }
        Act::WriteOpen(_, offset, data) => {
            let node = namespace.node(open.ok_or(Errno::BADF)?)?;
            match node.metadata.kind() {
                // It is open for reading only.
                Kind::Directory => Err(Errno::BADF.into()),
                _ => namespace.write(node.object, *offset, data),
            }
        }
        Act::CreateIn(_, name) => {
            let at = open.ok_or(Errno::BADF)?;
            // As the kernel, which does not ask for a name in what is no directory, nor in one that
            // is removed.
            let directory = namespace.node(at)?.metadata;
            match (directory.kind(), directory.links) {
                (Kind::Directory, 0) => return Err(Errno::NOENT.into()),
                (Kind::Directory, _) => {}
                _ => return Err(Errno::NOTDIR.into()),
            }
            namespace.make(at, name.as_bytes(), 0o100_644, 0)
        }
        Act::Mknod(path, mode, number) => {
            let (at, name) = parent(namespace, path)?;
            namespace.make(at, name, *mode, device(*number))
        }
        Act::Chown(path, uid, gid) => {
            let node = found(namespace, path)?;
            let mut change = Change { uid: *uid, gid: *gid, ..Change::default() };
            let mode = node.metadata.mode;
            if node.metadata.kind() != Kind::Directory && mode & 0o6000 != 0 {
                // As the kernel: a program does not run with the rights of its new owner.
                let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
                change.mode = Some(mode & 0o7777 & !0o4000 & !group);
            }
            namespace.change(node.object, change).map(|_| ())
        }
        Act::Utimes(_, When::Omit, When::Omit) => Ok(()),
        Act::Utimes(path, accessed, modified) => {
            let node = found(namespace, path)?.object;
            let now = namespace.now();
            let time = |when| match when {
                When::Omit => None,
                When::Now => Some(now),
                When::At(seconds, nanoseconds) => Some(Time { seconds, nanoseconds }),
            };
            let (new, other) = (time(*accessed), time(*modified));
            let change = Change { accessed: new, modified: other, ..Change::default() };
            let found = namespace.change(node, change)?.metadata;
            let told = |time: Time| (time.seconds, time.nanoseconds);
            return Ok(tell_times(
                (*accessed, told(found.accessed)),
                (*modified, told(found.modified)),
            ));
        }
        Act::Allocate(path, offset, length, flags) => {
            let node = writing(namespace, path)?;
            namespace.allocate(node, *offset, *length, *flags)
        }
        Act::SetExtended(path, name, value, how) => {
            // The kernel looks at these before it looks for the file.
            if name.len() > 255 {
                return Err(Errno::RANGE.into());
            }
            if value.len() > 65_536 {
                return Err(Errno::TOOBIG.into());
            }
            let node = with_extended(namespace, path, name, Errno::PERM)?;
            namespace.set_extended(node, name.as_bytes(), value, *how)
        }
        Act::GetExtended(path, name) => {
            if name.len() > 255 {
                return Err(Errno::RANGE.into());
            }
            let node = with_extended(namespace, path, name, Errno::NODATA)?;
            return namespace.get_extended(node, name.as_bytes());
        }
        Act::RemoveExtended(path, name) => {
            if name.len() > 255 {
                return Err(Errno::RANGE.into());
            }
            let node = with_extended(namespace, path, name, Errno::PERM)?;
            namespace.remove_extended(node, name.as_bytes())
        }
        Act::Open(_) | Act::Close(_) => Ok(()),
    };
    done.map(|()| Vec::new())
}

/// A file whose extended attributes are asked for. The kernel allows users to have some of files
/// and directories only.
fn with_extended<N: Names>(
    namespace: &mut N,
    path: &str,
    name: &str,
    errno: Errno,
) -> Result<ObjectId, N> {
    let node = found(namespace, path)?;
    match node.metadata.kind() {
        Kind::Link | Kind::Special if name.starts_with("user.") => Err(errno.into()),
        _ => Ok(node.object),
    }
}
