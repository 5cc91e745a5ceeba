//! One life of a machine: it starts, applications work, the power goes; then the image is repaired
//! (and the power goes in that as well, now and then), and looked at.

mod again;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belay_fixtures::process::Process;
use belay_fixtures::{Kind, image_tools};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use tempfile::TempDir;

use super::counts::Counts;
use super::disk::Disk;
use super::enclosed;
use super::judge::{End, Heard, Judge, Listener};
use super::machine::Told;
use super::pages::Pages;
use super::repair::repair;
use super::series::Lives;
use super::serve::{Changes, Power};
use super::volume::Volume;
use super::work::Tree;
use super::{Memory, PowercutArgs, check};

const MIB: u64 = 12;
/// A volume must be larger.
const VOLUME_MIB: u64 = 24;
const IMAGE: &str = "image";
/// So many things that may be lost or not are tried in all combinations.
const ALL: usize = 6;
/// Steps of an application in a life that ends by itself.
const SHORT: usize = 25;
const LIMIT: Duration = Duration::from_secs(60);

/// The place where machines live and die.
pub struct Bench<'a> {
    args: &'a PowercutArgs,
    interrupted: &'a AtomicBool,
    kind: Kind,
    rng: ChaCha12Rng,
    counts: Counts,
    power: Arc<Power>,
    folder: PathBuf,
    volume: Option<Volume>,
    /// The disk as it is when the power is back.
    disk: Disk,
    judge: Judge,
    /// The images of this life that were found to be clean, by their hash.
    seen: HashMap<u128, Tree>,
    _mount: fuser::BackgroundSession,
    dir: TempDir,
}

