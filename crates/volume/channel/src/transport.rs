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

    /// So many lives have died while they were asked for something that is to be asked again: lets
    /// others ask first. False if the other end, which was there, has died meanwhile.
    fn stand_back(&mut self, _deaths: u32) -> bool {
        true
    }
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

    fn stand_back(&mut self, deaths: u32) -> bool {
        Self::stand_back(self, deaths)
    }
}
