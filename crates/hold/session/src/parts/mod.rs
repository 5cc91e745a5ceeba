//! The parts of the session: each owns its state, promises something by its methods, and knows
//! nothing of the flows that use it. What a part needs of the record it is handed.
//!
//! | part | owns |
//! | --- | --- |
//! | [`life`] | what holds for this life of the daemon: generation, options, dialect, phase |
//! | [`slots`] | requests of the kernel that are in somebody's hands, and their places in the record |
//! | [`scheduler`] | parked tasks: who goes on next, and what is to be handed out |
//! | [`questions`] | what belay has asked the daemon by itself, and what waits for the answers |
//! | [`caller`] | in whose name something is asked |
//! | [`streams`] | where directory streams stand ([`cookies`]), and the rest of those that a dead generation began |
//! | [`restored`] | what is being brought back in this life: nodes, handles, names ([`met`]), numbers |
//! | [`hidden`] | files that are open and have no name but a hidden one |
//! | [`epochs`] | epochs, and how far the checkpoint under way is |
//! | [`logged`] | the op-log, and what is kept for it of requests under way |
//! | [`stores`] | files that the daemon stores one by one, and how far that is |
//! | [`notice`] | what the host is to hear |

pub(crate) mod caller;
pub(crate) mod cookies;
pub(crate) mod epochs;
pub(crate) mod hidden;
pub(crate) mod life;
pub(crate) mod logged;
pub(crate) mod met;
pub(crate) mod notice;
pub(crate) mod questions;
pub(crate) mod restored;
pub(crate) mod scheduler;
pub(crate) mod slots;
pub(crate) mod stores;
pub(crate) mod streams;
