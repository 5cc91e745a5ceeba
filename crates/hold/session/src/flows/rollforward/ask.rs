//! What the daemon is asked for a record: where its nodes are, to open a file, and the request
//! itself.

use super::state::{Access, Forwarded, Issue, RollForward};
use super::{O_RDWR, is_of_directory};
use crate::message::{read, set_mode};
use crate::session::Session;
use belay_memory::Memory;
use belay_oplog::Body;
use belay_recorder::Node;
use belay_wire::abi::{
    CopyFileRangeIn, CreateIn, InHeader, SetattrIn, SetattrValid, WRITE_KILL_SUIDGID, WriteIn,
};
use belay_wire::request::HEADER;
use belay_wire::{
    Ids, Opcode, OpcodeSet, Request, build, get_u64, handle_fields, node_fields, put_u32, put_u64,
};
use smallvec::SmallVec;
use std::mem::offset_of;
use zerocopy::IntoBytes;

const XATTRS: OpcodeSet = OpcodeSet::new(&[Opcode::SETXATTR, Opcode::REMOVEXATTR]);
/// Where a SETXATTR says whether the attribute must be there, or must not.
const XATTR_FLAGS: usize = 4;
const O_ACCMODE: u32 = 3;
const O_EXCL: u32 = 0o200;

