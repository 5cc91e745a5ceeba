//! A namespace whose objects say something else, and messages that no kernel sends.

use super::objects::{Objects, is_metadata};
use super::{Bytes, fill, use_all};
use crate::memory::SimMemory;
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_object::{Lower, ObjectId};
use belay_posix::check::check;
use belay_posix::dispatch::{Module, Outcome};
use belay_posix::{Time, directory};
use belay_wire::build::{self, Ids};
use belay_wire::{Opcode, Reply};
use std::collections::BTreeSet;

const CAPACITY: Capacity = Capacity { frames: 96, slots: 24 };

/// A namespace that is whole.
#[derive(Clone, Debug)]
pub struct World {
    below: Objects,
}

/// An empty memory of a cache.
fn memory(below: &mut Objects) -> Shared<SimMemory> {
    let layout = Layout::new(CAPACITY);
    let shared = Shared::new(SimMemory::new(layout.words), layout);
    let (epoch, upto) = (below.epoch().unwrap_or(1), below.upto().unwrap_or(0));
    shared.initialize(epoch - 1, upto, &below.room().unwrap_or_default());
    shared
}

impl World {
    /// One with files of all kinds.
    pub fn new() -> Self {
        let mut below = Objects::default();
        fill(&memory(&mut below), &mut below);
        Self { below }
    }

    /// Checks and uses the namespace with these bytes in a page of an object.
    pub fn use_written(&self, object: ObjectId, page: u64, at: usize, bytes: &[u8]) {
        let mut below = self.below.clone();
        let content = below.all.get_mut(&object).and_then(|one| one.pages.get_mut(&page));
        let room = content.and_then(|content| content.get_mut(at..at + bytes.len()));
        room.expect("there is such a page").copy_from_slice(bytes);
        check(&mut below, std::iter::empty(), &BTreeSet::new(), &mut |_| {});
        let shared = memory(&mut below);
        let publisher = Publisher::attach::<<Objects as Lower>::Error>(shared, 1);
        use_all(&mut publisher.expect("an empty memory"), &mut below, |_, _, _| {});
    }

