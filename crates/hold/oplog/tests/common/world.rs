//! Kernel, session, daemon and log, and what is found after a death at each store.

use super::Sim;
use super::fs::{Answer, Fs, Kind};
use belay_memory::Memory;
use belay_oplog::namespace::from_triples;
use belay_oplog::{
    Capacity, Entry, Facts, NameChange, Namespace, Oplog, Record, Refused, Run, Staged,
};
use belay_wire::abi::{
    CopyFileRangeIn, InHeader, LinkIn, MkdirIn, MknodIn, Rename2In, SetattrIn, SetattrValid,
    WRITE_KILL_SUIDGID, WriteIn,
};
use belay_wire::request::HEADER;
use belay_wire::{Opcode, Request, get_u64, node_fields, put_u64};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use zerocopy::IntoBytes;

/// The word with the number of the epoch, and the log's first.
const EPOCH: usize = 3;
const AT: usize = 7;
const ROOT: u64 = 1;
const NAMES: [&[u8]; 4] = [b"a", b"bb", b"a name of more than eight bytes", b"d"];

#[derive(Clone, Debug)]
pub enum Op {
    Make {
        dir: u8,
        name: u8,
        kind: u8,
    },
    Remove {
        dir: u8,
        name: u8,
    },
    Rename {
        from: (u8, u8),
        to: (u8, u8),
        flags: u32,
    },
    Link {
        file: u8,
        dir: u8,
        name: u8,
    },
    /// A WRITE arrives.
    Begin {
        file: u8,
        at: u64,
        length: usize,
        seed: u8,
        kill: bool,
    },
    /// One that had arrived is done, in whole or in part, or fails.
    End {
        which: u8,
        short: Option<u8>,
        fails: bool,
    },
    /// Both.
    Write {
        file: u8,
        at: u64,
        length: usize,
        seed: u8,
        kill: bool,
    },
    Truncate {
        file: u8,
        size: u64,
    },
    Mode {
        node: u8,
        setuid: bool,
    },
    Copy {
        from: u8,
        to: u8,
        off_in: u64,
        off_out: u64,
        len: u64,
    },
    Checkpoint,
    Forget {
        which: u8,
    },
}

pub fn op() -> impl Strategy<Value = Op> {
    let any8 = any::<u8>;
    let name = || 0..4u8;
    // Short ones that meet, whole pages, and long ones.
    let range = prop_oneof![
        6 => (0..64u64, 1..40usize),
        3 => (4000..4200u64, 1..200usize),
        1 => prop_oneof![Just((0, 4096)), Just((4096, 4096)), Just((100, 9000))],
    ];
    let write = (any8(), range, any8(), prop::bool::weighted(0.15));
    let write = write.prop_map(|(file, (at, length), seed, kill)| (file, at, length, seed, kill));
    let begin = write.clone();
    prop_oneof![
        5 => (any8(), name(), 0..4u8).prop_map(|(dir, name, kind)| Op::Make { dir, name, kind }),
        2 => (any8(), name()).prop_map(|(dir, name)| Op::Remove { dir, name }),
        3 => ((any8(), name()), (any8(), name()), prop_oneof![3 => Just(0u32), 1 => Just(1), 2 => Just(2)])
            .prop_map(|(from, to, flags)| Op::Rename { from, to, flags }),
        1 => (any8(), any8(), name()).prop_map(|(file, dir, name)| Op::Link { file, dir, name }),
        2 => begin.prop_map(|(file, at, length, seed, kill)| Op::Begin { file, at, length, seed, kill }),
        2 => (any8(), prop::option::weighted(0.3, any8()), prop::bool::weighted(0.1))
            .prop_map(|(which, short, fails)| Op::End { which, short, fails }),
        8 => write.prop_map(|(file, at, length, seed, kill)| Op::Write { file, at, length, seed, kill }),
        1 => (any8(), 0..5000u64).prop_map(|(file, size)| Op::Truncate { file, size }),
        1 => (any8(), any::<bool>()).prop_map(|(node, setuid)| Op::Mode { node, setuid }),
        1 => (any8(), any8(), 0..100u64, 0..100u64, 0..100u64)
            .prop_map(|(from, to, off_in, off_out, len)| Op::Copy { from, to, off_in, off_out, len }),
        1 => Just(Op::Checkpoint),
        2 => any8().prop_map(|which| Op::Forget { which }),
    ]
}

