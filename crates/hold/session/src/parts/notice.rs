//! What the host is to hear of the session, without a message of its own.

/// Notices, each raised once and seen by who asks.
#[derive(Debug, Default)]
pub(crate) struct Notice {
    full: bool,
    told: bool,
}

impl Notice {
    /// The record had no room for something: a further crash cannot be held exactly. That stays so.
    pub(crate) fn overflow(&mut self) {
        self.full = true;
    }

    /// The same, if `lacked`.
    pub(crate) fn overflow_if(&mut self, lacked: bool) {
        self.full |= lacked;
    }

    /// Whether something had no room.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.full
    }

    /// Something was noted that the supervisor is to say.
    pub(crate) fn tell(&mut self) {
        self.told = true;
    }

    /// Whether something was noted since this was asked last.
    pub(crate) fn take_told(&mut self) -> bool {
        std::mem::take(&mut self.told)
    }
}
