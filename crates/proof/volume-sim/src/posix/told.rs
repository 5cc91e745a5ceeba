//! What is told of files, in the same words of both.

use rustix::io::Errno;
use std::collections::BTreeMap;

/// What an operation gives.
pub type Told = Result<Vec<u8>, Errno>;

/// What is told of each path.
pub type Tree = BTreeMap<String, String>;

/// Tells contents apart in messages.
pub fn sum(data: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| {
        sum.rotate_left(5) ^ u64::from(*byte).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    data.iter().fold(data.len() as u64, step)
}

/// What is told of extended attributes.
pub fn tell_extended(mut all: Vec<(Vec<u8>, Vec<u8>)>) -> String {
    all.sort();
    let one = |(name, value): &(Vec<u8>, Vec<u8>)| {
        format!(" {}={:x}", String::from_utf8_lossy(name), sum(value))
    };
    all.iter().map(one).collect()
}