impl<M: Memory> Session<M> {
    /// What the daemon is asked next for a record; `None` if that is all. Of a WRITE, the message
    /// without its data.
    pub(super) fn next_of(
        &mut self,
        issue: &Issue,
        forward: &RollForward,
    ) -> Option<Result<(Vec<u8>, Forwarded), &'static str>> {
        let facts = &issue.record.facts;
        let opcode = Opcode(facts.opcode);
        let runs = if opcode == Opcode::WRITE { issue.data.len() } else { 1 };
        let copies = matches!(opcode, Opcode::COPY_FILE_RANGE | Opcode::COPY_FILE_RANGE_64);
        // One without an opcode only says where nodes are. The kernel asks for no copy of nothing.
        if forward.run >= runs || facts.opcode == 0 || copies && facts.size == 0 {
            return None;
        }
        if forward.files && opcode == Opcode::CREATE {
            return self.next_of_create(issue, forward);
        }
        if forward.files && matches!(opcode, Opcode::OPEN | Opcode::SETATTR) {
            return self.next_of_change(issue, forward);
        }
        let header = InHeader { opcode: facts.opcode, nodeid: facts.node, ..InHeader::default() };
        let mut body = Body::from_slice(&issue.record.body);
        without_handle(opcode, &mut body);
        if forward.files && opcode == Opcode::SETXATTR {
            // It may be stored, or have been removed since.
            let _ = put_u32(&mut body, XATTR_FLAGS, 0);
        }
        if copies {
            // As much as was copied then, and no more.
            let _ = put_u64(&mut body, offset_of!(CopyFileRangeIn, len), facts.size);
        }
        let request = Request { header, body: &body };
        // Two nodes and two handles at most.
        let mut patches = SmallVec::<[_; 4]>::new();
        patches.push((belay_wire::fields::NODEID_OFFSET, facts.node));
        for at in node_fields(&request) {
            patches.push((at, get_u64(&body, at - HEADER).unwrap_or(0)));
        }
        let mut places = SmallVec::<[(usize, u64); 4]>::new();
        for (at, key) in &patches {
            match self.id_or_lookup(*key, forward) {
                Some(Ok(id)) => places.push((*at, id)),
                Some(Err(lookup)) => return Some(Ok((lookup, Forwarded::Find(*key)))),
                None => return Some(Err("the node had no name by which it could be found")),
            }
        }
        for (at, (_, key)) in handle_fields(&request).iter().zip(&patches) {
            match forward.handles.get(key) {
                Some(opened) => places.push((at, opened.fh)),
                None if is_of_directory(issue) => {
                    let id = forward.ids.get(key).map_or(1, |told| told.id);
                    let open = build::opendir(self.questions.ids(id), 0);
                    return Some(Ok((open, Forwarded::Open(*key))));
                }
                None => return Some(Ok(self.open_for(*key, forward))),
            }
            if let Some(narrow) = self.narrow_for(*key, forward) {
                return Some(Ok(narrow));
            }
        }
        if forward.files && XATTRS.has(opcode) {
            // They belong to what is stored with the file, so the file is to be open, as it was.
            if !forward.handles.contains_key(&facts.node) {
                return Some(Ok(self.open_for(facts.node, forward)));
            }
            if let Some(narrow) = self.narrow_for(facts.node, forward) {
                return Some(Ok(narrow));
            }
        }
        if forward.run == 0
            && let Some(asked) = self.next_to_meet(&request, issue, &places, forward.looked)
        {
            return Some(Ok(asked));
        }
        let ids = Ids { uid: facts.uid, gid: facts.gid, pid: facts.pid, ..self.questions.ids(0) };
        let mut message = match issue.data.get(forward.run).filter(|_| opcode == Opcode::WRITE) {
            Some(run) => {
                let write: WriteIn = read(&body).unwrap_or_default();
                let head = WriteIn {
                    offset: run.offset,
                    size: run.bytes.len() as u32,
                    // Of its flags, those that are about the data.
                    write_flags: write.write_flags & WRITE_KILL_SUIDGID,
                    flags: write.flags,
                    ..WriteIn::default()
                };
                build::request(ids, opcode, &[head.as_bytes()])
            }
            None => build::request(ids, opcode, &[&body]),
        };
        for (at, value) in places {
            let _ = put_u64(&mut message, at, value);
        }
        Some(Ok((message, Forwarded::Issue(forward.run))))
    }

    /// LOOKUP of a name of the request that this life's daemon has not been asked for. `places`:
    /// the ids of its nodes; `looked`: the names that were looked up for it, a bit each.
    fn next_to_meet(
        &mut self,
        request: &Request<'_>,
        issue: &Issue,
        places: &[(usize, u64)],
        looked: u8,
    ) -> Option<(Vec<u8>, Forwarded)> {
        let facts = &issue.record.facts;
        let (number, name) = self.unmet_of(request, looked)?;
        // The first name is in the request's own directory, the second in that which a rename goes
        // to.
        let (_, parent) = places.get(number)?;
        let ids = self.questions.ids(*parent);
        let ids = Ids { uid: facts.uid, gid: facts.gid, pid: facts.pid, ..ids };
        Some((build::lookup(ids, name), Forwarded::Meet(number)))
    }

    /// A file that is to be made, where files are stored one by one: it may be there, and it may
    /// have another name by now.
    fn next_of_create(
        &mut self,
        issue: &Issue,
        forward: &RollForward,
    ) -> Option<Result<(Vec<u8>, Forwarded), &'static str>> {
        let facts = &issue.record.facts;
        let key = facts.entry.key;
        if forward.ids.contains_key(&key) {
            return None;
        }
        if !forward.missing {
            return Some(match self.id_or_lookup(key, forward) {
                Some(Err(lookup)) => Ok((lookup, Forwarded::Find(key))),
                _ => Err("the file has no name by which it could be made"),
            });
        }
        let root = self.store.key(Node::ROOT);
        let now = |key: u64| self.names_now(key);
        let link = forward.names.path(root, key, &now).and_then(|mut path| path.pop());
        let made: Option<CreateIn> = read(&issue.record.body);
        let (Some(link), Some(made)) = (link, made) else {
            return Some(Err("the file has no name by which it could be made"));
        };
        let parent = if link.parent == root {
            1
        } else {
            forward.ids.get(&link.parent).map_or(0, |told| told.id)
        };
        let flags = made.flags & !(O_EXCL | O_ACCMODE) | O_RDWR;
        let made = CreateIn { flags, ..made };
        let ids = self.questions.ids(parent);
        let ids = Ids { uid: facts.uid, gid: facts.gid, pid: facts.pid, ..ids };
        let parts = [made.as_bytes(), &link.name, b"\0"];
        Some(Ok((build::request(ids, Opcode::CREATE, &parts), Forwarded::Issue(0))))
    }

    /// A change of a file's attributes by the handle that the roll-forward has, where files are
    /// stored one by one; an OPEN that emptied it is one.
    fn next_of_change(
        &mut self,
        issue: &Issue,
        forward: &RollForward,
    ) -> Option<Result<(Vec<u8>, Forwarded), &'static str>> {
        let facts = &issue.record.facts;
        let key = facts.node;
        let id = match self.id_or_lookup(key, forward) {
            Some(Ok(id)) => id,
            Some(Err(lookup)) => return Some(Ok((lookup, Forwarded::Find(key)))),
            None => return Some(Err("the node had no name by which it could be found")),
        };
        let Some(opened) = forward.handles.get(&key) else {
            return Some(Ok(self.open_for(key, forward)));
        };
        let mut set = match Opcode(facts.opcode) {
            Opcode::SETATTR => read::<SetattrIn>(&issue.record.body).unwrap_or_default(),
            _ => SetattrIn { valid: SetattrValid::SIZE, ..SetattrIn::default() },
        };
        set.valid = set.valid & !SetattrValid::LOCKOWNER | SetattrValid::FH;
        set.fh = opened.fh;
        let ids = self.questions.ids(id);
        let ids = Ids { uid: facts.uid, gid: facts.gid, pid: facts.pid, ..ids };
        Some(Ok((build::setattr(ids, &set), Forwarded::Issue(0))))
    }

    /// What is asked next to open a node for writing. What a crash leaves of a widened mode is
    /// dropped with everything else.
    fn open_for(&mut self, key: u64, forward: &RollForward) -> (Vec<u8>, Forwarded) {
        let id = forward.ids.get(&key).map_or(1, |told| told.id);
        let ids = self.questions.ids(id);
        match forward.access.get(&key) {
            Some(Access::Ask) => (build::getattr(ids, None), Forwarded::Mode(key)),
            Some(Access::Has(mode)) => {
                (build::setattr(ids, &set_mode(mode | 0o600)), Forwarded::Widen(key, *mode))
            }
            _ => (build::open(ids, O_RDWR), Forwarded::Open(key)),
        }
    }

    /// Puts back the mode of a node that had to be widened to open it.
    fn narrow_for(&mut self, key: u64, forward: &RollForward) -> Option<(Vec<u8>, Forwarded)> {
        let Some(Access::Had(mode)) = forward.access.get(&key) else { return None };
        let id = forward.ids.get(&key).map_or(1, |told| told.id);
        let narrow = build::setattr(self.questions.ids(id), &set_mode(*mode));
        Some((narrow, Forwarded::Narrow))
    }

    /// The daemon's id of a node, or the LOOKUP by which it, or what leads to it, is found.
    fn id_or_lookup(&mut self, key: u64, forward: &RollForward) -> Option<Result<u64, Vec<u8>>> {
        let root = self.store.key(Node::ROOT);
        if key == root {
            return Some(Ok(1));
        }
        if let Some(told) = forward.ids.get(&key) {
            return Some(Ok(told.id));
        }
        let now = |key: u64| self.names_now(key);
        let path = forward.names.path(root, key, &now)?;
        let link = path.iter().find(|link| !forward.ids.contains_key(&link.key))?;
        let parent = if link.parent == root { 1 } else { forward.ids.get(&link.parent)?.id };
        Some(Err(build::lookup(self.questions.ids(parent), &link.name)))
    }
}

/// A SETATTR by a handle is done without: nobody has that handle any more.
fn without_handle(opcode: Opcode, body: &mut [u8]) {
    if opcode == Opcode::SETATTR
        && let Some(mut set) = read::<SetattrIn>(body)
    {
        set.valid &= !(SetattrValid::FH | SetattrValid::LOCKOWNER);
        set.fh = 0;
        let bytes = set.as_bytes();
        if let Some(place) = body.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}
