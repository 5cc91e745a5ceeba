//! What a message of the kernel asks for, and how it is answered: the dispatch sublayer (namespace
//! transactions IV-C).
//!
//! Messages are those of FUSE, and the numbers of nodes in them are those of objects. Handles say
//! nothing, and nobody counts what is open: a file without names is an orphan until the kernel
//! forgets it. The kernel knows each file whose last name goes, and a FORGET must come when it
//! knows the file no more, once, as belay's session has it: its count is not looked at.
//!
//! Locks are the kernel's, which keeps them whoever of us dies. What is not answered (`ENOSYS`),
//! the kernel does without: holes are not looked for by lseek(2), and copy_file_range(2) reads and
//! writes.

mod allocate;
mod answers;
mod direct;
mod extended;
mod listing;

pub use direct::Direct;

use crate::attributes::{BLOCKS, CHARACTERS, DIRECTORY, FIFO, FILE, SOCKET, TYPE, Time};
use crate::error::Error;
use crate::namespace::{Caller, Change, Memo, Namespace, Rename};
use crate::own::ROOT;
use crate::secret::Secret;
use crate::view::View;
use answers::{attr_out, create_out, damaged_out, entry_out, message, statfs_out, times};
use belay_cache::Publisher;
use belay_memory::Memory;
use belay_object::{Lower, ObjectId};
use belay_wire::abi::{
    CreateIn, InitFlags, InitIn, InitOut, LinkIn, MkdirIn, MknodIn, OpenOut, ReadIn, Rename2In,
    RenameIn, SetattrIn, WriteIn, WriteOut,
};
use belay_wire::{Opcode, Request};
use rustix::io::Errno;
use std::collections::BTreeMap;
use zerocopy::{FromZeros, IntoBytes};

/// What is to be done with a message.
#[derive(Debug)]
pub enum Outcome {
    /// This is the answer.
    Reply(Vec<u8>),
    /// It failed, through no fault of who asked: this is the answer, none if it is empty, and this
    /// is why.
    Fault(Vec<u8>, String),
    /// There is no answer to it.
    Nothing,
    /// It is to be handled again when there is room in the cache: after a checkpoint.
    Full,
    /// It is to be handled again when what was written to this object by direct I/O is settled
    /// ([`Module::settle`], [`Module::undo`]).
    Held(ObjectId),
    /// This is the answer when these objects, and all names, are durable.
    Sync(Vec<ObjectId>, Vec<u8>),
    /// It was direct I/O.
    Direct(Direct),
}

/// The namespace module of a volume.
#[derive(Debug)]
pub struct Module<M: Memory, B: Lower> {
    publisher: Publisher<M>,
    below: B,
    memo: Memo,
    /// FALLOCATEs that were put aside in their middle, and how far they are.
    begun: BTreeMap<u64, u64>,
}

type Answer<E> = crate::Result<Vec<u8>, E>;

/// The longest read or write.
const MOST: u32 = 1 << 20;

/// Files that are removed in one transaction, so that it fits into the log.
const MOST_FORGOTTEN: usize = 256;

/// Requests that were put aside in their middle. There are not so many at once; some may have been
/// given up.
const MOST_BEGUN: usize = 256;

/// A message is shorter than what it is about.
const SHORT: Errno = Errno::INVAL;

impl<M: Memory, B: Lower> Module<M, B> {
    /// One that has just begun.
    pub fn new(publisher: Publisher<M>, below: B) -> Self {
        Self { publisher, below, memo: Memo::default(), begun: BTreeMap::new() }
    }

    /// How far a request is that was put aside in its middle; `None` if it has nothing of it behind
    /// it.
    pub fn progress(&self, unique: u64) -> Option<u64> {
        self.begun.get(&unique).copied()
    }

    /// Nobody waits for that request any more, and the rest of it is not to be done.
    pub fn give_up(&mut self, unique: u64) {
        self.begun.remove(&unique);
    }

    /// The layer below.
    pub fn below(&mut self) -> &mut B {
        &mut self.below
    }

    pub(crate) fn publisher(&mut self) -> &mut Publisher<M> {
        &mut self.publisher
    }

