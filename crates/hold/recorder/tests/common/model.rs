//! A plain model of the store, the operations on both, and how to read a store back as a model.

use super::{
    HANDLE_FREE, HANDLE_TOP, HANDLE_WORDS, MAX_UNITS, NODE_FREE, NODE_TOP, Random, Sim, chunks,
    free_records, free_units, header, heap_top, live_nodes, units,
};
use belay_memory::Memory;
use belay_recorder::layout::NODE_WORDS;
use belay_recorder::{
    F_UNLCK, Handle, HandleFlags, InFlight, Lock, MAX_NAME, MAX_REPLY, Node, NodeFlags,
    OpenDescription, Slot, SlotState, Store, VIRTUAL_COOKIE,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

pub const GENERATIONS: u32 = 6;
/// Byte positions that locks start and end at; the last stands for all that follow.
pub const POSITIONS: u64 = 12;
const INOS: u64 = 5;
const NAMES: usize = 9;
const BY_INO: NodeFlags = NodeFlags::BY_INO;
const HIDDEN: NodeFlags = NodeFlags::HIDDEN;
const INO_PINNED: NodeFlags = NodeFlags::INO_PINNED;
const UNLINKED: NodeFlags = NodeFlags::UNLINKED;
/// Those that a model has.
const NODE_FLAGS: NodeFlags =
    HIDDEN.union(UNLINKED).union(NodeFlags::INO_IS_ID).union(INO_PINNED).union(BY_INO);
const HANDLE_FLAGS: HandleFlags =
    HandleFlags::LOST.union(HandleFlags::MERGED).union(HandleFlags::DIRECTORY);
const SERIAL: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    pub kind: u32,
    pub ino: u64,
    pub flags: NodeFlags,
    pub count: u64,
    pub daemon_count: u64,
    pub bound: Option<(u32, u64)>,
    /// Parent and name, the youngest first.
    pub names: Vec<(u64, Vec<u8>)>,
    pub children: u32,
    pub opens: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandleState {
    pub node: u64,
    pub open: (u32, u32, u32, u32),
    pub flags: HandleFlags,
    pub bound: Option<(u32, u64)>,
    pub poll: u64,
    pub widened: Option<u32>,
    pub cookies: u64,
    pub stream: Vec<u8>,
    pub batch: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    pub request: InFlight,
    pub body: Vec<u8>,
    pub length: u32,
    pub reply: Option<Vec<u8>>,
}

/// Node, owner, flock, position: type, handle, pid.
type Locks = BTreeMap<(u64, u64, bool, u64), (u32, u64, u32)>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub generation: u32,
    pub nodes: BTreeMap<u64, NodeState>,
    pub handles: BTreeMap<u64, HandleState>,
    pub locks: Locks,
    pub hidden: BTreeSet<u64>,
    pub serial: u64,
    pub slots: Vec<Option<Flight>>,
}

/// An operation, with numbers that pick among what there is.
#[derive(Clone, Debug)]
pub enum Op {
    Enter { parent: u8, name: u8, ino: u8, id: u8, links: bool },
    Link { node: u8, parent: u8, name: u8 },
    Unname { pick: u8 },
    Forget { node: u8, keep: u8 },
    Bind { node: u8, id: u8 },
    Unbind { node: u8 },
    Hide { node: u8 },
    Unhide { pick: u8 },
    Renumber { node: u8, ino: u8 },
    Open { node: u8, directory: bool, fh: u8 },
    Reopen { handle: u8, fh: u8 },
    Lose { handle: u8 },
    Poll { handle: u8, key: u8 },
    Cookie { handle: u8 },
    Lock { handle: u8, owner: u8, start: u8, length: u8, kind: u8, flock: bool },
    Flush { owner: u8 },
    Reply { slot: u8, node: u8, length: u8 },
    Serial,
    // Changes of their own:
    Release { handle: u8 },
    Append { handle: u8, words: u16 },
    Truncate { handle: u8, words: u16 },
    Replace { handle: u8, from: u16, words: u16 },
    Fill { slot: u8, body: u16 },
    Advance { slot: u8 },
    Generation,
}

