//! Handles: open files and directories. The kernel's handle is a key of belay's, like a node's.

use crate::layout::HANDLE_WORDS;
use crate::nodes::Node;
use crate::store::{HANDLE_FREE, HANDLE_TOP, HANDLES_LIVE, Store};
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

/// A handle's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub(crate) u32);

const ID: usize = 0; // the daemon's handle, or the next free slot
const BORN: usize = 1; // generation of the id | reuse count
const NODE: usize = 2; // node | open flags
const CRED: usize = 3; // uid | gid
const STATE: usize = 4; // flags | FOPEN_ flags
const POLL: usize = 5; // the kernel's poll handle, if a wake-up is awaited
const STREAM: usize = 6; // first chunk | last chunk of the directory stream
const EXTENT: usize = 7; // bytes in the stream | where the last batch starts
const SERIAL: usize = 8; // next virtual cookie
const WIDENED: usize = 9; // mode of the file, if it is to be put back | WIDENED_BIT
const WIDENED_BIT: u64 = 1 << 32;

bitflags::bitflags! {
    /// Flags of a handle.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct HandleFlags: u32 {
        /// The slot is in use.
        const LIVE = 1 << 0;
        /// A directory.
        const DIRECTORY = 1 << 1;
        /// Bound to the id of the generation in its record.
        const BOUND = 1 << 2;
        /// No successor can reopen it (an unnamed temporary file).
        const LOST = 1 << 3;
        /// The directory stream is being continued from a listing that belay made.
        const MERGED = 1 << 4;
    }
}

/// The flags in the word of a record that has them.
#[inline]
fn flags(state: u64) -> HandleFlags {
    HandleFlags::from_bits_retain(high(state))
}

/// An open file description, as far as it is needed to open it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenDescription {
    /// The node that is open.
    pub node: Node,
    /// The flags of open(2) that the daemon was given.
    pub flags: u32,
    /// Whose open it was.
    pub uid: u32,
    /// Whose open it was.
    pub gid: u32,
    /// A directory.
    pub directory: bool,
    /// FOPEN_ flags of the reply, which the kernel goes by.
    pub fopen: u32,
}

impl Handle {
    /// Its number among the handles: small, and not that of another open one.
    #[inline]
    pub fn number(self) -> u32 {
        self.0
    }
}

impl<M: Memory> Store<M> {
    #[inline]
    pub(crate) fn handle(&self, handle: Handle) -> usize {
        self.layout.handles + handle.0 as usize * HANDLE_WORDS
    }

    /// The handle that the kernel calls `key`.
    #[inline]
    pub fn handle_by_key(&self, key: u64) -> Option<Handle> {
        let handle = Handle(low(key));
        let [born, state] = self.memory.load_fields(self.handle(handle), [BORN, STATE]);
        (self.is_handle(handle)
            && flags(state).contains(HandleFlags::LIVE)
            && low(born) == high(key))
        .then_some(handle)
    }

    #[inline]
    fn is_handle(&self, handle: Handle) -> bool {
        let most = self.layout.capacity.handles;
        handle.0 != 0 && self.below_top(handle.0, &self.tops.handles, HANDLE_TOP, most)
    }

    /// What `generation` calls the handle that the kernel calls `key`: [`Store::handle_by_key`] and
    /// [`Store::handle_bound`] in one look at the record.
    ///
    /// # Errors
    /// The handle, if the generation has not opened it; `None` if there is none of that key.
    #[inline]
    pub fn handle_id_by_key(&self, key: u64, generation: u32) -> Result<u64, Option<Handle>> {
        let handle = Handle(low(key));
        let [id, born, state] = self.memory.load_fields(self.handle(handle), [ID, BORN, STATE]);
        if !self.is_handle(handle)
            || !flags(state).contains(HandleFlags::LIVE)
            || low(born) != high(key)
        {
            return Err(None);
        }
        let bound = flags(state).contains(HandleFlags::BOUND) && high(born) == generation;
        if bound { Ok(id) } else { Err(Some(handle)) }
    }

    /// The kernel's name of a handle; never 0.
    pub fn handle_key(&self, handle: Handle) -> u64 {
        pair(low(self.word(self.handle(handle) + BORN)), handle.0)
    }

    /// The id of `handle` in `generation`, if it is open there.
    #[inline]
    pub fn handle_bound(&self, handle: Handle, generation: u32) -> Option<u64> {
        let at = self.handle(handle);
        (flags(self.word(at + STATE)).contains(HandleFlags::BOUND)
            && high(self.word(at + BORN)) == generation)
            .then(|| self.word(at + ID))
    }

