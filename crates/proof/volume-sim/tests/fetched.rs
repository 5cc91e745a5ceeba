//! Messages that lack something of the stores are put aside while others are handled, in any order,
//! and see what they should: each is as if it had happened at the moment when it was done.

use belay_cache::{Cleaner, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::PAGE;
use belay_posix::dispatch::{Module, Outcome};
use belay_posix::fetch::{Fetched, Lack, Miss};
use belay_posix::{Caller, Time};
use belay_store::Parameters;
use belay_volume_sim::disk::{Power, SimDisk};
use belay_volume_sim::memory::SimMemory;
use belay_volume_sim::{Random, random_capacity, seeds};
use belay_wire::abi::{CreateIn, SetattrIn, SetattrValid, WriteIn};
use belay_wire::build::{self, Ids};
use belay_wire::{AttrOut, EntryOut, Opcode, ROOT_ID, Reply};
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Messages at once.
const THREADS: usize = 5;
/// Files, and their greatest length.
const FILES: u64 = 5;
const LONGEST: usize = 60 * PAGE;
/// What is done in a run.
const STEPS: usize = 3000;

type Below<'d> = Logical<&'d SimDisk>;

/// What a message asks for, and what the oracle does then.
#[derive(Clone, Debug)]
enum Ask {
    Read { node: u64, at: usize, length: usize },
    Write { node: u64, at: usize, byte: u8, length: usize },
    Cut { node: u64, size: usize },
    Size { node: u64 },
    Create { name: String },
    Unlink { name: String },
    Lookup { name: String },
    List,
}

struct Message<'d> {
    ask: Ask,
    bytes: Vec<u8>,
    fetched: Fetched<Below<'d>>,
    lack: Option<Lack>,
}

/// A volume with its module, and what must be in it.
struct Tested<'d> {
    disk: &'d SimDisk,
    shared: Shared<SimMemory>,
    below: Below<'d>,
    module: Module<SimMemory, Fetched<Below<'d>>>,
    random: Random,
    generation: u32,
    unique: u64,
    files: BTreeMap<u64, Vec<u8>>,
    names: BTreeMap<String, u64>,
    lacked: u64,
    overtaken: u64,
}

fn publisher(shared: &Shared<SimMemory>, life: u32, kept: usize) -> Publisher<SimMemory> {
    let attached = Publisher::attach::<Miss<belay_logical::Error>>(shared.clone(), life);
    attached.unwrap().keeping(kept)
}

impl<'d> Tested<'d> {
    fn new(disk: &'d SimDisk, seed: u64) -> Self {
        let mut random = Random::seed_from_u64(seed);
        let made = Logical::format([9; 16], vec![([1; 16], disk)], Parameters::default().small());
        let below = made.unwrap();
        // The smallest one has no room for the largest write.
        let capacity = random_capacity(&mut random);
        let capacity = belay_cache::Capacity { frames: capacity.frames.max(200), ..capacity };
        let layout = Layout::new(capacity);
        let shared = Shared::new(SimMemory::new(layout.words), layout);
        shared.initialize(below.epoch() - 1, 0, &below.room().unwrap());
        let kept = [1 << 14, 1 << 18, 1 << 22][random.random_range(0..3)];
        let mut module = Module::new(publisher(&shared, 1, kept), Fetched::waiting_for(below));
        module.format(Caller::default(), belay_volume_sim::SECRET).unwrap();
        let below = std::mem::take(module.below()).into_below().unwrap();
        let (files, names) = Default::default();
        let (generation, unique, lacked, overtaken) = (1, 0, 0, 0);
        let mut this = Self {
            disk,
            shared,
            below,
            module,
            random,
            generation,
            unique,
            files,
            names,
            lacked,
            overtaken,
        };
        for number in 0..FILES {
            let mut message = this.message(Ask::Create { name: format!("f{number}") });
            while !this.step(&mut message) {}
        }
        this
    }