/// An operation on named things.
#[derive(Clone, Debug)]
pub enum Act {
    Enter { parent: u64, name: Vec<u8>, ino: u64, bound: (u32, u64), links: bool },
    Link { node: u64, parent: u64, name: Vec<u8> },
    Unname { parent: u64, name: Vec<u8> },
    Forget { node: u64, count: u64 },
    Bind { node: u64, bound: (u32, u64) },
    Unbind { node: u64 },
    Hide { node: u64 },
    Unhide { node: u64 },
    Renumber { node: u64, ino: u64 },
    Open { node: u64, directory: bool, bound: (u32, u64) },
    Reopen { handle: u64, bound: (u32, u64) },
    Lose { handle: u64 },
    Poll { handle: u64, key: u64 },
    Cookie { handle: u64 },
    Lock(Lock),
    Flush { owner: u64 },
    Reply { slot: u32, node: u64, reply: Vec<u8> },
    Serial,
    Release { handle: u64 },
    Append { handle: u64, bytes: Vec<u8> },
    Truncate { handle: u64, len: usize },
    Replace { handle: u64, from: usize, bytes: Vec<u8> },
    Fill { slot: u32, request: InFlight, body: Vec<u8>, length: u32 },
    Advance { slot: u32, state: SlotState },
    Generation,
}

/// What an act gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub ok: bool,
    pub key: u64,
    pub forget: Vec<(u64, u64)>,
}

pub fn name(i: u8) -> Vec<u8> {
    let i = i as usize % NAMES;
    // Lengths on both sides of words and units, and the longest.
    let length = [1, 7, 8, 9, 16, 33, 8, 200, MAX_NAME][i];
    vec![b'a' + i as u8; length]
}

fn pick<T>(from: impl Iterator<Item = T>, i: u8) -> Option<T> {
    let mut all: Vec<_> = from.collect();
    if all.is_empty() { None } else { Some(all.swap_remove(i as usize % all.len())) }
}

impl Op {
    /// Whether it brackets itself and can be no part of a change.
    pub fn stands_alone(&self) -> bool {
        matches!(
            self,
            Self::Release { .. }
                | Self::Append { .. }
                | Self::Truncate { .. }
                | Self::Replace { .. }
                | Self::Fill { .. }
                | Self::Advance { .. }
                | Self::Generation
        )
    }

