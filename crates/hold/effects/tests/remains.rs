//! What a crash leaves is true, or not there.
#![allow(missing_docs)]

mod common;

use belay_effects::remains::{self, Head, MAPS_BYTES, Machine, REGISTERS_MAX, STACK_BYTES};
use belay_memory::Memory;
use belay_recorder::Layout;
use belay_recorder::layout::REMAINS_WORDS;
use common::{Mortal, layout};

fn head() -> Head {
    let mut registers = [0; REGISTERS_MAX];
    for (i, register) in registers.iter_mut().enumerate() {
        *register = 0x1111 * i as u64;
    }
    Head {
        generation: 3,
        machine: Machine::Aarch64,
        signal: 11,
        code: -6,
        address: 0x1234_5678_9abc,
        sender: 17,
        process: 18,
        thread: 19,
        unique: 20,
        opcode: 9,
        registers,
        stack_at: 0x7fff_0000_1238,
        stack_bytes: 29,
        maps_bytes: 17,
        message_bytes: 11,
    }
}

const STACK: &[u8] = b"the stack, of twenty-nine byt";
const MAPS: &[u8] = b"1-2 r-xp 0 0:0 0\n";
const MESSAGE: &[u8] = b"heap broken";

fn leave(memory: &Mortal, layout: &Layout) {
    remains::clear(memory, layout);
    memory.store_bytes(remains::stack_room(layout).0 / 8, STACK);
    memory.store_bytes(remains::maps_room(layout).0 / 8, MAPS);
    memory.store_bytes(remains::message_room(layout).0 / 8, MESSAGE);
    remains::seal(memory, layout, &head());
}

#[test]
fn what_is_left_is_found_by_its_generation() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    assert_eq!(remains::read(&memory, &layout, 0), None, "a new recorder");
    leave(&memory, &layout);
    let found = remains::read(&memory, &layout, 3).expect("remains");
    assert_eq!((found.head, &found.stack[..], &found.maps[..]), (head(), STACK, MAPS));
    assert_eq!(found.message, MESSAGE);
    assert_eq!(remains::read_head(&memory, &layout, 3), Some(head()));
    assert_eq!(remains::read(&memory, &layout, 2), None);
    remains::clear(&memory, &layout);
    assert_eq!(remains::read(&memory, &layout, 3), None);
}

#[test]
fn a_death_at_any_store_leaves_all_or_nothing() {
    let layout = layout();
    let full = Mortal::new(&layout);
    leave(&full, &layout);
    let stores = full.stores.get();
    for death in 0..stores {
        let memory = Mortal::new(&layout);
        // An earlier crash has left something, too.
        memory.store_bytes(remains::stack_room(&layout).0 / 8, STACK);
        remains::seal(&memory, &layout, &Head { generation: 2, ..head() });
        memory.dies_after(death);
        leave(&memory, &layout);
        memory.revive();
        assert_eq!(remains::read(&memory, &layout, 3), None, "death at store {death}");
        assert!(death == 0 || remains::read(&memory, &layout, 2).is_none());
    }
}

#[test]
fn no_word_can_be_altered_unseen() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    leave(&memory, &layout);
    let true_one = remains::read(&memory, &layout, 3).expect("remains");
    for word in 0..REMAINS_WORDS {
        let at = layout.remains + word;
        let before = memory.load(at);
        for altered in [!before, before ^ 1, before.wrapping_add(1 << 32), before ^ 1 << 63] {
            memory.store(at, altered);
            // Behind what is kept, and between its parts, there is nothing to alter.
            if let Some(found) = remains::read(&memory, &layout, 3) {
                let head =
                    Head { stack_bytes: 29, maps_bytes: 17, message_bytes: 11, ..found.head };
                assert_eq!(head, true_one.head, "word {word}");
                let parts =
                    |r: &remains::Remains| [r.stack.clone(), r.maps.clone(), r.message.clone()];
                let kept = parts(&found) == parts(&true_one);
                let dropped = parts(&found).iter().all(Vec::is_empty);
                assert!(kept || dropped, "word {word}");
            }
        }
        memory.store(at, before);
    }
}

#[test]
fn lengths_that_cannot_be_are_cut() {
    let layout = layout();
    let memory = Mortal::new(&layout);
    let most = usize::MAX;
    let endless = Head { stack_bytes: most, maps_bytes: most, message_bytes: most, ..head() };
    remains::seal(&memory, &layout, &endless);
    let found = remains::read(&memory, &layout, 3).expect("remains");
    assert_eq!((found.stack.len(), found.maps.len()), (STACK_BYTES, MAPS_BYTES));
    assert_eq!(found.message.len(), remains::MESSAGE_BYTES);
}

#[test]
fn who_sent_a_signal() {
    let sent = |code, sender| Head { code, sender, process: 18, ..head() }.is_from_outside();
    assert_eq!(sent(1, 0), Some(false), "the kernel, for an instruction");
    assert_eq!(sent(0x80, 0), Some(false));
    assert_eq!(sent(-6, 18), Some(false), "abort(3)");
    assert_eq!(sent(0, 17), Some(true), "kill(1)");
    assert_eq!(sent(-1, 17), Some(true));
    assert_eq!(sent(-2, 17), None, "a timer");
}
