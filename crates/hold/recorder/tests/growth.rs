//! Many nodes and names: growing indices, reuse of slots, exhaustion.
#![allow(missing_docs)]

mod common;

use belay_memory::Memory;
use belay_recorder::{
    Capacity, InFlight, Node, NodeFlags, OpenDescription, Slot, SlotState, Store,
};
use common::{NODE_TOP, Random, Sim, free_units, fresh, header, heap_top, live_nodes};
use std::collections::{BTreeMap, HashSet};

fn capacity(nodes: usize) -> Capacity {
    Capacity {
        nodes,
        handles: 64,
        slots: 2,
        heap_words: 1 << 18,
        copy_bytes: 0,
        effect_bytes: 0,
        epoch_bytes: 0,
    }
}

fn name(i: u64) -> Vec<u8> {
    format!("file-{i:0width$}", width = 1 + i as usize % 30).into_bytes()
}

fn enter(store: &Store<Sim>, parent: Node, name: &[u8], ino: u64, id: u64) -> Option<Node> {
    store.begin();
    let made = store.node_new(8, ino, NodeFlags::empty()).inspect(|node| {
        store.set_count(*node, 1);
        store.bind(*node, 0, id);
        store.index_by_ino(*node);
        assert_eq!(store.dentry_set(parent, name, *node), Ok(None));
    });
    store.commit();
    made
}

fn forget(store: &Store<Sim>, node: Node) {
    let mut forget = Vec::new();
    store.begin();
    store.set_count(node, 0);
    store.release_unused(node, 0, &mut forget);
    store.commit();
}

/// Each of `known` by its number is found in every way, and nothing else is.
fn check(store: &Store<Sim>, known: &BTreeMap<u64, Node>, all: u64, step: usize) {
    for i in (0..all).step_by(step) {
        let node = known.get(&i).copied();
        assert_eq!(store.child(Node::ROOT, &name(i)), node, "name {i}");
        assert_eq!(store.node_by_id(0, 1000 + i), node, "id {i}");
        assert_eq!(store.unbound_by_ino(1, 5000 + i, 8), node, "ino {i}");
        assert_eq!(store.unbound_by_ino(0, 5000 + i, 8), None, "it is bound");
        assert_eq!(store.unbound_by_ino(1, 5000 + i, 4), None, "of another type");
        assert_eq!(store.node_by_id(1, 1000 + i), None, "of another generation");
    }
}

#[test]
fn indices_grow_and_shrink_under_twelve_thousand_nodes() {
    const ALL: u64 = 12_000;
    // With room to spare, and with just enough.
    for nodes in [1 << 14, ALL as usize + 2] {
        let (_, store) = fresh(capacity(nodes));
        let mut known = BTreeMap::new();
        for i in 0..ALL {
            let node = enter(&store, Node::ROOT, &name(i), 5000 + i, 1000 + i).expect("room");
            known.insert(i, node);
            if i.is_power_of_two() {
                check(&store, &known, i + 2, 1 + i as usize / 50);
            }
        }
        check(&store, &known, ALL + 10, 1);
        assert_eq!(u64::from(store.children(Node::ROOT)), ALL);
        // Buckets: one split for each insert that found the table full, at two items a bucket.
        assert_eq!(header(&store, 16), ALL / 2);
        assert_eq!(header(&store, 17), ALL);

        let mut random = Random(7);
        for i in 0..ALL {
            if random.below(3) > 0 {
                forget(&store, known.remove(&i).expect("known"));
            }
        }
        check(&store, &known, ALL, 1);
        assert_eq!(u64::from(store.children(Node::ROOT)), known.len() as u64);
        assert_eq!(header(&store, 17), known.len() as u64);

        // What comes next takes the places of what went.
        let (top, heap) = (header(&store, NODE_TOP), heap_top(&store));
        for i in 0..ALL {
            known.entry(i).or_insert_with(|| {
                enter(&store, Node::ROOT, &name(i), 5000 + i, 1000 + i).expect("room")
            });
        }
        check(&store, &known, ALL, 1);
        assert_eq!((header(&store, NODE_TOP), heap_top(&store)), (top, heap));
        for node in known.into_values() {
            forget(&store, node);
        }
        assert_eq!(live_nodes(&store), [1]);
        assert_eq!(store.children(Node::ROOT), 0);
        assert_eq!(free_units(&store), heap_top(&store));
    }
}

