//! What the session has for the shim to do.

use belay_oplog::InPlace;

/// Something for the shim to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Give this request to the daemon, as the result of its read.
    Deliver(Vec<u8>),
    /// The same, of a WRITE whose data are in the op-log and come behind it. Until its reply they
    /// stay there.
    DeliverWith(Vec<u8>, InPlace),
    /// Write this to the device (a reply or a notification), then call
    /// [`crate::Session::on_delivered`].
    Answer(Vec<u8>),
    /// All that the daemon holds is on its image, and nothing is under way: end the epoch, then
    /// call [`crate::Session::sealed`].
    Seal,
    /// Nothing is under way, and this daemon writes what it holds only at its end: tell it that the
    /// mount has gone. The supervisor ends the epoch when the daemon has ended as it should, and
    /// starts another one.
    Retire,
}
