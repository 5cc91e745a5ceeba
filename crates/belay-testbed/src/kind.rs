//! Which daemons there are, and what is known of each.

use std::fmt;
use std::str::FromStr;

/// A kind of file system that a bed can be made of.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// libfuse's low-level example `passthrough_ll`.
    PassthroughLl,
    /// libfuse's high-level example `passthrough`, which mirrors `/`.
    PassthroughHl,
    /// bindfs (libfuse 2, high level).
    Bindfs,
    /// sshfs over a real sshd on the loopback address.
    Sshfs,
    #[serde(rename = "ntfs-3g")]
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
}

impl Kind {
    /// Every kind, the plain directory last.
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

    /// Every kind, the plain directory last.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
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
        !matches!(self, Self::Sshfs | Self::Avfs | Self::Fusefat)
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
    }

    /// Whether what the mount shows can also be read in the backing directory. Otherwise there is an image behind it.
    #[must_use]
    pub fn backed_by_directory(self) -> bool {
        !(self.is_fuse2fs() || matches!(self, Self::Ntfs3g | Self::Fusefat))
    }

    /// Whether space may be allocated behind a file's end (`FALLOC_FL_KEEP_SIZE`). The inodes of ext2 and ext3 cannot
    /// tell such space from data: fuse2fs allocates it, and e2fsck complains.
    #[must_use]
    pub fn allocates_beyond_ends(self) -> bool {
        !matches!(self, Self::Fuse2fsExt2 | Self::Fuse2fsExt3)
    }

    /// Whether files can be worked on in the usual ways. fusefat writes well only what nobody else has open, in one go
    /// and to a new file; otherwise it spoils its image (truncation of open files, directories that are renamed), refuses
    /// (appending) or crashes (times of the root).
    #[must_use]
    pub fn works_on_files(self) -> bool {
        self != Self::Fusefat
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

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let plain = |s: &str| s.replace(['-', '_'], "").to_ascii_lowercase();
        Self::all().find(|kind| plain(kind.name()) == plain(name)).ok_or_else(|| {
            let names: Vec<_> = Self::all().map(Self::name).collect();
            anyhow::anyhow!("unknown bed {name:?}: there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for kind in Kind::all() {
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
        for kind in Kind::all() {
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.name()));
        }
    }
}
