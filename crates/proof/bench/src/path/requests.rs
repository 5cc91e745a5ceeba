//! The operations: which requests the kernel makes for each, and what the daemon answers.

use std::fmt;

use belay_wire::abi::{AttrOut, CreateIn, MkdirIn, WriteIn, WriteOut};
use belay_wire::errno::ENOENT;
use belay_wire::request::HEADER;
use belay_wire::{Attr, EntryOut, Ids, Opcode, OpenOut, ROOT_ID, build};
use clap::ValueEnum;
use zerocopy::IntoBytes;

use super::step::{Learns, Names, Of, Step};
use crate::words::of_choice;

/// Modes of a file and of a folder.
const FILE: u32 = 0o100_644;
const FOLDER: u32 = 0o040_755;
/// What is read and written at once.
const BLOCK: usize = 4096;
/// Where the handle is that a request names: first in its body.
const HANDLE: usize = HEADER;
/// Of a request whose ids are put in later.
const LATER: Ids = Ids { unique: 0, nodeid: 0, uid: 0, gid: 0, pid: 1 };

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// LOOKUP of a name that is not there.
    NegativeLookup,
    /// LOOKUP of a name that is known.
    Lookup,
    /// GETATTR.
    Getattr,
    /// READ of 4 KiB.
    Read,
    /// WRITE of 4 KiB.
    Write,
    /// OPEN, FLUSH, RELEASE.
    OpenClose,
    /// CREATE, FLUSH, RELEASE, UNLINK, FORGET.
    CreateUnlink,
    /// MKDIR, RMDIR, FORGET.
    MkdirRmdir,
    /// RENAME there and back.
    Rename,
}

/// Shown as on the command line.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&of_choice(self))
    }
}

impl Kind {
    /// Whether it changes a file, or a name.
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::CreateUnlink | Self::MkdirRmdir | Self::Rename)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// How many requests an operation has.
    pub fn requests(self) -> u32 {
        u32::try_from(self.steps(0).len()).unwrap_or(u32::MAX)
    }

    /// What there must be before: a file that is known, and open.
    pub fn preparation() -> [Step; 2] {
        let open = OpenOut { fh: 70, ..OpenOut::default() };
        [
            Step::of(build::lookup(LATER, b"file"), Ok(entry(FILE, 7).as_bytes()))
                .giving(Learns::File),
            Step::of(build::open(LATER, 2), Ok(open.as_bytes()))
                .on(Of::File)
                .giving(Learns::FileHandle),
        ]
    }

    /// The requests of one operation, of those that differ by their names the one with this number.
    pub fn steps(self, number: u64) -> Vec<Step> {
        let name = format!("name-{number}");
        match self {
            Self::NegativeLookup => {
                vec![Step::of(build::lookup(LATER, name.as_bytes()), Err(ENOENT))]
            }
            Self::Lookup => {
                vec![Step::of(build::lookup(LATER, b"file"), Ok(entry(FILE, 7).as_bytes()))]
            }
            Self::Getattr => {
                let out = AttrOut { attr: entry(FILE, 7).attr, ..AttrOut::default() };
                vec![Step::of(build::getattr(LATER, None), Ok(out.as_bytes())).on(Of::File)]
            }
            Self::Read => {
                let message = build::read(LATER, 0, 0, BLOCK as u32);
                vec![Step::of(message, Ok(&[0; BLOCK])).on(Of::File).naming(Names::Handle(HANDLE))]
            }
            Self::Write => {
                let head = WriteIn { size: BLOCK as u32, ..WriteIn::default() };
                let message = build::request(LATER, Opcode::WRITE, &[head.as_bytes(), &[0; BLOCK]]);
                let out = WriteOut { size: BLOCK as u32, ..WriteOut::default() };
                vec![
                    Step::of(message, Ok(out.as_bytes()))
                        .on(Of::File)
                        .naming(Names::Handle(HANDLE)),
                ]
            }
            Self::OpenClose => {
                let open = OpenOut { fh: 71, ..OpenOut::default() };
                let open = Step::of(build::open(LATER, 0), Ok(open.as_bytes())).on(Of::File);
                [vec![open.giving(Learns::Opened)], close(Of::File)].concat()
            }
            Self::CreateUnlink => {
                let head = CreateIn { flags: 0o301, mode: FILE, ..CreateIn::default() };
                let open = OpenOut { fh: 72, ..OpenOut::default() };
                let body = [entry(FILE, 8 + number).as_bytes(), open.as_bytes()].concat();
                let create = Step::of(named(Opcode::CREATE, head.as_bytes(), &name), Ok(&body));
                let unlink = Step::of(build::unlink(LATER, name.as_bytes()), Ok(&[]));
                let made = vec![create.giving(Learns::Made)];
                [made, close(Of::Made), vec![unlink, forget()]].concat()
            }
            Self::MkdirRmdir => {
                let head = MkdirIn { mode: FOLDER, umask: 0 };
                let made = entry(FOLDER, 8 + number);
                let message = named(Opcode::MKDIR, head.as_bytes(), &name);
                let mkdir = Step::of(message, Ok(made.as_bytes())).giving(Learns::Made);
                let rmdir = Step::of(build::rmdir(LATER, name.as_bytes()), Ok(&[]));
                vec![mkdir, rmdir, forget()]
            }
            Self::Rename => {
                let rename = |from: &[u8], to: &[u8]| {
                    Step::of(build::rename(LATER, ROOT_ID, from, to), Ok(&[]))
                };
                vec![rename(b"file", name.as_bytes()), rename(name.as_bytes(), b"file")]
            }
        }
    }
}

fn close(file: Of) -> Vec<Step> {
    let flush = Step::of(build::flush(LATER, 0), Ok(&[]));
    let release = Step::of(build::release(LATER, 0, 0, false), Ok(&[]));
    [flush, release].map(|step| step.on(file).naming(Names::Opened(HANDLE))).to_vec()
}

fn forget() -> Step {
    Step::unanswered(build::forget(LATER, 1)).on(Of::Made)
}

fn named(opcode: Opcode, head: &[u8], name: &str) -> Vec<u8> {
    build::request(LATER, opcode, &[head, name.as_bytes(), b"\0"])
}

/// What the daemon says of a file, which it knows by this number.
fn entry(mode: u32, number: u64) -> EntryOut {
    let attr = Attr { ino: number, mode, nlink: 1, ..Attr::default() };
    EntryOut { nodeid: 1000 + number, attr, ..EntryOut::default() }
}
