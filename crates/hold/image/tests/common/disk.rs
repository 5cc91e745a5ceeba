//! A simulated disk with two files on it. What was written since a file's last sync may be there or
//! not after a power failure, sector by sector, in any combination.

use belay_image::journal::{Metadata, Source, Storage};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

const SECTOR: usize = 512;

/// What a file may have lost when the power goes.
#[derive(Clone, Debug)]
enum Pending {
    /// A part of a sector, or all of one.
    Piece(usize, Vec<u8>),
    Length(usize),
}

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    modified: i64,
}

#[derive(Clone, Debug, Default)]
struct File {
    now: Content,
    durable: Content,
    pending: Vec<Pending>,
    inode: u64,
    is_device: bool,
}

/// What goes wrong, and at which write, cut or sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power goes: this one may have been done in part.
    Power,
    /// An error, of which nothing was done; the others are all right.
    Error,
    /// This one and all that follow fail: the process has died.
    Death,
}

struct State {
    files: [File; 2],
    ops: usize,
    fault: Option<(usize, Fault)>,
    dead: bool,
    /// Time, in seconds.
    clock: i64,
    /// Bytes that one write from memory takes.
    most: usize,
}

#[derive(Clone)]
pub struct Disk(Rc<RefCell<State>>);

/// One of the files.
#[derive(Clone)]
pub struct SimFile(Disk, usize);

/// What is on a disk after the power came back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Platter {
    pub image: Vec<u8>,
    pub journal: Vec<u8>,
    pub modified: [i64; 2],
}

pub const IMAGE: usize = 0;
pub const JOURNAL: usize = 1;

impl Disk {
    pub fn new(platter: Platter, clock: i64) -> Self {
        let [image, journal] = platter.modified;
        let file = |bytes: Vec<u8>, modified, inode| {
            let content = Content { bytes, modified };
            File {
                now: content.clone(),
                durable: content,
                pending: vec![],
                inode,
                is_device: false,
            }
        };
        let files = [file(platter.image, image, 7), file(platter.journal, journal, 8)];
        let (ops, fault, dead, most) = (0, None, false, 700);
        Self(Rc::new(RefCell::new(State { files, ops, fault, dead, clock, most })))
    }

    pub fn image(&self) -> SimFile {
        SimFile(self.clone(), IMAGE)
    }

    pub fn journal(&self) -> SimFile {
        SimFile(self.clone(), JOURNAL)
    }

    /// From now on, operation number `at` (from 0) goes wrong.
    pub fn fault(&self, at: usize, fault: Fault) {
        let mut state = self.0.borrow_mut();
        (state.ops, state.fault, state.dead) = (0, Some((at, fault)), false);
    }

    /// All is well again. Gives the operations since the last call of this or `fault`.
    pub fn repair(&self) -> usize {
        let mut state = self.0.borrow_mut();
        (state.fault, state.dead) = (None, false);
        std::mem::take(&mut state.ops)
    }

    pub fn set_device(&self) {
        self.0.borrow_mut().files[IMAGE].is_device = true;
    }

    pub fn pass(&self, seconds: i64) {
        self.0.borrow_mut().clock += seconds;
    }

    pub fn clock(&self) -> i64 {
        self.0.borrow().clock
    }

    /// What anybody sees who reads the files now.
    pub fn contents(&self, file: usize) -> Vec<u8> {
        self.0.borrow().files[file].now.bytes.clone()
    }

    /// Things of which each may be lost or not, if the power goes now.
    pub fn undecided(&self) -> usize {
        self.0
            .borrow()
            .files
            .iter()
            .map(|file| file.pending.len() + usize::from(file.has_time()))
            .sum()
    }

    /// The power goes and comes back: what is there, if `keep` says what was kept.
    pub fn platter(&self, mut keep: impl FnMut() -> bool) -> Platter {
        let state = self.0.borrow();
        let [image, journal] = [IMAGE, JOURNAL].map(|file| state.files[file].after(&mut keep));
        Platter {
            image: image.bytes,
            journal: journal.bytes,
            modified: [image.modified, journal.modified],
        }
    }

