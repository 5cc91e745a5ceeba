//! One life of a machine that builds, its end, and what is found after it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belay_fixtures::process::Process;
use belay_fixtures::{Kind, mounts};
use belay_workloads::Scale;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use tempfile::TempDir;

use super::BuildArgs;
use super::results::Counts;
use crate::interrupt::Stop;
use crate::killer;
use crate::powercut::builder::Order;
use crate::powercut::disk::Disk;
use crate::powercut::judge::{Heard, Judge, Listener};
use crate::powercut::machine::Told;
use crate::powercut::serve::Power;
use crate::powercut::stages::Stages;
use crate::powercut::volume::Volume;
use crate::powercut::work::Tree;
use crate::powercut::{Memory, check, enclosed};

const IMAGE: &str = "image";
const MIB: u64 = 512;
/// For a small generated program.
const TINY_MIB: u64 = 64;
/// Steps of an application in a life, at most.
const STEPS: usize = 1500;
/// The files of applications are removed after so many lives.
const LIVES: u64 = 5;
/// A build that has come no further in so many lives never will.
const PATIENCE: u64 = 60;
const LIMIT: Duration = Duration::from_secs(60);
/// A stage takes seconds, even if everybody is killed again and again.
const STAGE: Duration = Duration::from_secs(600);
/// The folder of the build.
const BUILD: &str = "build";

/// Where it lives.
pub struct Bench<'a> {
    args: &'a BuildArgs,
    rng: ChaCha12Rng,
    stages: Stages,
    power: Arc<Power>,
    volume: Volume,
    /// The disk as it is when the power is back.
    disk: Disk,
    judge: Judge,
    /// Stages of this build that are durable.
    done: usize,
    /// In which life one was added to them.
    progress: u64,
    /// Builds that have come to their end.
    pub builds: u64,
    /// By what became of the memory.
    pub rows: BTreeMap<Memory, Counts>,
    _mount: fuser::BackgroundSession,
    dir: TempDir,
}

