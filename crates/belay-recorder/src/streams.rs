//! Directory streams: which entries an open directory has given out so far.
//!
//! A successor's cookies, and even its order, may differ, so only the names tell where a listing
//! was. The entries of each READDIR reply are appended as they stood there (fuse_dirent records);
//! a handle's chunks form one byte string. Appending is not undone: bytes behind the recorded
//! extent do not count, and chunks behind its end, left over from an append that never took
//! effect, are used by the next one.

use crate::handles::Handle;
use crate::memory::{Memory, high, low, pair};
use crate::store::Store;

const CHUNK_WORDS: usize = 130;
const CHUNK_DATA: usize = (CHUNK_WORDS - 1) * 8;
const CHUNK_BYTES: usize = CHUNK_WORDS * 8;

impl<M: Memory> Store<M> {
    /// Bytes recorded for the stream.
    pub fn stream_len(&self, handle: Handle) -> usize {
        high(self.word(self.extent_word(handle))) as usize
    }

    /// Where the last batch starts, in bytes.
    pub fn stream_batch(&self, handle: Handle) -> usize {
        low(self.word(self.extent_word(handle))) as usize
    }

    /// Appends a batch of entries, a multiple of 8 bytes. Each call is a change (or several) of
    /// its own. Gives `false`, and leaves the stream as it was, if the store is full.
    pub fn stream_append(&self, handle: Handle, bytes: &[u8]) -> bool {
        let start = self.stream_len(handle);
        let ends = self.stream_word(handle);
        let mut chunk = if start == 0 { 0 } else { low(self.word(ends)) };
        let mut at = start;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % CHUNK_DATA;
            if within == 0 {
                let Some(next) = self.stream_next(handle, chunk) else { return false };
                chunk = next;
            }
            // `within` is a multiple of 8: entries are padded to words, and so are chunks.
            let (now, later) = rest.split_at(rest.len().min(CHUNK_DATA - within));
            self.memory.store_bytes(self.block(chunk) + 1 + within / 8, now);
            at += now.len();
            rest = later;
        }
        let (Ok(end), Ok(start)) = (u32::try_from(at), u32::try_from(start)) else { return false };
        self.begin();
        self.set(self.extent_word(handle), pair(end, start));
        if chunk != 0 {
            self.set_low(ends, chunk);
        }
        self.commit();
        true
    }

    /// The chunk behind `chunk`, or the first one if that is 0; a new one where there is none.
    fn stream_next(&self, handle: Handle, chunk: u32) -> Option<u32> {
        let ends = self.stream_word(handle);
        let next =
            if chunk == 0 { high(self.word(ends)) } else { low(self.word(self.block(chunk))) };
        if next != 0 {
            return Some(next);
        }
        self.begin();
        let new = self.alloc(CHUNK_BYTES);
        if let Some(new) = new {
            self.set(self.block(new), 0);
            if chunk == 0 {
                self.set_high(ends, new);
            } else {
                self.set(self.block(chunk), u64::from(new));
            }
        }
        self.commit();
        new
    }

    fn stream_chunks(&self, handle: Handle) -> Vec<u32> {
        let most = self.layout.capacity.heap_words / CHUNK_WORDS;
        let mut chunks = Vec::new();
        let mut chunk = high(self.word(self.stream_word(handle)));
        while chunk != 0 && chunks.len() < most {
            chunks.push(chunk);
            chunk = low(self.word(self.block(chunk)));
        }
        chunks
    }

    /// The recorded bytes from `from` on.
    pub fn stream_bytes(&self, handle: Handle, from: usize) -> Vec<u8> {
        let chunks = self.stream_chunks(handle);
        let len = self.stream_len(handle).min(chunks.len() * CHUNK_DATA);
        let mut out = Vec::with_capacity(len.saturating_sub(from));
        for (i, chunk) in chunks.into_iter().enumerate() {
            let start = i * CHUNK_DATA;
            let end = len.min(start + CHUNK_DATA);
            if end <= from || end <= start {
                continue;
            }
            let mut bytes = vec![0; end - start];
            self.memory.load_bytes(self.block(chunk) + 1, &mut bytes);
            out.extend_from_slice(bytes.get(from.saturating_sub(start)..).unwrap_or(&[]));
        }
        out
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