    /// Counts an operation; whether it is done, and whether it fails.
    fn step(&self) -> (bool, io::Result<()>) {
        let mut state = self.0.borrow_mut();
        if state.dead {
            return (false, Err(io::Error::other("nobody is there")));
        }
        let op = state.ops;
        state.ops += 1;
        match state.fault {
            Some((at, fault)) if at == op => {
                state.dead = fault != Fault::Error;
                (fault == Fault::Power, Err(io::Error::other(format!("{fault:?}"))))
            }
            _ => (true, Ok(())),
        }
    }
}

impl File {
    fn has_time(&self) -> bool {
        self.now.modified != self.durable.modified
    }

    fn after(&self, keep: &mut impl FnMut() -> bool) -> Content {
        let mut content = self.durable.clone();
        for pending in self.pending.iter().filter(|_| keep()) {
            pending.apply(&mut content.bytes);
        }
        if self.has_time() && keep() {
            content.modified = self.now.modified;
        }
        content
    }
}

impl Pending {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Piece(at, piece) => {
                let end = at + piece.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at..end].copy_from_slice(piece);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }
}

impl SimFile {
    fn change(&self, pending: Vec<Pending>) -> io::Result<()> {
        let (done, result) = self.0.step();
        if done {
            let mut state = self.0.0.borrow_mut();
            let clock = state.clock;
            let file = &mut state.files[self.1];
            file.now.modified = clock;
            for pending in pending {
                pending.apply(&mut file.now.bytes);
                file.pending.push(pending);
            }
        }
        result
    }
}

impl Storage for SimFile {
    fn name(&self) -> String {
        ["image", "journal"][self.1].to_owned()
    }

    fn metadata(&self) -> io::Result<Metadata> {
        let state = self.0.0.borrow();
        let File { now, inode, is_device, .. } = &state.files[self.1];
        Ok(Metadata {
            length: now.bytes.len() as u64,
            device: 1,
            inode: *inode,
            modified: now.modified,
            owner: 0,
            shared: false,
            is_device: *is_device,
            is_lasting: !*is_device,
            is_dated: !*is_device,
        })
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let state = self.0.0.borrow();
        let bytes = &state.files[self.1].now.bytes;
        let there = bytes.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let n = there.len().min(out.len());
        out[..n].copy_from_slice(&there[..n]);
        Ok(n)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut at = usize::try_from(offset).unwrap();
        let mut rest = bytes;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
            pieces.push(Pending::Piece(at, piece.to_vec()));
            at += piece.len();
            rest = more;
        }
        self.change(pieces)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        assert!(!self.0.0.borrow().files[self.1].is_device, "a device has its length");
        self.change(vec![Pending::Length(length as usize)])
    }

    fn sync(&self) -> io::Result<()> {
        let (_, result) = self.0.step();
        if result.is_ok() {
            let mut state = self.0.0.borrow_mut();
            let file = &mut state.files[self.1];
            file.pending.clear();
            file.durable = file.now.clone();
        }
        result
    }
}

/// Memory from which the simulated files are written, a bit at a time.
pub struct SimSource(pub Vec<u8>);

impl Source<SimFile> for SimSource {
    fn load(&self, from: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0[from..from + out.len()]);
    }

    fn write_to(
        &self,
        file: &SimFile,
        offset: u64,
        pieces: &[(usize, usize)],
    ) -> io::Result<usize> {
        assert!(pieces.len() <= 64);
        let mut bytes = Vec::new();
        for (from, len) in pieces {
            bytes.extend_from_slice(&self.0[*from..from + len]);
        }
        bytes.truncate(file.0.0.borrow().most);
        file.write_at(offset, &bytes)?;
        Ok(bytes.len())
    }
}
