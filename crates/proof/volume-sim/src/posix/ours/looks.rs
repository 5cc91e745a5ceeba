//! What is there, told as the oracle tells it.

use super::{Asked, Result, found};
use crate::posix::told::{Apart, Moments, Tree, sum, tell_extended};
use belay_object::{Lower, ObjectId};
use belay_posix::namespace::Node;
use belay_posix::{Kind, ROOT, Time};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// All that is in a directory.
///
/// # Errors
/// Those of the namespace.
pub fn tree<B: Lower>(namespace: &mut Asked<'_, '_, B>, directory: ObjectId) -> Result<Tree, B> {
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
pub fn tree_apart<B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    directory: ObjectId,
) -> Result<Apart, B> {
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
pub fn told_at<B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    path: &str,
) -> Result<(String, Option<Vec<u8>>), B> {
    let node = found(namespace, path)?;
    tell_apart(namespace, &node)
}

/// Which object a path leads to.
///
/// # Errors
/// Those of the namespace.
pub fn object_at<B: Lower>(namespace: &mut Asked<'_, '_, B>, path: &str) -> Result<ObjectId, B> {
    match path {
        "" => Ok(ROOT),
        path => Ok(found(namespace, path)?.object),
    }
}

/// The times of a directory and all that is in it.
///
/// # Errors
/// Those of the namespace.
pub fn moments<B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    directory: ObjectId,
) -> Result<Moments, B> {
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

/// The objects that names in and below a directory lead to, with those of their extended attributes.
///
/// # Errors
/// Those of the namespace.
pub fn reached<B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    directory: ObjectId,
) -> Result<BTreeSet<ObjectId>, B> {
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
pub fn tell<B: Lower>(namespace: &mut Asked<'_, '_, B>, node: &Node) -> Result<String, B> {
    let (mut told, data) = tell_apart(namespace, node)?;
    if let Some(data) = data {
        let _ = write!(told, " {:x}", sum(&data));
    }
    Ok(told)
}

/// What is told of a file but its data, and these.
fn tell_apart<B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    node: &Node,
) -> Result<(String, Option<Vec<u8>>), B> {
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
    told += &tell_extended(extended.into_iter().map(|one| (one.name, one.value)).collect());
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
type Each<'e, B> = dyn FnMut(&mut Asked<'_, '_, B>, String, &Node) -> Result<(), B> + 'e;

/// Calls `each` with all paths in and below a directory.
fn walk<B: Lower>(
    namespace: &mut Asked<'_, '_, B>,
    directory: ObjectId,
    path: String,
    each: &mut Each<'_, B>,
) -> Result<(), B> {
    let mut behind = 2;
    loop {
        let entries = namespace.list(directory, behind, 7)?;
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