/// What fills the records: writes to the same few places, so that most of it is dead after a while,
/// or barriers, so that nothing is.
pub fn crowded() -> impl Strategy<Value = Op> {
    let write = (0..2u8, 0..64u64, 1..40usize, any::<u8>())
        .prop_map(|(file, at, length, seed)| Op::Write { file, at, length, seed, kill: false });
    let mode = (0..2u8, any::<bool>()).prop_map(|(node, setuid)| Op::Mode { node, setuid });
    let name = || (Just(0), 0..4u8);
    let rename = (name(), name()).prop_map(|(from, to)| Op::Rename { from, to, flags: 0 });
    prop_oneof![9 => write, 2 => mode, 2 => rename, 1 => op()]
}

/// What the session has of the kernel.
#[derive(Clone, Debug)]
struct Session {
    ids: BTreeMap<u64, u64>,
    names: BTreeMap<(u64, Vec<u8>), u64>,
}

struct Pending {
    header: InHeader,
    body: Vec<u8>,
    data: Vec<u8>,
    at: u64,
    staged: Staged,
}

pub struct World {
    pub memory: Sim,
    pub log: Oplog<Sim>,
    capacity: Capacity,
    fs: Fs,
    /// As of the last checkpoint.
    base: Fs,
    session: Session,
    next_key: u64,
    unique: u64,
    clock: u64,
    pending: Vec<Pending>,
    /// What the last append was of.
    appended: u64,
    pub seen: Seen,
}

/// What has happened: a test in which nothing does proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub deaths: usize,
    pub successors: usize,
    pub checkpoints: usize,
    pub retracted: usize,
    /// Data found no page.
    pub no_page: usize,
    /// Records were refused for want of room.
    pub full: usize,
    /// Records were written anew.
    pub compactions: usize,
    /// Writes that are issued with data of earlier ones, and with less than they had.
    pub joined: usize,
    pub robbed: usize,
    /// Found to say more than what is replayed.
    pub notable: usize,
    /// Issued once again.
    pub records: usize,
}

fn translate(
    header: &InHeader,
    body: &[u8],
    id: &mut dyn FnMut(u64) -> u64,
) -> (InHeader, Vec<u8>) {
    let request = Request { header: *header, body };
    let mut translated = body.to_vec();
    for at in node_fields(&request) {
        let key = get_u64(body, at - HEADER).expect("inside");
        assert!(put_u64(&mut translated, at - HEADER, id(key)));
    }
    (InHeader { nodeid: id(header.nodeid), ..*header }, translated)
}

/// The nodes that records name: here these stay among the names, while a session has the log say
/// where they are.
fn mentioned(log: &Oplog<Sim>) -> BTreeSet<u64> {
    let mut keys = BTreeSet::new();
    for record in log.records() {
        let record = record.expect("whole");
        let header = InHeader { opcode: record.facts.opcode, ..InHeader::default() };
        translate(&header, &record.body, &mut |key| {
            keys.insert(key);
            key
        });
        keys.extend([record.facts.node, record.facts.entry.key]);
        keys.extend(record.names.iter().flat_map(|name| [name.parent, name.before, name.after]));
    }
    keys
}

/// Does what a successor does: the log again, on the tree of the checkpoint.
fn replay(log: &Oplog<Sim>, base: &Fs, session: &Session) -> Fs {
    let mut fs = base.reborn(session.names.len() as u64 + base.inodes.len() as u64);
    let mut bound = HashMap::from([(ROOT, 1u64)]);
    let mut space = Namespace::at_checkpoint(log).expect("whole");
    let triples = session.names.iter().map(|((parent, name), key)| (*parent, name.clone(), *key));
    let now = from_triples(triples);
    for issue in log.replay(5000) {
        let issue = issue.expect("whole");
        let facts = &issue.record.facts;
        let header = InHeader {
            opcode: facts.opcode,
            nodeid: facts.node,
            uid: facts.uid,
            gid: facts.gid,
            pid: facts.pid,
            ..InHeader::default()
        };
        let mut resolve = |key: u64| {
            if let Some(id) = bound.get(&key) {
                return *id;
            }
            let path = space.path(ROOT, key, &now).unwrap_or_else(|| {
                let records: Vec<_> = log.records().collect();
                panic!("{key} had a name: {:?}\n{space:?}\n{now:?}\n{records:#?}", issue.record)
            });
            let mut at = 1;
            for link in path {
                at = fs.lookup(at, &link.name).expect("and that is there");
                assert_eq!(*bound.entry(link.key).or_insert(at), at, "{link:?}");
            }
            at
        };
        let (header, body) = translate(&header, &issue.record.body, &mut resolve);
        assert!(issue.data.iter().all(|run| (1..=5000).contains(&run.bytes.len())));
        let answer = fs.handle(header, &body, &issue.data, facts.time);
        let answer = answer.unwrap_or_else(|errno| panic!("errno {errno} for {:?}", issue.record));
        if facts.entry.key != 0 {
            assert_eq!(answer.mode, facts.entry.mode);
            assert_eq!(*bound.entry(facts.entry.key).or_insert(answer.ino), answer.ino);
        }
        if facts.opcode == Opcode::COPY_FILE_RANGE.0 {
            assert_eq!(answer.size, facts.size);
        }
        space.forward(&issue.record.names);
    }
    fs
}

