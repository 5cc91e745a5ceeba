//! What it costs a new life of a namespace module to read the log: `cargo run --release -p
//! belay-cache --example attach_cost`.
//!
//! The log is as full as it gets between two checkpoints, first with changes of the attributes of
//! many files, then with pages of them.

use belay_cache::{Capacity, Layout, Publisher, Shared};
use belay_object::{Credit, ObjectId, Operation, PAGE, Room};
use belay_sys::{Mapping, sealable_memory_file};
use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// About what `belay volume mount` makes by default.
const CAPACITY: Capacity = Capacity { frames: 32768, slots: 16384 };
const FILES: u64 = 1500;
const LIVES: u32 = 21;

fn main() -> Result<(), Box<dyn Error>> {
    for (what, pages) in [("attributes", 0), ("pages", 2)] {
        let (file, transactions) = fill(pages)?;
        let mut times = Vec::new();
        for life in 0..LIVES {
            let began = Instant::now();
            let publisher = Publisher::attach::<Infallible>(map(&file)?, life + 2)?;
            times.push(began.elapsed());
            assert_eq!(publisher.pending(), transactions);
        }
        times.sort();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        println!(
            "{what}: {transactions} transactions, {median:?}, {:?} each",
            each(median, transactions)
        );
    }
    Ok(())
}

fn each(time: Duration, transactions: u64) -> Duration {
    time / u32::try_from(transactions).unwrap_or(1)
}

fn map(file: &File) -> Result<Shared<Arc<Mapping>>, Box<dyn Error>> {
    let layout = Layout::new(CAPACITY);
    let mapping = Mapping::new(file.as_fd(), layout.words * 8)?;
    Ok(Shared::new(Arc::new(mapping), layout))
}

/// A log that takes no more, and how many transactions it has.
fn fill(pages: usize) -> Result<(File, u64), Box<dyn Error>> {
    let file = File::from(sealable_memory_file("attach-cost")?);
    file.set_len(Layout::new(CAPACITY).words as u64 * 8)?;
    let shared = map(&file)?;
    let credit = Credit { blocks: 1 << 30, pairs: 1 << 29 };
    shared.initialize(1, 1, &Room { credit, ..Room::default() });
    let mut publisher = Publisher::attach::<Infallible>(shared, 1)?;
    let mut transactions = 0;
    while transactions < u64::from(CAPACITY.slots) {
        let object = ObjectId(1 + transactions % FILES);
        let mut draft = publisher.draft();
        if pages > 0 {
            let (page, content) = (transactions / FILES, vec![[7; PAGE]; pages]);
            publisher.write::<Infallible>(&mut draft, object, page, &content)?;
        }
        publisher.add(&mut draft, &Operation::SetAttributes { object, attributes: &[3; 96] });
        match publisher.commit::<Infallible>(draft, transactions + 1, &[0; 104]) {
            Ok(_) => transactions += 1,
            Err(belay_cache::Error::Full) => break,
            Err(why) => return Err(why.into()),
        }
    }
    Ok((file, transactions))
}
