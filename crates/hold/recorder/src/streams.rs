//! Directory streams: which entries an open directory has given out so far.
//!
//! A successor's cookies, and even its order, may differ, so only the names tell where a listing
//! was. The entries of each READDIR reply are appended as they stood there (fuse_dirent records);
//! a handle's chunks form one byte string. Appending is not undone: bytes behind the recorded
//! extent do not count, and chunks behind its end, left over from an append that never took
//! effect, are used by the next one. What replaces something is written there as well, before it
//! takes its place. Whoever finds no room gives back what is there.

use crate::handles::Handle;
use crate::store::Store;
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

const CHUNK_WORDS: usize = 130;
const CHUNK_DATA: usize = (CHUNK_WORDS - 1) * 8;
const CHUNK_BYTES: usize = CHUNK_WORDS * 8;

/// A position in a stream's record. It means something until the stream is cut or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPosition {
    /// Bytes before it.
    pub at: usize,
    /// The chunk that holds the last of these; 0 at the start.
    chunk: u32,
}

impl<M: Memory> Store<M> {
    /// Bytes recorded for the stream.
    pub fn stream_len(&self, handle: Handle) -> usize {
        high(self.word(self.extent_word(handle))) as usize
    }

    /// Where the last batch starts, in bytes.
    pub fn stream_batch(&self, handle: Handle) -> usize {
        low(self.word(self.extent_word(handle))) as usize
    }

    /// The end of what is recorded.
    pub fn stream_end(&self, handle: Handle) -> StreamPosition {
        let at = self.stream_len(handle);
        let chunk = if at == 0 { 0 } else { low(self.word(self.stream_word(handle))) };
        StreamPosition { at, chunk }
    }

    /// The position behind the first `at` bytes, or the end. Walks all chunks before it.
    pub fn stream_position(&self, handle: Handle, at: usize) -> StreamPosition {
        let at = at.min(self.stream_len(handle)).min(self.most_chunks() * CHUNK_DATA);
        let mut position = StreamPosition { at: 0, chunk: 0 };
        while position.at < at {
            let Some(chunk) = self.stream_link(handle, position.chunk) else { break };
            position = StreamPosition { at: at.min(position.at + CHUNK_DATA), chunk };
        }
        position
    }

    /// Appends a batch of entries, a multiple of 8 bytes. Each call is a change (or several) of
    /// its own. Gives `false`, and leaves the stream as it was, if the store is full.
    pub fn stream_append(&self, handle: Handle, bytes: &[u8]) -> bool {
        let start = self.stream_end(handle);
        let end = self.stream_write(handle, start, bytes);
        let end = end.and_then(|end| Some((end, u32::try_from(end.at).ok()?)));
        let (Some((end, to)), Ok(from)) = (end, u32::try_from(start.at)) else {
            self.stream_trim(handle);
            return false;
        };
        self.begin();
        self.set(self.extent_word(handle), pair(to, from));
        if end.chunk != 0 {
            self.set_low(self.stream_word(handle), end.chunk);
        }
        self.commit();
        true
    }

    /// Puts `bytes`, a multiple of 8, in the place of all that is recorded behind `from`. It
    /// happens at once or not at all: it is written behind the end, where nothing counts, and takes
    /// the old one's place then. Gives `false`, and leaves the stream as it was, if the store is
    /// full.
    pub fn stream_replace(&self, handle: Handle, from: StreamPosition, bytes: &[u8]) -> bool {
        let last = self.stream_end(handle);
        if from.at >= last.at {
            return self.stream_append(handle, bytes);
        }
        let within = from.at % CHUNK_DATA;
        // The chunks to go, and the one before them.
        let before = self.stream_position(handle, from.at - within).chunk;
        let (Some(first), Ok(start)) = (self.stream_link(handle, before), u32::try_from(from.at))
        else {
            return false;
        };
        let mut kept = vec![0; within];
        self.memory.load_bytes(self.block(first) + 1, &mut kept);
        kept.extend_from_slice(bytes);
        if kept.is_empty() {
            self.stream_truncate(handle, from.at);
            return true;
        }
        let behind = StreamPosition { at: from.at - within, chunk: last.chunk };
        let end = self.stream_write(handle, behind, &kept);
        let end = end.and_then(|end| Some((end, u32::try_from(end.at).ok()?)));
        let (Some((end, to)), Some(new)) = (end, self.stream_link(handle, last.chunk)) else {
            self.stream_trim(handle);
            return false;
        };
        let ends = self.stream_word(handle);
        self.begin();
        if before == 0 {
            self.set_high(ends, new);
        } else {
            self.set(self.block(before), u64::from(new));
        }
        self.set_low(ends, end.chunk);
        self.set(self.extent_word(handle), pair(to, start));
        self.free_chain(first, last.chunk, CHUNK_BYTES);
        self.commit();
        true
    }