    pub fn resolve(&self, state: &State) -> Option<Act> {
        let node = |i| pick(state.nodes.keys().copied(), i);
        let inner = |i| pick(state.nodes.keys().copied().filter(|key| *key != 1), i);
        let handle = |i| pick(state.handles.keys().copied(), i);
        let generation = state.generation;
        let slot = |i, f: &dyn Fn(&Option<Flight>) -> bool| {
            let fit = state.slots.iter().enumerate().filter(|(_, slot)| f(slot));
            pick(fit.map(|(i, _)| i as u32), i)
        };
        Some(match *self {
            Self::Enter { parent, name: n, ino, id, links } => Act::Enter {
                parent: node(parent)?,
                name: name(n),
                ino: u64::from(ino) % INOS,
                bound: (generation, 2 + u64::from(id)),
                links,
            },
            Self::Link { node: n, parent, name: i } => {
                Act::Link { node: inner(n)?, parent: node(parent)?, name: name(i) }
            }
            Self::Unname { pick: i } => {
                let all = state.nodes.values().flat_map(|node| node.names.iter());
                let (parent, name) = pick(all.cloned(), i)?;
                Act::Unname { parent, name }
            }
            Self::Forget { node, keep } => {
                let node = inner(node)?;
                Act::Forget { node, count: u64::from(keep.saturating_sub(200)) }
            }
            Self::Bind { node, id } => {
                Act::Bind { node: inner(node)?, bound: (generation, 2 + u64::from(id)) }
            }
            Self::Unbind { node } => Act::Unbind { node: inner(node)? },
            Self::Hide { node } => Act::Hide { node: inner(node)? },
            Self::Unhide { pick: i } => {
                Act::Unhide { node: pick(state.hidden.iter().copied(), i)? }
            }
            Self::Renumber { node, ino } => {
                Act::Renumber { node: inner(node)?, ino: u64::from(ino) % INOS }
            }
            Self::Open { node: n, directory, fh } => {
                Act::Open { node: node(n)?, directory, bound: (generation, u64::from(fh)) }
            }
            Self::Reopen { handle: h, fh } => {
                Act::Reopen { handle: handle(h)?, bound: (generation, u64::from(fh)) }
            }
            Self::Lose { handle: h } => Act::Lose { handle: handle(h)? },
            Self::Poll { handle: h, key } => Act::Poll { handle: handle(h)?, key: u64::from(key) },
            Self::Cookie { handle: h } => Act::Cookie { handle: handle(h)? },
            Self::Lock { handle: h, owner, start, length, kind, flock } => {
                let handle = handle(h)?;
                let start = u64::from(start) % POSITIONS;
                let end = start + u64::from(length) % POSITIONS;
                Act::Lock(Lock {
                    node: state.handles.get(&handle)?.node,
                    handle,
                    owner: u64::from(owner) % 3,
                    start,
                    end: if end >= POSITIONS - 1 { u64::MAX } else { end },
                    kind: u32::from(kind) % 3,
                    pid: 100 + u32::from(length),
                    flock,
                })
            }
            Self::Flush { owner } => Act::Flush { owner: u64::from(owner) % 3 },
            Self::Reply { slot: s, node: n, length } => {
                let open = |slot: &Option<Flight>| {
                    slot.as_ref().is_some_and(|s| s.request.state != SlotState::Replied)
                };
                Act::Reply {
                    slot: slot(s, &open)?,
                    node: inner(n)?,
                    reply: vec![length; usize::from(length) % (MAX_REPLY + 1)],
                }
            }
            Self::Serial => Act::Serial,
            Self::Release { handle: h } => Act::Release { handle: handle(h)? },
            Self::Append { handle: h, words } => {
                let handle = handle(h)?;
                let start = state.handles.get(&handle)?.stream.len() as u64;
                let mut random = Random(start ^ (u64::from(words) << 32));
                let words = (0..words % 400).map(|_| random.next());
                Act::Append { handle, bytes: words.flat_map(u64::to_ne_bytes).collect() }
            }
            Self::Truncate { handle: h, words } => {
                let handle = handle(h)?;
                let all = state.handles.get(&handle)?.stream.len() / 8;
                Act::Truncate { handle, len: 8 * (usize::from(words) % (all + 2)) }
            }
            Self::Replace { handle: h, from, words } => {
                let handle = handle(h)?;
                let all = state.handles.get(&handle)?.stream.len() / 8;
                let mut random = Random(all as u64 ^ (u64::from(words) << 32));
                let words = (0..words % 400).map(|_| random.next());
                let bytes = words.flat_map(u64::to_ne_bytes).collect();
                Act::Replace { handle, from: 8 * (usize::from(from) % (all + 1)), bytes }
            }
            Self::Fill { slot: s, body } => Act::Fill {
                slot: slot(s, &Option::is_none)?,
                request: InFlight {
                    state: SlotState::Started,
                    opcode: u32::from(body),
                    unique: 2 * u64::from(body),
                    node: 1,
                    uid: 7,
                    gid: 8,
                    pid: 9,
                    generation,
                },
                body: vec![s; usize::from(body) % 300],
                length: 40 + u32::from(body),
            },
            Self::Advance { slot: s } => {
                let slot = slot(s, &Option::is_some)?;
                let taken = state.slots.get(slot as usize)?.as_ref()?.request.state;
                let to = if taken == SlotState::Replied || s & 1 == 0 {
                    SlotState::Free
                } else {
                    SlotState::Taken
                };
                Act::Advance { slot, state: to }
            }
            Self::Generation => {
                if generation + 1 >= GENERATIONS {
                    return None;
                }
                Act::Generation
            }
        })
    }
}

/// Operations that can share a change.
pub fn change() -> impl Strategy<Value = Op> {
    let b = any::<u8>;
    prop_oneof![
        6 => (b(), b(), b(), b(), any::<bool>())
            .prop_map(|(parent, name, ino, id, links)| Op::Enter { parent, name, ino, id, links }),
        3 => (b(), b(), b()).prop_map(|(node, parent, name)| Op::Link { node, parent, name }),
        2 => b().prop_map(|pick| Op::Unname { pick }),
        3 => (b(), b()).prop_map(|(node, keep)| Op::Forget { node, keep }),
        2 => (b(), b()).prop_map(|(node, id)| Op::Bind { node, id }),
        1 => b().prop_map(|node| Op::Unbind { node }),
        1 => b().prop_map(|node| Op::Hide { node }),
        1 => b().prop_map(|pick| Op::Unhide { pick }),
        1 => (b(), b()).prop_map(|(node, ino)| Op::Renumber { node, ino }),
        4 => (b(), any::<bool>(), b())
            .prop_map(|(node, directory, fh)| Op::Open { node, directory, fh }),
        1 => (b(), b()).prop_map(|(handle, fh)| Op::Reopen { handle, fh }),
        1 => b().prop_map(|handle| Op::Lose { handle }),
        1 => (b(), b()).prop_map(|(handle, key)| Op::Poll { handle, key }),
        1 => b().prop_map(|handle| Op::Cookie { handle }),
        4 => (b(), b(), b(), b(), b(), any::<bool>()).prop_map(
            |(handle, owner, start, length, kind, flock)| {
                Op::Lock { handle, owner, start, length, kind, flock }
            }
        ),
        1 => b().prop_map(|owner| Op::Flush { owner }),
        1 => (b(), b(), b()).prop_map(|(slot, node, length)| Op::Reply { slot, node, length }),
        1 => Just(Op::Serial),
    ]
}

