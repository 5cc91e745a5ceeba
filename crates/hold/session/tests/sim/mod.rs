//! A simulated kernel, a simulated daemon that dies at any step, and an oracle.
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
pub mod world;