    /// Uses the namespace after these bytes have said what is wrong with it, and sends it messages.
    pub fn use_with(&self, data: &[u8]) {
        let mut bytes = Bytes::new(data);
        let mut below = self.below.clone();
        let wrongs = bytes.byte() % 8;
        for _ in 0..wrongs {
            corrupt(&mut below, &mut bytes);
        }
        let objects: Vec<u64> = below.all.keys().map(|object| object.0).collect();
        let wanted = BTreeSet::from([ObjectId(1), ObjectId(20)]);
        check(&mut below, objects.clone(), &wanted, &mut |_| {});
        let shared = memory(&mut below);
        let publisher = Publisher::attach::<<Objects as Lower>::Error>(shared.clone(), 1);
        let mut publisher = publisher.expect("an empty memory").keeping(1 << 20);
        if wrongs > 0 {
            use_all(&mut publisher, &mut below, |_, _, _| {});
        }
        let mut module = Module::new(publisher, below);
        let cleaner = Cleaner::new(shared);
        let _ = module.remove_orphans();
        let mut unique = 0;
        while !bytes.is_empty() {
            unique += 2;
            send(&mut module, &cleaner, unique, &objects, &mut bytes);
        }
        let _ = cleaner.checkpoint(module.below());
        let objects: Vec<u64> = module.below().all.keys().map(|object| object.0).collect();
        let report = check(module.below(), objects, &wanted, &mut |_| {});
        if wrongs == 0 {
            assert!(report.findings.is_empty(), "messages alone have harmed it: {report:?}");
        }
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// Changes something of an object: of a page, its length, or its attributes.
fn corrupt(below: &mut Objects, bytes: &mut Bytes<'_>) {
    let which = bytes.below(below.all.len());
    let Some((_, one)) = below.all.iter_mut().nth(which) else { return };
    match bytes.byte() % 8 {
        0 => one.known.size = bytes.number(),
        1 | 2 => {
            let word = bytes.number().to_le_bytes();
            let at = bytes.below(one.known.attributes.len().saturating_sub(8));
            if let Some(room) = one.known.attributes.get_mut(at..at + 8) {
                room.copy_from_slice(&word);
            }
        }
        3 => {
            // One page in the place of another.
            let pages: Vec<u64> = one.pages.keys().copied().collect();
            let from = pages.get(bytes.below(pages.len())).copied().unwrap_or(0);
            let content = one.pages.get(&from).cloned();
            let to = bytes.below(8) as u64;
            content.into_iter().for_each(|content| drop(one.pages.insert(to, content)));
        }
        kind => {
            let pages: Vec<u64> = one.pages.keys().copied().collect();
            let which = pages.get(bytes.below(pages.len())).copied().unwrap_or(0);
            let has_words = is_metadata(one) && kind & 1 == 0;
            let Some(page) = one.pages.get_mut(&which) else { return };
            // The head of a page of a directory, or an entry.
            let at = if kind < 6 { bytes.below(64) } else { bytes.below(4096) };
            match has_words {
                true => {
                    let word = bytes.number().to_le_bytes();
                    page.get_mut(at..at + 8)
                        .into_iter()
                        .for_each(|room| room.copy_from_slice(&word));
                }
                false => {
                    let byte = bytes.byte();
                    page.get_mut(at).into_iter().for_each(|room| *room = byte);
                }
            }
        }
    }
}

/// A body: words, which may be anything, names, and bytes.
fn body(bytes: &mut Bytes<'_>, objects: &[u64]) -> Vec<u8> {
    let (words, rest) = (bytes.byte(), bytes.byte());
    let mut body = Vec::new();
    for _ in 0..words % 12 {
        match bytes.byte() % 4 {
            0 => body.extend_from_slice(&bytes.number().to_le_bytes()),
            1 => body.extend_from_slice(&(bytes.number() as u32).to_le_bytes()),
            2 => body.extend_from_slice(&(bytes.byte() as u32).to_le_bytes()),
            _ => {
                let object = objects.get(bytes.below(objects.len())).copied().unwrap_or(1);
                body.extend_from_slice(&object.to_le_bytes());
            }
        }
    }
    for _ in 0..rest % 3 {
        const NAMES: [&[u8]; 8] = [b"a", b"b", b"d", b"e", b"link", b"user.a", b"trusted.b", b".."];
        match bytes.byte() {
            kind @ 0..224 => {
                let name = NAMES.get(usize::from(kind) % NAMES.len()).copied().unwrap_or_default();
                body.extend_from_slice(name);
            }
            _ => {
                let length = bytes.below(600);
                body.extend_from_slice(bytes.take(length));
            }
        }
        body.push(0);
    }
    body
}

/// Sends a message, and looks at the answer.
fn send(
    module: &mut Module<SimMemory, Objects>,
    cleaner: &Cleaner<SimMemory>,
    unique: u64,
    objects: &[u64],
    bytes: &mut Bytes<'_>,
) {
    let opcode = Opcode::ALL.get(bytes.below(Opcode::ALL.len())).copied().unwrap_or(Opcode::LOOKUP);
    let nodeid = match bytes.byte() {
        which @ 0..192 => objects.get(usize::from(which) % objects.len().max(1)).copied(),
        _ => None,
    };
    let nodeid = nodeid.unwrap_or_else(|| bytes.number());
    let ids = Ids { unique, nodeid, uid: bytes.byte().into(), ..Ids::default() };
    let body = body(bytes, objects);
    let message = build::request(ids, opcode, &[&body]);
    let now = Time { seconds: unique as i64, nanoseconds: 0 };
    for _ in 0..3 {
        match module.handle(&message, now) {
            Outcome::Reply(reply) | Outcome::Fault(reply, _) | Outcome::Sync(_, reply) => {
                if reply.is_empty() {
                    return;
                }
                if let Err(why) = crate::rules::keeps(&message, &reply) {
                    panic!("belay would end a module that answers so: {why}");
                }
                let reply = Reply::parse(&reply).expect("an answer is a message");
                assert_eq!(reply.unique(), unique);
                return;
            }
            Outcome::Nothing => return,
            Outcome::Held(object) => panic!("{object} is held, and nothing is under way"),
            Outcome::Direct(direct) => {
                match cleaner.sync(module.below(), &direct.objects) {
                    Ok(true) => module.settle(direct.number),
                    Ok(false) | Err(_) => {
                        let _ = module.undo(direct.number);
                    }
                }
                assert_eq!(module.unsettled(), []);
                return;
            }
            Outcome::Full => {
                if cleaner.checkpoint(module.below()).is_err() {
                    return;
                }
            }
        }
    }
    panic!("there is no room after checkpoints: {opcode:?}");
}

/// Whatever a page says, it can be taken apart or not.
pub fn page(data: &[u8]) {
    let mut page = [0; belay_object::PAGE];
    page.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
    let _ = directory::page(&page);
}
