//! The namespace of a volume, as the kernel asks it.

mod looks;

pub use looks::{moments, object_at, reached, tell, told_at, tree, tree_apart};

use crate::memory::SimMemory;
use crate::posix::acts::{Act, When};
use crate::posix::told::{device, tell_times};
use belay_object::{Lower, ObjectId};
use belay_posix::namespace::{Change, Namespace, Node, Rename};
use belay_posix::{Error, Kind, ROOT, Time};
use rustix::io::Errno;

type Asked<'n, 'v, B> = Namespace<'n, 'v, SimMemory, B>;
type Result<T, B> = std::result::Result<T, Error<<B as Lower>::Error>>;

/// What a path leads to, without links: the directory, and the name in it.
fn parent<'p, B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    path: &'p str,
) -> Result<(ObjectId, &'p [u8]), B> {
    let mut at = ROOT;
    let mut names: Vec<&str> = path.split('/').collect();
    let last = names.pop().unwrap_or_default();
    for name in names {
        at = follow(namespace, at, name)?.object;
    }
    Ok((at, last.as_bytes()))
}

/// A name in the middle of a path: the links of this test lead nowhere.
fn follow<B: Lower>(namespace: &mut Asked<'_, '_, B>, at: ObjectId, name: &str) -> Result<Node, B> {
    let node = namespace.lookup(at, name.as_bytes())?;
    match node.metadata.kind() {
        Kind::Link => Err(Errno::NOENT.into()),
        Kind::Directory => Ok(node),
        _ => Err(Errno::NOTDIR.into()),
    }
}

/// What a path leads to.
fn found<B: Lower>(namespace: &mut Asked<'_, '_, B>, path: &str) -> Result<Node, B> {
    let (at, name) = parent(namespace, path)?;
    namespace.lookup(at, name)
}

/// A file that is opened for writing, without following links.
fn writing<B: Lower>(namespace: &mut Asked<'_, '_, B>, path: &str) -> Result<ObjectId, B> {
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
pub fn open<B: Lower>(namespace: &mut Asked<'_, '_, B>, path: &str) -> Result<ObjectId, B> {
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
pub fn doomed<B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    act: &Act,
) -> Result<Option<ObjectId>, B> {
    let (path, by) = match act {
        Act::Unlink(path) | Act::Rmdir(path) => (path, None),
        Act::Rename(path, new, Rename::Replace) => (new, Some(found(namespace, path)?.object)),
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
pub fn act<B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    act: &Act,
    open: Option<ObjectId>,
) -> Result<Vec<u8>, B> {
    let done = match act {
        Act::Create(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.make(at, name, 0o100_644, 0).map(|_| ())
        }
        Act::Mkdir(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.make(at, name, 0o040_755, 0).map(|_| ())
        }
        Act::Symlink(target, path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.symlink(at, name, target.as_bytes()).map(|_| ())
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
            namespace.link(node.object, to, new_name).map(|_| ())
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
            namespace.write(node, Some(*offset), data)
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
                _ => namespace.write(node.object, Some(*offset), data),
            }
        }
        Act::CreateIn(_, name) => {
            let at = open.ok_or(Errno::BADF)?;
            // As the kernel, which does not ask for a name in what is no directory.
            if namespace.node(at)?.metadata.kind() != Kind::Directory {
                return Err(Errno::NOTDIR.into());
            }
            namespace.make(at, name.as_bytes(), 0o100_644, 0).map(|_| ())
        }
        Act::Mknod(path, mode, number) => {
            let (at, name) = parent(namespace, path)?;
            namespace.make(at, name, *mode, device(*number)).map(|_| ())
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
            let now = namespace.caller().now;
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
            namespace.allocate(node, *offset, *length, *flags).map(|_| ())
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

/// A file whose extended attributes are asked for. The kernel allows users to have some of files and directories only.
fn with_extended<B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    path: &str,
    name: &str,
    errno: Errno,
) -> Result<ObjectId, B> {
    let node = found(namespace, path)?;
    match node.metadata.kind() {
        Kind::Link | Kind::Special if name.starts_with("user.") => Err(errno.into()),
        _ => Ok(node.object),
    }
}
