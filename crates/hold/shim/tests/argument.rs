//! The types of `argument` in Miri, with the tests that they have in the library. The library
//! itself cannot be run there: its functions have the names of libc's, which Miri has its own in
//! the place of.
#![cfg(miri)]
#![allow(dead_code, reason = "the library uses what the tests do not")]

#[path = "../src/argument.rs"]
mod argument;
