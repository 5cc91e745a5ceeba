//! What takes more than one message: parked requests and belay's own errands, each taken forward
//! step by step.
//!
//! | module | answers |
//! | --- | --- |
//! | [`tasks`] | who goes on next, and with what |
//! | [`flow`] | what tasks are about ([`step`]: and what each needs next) |
//! | [`request`] | what has to be so before a parked request goes to the daemon |
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
pub(crate) mod flow;
pub(crate) mod hide;
pub(crate) mod injection;
mod listing;
mod poison;
pub(crate) mod reconcile;
mod request;
pub(crate) mod restore;
pub(crate) mod rollforward;
pub(crate) mod step;
mod store;
mod tasks;
