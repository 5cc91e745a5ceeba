//! What carries questions to the process with the stores, and its answers back.

use crate::client::{Connection, Lost};
use crate::message::{StoreAnswer, StoreAsk};

/// A way to the process with the stores, and to its next life.
pub trait Transport {
    /// Whether somebody has been there, as far as is known.
    fn is_open(&self) -> bool;

    /// Waits until somebody is there.
    ///
    /// # Errors
    /// [`Lost`] if that is given up.
    fn open(&mut self) -> Result<(), Lost>;

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`Lost`] if nobody is there, or who was asked dies.
    fn ask(&mut self, ask: &StoreAsk) -> Result<StoreAnswer, Lost>;

    /// Whether nobody is to be waited for any more who is not there.
    fn gives_up(&self) -> bool;

    /// Something else is asked from here on than what lives may have died of.
    fn begin(&self) {}

    /// So many times an answer did not come because who was asked has died: others who ask are not
    /// to lose theirs each time as well.
    fn stand_back(&self, _deaths: u32) {}
}

impl Transport for Connection<StoreAsk, StoreAnswer> {
    fn is_open(&self) -> bool {
        Self::is_open(self)
    }

    fn open(&mut self) -> Result<(), Lost> {
        Self::open(self)
    }

    fn ask(&mut self, ask: &StoreAsk) -> Result<StoreAnswer, Lost> {
        Self::ask(self, ask)
    }

    fn gives_up(&self) -> bool {
        Self::gives_up(self)
    }

    fn begin(&self) {
        Self::begin(self);
    }

    fn stand_back(&self, deaths: u32) {
        Self::stand_back(self, deaths);
    }
}
