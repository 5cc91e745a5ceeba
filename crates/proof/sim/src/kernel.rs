//! The simulated kernel: inodes with lookup counts, dentries, and requests until their reply.

use super::memory::Rng;
use belay_wire::abi::*;
use belay_wire::{DirentsPlus, EntryOut, Ids, Opcode, Request, Unique, build, get_u64, put_u64};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zerocopy::IntoBytes;

/// What the kernel knows of a node.
#[derive(Debug, Default)]
pub struct Inode {
    pub lookups: u64,
    /// Open files and requests that name it.
    refs: u32,
    pub kind: u32,
    ino: u64,
    /// The oracle's name of the file.
    pub token: Option<u64>,
    /// A directory that was removed.
    pub dead: bool,
}

pub struct Kernel {
    queue: VecDeque<Vec<u8>>,
    forgets: VecDeque<(u64, u64)>,
    processing: BTreeMap<u64, Vec<u8>>,
    replies: BTreeMap<u64, Vec<u8>>,
    /// Nodes to be let go at the reply to a request that nobody waits for.
    background: BTreeMap<u64, u64>,
    next_unique: u64,
    pub inodes: BTreeMap<u64, Inode>,
    pub dentries: BTreeMap<(u64, Vec<u8>), u64>,
    pub woken: BTreeSet<u64>,
    /// Nodes whose FORGETs died with a daemon that had read them.
    pub leaked: BTreeSet<u64>,
    pub rng: Rng,
    resend: bool,
    pub trace: Vec<String>,
    answered: BTreeSet<u64>,
    /// Requests that were made to wake somebody.
    nudges: Vec<u64>,
    /// READDIRPLUS batches that were in flight at a crash may leak lookups.
    pub plus_in_crash: bool,
    pub crashes: u32,
}

impl Kernel {
    pub fn new(seed: u64, resend: bool) -> Self {
        let root = Inode { lookups: 1, refs: 1, kind: 4, ..Inode::default() };
        Self {
            queue: VecDeque::new(),
            forgets: VecDeque::new(),
            processing: BTreeMap::new(),
            replies: BTreeMap::new(),
            background: BTreeMap::new(),
            next_unique: 0,
            inodes: BTreeMap::from([(ROOT_ID, root)]),
            dentries: BTreeMap::new(),
            woken: BTreeSet::new(),
            leaked: BTreeSet::new(),
            rng: Rng::new(seed),
            resend,
            trace: Vec::new(),
            answered: BTreeSet::new(),
            nudges: Vec::new(),
            plus_in_crash: false,
            crashes: 0,
        }
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if std::env::var_os("BELAY_TRACE").is_some() {
            eprintln!("{}", text());
        } else {
            self.trace.push(text());
        }
    }

    /// Sends a request; its `unique` is the ticket for [`Self::take_reply`].
    pub fn issue(&mut self, opcode: Opcode, nodeid: u64, parts: &[&[u8]]) -> u64 {
        self.next_unique += 2;
        let ids = Ids { unique: self.next_unique, nodeid, uid: 1000, gid: 1000, pid: 77 };
        let message = build::request(ids, opcode, parts);
        self.note(|| format!("  issue {}", Request::parse(&message).unwrap().describe()));
        self.queue.push_back(message);
        self.next_unique
    }

    /// Sends a request for whose reply nobody waits; the node is let go then.
    pub fn issue_background(&mut self, opcode: Opcode, nodeid: u64, parts: &[&[u8]]) {
        let unique = self.issue(opcode, nodeid, parts);
        self.background.insert(unique, nodeid);
    }

    /// Whether one more may ask for something as below: as the supervisor has it, a few may wait at
    /// a time.
    pub fn has_room_for_nudge(&mut self) -> bool {
        self.nudges.retain(|unique| !self.answered.contains(unique));
        self.nudges.len() < 8
    }

    /// Somebody who has nothing to do with all else asks for the attributes of the root, unless
    /// there is something to read.
    pub fn nudge(&mut self) {
        if !self.is_readable() {
            self.hold(ROOT_ID);
            self.issue_background(Opcode::GETATTR, ROOT_ID, &[GetattrIn::default().as_bytes()]);
            self.nudges.push(self.next_unique);
        }
    }

    pub fn take_reply(&mut self, unique: u64) -> Option<Vec<u8>> {
        self.replies.remove(&unique)
    }

