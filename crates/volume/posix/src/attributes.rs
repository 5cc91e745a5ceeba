//! What is kept of a file beside its data: the attributes of its object.

use belay_object::ObjectId;
use belay_wire::rules::kind_of;
use std::time::SystemTime;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A point in time: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds: less than 10^9.
    pub nanoseconds: u32,
}

impl Time {
    /// This moment.
    pub fn now() -> Self {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
        Self { seconds, nanoseconds: since.subsec_nanos() }
    }
}

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, FIFO or socket, of which the kernel knows what it is.
    Special,
}

/// The bits of a mode that say what kind of file it is.
pub const TYPE: u32 = 0o170_000;
/// A directory.
pub const DIRECTORY: u32 = 0o040_000;
/// A regular file.
pub const FILE: u32 = 0o100_000;
/// A symbolic link.
pub const LINK: u32 = 0o120_000;
/// A FIFO.
pub const FIFO: u32 = 0o010_000;
/// A device of characters.
pub const CHARACTERS: u32 = 0o020_000;
/// A device of blocks.
pub const BLOCKS: u32 = 0o060_000;
/// A socket.
pub const SOCKET: u32 = 0o140_000;

/// The longest file in bytes.
pub const MOST_BYTES: u64 = 1 << 43;

/// What is kept of a file, besides its length, which is its object's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Type and permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// How many names it has; of a directory, 2 and its directories.
    pub links: u32,
    /// Which device it is.
    pub device: u32,
    /// When it was read last.
    pub accessed: Time,
    /// When its data were changed last.
    pub modified: Time,
    /// When anything of it was changed last.
    pub changed: Time,
    /// When it was made.
    pub made: Time,
    /// Of a directory: the one that it is in.
    pub parent: ObjectId,
    /// Of a directory: its names.
    pub entries: u64,
    /// The object with its extended attributes; 0 if it has none.
    pub extended: ObjectId,
    /// How often its number was in use before.
    pub generation: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Packed {
    version: U32,
    mode: U32,
    uid: U32,
    gid: U32,
    links: U32,
    device: U32,
    generation: U32,
    nanoseconds: [U32; 4],
    reserved: U32,
    seconds: [I64; 4],
    parent: U64,
    entries: U64,
    extended: U64,
}

const VERSION: u32 = 1;
const _: () = assert!(size_of::<Packed>() <= belay_object::ATTRIBUTES);

impl Metadata {
    /// What kind of file it is.
    pub fn kind(&self) -> Kind {
        match self.mode & TYPE {
            FILE => Kind::File,
            DIRECTORY => Kind::Directory,
            LINK => Kind::Link,
            _ => Kind::Special,
        }
    }

    /// As it is kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        let times = [self.accessed, self.modified, self.changed, self.made];
        let packed = Packed {
            version: VERSION.into(),
            mode: self.mode.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            links: self.links.into(),
            device: self.device.into(),
            generation: self.generation.into(),
            nanoseconds: times.map(|time| time.nanoseconds.into()),
            reserved: U32::ZERO,
            seconds: times.map(|time| time.seconds.into()),
            parent: self.parent.0.into(),
            entries: self.entries.into(),
            extended: self.extended.0.into(),
        };
        packed.as_bytes().to_vec()
    }

    /// That of a file of so many bytes.
    ///
    /// # Errors
    /// Why no file is like that. Whoever is told of it all the same takes the teller for broken.
    pub fn read(bytes: &[u8], size: u64) -> Result<Self, &'static str> {
        let metadata = Self::from_bytes(bytes).ok_or("its attributes are of another kind")?;
        if metadata.mode & TYPE != 0 && kind_of(metadata.mode).is_none() {
            return Err("it is of no type that there is");
        }
        if size > MOST_BYTES {
            return Err("it has a length that no file can have");
        }
        Ok(metadata)
    }

    /// What was kept, whether a file can be like that or not; `None` if it is of another version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut packed = Packed::new_zeroed();
        if bytes.len() != size_of::<Packed>() {
            return None;
        }
        packed.as_mut_bytes().copy_from_slice(bytes);
        if packed.version.get() != VERSION {
            return None;
        }
        let mut times =
            packed.seconds.iter().zip(&packed.nanoseconds).map(|(seconds, nanoseconds)| Time {
                seconds: seconds.get(),
                nanoseconds: nanoseconds.get() % 1_000_000_000,
            });
        let mut time = || times.next().unwrap_or_default();
        let [accessed, modified, changed, made] = [time(), time(), time(), time()];
        Some(Self {
            mode: packed.mode.get(),
            uid: packed.uid.get(),
            gid: packed.gid.get(),
            links: packed.links.get(),
            device: packed.device.get(),
            accessed,
            modified,
            changed,
            made,
            parent: ObjectId(packed.parent.get()),
            entries: packed.entries.get(),
            extended: ObjectId(packed.extended.get()),
            generation: packed.generation.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again() {
        let time = |seconds| Time { seconds, nanoseconds: 5 };
        let metadata = Metadata {
            mode: FILE | 0o644,
            uid: 1,
            gid: 2,
            links: 3,
            device: 4,
            accessed: time(-1),
            modified: time(2),
            changed: time(3),
            made: time(i64::MAX),
            parent: ObjectId(9),
            entries: 10,
            extended: ObjectId(11),
            generation: 12,
        };
        let bytes = metadata.to_bytes();
        assert_eq!(Metadata::from_bytes(&bytes), Some(metadata));
        assert_eq!(Metadata::from_bytes(&bytes[1..]), None);
        assert_eq!(Metadata::from_bytes(&[0; 1]), None);
        assert_eq!(Metadata::read(&bytes, MOST_BYTES), Ok(metadata));
        assert!(Metadata::read(&bytes, MOST_BYTES + 1).is_err());
        // Objects that are no files have no type.
        for (kind, is_one) in [(0, true), (FIFO, true), (TYPE, false), (0o030_000, false)] {
            let bytes = Metadata { mode: kind | 0o644, ..metadata }.to_bytes();
            assert_eq!(Metadata::read(&bytes, 0).is_ok(), is_one, "{kind:o}");
        }
    }
}
