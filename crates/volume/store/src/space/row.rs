//! How room for a log is taken: blocks that follow each other, and as many as it is to have.

use crate::error::Result;
use crate::store::Store;
use belay_disk::Disk;

/// Rows of free blocks that are looked at. Before the first blocks of a group, and behind them,
/// there are two that differ much.
const MOST: usize = 8;

impl<D: Disk> Store<D> {
    /// Takes so many free blocks that follow each other, or the most of the first rows that are
    /// found; gives the first, and how many they are.
    ///
    /// # Errors
    /// As for [`Store::take`].
    pub(crate) fn take_row(&mut self, want: u64) -> Result<(u64, u64)> {
        let mut longest = (0, 0);
        for _ in 0..MOST {
            let (first, count) = self.find_singles(want)?;
            if count > longest.1 {
                longest = (first, count);
            }
            if count == want {
                break;
            }
            self.space.cursor = first + count;
        }
        self.space.cursor = longest.0;
        self.take(want)
    }
}
