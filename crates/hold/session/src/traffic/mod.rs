//! The way of a message: from the kernel to the daemon and back, translated and put on record.
//!
//! | module | answers |
//! | --- | --- |
//! | [`requests`] | a request from the kernel: translate and pass on, or park |
//! | [`replies`] | a reply from the daemon: record, translate, pass on |
//! | [`direct`] | replies that need no session |
//! | [`apply`] | what a reply changes in the session |
//! | [`entries`] | which node a directory entry is |
//! | [`numbers`] | inode numbers, in each life those that applications know |
//! | [`forget`] | lookup counts |
//! | [`notify`] | notifications from the daemon |
//! | [`faults`] | replies that break the protocol |
//! | [`dialects`] | daemons of an old minor version |
//! | [`copies`] | requests where the kernel cannot send them again |
//! | [`order`] | requests that must not overtake each other on their way to the op-log |
//! | [`readonly`] | what nobody carries out: showing the last checkpoint, where nothing can be done again |
//! | [`kept`] | what a daemon that nobody knows has answered and keeps to itself |

pub(crate) mod apply;
mod copies;
mod dialects;
pub(crate) mod direct;
pub(crate) mod entries;
pub(crate) mod faults;
mod forget;
pub(crate) mod kept;
mod notify;
mod numbers;
mod order;
mod readonly;
mod replies;
pub(crate) mod requests;
