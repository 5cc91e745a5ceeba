//! Directory streams: which entries an open directory has given out so far.
//!
//! A successor's cookies, and even its order, may differ, so only the names tell where a listing
//! was. The entries of each READDIR reply are appended as they stood there (fuse_dirent records);
//! a handle's chunks form one byte string. Appending is not undone: bytes behind the recorded
//! extent do not count.

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

    /// Appends a batch of entries. Each call is a change (or several) of its own. Gives `false`
    /// if the store is full.
    pub fn stream_append(&self, handle: Handle, bytes: &[u8]) -> bool {
        let start = self.stream_len(handle);
        let mut at = start;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % CHUNK_DATA;
            if within == 0 && !self.stream_grow(handle, at) {
                return false;
            }
            // `within` is a multiple of 8: entries are padded to words, and so are chunks.
            let (now, later) = rest.split_at(rest.len().min(CHUNK_DATA - within));
            let last = low(self.word(self.stream_word(handle)));
            self.memory.store_bytes(self.block(last) + 1 + within / 8, now);
            at += now.len();
            rest = later;
        }
        let (Ok(end), Ok(start)) = (u32::try_from(at), u32::try_from(start)) else { return false };
        self.begin();
        self.set(self.extent_word(handle), pair(end, start));
        self.commit();
        true
    }

    fn stream_grow(&self, handle: Handle, at: usize) -> bool {
        // A chunk may be left over from an append that never took effect.
        if self.stream_chunks(handle).len() > at / CHUNK_DATA {
            return true;
        }
        self.begin();
        let Some(chunk) = self.alloc(CHUNK_BYTES) else {
            self.commit();
            return false;
        };
        let ends = self.stream_word(handle);
        let (first, last) = (high(self.word(ends)), low(self.word(ends)));
        self.set(self.block(chunk), 0);
        if first == 0 {
            self.set(ends, pair(chunk, chunk));
        } else {
            self.set(self.block(last), u64::from(chunk));
            self.set(ends, pair(first, chunk));
        }
        self.commit();
        true
    }

    fn stream_chunks(&self, handle: Handle) -> Vec<u32> {
        let mut chunks = Vec::new();
        let mut chunk = high(self.word(self.stream_word(handle)));
        while chunk != 0 && chunks.len() < 1 << 22 {
            chunks.push(chunk);
            chunk = low(self.word(self.block(chunk)));
        }
        chunks
    }

    /// The recorded bytes from `from` on.
    pub fn stream_bytes(&self, handle: Handle, from: usize) -> Vec<u8> {
        let len = self.stream_len(handle);
        let mut out = Vec::with_capacity(len.saturating_sub(from));
        for (i, chunk) in self.stream_chunks(handle).into_iter().enumerate() {
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
    /// empty are given back. A change (or several) of its own.
    pub fn stream_truncate(&self, handle: Handle, len: usize) {
        if len >= self.stream_len(handle) {
            return;
        }
        let keep = len.div_ceil(CHUNK_DATA);
        let chunks = self.stream_chunks(handle);
        self.begin();
        self.set(self.extent_word(handle), pair(len as u32, len as u32));
        let ends = self.stream_word(handle);
        match keep.checked_sub(1).and_then(|last| chunks.get(last)) {
            Some(last) => {
                self.set(self.block(*last), 0);
                self.set_low(ends, *last);
            }
            None => self.set(ends, 0),
        }
        self.commit();
        // Killed here, the rest of the chunks is lost until the mount ends; nothing else is.
        for batch in chunks.get(keep..).unwrap_or(&[]).chunks(256) {
            self.begin();
            for chunk in batch {
                self.free(*chunk, CHUNK_BYTES);
            }
            self.commit();
        }
    }
}
