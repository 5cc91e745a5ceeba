//! What a power failure leaves, and how it goes on.

use super::history::History;
use super::{Lives, Stop, Whole};
use crate::posix::told::Apart;
use rand::Rng;

/// Which state is left, and what is there.
pub(super) type Left = (usize, Apart);

impl Whole {
    /// The power has failed, and comes again: what is there is compared with what may be left of
    /// the first `last` deeds. `share`: about so many of a hundred blocks that were not flushed are
    /// there; by chance if there is none.
    pub(super) fn recover(
        &mut self,
        history: &History,
        last: usize,
        share: Option<u32>,
    ) -> Result<(Lives, Left), Stop> {
        self.outcome.power_failures += 1;
        self.fails.set(false);
        self.is_ill = false;
        self.meanwhile.borrow_mut().clear();
        self.cut_off(share);
        self.memory.clear();
        if share.is_none() && self.random.random() {
            // A second power failure may cut off what comes now, or the stores die of it.
            let end = self.power.steps() + self.random.random_range(0..200);
            self.power.end_at(Some(end));
            self.fails.set(self.random.random());
        }
        let begun = match self.begin() {
            Err(Stop::Power) => {
                self.outcome.power_failures += 1;
                self.fails.set(false);
                self.cut_off(share);
                self.memory.clear();
                self.begin()
            }
            begun => begun,
        };
        self.fails.set(false);
        self.power.end_at(None);
        let mut lives = begun?;
        let torn = if self.in_place { Some(self.mend(&mut lives)?) } else { None };
        let tree = self.tree(&mut lives)?;
        let state = history.left(&tree, &self.promises, last, torn.as_ref());
        let state = state.map_err(Stop::Wrong)?;
        let kept = self.promises.synced.values().filter(|at| **at > self.promises.checkpoint);
        self.outcome.promises_kept += kept.count() as u64;
        let data = tree.values().filter_map(|(_, data)| data.as_ref());
        self.outcome.bytes += data.map(|data| data.len() as u64).sum::<u64>();
        // What had no name and was in use is nobody's now.
        self.chances.deaths = false;
        self.forget(&mut lives)?;
        self.settle(&mut lives)?;
        self.check()?;
        Ok((lives, (state, tree)))
    }

    fn cut_off(&mut self, share: Option<u32>) {
        for disk in &self.disks {
            match share {
                Some(share) => disk.power_failure_with(share, &mut self.random),
                None => {
                    disk.power_failure(&mut self.random);
                }
            }
        }
        self.power.end_at(None);
    }
}