    fn message(&mut self, ask: Ask) -> Message<'d> {
        self.unique += 2;
        let ids = |nodeid| Ids { unique: self.unique, nodeid, ..Ids::default() };
        let name_of = |name: &str| [name.as_bytes(), &[0]].concat();
        let bytes = match &ask {
            Ask::Read { node, at, length } => {
                build::read(ids(*node), 0, *at as u64, *length as u32)
            }
            Ask::Write { node, at, byte, length } => {
                let mut head = WriteIn::new_zeroed();
                (head.offset, head.size) = (*at as u64, *length as u32);
                let data = vec![*byte; *length];
                build::request(ids(*node), Opcode::WRITE, &[head.as_bytes(), &data])
            }
            Ask::Cut { node, size } => {
                let mut body = SetattrIn::new_zeroed();
                (body.valid, body.size) = (SetattrValid::SIZE, *size as u64);
                build::setattr(ids(*node), &body)
            }
            Ask::Size { node } => build::getattr(ids(*node), None),
            Ask::Create { name } => {
                let mut head = CreateIn::new_zeroed();
                head.mode = 0o100_644;
                let name = name_of(name);
                build::request(ids(ROOT_ID), Opcode::CREATE, &[head.as_bytes(), &name])
            }
            Ask::Unlink { name } => build::unlink(ids(ROOT_ID), name.as_bytes()),
            Ask::Lookup { name } => build::lookup(ids(ROOT_ID), name.as_bytes()),
            Ask::List => build::readdirplus(ids(ROOT_ID), 0, 0, 1 << 16),
        };
        Message { ask, bytes, fetched: Fetched::default(), lack: None }
    }

    fn random_ask(&mut self) -> Ask {
        let random = &mut self.random;
        let nodes: Vec<u64> = self.files.keys().copied().collect();
        let node = nodes[random.random_range(0..nodes.len())];
        let at = random.random_range(0..LONGEST);
        let name = format!("n{}", random.random_range(0..6));
        match random.random_range(0..12) {
            0..4 => Ask::Read { node, at, length: random.random_range(1..30 * PAGE) },
            4..7 => {
                let length = random.random_range(1..[10, 3 * PAGE, 20 * PAGE][at % 3]);
                Ask::Write { node, at, byte: random.random(), length }
            }
            7 => Ask::Cut { node, size: at },
            8 => Ask::Size { node },
            9 => Ask::Create { name },
            10 => Ask::Unlink { name },
            _ if at % 2 == 0 => Ask::Lookup { name },
            _ => Ask::List,
        }
    }

    /// Goes on with a message; whether it is done.
    fn step(&mut self, message: &mut Message<'d>) -> bool {
        if let Some(lack) = message.lack.take() {
            message.fetched.fetch(&mut self.below, lack);
        }
        let now = Time { seconds: self.unique as i64, nanoseconds: 0 };
        match self.module.handle_with(&mut message.fetched, &message.bytes, now) {
            Err(lack) => {
                self.lacked += 1;
                message.lack = Some(lack);
                false
            }
            Ok(Outcome::Full) => {
                self.checkpoint();
                false
            }
            Ok(Outcome::Reply(reply)) => {
                self.compare(&message.ask, &reply);
                true
            }
            Ok(outcome) => panic!("{:?}: {outcome:.300?}", message.ask),
        }
    }

    fn checkpoint(&mut self) {
        Cleaner::new(self.shared.clone()).checkpoint(&mut self.below).unwrap();
    }

    /// The module dies, and what was not done is asked again.
    fn die(&mut self, messages: &mut [Option<Message<'d>>]) {
        self.generation += 1;
        self.below = Logical::open(vec![self.disk]).unwrap();
        self.module =
            Module::new(publisher(&self.shared, self.generation, 1 << 18), Fetched::default());
        for message in messages.iter_mut().flatten() {
            (message.fetched, message.lack) = (Fetched::default(), None);
        }
    }

    fn compare(&mut self, ask: &Ask, reply: &[u8]) {
        let reply = Reply::parse(reply).unwrap();
        let (errno, body) = (reply.errno(), reply.body);
        let of_name = |body: &[u8]| EntryOut::read_from_prefix(body).unwrap().0.nodeid;
        match ask {
            Ask::Read { node, at, length } => {
                let file = &self.files[node];
                let end = (at + length).min(file.len());
                let wanted = file.get(*at..end).unwrap_or_default();
                let differs = body.iter().zip(wanted).position(|(found, wanted)| found != wanted);
                let is_right = errno.is_none() && body.len() == wanted.len();
                assert!(is_right && differs.is_none(), "{ask:?}: {errno:?}, at {differs:?}");
            }
            Ask::Write { node, at, byte, length } => {
                assert_eq!(errno, None, "{ask:?}");
                let file = self.files.get_mut(node).unwrap();
                if file.len() < at + length {
                    file.resize(at + length, 0);
                }
                file[*at..at + length].fill(*byte);
            }
            Ask::Cut { node, size } => {
                assert_eq!(errno, None, "{ask:?}");
                self.files.get_mut(node).unwrap().resize(*size, 0);
            }
            Ask::Size { node } => {
                let size = AttrOut::read_from_prefix(body).unwrap().0.attr.size;
                assert_eq!(size, self.files[node].len() as u64, "{ask:?}");
            }
            Ask::Create { name } => {
                let there = self.names.contains_key(name);
                assert_eq!(errno.is_some(), there, "{ask:?}");
                if !there {
                    let node = of_name(body);
                    self.names.insert(name.clone(), node);
                    // Names that come and go have empty files.
                    if name.starts_with('f') {
                        self.files.insert(node, Vec::new());
                    }
                }
            }
            Ask::Unlink { name } => {
                assert_eq!(errno.is_none(), self.names.remove(name).is_some(), "{ask:?}");
            }
            Ask::Lookup { name } => {
                let wanted = self.names.get(name).copied();
                assert_eq!(errno.is_none().then(|| of_name(body)), wanted, "{ask:?}");
            }
            Ask::List => {
                // Entries with the attributes of what they lead to: so many, and of these lengths.
                let mut rest = body;
                let (mut count, mut length) = (0, 0);
                while let Ok((entry, behind)) = EntryOut::read_from_prefix(rest) {
                    let name = u32::from_ne_bytes(behind[16..20].try_into().unwrap()) as usize;
                    rest = &behind[(24 + name).next_multiple_of(8)..];
                    if entry.nodeid != 0 {
                        count += 1;
                        length += entry.attr.size;
                    }
                }
                let wanted: usize = self.files.values().map(Vec::len).sum();
                assert_eq!((count, length), (self.names.len(), wanted as u64));
            }
        }
    }
}

