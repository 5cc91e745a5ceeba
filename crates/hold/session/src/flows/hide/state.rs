//! How far hiding a file is.

/// How far hiding is, for a request that needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hide {
    /// Not begun.
    #[default]
    None,
    /// The file has its hidden name, the request is done with that.
    Renamed,
    /// The file has its hidden name, the request can go on.
    Kept,
    /// LINK is refused, or does not keep the file's node: rename the target away instead.
    NoLink,
    /// The target was renamed away, though its name may still be there.
    Away,
    /// The request has failed with this errno (negative), and the file is to have its name back.
    Back(i32),
    /// The same, and its hidden name is to go.
    Drop(i32),
    /// The same, and all is as before: it can be answered.
    Undone(i32),
    /// It cannot be hidden: the request goes on and the file's handles will not outlive a crash.
    GaveUp,
}

impl Hide {
    /// The hidden name is gone again, which was the last that had to be undone.
    pub(crate) fn dropped(&mut self) {
        if let Self::Drop(error) = *self {
            *self = Self::Undone(error);
        }
    }

    /// Whether what was done is being undone.
    pub(crate) fn is_undone(self) -> bool {
        matches!(self, Self::Back(_) | Self::Drop(_) | Self::Undone(_))
    }
}
