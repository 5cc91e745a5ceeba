//! Safe block pointers: where a block is, what its checksum is, and which of its twins is the
//! current one (Loris II-A, IV-A).

use belay_disk::Block;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A checksum over a block: XXH3, 64 bits, seeded by the store, so that a block of another store
/// does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(pub u64);

impl Checksum {
    /// That of these bytes.
    pub fn of(seed: u64, bytes: &[u8]) -> Self {
        Self(xxh3_64_with_seed(bytes, seed))
    }
}

/// A safe block pointer, as it is on the disk: 16 bytes. Zeros point to nothing, which reads as
/// zeros.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Pointer {
    word: U64,
    checksum: U64,
}

impl Pointer {
    /// The size in bytes.
    pub const SIZE: usize = size_of::<Self>();

    const BLOCK: u64 = (1 << 48) - 1;
    const LOST: u64 = 1 << 59;
    const TWINNED: u64 = 1 << 60;
    const RIGHT: u64 = 1 << 61;
    const MODIFIED: u64 = 1 << 62;
    const KNOWN: u64 = Self::BLOCK | Self::LOST | Self::TWINNED | Self::RIGHT | Self::MODIFIED;

    /// To a block that has one place, and was written since the last checkpoint.
    pub fn single(block: u64, checksum: Checksum) -> Self {
        Self { word: (block & Self::BLOCK | Self::MODIFIED).into(), checksum: checksum.0.into() }
    }

    /// To a block with two places, the left one of which is `left`, that was written to neither.
    pub fn twins(left: u64) -> Self {
        Self { word: (left & Self::BLOCK | Self::TWINNED).into(), checksum: U64::ZERO }
    }

    /// What was here is lost, as `block` led to it and was damaged: it is no hole.
    pub fn lost(block: u64) -> Self {
        Self { word: (block & Self::BLOCK | Self::LOST).into(), checksum: U64::ZERO }
    }

    /// Whether what was here is lost. It leads to no block then, and names the one that was
    /// damaged.
    pub fn is_lost(self) -> bool {
        self.word.get() & Self::LOST != 0
    }

    /// Whether it points to nothing.
    pub fn is_null(self) -> bool {
        self.word == U64::ZERO
    }

    /// The block, or the left one of the two.
    pub fn block(self) -> u64 {
        self.word.get() & Self::BLOCK
    }

    /// Whether the block has two places.
    pub fn is_twinned(self) -> bool {
        self.word.get() & Self::TWINNED != 0
    }

    /// Whether the right one of the two was written last.
    pub fn is_right(self) -> bool {
        self.word.get() & Self::RIGHT != 0
    }

    /// Whether the block was written since the last checkpoint. This counts only in a block that
    /// was itself modified since: in another one it is what was true at an earlier checkpoint.
    pub fn is_modified(self) -> bool {
        self.word.get() & Self::MODIFIED != 0
    }

    /// Whether all bits that are set mean something.
    pub fn is_sound(self) -> bool {
        let word = self.word.get();
        let place = self.is_null() || self.block() != 0;
        let others = word & !Self::BLOCK & !Self::LOST;
        place
            && word & !Self::KNOWN == 0
            && (self.is_twinned() || !self.is_right())
            && (!self.is_lost() || others == 0)
    }

    /// Whether it leads to the same block with the same content, which may be in the other one of
    /// its places.
    pub fn is_alike(self, other: Self) -> bool {
        let place = |pointer: Self| pointer.word.get() & !(Self::RIGHT | Self::MODIFIED);
        place(self) == place(other) && self.checksum == other.checksum
    }

    /// The checksum of the block.
    pub fn checksum(self) -> Checksum {
        Checksum(self.checksum.get())
    }

    /// The same with another checksum.
    #[must_use]
    pub fn with_checksum(self, checksum: Checksum) -> Self {
        Self { checksum: checksum.0.into(), ..self }
    }

    /// The same block, which is modified now, for the first time since the last checkpoint: it goes
    /// to its other place.
    #[must_use]
    pub fn turned(self) -> Self {
        Self { word: ((self.word.get() ^ Self::RIGHT) | Self::MODIFIED).into(), ..self }
    }

    /// The same, not modified since the last checkpoint.
    #[must_use]
    pub fn stable(self) -> Self {
        Self { word: (self.word.get() & !Self::MODIFIED).into(), ..self }
    }

    /// Reads the one at `offset` of a block; the null pointer if that is none.
    pub fn read(block: &Block, offset: usize) -> Self {
        let bytes = block.get(offset..offset + Self::SIZE);
        bytes.and_then(|bytes| Self::read_from_bytes(bytes).ok()).unwrap_or_default()
    }

    /// Puts it at `offset` of a block.
    pub fn write(self, block: &mut Block, offset: usize) {
        if let Some(bytes) = block.get_mut(offset..offset + Self::SIZE) {
            bytes.copy_from_slice(self.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_turns_and_comes_to_rest() {
        let new = Pointer::twins(70);
        assert!(new.is_sound() && new.is_twinned() && !new.is_right() && !new.is_modified());
        let turned = new.turned();
        assert!(turned.is_right() && turned.is_modified() && turned.block() == 70);
        let again = turned.stable().turned();
        assert!(!again.is_right() && again.is_modified() && again.is_sound());
    }

    #[test]
    fn what_means_nothing_is_not_sound() {
        assert!(Pointer::default().is_sound());
        assert!(Pointer::lost(7).is_sound() && Pointer::lost(7).is_lost());
        let lost = Pointer::LOST | 5;
        for word in [
            1 << 48,
            1 << 63,
            Pointer::TWINNED,
            Pointer::RIGHT | 5,
            Pointer::MODIFIED,
            Pointer::LOST,
            Pointer::TWINNED | lost,
            Pointer::MODIFIED | lost,
        ] {
            let pointer = Pointer { word: word.into(), checksum: U64::ZERO };
            assert!(!pointer.is_sound(), "{word:#x}");
        }
    }
}
