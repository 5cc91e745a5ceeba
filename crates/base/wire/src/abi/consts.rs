//! Single constants and one-bit flags of `include/uapi/linux/fuse.h`.

/// Major version of the protocol.
pub const KERNEL_VERSION: u32 = 7;
/// Minor version that this crate describes.
pub const KERNEL_MINOR_VERSION: u32 = 45;
/// Node id of the root directory, `FUSE_ROOT_ID`.
pub const ROOT_ID: u64 = 1;
/// Bit of `InHeader::unique` on a request that the kernel delivers again after a RESEND
/// notification, `FUSE_UNIQUE_RESEND`.
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// User and group id of a caller that an id-mapped mount cannot express, `FUSE_INVALID_UIDGID`.
pub const INVALID_UIDGID: u32 = u32::MAX;
/// Flag of RENAME2: fail if the new name exists. That of renameat2(2).
pub const RENAME_NOREPLACE: u32 = 1 << 0;
/// Flag of RENAME2: exchange both names. That of renameat2(2).
pub const RENAME_EXCHANGE: u32 = 1 << 1;
/// Flag of RENAME2: leave a whiteout in the old place. That of renameat2(2).
pub const RENAME_WHITEOUT: u32 = 1 << 2;
/// Smallest buffer, in bytes, with which the device may be read, `FUSE_MIN_READ_BUFFER`.
pub const MIN_READ_BUFFER: usize = 8192;
/// Longest name, in bytes, that any kernel accepts in a directory listing (`FUSE_NAME_MAX` of
/// `fs/fuse/fuse_i.h`: 1024 in older kernels, `PATH_MAX - 1` in newer ones).
pub const NAME_MAX: usize = 4095;

/// Bit of `GetattrIn::getattr_flags`: `fh` is valid.
pub const GETATTR_FH: u32 = 1 << 0;
/// Bit of `LkIn::lk_flags`: the lock is a BSD one.
pub const LK_FLOCK: u32 = 1 << 0;
/// Bit of `ReleaseIn::release_flags`: flush before releasing.
pub const RELEASE_FLUSH: u32 = 1 << 0;
/// Bit of `ReleaseIn::release_flags`: drop the BSD locks of `lock_owner`.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// Bit of `PollIn::flags`: send a POLL notification once ready.
pub const POLL_SCHEDULE_NOTIFY: u32 = 1 << 0;
/// Bit of `WriteIn::write_flags`: written back from the page cache; caller and handle are guesses.
pub const WRITE_CACHE: u32 = 1 << 0;
/// Bit of `WriteIn::write_flags`: `lock_owner` is valid.
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
/// Bit of `WriteIn::write_flags`: clear the set-id bits.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Bit of `ReadIn::read_flags`: `lock_owner` is valid.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// Bit of `FsyncIn::fsync_flags`: data only.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// Bit of `OpenIn::open_flags` and `CreateIn::open_flags`: clear the set-id bits of an executable.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// Bit of `SetxattrIn::setxattr_flags`: clear set-group-id as `system.posix_acl_access` is set.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// Bit of `NotifyInvalEntryOut::flags`: let the entry expire instead of dropping it.
pub const EXPIRE_ONLY: u32 = 1 << 0;
/// Bit of `Attr::flags`: root of a submount.
pub const ATTR_SUBMOUNT: u32 = 1 << 0;
/// Bit of `Attr::flags`: direct access for this file.
pub const ATTR_DAX: u32 = 1 << 1;
/// Bit of `IoctlIn::flags`: a 32-bit caller on a 64-bit kernel.
pub const IOCTL_COMPAT: u32 = 1 << 0;
/// Bit of `IoctlIn::flags`: any command, the daemon may ask for a retry.
pub const IOCTL_UNRESTRICTED: u32 = 1 << 1;
/// Bit of `IoctlOut::flags`: retry with the io vectors given.
pub const IOCTL_RETRY: u32 = 1 << 2;
/// Bit of `IoctlIn::flags`: 32-bit layout.
pub const IOCTL_32BIT: u32 = 1 << 3;
/// Bit of `IoctlIn::flags`: on a directory.
pub const IOCTL_DIR: u32 = 1 << 4;
/// Bit of `IoctlIn::flags`: an x32 caller.
pub const IOCTL_COMPAT_X32: u32 = 1 << 5;
