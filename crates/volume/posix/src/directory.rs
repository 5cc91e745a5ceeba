//! How names lead to objects: a B+ tree in the pages of the directory's object, by the hashes of
//! the names.
//!
//! Page 0 is its root. A leaf has its names in the order of their keys, an inner page the least key
//! of each page below it. The key of a name is its hash, or one of the few behind it, if another
//! name has that; so each name has a key of its own, which says where a listing goes on, whatever
//! is made or removed meanwhile. Pages are never joined, but a directory without names has one
//! page.

use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::view::{Page, View};
use belay_memory::Memory;
use belay_object::{Lower, ObjectId, PAGE};
use rustix::io::Errno;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is in the order of the directory; above 2, less than 2^62.
    pub key: u64,
    /// What it leads to.
    pub object: ObjectId,
    /// What kind of file that is: the type bits of its mode, shifted right by 12.
    pub kind: u8,
    /// The name: 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// The longest name.
pub const NAME_MAX: usize = 255;

const LEAF: u8 = 1;
const INNER: u8 = 2;
/// Bytes before the first entry of a page.
const HEAD: usize = 16;
/// Bytes of an entry before its name.
const FIXED: usize = 18;
/// Bytes of an entry of an inner page.
const BELOW: usize = 16;
/// Names with one hash that there is room for.
pub(crate) const PROBES: u64 = 8;
/// Levels of a tree.
pub(crate) const DEEPEST: usize = 8;

/// The first key that a name can have.
pub(crate) const FIRST: u64 = 16;

/// A page of a directory, taken apart.
pub(crate) enum Node {
    Leaf(Vec<Entry>),
    Inner(Vec<(u64, u64)>),
}

const WRONG: &str = "a directory is wrong";

fn number(page: &Page, at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*page.get(at..)?.first_chunk()?))
}

pub(crate) fn decode<L>(page: &Page) -> Result<Node, L> {
    let wrong = || Error::Damaged(WRONG);
    let count = u16::from_le_bytes([page[2], page[3]]);
    let mut at = HEAD;
    match page[0] {
        0 | LEAF => {
            let mut entries: Vec<Entry> = Vec::new();
            for _ in 0..count {
                let (key, object) = (number(page, at), number(page, at + 8));
                let length = usize::from(*page.get(at + 17).ok_or_else(wrong)?);
                let name = page.get(at + FIXED..at + FIXED + length).ok_or_else(wrong)?;
                let kind = *page.get(at + 16).ok_or_else(wrong)?;
                let (key, object) = (key.ok_or_else(wrong)?, object.ok_or_else(wrong)?);
                if entries.last().is_some_and(|last| last.key >= key) || length == 0 {
                    return Err(wrong());
                }
                entries.push(Entry { key, object: ObjectId(object), kind, name: name.to_vec() });
                at += FIXED + length;
            }
            Ok(Node::Leaf(entries))
        }
        INNER => {
            let mut below: Vec<(u64, u64)> = Vec::new();
            for _ in 0..count {
                let one = number(page, at).zip(number(page, at + 8)).ok_or_else(wrong)?;
                if below.last().is_some_and(|last| last.0 >= one.0) {
                    return Err(wrong());
                }
                below.push(one);
                at += BELOW;
            }
            if below.is_empty() { Err(wrong()) } else { Ok(Node::Inner(below)) }
        }
        _ => Err(wrong()),
    }
}

/// A page of a directory, for whoever shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Names.
    Names(Vec<Entry>),
    /// Other pages, each with the least key of what is below it.
    Pages(Vec<(u64, u64)>),
}

/// Takes a page of a directory apart; `None` if it makes no sense.
pub fn page(page: &Page) -> Option<Decoded> {
    match decode::<std::convert::Infallible>(page).ok()? {
        Node::Leaf(entries) => Some(Decoded::Names(entries)),
        Node::Inner(below) => Some(Decoded::Pages(below)),
    }
}

fn size_of(entries: &[Entry]) -> usize {
    HEAD + entries.iter().map(|entry| FIXED + entry.name.len()).sum::<usize>()
}

