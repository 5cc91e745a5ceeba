//! The steps of a checkpoint.

/// How far the checkpoint is that is being taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// None is being taken.
    #[default]
    Changing,
    /// All but the root is written.
    Written,
    /// The root is.
    Sealed,
}
