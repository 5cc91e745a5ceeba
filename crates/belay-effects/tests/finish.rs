//! What was committed is carried out, on a real file.
#![allow(missing_docs)]

mod common;

use belay_effects::area::{Area, Image};
use belay_effects::finish::finish;
use belay_effects::log::{COMMITTED, Head, TORN};
use belay_effects::{Kind, Log};
use belay_recorder::{InFlight, Slot, SlotState, Store};
use belay_sys::Mapping;
use common::layout;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

struct Bed {
    _dir: tempfile::TempDir,
    path: std::path::PathBuf,
    memory: Arc<Mapping>,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, "................").unwrap();
        let memory = dir.path().join("memory");
        let file = File::options().read(true).write(true).create_new(true).open(memory).unwrap();
        let len = layout().words * 8;
        file.set_len(len as u64).unwrap();
        let memory = Arc::new(Mapping::new(file.as_fd(), len).unwrap());
        let stat = std::fs::metadata(&path).unwrap();
        let bytes = path.as_os_str().as_bytes().to_vec();
        let image = Image { device: stat.dev(), inode: stat.ino(), path: bytes };
        Area::new(&memory, layout()).set_image(&image);
        Self { _dir: dir, path, memory }
    }

    /// A request that has written to the image.
    fn write(&self, slot: u32, writes: &[(u64, &[u8])]) -> Log<'_, Arc<Mapping>> {
        let log = Area::new(&self.memory, layout()).log(Slot(slot));
        log.begin(u64::from(slot) + 2);
        for (at, bytes) in writes {
            let head = Head { kind: Kind::Image as u32, digest: *at, ..Head::default() };
            log.append(&head, bytes).unwrap();
        }
        log
    }

    /// Finishes what the first slots hold, whose requests are in these states. The others are free.
    fn finish(&self, states: &[SlotState]) -> Result<usize, String> {
        let store = Store::new(Arc::clone(&self.memory), layout());
        for slot in (0..3).map(Slot) {
            let request = InFlight {
                state: states.get(slot.0 as usize).copied().unwrap_or(SlotState::Free),
                opcode: 9,
                unique: u64::from(slot.0) + 2,
                node: 1,
                uid: 0,
                gid: 0,
                pid: 0,
                generation: 0,
            };
            store.slot_fill(slot, &request, &[], 40);
        }
        finish(&store)
    }

    fn image(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }
}

#[test]
fn what_was_answered_or_committed_is_carried_out_once_and_nothing_else() {
    let bed = Bed::new();
    bed.write(0, &[(0, b"ab"), (1, b"cd")]);
    bed.write(1, &[(5, b"xx")]);
    bed.write(2, &[(8, b"ef")]).raise(COMMITTED);
    let states = [SlotState::Replied, SlotState::Started, SlotState::Started];
    assert_eq!(bed.finish(&states), Ok(2));
    assert_eq!(bed.image(), "acd.....ef......");
    assert_eq!(bed.finish(&states), Ok(0));
}

#[test]
fn nothing_is_carried_out_on_another_file() {
    let bed = Bed::new();
    bed.write(0, &[(0, b"ab")]);
    let aside = bed.path.with_extension("aside");
    std::fs::rename(&bed.path, &aside).unwrap();
    assert!(bed.finish(&[SlotState::Replied]).unwrap_err().contains("cannot open"));
    std::fs::write(&bed.path, "another").unwrap();
    assert!(bed.finish(&[SlotState::Replied]).unwrap_err().contains("not the image"));
    assert_eq!(bed.image(), "another");
    std::fs::rename(&aside, &bed.path).unwrap();
    assert_eq!(bed.finish(&[SlotState::Replied]), Ok(1));
    assert_eq!(bed.image(), "ab..............");
}

/// A request that was too long: its log was written to the image when it was full, and what came later went there at once.
#[test]
fn what_was_written_since_is_not_written_over() {
    let bed = Bed::new();
    let log = bed.write(0, &[(0, b"old")]);
    log.raise(TORN);
    std::fs::write(&bed.path, "new.............").unwrap();
    log.raise(COMMITTED);
    assert_eq!(bed.finish(&[SlotState::Replied]), Ok(0));
    assert_eq!(bed.image(), "new.............");
}

/// A read that writes access times: its answer is not recorded, and its slot is free by the time that the
/// transaction is committed.
#[test]
fn a_committed_transaction_is_carried_out_though_its_slot_is_free() {
    let bed = Bed::new();
    bed.write(1, &[(0, b"lost"), (9, b"lost")]);
    assert_eq!(bed.finish(&[]), Ok(0));
    assert_eq!(bed.image(), "................");
    bed.write(1, &[(0, b"time"), (9, b"time")]).raise(COMMITTED);
    assert_eq!(bed.finish(&[]), Ok(1));
    assert_eq!(bed.image(), "time.....time...");
    assert_eq!(bed.finish(&[]), Ok(0));
}