    /// Makes an empty namespace.
    ///
    /// # Errors
    /// Those of the cache.
    pub fn format(&mut self, caller: Caller, secret: Secret) -> crate::Result<(), B::Error> {
        let mut view = View::new(&mut self.publisher, &mut self.below);
        Namespace::new(&mut view, caller, &mut self.memo).format(secret)?;
        view.commit(0, b"")
    }

    /// Removes what was in use without a name when the module ended for good. Nobody can use it any
    /// more. Gives what cannot be removed, and why: it stays, and takes room.
    ///
    /// # Errors
    /// Those of the cache. If it is full ([`belay_cache::Error::Full`]), it is to be called again
    /// after a checkpoint.
    pub fn remove_orphans(&mut self) -> crate::Result<Vec<String>, B::Error> {
        let mut failed = Vec::new();
        for orphan in self.orphans()? {
            let mut view = View::new(&mut self.publisher, &mut self.below);
            let mut namespace = Namespace::new(&mut view, Caller::default(), &mut self.memo);
            let removed = namespace.forget(orphan);
            match removed.and_then(|_| view.commit(0, b"")) {
                Ok(()) => {}
                Err(Error::Cache(belay_cache::Error::Full)) => {
                    return Err(Error::Cache(belay_cache::Error::Full));
                }
                Err(why) => failed.push(format!("{orphan}: {why}")),
            }
        }
        Ok(failed)
    }

    /// The files that have no name, and were not forgotten.
    ///
    /// # Errors
    /// Those of reading.
    pub fn orphans(&mut self) -> crate::Result<Vec<ObjectId>, B::Error> {
        let mut view = View::new(&mut self.publisher, &mut self.below);
        Namespace::new(&mut view, Caller::default(), &mut self.memo).orphans(usize::MAX)
    }

    /// Handles a message. A request that was published by an earlier life is answered without it.
    /// If there is no room, it is handled again when there is; of a FORGET, a part may have
    /// happened then, and no other message may be handled before.
    pub fn handle(&mut self, bytes: &[u8], now: Time) -> Outcome {
        let Ok(request) = Request::parse(bytes) else { return Outcome::Nothing };
        let unique = request.header.unique;
        let opcode = request.opcode();
        match opcode {
            Opcode::INTERRUPT | Opcode::DESTROY => return Outcome::Nothing,
            Opcode::FORGET => return self.forget(unique, &[ObjectId(request.header.nodeid)]),
            Opcode::BATCH_FORGET => {
                let nodes = request.forgets().map(|(_, one)| ObjectId(one.nodeid));
                return self.forget(unique, &nodes.collect::<Vec<_>>());
            }
            Opcode::INIT => return Outcome::Reply(init(&request)),
            _ => {}
        }
        let caller = Caller { uid: request.header.uid, gid: request.header.gid, now };
        let answered = self.answer(&request, caller);
        let object = ObjectId(request.header.nodeid);
        match answered {
            Ok((body, Some(number))) => {
                let reply = message(unique, 0, &body);
                Outcome::Direct(Direct { number, objects: vec![object], unique, reply })
            }
            Ok((body, None)) if [Opcode::FSYNC, Opcode::FSYNCDIR].contains(&opcode) => {
                Outcome::Sync(vec![object], message(unique, 0, &body))
            }
            Ok((body, None)) => Outcome::Reply(message(unique, 0, &body)),
            Err(Error::Cache(belay_cache::Error::Full)) => Outcome::Full,
            Err(Error::Cache(belay_cache::Error::Held(object))) => Outcome::Held(object),
            Err(Error::Errno(errno)) => Outcome::Reply(message(unique, errno.raw_os_error(), &[])),
            Err(why) => {
                let answer = message(unique, Errno::IO.raw_os_error(), &[]);
                Outcome::Fault(answer, format!("{}: {why}", request.describe()))
            }
        }
    }

    /// The kernel knows these nodes no more.
    fn forget(&mut self, unique: u64, nodes: &[ObjectId]) -> Outcome {
        match self.remove_forgotten(unique, nodes) {
            Err(Error::Cache(belay_cache::Error::Full)) => Outcome::Full,
            Err(Error::Cache(belay_cache::Error::Held(object))) => Outcome::Held(object),
            Ok(()) => Outcome::Nothing,
            // Nobody waits for an answer. What stays is removed by the next life, or when the
            // volume is mounted next.
            Err(why) => Outcome::Fault(Vec::new(), format!("FORGET: {why}")),
        }
    }