impl World {
    pub fn new(capacity: Capacity) -> Self {
        let memory = Sim::new(AT + capacity.words());
        memory.store(EPOCH, 1);
        let log = Oplog::open(memory.clone(), AT, capacity, 1).expect("never used");
        let session = Session { ids: BTreeMap::from([(ROOT, 1)]), names: BTreeMap::new() };
        Self {
            memory,
            log,
            capacity,
            fs: Fs::new(),
            base: Fs::new(),
            session,
            next_key: 100,
            unique: 0,
            clock: 1_000_000,
            pending: Vec::new(),
            appended: 0,
            seen: Seen::default(),
        }
    }

    fn open(&self, memory: &Sim) -> Oplog<Sim> {
        let epoch = memory.load(EPOCH);
        Oplog::open(memory.clone(), AT, self.capacity, epoch).expect("whole")
    }

    /// One operation, with all the deaths in it, and perhaps one of them for good.
    pub fn step(&mut self, op: &Op, die: Option<u16>) {
        let probe = self.memory.copy();
        let (view, old_session, base) = (self.fs.view(), self.session.clone(), self.base.clone());
        self.appended = 0;
        let appended_to = self.log.sizes();
        let (half, epoch) = (self.log.spare()[1].start, self.log.epoch());
        self.memory.mark();
        self.run(op);
        let stores = self.memory.take();
        let (new_view, new_session) = (self.fs.view(), self.session.clone());
        let new_base = self.base.clone();
        let dies = die.map(|die| usize::from(die) % (stores.len() + 1));
        let mut successor = None;
        for death in 0..=stores.len() {
            if let Some((at, _, new)) = death.checked_sub(1).map(|last| stores[last]) {
                probe.store(at, new);
            }
            let done = death == stores.len();
            let sealed = probe.load(EPOCH) == self.log.epoch() && self.checkpointed(&stores);
            let (base, session) = (
                if sealed { &new_base } else { &base },
                if done || sealed { &new_session } else { &old_session },
            );
            // The last store of an append is what makes the record part of the log; where it did
            // not fit, that of the epoch made the request part of a checkpoint.
            let expected = if done || sealed { &new_view } else { &view };
            let what = format!("{op:?}, death {death} of {}, {appended_to:?}", stores.len());
            probe.mark();
            let mut log = self.open(&probe);
            let fs = replay(&log, base, session);
            assert!(fs.view() == *expected, "{what}\n{:#?}\n{expected:#?}", fs.view());
            let unanswered = self.appended != 0 && !sealed;
            let retracted = unanswered && log.retract(self.appended).expect("whole");
            assert_eq!(retracted, unanswered && done, "{what}");
            if retracted {
                self.seen.retracted += 1;
                // The session's own change is undone as well.
                let fs = replay(&log, base, &old_session);
                assert!(fs.view() == view, "retracted: {what}");
            }
            probe.rewind();
            self.seen.deaths += 1;
            if dies == Some(death) {
                successor = Some((probe.copy(), fs, session.clone(), base.clone()));
            }
        }
        let moved = self.log.spare()[1].start != half && self.log.epoch() == epoch;
        self.seen.compactions += usize::from(moved);
        self.agrees_with_a_scan();
        if let Some((memory, fs, session, base)) = successor {
            (self.log, self.memory) = (self.open(&memory), memory);
            (self.fs, self.session, self.base) = (fs, session, base);
            self.seen.successors += 1;
            self.pending.clear();
            self.find_again();
        }
    }

