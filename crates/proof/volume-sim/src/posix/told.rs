//! What is told of files, in the same words of both.

use crate::posix::acts::When;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// What an operation gives.
pub type Told = Result<Vec<u8>, Errno>;

/// What is told of each path.
pub type Tree = BTreeMap<String, String>;

/// What is told of each path but the data of files, and these.
pub type Apart = BTreeMap<String, (String, Option<Vec<u8>>)>;

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

/// The number of a device, as the kernel writes it down.
pub fn device((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// When a file was written, and when it was changed: seconds and nanoseconds.
pub type Times = [(i64, u32); 2];

/// What each path leads to, and its times.
pub type Moments = BTreeMap<String, (u64, Times)>;

/// Of which files the times have changed: the first of the paths of each, and which of its times.
pub fn changed(before: &Moments, after: &Moments) -> BTreeMap<String, [bool; 2]> {
    let times: BTreeMap<u64, Times> = before.values().copied().collect();
    let mut seen = BTreeSet::new();
    let mut changed = BTreeMap::new();
    for (path, (number, now)) in after {
        if !seen.insert(number) {
            continue;
        }
        if let Some(old) = times.get(number)
            && old != now
        {
            changed.insert(path.clone(), [old[0] != now[0], old[1] != now[1]]);
        }
    }
    changed
}

/// What is told of times that were set.
pub fn tell_times(accessed: (When, (i64, u32)), modified: (When, (i64, u32))) -> Vec<u8> {
    let set = |(when, is)| matches!(when, When::At(..)).then_some(is);
    format!("{:?} {:?}", set(accessed), set(modified)).into_bytes()
}
