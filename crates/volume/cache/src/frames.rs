//! Pages in the memory, each in a frame ([`crate::pool`]).

use crate::pool::Version;
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{ObjectId, PAGE};
use xxhash_rust::xxh3::xxh3_64;

impl<M: Memory> Shared<M> {
    /// Fills a frame that the caller has taken with a page of an object.
    pub(crate) fn fill(&self, frame: u32, object: ObjectId, page: u64, content: &[u8; PAGE]) {
        let at = self.layout.entry(frame);
        self.memory.store_bytes(self.layout.content(frame), content);
        self.memory.store(at + 1, object.0);
        self.memory.store(at + 2, page);
        self.memory.store(at + 3, xxh3_64(content));
    }

    /// Reads a page from its frame; false if the frame holds something else by now, or what does
    /// not match its checksum.
    pub(crate) fn read_page(
        &self,
        version: Version,
        object: ObjectId,
        page: u64,
        out: &mut [u8; PAGE],
    ) -> bool {
        let at = self.layout.entry(version.place);
        self.memory.load_bytes(self.layout.content(version.place), out);
        let [of, number, checksum] = self.memory.load_fields(at, [1, 2, 3]);
        self.frames().version(version.place) == Some(version)
            && (of, number) == (object.0, page)
            && checksum == xxh3_64(out)
    }
}