#[test]
fn what_is_put_aside_sees_what_it_should() {
    let (mut lacked, mut overtaken) = (0, 0);
    for seed in seeds(20) {
        println!("again: BELAY_SEED={seed} cargo test -p belay-volume-sim --test fetched");
        let disk = SimDisk::with(20_000, &Power::default());
        let mut tested = Tested::new(&disk, seed);
        let mut messages: Vec<Option<Message<'_>>> = (0..THREADS).map(|_| None).collect();
        for _ in 0..STEPS {
            let at = tested.random.random_range(0..THREADS);
            let mut message = messages[at].take().unwrap_or_else(|| {
                let ask = tested.random_ask();
                tested.message(ask)
            });
            let waited = message.lack.is_some();
            match tested.step(&mut message) {
                true => {
                    tested.overtaken += u64::from(!waited && messages.iter().flatten().count() > 0)
                }
                false => messages[at] = Some(message),
            }
            match tested.random.random_range(0..60) {
                0..4 => tested.checkpoint(),
                4 => tested.die(&mut messages),
                _ => {}
            }
        }
        for mut message in messages.into_iter().flatten() {
            while !tested.step(&mut message) {}
        }
        lacked += tested.lacked;
        overtaken += tested.overtaken;
    }
    println!("{lacked} lacked something, {overtaken} were done before one that had come earlier");
    assert!(lacked > 1000 && overtaken > 1000);
}