    fn checkpointed(&self, stores: &[(usize, u64, u64)]) -> bool {
        stores.iter().any(|(at, ..)| *at == EPOCH)
    }

    /// What the log knows is what a successor would find.
    fn agrees_with_a_scan(&mut self) {
        let probe = self.memory.copy();
        let found = self.open(&probe);
        let mut sizes = self.log.sizes();
        sizes.staged_pages = 0;
        assert_eq!(found.sizes(), sizes);
        let all =
            |log: &Oplog<Sim>| log.replay(1 << 20).collect::<Result<Vec<_>, _>>().expect("whole");
        assert_eq!(all(&found), all(&self.log));
        let notable: fn(&Oplog<Sim>) -> Vec<Record> =
            |log| log.notable().map(|record| record.expect("whole").into_owned()).collect();
        let records = self.log.records().map(|record| record.expect("whole"));
        let expected = records.filter(|it| !it.names.is_empty() || it.facts.unique == 0);
        let expected: Vec<Record> = expected.collect();
        self.seen.notable += expected.len();
        assert!(notable(&found) == expected && notable(&self.log) == expected, "{expected:#?}");
        for issue in all(&found) {
            self.seen.records += 1;
            if issue.record.facts.opcode == Opcode::WRITE.0 {
                let data = issue.data.iter().map(|run| run.bytes.len() as u64).sum::<u64>();
                self.seen.joined += usize::from(data > issue.record.facts.size);
                self.seen.robbed += usize::from(data < issue.record.facts.size);
            }
        }
        // A page a piece.
        let pieces: usize = self.log.sizes().pages;
        assert!(self.log.sizes().data_bytes <= pieces * 4096);
    }

    /// Another life of the daemon has other inodes.
    fn find_again(&mut self) {
        let mut ids = BTreeMap::from([(ROOT, 1)]);
        loop {
            let known = ids.len();
            for ((parent, name), key) in &self.session.names {
                if let Some(parent) = ids.get(parent) {
                    let ino = self.fs.lookup(*parent, name).expect("a name that the kernel has");
                    assert_eq!(*ids.entry(*key).or_insert(ino), ino);
                }
            }
            if ids.len() == known {
                break;
            }
        }
        self.session.ids = ids;
    }

    fn key_at(&mut self, path: &[Vec<u8>]) -> u64 {
        path.iter().fold(ROOT, |parent, name| self.child(parent, name).expect("there"))
    }

    /// The kernel's LOOKUP.
    fn child(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        if let Some(key) = self.session.names.get(&(parent, name.to_vec())) {
            return Some(*key);
        }
        let ino = self.fs.lookup(self.session.ids[&parent], name).ok()?;
        let known = self.session.ids.iter().find(|(_, id)| **id == ino).map(|(key, _)| *key);
        let key = known.unwrap_or_else(|| self.new_key());
        self.session.ids.insert(key, ino);
        self.session.names.insert((parent, name.to_vec()), key);
        Some(key)
    }

    fn new_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    fn pick(&mut self, which: u8, wanted: fn(&Kind) -> bool) -> Option<u64> {
        let view = self.fs.view();
        let paths: Vec<_> = view.iter().filter(|(_, (kind, ..))| wanted(kind)).collect();
        let (path, _) = paths.get(usize::from(which) % paths.len().max(1))?;
        Some(self.key_at(path))
    }

    fn directory(&mut self, which: u8) -> u64 {
        self.pick(which, |kind| matches!(kind, Kind::Directory(_))).expect("the root is one")
    }

    fn file(&mut self, which: u8) -> Option<u64> {
        self.pick(which, |kind| matches!(kind, Kind::File(_)))
    }

    fn header(&mut self, opcode: Opcode, node: u64) -> InHeader {
        self.unique += 2;
        self.clock += 10;
        let (uid, gid, pid) = (1000 + self.unique as u32 % 3, 7, self.unique as u32);
        let (opcode, unique) = (opcode.0, self.unique);
        InHeader { opcode, unique, nodeid: node, uid, gid, pid, ..InHeader::default() }
    }

    fn carry_out(&mut self, header: &InHeader, body: &[u8], data: &[Run]) -> Result<Answer, i32> {
        let ids = &self.session.ids;
        let (header, body) = translate(header, body, &mut |key| ids[&key]);
        self.fs.handle(header, &body, data, self.clock)
    }