    /// Whether a read of the device would not block.
    pub fn is_readable(&self) -> bool {
        !self.queue.is_empty() || !self.forgets.is_empty()
    }

    pub fn is_idle(&self) -> bool {
        !self.is_readable() && self.processing.is_empty()
    }

    pub fn waits_for(&self) -> String {
        let describe = |m: &Vec<u8>| Request::parse(m).unwrap().describe();
        let unread: Vec<_> = self.queue.iter().map(describe).collect();
        let read: Vec<_> = self.processing.values().map(describe).collect();
        format!("unread {unread:?}, being processed {read:?}, forgets {:?}", self.forgets)
    }

    /// read(2) on the device.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let forget = !self.forgets.is_empty() && (self.queue.is_empty() || self.rng.chance(50));
        if forget {
            let ids = Ids::default();
            if self.forgets.len() == 1 {
                let (nodeid, count) = self.forgets.pop_front()?;
                return Some(build::forget(Ids { nodeid, ..ids }, count));
            }
            let items: Vec<_> = self.forgets.drain(..).collect();
            let head = BatchForgetIn { count: items.len() as u32, dummy: 0 };
            let mut body = head.as_bytes().to_vec();
            for (nodeid, nlookup) in items {
                body.extend_from_slice(ForgetOne { nodeid, nlookup }.as_bytes());
            }
            return Some(build::request(ids, Opcode::BATCH_FORGET, &[&body]));
        }
        let message = self.queue.pop_front()?;
        let request = Request::parse(&message).unwrap();
        if request.opcode().expects_reply() {
            self.processing.insert(request.header.unique, message.clone());
        }
        Some(message)
    }

    /// The daemon died, and the notification RESEND was sent.
    pub fn crash(&mut self, in_hand: Option<&[u8]>) {
        self.crashes += 1;
        if let Some(message) = in_hand {
            let request = Request::parse(message).unwrap();
            if request.opcode() == Opcode::FORGET {
                self.leaked.insert(request.header.nodeid);
            }
            self.leaked.extend(request.forgets().map(|(_, item)| item.nodeid));
        }
        self.plus_in_crash |= self
            .processing
            .values()
            .any(|m| Request::parse(m).unwrap().opcode() == Opcode::READDIRPLUS);
        if !self.resend {
            return;
        }
        let mut again: Vec<_> = std::mem::take(&mut self.processing).into_values().collect();
        while !again.is_empty() {
            let mut message = again.swap_remove(self.rng.below(again.len()));
            let unique = get_u64(&message, 8).unwrap();
            assert!(put_u64(&mut message, 8, Unique::marked(unique)));
            self.queue.push_front(message);
        }
    }

    /// write(2) on the device; gives an errno.
    pub fn write(&mut self, message: &[u8]) -> i32 {
        let header: OutHeader = zerocopy::FromBytes::read_from_bytes(&message[..16]).unwrap();
        assert_eq!(header.len as usize, message.len(), "kernel: length of a reply");
        if header.unique == 0 {
            return self.notified(header.error, &message[16..]);
        }
        let unique = Unique::unmarked(header.unique);
        let Some(request) = self.processing.remove(&header.unique) else {
            // Without RESEND a successor cannot know that a reply got through.
            let again = !self.resend && self.answered.contains(&unique);
            assert!(again, "kernel: reply to {:#x}, which is not outstanding", header.unique);
            return 2;
        };
        self.answered.insert(unique);
        let request = Request::parse(&request).unwrap();
        self.note(|| format!("  reply {:#x} {}", unique, header.error));
        if header.error == 0 {
            self.succeeded(&request, &message[16..]);
        }
        match self.background.remove(&unique) {
            Some(nodeid) => self.put(nodeid),
            None => {
                self.replies.insert(unique, message.to_vec());
            }
        }
        0
    }

    fn notified(&mut self, code: i32, body: &[u8]) -> i32 {
        match code {
            notify::RETRIEVE => {
                let (unique, nodeid) = (get_u64(body, 0).unwrap(), get_u64(body, 8).unwrap());
                if self.inodes.get(&nodeid).is_none_or(|inode| inode.kind != 8) {
                    return -22; // of files only
                }
                let ids = Ids { unique, nodeid, ..Ids::default() };
                let body = NotifyRetrieveIn::default();
                self.queue.push_back(build::request(ids, Opcode::NOTIFY_REPLY, &[body.as_bytes()]));
            }
            notify::POLL => {
                self.woken.insert(get_u64(body, 0).unwrap());
            }
            other => panic!("kernel: unexpected notification {other}"),
        }
        0
    }

    fn succeeded(&mut self, request: &Request<'_>, body: &[u8]) {
        let opcode = request.opcode();
        if belay_wire::is_entry_reply(opcode) {
            let entry: EntryOut = read(body);
            if entry.nodeid != 0 {
                self.got_entry(&entry);
                self.hold(entry.nodeid);
            }
        } else if matches!(opcode, Opcode::GETATTR | Opcode::SETATTR) {
            let out: AttrOut = read(body);
            self.got_attr(request.header.nodeid, &out.attr);
        } else if opcode == Opcode::READDIRPLUS {
            for item in DirentsPlus::new(body).filter(|item| item.entry.nodeid != 0) {
                self.got_entry(&item.entry);
                self.splice(request.header.nodeid, item.name, item.entry.nodeid);
            }
        }
    }

    fn got_entry(&mut self, entry: &EntryOut) {
        self.inodes.entry(entry.nodeid).or_insert_with(|| Inode {
            kind: entry.attr.mode >> 12,
            ino: entry.attr.ino,
            ..Inode::default()
        });
        self.inodes.get_mut(&entry.nodeid).unwrap().lookups += 1;
        self.got_attr(entry.nodeid, &entry.attr);
    }

    fn got_attr(&mut self, nodeid: u64, attr: &Attr) {
        let Some(inode) = self.inodes.get_mut(&nodeid).filter(|_| nodeid != ROOT_ID) else {
            return;
        };
        assert_eq!(inode.kind, attr.mode >> 12, "kernel: node {nodeid:#x} changed its type");
        assert_eq!(inode.ino, attr.ino, "kernel: node {nodeid:#x} changed its inode number");
    }

    /// `name` in `parent` was looked up and is `nodeid`.
    pub fn splice(&mut self, parent: u64, name: &[u8], nodeid: u64) {
        let key = (parent, name.to_vec());
        match self.dentries.get(&key) {
            Some(old) => assert_eq!(
                *old,
                nodeid,
                "kernel: {} became another node",
                String::from_utf8_lossy(name)
            ),
            None => {
                self.dentries.insert(key, nodeid);
            }
        }
    }

    /// A name is no more, or means something else.
    pub fn unhash(&mut self, parent: u64, name: &[u8]) {
        if let Some(nodeid) = self.dentries.remove(&(parent, name.to_vec())) {
            self.evict(nodeid);
        }
    }

    pub fn hold(&mut self, nodeid: u64) {
        self.inodes.get_mut(&nodeid).expect("kernel: held node is gone").refs += 1;
    }

    pub fn put(&mut self, nodeid: u64) {
        self.inodes.get_mut(&nodeid).expect("kernel: held node is gone").refs -= 1;
        self.evict(nodeid);
    }

    fn evict(&mut self, nodeid: u64) {
        let used = self.inodes.get(&nodeid).is_none_or(|inode| inode.refs > 0)
            || self.dentries.iter().any(|((parent, _), n)| *n == nodeid || *parent == nodeid);
        if used {
            return;
        }
        let inode = self.inodes.remove(&nodeid).unwrap();
        self.note(|| format!("  forget {nodeid:#x} x{}", inode.lookups));
        self.forgets.push_back((nodeid, inode.lookups));
    }

    /// Memory is short: drops some dentries (`percent` of those that can go).
    pub fn shrink(&mut self, percent: u64) {
        let keys: Vec<_> = self.dentries.keys().rev().cloned().collect();
        for (parent, name) in keys {
            let nodeid = self.dentries[&(parent, name.clone())];
            let parents = self.dentries.keys().any(|(p, _)| *p == nodeid);
            let busy = self.inodes[&nodeid].refs > 0;
            if !parents && !busy && self.rng.chance(percent) {
                self.unhash(parent, &name);
            }
        }
    }
}

/// Reads a structure from the start of a body.
pub fn read<T: zerocopy::FromBytes>(body: &[u8]) -> T {
    let Ok((value, _)) = T::read_from_prefix(body) else { panic!("kernel: a short reply") };
    value
}
