//! The structures and flag bits of `include/uapi/linux/fuse.h`, protocol 7.45.
//!
//! Every structure is `repr(C)`, has no implicit padding and is exactly as long as the kernel's; a
//! wrong size is a compile error. A Rust name is the C name without `fuse_`, in camel case; `type`
//! is spelled `type_`. Lengths, offsets and sizes are in bytes, times in seconds with a separate
//! nanosecond part.

/// Declares wire structures: layout, derives and a compile-time check of the size in bytes.
macro_rules! wire {
    ($($(#[$meta:meta])* $name:ident [$size:literal] { $($(#[$fmeta:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
        )]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)* }
        const _: () = assert!(size_of::<$name>() == $size && align_of::<$name>() <= 8);
    )*};
}

mod attr;
mod consts;
mod file;
mod flags;
mod init;
mod lock;
mod name;
mod notifications;

pub use attr::*;
pub use consts::*;
pub use file::*;
pub use flags::{FopenFlags, InitFlags, SetattrValid, notify};
pub use init::*;
pub use lock::*;
pub use name::*;
pub use notifications::*;

wire! {
    /// `struct fuse_in_header`: starts every message from the kernel.
    InHeader [40] {
        /// Length of the whole message, this header included.
        len: u32,
        /// What is asked for; see [`crate::Opcode`].
        opcode: u32,
        /// Names the request until its reply. Even for requests, odd for interrupts;
        /// bit 63 ([`UNIQUE_RESEND`]) marks one that is delivered again.
        unique: u64,
        /// The node it is about; 0 where none is.
        nodeid: u64,
        /// File system user id of the caller.
        uid: u32,
        /// File system group id of the caller.
        gid: u32,
        /// Process id of the caller; 0 where there is none or it is not visible.
        pid: u32,
        /// Length of the extensions at the end of the message, in units of 8 bytes. Since 7.38.
        total_extlen: u16,
        /// Zero.
        padding: u16,
    }

    /// `struct fuse_out_header`: starts every message to the kernel.
    OutHeader [16] {
        /// Length of the whole message, this header included.
        len: u32,
        /// 0, a negated errno, or, with `unique` 0, a code of [`notify`].
        error: i32,
        /// The request that this answers; 0 for a notification.
        unique: u64,
    }

    /// `struct fuse_ext_header`: starts an extension at the end of a request.
    ExtHeader [8] {
        /// Length of the extension, this header included.
        size: u32,
        /// Up to 31: number of security contexts; above: type of the extension.
        type_: u32,
    }
}