    /// The daemon has answered: on record, then known to the kernel.
    fn answered(
        &mut self,
        header: &InHeader,
        (body, files): (&[u8], [u64; 2]),
        answer: &Answer,
        names: Vec<NameChange<'static>>,
        staged: Option<Staged>,
    ) {
        let created = names.iter().find(|change| change.before == 0).map_or(0, |name| name.after);
        let has_entry = !matches!(Opcode(header.opcode), Opcode::RENAME2);
        let key = if has_entry { created } else { 0 };
        let facts = Facts {
            unique: header.unique,
            opcode: header.opcode,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            time: self.clock,
            node: header.nodeid,
            files,
            errno: 0,
            size: answer.size,
            entry: Entry { key, ino: answer.ino, mode: answer.mode },
        };
        match self.log.append(&facts, body, &names, staged) {
            Ok(()) => self.appended = header.unique,
            Err(Refused::Full) => {
                self.seen.full += 1;
                self.checkpoint();
            }
            Err(Refused::Corrupt(_)) => panic!("nobody has damaged it"),
        }
        for change in names {
            let place = (change.parent, change.name.into_owned());
            match change.after {
                0 => drop(self.session.names.remove(&place)),
                key => drop(self.session.names.insert(place, key)),
            }
        }
        if key != 0 {
            self.session.ids.insert(key, answer.ino);
        }
    }

    fn checkpoint(&mut self) {
        self.base = self.fs.clone();
        let epoch = self.memory.load(EPOCH) + 1;
        self.memory.store(EPOCH, epoch);
        self.log.restart(epoch);
        self.seen.checkpoints += 1;
    }

    /// A request without data. Failures are not on record.
    fn request(
        &mut self,
        opcode: Opcode,
        node: u64,
        body: &[&[u8]],
        files: [u64; 2],
        names: impl FnOnce(&mut Self) -> Vec<NameChange<'static>>,
    ) {
        let header = self.header(opcode, node);
        let body = body.concat();
        let names = names(self);
        if let Ok(answer) = self.carry_out(&header, &body, &[]) {
            self.answered(&header, (&body, files), &answer, names, None);
        }
    }

    fn begin(&mut self, file: u8, at: u64, length: usize, seed: u8, kill: bool) -> bool {
        let Some(node) = self.file(file) else { return false };
        let header = self.header(Opcode::WRITE, node);
        let write_flags = if kill { WRITE_KILL_SUIDGID } else { 0 };
        let size = length as u32;
        let body = WriteIn { offset: at, size, write_flags, ..WriteIn::default() };
        let data: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
        let Some(staged) = self.log.stage(at, &data) else {
            // The caller has to wait for a checkpoint; here it just does not write.
            self.seen.no_page += 1;
            self.checkpoint();
            return false;
        };
        self.pending.push(Pending { header, body: body.as_bytes().to_vec(), data, at, staged });
        true
    }

    fn end(&mut self, which: u8, short: Option<u8>, fails: bool) {
        if self.pending.is_empty() {
            return;
        }
        let pending = self.pending.remove(usize::from(which) % self.pending.len());
        let Pending { header, body, mut data, at, staged } = pending;
        let named = self.session.names.values().any(|key| *key == header.nodeid);
        if fails || !named {
            self.log.unstage(staged);
            return;
        }
        if let Some(short) = short {
            data.truncate(usize::from(short));
        }
        self.clock += 10;
        let run = Run { offset: at, bytes: data };
        let runs = if run.bytes.is_empty() { vec![] } else { vec![run] };
        let answer = self.carry_out(&header, &body, &runs).expect("a file");
        self.answered(&header, (&body, [header.nodeid, 0]), &answer, Vec::new(), Some(staged));
    }

