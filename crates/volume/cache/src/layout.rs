//! What is where in the memory of a cache, in words of 8 bytes.

use belay_object::PAGE;

/// How much a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Frames: pages.
    pub frames: u32,
    /// Transactions between two checkpoints.
    pub slots: u32,
}

/// Words of a frame's entry in the table.
pub const ENTRY: usize = 4;
/// Words of a frame.
pub const FRAME: usize = PAGE / 8;
/// Words of a cell, which holds a record of the log, or a part of one. It is small, as the next
/// life of a process looks at each record.
pub const CELL: usize = 64;
/// Cells for each transaction between two checkpoints: more than most of them take.
const CELLS: u32 = 2;
/// Cells besides those: what any one transaction takes.
const MORE_CELLS: u32 = 64;
/// Words before the log.
const HEADER: usize = 64;

/// Up to which transaction the epoch reaches whose checkpoint is being taken.
pub const SEALED: usize = 1;
/// Which epoch that is.
pub const SEALED_EPOCH: usize = 2;
/// Up to which transaction everything is in a checkpoint of the stores.
pub const DURABLE: usize = 3;
/// Which checkpoint that is.
pub const DURABLE_EPOCH: usize = 4;
/// Up to which transaction frames and slots were given back.
pub const TRIMMED: usize = 5;
/// Up to which transaction everything but data is in the intent log, or durable.
pub const LOGGED: usize = 6;
/// Blocks that could be taken of the layer below at the last checkpoint.
pub const BLOCKS: usize = 7;
/// How many pairs are among them.
pub const PAIRS: usize = 8;
/// Blocks of them that are for transactions that take away.
pub const RESERVE: usize = 9;

/// That the memory is a cache's: what it says then is of no other version.
pub const MAGIC: usize = 16;
/// Which mount is served from it.
pub const MOUNT: usize = 17;
/// The first transaction of that mount: the requests of those before it were others'.
pub const MOUNT_FIRST: usize = 18;
/// For which mount files without a name were removed that an earlier one had left.
pub const CLEARED: usize = 19;
/// Lives of publishers so far.
pub const GENERATIONS: usize = 20;

/// Answers that are kept when their transactions leave the log: more than there are requests
/// without an answer.
pub const ANSWERS: usize = 1024;
/// Words of each: number, request, length, checksum, and the answer.
pub const ANSWER: usize = 4 + LONGEST_ANSWER / 8;
/// The longest answer of a request that changes something, in bytes.
pub const LONGEST_ANSWER: usize = 256;

/// The areas of a cache's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What they hold.
    pub capacity: Capacity,
    /// How many cells there are.
    pub cells: u32,
    /// The log: a word for each slot.
    pub slots: usize,
    /// Answers to requests whose transactions have left the log.
    pub answers: usize,
    /// The table of the cells: a word for each.
    pub cell_table: usize,
    /// The table of the frames.
    pub table: usize,
    /// The cells.
    pub cell_area: usize,
    /// The frames.
    pub frames: usize,
    /// Words in all.
    pub words: usize,
}

impl Layout {
    /// Lays out a cache's memory.
    pub const fn new(capacity: Capacity) -> Self {
        let slots = HEADER;
        let answers = slots + capacity.slots as usize;
        let cells = capacity.slots.saturating_mul(CELLS).saturating_add(MORE_CELLS);
        let cell_table = answers + ANSWERS * ANSWER;
        let table = cell_table + cells as usize;
        let cell_area = (table + capacity.frames as usize * ENTRY).next_multiple_of(FRAME);
        let frames = (cell_area + cells as usize * CELL).next_multiple_of(FRAME);
        let words = frames + capacity.frames as usize * FRAME;
        Self { capacity, cells, slots, answers, cell_table, table, cell_area, frames, words }
    }

    /// Where a cell's content is.
    pub fn cell(&self, cell: u32) -> usize {
        self.cell_area + cell as usize * CELL
    }

    /// Where a frame's entry in the table is.
    pub fn entry(&self, frame: u32) -> usize {
        self.table + frame as usize * ENTRY
    }

    /// Where a frame's content is.
    pub fn content(&self, frame: u32) -> usize {
        self.frames + frame as usize * FRAME
    }
}