#[test]
fn more_names_than_buckets_are_found() {
    let (_, store) = fresh(capacity(20));
    let nodes: Vec<_> =
        (0..10).map(|i| enter(&store, Node::ROOT, &name(i), i, 2 + i).expect("room")).collect();
    for i in 10..5000 {
        store.begin();
        assert_eq!(store.dentry_set(Node::ROOT, &name(i), nodes[i as usize % 10]), Ok(None));
        store.commit();
    }
    for i in 0..5000 {
        assert_eq!(store.child(Node::ROOT, &name(i)), Some(nodes[i as usize % 10]));
    }
    // The dentries of a node, the youngest first.
    let names: Vec<_> = store.dentries(nodes[3]).map(|dentry| store.dentry_name(dentry)).collect();
    let expected: Vec<_> = (0..5000).rev().filter(|i| i % 10 == 3).map(name).collect();
    assert_eq!(names, expected);
    for i in (0..5000).filter(|i| i % 7 != 0) {
        let dentry = store.dentry_find(Node::ROOT, &name(i)).expect("found");
        store.begin();
        store.dentry_remove(dentry);
        store.commit();
    }
    for i in 0..5000 {
        let left = (i % 7 == 0).then_some(nodes[i as usize % 10]);
        assert_eq!(store.child(Node::ROOT, &name(i)), left);
    }
    let expected: Vec<_> =
        (0..5000).rev().filter(|i| i % 10 == 3 && i % 7 == 0).map(name).collect();
    let names: Vec<_> = store.dentries(nodes[3]).map(|dentry| store.dentry_name(dentry)).collect();
    assert_eq!(names, expected);
}

#[test]
fn a_key_never_names_two_nodes_or_handles() {
    let (_, store) = fresh(capacity(64));
    let mut random = Random(3);
    let mut given = HashSet::from([1]);
    let mut opened = HashSet::new();
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut dead = Vec::new();
    for i in 0..20_000 {
        if live.len() < 40 && random.below(2) == 0 {
            let node = enter(&store, Node::ROOT, &name(i), i, 1000 + i).expect("room");
            store.begin();
            let handle = store
                .handle_new(OpenDescription {
                    node,
                    flags: 0,
                    uid: 0,
                    gid: 0,
                    directory: false,
                    fopen: 0,
                })
                .expect("room");
            store.commit();
            let (key, open) = (store.key(node), store.handle_key(handle));
            assert!(given.insert(key), "node key {key:#x} again");
            assert!(opened.insert(open) && open != 0, "handle key {open:#x} again");
            live.push((key, open));
        } else if !live.is_empty() {
            let (key, open) = live.swap_remove(random.below(live.len()));
            store.begin();
            store.handle_free(store.handle_by_key(open).expect("open"));
            store.commit();
            forget(&store, store.node_by_key(key).expect("live"));
            dead.push((key, open));
        }
        if i % 500 == 0 {
            for (key, open) in &dead {
                assert_eq!(store.node_by_key(*key), None);
                assert_eq!(store.handle_by_key(*open), None);
            }
        }
    }
    assert!(header(&store, NODE_TOP) <= 42, "slots are used again");
}

/// What the kernel calls 0, and keys of places that no node can have.
#[test]
fn keys_outside_of_the_areas_name_nothing() {
    let (memory, store) = fresh(capacity(64));
    for key in [0, 2, 63, 64, 1 << 32, (1 << 32) | 1, u64::MAX] {
        assert_eq!(store.node_by_key(key), None);
        assert_eq!(store.handle_by_key(key), None);
    }
    // A wild write to the tops does not let other areas be taken for records.
    for field in [0, 2] {
        memory.store(store.layout().store + field, u64::MAX);
    }
    for at in store.layout().handles..store.layout().words {
        memory.store(at, u64::MAX >> 32 << 32 | 1);
    }
    assert!((0..64).any(|slot| store.node_by_key(1 << 32 | slot).is_some()));
    for slot in (64..100_000).chain([u64::from(u32::MAX)]) {
        assert_eq!(store.node_by_key(1 << 32 | slot), None, "slot {slot}");
        assert_eq!(store.handle_by_key(1 << 32 | slot), None, "slot {slot}");
    }
}