impl<'a> Bench<'a> {
    /// Learns what is built, and makes a volume.
    ///
    /// # Errors
    /// When there is no place to be had, or the undisturbed build fails.
    pub fn new(args: &'a BuildArgs, seed: u64, interrupted: &AtomicBool) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("belay-fixture-build-")
            .disable_cleanup(args.keep)
            .tempdir_in(&args.workdir)
            .with_context(|| format!("making a directory in {}", args.workdir.display()))?;
        let path = |name: &str| dir.path().join(name);
        for name in ["disk", "mnt", "state", "names", "plain"] {
            std::fs::create_dir(path(name)).with_context(|| format!("creating {name}"))?;
        }
        let stages = Stages::learn(args.scale, args.jobs, &path("plain"), interrupted)?;
        let power = Arc::new(Power::default());
        let mount = power.mount(&path("disk"))?;
        let volume = Volume::in_folder(&path("names")).with_usual_memory();
        let fresh = path("fresh");
        let mib = if args.scale == Scale::Tiny { TINY_MIB } else { MIB };
        volume.make(Kind::Volume, &fresh, mib, &path("disk").join(IMAGE))?;
        let disk = Disk::with(IMAGE, 2, &std::fs::read(&fresh).context("reading an image")?);
        std::fs::remove_file(&fresh).context("removing an image")?;
        Ok(Self {
            args,
            rng: ChaCha12Rng::seed_from_u64(seed ^ 0x6275_696c),
            stages,
            power,
            volume,
            disk,
            judge: Judge::new(Kind::Volume, seed, args.clients, STEPS),
            done: 0,
            progress: 0,
            builds: 0,
            rows: BTreeMap::new(),
            _mount: mount,
            dir,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The number of the life.
    pub fn number(&self) -> u64 {
        self.judge.life
    }

    /// What is built.
    pub fn work(&self) -> String {
        self.stages.describe()
    }

    /// In how many stages.
    pub fn stages(&self) -> u64 {
        self.stages.all.len() as u64
    }

    /// How many machines have been killed.
    pub fn cuts(&self) -> u64 {
        self.rows.values().map(|counts| counts.cuts).sum()
    }

    /// A machine builds until its end, and what it leaves is looked at.
    ///
    /// # Errors
    /// When something is wrong.
    pub fn life(&mut self) -> Result<()> {
        self.judge.life += 1;
        let memory = *self.args.memory.choose(&mut self.rng).context("no memory to choose from")?;
        let (heard, disk) = self.machine(memory)?;
        let mut counts = self.rows.remove(&memory).unwrap_or_default();
        counts.cuts += 1;
        for (told, _) in &heard {
            match told {
                Told::Built(stages) => (self.done, self.progress) = (*stages, self.judge.life),
                Told::Killed(processes) => counts.kills += processes,
                _ => {}
            }
        }
        *counts.during.entry(self.stages.name(self.done).to_owned()).or_default() += 1;
        let looked = self.recover(memory, &heard, disk, &mut counts);
        self.rows.insert(memory, counts);
        looked.with_context(|| format!("memory {}", memory.name()))?;
        ensure!(
            self.judge.life - self.progress < PATIENCE,
            "the build has come no further than {} stages in {PATIENCE} lives",
            self.done
        );
        Ok(())
    }

    /// Runs a machine until its end.
    fn machine(&mut self, memory: Memory) -> Result<(Heard, Disk)> {
        self.power.on(self.disk.clone(), None);
        let (mut outer, listener) = self.start(Some(self.done))?;
        let lived = self.until_end(memory, &mut outer, &listener);
        let disk = self.power.cut();
        enclosed::kill(&mut outer)?;
        lived.map(|()| (listener.finish(), disk))
    }

    /// Waits until a machine is to end; ends it, if its memory is kept.
    fn until_end(
        &mut self,
        memory: Memory,
        outer: &mut Process,
        listener: &Listener,
    ) -> Result<()> {
        let life = killer::pause(self.args.life, &mut self.rng);
        let more = self.rng.random_bool(0.5).then(|| self.rng.random_range(0..200));
        let begin = Instant::now();
        while !listener.has(|told| matches!(told, Told::Mounted | Told::Failed(_))) {
            ensure!(begin.elapsed() < LIMIT, "the volume was not mounted in {LIMIT:?}");
            self.passes(outer, Duration::from_millis(1))?;
        }
        let stages = (self.done + self.rng.random_range(0..3)).min(self.stages.all.len());
        let is_near = |told: &Told| match told {
            Told::Built(done) => *done >= stages,
            told => matches!(told, Told::Failed(_)),
        };
        let begin = Instant::now();
        while stages > self.done && !listener.has(is_near) {
            ensure!(begin.elapsed() < STAGE, "a stage of the build took longer than {STAGE:?}");
            self.passes(outer, Duration::from_millis(20))?;
        }
        self.passes(outer, life)?;
        if memory == Memory::Kept {
            // No process is to see anything but its end.
            enclosed::kill(outer)?;
        } else if let Some(more) = more {
            self.power.cut_in(more);
            self.power.wait_off(Duration::from_secs(3));
        }
        Ok(())
    }

    /// So much time passes, in which a machine does not end by itself.
    fn passes(&self, outer: &mut Process, time: Duration) -> Result<()> {
        self.power.wait_off(time);
        outer.must_run().context("the machine")
    }

    /// Starts a machine that goes on with the build, or only mounts and unmounts.
    fn start(&mut self, done: Option<usize>) -> Result<(Process, Listener)> {
        let scratch = self.path("scratch");
        if scratch.exists() {
            std::fs::remove_dir_all(&scratch).context("removing what compilers have left")?;
        }
        std::fs::create_dir(&scratch).context("creating a folder for compilers")?;
        let mut command = enclosed::command()?;
        command.env("TMPDIR", &scratch);
        command.args(["powercut-machine", "--kind", Kind::Volume.name(), "--image"]);
        command.arg(self.path("disk").join(IMAGE)).arg("--mountpoint").arg(self.path("mnt"));
        command.arg("--state-dir").arg(self.path("state")).arg("--names").arg(self.volume.names());
        command.arg("--usual-memory");
        let Judge { seed, life, .. } = self.judge;
        let (clients, steps) = if done.is_some() { (self.args.clients, STEPS) } else { (0, 0) };
        let numbers = [("seed", seed), ("life", life)].map(|(name, n)| (name, n.to_string()));
        let sizes = [("clients", clients), ("steps", steps)].map(|(name, n)| (name, n.to_string()));
        for (name, number) in numbers.into_iter().chain(sizes) {
            command.arg(format!("--{name}={number}"));
        }
        if let Some(done) = done {
            let order = Order {
                archive: self.stages.archive().to_owned(),
                jobs: self.args.jobs,
                stages: self.stages.all[done..].to_vec(),
                done,
                every: self.args.every,
                seed: self.rng.random(),
                scratch,
                lies: self.args.lying_builder,
            };
            let path = self.path("order.json");
            let text = serde_json::to_vec(&order).context("encoding an order")?;
            std::fs::write(&path, text).context("writing an order")?;
            command.arg("--order").arg(path);
            // Whoever is killed here has not crashed.
            command
                .args(["--poison-after=0", "--max-crashes=0"].map(|a| format!("--belay-arg={a}")));
        } else {
            command.arg("--leave");
        }
        enclosed::start(command, &self.path("machine.log"), &self.power)
    }

    /// Mounts again what is left, maybe after further ends while it is mounted, and looks at it.
    fn recover(
        &mut self,
        memory: Memory,
        heard: &Heard,
        mut disk: Disk,
        counts: &mut Counts,
    ) -> Result<()> {
        let end = match memory {
            Memory::Kept => self.judge.whole_end(heard)?,
            Memory::Lost => self.judge.end(heard, None)?,
        };
        counts.undecided += u64::from(disk.undecided() > 0);
        disk = self.left(memory, &disk)?;
        while self.rng.random_ratio(1, 4) {
            disk = self.further_end(memory, disk, counts)?;
        }
        self.power.on(disk, None);
        let (mountpoint, state) = (self.path("mnt"), self.path("state"));
        let mut known = 0;
        let is_read = Stop::default();
        let found = std::thread::scope(|scope| {
            // Who waits in this process for a mount that hangs cannot be killed: the mount is taken
            // away.
            scope.spawn(|| {
                if !is_read.wait(STAGE) {
                    mounts::unmount_by_force(&mountpoint);
                }
            });
            let found = self.volume.with(&mountpoint, &state, &self.path("again.log"), |folder| {
                let found = check::read_but(folder, Some(BUILD))?;
                known = self.stages.settle(folder, self.done)?;
                if self.judge.life.is_multiple_of(LIVES) {
                    remove(folder, &found)?;
                }
                Ok(found)
            });
            is_read.ask();
            found
        })?;
        let found = self.judge.compare(&found, &end)?;
        self.volume.check()?;
        self.disk = self.power.cut();
        let undecided = self.disk.undecided();
        ensure!(undecided == 0, "{undecided} changes are not durable after an unmount");
        self.judge.settled = match self.judge.life.is_multiple_of(LIVES) {
            true => BTreeMap::new(),
            false => found.trees,
        };
        counts.known += known;
        counts.durable += found.durable;
        counts.found += found.steps;
        if self.stages.is_over(self.done) {
            self.builds += 1;
            (self.done, self.progress) = (0, self.judge.life);
        }
        Ok(())
    }

    /// A machine only mounts and unmounts, and ends meanwhile; gives what is left then.
    fn further_end(&mut self, memory: Memory, disk: Disk, counts: &mut Counts) -> Result<Disk> {
        self.power.on(disk, None);
        let (mut outer, listener) = self.start(None)?;
        let begin = Instant::now();
        let limit = match memory {
            Memory::Lost => {
                self.power.cut_in(self.rng.random_range(0..60));
                LIMIT
            }
            Memory::Kept => Duration::from_micros(self.rng.random_range(0..300_000)),
        };
        let is_over = |told: &Told| matches!(told, Told::Ended | Told::Failed(_));
        while begin.elapsed() < limit
            && !listener.has(is_over)
            && !self.power.wait_off(Duration::from_millis(1))
        {}
        if memory == Memory::Kept {
            enclosed::kill(&mut outer)?;
        }
        let disk = self.power.cut();
        enclosed::kill(&mut outer)?;
        let heard = listener.finish();
        self.judge.end(&heard, None).context("when it was mounted again")?;
        // One that has ended in good order has lost nothing.
        let is_ended = heard.iter().any(|(told, _)| *told == Told::Ended);
        counts.in_recoveries += u64::from(!is_ended);
        self.left(memory, &disk)
    }

    /// What is left after an end: of a disk and, if it goes, of the memory.
    fn left(&mut self, memory: Memory, disk: &Disk) -> Result<Disk> {
        if memory == Memory::Kept {
            return Ok(disk.after(|| true));
        }
        self.volume.forget_memory()?;
        Ok(disk.lose(&mut self.rng))
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        if self.args.keep {
            return;
        }
        let _ = self.volume.forget_memory();
        for name in ["mnt", "disk"] {
            mounts::unmount_by_force(&self.path(name));
        }
    }
}

/// Removes the folders of the applications.
fn remove(root: &Path, found: &Tree) -> Result<()> {
    for name in found.keys().filter(|path| !path.contains('/')) {
        std::fs::remove_dir_all(root.join(name)).with_context(|| format!("removing {name}"))?;
    }
    Ok(())
}
