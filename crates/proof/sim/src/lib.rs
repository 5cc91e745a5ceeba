//! A simulated kernel, a simulated daemon that dies at any step, and an oracle. What stands between
//! the two is the host that ships ([`belay_host`]), with its session.
//!
//! One thread runs at a time, up to where it sleeps; so what two threads do to each other within a
//! call of the host's is not seen here.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "test code")]

mod acts;
mod audit;
mod client;
pub mod daemon;
pub mod disk;
pub mod generate;
mod kernel;
mod life;
mod listing;
pub mod memory;
pub mod ops;
mod plain;
pub mod scenario;
mod surroundings;
pub mod world;

pub use surroundings::Sabotage;
