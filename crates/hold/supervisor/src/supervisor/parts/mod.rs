//! The parts of a supervisor. Each has its own state, and knows neither the supervisor nor what
//! else is done with it.
//!
//! | module | owns |
//! | --- | --- |
//! | [`tokens`], [`events`] | what the event loop waits for |
//! | [`deadlines`] | when something is done without being told |
//! | [`recorder`] | the memory that is shared with daemons |
//! | [`kept`] | what is written down for the next supervisor |
//! | [`daemon`] | which process was started, or holds the lease, and what it is about to die of |
//! | [`standby`] | the process of the next generation, which waits |
//! | [`exits`] | how processes have ended |
//! | [`keeper`] | the keeper, and the link to it |
//! | [`mail`] | what came into the mailbox of fusermount |
//! | [`clients`] | who is at the control socket, and waits for what |
//! | [`words`] | what the daemon says |
//! | [`late`] | connections, and what the dead have left |
//! | [`desk`] | commits and checkpoints |
//! | [`helpers`], [`nudge`] | who works beside the event loop |
//! | [`looks`] | what was seen by looking again and again |
//! | [`unmounts`] | a mount that is being taken off |

pub(super) mod clients;
pub(super) mod daemon;
pub(super) mod deadlines;
pub(super) mod desk;
pub(super) mod events;
pub(super) mod exits;
pub(super) mod helpers;
pub(super) mod keeper;
pub(super) mod kept;
pub(super) mod late;
pub(super) mod looks;
pub(super) mod mail;
pub(super) mod nudge;
pub(super) mod recorder;
pub(super) mod standby;
pub(super) mod tokens;
pub(super) mod unmounts;
pub(super) mod words;
