//! In whose name something is asked.

use belay_recorder::Node;
use belay_wire::InHeader;
use belay_wire::request::HEADER;
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

/// Those who may ask, the likeliest first.
pub(crate) type Callers = SmallVec<[Caller; 4]>;

/// In whose name a question is asked, and again if the daemon refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// As it is: it says who asked then, or is asked by nobody in particular.
    Given,
    /// Whose request waits for it, and nobody else: that one gets the answer.
    RequesterOnly,
    /// Root, as it only opens a way for an instant; then as [`Self::Opener`].
    RootFirst,
    /// Whose request waits for it, or root; then who has removed the name of this file.
    Remover(Node),
    /// Who opened the file, or whose request waits for it; then root, and the owner of the mount.
    Opener,
}

impl Caller {
    /// Puts into a request that this one asks.
    pub(crate) fn sign(self, message: &mut [u8]) {
        if let Some(place) = message.get_mut(..HEADER)
            && let Ok(mut header) = InHeader::read_from_bytes(place)
        {
            header.uid = self.uid;
            header.gid = self.gid;
            header.pid = self.pid;
            place.copy_from_slice(header.as_bytes());
        }
    }
}
