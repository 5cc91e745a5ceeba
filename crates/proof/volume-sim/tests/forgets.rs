//! What the kernel forgets: of files that have names nothing is looked at.

use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_posix::dispatch::{Module, Outcome};
use belay_posix::fetch::{Fetched, Miss};
use belay_posix::{Caller, Time};
use belay_store::Parameters;
use belay_volume_sim::disk::{Power, SimDisk};
use belay_volume_sim::memory::SimMemory;
use belay_wire::abi::{BatchForgetIn, ForgetOne, MkdirIn};
use belay_wire::build::{self, Ids};
use belay_wire::{EntryOut, Opcode, ROOT_ID, Reply};
use zerocopy::{FromBytes, IntoBytes};

type Below<'d> = Logical<&'d SimDisk>;
type Tested<'d> = Module<SimMemory, Fetched<Below<'d>>>;

fn begin<'d>(shared: &Shared<SimMemory>, life: u32) -> Tested<'d> {
    let attached = Publisher::attach::<Miss<belay_logical::Error>>(shared.clone(), life);
    Module::new(attached.unwrap().keeping(1 << 20), Fetched::default())
}

/// Has a message handled; gives the answer, and how often something was fetched for it.
fn handle<'d>(module: &mut Tested<'d>, below: &mut Below<'d>, message: &[u8]) -> (Vec<u8>, usize) {
    let (mut fetched, mut fetches) = (Fetched::default(), 0);
    loop {
        match module.handle_with(&mut fetched, message, Time::default()) {
            Err(lack) => {
                fetched.fetch(below, lack);
                fetches += 1;
            }
            Ok(Outcome::Reply(reply)) => return (reply, fetches),
            Ok(Outcome::Nothing) => return (Vec::new(), fetches),
            Ok(outcome) => panic!("{outcome:?}"),
        }
    }
}

#[test]
fn files_with_names_are_forgotten_without_being_looked_at() {
    let disk = SimDisk::with(20_000, &Power::default());
    let made = Logical::format([9; 16], vec![([1; 16], &disk)], Parameters::default().small());
    let mut below = made.unwrap();
    let layout = Layout::new(Capacity { frames: 4000, slots: 1000 });
    let shared = Shared::new(SimMemory::new(layout.words), layout);
    shared.initialize(below.epoch() - 1, 0, &below.room().unwrap());
    let mut module = Module::new(
        Publisher::attach::<Miss<belay_logical::Error>>(shared.clone(), 1).unwrap(),
        Fetched::waiting_for(below),
    );
    module.format(Caller::default(), belay_volume_sim::SECRET).unwrap();
    below = std::mem::take(module.below()).into_below().unwrap();
    let mut unique = 0;
    let mut ids = |nodeid| {
        unique += 2;
        Ids { unique, nodeid, ..Ids::default() }
    };
    let mut nodes = Vec::new();
    for number in 0..300 {
        let (asked, name) = (MkdirIn { mode: 0o755, umask: 0 }, format!("{number}\0"));
        let parts = [asked.as_bytes(), name.as_bytes()];
        let message = build::request(ids(ROOT_ID), Opcode::MKDIR, &parts);
        let (reply, _) = handle(&mut module, &mut below, &message);
        let body = Reply::parse(&reply).unwrap().body;
        nodes.push(EntryOut::read_from_prefix(body).unwrap().0.nodeid);
    }
    let forget = |ids| {
        let head = BatchForgetIn { count: nodes.len() as u32, dummy: 0 };
        let all = nodes.iter().map(|nodeid| ForgetOne { nodeid: *nodeid, nlookup: 1 });
        let all: Vec<u8> = all.flat_map(|one| one.as_bytes().to_vec()).collect();
        build::request(ids, Opcode::BATCH_FORGET, &[head.as_bytes(), &all])
    };
    // None of them has lost its name, and then one.
    for (life, doomed) in [(2, None), (3, Some(7))] {
        let name = doomed.map(|number: usize| number.to_string());
        if let Some(name) = &name {
            let message = build::rmdir(ids(ROOT_ID), name.as_bytes());
            handle(&mut module, &mut below, &message);
        }
        Cleaner::new(shared.clone()).checkpoint(&mut below).unwrap();
        module = begin(&shared, life);
        let (_, fetches) = handle(&mut module, &mut below, &forget(ids(0)));
        assert!(fetches < 10, "{fetches} fetches, {name:?} removed");
        let message = build::getattr(ids(nodes[7]), None);
        let (reply, _) = handle(&mut module, &mut below, &message);
        let errno = Reply::parse(&reply).unwrap().errno();
        assert_eq!(errno.is_some(), doomed.is_some(), "{errno:?}");
    }
}
