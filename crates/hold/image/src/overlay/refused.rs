//! What the overlay refuses, and why.

/// The memory holds something that nobody has written who may: it is not to be trusted, and what
/// was not on the image yet may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the overlay of the image was written over by something else")]
pub struct Corrupt;

/// Why a read or a write was not done. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<E> {
    /// The side has no room. There will be some once the sealed epoch is committed and this one
    /// sealed.
    Full,
    /// No file reaches that far.
    TooFar,
    /// See [`Corrupt`].
    Corrupt,
    /// The image could not be read.
    Image(E),
}

impl<E> From<Corrupt> for Refused<E> {
    fn from(_: Corrupt) -> Self {
        Self::Corrupt
    }
}
