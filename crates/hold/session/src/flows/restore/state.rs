//! What was looked up for a request.

/// What was looked up for a request before it goes to the daemon.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    /// Which of its names: a bit each.
    pub(crate) names: u8,
    /// The name that it is to take away is not there.
    pub(crate) absent: bool,
    /// Key of a node that is looked up before its request goes to the daemon once more.
    pub(crate) first: Option<u64>,
}
