//! What takes more than one message: parked requests and belay's own errands, each taken forward step by step.
//!
//! | module | answers |
//! | --- | --- |
//! | [`tasks`] | who goes on next, and with what |
//! | [`asked`] | on whose behalf belay asks a daemon something |
//! | [`answers`] | requests that are answered without the daemon |
//! | [`poison`] | requests that daemons die of |
//! | [`restore`] | bringing back nodes, handles, names and locks in a successor |
//! | [`reconcile`] | asking a successor whether a request already happened |
//! | [`hide`] | files that are open and unlinked, or renamed over |
//! | [`listing`] | directory streams across generations |
//! | [`checkpoint`] | boundaries at which all that the daemon holds is on its image |
//! | [`store`] | having the daemon store a file |
//! | [`rollforward`] | issuing again what completed since the last checkpoint |

mod answers;
mod asked;
pub(crate) mod checkpoint;
mod hide;
pub(crate) mod injection;
mod listing;
mod poison;
mod reconcile;
pub(crate) mod restore;
pub(crate) mod rollforward;
mod store;
pub(crate) mod task;
mod tasks;