fn encode(node: &Node, page: &mut Page) {
    let mut bytes = Vec::with_capacity(PAGE);
    let (kind, count) = match node {
        Node::Leaf(entries) => (LEAF, entries.len()),
        Node::Inner(below) => (INNER, below.len()),
    };
    bytes.extend_from_slice(&[kind, 0]);
    bytes.extend_from_slice(&(count as u16).to_le_bytes());
    bytes.resize(HEAD, 0);
    match node {
        Node::Leaf(entries) => {
            for entry in entries {
                bytes.extend_from_slice(&entry.key.to_le_bytes());
                bytes.extend_from_slice(&entry.object.0.to_le_bytes());
                bytes.extend_from_slice(&[entry.kind, entry.name.len() as u8]);
                bytes.extend_from_slice(&entry.name);
            }
        }
        Node::Inner(below) => {
            for (key, child) in below {
                bytes.extend_from_slice(&key.to_le_bytes());
                bytes.extend_from_slice(&child.to_le_bytes());
            }
        }
    }
    bytes.resize(PAGE, 0);
    page.copy_from_slice(&bytes);
}

/// An inner page on the way to a leaf: which one, which of its entries was gone by, and all of
/// these.
type Step = (u64, usize, Vec<(u64, u64)>);

/// The way to a leaf.
struct Way {
    above: Vec<Step>,
    leaf: u64,
    entries: Vec<Entry>,
    /// The first key behind this leaf.
    end: Option<u64>,
}

fn way<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    directory: ObjectId,
    key: u64,
) -> Result<Way, B::Error> {
    let pages = view.size(directory)? / PAGE as u64;
    let (mut page, mut above, mut end) = (0, Vec::new(), None);
    loop {
        match decode(view.page(directory, page)?)? {
            Node::Leaf(entries) => return Ok(Way { above, leaf: page, entries, end }),
            Node::Inner(below) => {
                let at = below.partition_point(|(least, _)| *least <= key).saturating_sub(1);
                end = below.get(at + 1).map(|(least, _)| *least).or(end);
                let next = below.get(at).map_or(0, |(_, child)| *child);
                if next == 0 || next >= pages || above.len() >= DEEPEST {
                    return Err(Error::Damaged(WRONG));
                }
                above.push((page, at, below));
                page = next;
            }
        }
    }
}

/// Looks for a name.
///
/// # Errors
/// Those of reading.
pub fn find<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    secret: Secret,
    directory: ObjectId,
    name: &[u8],
) -> Result<Option<Entry>, B::Error> {
    let hash = secret.hash(directory, name);
    let mut key = hash;
    while key < hash + PROBES {
        let way = way(view, directory, key)?;
        let here =
            way.entries.into_iter().filter(|entry| entry.key >= key && entry.key < hash + PROBES);
        let mut here = here;
        if let Some(found) = here.find(|entry| entry.name == name) {
            return Ok(Some(found));
        }
        match way.end {
            Some(end) if end < hash + PROBES => key = end,
            _ => break,
        }
    }
    Ok(None)
}

/// Adds a name that is not there.
///
/// # Errors
/// `ENOSPC` if too many names have this hash; those of reading.
pub fn insert<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    secret: Secret,
    directory: ObjectId,
    (name, object, kind): (&[u8], ObjectId, u8),
) -> Result<(), B::Error> {
    if view.size(directory)? == 0 {
        view.set_size(directory, PAGE as u64)?;
        view.new_page(directory, 0)?;
    }
    let hash = secret.hash(directory, name);
    for key in hash..hash + PROBES {
        let mut way = way(view, directory, key)?;
        let at = way.entries.partition_point(|entry| entry.key < key);
        if way.entries.get(at).is_some_and(|entry| entry.key == key) {
            continue;
        }
        way.entries.insert(at, Entry { key, object, kind, name: name.to_vec() });
        put(view, directory, way)?;
        let metadata = view.change(directory)?;
        metadata.entries = metadata.entries.saturating_add(1);
        return Ok(());
    }
    Err(Errno::NOSPC.into())
}