/// Operations that are changes of their own.
pub fn alone() -> impl Strategy<Value = Op> {
    let b = any::<u8>;
    prop_oneof![
        2 => b().prop_map(|handle| Op::Release { handle }),
        4 => (b(), any::<u16>()).prop_map(|(handle, words)| Op::Append { handle, words }),
        2 => (b(), any::<u16>()).prop_map(|(handle, words)| Op::Truncate { handle, words }),
        3 => (b(), any::<u16>(), any::<u16>())
            .prop_map(|(handle, from, words)| Op::Replace { handle, from, words }),
        2 => (b(), any::<u16>()).prop_map(|(slot, body)| Op::Fill { slot, body }),
        1 => b().prop_map(|slot| Op::Advance { slot }),
        1 => Just(Op::Generation),
    ]
}

fn node(store: &Store<Sim>, key: u64) -> Node {
    store.node_by_key(key).expect("a node of the model")
}

fn handle(store: &Store<Sim>, key: u64) -> Handle {
    store.handle_by_key(key).expect("a handle of the model")
}

fn bind(store: &Store<Sim>, node: Node, (generation, id): (u32, u64)) {
    // One id means one node: the session sees to that, see `Session::identify`.
    if let Some(old) = store.node_by_id(generation, id) {
        store.unbind(old);
    }
    store.bind(node, generation, id);
}