#[test]
fn full_areas_refuse_and_recover() {
    let small = Capacity {
        nodes: 12,
        handles: 5,
        slots: 2,
        heap_words: 200,
        copy_bytes: 0,
        effect_bytes: 0,
        epoch_bytes: 0,
    };
    let (_, store) = fresh(small);
    for round in 0..5 {
        let mut nodes = Vec::new();
        while let Some(node) =
            enter(&store, Node::ROOT, &name(nodes.len() as u64), 9, nodes.len() as u64 + 2)
        {
            nodes.push(node);
        }
        assert_eq!(nodes.len(), 10, "round {round}: all but number 0 and the root");
        let open = OpenDescription {
            node: nodes[0],
            flags: 0,
            uid: 0,
            gid: 0,
            directory: false,
            fopen: 0,
        };
        store.begin();
        let handles: Vec<_> = std::iter::from_fn(|| store.handle_new(open)).collect();
        store.commit();
        assert_eq!(handles.len(), 4, "round {round}: all but number 0");
        // The heap is full for long names first, for short ones last.
        store.begin();
        for length in [1024, 200, 24, 8, 1] {
            for i in 0..=255 {
                if store.dentry_set(Node::ROOT, &vec![i; length], nodes[1]).is_err() {
                    assert_eq!(store.child(Node::ROOT, &vec![i; length]), None);
                    break;
                }
                assert_ne!(i, 255, "the heap is never full");
            }
        }
        assert_eq!(store.dentry_set(Node::ROOT, &[b'x'; 1025], nodes[2]), Err(()), "too long");
        assert_eq!(store.dentry_set(Node::ROOT, &[b'y'; 40], nodes[2]), Err(()), "full");
        store.commit();
        // What is there can still be renamed over.
        store.begin();
        assert_eq!(store.dentry_set(Node::ROOT, &name(0), nodes[5]), Ok(Some(nodes[0])));
        store.commit();
        assert_eq!(store.child(Node::ROOT, &name(0)), Some(nodes[5]));
        assert!(heap_top(&store) <= 99, "the heap ends where it ends");
        for handle in handles {
            store.begin();
            store.handle_free(handle);
            store.commit();
        }
        for node in nodes {
            forget(&store, node);
        }
        assert_eq!(free_units(&store), heap_top(&store));
        assert_eq!(live_nodes(&store), [1]);
    }
}

/// A daemon that shows one number for all of its files.
#[test]
fn a_number_of_very_many_files_holds_nobody_up() {
    const ALL: u64 = 100_100;
    let (memory, store) = fresh(capacity(1 << 17));
    let node_of = |ino: u64, id: u64| {
        store.begin();
        let node = store.node_new(8, ino, NodeFlags::empty()).expect("room");
        store.set_count(node, 1);
        store.bind(node, 0, id);
        store.index_by_ino(node);
        store.commit();
        node
    };
    let nodes: Vec<_> = (0..ALL).map(|id| node_of(7, 1000 + id)).collect();
    let before = memory.loads();
    assert_eq!(store.other_by_ino(nodes[0], 7, |_| false), None);
    assert!(memory.loads() - before < 1000, "{} loads", memory.loads() - before);
    let indexed = || {
        let is_indexed = |node: &Node| store.node_flags(*node).intersects(NodeFlags::BY_INO);
        store.some_nodes().filter(is_indexed).count() as u64
    };
    assert_eq!(header(&store, 21), indexed());
    // The first, which are the last in their chain.
    for node in &nodes[..10] {
        forget(&store, *node);
        assert_eq!(header(&store, 21), indexed(), "it is in no chain any more");
    }
    let other = node_of(8, 999);
    assert_eq!(store.other_by_ino(Node::ROOT, 8, |_| true), Some(other));
    // One that comes to that number, and leaves it.
    for ino in [7, 9] {
        for node in [other, nodes[ALL as usize - 1]] {
            store.begin();
            store.set_ino(node, ino);
            store.commit();
            assert_eq!(header(&store, 21), indexed());
        }
    }
    assert!(store.other_by_ino(Node::ROOT, 7, |_| true).is_some());
}

/// Names of 16 bytes in the root whose hashes are all the same: see `hash_bytes`.
fn colliding(i: u64) -> Vec<u8> {
    const K: u64 = 0x517c_c1b7_2722_0a95;
    let first = 0x0101_0101_0101_0101 + i;
    let hash = (K.rotate_left(5) ^ first).wrapping_mul(K);
    let second = 0x1234_5678 ^ hash.rotate_left(5);
    [first.to_ne_bytes(), second.to_ne_bytes()].concat()
}