impl<'a> Bench<'a> {
    /// Makes a disk, and mounts it.
    pub fn new(
        args: &'a PowercutArgs,
        kind: Kind,
        seed: u64,
        interrupted: &'a AtomicBool,
    ) -> Result<Self> {
        let dir = args.common.directory("belay-fixture-power-")?;
        let folder = dir.path().join("disk");
        let names = dir.path().join("names");
        for path in [&folder, &dir.path().join("mnt"), &dir.path().join("state"), &names] {
            std::fs::create_dir(path).with_context(|| format!("creating {}", path.display()))?;
        }
        let power = Arc::new(Power::new(args.lying_disk));
        let mount = power.mount(&folder)?;
        Ok(Self {
            args,
            interrupted,
            kind,
            rng: ChaCha12Rng::seed_from_u64(seed ^ kind.number() << 40),
            counts: Counts::default(),
            power,
            folder,
            volume: kind.is_volume().then(|| Volume::in_folder(&names)),
            disk: Disk::default(),
            judge: Judge::new(kind, seed, args.common.clients, args.steps),
            seen: HashMap::new(),
            _mount: mount,
            dir,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Lives for Bench<'_> {
    fn life(&mut self) -> Result<()> {
        if self.judge.life.is_multiple_of(self.args.lives) {
            let fresh = self.path("fresh");
            match &self.volume {
                Some(volume) => {
                    volume.make(self.kind, &fresh, VOLUME_MIB, &self.folder.join(IMAGE))?
                }
                None => image_tools::make(self.kind, &fresh, MIB)?,
            }
            self.disk = Disk::with(IMAGE, 2, &std::fs::read(&fresh).context("reading an image")?);
            self.judge.settled.clear();
        }
        self.judge.life += 1;
        self.seen.clear();
        let before = self.disk.clone();
        let (heard, disk, log) = self.machine()?;
        self.counts.cuts += 1;
        let ended = heard.iter().any(|(told, _)| *told == Told::Ended);
        self.counts.ended += u64::from(ended);
        if self.keeps() {
            let end = self.judge.whole_end(&heard)?;
            let looked = self.mounted_again(disk.after(|| true), &end);
            (self.disk, self.judge.settled) = looked
                .with_context(|| format!("life {}, with its memory kept", self.judge.life))?;
            return Ok(());
        }
        if let Some(volume) = &self.volume {
            volume.forget_memory()?;
        }
        // What else could have happened in this life.
        let mut replayed = before;
        let mut at = 0;
        for cut in self.other_cuts(log.len()) {
            while at < cut {
                replayed.apply(&log[at].0, log[at].1);
                at += 1;
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Ok(());
            }
            let end = self.judge.end(&heard, Some(cut))?;
            for platter in self.outcomes(&replayed) {
                self.recover(platter, &end).with_context(|| {
                    format!("life {}, had the power gone at change {cut}", self.judge.life)
                })?;
                self.counts.also += 1;
            }
        }
        let end = self.judge.end(&heard, None)?;
        let platter = self.lose(&disk);
        let torn = self.counts.torn;
        let (repaired, trees) = self
            .recover(platter.clone(), &end)
            .with_context(|| format!("life {}", self.judge.life))?;
        // Often nobody calls `belay repair`: then the next `belay run` has to. Pages that were torn
        // are so still on what nobody has mended.
        let is_mended = self.counts.torn > torn;
        self.disk = if self.rng.random() || is_mended { repaired } else { platter };
        self.judge.settled = trees;
        Ok(())
    }

    fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }
}

impl Bench<'_> {
    /// Whether nothing but processes is lost.
    fn keeps(&self) -> bool {
        self.volume.is_some() && self.args.memory == Memory::Kept
    }

    /// Changes before which the power is to have gone as well.
    fn other_cuts(&mut self, changes: usize) -> Vec<usize> {
        if self.args.also == 0 {
            return (0..=changes).collect();
        }
        let mut cuts: Vec<usize> =
            (0..self.args.also).map(|_| self.rng.random_range(0..=changes)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// Runs a machine until its power goes.
    fn machine(&mut self) -> Result<(Heard, Disk, Changes)> {
        // Half of them at a change of the disk, half at any instant.
        let at_change = self.rng.random_bool(0.5).then(|| self.rng.random_range(0..120));
        let at_change = at_change.filter(|_| !self.keeps());
        let instant = Duration::from_micros(match self.rng.random_range(0..10) {
            0 => self.rng.random_range(0..300_000), // maybe before the mount
            _ => self.rng.random_range(100_000..900_000),
        });
        let interval = ["20ms", "100ms", "5s"][self.rng.random_range(0..3)];
        // Some lives come to an orderly end, or lose their power in it.
        let leave = self.rng.random_ratio(1, 4);
        self.judge.steps = if leave { self.args.steps.min(SHORT) } else { self.args.steps };
        self.power.on(self.disk.clone(), at_change);
        let (mut outer, listener) = self.start(leave, interval)?;
        let limit = if at_change.is_some() { Duration::from_secs(3) } else { instant };
        let early = at_change.is_none() && instant < Duration::from_millis(100);
        if self.volume.is_some() && !early {
            // Several processes must have started: on a machine with much to do that takes its
            // time.
            let deadline = Instant::now() + LIMIT;
            while !listener.has(|told| matches!(told, Told::Mounted | Told::Failed(_)))
                && !self.power.wait_off(Duration::from_millis(1))
                && Instant::now() < deadline
            {}
        }
        self.power.wait_off(limit);
        if self.keeps() {
            // No process is to see anything but its end.
            enclosed::kill(&mut outer)?;
        }
        let (disk, changes) = self.power.off();
        enclosed::kill(&mut outer)?;
        Ok((listener.finish(), disk, changes))
    }

    /// Starts a machine, which does this life's steps.
    fn start(&self, leave: bool, interval: &str) -> Result<(Process, Listener)> {
        let mut command = enclosed::command()?;
        command.args(["powercut-machine", "--kind", self.kind.name(), "--image"]);
        command.arg(self.folder.join(IMAGE)).arg("--mountpoint").arg(self.path("mnt"));
        command.arg("--state-dir").arg(self.path("state"));
        command.args([
            "--seed",
            &self.judge.seed.to_string(),
            "--life",
            &self.judge.life.to_string(),
        ]);
        command.args([
            "--clients",
            &self.args.common.clients.to_string(),
            "--steps",
            &self.judge.steps.to_string(),
        ]);
        if leave {
            command.arg("--leave");
        }
        if let Some(volume) = &self.volume {
            command.arg("--names").arg(volume.names());
        }
        // A volume takes its checkpoints as it likes.
        let interval = ["--checkpoint-interval", interval];
        let interval = if self.volume.is_some() { &[][..] } else { &interval[..] };
        let more = self.args.belay_args.iter().map(String::as_str);
        command.args(more.chain(interval.iter().copied()).map(|arg| format!("--belay-arg={arg}")));
        enclosed::start(command, &self.path("machine.log"), &self.power)
    }

    /// What the disk has kept.
    fn lose(&mut self, disk: &Disk) -> Disk {
        self.counts.undecided += u64::from(disk.undecided() > 0);
        disk.lose(&mut self.rng)
    }

    /// What a disk may have kept: one of that, or, if every change is tried, all that is possible
    /// where that is not too much, and else the extremes and some more.
    fn outcomes(&mut self, disk: &Disk) -> Vec<Disk> {
        if self.args.also > 0 {
            return vec![self.lose(disk)];
        }
        let asked = disk.questions();
        self.counts.undecided += u64::from(asked > 0);
        if asked <= ALL {
            let bit = |bits: u32, number: &mut u32| {
                *number += 1;
                bits >> (*number - 1) & 1 == 1
            };
            return (0..1u32 << asked)
                .map(|bits| {
                    let mut number = 0;
                    disk.after(|| bit(bits, &mut number))
                })
                .collect();
        }
        let mut outcomes = vec![disk.after(|| false), disk.after(|| true)];
        // As they came, up to one of them.
        let mut left = self.rng.random_range(1..asked);
        outcomes.push(disk.after(|| {
            left = left.saturating_sub(1);
            left > 0
        }));
        for share in [0.03, 0.5, 0.97] {
            outcomes.push(disk.after(|| self.rng.random_bool(share)));
        }
        outcomes
    }

    /// Repairs what is on a disk, maybe with further power failures, and looks at it.
    fn recover(&mut self, mut disk: Disk, end: &End) -> Result<(Disk, BTreeMap<String, Tree>)> {
        while self.rng.random_ratio(1, 4) {
            self.power.on(disk, Some(self.rng.random_range(0..8)));
            match self.volume.clone() {
                Some(volume) => {
                    self.mount_for_a_while()?;
                    volume.forget_memory()?;
                }
                None => drop(repair(&self.folder.join(IMAGE), &self.path("state"))),
            }
            let (left, _) = self.power.off();
            disk = self.lose(&left);
            self.counts.in_repairs += 1;
        }
        if self.volume.is_some() {
            return self.mounted_again(disk, end);
        }
        self.power.on(disk, None);
        self.counts.note(repair(&self.folder.join(IMAGE), &self.path("state"))?);
        let (disk, _) = self.power.off();
        ensure!(
            disk.undecided() == 0,
            "{} changes are not durable after a repair",
            disk.undecided()
        );
        let content = disk.find(IMAGE).and_then(|inode| disk.content(inode)).context("no image")?;
        let found = self.look(&content.bytes)?;
        let found = self.judge.compare(&found, end)?;
        self.counts.durable += found.durable;
        self.counts.found += found.steps;
        Ok((disk, found.trees))
    }

    /// Has an image checked, and reads it. The same one is looked at once in a life.
    fn look(&mut self, bytes: &Pages) -> Result<Tree> {
        let hash = bytes.hash();
        if let Some(tree) = self.seen.get(&hash) {
            return Ok(tree.clone());
        }
        let path = self.path("repaired");
        std::fs::write(&path, bytes.to_vec()).context("writing an image")?;
        image_tools::check(self.kind, &path)?;
        let tree = check::read_image(self.kind, &path, &self.path("found"))?;
        self.counts.images += 1;
        self.seen.insert(hash, tree.clone());
        Ok(tree)
    }
}
