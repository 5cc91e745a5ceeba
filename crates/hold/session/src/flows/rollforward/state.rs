//! How far the roll-forward is, and what it asks.

use belay_oplog::{InPlace, Namespace, Replay};
use belay_wire::EntryOut;
use std::collections::BTreeMap;

/// A request of the op-log that is replayed.
pub(crate) type Issue = belay_oplog::Issue<InPlace>;

/// What an injected request of the roll-forward is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarded {
    /// LOOKUP of a node.
    Find(u64),
    /// LOOKUP of the record's name with this number, see `restore::met`.
    Meet(usize),
    /// OPEN of a node.
    Open(u64),
    /// GETATTR of a node whose mode forbids that.
    Mode(u64),
    /// SETATTR that lets it through.
    Widen(u64, u32),
    /// SETATTR that puts the mode back.
    Narrow,
    /// The request itself, or, of a WRITE, the run with this number.
    Issue(usize),
    /// FLUSH of a node's handle, so that what was written by it is stored.
    Store(u64),
    /// RELEASE of a handle, and of which node, if that may be stored by it.
    Close(Option<u64>),
}

/// How far opening a file is whose mode forbids it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its mode is to be looked at.
    Ask,
    /// It has this mode, which is to be widened.
    Has(u32),
    /// It had this mode.
    Had(u32),
}

/// What a daemon told of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(super) id: u64,
    pub(super) ino: u64,
    /// How often: its lookups.
    pub(super) count: u64,
}

impl Told {
    pub(super) fn new(entry: &EntryOut) -> Self {
        Self { id: entry.nodeid, ino: entry.attr.ino, count: 1 }
    }
}

/// A handle that the roll-forward has opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(super) fh: u64,
    pub(super) directory: bool,
}

/// How far the roll-forward is.
#[derive(Debug)]
pub(crate) struct RollForward {
    pub(super) replay: Replay,
    pub(super) names: Namespace,
    /// What the daemon told here of nodes.
    pub(super) ids: BTreeMap<u64, Told>,
    /// Lookups of nodes (the daemon's ids) by names that only had to be asked for.
    pub(super) met: Vec<u64>,
    /// Handles by which nodes are written to.
    pub(super) handles: BTreeMap<u64, Opened>,
    /// Nodes that cannot be opened as they are.
    pub(super) access: BTreeMap<u64, Access>,
    /// A handle that a replayed request has opened: node's id, handle, flags.
    pub(super) opened: Option<(u64, u64, u32)>,
    pub(super) current: Option<Issue>,
    /// The run of the current WRITE that comes next.
    pub(super) run: usize,
    /// Bytes of data in the last WRITE that was issued.
    pub(super) sent: usize,
    pub(super) over: bool,
    /// Files are stored one by one (policy `buffer`).
    pub(super) files: bool,
    /// The file that the current record made is not there.
    pub(super) missing: bool,
    /// Which of the current record's names were looked up for it: a bit each.
    pub(super) looked: u8,
    /// A handle whose file was flushed, and is to be closed: node, its id, handle.
    pub(super) flushed: Option<(u64, u64, Opened)>,
    /// Files that were stored on the way.
    pub(super) stored: Vec<u64>,
    /// In front of which records there can be a checkpoint; none if there is to be none any more.
    pub(super) cuts: Vec<bool>,
    /// In front of which a daemon that writes at its end only is ended for one, or behind that;
    /// `None`: it is not.
    pub(super) aim: Option<usize>,
    /// The host wants one.
    pub(super) wanted: bool,
}