impl Act {
    /// Does it to a store. Those that share a change are called between `begin` and `commit`.
    pub fn run(&self, store: &Store<Sim>, generation: u32) -> Outcome {
        let mut out = Outcome { ok: true, ..Outcome::default() };
        match self {
            Self::Enter { parent, name, ino, bound, links } => {
                let Some(new) =
                    store.node_new(if *links { 8 } else { 4 }, *ino, NodeFlags::empty())
                else {
                    return Outcome::default();
                };
                if *links {
                    store.index_by_ino(new);
                }
                let Ok(old) = store.dentry_set(node(store, *parent), name, new) else {
                    store.release_unused(new, generation, &mut out.forget);
                    assert_eq!(out.forget, []);
                    return Outcome::default();
                };
                store.set_count(new, 1);
                bind(store, new, *bound);
                store.set_daemon_count(new, 1);
                out.key = store.key(new);
                if let Some(old) = old {
                    store.release_unused(old, generation, &mut out.forget);
                }
            }
            Self::Link { node: n, parent, name } => {
                match store.dentry_set(node(store, *parent), name, node(store, *n)) {
                    Ok(Some(old)) => store.release_unused(old, generation, &mut out.forget),
                    Ok(None) => {}
                    Err(()) => out.ok = false,
                }
            }
            Self::Unname { parent, name } => {
                let parent = node(store, *parent);
                let dentry = store.dentry_find(parent, name).expect("a name of the model");
                let child = store.dentry_node(dentry);
                store.dentry_remove(dentry);
                store.release_unused(child, generation, &mut out.forget);
                store.release_unused(parent, generation, &mut out.forget);
            }
            Self::Forget { node: n, count } => {
                let n = node(store, *n);
                store.set_count(n, *count);
                store.release_unused(n, generation, &mut out.forget);
            }
            Self::Bind { node: n, bound } => bind(store, node(store, *n), *bound),
            Self::Unbind { node: n } => store.unbind(node(store, *n)),
            Self::Hide { node: n } => {
                let n = node(store, *n);
                out.ok = store.hidden_add(n);
                if out.ok {
                    store.node_flag(n, HIDDEN, true);
                }
            }
            Self::Unhide { node: n } => {
                let n = node(store, *n);
                store.node_flag(n, HIDDEN, false);
                store.node_flag(n, UNLINKED, true);
                store.hidden_remove(n);
                store.release_unused(n, generation, &mut out.forget);
            }
            Self::Renumber { node: n, ino } => {
                store.set_ino(node(store, *n), *ino);
                store.node_flag(node(store, *n), INO_PINNED, true);
            }
            Self::Open { node: n, directory, bound } => {
                let open = OpenDescription {
                    node: node(store, *n),
                    flags: 0o2,
                    uid: 1,
                    gid: 2,
                    directory: *directory,
                    fopen: 4,
                };
                let Some(new) = store.handle_new(open) else {
                    return Outcome::default();
                };
                store.handle_bind(new, bound.0, bound.1);
                out.key = store.handle_key(new);
            }
            Self::Reopen { handle: h, bound } => {
                store.handle_bind(handle(store, *h), bound.0, bound.1);
            }
            Self::Lose { handle: h } => {
                store.handle_flag(handle(store, *h), HandleFlags::LOST, true);
            }
            Self::Poll { handle: h, key } => {
                let h = handle(store, *h);
                store.set_poll_key(h, *key);
                store.set_widened(h, (key % 2 == 1).then_some(*key as u32));
            }
            Self::Cookie { handle: h } => out.key = store.next_cookie(handle(store, *h)),
            Self::Lock(lock) => out.ok = store.lock_apply(*lock),
            Self::Flush { owner } => store.locks_remove(|lock| lock.owner == *owner),
            Self::Reply { slot, node: n, reply } => {
                let n = node(store, *n);
                store.set_count(n, store.count(n) + 1);
                out.ok = store.slot_reply(Slot(*slot), reply);
            }
            Self::Serial => out.key = store.next_hidden_serial(),
            Self::Release { handle: h } => {
                let key = *h;
                let h = handle(store, key);
                let n = store.open_description(h).node;
                store.stream_truncate(h, 0);
                store.begin();
                store.locks_remove(|lock| lock.handle == key);
                store.handle_free(h);
                store.release_unused(n, generation, &mut out.forget);
                store.commit();
            }
            Self::Append { handle: h, bytes } => {
                out.ok = store.stream_append(handle(store, *h), bytes);
            }
            Self::Truncate { handle: h, len } => store.stream_truncate(handle(store, *h), *len),
            Self::Replace { handle: h, from, bytes } => {
                let h = handle(store, *h);
                let from = store.stream_position(h, *from);
                out.ok = store.stream_replace(h, from, bytes);
            }
            Self::Fill { slot, request, body, length } => {
                store.slot_fill(Slot(*slot), request, body, *length);
                assert_eq!(store.slot_widened(Slot(*slot)), None);
                store.slot_set_widened(Slot(*slot), 0o644);
                assert_eq!(store.slot_widened(Slot(*slot)), Some(0o644));
            }
            Self::Advance { slot, state } => store.slot_advance(Slot(*slot), *state),
            Self::Generation => {}
        }
        out.forget.sort_unstable();
        out
    }

