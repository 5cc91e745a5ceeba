//! What is told of files, in the same words of both.

use std::collections::BTreeMap;

/// What is told of each path.
pub type Tree = BTreeMap<String, String>;

/// Tells contents apart in messages.
pub fn sum(data: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| {
        sum.rotate_left(5) ^ u64::from(*byte).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    data.iter().fold(data.len() as u64, step)
}
