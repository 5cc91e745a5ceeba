//! How the processes of a volume ask each other.
//!
//! | module | answers |
//! | --- | --- |
//! | [`message`] | what can be asked of a store and of a cache |
//! | `bytes` | how bytes lie in a message |
//! | [`frame`] | how a message lies in a stream |
//! | [`client`] | a connection that is made anew when the other end has died |
//! | [`remote`] | the layers below, in another process |
//! | [`transport`] | what carries these questions: a connection, or a simulation of one |
//! | [`server`] | who has connected, and whose turn it is |
//!
//! A process that asks has one question under way at a time. If the other end dies, it asks the
//! next life of it. That is right for questions that change nothing. A checkpoint is begun anew
//! then, as a whole.

#![forbid(unsafe_code)]

mod bytes;
pub mod client;
pub mod frame;
pub mod message;
pub mod remote;
pub mod server;
pub mod transport;

pub use client::{Connection, Lost};
pub use message::{CacheAnswer, CacheAsk, StoreAnswer, StoreAsk};
pub use remote::{Error, RemoteStore};
pub use server::{Server, Service};
pub use transport::Transport;