    /// Does it to a model; `out` is what the store gave. Gives what the store should have.
    pub fn apply(&self, state: &mut State, out: &Outcome) -> Outcome {
        let mut expected = Outcome { forget: Vec::new(), ..out.clone() };
        if !out.ok {
            return expected; // refused: nothing happened
        }
        match self {
            Self::Enter { parent, name, ino, bound, links } => {
                assert!(!state.nodes.contains_key(&out.key), "a key was given twice");
                state.nodes.insert(
                    out.key,
                    NodeState {
                        kind: if *links { 8 } else { 4 },
                        ino: *ino,
                        flags: if *links { BY_INO } else { NodeFlags::empty() },
                        count: 1,
                        ..NodeState::default()
                    },
                );
                state.bind(out.key, *bound);
                state.node(out.key).daemon_count = 1;
                state.name(*parent, name, out.key, &mut expected.forget);
            }
            Self::Link { node, parent, name } => {
                state.name(*parent, name, *node, &mut expected.forget);
            }
            Self::Unname { parent, name } => {
                let child = state.unname(*parent, name).expect("a name");
                state.release(child, &mut expected.forget);
                state.release(*parent, &mut expected.forget);
            }
            Self::Forget { node, count } => {
                state.node(*node).count = *count;
                state.release(*node, &mut expected.forget);
            }
            Self::Bind { node, bound } => state.bind(*node, *bound),
            Self::Unbind { node } => state.node(*node).bound = None,
            Self::Hide { node } => {
                state.hidden.insert(*node);
                state.node(*node).flags |= HIDDEN;
            }
            Self::Unhide { node } => {
                state.hidden.remove(node);
                let flags = &mut state.node(*node).flags;
                *flags = *flags & !HIDDEN | UNLINKED;
                state.release(*node, &mut expected.forget);
            }
            Self::Renumber { node, ino } => {
                let node = state.node(*node);
                node.flags |= INO_PINNED;
                node.ino = *ino;
            }
            Self::Open { node, directory, bound } => {
                assert!(!state.handles.contains_key(&out.key), "a key was given twice");
                state.node(*node).opens += 1;
                state.handles.insert(
                    out.key,
                    HandleState {
                        node: *node,
                        open: (0o2, 1, 2, 4),
                        flags: if *directory {
                            HandleFlags::DIRECTORY
                        } else {
                            HandleFlags::empty()
                        },
                        bound: Some(*bound),
                        ..HandleState::default()
                    },
                );
            }
            Self::Reopen { handle, bound } => state.handle(*handle).bound = Some(*bound),
            Self::Lose { handle } => state.handle(*handle).flags |= HandleFlags::LOST,
            Self::Poll { handle, key } => {
                let handle = state.handle(*handle);
                handle.poll = *key;
                handle.widened = (key % 2 == 1).then_some(*key as u32);
            }
            Self::Cookie { handle } => {
                state.handle(*handle).cookies += 1;
                expected.key = VIRTUAL_COOKIE | state.handle(*handle).cookies;
            }
            Self::Lock(lock) => {
                for position in lock.start..=lock.end.min(POSITIONS - 1) {
                    let at = (lock.node, lock.owner, lock.flock, position);
                    if lock.kind == F_UNLCK {
                        state.locks.remove(&at);
                    } else {
                        state.locks.insert(at, (lock.kind, lock.handle, lock.pid));
                    }
                }
            }
            Self::Flush { owner } => state.locks.retain(|at, _| at.1 != *owner),
            Self::Reply { slot, node, reply } => {
                state.node(*node).count += 1;
                let slot = state.slots[*slot as usize].as_mut().expect("in use");
                slot.request.state = SlotState::Replied;
                slot.reply = Some(reply.clone());
            }
            Self::Serial => {
                state.serial += 1;
                expected.key = state.serial;
            }
            Self::Release { handle } => {
                state.locks.retain(|_, lock| lock.1 != *handle);
                let gone = state.handles.remove(handle).expect("a handle");
                state.node(gone.node).opens -= 1;
                state.release(gone.node, &mut expected.forget);
            }
            Self::Append { handle, bytes } => {
                let handle = state.handle(*handle);
                handle.batch = handle.stream.len();
                handle.stream.extend_from_slice(bytes);
            }
            Self::Truncate { handle, len } => {
                let handle = state.handle(*handle);
                if *len < handle.stream.len() {
                    handle.stream.truncate(*len);
                    handle.batch = *len;
                }
            }
            Self::Replace { handle, from, bytes } => {
                let handle = state.handle(*handle);
                handle.batch = *from;
                handle.stream.truncate(*from);
                handle.stream.extend_from_slice(bytes);
            }
            Self::Fill { slot, request, body, length } => {
                state.slots[*slot as usize] = Some(Flight {
                    request: request.clone(),
                    body: body.clone(),
                    length: *length,
                    reply: None,
                });
            }
            Self::Advance { slot, state: to } => {
                let slot = &mut state.slots[*slot as usize];
                if *to == SlotState::Free {
                    *slot = None;
                } else {
                    slot.as_mut().expect("in use").request.state = *to;
                }
            }
            Self::Generation => state.generation += 1,
        }
        expected.forget.sort_unstable();
        expected
    }

    /// The state that may be found, besides those before and after, when the process dies in
    /// the middle; see docs/recorder.md.
    pub fn in_between(&self, before: &State) -> Option<State> {
        let Self::Release { handle } = self else {
            return None;
        };
        let mut state = before.clone();
        let handle = state.handle(*handle);
        handle.stream.clear();
        handle.batch = 0;
        Some(state)
    }
}

impl State {
    /// What a fresh store holds.
    pub fn fresh(slots: usize) -> Self {
        let root = NodeState { kind: 4, ino: 1, count: 1, ..NodeState::default() };
        Self { nodes: [(1, root)].into(), slots: vec![None; slots], ..Self::default() }
    }

    fn node(&mut self, key: u64) -> &mut NodeState {
        self.nodes.get_mut(&key).expect("a node")
    }

