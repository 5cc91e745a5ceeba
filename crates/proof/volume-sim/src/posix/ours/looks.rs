//! What is there, told as the oracle tells it.

use super::found;
use crate::posix::names::{Names, Result};
use crate::posix::told::{Apart, Moments, Tree, sum, tell_extended};
use belay_object::ObjectId;
use belay_posix::namespace::Node;
use belay_posix::{Kind, ROOT, Time};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// All that is in a directory.
///
/// # Errors
/// Those of the namespace.
pub fn tree<N: Names>(namespace: &mut N, directory: ObjectId) -> Result<Tree, N> {
    let mut all = Tree::new();
    walk(namespace, directory, String::new(), &mut |namespace, path, node| {
        let told = tell(namespace, node)?;
        all.insert(path, told);
        Ok(())
    })?;
    Ok(all)
}

/// The same, with data apart from all else.
///
/// # Errors
/// Those of the namespace.
pub fn tree_apart<N: Names>(namespace: &mut N, directory: ObjectId) -> Result<Apart, N> {
    let mut all = Apart::new();
    walk(namespace, directory, String::new(), &mut |namespace, path, node| {
        let told = tell_apart(namespace, node)?;
        all.insert(path, told);
        Ok(())
    })?;
    Ok(all)
}

/// What is told of what a path leads to, with data apart.
///
/// # Errors
/// Those of the namespace.
pub fn told_at<N: Names>(namespace: &mut N, path: &str) -> Result<(String, Option<Vec<u8>>), N> {
    let node = found(namespace, path)?;
    tell_apart(namespace, &node)
}

/// Which object a path leads to.
///
/// # Errors
/// Those of the namespace.
pub fn object_at<N: Names>(namespace: &mut N, path: &str) -> Result<ObjectId, N> {
    match path {
        "" => Ok(ROOT),
        path => Ok(found(namespace, path)?.object),
    }
}

/// The times of a directory and all that is in it.
///
/// # Errors
/// Those of the namespace.
pub fn moments<N: Names>(namespace: &mut N, directory: ObjectId) -> Result<Moments, N> {
    let moment = |node: &Node| {
        let told = |time: Time| (time.seconds, time.nanoseconds);
        (node.object.0, [told(node.metadata.modified), told(node.metadata.changed)])
    };
    let mut all = Moments::new();
    all.insert(String::new(), moment(&namespace.node(directory)?));
    walk(namespace, directory, String::new(), &mut |_, path, node| {
        all.insert(path, moment(node));
        Ok(())
    })?;
    Ok(all)
}

/// The objects that names in and below a directory lead to, with those of their extended
/// attributes.
///
/// # Errors
/// Those of the namespace.
pub fn reached<N: Names>(namespace: &mut N, directory: ObjectId) -> Result<BTreeSet<ObjectId>, N> {
    let mut all = BTreeSet::new();
    walk(namespace, directory, String::new(), &mut |_, _, node| {
        let extended = node.metadata.extended;
        all.extend([node.object, extended].into_iter().filter(|object| object.0 != 0));
        Ok(())
    })?;
    Ok(all)
}

/// What is told of a file.
///
/// # Errors
/// Those of the namespace.
pub fn tell<N: Names>(namespace: &mut N, node: &Node) -> Result<String, N> {
    let (mut told, data) = tell_apart(namespace, node)?;
    if let Some(data) = data {
        let _ = write!(told, " {:x}", sum(&data));
    }
    Ok(told)
}

/// What is told of a file but its data, and these.
fn tell_apart<N: Names>(namespace: &mut N, node: &Node) -> Result<(String, Option<Vec<u8>>), N> {
    let metadata = &node.metadata;
    let mut told = format!("{:o} {} links", metadata.mode, metadata.links);
    let _ = write!(told, " of {}:{}", metadata.uid, metadata.gid);
    if matches!(metadata.mode & 0o170_000, 0o020_000 | 0o060_000) {
        let _ = write!(told, " device {:x}", metadata.device);
    }
    if metadata.kind() != Kind::Directory {
        let _ = write!(told, " {} bytes", node.size);
    }
    let extended = namespace.extended(node.object)?;
    told += &tell_extended(extended);
    match metadata.kind() {
        Kind::Link => {
            let target = namespace.readlink(node.object)?;
            let _ = write!(told, " {}", String::from_utf8_lossy(&target));
        }
        Kind::File => {
            let data = namespace.read(node.object, 0, usize::MAX)?;
            return Ok((told, Some(data)));
        }
        Kind::Directory | Kind::Special => {}
    }
    Ok((told, None))
}

/// What is done with each path.
type Each<'e, N> = dyn FnMut(&mut N, String, &Node) -> Result<(), N> + 'e;

/// Calls `each` with all paths in and below a directory.
fn walk<N: Names>(
    namespace: &mut N,
    directory: ObjectId,
    path: String,
    each: &mut Each<'_, N>,
) -> Result<(), N> {
    let mut behind = 2;
    loop {
        let entries = namespace.list(directory, behind)?;
        let Some(last) = entries.last() else { return Ok(()) };
        behind = last.key;
        for entry in entries {
            let node = namespace.node(entry.object)?;
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            if node.metadata.kind() == Kind::Directory {
                walk(namespace, node.object, path.clone(), each)?;
            }
            each(namespace, path, &node)?;
        }
    }
}
