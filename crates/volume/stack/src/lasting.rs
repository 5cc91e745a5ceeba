//! Which blocks of a disk cannot be read, and will not be later.
//!
//! What is behind such a block is given up (`is_unreadable` of the store's errors), so a disk that
//! is away for a while must not be taken for one with a bad block. A block that fails again and
//! again for a minute is bad, if between any two of its failures something was written and flushed:
//! that does not come out of the memory of the system, as what is read may. Until then its errors
//! are told as they are, and what fails of them is tried again.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Failures of a block after which it is bad.
const FAILURES: u32 = 4;
/// From the first of them to the last.
const SPAN: Duration = Duration::from_secs(60);
/// Blocks that are remembered. Beyond them, the one is forgotten that has not failed for longest.
const MOST: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Failed {
    since: Instant,
    last: Instant,
    /// How often, with something written between.
    times: u32,
    /// How often something was written before the last of them.
    written: u64,
}

/// What is remembered of a disk. It outlives its being closed.
#[derive(Debug, Default)]
pub struct Lasting {
    blocks: BTreeMap<u64, Failed>,
    /// Whether something was written since the last flush.
    is_dirty: bool,
    /// Flushes of something.
    written: u64,
}

impl Lasting {
    /// A block could not be read: gives the error to tell.
    pub fn failed(&mut self, block: u64, why: io::Error, now: Instant) -> io::Error {
        let written = self.written;
        if !self.blocks.contains_key(&block) && self.blocks.len() >= MOST {
            let oldest = self.blocks.iter().min_by_key(|(_, failed)| failed.last);
            if let Some(oldest) = oldest.map(|(block, _)| *block) {
                self.blocks.remove(&oldest);
            }
        }
        let first = Failed { since: now, last: now, times: 1, written };
        let failed = self.blocks.entry(block).or_insert(first);
        if written > failed.written {
            failed.times = failed.times.saturating_add(1);
            failed.written = written;
        }
        failed.last = now;
        let lasts = now.saturating_duration_since(failed.since) >= SPAN;
        match failed.times >= FAILURES && lasts {
            true => io::Error::new(io::ErrorKind::InvalidData, format!("{why}, again and again")),
            false => why,
        }
    }

    /// Blocks were read, or written.
    pub fn is_well(&mut self, first: u64, count: u64) {
        while let Some((&block, _)) = self.blocks.range(first..first.saturating_add(count)).next() {
            self.blocks.remove(&block);
        }
    }

    /// Something was written.
    pub fn wrote(&mut self, first: u64, count: u64) {
        self.is_well(first, count);
        self.is_dirty = true;
    }

    /// It was flushed: whether it has reached the disk. If not, a later flush does not tell of it.
    pub fn flushed(&mut self, done: bool) {
        self.written += u64::from(std::mem::take(&mut self.is_dirty) && done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(one: &mut Lasting, block: u64, at: Instant) -> io::ErrorKind {
        one.failed(block, io::Error::from_raw_os_error(5), at).kind()
    }

    fn write(one: &mut Lasting) {
        one.wrote(1, 1);
        one.flushed(true);
    }

    /// So many failures within a minute or more, with something done between; the kind of the last
    /// one.
    fn after(
        count: u32,
        span: Duration,
        mut between: impl FnMut(&mut Lasting, u32),
    ) -> io::ErrorKind {
        let (mut one, begin) = (Lasting::default(), Instant::now());
        let mut last = io::ErrorKind::Other;
        for number in 0..count {
            last = fail(&mut one, 7, begin + span * number / (count - 1));
            between(&mut one, number);
        }
        last
    }

    const BAD: io::ErrorKind = io::ErrorKind::InvalidData;

    #[test]
    fn a_block_that_fails_for_a_minute_is_bad() {
        assert_eq!(after(FAILURES, SPAN, |one, _| write(one)), BAD);
    }

    #[test]
    fn one_that_passes_is_not() {
        assert_ne!(after(FAILURES - 1, SPAN, |one, _| write(one)), BAD, "too few");
        assert_ne!(after(60, SPAN / 2, |one, _| write(one)), BAD, "too soon");
        assert_ne!(after(60, SPAN * 2, |_, _| {}), BAD, "the disk is away");
        assert_ne!(after(60, SPAN * 2, |one, _| one.wrote(1, 1)), BAD, "nothing reaches it");
        assert_ne!(after(60, SPAN * 2, |one, _| one.flushed(true)), BAD, "nothing is written");
        let fails = |one: &mut Lasting, _| {
            one.wrote(1, 1);
            one.flushed(false);
            one.flushed(true);
        };
        assert_ne!(after(60, SPAN * 2, fails), BAD, "what was written is lost");
        let is_read = |one: &mut Lasting, number| {
            write(one);
            if number == 57 {
                one.is_well(5, 3);
            }
        };
        assert_ne!(after(60, SPAN * 2, is_read), BAD, "it was read meanwhile");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut one, begin) = (Lasting::default(), Instant::now());
        for block in 0..3 * MOST as u64 {
            fail(&mut one, block, begin + Duration::from_millis(block));
        }
        assert_eq!(one.blocks.len(), MOST);
        assert!(one.blocks.contains_key(&(3 * MOST as u64 - 1)), "the youngest is known");
    }
}