/// Writes a leaf, which is divided if it has become too large.
fn put<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    directory: ObjectId,
    way: Way,
) -> Result<(), B::Error> {
    let Way { mut above, leaf, entries, .. } = way;
    if size_of(&entries) <= PAGE {
        encode(&Node::Leaf(entries), view.page_mut(directory, leaf)?);
        return Ok(());
    }
    let half = size_of(&entries) / 2;
    let mut at = 1;
    while at + 1 < entries.len() && size_of(entries.get(..at).unwrap_or_default()) < half {
        at += 1;
    }
    let mut left = entries;
    let right = left.split_off(at);
    let least = right.first().map_or(0, |entry| entry.key);
    let (mut page, mut left, mut right) = (leaf, Node::Leaf(left), Node::Leaf(right));
    let mut least = least;
    loop {
        let new = add_page(view, directory)?;
        encode(&right, view.new_page(directory, new)?);
        if page == 0 {
            // The root stays where it is, and has two pages below it.
            let moved = add_page(view, directory)?;
            encode(&left, view.new_page(directory, moved)?);
            let root = Node::Inner(vec![(0, moved), (least, new)]);
            encode(&root, view.page_mut(directory, 0)?);
            return Ok(());
        }
        encode(&left, view.page_mut(directory, page)?);
        let (parent, at, mut below) = above.pop().ok_or(Error::Damaged(WRONG))?;
        below.insert(at + 1, (least, new));
        if HEAD + below.len() * BELOW <= PAGE {
            encode(&Node::Inner(below), view.page_mut(directory, parent)?);
            return Ok(());
        }
        let behind = below.split_off(below.len() / 2);
        least = behind.first().map_or(0, |(key, _)| *key);
        (page, left, right) = (parent, Node::Inner(below), Node::Inner(behind));
    }
}

fn add_page<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    directory: ObjectId,
) -> Result<u64, B::Error> {
    let size = view.size(directory)?;
    let longer = size.checked_add(PAGE as u64).filter(|_| size.is_multiple_of(PAGE as u64));
    view.set_size(directory, longer.ok_or(Error::Damaged(WRONG))?)?;
    Ok(size / PAGE as u64)
}

/// Removes a name, which is there under that key.
///
/// # Errors
/// Those of reading.
pub fn remove<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    directory: ObjectId,
    key: u64,
) -> Result<(), B::Error> {
    let mut way = way(view, directory, key)?;
    let before = way.entries.len();
    way.entries.retain(|entry| entry.key != key);
    if way.entries.len() == before {
        return Err(Error::Damaged(WRONG));
    }
    let metadata = view.change(directory)?;
    metadata.entries = metadata.entries.saturating_sub(1);
    if metadata.entries == 0 {
        view.set_size(directory, PAGE as u64)?;
        encode(&Node::Leaf(Vec::new()), view.page_mut(directory, 0)?);
        return Ok(());
    }
    encode(&Node::Leaf(way.entries), view.page_mut(directory, way.leaf)?);
    Ok(())
}

/// Has a name lead to another object.
///
/// # Errors
/// Those of reading.
pub fn replace<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    directory: ObjectId,
    key: u64,
    object: ObjectId,
    kind: u8,
) -> Result<(), B::Error> {
    let mut way = way(view, directory, key)?;
    let entry = way.entries.iter_mut().find(|entry| entry.key == key);
    let entry = entry.ok_or(Error::Damaged(WRONG))?;
    (entry.object, entry.kind) = (object, kind);
    encode(&Node::Leaf(way.entries), view.page_mut(directory, way.leaf)?);
    Ok(())
}

/// The names behind a key, in the order of their keys: about as many as asked for.
///
/// # Errors
/// Those of reading.
pub fn list<M: Memory, B: Lower>(
    view: &mut View<'_, M, B>,
    directory: ObjectId,
    behind: u64,
    most: usize,
) -> Result<Vec<Entry>, B::Error> {
    let mut found = Vec::new();
    let mut key = behind.saturating_add(1);
    loop {
        let way = way(view, directory, key)?;
        found.extend(way.entries.into_iter().filter(|entry| entry.key >= key));
        match way.end {
            Some(end) if found.len() < most => key = end,
            _ => return Ok(found),
        }
    }
}