    fn remove_forgotten(&mut self, unique: u64, nodes: &[ObjectId]) -> crate::Result<(), B::Error> {
        let mut view = View::new(&mut self.publisher, &mut self.below);
        let mut namespace = Namespace::new(&mut view, Caller::default(), &mut self.memo);
        let nodes = namespace.maybe_nameless(nodes)?;
        let mut rest = nodes.iter();
        loop {
            let mut view = View::new(&mut self.publisher, &mut self.below);
            let mut namespace = Namespace::new(&mut view, Caller::default(), &mut self.memo);
            let mut removed = 0;
            while removed < MOST_FORGOTTEN
                && let Some(node) = rest.next()
            {
                match namespace.forget(*node) {
                    Ok(is_removed) => removed += usize::from(is_removed),
                    // It went before, if this is done again.
                    Err(Error::Errno(Errno::STALE)) => {}
                    Err(why) => return Err(why),
                }
            }
            // The request is done with the last of its transactions.
            let is_last = rest.len() == 0;
            view.commit(if is_last { unique } else { 0 }, b"")?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// The answer to a request; with the number of its transaction, if that may be undone yet.
    fn answer(
        &mut self,
        request: &Request<'_>,
        caller: Caller,
    ) -> crate::Result<(Vec<u8>, Option<u64>), B::Error> {
        let node = ObjectId(request.header.nodeid);
        if request.opcode() == Opcode::FALLOCATE {
            return Ok((self.allocate(request, node, caller)?, None));
        }
        let mut view = View::new(&mut self.publisher, &mut self.below);
        let mut namespace = Namespace::new(&mut view, caller, &mut self.memo);
        let body = answer(&mut namespace, request, node)?;
        let unique = request.header.unique;
        if direct::is_direct(request) {
            let number = view.commit_revocably(unique, &body)?;
            return Ok((body, number));
        }
        view.commit(unique, &body)?;
        Ok((body, None))
    }
}

/// What is wanted of the kernel, and what is left to it: locks, which it keeps over any death of
/// ours then; the end of set-id bits and capabilities at a write; the umask; and that a file opened
/// with `O_TRUNC` is truncated, by a SETATTR.
fn init(request: &Request<'_>) -> Vec<u8> {
    let asked = request.body_as::<InitIn>();
    let offered = asked.map_or(0, |asked| asked.flags);
    let wanted = InitFlags::ASYNC_READ
        | InitFlags::BIG_WRITES
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::MAX_PAGES;
    let mut out = InitOut::new_zeroed();
    out.major = belay_wire::abi::KERNEL_VERSION;
    out.minor = belay_wire::abi::KERNEL_MINOR_VERSION;
    out.max_readahead = asked.map_or(0, |asked| asked.max_readahead);
    out.flags = offered & wanted.bits() as u32;
    out.max_write = MOST;
    out.max_pages = (MOST / 4096) as u16;
    out.time_gran = 1;
    message(request.header.unique, 0, out.as_bytes())
}

/// Answers a request.
fn answer<M: Memory, B: Lower>(
    namespace: &mut Namespace<'_, '_, M, B>,
    request: &Request<'_>,
    node: ObjectId,
) -> Answer<B::Error> {
    let names = request.names();
    let name = names.first.unwrap_or_default();
    match request.opcode() {
        Opcode::LOOKUP => match namespace.lookup(node, name) {
            Ok(found) => Ok(entry_out(&found)),
            Err(Error::Errno(errno)) if errno != Errno::STALE => Err(errno.into()),
            Err(why) => match namespace.damaged(node, name)? {
                Some(entry) => Ok(damaged_out(&entry)),
                None => Err(why),
            },
        },
        Opcode::GETATTR => Ok(attr_out(&namespace.node(node)?)),
        Opcode::SETATTR => {
            let asked = request.body_as::<SetattrIn>().ok_or(SHORT)?;
            let change = change_of(&asked, times(&asked, namespace.caller().now));
            Ok(attr_out(&namespace.change(node, change)?))
        }
        Opcode::READLINK => namespace.readlink(node),
        Opcode::SYMLINK => {
            let target = names.second.ok_or(SHORT)?;
            Ok(entry_out(&namespace.symlink(node, name, target)?))
        }
        Opcode::MKNOD => {
            let asked = request.body_as::<MknodIn>().ok_or(SHORT)?;
            let mode = asked.mode & (TYPE | 0o7777);
            let device = match mode & TYPE {
                CHARACTERS | BLOCKS => asked.rdev,
                FILE | FIFO | SOCKET => 0,
                _ => return Err(Errno::INVAL.into()),
            };
            Ok(entry_out(&namespace.make(node, name, mode, device)?))
        }
        Opcode::MKDIR => {
            let asked = request.body_as::<MkdirIn>().ok_or(SHORT)?;
            let mode = asked.mode & 0o7777 | DIRECTORY;
            Ok(entry_out(&namespace.make(node, name, mode, 0)?))
        }
        Opcode::CREATE => {
            let asked = request.body_as::<CreateIn>().ok_or(SHORT)?;
            let mode = asked.mode & 0o7777 | FILE;
            Ok(create_out(&namespace.make(node, name, mode, 0)?))
        }
        Opcode::UNLINK => namespace.unlink(node, name).map(|()| Vec::new()),
        Opcode::RMDIR => namespace.rmdir(node, name).map(|()| Vec::new()),
        Opcode::RENAME | Opcode::RENAME2 => {
            let (to, flags) = match request.opcode() {
                Opcode::RENAME => (request.body_as::<RenameIn>().ok_or(SHORT)?.newdir, 0),
                _ => {
                    let asked = request.body_as::<Rename2In>().ok_or(SHORT)?;
                    (asked.newdir, asked.flags)
                }
            };
            let how = Rename::from_flags(flags).ok_or(Errno::INVAL)?;
            let new = names.second.ok_or(SHORT)?;
            namespace.rename((node, name), (ObjectId(to), new), how)?;
            Ok(Vec::new())
        }
        Opcode::LINK => {
            let asked = request.body_as::<LinkIn>().ok_or(SHORT)?;
            Ok(entry_out(&namespace.link(ObjectId(asked.oldnodeid), node, name)?))
        }
        Opcode::OPEN | Opcode::OPENDIR => {
            namespace.node(node)?;
            Ok(OpenOut::new_zeroed().as_bytes().to_vec())
        }
        Opcode::READ => {
            let asked = request.body_as::<ReadIn>().ok_or(SHORT)?;
            namespace.read(node, asked.offset, asked.size.min(MOST) as usize)
        }
        Opcode::WRITE => {
            let asked = request.body_as::<WriteIn>().ok_or(SHORT)?;
            let data = request.body.get(size_of::<WriteIn>()..).unwrap_or_default();
            let data = data.get(..asked.size as usize).ok_or(SHORT)?;
            namespace.write(node, Some(asked.offset), data)?;
            let out = WriteOut { size: asked.size, padding: 0 };
            Ok(out.as_bytes().to_vec())
        }
        Opcode::READDIR | Opcode::READDIRPLUS => listing::list(namespace, request, node),
        Opcode::SETXATTR | Opcode::GETXATTR | Opcode::LISTXATTR | Opcode::REMOVEXATTR => {
            extended::answer(namespace, request, node)
        }
        Opcode::STATFS => Ok(statfs_out(&namespace.usage()?)),
        // Nothing is kept of what is open.
        Opcode::RELEASE | Opcode::RELEASEDIR => Ok(Vec::new()),
        // What was written is published already; how durable it is, is told by the caller.
        Opcode::FLUSH | Opcode::FSYNC | Opcode::FSYNCDIR => Ok(Vec::new()),
        _ => Err(Errno::NOSYS.into()),
    }
}

fn change_of(asked: &SetattrIn, (accessed, modified): (Option<Time>, Option<Time>)) -> Change {
    use belay_wire::abi::SetattrValid;
    let has = |flag| asked.valid.contains(flag);
    Change {
        mode: has(SetattrValid::MODE).then_some(asked.mode),
        uid: has(SetattrValid::UID).then_some(asked.uid),
        gid: has(SetattrValid::GID).then_some(asked.gid),
        size: has(SetattrValid::SIZE).then_some(asked.size),
        accessed,
        modified,
    }
}

/// The number of the directory at the top is the kernel's as well.
const _: () = assert!(ROOT.0 == belay_wire::ROOT_ID);
