//! Applications that do something tiny again and again, to see for how long a volume does not
//! answer.

use crate::interrupt::Stop;
use anyhow::{Context, Result};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two operations on names. It is so long that the log fills by the work that is studied,
/// and not by these.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two syncs.
const SYNC_PAUSE: Duration = Duration::from_millis(200);
/// What takes less is not remembered.
const QUICK: Duration = Duration::from_millis(1);
/// No more operations than these are remembered.
const MOST: usize = 1 << 20;

/// What an application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Makes a small file, looks at it and removes it: the namespace module alone is needed.
    Names,
    /// Writes a little and makes it durable: all layers are needed.
    Syncs,
}

/// When something began, and how long it took.
type Taken = (Instant, Duration);

/// What an application has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// How often it has done what it does.
    pub operations: u64,
    /// Those that were not quick, in their order.
    slow: Vec<Taken>,
}

impl Seen {
    /// The longest that something took which was under way between these instants.
    pub fn longest(&self, from: Instant, to: Instant) -> Duration {
        let first = self.slow.partition_point(|(begin, took)| *begin + *took < from);
        let under_way = self.slow.get(first..).unwrap_or_default();
        let until = under_way.iter().take_while(|(begin, _)| *begin < to);
        until.map(|(_, took)| *took).max().unwrap_or(QUICK)
    }

    fn note(&mut self, begin: Instant) {
        let took = begin.elapsed();
        self.operations += 1;
        if took > QUICK && self.slow.len() < MOST {
            self.slow.push((begin, took));
        }
    }
}

/// Does that below `root` until it is to stop.
///
/// # Errors
/// When an operation fails, or gives something wrong.
pub fn run(root: &Path, doing: Doing, stop: &Stop) -> Result<Seen> {
    let path = root.join(format!("probe-{doing:?}"));
    let mut seen = Seen::default();
    let mut number: u64 = 0;
    while !stop.asked() {
        number += 1;
        let begin = Instant::now();
        let told = || format!("operation {number} of the application that does {doing:?}");
        match doing {
            Doing::Names => names(&path, number).with_context(told)?,
            Doing::Syncs => syncs(&path, number).with_context(told)?,
        }
        seen.note(begin);
        stop.wait(if doing == Doing::Names { PAUSE } else { SYNC_PAUSE });
    }
    fs::remove_file(&path).or_else(|why| match doing {
        Doing::Names => Ok(()),
        Doing::Syncs => Err(why),
    })?;
    Ok(seen)
}

fn names(path: &Path, number: u64) -> Result<()> {
    let bytes = number.to_le_bytes();
    let mut file = File::create_new(path)?;
    file.write_all(&bytes)?;
    anyhow::ensure!(file.metadata()?.size() == bytes.len() as u64, "it has another length");
    Ok(fs::remove_file(path)?)
}

fn syncs(path: &Path, number: u64) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(false).write(true).open(path)?;
    file.write_all(&number.to_le_bytes())?;
    Ok(file.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_under_way_counts() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let slow = [(10, 5), (20, 80), (200, 7)];
        let slow = slow.map(|(begin, took)| (at(begin), Duration::from_millis(took)));
        let seen = Seen { operations: 3, slow: slow.to_vec() };
        assert_eq!(seen.longest(at(50), at(150)), Duration::from_millis(80));
        assert_eq!(seen.longest(at(101), at(300)), Duration::from_millis(7));
        assert_eq!(seen.longest(at(300), at(400)), QUICK);
    }
}
