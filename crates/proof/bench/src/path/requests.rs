//! The operations: which requests the kernel makes for each, and what the daemon answers.

use std::fmt;

use belay_wire::abi::{AttrOut, CreateIn, MkdirIn, WriteIn, WriteOut};
use belay_wire::{Attr, EntryOut, Ids, Opcode, OpenOut, build};
use clap::ValueEnum;
use zerocopy::IntoBytes;

use super::driver::Driver;

/// The root's node.
const ROOT: u64 = 1;
/// `ENOENT`.
const ABSENT: i32 = 2;
/// Modes of a file and of a folder.
const FILE: u32 = 0o100_644;
const FOLDER: u32 = 0o040_755;
/// What is read and written at once.
const BLOCK: usize = 4096;
/// Names that there are at a time.
const NAMES: u64 = 1000;

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
    /// RENAME.
    Rename,
}

/// Shown as on the command line.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

impl Kind {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// How many requests an operation has.
    pub fn requests(self) -> u32 {
        match self {
            Self::OpenClose | Self::MkdirRmdir => 3,
            Self::CreateUnlink => 5,
            _ => 1,
        }
    }

    /// Makes what the operations are about.
    pub fn prepare(self, driver: &mut Driver) {
        let ids = driver.ids(ROOT);
        driver.file = driver.ask(build::lookup(ids, b"file"), Ok(entry(FILE, 7).as_bytes())).first;
        let ids = driver.ids(driver.file);
        let open = OpenOut { fh: 70, ..OpenOut::default() };
        driver.handle = driver.ask(build::open(ids, 2), Ok(open.as_bytes())).first;
    }

    /// Does one operation, of which each has a number of its own.
    pub fn operate(self, driver: &mut Driver, number: u64) {
        let (file, handle) = (driver.file, driver.handle);
        let name = format!("name-{}", number % NAMES);
        match self {
            Self::NegativeLookup => {
                let ids = driver.ids(ROOT);
                driver.ask(build::lookup(ids, name.as_bytes()), Err(ABSENT));
            }
            Self::Lookup => {
                let ids = driver.ids(ROOT);
                driver.ask(build::lookup(ids, b"file"), Ok(entry(FILE, 7).as_bytes()));
            }
            Self::Getattr => {
                let ids = driver.ids(file);
                let out = AttrOut { attr: entry(FILE, 7).attr, ..AttrOut::default() };
                driver.ask(build::getattr(ids, None), Ok(out.as_bytes()));
            }
            Self::Read => {
                let ids = driver.ids(file);
                driver.ask(build::read(ids, handle, 0, BLOCK as u32), Ok(&[0; BLOCK]));
            }
            Self::Write => {
                let ids = driver.ids(file);
                let head = WriteIn { fh: handle, size: BLOCK as u32, ..WriteIn::default() };
                let message = build::request(ids, Opcode::WRITE, &[head.as_bytes(), &[0; BLOCK]]);
                let out = WriteOut { size: BLOCK as u32, ..WriteOut::default() };
                driver.ask(message, Ok(out.as_bytes()));
            }
            Self::OpenClose => {
                let ids = driver.ids(file);
                let open = OpenOut { fh: 71, ..OpenOut::default() };
                let opened = driver.ask(build::open(ids, 0), Ok(open.as_bytes())).first;
                close(driver, file, opened);
            }
            Self::CreateUnlink => {
                let head = CreateIn { flags: 0o301, mode: FILE, ..CreateIn::default() };
                let message = named(driver.ids(ROOT), Opcode::CREATE, head.as_bytes(), &name);
                let open = OpenOut { fh: 72, ..OpenOut::default() };
                let body = [entry(FILE, 8 + number).as_bytes(), open.as_bytes()].concat();
                let made = driver.ask(message, Ok(&body));
                close(driver, made.first, made.handle);
                let ids = driver.ids(ROOT);
                driver.ask(build::unlink(ids, name.as_bytes()), Ok(&[]));
                let ids = driver.ids(made.first);
                driver.tell(build::forget(ids, 1));
            }
            Self::MkdirRmdir => {
                let head = MkdirIn { mode: FOLDER, umask: 0 };
                let message = named(driver.ids(ROOT), Opcode::MKDIR, head.as_bytes(), &name);
                let made = driver.ask(message, Ok(entry(FOLDER, 8 + number).as_bytes()));
                let ids = driver.ids(ROOT);
                driver.ask(build::rmdir(ids, name.as_bytes()), Ok(&[]));
                let ids = driver.ids(made.first);
                driver.tell(build::forget(ids, 1));
            }
            Self::Rename => {
                let (from, to) =
                    if number.is_multiple_of(2) { ("file", "moved") } else { ("moved", "file") };
                let ids = driver.ids(ROOT);
                driver.ask(build::rename(ids, ROOT, from.as_bytes(), to.as_bytes()), Ok(&[]));
            }
        }
    }
}

fn close(driver: &mut Driver, file: u64, handle: u64) {
    let ids = driver.ids(file);
    driver.ask(build::flush(ids, handle), Ok(&[]));
    let ids = driver.ids(file);
    driver.ask(build::release(ids, handle, 0, false), Ok(&[]));
}

fn named(ids: Ids, opcode: Opcode, head: &[u8], name: &str) -> Vec<u8> {
    build::request(ids, opcode, &[head, name.as_bytes(), b"\0"])
}

/// What the daemon says of a file, which it knows by this number.
fn entry(mode: u32, number: u64) -> EntryOut {
    let attr = Attr { ino: number, mode, nlink: 1, ..Attr::default() };
    EntryOut { nodeid: 1000 + number, attr, ..EntryOut::default() }
}
