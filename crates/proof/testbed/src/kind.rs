//! Which daemons there are, and what is known of each.

use std::fmt;
use std::str::FromStr;

use crate::zoo::{Daemon, Work, Zoo};

/// A kind of file system that a bed can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// libfuse's low-level example `passthrough_ll`.
    PassthroughLl,
    /// libfuse's high-level example `passthrough`, which mirrors `/`.
    PassthroughHl,
    /// bindfs (libfuse 2, high level).
    Bindfs,
    /// sshfs over a real sshd on the loopback address.
    Sshfs,
    /// ntfs-3g on an image of its own.
    Ntfs3g,
    /// avfsd (libfuse 2, high level), which mirrors `/`.
    Avfs,
    /// mergerfs with one branch (embedded fork of libfuse).
    Mergerfs,
    /// fuse2fs (libfuse 2, high level) on an ext2 image of its own. It keeps changes in its memory.
    Fuse2fsExt2,
    /// fuse2fs on an ext3 image, whose journal it does not write.
    Fuse2fsExt3,
    /// fuse2fs on an ext4 image, whose journal it does not write.
    Fuse2fsExt4,
    /// fusefat (libfuse 2, high level) on a VFAT image of its own (FAT16). It keeps the allocation table in its memory.
    Fusefat,
    /// A plain directory, no daemon: the oracle.
    Dir,
    /// A daemon that the table describes.
    Zoo(Zoo),
}

impl Kind {
    /// Every kind that has code of its own, the plain directory last.
    pub const ALL: [Self; 12] = [
        Self::PassthroughLl,
        Self::PassthroughHl,
        Self::Bindfs,
        Self::Sshfs,
        Self::Ntfs3g,
        Self::Avfs,
        Self::Mergerfs,
        Self::Fuse2fsExt2,
        Self::Fuse2fsExt3,
        Self::Fuse2fsExt4,
        Self::Fusefat,
        Self::Dir,
    ];

    /// The six daemons that belay's first promise names.
    pub const SIX: [Self; 6] = [
        Self::PassthroughLl,
        Self::PassthroughHl,
        Self::Bindfs,
        Self::Sshfs,
        Self::Ntfs3g,
        Self::Avfs,
    ];

    /// Every kind that has code of its own, the plain directory last.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    /// Every daemon of the table.
    pub fn zoo() -> impl Iterator<Item = Self> {
        Zoo::all().map(Self::Zoo)
    }

