//! Lock ranges against a map of bytes.
#![allow(missing_docs)]

mod common;

use belay_memory::Memory;
use belay_recorder::{Capacity, F_RDLCK, F_UNLCK, F_WRLCK, Lock, Store};
use common::{fresh, heap_top};
use proptest::prelude::*;
use std::collections::BTreeMap;

const BYTES: u64 = 40;

/// Byte by byte: type, handle and pid of an owner's lock on a node.
type Map = BTreeMap<(u64, u64, bool, u64), (u32, u64, u32)>;

/// The bytes of the model: the first 40, and the last one of the file.
fn bytes() -> impl Iterator<Item = u64> {
    (0..BYTES).chain([u64::MAX])
}

fn apply(map: &mut Map, lock: &Lock) {
    for byte in bytes().filter(|byte| (lock.start..=lock.end).contains(byte)) {
        let at = (lock.node, lock.owner, lock.flock, byte);
        if lock.kind == F_UNLCK {
            map.remove(&at);
        } else {
            map.insert(at, (lock.kind, lock.handle, lock.pid));
        }
    }
}

fn read<M: Memory>(store: &Store<M>) -> Map {
    let mut map = Map::new();
    for lock in store.locks() {
        assert_ne!(lock.kind, F_UNLCK);
        for byte in bytes().filter(|byte| (lock.start..=lock.end).contains(byte)) {
            let at = (lock.node, lock.owner, lock.flock, byte);
            assert_eq!(
                map.insert(at, (lock.kind, lock.handle, lock.pid)),
                None,
                "byte {byte} twice"
            );
        }
    }
    assert_eq!(store.has_locks(), !map.is_empty());
    map
}

fn lock() -> impl Strategy<Value = Lock> {
    let end = prop_oneof![4 => 0..BYTES, 1 => Just(u64::MAX)];
    (1..3u64, 1..3u64, 1..3u64, 0..BYTES, end, 0..3u32, any::<bool>()).prop_map(
        |(node, handle, owner, a, b, kind, flock)| Lock {
            node,
            handle,
            owner,
            start: a.min(b),
            end: a.max(b),
            kind,
            pid: handle as u32,
            flock,
        },
    )
}

const CAPACITY: Capacity = Capacity {
    nodes: 16,
    handles: 4,
    slots: 2,
    heap_words: 1 << 14,
    copy_bytes: 0,
    effect_bytes: 0,
    epoch_bytes: 0,
};

proptest! {
    #![proptest_config(belay_seeds::cases!(128))]

    #[test]
    fn ranges_split_as_bytes_do(locks in prop::collection::vec(lock(), 1..120), owner in 1..3u64) {
        let (_, store) = fresh(CAPACITY);
        let mut map = Map::new();
        for lock in locks {
            store.begin();
            prop_assert!(store.lock_apply(lock));
            store.commit();
            apply(&mut map, &lock);
            prop_assert_eq!(&read(&store), &map);
        }
        store.begin();
        store.locks_remove(|lock| lock.owner == owner);
        store.commit();
        map.retain(|at, _| at.1 != owner);
        prop_assert_eq!(&read(&store), &map);
    }

    #[test]
    fn a_refused_lock_changes_nothing(locks in prop::collection::vec(lock(), 1..120)) {
        // Room for five locks of eight words.
        let (_, store) = fresh(Capacity { heap_words: 2 + 5 * 8, ..CAPACITY });
        let mut map = Map::new();
        for lock in locks {
            store.begin();
            let done = store.lock_apply(lock);
            store.commit();
            if done {
                apply(&mut map, &lock);
            } else {
                prop_assert!(heap_top(&store) + 2 * 4 > 20, "two at most are needed");
            }
            prop_assert_eq!(&read(&store), &map);
        }
    }
}

fn whole(kind: u32, start: u64, end: u64) -> Lock {
    Lock { node: 1, handle: 1, owner: 1, start, end, kind, pid: 1, flock: false }
}

#[test]
fn the_whole_range_can_be_locked_and_cut_at_its_ends() {
    let (_, store) = fresh(CAPACITY);
    for lock in [
        whole(F_WRLCK, 0, u64::MAX),
        whole(F_RDLCK, 0, 0),
        whole(F_UNLCK, u64::MAX, u64::MAX),
        whole(F_UNLCK, 5, 5),
    ] {
        assert!(store.lock_apply(lock));
    }
    let mut ranges: Vec<_> = store.locks().iter().map(|l| (l.start, l.end, l.kind)).collect();
    ranges.sort_unstable();
    assert_eq!(ranges, [(0, 0, F_RDLCK), (1, 4, F_WRLCK), (6, u64::MAX - 1, F_WRLCK)]);
    assert!(store.lock_apply(whole(F_UNLCK, 0, u64::MAX)));
    assert_eq!(store.locks(), []);
}

#[test]
fn room_given_up_by_the_same_call_is_used() {
    // Room for two: a lock may be cut in two, but not in three.
    let (_, store) = fresh(Capacity { heap_words: 2 + 2 * 8, ..CAPACITY });
    assert!(store.lock_apply(whole(F_WRLCK, 0, 99)));
    assert!(!store.lock_apply(whole(F_RDLCK, 40, 50)));
    assert_eq!(store.locks(), [whole(F_WRLCK, 0, 99)]);
    assert!(store.lock_apply(whole(F_UNLCK, 40, 50)));
    assert_eq!(store.locks().len(), 2);
    assert!(store.lock_apply(whole(F_RDLCK, 0, 99)));
    assert_eq!(store.locks(), [whole(F_RDLCK, 0, 99)]);
}

#[test]
fn thousands_of_locks_are_dropped_in_one_change() {
    let (memory, store) = fresh(Capacity { heap_words: 1 << 15, ..CAPACITY });
    let most = store.most_locks();
    for i in 0..most as u64 {
        store.begin();
        assert!(store.lock_apply(whole(F_WRLCK, 2 * i, 2 * i)));
        store.commit();
    }
    // Another one, and one in the middle of which others are: each more than there may be.
    store.begin();
    assert!(!store.lock_apply(whole(F_WRLCK, 1, 1)));
    assert!(store.lock_apply(whole(F_RDLCK, 0, 0)), "in the place of another");
    store.commit();
    memory.mark();
    let drop_all = || {
        let store = Store::new(memory.clone(), *store.layout());
        store.begin();
        store.locks_remove(|_| true);
        store.commit();
    };
    let (_, stores) = memory.process(usize::MAX, drop_all);
    assert!(!store.has_locks());
    memory.rewind();
    for at in (0..stores).step_by(997).chain([stores - 1]) {
        memory.process(at, drop_all);
        Store::new(memory.clone(), *store.layout()).recover().expect("changes fit");
        assert_eq!(store.locks().len(), most, "death {at} of {stores}");
        memory.rewind();
    }
}
