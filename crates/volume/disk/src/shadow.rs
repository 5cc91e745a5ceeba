//! A disk that is looked at without being written to: what is written stays in memory, and is gone
//! with it.
//!
//! So whoever only looks runs the code that ships, which tidies up when it opens a store.

use crate::{BLOCK, Block, Disk, ZEROS, check_range};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

/// A disk, and what would have been written to it.
#[derive(Debug)]
pub struct Shadow<D> {
    disk: D,
    written: RefCell<BTreeMap<u64, Box<Block>>>,
}

impl<D: Disk> Shadow<D> {
    /// Over that disk, which stays as it is.
    pub fn new(disk: D) -> Self {
        Self { disk, written: RefCell::default() }
    }

    /// The disk below.
    pub fn below(&self) -> &D {
        &self.disk
    }
}

impl<D: Disk> Disk for Shadow<D> {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written.borrow();
        let end = first.saturating_add((out.len() / BLOCK) as u64);
        if written.range(first..end).next().is_none() {
            return self.disk.read(first, out);
        }
        check_range(self.blocks(), first, out.len())?;
        let (blocks, _) = out.as_chunks_mut::<BLOCK>();
        for (number, block) in (first..end).zip(blocks) {
            match written.get(&number) {
                Some(content) => *block = **content,
                None => self.disk.read(number, block)?,
            }
        }
        Ok(())
    }

    fn write(&self, first: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.blocks(), first, data.len())?;
        let mut written = self.written.borrow_mut();
        let (blocks, _) = data.as_chunks::<BLOCK>();
        for (number, block) in blocks.iter().enumerate() {
            let place = written.entry(first + number as u64).or_insert_with(|| Box::new(ZEROS));
            **place = *block;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileDisk;

    #[test]
    fn what_is_written_is_read_and_the_disk_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        FileDisk::create(&path, 8 * BLOCK as u64).unwrap().write(2, &[1; BLOCK]).unwrap();
        let shadow = Shadow::new(FileDisk::open_read_only(&path).unwrap());
        shadow.write(3, &[2; 2 * BLOCK]).unwrap();
        shadow.flush().unwrap();
        let mut out = vec![9; 4 * BLOCK];
        shadow.read(2, &mut out).unwrap();
        let firsts: Vec<u8> = out.chunks(BLOCK).map(|block| block[BLOCK - 1]).collect();
        assert_eq!(firsts, [1, 2, 2, 0]);
        assert!(shadow.write(8, &[0; BLOCK]).is_err() && shadow.read(7, &mut out).is_err());
        assert!(shadow.read(4, &mut vec![0; 5 * BLOCK]).is_err());
        assert!(shadow.below().read(3, &mut out[..BLOCK]).is_ok());
        assert!(out[..BLOCK].iter().all(|byte| *byte == 0));
    }
}