    fn handle(&mut self, key: u64) -> &mut HandleState {
        self.handles.get_mut(&key).expect("a handle")
    }

    fn bind(&mut self, key: u64, bound: (u32, u64)) {
        for node in self.nodes.values_mut().filter(|node| node.bound == Some(bound)) {
            node.bound = None;
        }
        self.node(key).bound = Some(bound);
        self.node(key).daemon_count = 0;
    }

    fn name(&mut self, parent: u64, name: &[u8], key: u64, forget: &mut Vec<(u64, u64)>) {
        let named = (parent, name.to_vec());
        if self.node(key).names.contains(&named) {
            return;
        }
        let old = self.unname(parent, name);
        self.node(key).names.insert(0, named);
        self.node(parent).children += 1;
        if let Some(old) = old {
            self.release(old, forget);
        }
    }

    fn unname(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let named = (parent, name.to_vec());
        let (key, node) = self.nodes.iter_mut().find(|(_, node)| node.names.contains(&named))?;
        let key = *key;
        node.names.retain(|other| *other != named);
        self.node(parent).children -= 1;
        Some(key)
    }

    fn release(&mut self, key: u64, forget: &mut Vec<(u64, u64)>) {
        let Some(node) = self.nodes.get(&key) else {
            return;
        };
        if key == 1
            || node.count > 0
            || node.children > 0
            || node.opens > 0
            || node.flags.contains(HIDDEN)
        {
            return;
        }
        let node = self.nodes.remove(&key).expect("just found");
        if let Some((generation, id)) = node.bound
            && generation == self.generation
            && node.daemon_count > 0
        {
            forget.push((id, node.daemon_count));
        }
        for (parent, _) in &node.names {
            self.node(*parent).children -= 1;
        }
        for (parent, _) in node.names {
            self.release(parent, forget);
        }
    }

