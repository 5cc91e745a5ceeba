//! The bodies of INIT, whose length grew over the years.

use zerocopy::{FromBytes, IntoBytes};

use super::InitFlags;

wire! {
    /// `struct fuse_init_in` in its long form, since 7.36.
    InitIn [64] {
        /// Major version of the kernel.
        major: u32,
        /// Minor version of the kernel.
        minor: u32,
        /// Largest read-ahead.
        max_readahead: u32,
        /// Low half of the [`InitFlags`] that the kernel offers.
        flags: u32,
        /// High half; counts with `INIT_EXT`.
        flags2: u32,
        /// Zero.
        unused: [u32; 11],
    }

    /// `struct fuse_init_in` before 7.36.
    InitInShort [16] {
        /// Major version of the kernel.
        major: u32,
        /// Minor version of the kernel.
        minor: u32,
        /// Largest read-ahead.
        max_readahead: u32,
        /// The [`InitFlags`] that the kernel offers.
        flags: u32,
    }

    /// `struct fuse_init_out` in its long form, since 7.23.
    InitOut [64] {
        /// Major version of the daemon.
        major: u32,
        /// Minor version of the daemon.
        minor: u32,
        /// Largest read-ahead.
        max_readahead: u32,
        /// Low half of the [`InitFlags`] that the daemon takes.
        flags: u32,
        /// Most background requests at a time.
        max_background: u16,
        /// Background requests from which the mount counts as congested.
        congestion_threshold: u16,
        /// Largest write.
        max_write: u32,
        /// Granularity of times, in nanoseconds.
        time_gran: u32,
        /// Most pages of one request, with `MAX_PAGES`.
        max_pages: u16,
        /// Logarithm of the mapping alignment, with `MAP_ALIGNMENT`.
        map_alignment: u16,
        /// High half; counts with `INIT_EXT`.
        flags2: u32,
        /// How deep backing file systems may be stacked, with `PASSTHROUGH`.
        max_stack_depth: u32,
        /// Seconds until the kernel gives up on a request, with `REQUEST_TIMEOUT`.
        request_timeout: u16,
        /// Zero.
        unused: [u16; 11],
    }
}

/// Length in bytes of the reply to INIT before 7.5.
pub const COMPAT_INIT_OUT_SIZE: usize = 8;
/// Length in bytes of the reply to INIT from 7.5 to 7.22.
pub const COMPAT_22_INIT_OUT_SIZE: usize = 24;

/// Joins the halves of a feature word.
fn join(low: u32, high: u32) -> InitFlags {
    let low = InitFlags::from_bits_retain(low.into());
    let high = InitFlags::from_bits_retain(u64::from(high) << 32);
    if low.contains(InitFlags::INIT_EXT) { low | high } else { low }
}

/// Splits a feature word into its halves.
fn split(flags: InitFlags) -> (u32, u32) {
    let flags = flags.bits();
    let low = u32::try_from(flags & u64::from(u32::MAX)).unwrap_or(0);
    let high = u32::try_from(flags >> 32).unwrap_or(0);
    (low, high)
}

/// Reads a structure of which only a beginning of at least `least` bytes may be there; the rest is
/// zero.
fn from_prefix<T: FromBytes + IntoBytes + Default>(body: &[u8], least: usize) -> Option<T> {
    if body.len() < least {
        return None;
    }
    let mut value = T::default();
    for (to, from) in value.as_mut_bytes().iter_mut().zip(body) {
        *to = *from;
    }
    Some(value)
}

impl InitIn {
    /// Reads either form from the body of an INIT request; what the short form lacks is zero.
    ///
    /// `None` below 16 bytes.
    #[must_use]
    pub fn from_prefix(body: &[u8]) -> Option<Self> {
        from_prefix(body, size_of::<InitInShort>())
    }

    /// Both halves of the [`InitFlags`]; the high half only with `INIT_EXT`.
    #[must_use]
    pub fn flags64(&self) -> InitFlags {
        join(self.flags, self.flags2)
    }

    /// Sets both halves of the [`InitFlags`]. The caller sets `INIT_EXT` if the high half is to
    /// count.
    pub fn set_flags64(&mut self, flags: InitFlags) {
        (self.flags, self.flags2) = split(flags);
    }
}

impl InitOut {
    /// Reads any form from the body of a reply to INIT; what a shorter form lacks is zero.
    ///
    /// `None` below 8 bytes.
    #[must_use]
    pub fn from_prefix(body: &[u8]) -> Option<Self> {
        from_prefix(body, COMPAT_INIT_OUT_SIZE)
    }

    /// Both halves of the [`InitFlags`]; the high half only with `INIT_EXT`.
    #[must_use]
    pub fn flags64(&self) -> InitFlags {
        join(self.flags, self.flags2)
    }

    /// Sets both halves of the [`InitFlags`]. The caller sets `INIT_EXT` if the high half is to
    /// count.
    pub fn set_flags64(&mut self, flags: InitFlags) {
        (self.flags, self.flags2) = split(flags);
    }
}
