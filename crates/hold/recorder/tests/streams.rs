//! Directory streams: what a change that did not take effect leaves behind.
#![allow(missing_docs)]

mod common;

use belay_recorder::{Capacity, Node, OpenDescription, Store};
use common::{CHUNK_UNITS, Sim, chunks, free_units, fresh, heap_top};

const CAPACITY: Capacity = Capacity {
    nodes: 16,
    handles: 4,
    slots: 2,
    heap_words: 4 * 130 + 2,
    copy_bytes: 0,
    effect_bytes: 0,
    epoch_bytes: 0,
};

fn directory(store: &Store<Sim>) -> belay_recorder::Handle {
    let open =
        OpenDescription { node: Node::ROOT, flags: 0, uid: 0, gid: 0, directory: true, fopen: 0 };
    store.begin();
    let handle = store.handle_new(open).expect("room");
    store.commit();
    handle
}

fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| (i / 8 % 251) as u8).collect()
}

#[test]
fn an_append_after_one_that_died_goes_where_it_belongs() {
    // Each with the second append's start at, before and behind a chunk's end.
    for first in [0, 1000, 1032, 2 * 1032 - 8] {
        let (memory, store) = fresh(CAPACITY);
        let handle = directory(&store);
        assert!(store.stream_append(handle, &bytes(0, first)));
        memory.mark();
        let big = vec![0xaa; 2 * 1032];
        let (_, stores) = memory.process(usize::MAX, || store.stream_append(handle, &big));
        memory.rewind();
        for at in 0..stores {
            let store = Store::new(memory.clone(), *store.layout());
            memory.process(at, || store.stream_append(handle, &big));
            let store = Store::new(memory.clone(), *store.layout());
            store.recover().expect("changes fit");
            assert_eq!(store.stream_bytes(handle, 0), bytes(0, first));
            assert!(store.stream_append(handle, &bytes(first, 8)));
            assert!(store.stream_append(handle, &bytes(first + 8, 1032)));
            assert_eq!(store.stream_bytes(handle, 0), bytes(0, first + 8 + 1032));
            assert_eq!(store.stream_bytes(handle, first), bytes(first, 1040));
            assert_eq!(store.stream_batch(handle), first + 8);
            memory.rewind();
        }
    }
}

#[test]
fn an_append_that_found_no_room_leaves_the_stream_as_it_was() {
    let (_, store) = fresh(CAPACITY);
    let handle = directory(&store);
    assert!(store.stream_append(handle, &bytes(0, 1000)));
    assert!(!store.stream_append(handle, &vec![0xaa; 5 * 1032]), "there are four chunks");
    assert_eq!(store.stream_bytes(handle, 0), bytes(0, 1000));
    assert!(store.stream_append(handle, &bytes(1000, 3 * 1032)));
    assert_eq!(store.stream_bytes(handle, 0), bytes(0, 1000 + 3 * 1032));
    assert_eq!(chunks(&store, store.handle_key(handle)), 4);
}

#[test]
fn chunks_of_a_stream_that_never_began_are_given_back() {
    let (_, store) = fresh(CAPACITY);
    let handle = directory(&store);
    assert!(!store.stream_append(handle, &vec![0xaa; 5 * 1032]));
    assert_eq!(store.stream_len(handle), 0);
    store.stream_truncate(handle, 0);
    assert_eq!(chunks(&store, store.handle_key(handle)), 0);
    assert_eq!(free_units(&store), heap_top(&store));
    assert_eq!(heap_top(&store), 4 * CHUNK_UNITS);
}

#[test]
fn what_is_put_in_the_place_of_an_end_is_there_whole_or_not_at_all() {
    let capacity = Capacity { heap_words: 14 * 130 + 2, ..CAPACITY };
    let all = bytes(0, 5 * 1032 - 16);
    let new = vec![0xaa; 2 * 1032];
    for from in [0, 8, 1032, 1040, 2 * 1032, 5 * 1032 - 24, 5 * 1032 - 16] {
        let (memory, store) = fresh(capacity);
        let handle = directory(&store);
        assert!(store.stream_append(handle, &all[..1016]));
        assert!(store.stream_append(handle, &all[1016..]));
        let replace = |store: &Store<Sim>| {
            assert!(store.stream_replace(handle, store.stream_position(handle, from), &new));
        };
        let after = [&all[..from], &new].concat();
        memory.mark();
        let (_, stores) = memory.process(usize::MAX, || replace(&store));
        memory.rewind();
        for at in 0..=stores {
            memory.process(at, || replace(&Store::new(memory.clone(), *store.layout())));
            let store = Store::new(memory.clone(), *store.layout());
            store.recover().expect("changes fit");
            let found = store.stream_bytes(handle, 0);
            assert!(found == all || (at > 0 && found == after), "death {at} of {stores}, {from}");
            assert_eq!(found == after, store.stream_batch(handle) == from, "death {at}");
            assert!(at < stores || found == after, "it is done in the end");
            let held = CHUNK_UNITS * chunks(&store, store.handle_key(handle));
            assert_eq!(heap_top(&store), held + free_units(&store), "death {at}");
            // What it left behind is used by the next one.
            replace(&store);
            assert_eq!(store.stream_bytes(handle, 0), after);
            memory.rewind();
        }
    }
}

