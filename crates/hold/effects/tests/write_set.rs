//! The write set against a plain array of bytes.
#![allow(missing_docs)]

mod common;

use belay_effects::log::Head;
use belay_effects::{Kind, Log, WriteSet};
use belay_memory::Memory;
use common::{Mortal, layout};
use proptest::prelude::*;

const IMAGE: usize = 512;

fn take(memory: &Mortal, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| memory.load(at / 8).to_ne_bytes()[at % 8]).collect()
}

proptest! {
    #![proptest_config(belay_seeds::cases!(2000))]
    #[test]
    fn it_shows_what_was_written(
        writes in prop::collection::vec((0..IMAGE as u64, 0_usize..60, any::<u8>()), 1..40),
        reads in prop::collection::vec((0..IMAGE, 0_usize..100), 8),
    ) {
        let layout = layout();
        let memory = Mortal::new(&layout);
        let log = Log::new(&memory, &layout, 0);
        log.begin(2);
        let mut write_set = WriteSet::default();
        let mut image = vec![0xee_u8; IMAGE + 100];
        let base = image.clone();
        for (offset, len, seed) in &writes {
            let data: Vec<u8> = (0..*len).map(|i| seed.wrapping_add(i as u8)).collect();
            let head = Head { kind: Kind::Image as u32, digest: *offset, ..Head::default() };
            let entry = log.append(&head, &data).expect("room");
            write_set.write(entry.digest, entry.payload, log.payload_at(&entry));
            image[*offset as usize..*offset as usize + len].copy_from_slice(&data);
        }
        // What it shows.
        for (at, len) in reads {
            let mut out = base[at..(at + len).min(base.len())].to_vec();
            write_set.patch(&memory, at as u64, &mut out);
            prop_assert_eq!(&out[..], &image[at..at + out.len()]);
        }
        // What it has written to the image.
        let mut written = base.clone();
        let mut last = 0;
        let (mut next, mut pieces) = (0, Vec::new());
        while let Some(start) = write_set.run(&mut next, &mut pieces) {
            prop_assert!(start >= last && !pieces.is_empty() && pieces.len() <= 64);
            let mut at = start as usize;
            for (from, len) in &pieces {
                written[at..at + len].copy_from_slice(&take(&memory, *from, *len));
                at += len;
            }
            last = at as u64;
        }
        prop_assert_eq!(&written, &image);
        prop_assert_eq!(write_set.end(), last);
        // A successor writes the entries as they come, which must be the same.
        let mut again = base;
        for entry in log.entries().0 {
            let at = entry.digest as usize;
            again[at..at + entry.payload].copy_from_slice(&take(&memory, log.payload_at(&entry), entry.payload));
        }
        prop_assert_eq!(again, image);
    }
}
