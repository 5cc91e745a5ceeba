//! A request and its answer, made before anything is measured: only what differs from one time to
//! the next is put in then.

use belay_wire::{EntryOut, OutHeader, ROOT_ID, build, get_u64};

/// Where the body of a reply is.
pub const BODY: usize = size_of::<OutHeader>();

/// Which node a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The root.
    Root,
    /// The file that there is from the beginning.
    File,
    /// What was made last.
    Made,
}

/// Which handle it names, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// None.
    None,
    /// That of the file that is open from the beginning.
    Handle(usize),
    /// The one that was opened last.
    Opened(usize),
}

/// What is learnt of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learns {
    /// Nothing.
    Nothing,
    /// The file.
    File,
    /// The file's handle.
    FileHandle,
    /// The last handle.
    Opened,
    /// What was made last; of a file its handle as well.
    Made,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Step {
    /// The request, without its ids.
    pub message: Vec<u8>,
    /// The answer, without its number.
    pub reply: Option<Vec<u8>>,
    pub of: Of,
    pub names: Names,
    pub learns: Learns,
}

impl Step {
    /// A request about the root, and its answer: what is behind its header, or an errno.
    pub fn of(message: Vec<u8>, answer: Result<&[u8], i32>) -> Self {
        let reply = match answer {
            Ok(body) => build::reply(0, body),
            Err(errno) => build::reply_error(0, errno),
        };
        Self { reply: Some(reply), ..Self::unanswered(message) }
    }

    /// One that nobody answers.
    pub fn unanswered(message: Vec<u8>) -> Self {
        let (of, names, learns) = (Of::Root, Names::None, Learns::Nothing);
        Self { message, reply: None, of, names, learns }
    }

    /// The same about another node.
    pub fn on(self, of: Of) -> Self {
        Self { of, ..self }
    }

    /// It names a handle.
    pub fn naming(self, names: Names) -> Self {
        Self { names, ..self }
    }

    /// Something is learnt of its answer.
    pub fn giving(self, learns: Learns) -> Self {
        Self { learns, ..self }
    }
}

/// What the kernel knows by now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    file: u64,
    handle: u64,
    made: u64,
    opened: u64,
}

impl Known {
    /// The number of a node.
    pub fn node(&self, of: Of) -> u64 {
        match of {
            Of::Root => ROOT_ID,
            Of::File => self.file,
            Of::Made => self.made,
        }
    }

    /// The handle that is named, and where.
    pub fn handle(&self, names: Names) -> Option<(usize, u64)> {
        match names {
            Names::None => None,
            Names::Handle(at) => Some((at, self.handle)),
            Names::Opened(at) => Some((at, self.opened)),
        }
    }

    /// Takes what is to be known of an answer.
    pub fn learn(&mut self, learns: Learns, first: u64, second: u64) {
        match learns {
            Learns::Nothing => {}
            Learns::File => self.file = first,
            Learns::FileHandle => self.handle = first,
            Learns::Opened => self.opened = first,
            Learns::Made => (self.made, self.opened) = (first, second),
        }
    }
}

/// The first number in a reply, and the one behind an entry.
pub fn numbers(reply: &[u8]) -> (u64, u64) {
    let number = |at| get_u64(reply, at).unwrap_or(0);
    (number(BODY), number(BODY + size_of::<EntryOut>()))
}
