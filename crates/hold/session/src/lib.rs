//! The session: what the kernel believes of a mount, and how a daemon is made to agree with it.
//!
//! A state machine without descriptors, clock, threads or unsafe code. Messages go in
//! ([`Session::on_request`], [`Session::on_reply`]); what to do comes out, as their result or
//! from [`Session::work`]. Everything that must survive the daemon lies in the recorder's
//! [`belay_recorder::Store`]; what this struct holds besides concerns one generation only.
//!
//! | module | answers |
//! | --- | --- |
//! | [`decision`] | what recovery does with a request that was in flight: the one table |
//! | [`handshake`] | FUSE_INIT: which options a daemon may negotiate, and again |
//! | `requests` | a request from the kernel: translate and pass on, or park |
//! | `replies` | a reply from the daemon: record, translate, pass on |
//! | `copies` | requests where the kernel cannot send them again |
//! | `direct` | replies that need no session |
//! | `effects` | what a reply changes |
//! | `faults` | replies that break the protocol |
//! | `entries` | which node a directory entry is |
//! | `forget` | lookup counts |
//! | `tasks` | parked requests, one step at a time |
//! | `asked` | on whose behalf belay asks a daemon something |
//! | `dialects` | daemons of an old minor version |
//! | `answers` | requests that are answered without the daemon |
//! | `poison` | requests that daemons die of |
//! | `met` | names that this life's daemon has been asked for |
//! | `lost` | what cannot be had again, and who says so |
//! | `kept` | what a daemon that nobody knows has answered and keeps to itself |
//! | `restore` | bringing back nodes, handles and locks in a successor |
//! | `vouch` | directories that have another inode number |
//! | `reconcile` | asking a successor whether a request already happened |
//! | `hide` | files that are open and unlinked |
//! | `rename_over` | files that are open and renamed over |
//! | `listing` | directory streams across generations |
//! | `checkpoint` | boundaries at which all that the daemon holds is on its image |
//! | `logged` | what completed requests leave in the op-log |
//! | `order` | requests that must not overtake each other on their way there |
//! | `rollforward` | issuing it again |
//! | `readonly` | showing the last checkpoint, where that cannot be done |
//! | `numbers` | inode numbers, in each life those that applications know |
//! | `notify` | notifications from the daemon |
#![forbid(unsafe_code)]

mod answers;
mod asked;
mod checkpoint;
mod copies;
mod created;
pub mod decision;
mod dialects;
mod direct;
mod effects;
mod entries;
mod faults;
mod forget;
pub mod handshake;
mod hide;
mod injection;
mod kept;
mod listing;
mod logged;
mod lost;
mod message;
mod met;
mod notify;
mod numbers;
mod order;
mod parts;
mod poison;
mod readonly;
mod reconcile;
mod rename_over;
mod replies;
mod requests;
mod restore;
mod rollforward;
mod session;
mod task;
mod tasks;
mod vouch;
mod work;

pub use direct::{Direct, Expected};
pub use faults::describe_reply;
pub use kept::{LEAVES, STORES};
pub use message::{Message, Outgoing};
pub use parts::life::Phase;
pub use requests::Incoming;
pub use session::{KICK, Session};
pub use work::Work;
