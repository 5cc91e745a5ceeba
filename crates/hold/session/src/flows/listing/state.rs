//! What a successor is asked for a listing.

use belay_recorder::Handle;

/// READDIR, or READDIRPLUS, of the whole directory in a successor.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) handle: Handle,
    /// READDIRPLUS.
    pub(crate) plus: bool,
}
