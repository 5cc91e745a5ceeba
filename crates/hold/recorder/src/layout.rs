//! Where each part of the recorder lies. All offsets and sizes are in words of 8 bytes.
//!
//! The memory file is sparse: its size is address space, not memory. Each area has a fixed
//! place, so nothing ever moves and a reader needs no pointer that a daemon could have corrupted.

/// How many of each thing a recorder can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Nodes that the kernel may know at one time.
    pub nodes: usize,
    /// Open handles.
    pub handles: usize,
    /// Requests in flight.
    pub slots: usize,
    /// Words for names, locks and directory streams.
    pub heap_words: usize,
    /// Bytes of one request copy, for kernels without RESEND; 0 keeps no copies.
    pub copy_bytes: usize,
    /// Bytes of the log of one request's effects; 0 keeps no logs.
    pub effect_bytes: usize,
    /// Bytes for what is collected between two checkpoints; 0 for none.
    pub epoch_bytes: usize,
}

impl Capacity {
    /// The capacity of a real mount: 16 million nodes, about 70 GiB of address space.
    pub const MOUNT: Self = Self {
        nodes: 1 << 24,
        handles: 1 << 20,
        slots: 1024,
        heap_words: 1 << 29,
        copy_bytes: (1 << 20) + (8 << 10),
        effect_bytes: 64 << 20,
        epoch_bytes: 768 << 20,
    };
    /// A small one for simulations and tests.
    pub const SMALL: Self = Self {
        nodes: 1 << 10,
        handles: 1 << 8,
        slots: 32,
        heap_words: 1 << 16,
        copy_bytes: 0,
        effect_bytes: 0,
        epoch_bytes: 0,
    };
}

/// Words of a node record.
pub const NODE_WORDS: usize = 8;
/// Words of a handle record.
pub const HANDLE_WORDS: usize = 12;
/// Words of an in-flight slot.
pub const SLOT_WORDS: usize = 512;
/// Pairs that the undo area of the smallest recorder holds.
pub const UNDO_PAIRS: usize = 8192;
/// Decisions kept for the crash report.
pub const DECISIONS: usize = 256;
/// Words of a decision record.
pub const DECISION_WORDS: usize = 64;
/// Words for what is known of the effects as a whole.
pub const EFFECTS_WORDS: usize = 2 * PAGE;
/// Words for what a crashing daemon leaves of its own state.
pub const REMAINS_WORDS: usize = 64 * PAGE;
const PAGE: usize = 512;

/// The areas of a recorder of a given capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What the areas hold.
    pub capacity: Capacity,
    /// Undo area: a count, then pairs of (offset, old value).
    pub undo: usize,
    /// Pairs that the undo area holds: more than the largest single change needs, which is to
    /// forget a node with 65,536 names (6 pairs each). Locks, which go at once as well, are so few
    /// that they fit ([`Store::most_locks`](crate::Store::most_locks)).
    pub undo_pairs: usize,
    /// Store header: free lists, tops and counts.
    pub store: usize,
    /// Decision ring.
    pub decisions: usize,
    /// Bucket heads of the name index.
    pub name_index: usize,
    /// Bucket heads of the daemon-id index.
    pub id_index: usize,
    /// Bucket heads of the inode-number index.
    pub ino_index: usize,
    /// In-flight slots.
    pub slots: usize,
    /// Handle records.
    pub handles: usize,
    /// Node records.
    pub nodes: usize,
    /// Heap.
    pub heap: usize,
    /// Request copies.
    pub copies: usize,
    /// Words of one request copy.
    pub copy_words: usize,
    /// What is known of the effects as a whole, see crate `belay-effects`.
    pub effects: usize,
    /// What a crashing daemon leaves of its own state.
    pub remains: usize,
    /// Logs of the requests' effects: one for each slot, and one for what has no slot.
    pub logs: usize,
    /// Words of one log.
    pub log_words: usize,
    /// What is collected between two checkpoints: overlay and op-log, see crates `belay-image` and
    /// `belay-oplog`.
    pub epochs: usize,
    /// Words in all.
    pub words: usize,
}

impl Layout {
    /// Lays out a recorder.
    pub const fn new(capacity: Capacity) -> Self {
        let undo = 5 * PAGE; // the control block comes first
        let scaled = capacity.nodes / 32;
        let undo_pairs = if scaled > UNDO_PAIRS { scaled } else { UNDO_PAIRS };
        let store = undo + page(1 + 2 * undo_pairs);
        let decisions = store + PAGE;
        let name_index = decisions + page(DECISIONS * DECISION_WORDS);
        let heads = page(capacity.nodes);
        let id_index = name_index + heads;
        let ino_index = id_index + heads;
        let slots = ino_index + heads;
        let handles = slots + page(capacity.slots * SLOT_WORDS);
        let nodes = handles + page(capacity.handles * HANDLE_WORDS);
        let heap = nodes + page(capacity.nodes * NODE_WORDS);
        let copies = heap + page(capacity.heap_words);
        let copy_words = page(capacity.copy_bytes.div_ceil(8));
        let effects = copies + capacity.slots * copy_words;
        let remains = effects + EFFECTS_WORDS;
        let logs = remains + REMAINS_WORDS;
        let log_words = page(capacity.effect_bytes.div_ceil(8));
        let epochs = logs + (capacity.slots + 1) * log_words;
        Self {
            capacity,
            undo,
            undo_pairs,
            store,
            decisions,
            name_index,
            id_index,
            ino_index,
            slots,
            handles,
            nodes,
            heap,
            copies,
            copy_words,
            effects,
            remains,
            logs,
            log_words,
            epochs,
            words: epochs + page(capacity.epoch_bytes.div_ceil(8)),
        }
    }

    /// Size of the memory file in bytes.
    pub const fn bytes(&self) -> usize {
        self.words * 8
    }
}

const fn page(words: usize) -> usize {
    words.div_ceil(PAGE) * PAGE
}
