//! The session: what the kernel believes of a mount, and how a daemon is made to agree with it.
//!
//! A state machine without descriptors, clock, threads or unsafe code. Messages go in
//! ([`Session::on_request`], [`Session::on_reply`]); what to do comes out, as their result or
//! from [`Session::work`]. Everything that must survive the daemon lies in the recorder's
//! [`belay_recorder::Store`]; what this struct holds besides concerns one generation only.
//!
//! Five parts. What flows have in common, their names and what they wait for, is known to those
//! above them as well:
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`parts`] | state and its promises: slots, questions to the daemon, streams, epochs |
//! | [`session`] | [`Session`], which wires the parts |
//! | [`traffic`] | the way of a message, from the kernel to the daemon and back |
//! | [`logged`] | what completed requests leave in the op-log |
//! | [`flows`] | what takes more than one message: restoring, hiding, checkpoints |
//!
//! and beside them:
//!
//! | module | answers |
//! | --- | --- |
//! | [`decision`] | what recovery does with a request that was in flight: the one table |
//! | [`handshake`] | FUSE_INIT: which options a daemon may negotiate, and again |
//! | [`message`] | messages on their way to the kernel |
//! | [`work`] | what the session has for the shim to do |
#![forbid(unsafe_code)]

pub mod decision;
mod flows;
pub mod handshake;
mod logged;
mod message;
mod parts;
mod session;
mod traffic;
mod work;

pub use message::{Message, Outgoing};
pub use parts::life::Phase;
pub use session::{KICK, Session};
pub use traffic::direct::{Direct, Expected};
pub use traffic::faults::describe_reply;
pub use traffic::kept::{LEAVES, STORES};
pub use traffic::requests::Incoming;
pub use work::Work;
