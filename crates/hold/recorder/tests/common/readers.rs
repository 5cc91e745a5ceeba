//! Everything that reads a store, and what writes without believing what it finds: for memory that
//! anybody scribbled over.

use super::{Sim, fresh};
use belay_memory::Memory;
use belay_recorder::layout::NODE_WORDS;
use belay_recorder::{
    Capacity, F_WRLCK, Layout, Lock, MAX_NAME, Node, NodeFlags, OpenDescription, Slot, Store,
};

/// A small store.
pub const CAPACITY: Capacity = Capacity {
    nodes: 64,
    handles: 16,
    slots: 4,
    heap_words: 4096,
    copy_bytes: 512,
    effect_bytes: 0,
    epoch_bytes: 0,
};
/// How it is laid out.
pub const LAYOUT: Layout = Layout::new(CAPACITY);
/// Loads in one round. Cycles are followed for as long as the longest list may be: that takes a
/// quarter of this, and well under a second.
const MOST: usize = 50_000_000;

/// Calls everything that reads.
pub fn read_all(store: &Store<Sim>) {
    let start = store.memory().loads();
    let memory = store.memory();
    let mut nodes = vec![Node::ROOT];
    for slot in 0..CAPACITY.nodes as u64 {
        let born = memory.load(LAYOUT.nodes + slot as usize * NODE_WORDS + 1);
        nodes.extend(store.node_by_key(born << 32 | slot));
        assert_eq!(store.node_by_key((born ^ 1) << 32 | slot), None, "of another reuse");
    }
    nodes.truncate(12);
    let hidden = store.hidden();
    nodes.extend(hidden.iter().copied().take(4)); // any number at all
    for node in &nodes {
        let node = *node;
        let _ = (store.key(node), store.count(node), store.daemon_count(node), store.ino(node));
        let _ = (store.kind(node), store.node_flags(node), store.children(node), store.opens(node));
        let _ = (store.bound(node, 0), store.bound(node, u32::MAX));
        let _ = store.unbound_by_ino(0, store.ino(node), store.kind(node));
        let _ = store.node_by_id(3, memory.load(LAYOUT.nodes + 8));
        assert_eq!(store.dentry_find(node, &[7; MAX_NAME + 1]), None);
        let _ = (store.child(node, b"a"), store.child(node, b""));
        let mut count = 0;
        for dentry in store.dentries(node) {
            if count < 3 {
                let name = store.dentry_name(dentry);
                assert!(name.len() <= MAX_NAME);
                let _ = store.child(store.dentry_parent(dentry), &name);
                let _ = store.key(store.dentry_node(dentry));
            }
            count += 1;
        }
        assert!(count <= 65_536);
    }
    let mut handles: Vec<_> = store.live_handles().collect();
    assert!(handles.len() < CAPACITY.handles);
    handles.truncate(4);
    for handle in handles {
        let key = store.handle_key(handle);
        assert!(store.handle_by_key(key).is_none_or(|found| found == handle));
        let _ =
            (store.handle_bound(handle, 0), store.open_description(handle), store.poll_key(handle));
        let _ = store.widened(handle);
        let (len, batch) = (store.stream_len(handle), store.stream_batch(handle));
        for from in [0, 1, 8, 1032, batch, len, usize::MAX] {
            assert!(store.stream_bytes(handle, from).len() <= CAPACITY.heap_words * 8);
        }
    }
    for lock in store.locks().iter().take(3) {
        let _ = format!("{lock:?}");
    }
    let _ = store.has_locks();
    for slot in (0..store.slots()).map(Slot) {
        let _ = (store.slot_request(slot), store.slot_is(slot, 0));
        assert!(store.slot_body(slot).0.len() <= belay_recorder::MAX_BODY);
        assert!(store.slot_recorded_reply(slot).len() <= belay_recorder::MAX_REPLY);
        let _ = store.slot_widened(slot);
        let mut body = Vec::new();
        store.slot_body_into(slot, &mut body);
        assert!(store.slot_copy_bytes(slot, usize::MAX).len() <= CAPACITY.copy_bytes.max(4096));
    }
    assert!(!store.is_blank() || memory.load(LAYOUT.store) == 0);
    assert!(store.memory().loads() - start < MOST, "it does not end");
}

/// Calls what writes, but for what walks the lists of what it was given.
pub fn write_some(store: &Store<Sim>) {
    let start = store.memory().loads();
    if store.recover().is_err() {
        return; // nobody goes on with a store that cannot be told from one that was cut in a change
    }
    for _ in 0..4 {
        store.begin();
        if let Some(node) = store.node_new(8, 1, NodeFlags::empty()) {
            store.bind(node, 1, 77);
            store.index_by_ino(node);
            let _ = store.dentry_set(Node::ROOT, b"a name", node);
            let _ = store.dentry_set(node, b"a name", Node::ROOT);
        }
        let open = OpenDescription {
            node: Node::ROOT,
            flags: 0,
            uid: 0,
            gid: 0,
            directory: true,
            fopen: 0,
        };
        let handle = store.handle_new(open);
        store.next_hidden_serial();
        if let Some(handle) = handle {
            store.next_cookie(handle);
        }
        store.commit();
        if let Some(handle) = handle {
            let _ = store.stream_append(handle, &[1; 2000]);
            let from = store.stream_position(handle, 16);
            let _ = store.stream_replace(handle, from, &[1; 2000]);
            store.stream_truncate(handle, 8);
        }
    }
    for handle in store.live_handles().take(3).collect::<Vec<_>>() {
        let _ = store.stream_append(handle, &[1; 2000]);
        store.begin();
        store.next_cookie(handle);
        store.handle_free(handle);
        store.commit();
    }
    assert!(store.memory().loads() - start < MOST, "it does not end");
}

/// A store with some of everything.
pub fn populated() -> (Sim, Store<Sim>) {
    let (memory, store) = fresh(CAPACITY);
    let mut parent = Node::ROOT;
    for i in 0..20u8 {
        store.begin();
        let node = store
            .node_new(4 + 4 * u32::from(i & 1), u64::from(i), NodeFlags::empty())
            .expect("room");
        store.bind(node, 0, 2 + u64::from(i));
        store.set_count(node, 1);
        store.dentry_set(parent, &vec![i; 1 + 3 * usize::from(i)], node).expect("room");
        store.dentry_set(Node::ROOT, &[i, i], node).expect("room");
        store.index_by_ino(node);
        let open = OpenDescription { node, flags: 0, uid: 0, gid: 0, directory: true, fopen: 0 };
        let handle = store.handle_new(open);
        if i % 4 == 0 {
            assert!(store.hidden_add(node));
            parent = node;
        }
        let start = u64::from(i);
        store.lock_apply(Lock {
            node: 1,
            handle: 1,
            owner: 1,
            start,
            end: start,
            kind: F_WRLCK,
            pid: 1,
            flock: false,
        });
        store.commit();
        if let (Some(handle), 0..8) = (handle, i) {
            store.stream_append(handle, &[i; 200 * 8]);
        }
    }
    (memory, store)
}