    /// Makes a handle. `None` if the store is full.
    pub fn handle_new(&self, open: OpenDescription) -> Option<Handle> {
        let free = self.header(HANDLE_FREE);
        let slot = if free != 0 {
            let slot = u32::try_from(free).ok()?;
            self.put(HANDLE_FREE, self.word(self.handle(Handle(slot)) + ID));
            slot
        } else {
            let top = self.header(HANDLE_TOP);
            if top as usize >= self.layout.capacity.handles {
                return None;
            }
            self.put(HANDLE_TOP, top + 1);
            u32::try_from(top).ok()?
        };
        let handle = Handle(slot);
        let at = self.handle(handle);
        let kind = if open.directory { HandleFlags::DIRECTORY } else { HandleFlags::empty() };
        self.init(at + NODE, pair(open.node.0, open.flags));
        self.init(at + CRED, pair(open.uid, open.gid));
        for field in [POLL, STREAM, EXTENT, SERIAL, WIDENED] {
            self.init(at + field, 0);
        }
        self.set(at + STATE, pair((HandleFlags::LIVE | kind).bits(), open.fopen));
        self.set_opens(open.node, self.opens(open.node).saturating_add(1));
        self.adjust(HANDLES_LIVE, 1);
        Some(handle)
    }

    /// Binds `handle` to `generation`'s `id`.
    pub fn handle_bind(&self, handle: Handle, generation: u32, id: u64) {
        let at = self.handle(handle);
        self.set(at + ID, id);
        self.set_high(at + BORN, generation);
        self.handle_flag(handle, HandleFlags::BOUND, true);
    }

    /// Frees a handle; its directory stream and locks must be gone.
    pub fn handle_free(&self, handle: Handle) {
        let at = self.handle(handle);
        let node = self.open_description(handle).node;
        self.freed.set(true);
        self.set_opens(node, self.opens(node).saturating_sub(1));
        self.set(at + STATE, 0);
        self.set_low(at + BORN, low(self.word(at + BORN)).wrapping_add(1));
        self.set(at + ID, self.header(HANDLE_FREE));
        self.put(HANDLE_FREE, u64::from(handle.0));
        self.adjust(HANDLES_LIVE, -1);
    }

    /// How many handles there are.
    pub fn handles_live(&self) -> u64 {
        self.header(HANDLES_LIVE)
    }

    /// What is needed to open it again.
    pub fn open_description(&self, handle: Handle) -> OpenDescription {
        let at = self.handle(handle);
        let (node, cred) = (self.word(at + NODE), self.word(at + CRED));
        let state = self.word(at + STATE);
        OpenDescription {
            node: Node(high(node)),
            flags: low(node),
            uid: high(cred),
            gid: low(cred),
            directory: flags(state).contains(HandleFlags::DIRECTORY),
            fopen: low(state),
        }
    }

    /// Flags, see [`HandleFlags`].
    pub fn handle_flags(&self, handle: Handle) -> HandleFlags {
        flags(self.word(self.handle(handle) + STATE))
    }

    /// Sets or clears flags.
    pub fn handle_flag(&self, handle: Handle, bits: HandleFlags, on: bool) {
        let flags = self.handle_flags(handle).bits();
        let flags = if on { flags | bits.bits() } else { flags & !bits.bits() };
        self.set_high(self.handle(handle) + STATE, flags);
    }

    /// The kernel's poll handle that awaits a wake-up.
    pub fn poll_key(&self, handle: Handle) -> u64 {
        self.word(self.handle(handle) + POLL)
    }

    /// Remembers a poll handle; 0 for none.
    pub fn set_poll_key(&self, handle: Handle, key: u64) {
        self.set(self.handle(handle) + POLL, key);
    }

    /// The mode that the open file must get back, if it was widened to open it again.
    pub fn widened(&self, handle: Handle) -> Option<u32> {
        let word = self.word(self.handle(handle) + WIDENED);
        (word & WIDENED_BIT != 0).then(|| low(word))
    }

    /// Remembers a mode that is to be put back.
    pub fn set_widened(&self, handle: Handle, mode: Option<u32>) {
        let word = mode.map_or(0, |mode| WIDENED_BIT | u64::from(mode));
        self.set(self.handle(handle) + WIDENED, word);
    }

    /// All handles in use, for recovery. Looks at every slot ever used.
    pub fn live_handles(&self) -> impl Iterator<Item = Handle> + '_ {
        let top = u32::try_from(self.header(HANDLE_TOP)).unwrap_or(0);
        let top = top.min(self.layout.capacity.handles as u32);
        (1..top).map(Handle).filter(|handle| self.handle_flags(*handle).contains(HandleFlags::LIVE))
    }

    pub(crate) fn stream_word(&self, handle: Handle) -> usize {
        self.handle(handle) + STREAM
    }

    pub(crate) fn extent_word(&self, handle: Handle) -> usize {
        self.handle(handle) + EXTENT
    }

    /// A cookie for a directory entry that belay places itself. Far above those of daemons,
    /// and positive as an off_t.
    pub fn next_cookie(&self, handle: Handle) -> u64 {
        let at = self.handle(handle) + SERIAL;
        let serial = self.word(at).wrapping_add(1);
        self.set(at, serial);
        VIRTUAL_COOKIE | serial
    }
}

/// The bit that belay's own directory cookies carry.
pub const VIRTUAL_COOKIE: u64 = 1 << 62;
