//! What came into the mailbox of fusermount (`fusermount`).

/// Whether the device came there.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// The device came from fusermount, and is held.
    adopted: bool,
    /// What came first is no device.
    odd: bool,
}

impl Mail {
    /// Whether the device came there, and is held.
    pub fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// The device that came there is held from now on.
    pub fn adopt(&mut self) {
        self.adopted = true;
    }

    /// Whether what came first is no device. It stays the first.
    pub fn is_odd(&self) -> bool {
        self.odd
    }

    /// What came first is no device.
    pub fn note_odd(&mut self) {
        self.odd = true;
    }

    /// The mailbox is another one now, which is empty.
    pub fn is_exchanged(&mut self) {
        self.odd = false;
    }
}
