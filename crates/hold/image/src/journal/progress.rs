//! How far a commit or a recovery has come.

/// Bytes that are read or written at once: what a CPU's own cache holds, so that they are fetched
/// from memory once.
pub(super) const PIECE: usize = 256 << 10;

/// What is being done, for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The journal is being written.
    Journal,
    /// A journal that was found is being checked.
    Check,
    /// The image is being written.
    Image,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}