    /// What the table says of it, if it is from there.
    #[must_use]
    pub fn entry(self) -> Option<&'static Daemon> {
        match self {
            Self::Zoo(zoo) => Some(zoo.daemon()),
            _ => None,
        }
    }

    /// A number for each kind, for seeds.
    #[must_use]
    pub fn number(self) -> u64 {
        Self::all().chain(Self::zoo()).position(|kind| kind == self).unwrap_or_default() as u64
    }

    /// What may be done on its mount.
    #[must_use]
    pub fn work(self) -> Work {
        match self.entry() {
            Some(daemon) => daemon.work,
            // fusefat writes well only what nobody else has open, in one go and to a new file; otherwise it damages its
            // image (truncation of open files, directories that are renamed), refuses (appending) or crashes (times of
            // the root).
            None if self == Self::Fusefat => Work::WholeFiles,
            None => Work::All,
        }
    }

    /// The name used on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PassthroughLl => "passthrough-ll",
            Self::PassthroughHl => "passthrough-hl",
            Self::Bindfs => "bindfs",
            Self::Sshfs => "sshfs",
            Self::Ntfs3g => "ntfs-3g",
            Self::Avfs => "avfs",
            Self::Mergerfs => "mergerfs",
            Self::Fuse2fsExt2 => "fuse2fs-ext2",
            Self::Fuse2fsExt3 => "fuse2fs-ext3",
            Self::Fuse2fsExt4 => "fuse2fs-ext4",
            Self::Fusefat => "fusefat",
            Self::Dir => "dir",
            Self::Zoo(zoo) => &zoo.daemon().name,
        }
    }

    /// Reads a [name](Self::name).
    ///
    /// # Errors
    /// When there is no such kind; the message lists those that there are.
    pub fn parse(name: &str) -> anyhow::Result<Self> {
        name.parse()
    }

    /// Whether all hard links of a file are one inode for the kernel. Daemons that know files by path give each link
    /// a node, hence a page cache, of its own: so do ntfs-3g and fuse2fs, though their inode numbers are the image's.
    #[must_use]
    pub fn shares_hard_links(self) -> bool {
        matches!(self, Self::PassthroughLl | Self::Dir)
            || self.entry().is_some_and(|daemon| daemon.shares_hard_links)
    }

    /// Whether equal inode numbers mean one file, and different ones different files.
    #[must_use]
    pub fn numbers_tell_links(self) -> bool {
        self.shares_hard_links() || self == Self::Ntfs3g || self.is_fuse2fs()
    }

    /// Whether the daemon gives inode numbers of its own. Otherwise libfuse numbers the nodes, anew whenever the kernel
    /// has forgotten one.
    #[must_use]
    pub fn has_own_numbers(self) -> bool {
        match self.entry() {
            Some(daemon) => daemon.own_numbers,
            None => !matches!(self, Self::Sshfs | Self::Avfs | Self::Fusefat),
        }
    }

    /// Whether the inode number of a directory is made of its path, so that a renamed one has another, at once or when
    /// the kernel asks again (mergerfs, by its default `inodecalc=hybrid-hash`).
    #[must_use]
    pub fn numbers_directories_by_path(self) -> bool {
        self == Self::Mergerfs
    }

    /// Whether the daemon mirrors `/`, so that tests work on `MNT/<backing path>`.
    #[must_use]
    pub fn mirrors_root(self) -> bool {
        matches!(self, Self::PassthroughHl | Self::Avfs)
            || self.entry().is_some_and(|daemon| daemon.mirrors_root)
    }

    /// Whether what the mount shows can also be read in the backing directory. Otherwise there is an image behind it.
    #[must_use]
    pub fn backed_by_directory(self) -> bool {
        match self.entry() {
            Some(daemon) => daemon.mirrors_backing,
            None => !self.has_image(),
        }
    }

    /// Whether belay-testbed itself makes an image for it.
    #[must_use]
    pub fn has_image(self) -> bool {
        self.is_fuse2fs() || matches!(self, Self::Ntfs3g | Self::Fusefat)
    }

    /// Whether space may be allocated behind a file's end (`FALLOC_FL_KEEP_SIZE`). The inodes of ext2 and ext3 cannot
    /// tell such space from data: fuse2fs allocates it, and e2fsck complains.
    #[must_use]
    pub fn allocates_beyond_ends(self) -> bool {
        !matches!(self, Self::Fuse2fsExt2 | Self::Fuse2fsExt3) && self.knows_special_modes()
    }

    /// Whether a time that was set is shown as it was set.
    #[must_use]
    pub fn keeps_times(self) -> bool {
        self.entry().is_none_or(|daemon| !daemon.loose_times)
    }

    /// Whether a directory has the mode that it was made with once the daemon has stored it.
    #[must_use]
    pub fn keeps_directory_modes(self) -> bool {
        self.entry().is_none_or(|daemon| !daemon.loose_directory_modes)
    }

    /// Names at the top of its mount that are the daemon's own books.
    #[must_use]
    pub fn own_names(self) -> &'static [String] {
        self.entry().map_or(&[], |daemon| &daemon.own_names)
    }

    /// Whether it knows the modes of renames and allocations, as far as the back end does.
    #[must_use]
    pub fn knows_special_modes(self) -> bool {
        self.entry().is_none_or(|daemon| !daemon.plain_modes_only)
    }

    /// Whether files that were unlinked while they were open may stay under libfuse's hidden names until the unmount.
    /// libfuse 2 serves a daemon that wants no paths without locking them: a last close during the renaming to the hidden
    /// name then finds nothing to remove. fuse2fs writes everything to the disk at a rename, so that there is time for it.
    #[must_use]
    pub fn leaves_hidden_files(self) -> bool {
        self.is_fuse2fs()
    }

    /// Whether this is fuse2fs, on whatever image.
    #[must_use]
    pub fn is_fuse2fs(self) -> bool {
        matches!(self, Self::Fuse2fsExt2 | Self::Fuse2fsExt3 | Self::Fuse2fsExt4)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let plain = |s: &str| s.replace(['-', '_'], "").to_ascii_lowercase();
        Self::all().chain(Self::zoo()).find(|kind| plain(kind.name()) == plain(name)).ok_or_else(
            || {
                let names: Vec<_> = Self::all().chain(Self::zoo()).map(Self::name).collect();
                anyhow::anyhow!("unknown bed {name:?}: there are {}", names.join(", "))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for kind in Kind::all().chain(Kind::zoo()) {
            assert_eq!(Kind::parse(kind.name()).unwrap(), kind);
        }
        assert_eq!(Kind::parse("passthrough_ll").unwrap(), Kind::PassthroughLl);
        assert_eq!(Kind::parse("ntfs3g").unwrap(), Kind::Ntfs3g);
        assert_eq!(Kind::parse("fuse2fs_ext4").unwrap(), Kind::Fuse2fsExt4);
        assert!(Kind::parse("zfs").unwrap_err().to_string().contains("sshfs"));
    }

    #[test]
    fn all_are_listed_once() {
        let mut names: Vec<_> = Kind::all().map(Kind::name).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
        assert_eq!(Kind::ALL.last(), Some(&Kind::Dir));
    }

    #[test]
    fn reports_name_them_as_the_command_line_does() {
        for kind in Kind::all().chain(Kind::zoo()) {
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.name()));
        }
    }
}