    fn run(&mut self, op: &Op) {
        let nul: &[u8] = &[0];
        let name = |at: u8| NAMES[usize::from(at)];
        let change = |parent, name: &[u8], before, after| NameChange {
            parent,
            name: name.to_vec().into(),
            before,
            after,
        };
        match *op {
            Op::Make { dir, name: n, kind } => {
                let (dir, n) = (self.directory(dir), name(n));
                let mode = MknodIn { mode: 0o100644, ..MknodIn::default() };
                let (opcode, body, rest): (_, &[u8], &[u8]) = match kind {
                    0 => (Opcode::MKDIR, MkdirIn { mode: 0o700, umask: 0 }.as_bytes(), &[]),
                    1 => (Opcode::SYMLINK, &[], b"target\0"),
                    _ => (Opcode::MKNOD, mode.as_bytes(), &[]),
                };
                self.request(opcode, dir, &[body, n, nul, rest], [0, 0], |world| {
                    vec![change(dir, n, 0, world.new_key())]
                });
            }
            Op::Remove { dir, name: n } => {
                let (dir, n) = (self.directory(dir), name(n));
                let Some(key) = self.child(dir, n) else { return };
                let directory = self.fs.is_directory(self.session.ids[&key]);
                let opcode = if directory { Opcode::RMDIR } else { Opcode::UNLINK };
                self.request(opcode, dir, &[n, nul], [0, 0], |_| vec![change(dir, n, key, 0)]);
            }
            Op::Rename { from, to, flags } => {
                let (old, new) = (name(from.1), name(to.1));
                let (from, to) = (self.directory(from.0), self.directory(to.0));
                let Some(source) = self.child(from, old) else { return };
                let target = self.child(to, new).unwrap_or(0);
                let body = Rename2In { newdir: to, flags, padding: 0 };
                let body = [body.as_bytes(), old, nul, new, nul];
                self.request(Opcode::RENAME2, from, &body, [0, 0], |_| match flags {
                    _ if source == target => vec![],
                    2 => vec![change(from, old, source, target), change(to, new, target, source)],
                    _ => vec![change(to, new, target, source), change(from, old, source, 0)],
                });
            }
            Op::Link { file, dir, name: n } => {
                let (Some(file), dir, n) = (self.file(file), self.directory(dir), name(n)) else {
                    return;
                };
                let body = LinkIn { oldnodeid: file };
                let names = |_: &mut Self| vec![change(dir, n, 0, file)];
                // A barrier, as the session has it: its answer tells the mode that writes before it
                // left.
                self.request(Opcode::LINK, dir, &[body.as_bytes(), n, nul], [file, 0], names);
            }
            Op::Begin { file, at, length, seed, kill } => {
                self.begin(file, at, length, seed, kill);
            }
            Op::End { which, short, fails } => self.end(which, short, fails),
            Op::Write { file, at, length, seed, kill } => {
                if self.begin(file, at, length, seed, kill) {
                    self.end((self.pending.len() - 1) as u8, None, false);
                }
            }
            Op::Truncate { file, size } => {
                let Some(file) = self.file(file) else { return };
                let body = SetattrIn { valid: SetattrValid::SIZE, size, ..SetattrIn::default() };
                self.request(Opcode::SETATTR, file, &[body.as_bytes()], [file, 0], |_| vec![]);
            }
            Op::Mode { node, setuid } => {
                let Some(node) = self.file(node) else { return };
                let mode = if setuid { 0o104755 } else { 0o100600 };
                let body = SetattrIn { valid: SetattrValid::MODE, mode, ..SetattrIn::default() };
                self.request(Opcode::SETATTR, node, &[body.as_bytes()], [node, 0], |_| vec![]);
            }
            Op::Copy { from, to, off_in, off_out, len } => {
                let (Some(from), Some(to)) = (self.file(from), self.file(to)) else { return };
                let body = CopyFileRangeIn {
                    off_in,
                    nodeid_out: to,
                    off_out,
                    len,
                    ..CopyFileRangeIn::default()
                };
                let body = [body.as_bytes()];
                self.request(Opcode::COPY_FILE_RANGE, from, &body, [from, to], |_| vec![]);
            }
            Op::Checkpoint => self.checkpoint(),
            Op::Forget { which } => {
                let session = &self.session;
                let mentioned = mentioned(&self.log);
                let idle = |key: &u64| {
                    *key != ROOT
                        && !mentioned.contains(key)
                        && !session.names.keys().any(|(parent, _)| parent == key)
                        && !self.pending.iter().any(|pending| pending.header.nodeid == *key)
                };
                let idle: Vec<_> = session.ids.keys().copied().filter(idle).collect();
                if let Some(key) = idle.get(usize::from(which) % idle.len().max(1)) {
                    self.session.names.retain(|_, child| child != key);
                    self.session.ids.remove(key);
                }
            }
        }
    }
}