#[test]
fn colliding_names_are_slow_but_held_and_split_at_once() {
    const MANY: u64 = 3000;
    let (memory, store) = fresh(capacity(1 << 13));
    let node = enter(&store, Node::ROOT, b"file", 1, 2).expect("room");
    let add = |name: &[u8]| {
        let store = Store::new(memory.clone(), *store.layout());
        store.begin();
        assert_eq!(store.dentry_set(Node::ROOT, name, node), Ok(None));
        store.commit();
    };
    let hashes: HashSet<_> = (0..MANY)
        .map(|i| {
            add(&colliding(i));
            let last = store.dentry_find(Node::ROOT, &colliding(i)).expect("just added");
            assert_eq!(store.dentry_node(last), node);
            let at = store.layout().heap + header(&store, 4) as usize * 2;
            memory.load(at - 6 + 2) // the word before the name of a block of three units
        })
        .collect();
    assert_eq!(hashes.len(), 1, "they do collide");
    // Each further name splits one bucket: in time that of all the colliding ones.
    for i in 0..2000 {
        memory.mark();
        let (_, stores) = memory.process(usize::MAX, || add(&name(i)));
        if stores > 3 * MANY as usize {
            memory.rewind();
            for at in (0..stores).step_by(499).chain([stores - 1]) {
                memory.process(at, || add(&name(i)));
                store.recover().expect("changes fit");
                assert_eq!(store.child(Node::ROOT, &name(i)), None);
                assert!(
                    (0..MANY).step_by(97).all(|i| store.child(Node::ROOT, &colliding(i)).is_some())
                );
                memory.rewind();
            }
            return;
        }
    }
    panic!("the long chain was never split");
}

/// A file with very many names (hard links) is forgotten in one change.
#[test]
fn a_node_with_thousands_of_names_goes_at_once() {
    const NAMES: u64 = 1200;
    let (memory, store) = fresh(capacity(1 << 12));
    let node = enter(&store, Node::ROOT, &name(0), 1, 2).expect("room");
    let key = store.key(node);
    for i in 1..NAMES {
        store.begin();
        assert_eq!(store.dentry_set(Node::ROOT, &name(i), node), Ok(None));
        store.commit();
    }
    memory.mark();
    let forget = || forget(&Store::new(memory.clone(), *store.layout()), node);
    let (_, stores) = memory.process(usize::MAX, forget);
    assert_eq!(live_nodes(&store), [1]);
    assert_eq!(free_units(&store), heap_top(&store));
    memory.rewind();
    for at in (0..stores).step_by(611).chain([stores - 1]) {
        memory.process(at, forget);
        store.recover().expect("changes fit");
        assert_eq!(live_nodes(&store), [1, key]);
        assert!((0..NAMES).all(|i| store.child(Node::ROOT, &name(i)) == Some(node)), "death {at}");
        memory.rewind();
    }
}

#[test]
fn slots_that_were_never_used_are_known_without_a_look() {
    let capacity = Capacity { slots: 8, ..Capacity::SMALL };
    let (_, store) = fresh(capacity);
    assert_eq!(store.slots_used(), 0);
    let fill = |store: &Store<Sim>, slot: u32| {
        let request = InFlight {
            state: SlotState::Started,
            opcode: 1,
            unique: 2,
            node: 1,
            uid: 0,
            gid: 0,
            pid: 0,
            generation: 0,
        };
        store.slot_fill(Slot(slot), &request, b"", 40);
    };
    fill(&store, 0);
    fill(&store, 3);
    fill(&store, 1);
    store.slot_free(Slot(3));
    assert_eq!(store.slots_used(), 4);
    // The next generation: a lower slot must not hide what an older one holds further up.
    store.recover().expect("changes fit");
    fill(&store, 2);
    assert_eq!(store.slots_used(), 4);
    store.slot_prepare(Slot(5));
    assert_eq!(store.slots_used(), 6);
}

#[test]
fn a_copy_is_what_was_read_and_not_longer_than_its_room() {
    let (_memory, store) = fresh(Capacity { slots: 2, copy_bytes: 64, ..capacity(4) });
    let (_, room) = store.slot_copy(Slot(1));
    for length in [16, 17, 40, room - 1, room] {
        let message: Vec<u8> = (0..length).map(|i| (i % 200) as u8 + 1).collect();
        store.slot_prepare(Slot(1));
        assert!(store.slot_copy_in(Slot(1), &message), "{length}");
        assert_eq!(store.slot_copy_bytes(Slot(1), length), message);
    }
    store.slot_prepare(Slot(0));
    for length in [0, 7, 15, room + 1] {
        assert!(!store.slot_copy_in(Slot(0), &vec![1; length]), "{length}");
        assert_eq!(store.slot_copy_bytes(Slot(0), 40.min(room)), vec![0; 40.min(room)]);
    }
}
