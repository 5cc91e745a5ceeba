//! Why a message was refused.

use thiserror::Error;

/// Why some bytes are not a FUSE message.
///
/// All lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The buffer ends before the fixed header does.
    #[error("message of {have} bytes is shorter than its {need}-byte header")]
    Short {
        /// Bytes that are there.
        have: usize,
        /// Bytes that the header takes.
        need: usize,
    },
    /// The header's `len` is smaller than the header itself, larger than the buffer, or, for a
    /// reply, not exactly the buffer's length.
    #[error("header declares {declared} bytes, buffer holds {have}")]
    Length {
        /// What the header's `len` field says.
        declared: u32,
        /// Bytes that are there.
        have: usize,
    },
}
