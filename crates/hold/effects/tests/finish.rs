//! What was committed is carried out, on a real file.
#![allow(missing_docs)]

mod common;

use belay_effects::area::Area;
use belay_effects::finish::finish;
use belay_effects::log::{COMMITTED, Head, TORN};
use belay_effects::{Kind, Log};
use belay_recorder::{InFlight, Slot, SlotState, Store};
use belay_sys::Mapping;
use common::layout;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

struct Fixture {
    _dir: tempfile::TempDir,
    path: std::path::PathBuf,
    memory: Arc<Mapping>,
    /// What the daemon had for its image.
    opened: Option<File>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, "................").unwrap();
        let memory = dir.path().join("memory");
        let file = File::options().read(true).write(true).create_new(true).open(memory).unwrap();
        let len = layout().words * 8;
        file.set_len(len as u64).unwrap();
        let memory = Arc::new(Mapping::new(file.as_fd(), len).unwrap());
        let opened = File::options().write(true).open(&path).ok();
        Self { _dir: dir, path, memory, opened }
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
        finish(&store, self.opened.as_ref().map(AsFd::as_fd))
    }

    fn image(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }
}

#[test]
fn what_was_answered_or_committed_is_carried_out_once_and_nothing_else() {
    let fixture = Fixture::new();
    fixture.write(0, &[(0, b"ab"), (1, b"cd")]);
    fixture.write(1, &[(5, b"xx")]);
    fixture.write(2, &[(8, b"ef")]).raise(COMMITTED);
    let states = [SlotState::Replied, SlotState::Started, SlotState::Started];
    assert_eq!(fixture.finish(&states), Ok(2));
    assert_eq!(fixture.image(), "acd.....ef......");
    assert_eq!(fixture.finish(&states), Ok(0));
}

/// Whatever has its name by now.
#[test]
fn what_is_committed_goes_to_the_file_that_the_daemon_had_and_to_no_other() {
    let mut fixture = Fixture::new();
    fixture.write(0, &[(0, b"ab")]);
    let opened = fixture.opened.take();
    assert!(fixture.finish(&[SlotState::Replied]).unwrap_err().contains("had opened no image"));
    fixture.opened = opened;
    let aside = fixture.path.with_extension("aside");
    std::fs::rename(&fixture.path, &aside).unwrap();
    std::fs::write(&fixture.path, "another").unwrap();
    assert_eq!(fixture.finish(&[SlotState::Replied]), Ok(1));
    assert_eq!(fixture.image(), "another");
    assert_eq!(std::fs::read_to_string(&aside).unwrap(), "ab..............");
}

/// A write by root leaves a set-uid bit in place, one by the daemon would not have.
#[test]
fn it_is_carried_out_without_privileges() {
    let fixture = Fixture::new();
    std::fs::set_permissions(&fixture.path, std::fs::Permissions::from_mode(0o4755)).unwrap();
    for round in 0..2 {
        fixture.write(0, &[(0, b"ab")]);
        assert_eq!(fixture.finish(&[SlotState::Replied]), Ok(1));
        assert_eq!(std::fs::metadata(&fixture.path).unwrap().mode() & 0o7777, 0o755, "{round}");
    }
    // And has all rights again afterwards.
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(&fixture.path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        std::fs::write(&fixture.path, "by root").unwrap();
        assert_eq!(std::fs::metadata(&fixture.path).unwrap().mode() & 0o7777, 0o4755);
    }
}

/// A request that was too long: its log was written to the image when it was full, and what came
/// later went there at once.
#[test]
fn what_was_written_since_is_not_written_over() {
    let fixture = Fixture::new();
    let log = fixture.write(0, &[(0, b"old")]);
    log.raise(TORN);
    std::fs::write(&fixture.path, "new.............").unwrap();
    log.raise(COMMITTED);
    assert_eq!(fixture.finish(&[SlotState::Replied]), Ok(0));
    assert_eq!(fixture.image(), "new.............");
}

/// A read that writes access times: its answer is not recorded, and its slot is free by the time
/// that the transaction is committed.
#[test]
fn a_committed_transaction_is_carried_out_though_its_slot_is_free() {
    let fixture = Fixture::new();
    fixture.write(1, &[(0, b"lost"), (9, b"lost")]);
    assert_eq!(fixture.finish(&[]), Ok(0));
    assert_eq!(fixture.image(), "................");
    fixture.write(1, &[(0, b"time"), (9, b"time")]).raise(COMMITTED);
    assert_eq!(fixture.finish(&[]), Ok(1));
    assert_eq!(fixture.image(), "time.....time...");
    assert_eq!(fixture.finish(&[]), Ok(0));
}