    /// Reads a store through its API, each fact in every way there is, and checks that its areas
    /// add up: nothing lost, nothing twice.
    pub fn read(store: &Store<Sim>, generation: u32) -> Self {
        let mut state = Self { generation, ..Self::default() };
        let mut used = 0;
        let mut children: BTreeMap<u64, u32> = BTreeMap::new();
        let keys = live_nodes(store);
        for key in &keys {
            let node = node(store, *key);
            assert_eq!(store.key(node), *key);
            let mut names = Vec::new();
            for dentry in store.dentries(node) {
                let (parent, name) = (store.dentry_parent(dentry), store.dentry_name(dentry));
                assert_eq!(store.dentry_node(dentry), node);
                assert_eq!(store.dentry_find(parent, &name), Some(dentry), "a name leads back");
                used += units(24 + name.len());
                *children.entry(store.key(parent)).or_default() += 1;
                names.push((store.key(parent), name));
            }
            let bound = (0..GENERATIONS).find_map(|g| Some((g, store.bound(node, g)?)));
            if let (Some((g, id)), true) = (bound, *key != 1) {
                assert_eq!(store.node_by_id(g, id), Some(node), "an id leads back");
            }
            state.nodes.insert(
                *key,
                NodeState {
                    kind: store.kind(node),
                    ino: store.ino(node),
                    flags: store.node_flags(node) & NODE_FLAGS,
                    count: store.count(node),
                    daemon_count: store.daemon_count(node),
                    bound: bound.filter(|_| *key != 1),
                    names,
                    children: store.children(node),
                    opens: store.opens(node),
                },
            );
        }
        for (key, node) in &state.nodes {
            assert_eq!(node.children, children.remove(key).unwrap_or(0), "children of {key:#x}");
        }
        assert_eq!(children, BTreeMap::new(), "parents are nodes");
        for (key, parent) in keys.iter().map(|key| (key, node(store, *key))) {
            for name in (0..NAMES as u8).map(name) {
                let named = (*key, name.clone());
                let child = state.nodes.iter().find(|(_, node)| node.names.contains(&named));
                assert_eq!(store.child(parent, &name).map(|n| store.key(n)), child.map(|c| *c.0));
            }
        }
        for ino in 0..INOS {
            let shared =
                |node: &NodeState| node.ino == ino && node.flags & (BY_INO | INO_PINNED) == BY_INO;
            let pinned = |node: &NodeState| {
                node.ino == ino && node.flags & (BY_INO | INO_PINNED) == BY_INO | INO_PINNED
            };
            let kept = store
                .other_by_ino(Node::ROOT, ino, |n| store.node_flags(n).intersects(INO_PINNED))
                .map(|node| store.key(node));
            match kept {
                Some(key) => assert!(state.nodes.get(&key).is_some_and(pinned)),
                None => assert!(!state.nodes.values().any(pinned)),
            }
            let found = store.unbound_by_ino(u32::MAX, ino, 8).map(|node| store.key(node));
            match found {
                Some(key) => assert!(state.nodes.get(&key).is_some_and(shared)),
                None => assert!(!state.nodes.values().any(shared)),
            }
        }
        let mut opens: BTreeMap<u64, u32> = BTreeMap::new();
        for handle in store.live_handles() {
            let key = store.handle_key(handle);
            assert_eq!(store.handle_by_key(key), Some(handle));
            let open = store.open_description(handle);
            let stream = store.stream_bytes(handle, 0);
            assert_eq!(stream.len(), store.stream_len(handle));
            assert!(chunks(store, key) >= stream.len().div_ceil(1032));
            used += 65 * chunks(store, key);
            *opens.entry(store.key(open.node)).or_default() += 1;
            let at = store.layout().handles + key as u32 as usize * HANDLE_WORDS + SERIAL;
            state.handles.insert(
                key,
                HandleState {
                    node: store.key(open.node),
                    open: (open.flags, open.uid, open.gid, open.fopen),
                    flags: store.handle_flags(handle) & HANDLE_FLAGS,
                    bound: (0..GENERATIONS).find_map(|g| Some((g, store.handle_bound(handle, g)?))),
                    poll: store.poll_key(handle),
                    widened: store.widened(handle),
                    cookies: store.memory().load(at),
                    batch: store.stream_batch(handle),
                    stream,
                },
            );
        }
        for (key, node) in &state.nodes {
            assert_eq!(node.opens, opens.remove(key).unwrap_or(0), "opens of {key:#x}");
        }
        assert_eq!(opens, BTreeMap::new(), "what is open is a node");
        let locks = store.locks();
        assert_eq!(store.has_locks(), !locks.is_empty());
        used += units(56) * locks.len();
        for lock in locks {
            assert!(lock.start <= lock.end);
            assert!(lock.end < POSITIONS - 1 || lock.end == u64::MAX);
            for position in lock.start..=lock.end.min(POSITIONS - 1) {
                let at = (lock.node, lock.owner, lock.flock, position);
                let twice = state.locks.insert(at, (lock.kind, lock.handle, lock.pid));
                assert_eq!(twice, None, "a byte is locked twice");
            }
        }
        let hidden = store.hidden();
        used += hidden.len();
        for node in hidden {
            assert!(state.hidden.insert(store.key(node)), "hidden twice");
        }
        state.serial = header(store, 6);
        for slot in (0..store.slots()).map(Slot) {
            state.slots.push(store.slot_request(slot).map(|request| {
                assert!(store.slot_is(slot, request.unique));
                let (body, length) = store.slot_body(slot);
                let mut again = Vec::new();
                store.slot_body_into(slot, &mut again);
                assert_eq!(again, body);
                let replied = request.state == SlotState::Replied;
                let reply = replied.then(|| store.slot_recorded_reply(slot));
                Flight { request, body, length, reply }
            }));
        }
        // The areas add up.
        assert_eq!(heap_top(store), free_units(store) + used, "units of the heap");
        let free = free_records(store, NODE_FREE, store.layout().nodes, NODE_WORDS);
        assert_eq!(header(store, NODE_TOP) as usize - 1, free + state.nodes.len(), "node slots");
        let free = free_records(store, HANDLE_FREE, store.layout().handles, HANDLE_WORDS);
        assert_eq!(header(store, HANDLE_TOP) as usize - 1, free + state.handles.len(), "handles");
        assert_eq!(store.handles_live() as usize, state.handles.len(), "open handles");
        assert_eq!(store.nodes_live() as usize + 1, state.nodes.len(), "nodes and the root");
        state
    }

    /// Checks that a refusal was one for want of room.
    pub fn check_full(&self, store: &Store<Sim>, act: &Act) {
        let capacity = store.layout().capacity;
        let heap_full = heap_top(store) + 1 + MAX_UNITS > capacity.heap_words / 2;
        let full = match act {
            Act::Enter { .. } => heap_full || self.nodes.len() >= capacity.nodes - 1,
            Act::Open { .. } => self.handles.len() >= capacity.handles - 1,
            _ => heap_full,
        };
        assert!(full, "{act:?} was refused though there is room");
    }
}