/// What is got on the way is given back, as others may find room with it; wherever that ends,
/// nothing of it is lost.
#[test]
fn what_finds_no_room_holds_none() {
    for replaces in [false, true] {
        let (memory, store) = fresh(CAPACITY);
        let handle = directory(&store);
        let all = bytes(0, 2 * 1032 - 8);
        assert!(store.stream_append(handle, &all));
        let fails = |store: &Store<Sim>| {
            let big = vec![0xaa; 4 * 1032];
            let from = store.stream_position(handle, if replaces { 8 } else { all.len() });
            assert!(!store.stream_replace(handle, from, &big), "there are four chunks");
        };
        memory.mark();
        let (_, stores) = memory.process(usize::MAX, || fails(&store));
        assert_eq!(chunks(&store, store.handle_key(handle)), 2, "as before");
        assert!(store.stream_append(directory(&store), &bytes(0, 2 * 1032)), "room for another");
        memory.rewind();
        for at in 0..stores {
            memory.process(at, || fails(&Store::new(memory.clone(), *store.layout())));
            let store = Store::new(memory.clone(), *store.layout());
            store.recover().expect("changes fit");
            assert_eq!(store.stream_bytes(handle, 0), all, "death {at}");
            let held = CHUNK_UNITS * chunks(&store, store.handle_key(handle));
            assert_eq!(heap_top(&store), held + free_units(&store), "death {at}");
            fails(&store);
            assert_eq!(chunks(&store, store.handle_key(handle)), 2, "death {at}");
            assert_eq!(store.stream_bytes(handle, 0), all, "death {at}");
            memory.rewind();
        }
    }
}

#[test]
fn what_finds_no_room_replaces_nothing() {
    let (_, store) = fresh(CAPACITY);
    let handle = directory(&store);
    assert!(store.stream_append(handle, &bytes(0, 3 * 1032)));
    let from = store.stream_position(handle, 8);
    assert!(!store.stream_replace(handle, from, &vec![0xaa; 2 * 1032]), "there are four chunks");
    assert_eq!(store.stream_bytes(handle, 0), bytes(0, 3 * 1032));
    assert!(store.stream_replace(handle, from, &[0xaa; 1000]));
    assert_eq!(store.stream_bytes(handle, 0), [&bytes(0, 8)[..], &[0xaa; 1000]].concat());
    assert_eq!(store.stream_batch(handle), 8);
}

#[test]
fn a_part_is_read_without_the_rest() {
    let capacity = Capacity { heap_words: 400 * 130 + 2, ..CAPACITY };
    let (memory, store) = fresh(capacity);
    let handle = directory(&store);
    let all = bytes(0, 399 * 1032 - 8);
    assert!(store.stream_append(handle, &all));
    let mut position = store.stream_position(handle, 16);
    let mut found = Vec::new();
    let before = memory.loads();
    loop {
        let (part, next) = store.stream_read(handle, position, 4096);
        if part.is_empty() {
            break;
        }
        found.extend_from_slice(&part);
        assert_eq!(next, store.stream_position(handle, next.at), "as one that was walked to");
        position = next;
    }
    assert_eq!(found, all[16..]);
    assert_eq!(position, store.stream_end(handle));
    let position = store.stream_position(handle, 200 * 1032 - 8);
    let (start, end) = (memory.loads(), position.at + 16);
    assert_eq!(store.stream_read(handle, position, 16).0, all[position.at..end]);
    assert!(memory.loads() - start < 10, "{} loads for two words", memory.loads() - start);
    assert!(start > before);
}

#[test]
fn truncation_is_one_change_and_loses_no_chunk() {
    let capacity = Capacity { heap_words: 400 * 130 + 2, ..CAPACITY };
    for keep in [0, 8, 1032, 300 * 1032] {
        let (memory, store) = fresh(capacity);
        let handle = directory(&store);
        let all = bytes(0, 399 * 1032);
        assert!(store.stream_append(handle, &all));
        memory.mark();
        let (_, stores) = memory.process(usize::MAX, || store.stream_truncate(handle, keep));
        memory.rewind();
        for at in 0..=stores {
            let store = Store::new(memory.clone(), *store.layout());
            memory.process(at, || store.stream_truncate(handle, keep));
            let store = Store::new(memory.clone(), *store.layout());
            store.recover().expect("changes fit");
            let found = store.stream_bytes(handle, 0);
            assert!(found == all || (at > 0 && found == all[..keep]), "death {at}");
            let held = CHUNK_UNITS * chunks(&store, store.handle_key(handle));
            assert_eq!(heap_top(&store), held + free_units(&store), "death {at}");
            memory.rewind();
        }
    }
}
