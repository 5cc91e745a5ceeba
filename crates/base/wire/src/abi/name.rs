//! Bodies of requests about names, references, extended attributes and directory listings.

use super::EntryOut;

wire! {
    /// `struct fuse_forget_in`.
    ForgetIn [8] {
        /// References to drop.
        nlookup: u64,
    }

    /// `struct fuse_forget_one`: one item of BATCH_FORGET.
    ForgetOne [16] {
        /// Node.
        nodeid: u64,
        /// References to drop.
        nlookup: u64,
    }

    /// `struct fuse_batch_forget_in`; `count` times [`ForgetOne`] follow.
    BatchForgetIn [8] {
        /// Number of items.
        count: u32,
        /// Zero.
        dummy: u32,
    }

    /// `struct fuse_mknod_in`; the name follows.
    MknodIn [16] {
        /// Type and permissions.
        mode: u32,
        /// Device number.
        rdev: u32,
        /// The caller's umask.
        umask: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_mkdir_in`; the name follows.
    MkdirIn [8] {
        /// Permissions.
        mode: u32,
        /// The caller's umask.
        umask: u32,
    }

    /// `struct fuse_rename_in`; old and new name follow.
    RenameIn [8] {
        /// Node of the target directory.
        newdir: u64,
    }

    /// `struct fuse_rename2_in`; old and new name follow.
    Rename2In [16] {
        /// Node of the target directory.
        newdir: u64,
        /// `RENAME_*` flags.
        flags: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_link_in`; the new name follows. The header names the directory.
    LinkIn [8] {
        /// Node to be linked.
        oldnodeid: u64,
    }

    /// `struct fuse_setxattr_in` in its long form, with `SETXATTR_EXT`; name and value follow.
    SetxattrIn [16] {
        /// Length of the value.
        size: u32,
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        flags: u32,
        /// [`SETXATTR_ACL_KILL_SGID`](super::SETXATTR_ACL_KILL_SGID).
        setxattr_flags: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_setxattr_in` in its short form, without `SETXATTR_EXT`; name and value follow.
    SetxattrInShort [8] {
        /// Length of the value.
        size: u32,
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        flags: u32,
    }

    /// `struct fuse_getxattr_in`, GETXATTR (the name follows) and LISTXATTR.
    GetxattrIn [8] {
        /// Room for the reply; 0 asks only how much is needed.
        size: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_getxattr_out`: reply to a `size` of 0.
    GetxattrOut [8] {
        /// Room that is needed.
        size: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_dirent` without its name; the name follows and is padded to 8 bytes.
    Dirent [24] {
        /// Inode number as applications see it.
        ino: u64,
        /// Where the listing goes on after this entry; the daemon's own cookie.
        off: u64,
        /// Length of the name.
        namelen: u32,
        /// `DT_*`.
        type_: u32,
    }

    /// `struct fuse_direntplus` without its name; the name follows and is padded to 8 bytes.
    DirentPlus [152] {
        /// As a LOOKUP would have given it; node id 0 if it is left out.
        entry_out: EntryOut,
        /// The entry.
        dirent: Dirent,
    }
}
