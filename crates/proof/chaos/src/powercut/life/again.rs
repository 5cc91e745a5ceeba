//! A volume that is mounted again after its end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belay_fixtures::Kind;

use super::{Bench, LIMIT};
use crate::powercut::disk::Disk;
use crate::powercut::judge::End;
use crate::powercut::machine::Told;
use crate::powercut::work::Tree;
use crate::powercut::{check, enclosed, in_place};

impl Bench<'_> {
    /// Has a machine mount what is on the disk and do nothing more, until the power goes, or it has
    /// ended.
    pub(super) fn mount_for_a_while(&mut self) -> Result<()> {
        let steps = std::mem::replace(&mut self.judge.steps, 0);
        let started = self.start(true, "5s");
        self.judge.steps = steps;
        let (mut outer, listener) = started?;
        let deadline = Instant::now() + LIMIT;
        while !listener.has(|told| matches!(told, Told::Ended | Told::Failed(_)))
            && !self.power.wait_off(Duration::from_millis(5))
            && Instant::now() < deadline
        {}
        self.power.off();
        enclosed::kill(&mut outer)?;
        self.judge.end(&listener.finish(), None).context("when it was mounted again").map(drop)
    }

    /// Mounts a volume again, reads and unmounts it, has it checked, and looks at what was read.
    pub(super) fn mounted_again(
        &mut self,
        disk: Disk,
        end: &End,
    ) -> Result<(Disk, BTreeMap<String, Tree>)> {
        let volume = self.volume.clone().context("this is no volume")?;
        self.power.on(disk, None);
        let (mountpoint, state) = (self.path("mnt"), self.path("state"));
        let mut torn = 0;
        let found = volume.with(&mountpoint, &state, &self.path("again.log"), |folder| {
            if self.kind == Kind::VolumeInPlace {
                torn = in_place::mend(folder)?;
                ensure!(torn == 0 || !end.whole, "{torn} pages cannot be read");
            }
            check::read_folder(folder)
        })?;
        self.counts.torn += torn;
        volume.check()?;
        let (disk, _) = self.power.off();
        ensure!(
            disk.undecided() == 0,
            "{} changes are not durable after the volume was unmounted",
            disk.undecided()
        );
        self.counts.images += 1;
        let found = self.judge.compare(&found, end)?;
        self.counts.durable += found.durable;
        self.counts.found += found.steps;
        Ok((disk, found.trees))
    }
}