    /// Writes `bytes` behind `at`, where nothing counts. Gives where they end, or `None` if the
    /// store is full.
    fn stream_write(
        &self,
        handle: Handle,
        at: StreamPosition,
        bytes: &[u8],
    ) -> Option<StreamPosition> {
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at.at % CHUNK_DATA;
            if within == 0 {
                at.chunk = self.stream_next(handle, at.chunk)?;
            }
            // `within` is a multiple of 8: entries are padded to words, and so are chunks.
            let (now, later) = rest.split_at(rest.len().min(CHUNK_DATA - within));
            self.memory.store_bytes(self.block(at.chunk) + 1 + within / 8, now);
            at.at += now.len();
            rest = later;
        }
        Some(at)
    }

    /// The chunk behind `chunk`, or the first one if that is 0.
    fn stream_link(&self, handle: Handle, chunk: u32) -> Option<u32> {
        let next = if chunk == 0 {
            high(self.word(self.stream_word(handle)))
        } else {
            low(self.word(self.block(chunk)))
        };
        (next != 0).then_some(next)
    }

    /// As many chunks as there can be.
    fn most_chunks(&self) -> usize {
        self.layout.capacity.heap_words / CHUNK_WORDS
    }

    /// The chunk behind `chunk`, or the first one if that is 0; a new one where there is none.
    fn stream_next(&self, handle: Handle, chunk: u32) -> Option<u32> {
        if let Some(next) = self.stream_link(handle, chunk) {
            return Some(next);
        }
        self.begin();
        let new = self.alloc(CHUNK_BYTES);
        if let Some(new) = new {
            self.set(self.block(new), 0);
            if chunk == 0 {
                self.set_high(self.stream_word(handle), new);
            } else {
                self.set(self.block(chunk), u64::from(new));
            }
        }
        self.commit();
        new
    }

    /// Gives back the chunks behind the end, where nothing counts: there was no room for all, and
    /// others may do with less. A change of its own.
    fn stream_trim(&self, handle: Handle) {
        let end = self.stream_end(handle).chunk;
        let Some(first) = self.stream_link(handle, end) else { return };
        let mut last = first;
        for _ in 0..self.most_chunks() {
            let Some(next) = self.stream_link(handle, last) else { break };
            last = next;
        }
        self.begin();
        if end == 0 {
            self.set(self.stream_word(handle), 0);
        } else {
            self.set(self.block(end), 0);
        }
        self.free_chain(first, last, CHUNK_BYTES);
        self.commit();
    }

    fn stream_chunks(&self, handle: Handle) -> Vec<u32> {
        let mut chunks: Vec<u32> = Vec::new();
        while let Some(next) = self.stream_link(handle, chunks.last().copied().unwrap_or(0))
            && chunks.len() < self.most_chunks()
        {
            chunks.push(next);
        }
        chunks
    }

    /// The recorded bytes from `from` on.
    pub fn stream_bytes(&self, handle: Handle, from: usize) -> Vec<u8> {
        self.stream_read(handle, self.stream_position(handle, from), usize::MAX).0
    }

    /// At most `len` bytes from a position on, and the position behind them. Looks at no other
    /// chunk.
    pub fn stream_read(
        &self,
        handle: Handle,
        from: StreamPosition,
        len: usize,
    ) -> (Vec<u8>, StreamPosition) {
        let mut at = from;
        let most = self.most_chunks() * CHUNK_DATA;
        let end = self.stream_len(handle).min(from.at.saturating_add(len)).min(most);
        let mut out = Vec::with_capacity(end.saturating_sub(from.at));
        while at.at < end {
            let within = at.at % CHUNK_DATA;
            if within == 0 {
                let Some(next) = self.stream_link(handle, at.chunk) else { break };
                at.chunk = next;
            }
            let mut bytes = vec![0; (end - at.at).min(CHUNK_DATA - within)];
            self.memory.load_bytes(self.block(at.chunk) + 1 + within / 8, &mut bytes);
            out.extend_from_slice(&bytes);
            at.at += bytes.len();
        }
        (out, at)
    }

    /// Forgets what lies behind byte `len`, which must be a multiple of 8. Chunks that become
    /// empty are given back. A change of its own.
    pub fn stream_truncate(&self, handle: Handle, len: usize) {
        let ends = self.stream_word(handle);
        // With nothing recorded there may still be chunks of an append that never took effect.
        let unused = len == 0 && high(self.word(ends)) != 0;
        if len >= self.stream_len(handle) && !unused {
            return;
        }
        let chunks = self.stream_chunks(handle);
        let (kept, cut) = chunks.split_at(len.div_ceil(CHUNK_DATA).min(chunks.len()));
        self.begin();
        self.set(self.extent_word(handle), pair(len as u32, len as u32));
        match kept.last() {
            Some(last) => {
                self.set(self.block(*last), 0);
                self.set_low(ends, *last);
            }
            None => self.set(ends, 0),
        }
        if let (Some(first), Some(last)) = (cut.first(), cut.last()) {
            self.free_chain(*first, *last, CHUNK_BYTES);
        }
        self.commit();
    }
}
