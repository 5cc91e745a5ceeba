//! The same with a whole machine: an emulated one loses its power, with its kernel and all that
//! this kernel had not written yet. Its disk is the one that may lose what was not synced; here a
//! sync is the flush of a drive's cache.
//!
//! The disk has an ext4, of the machine's own kernel, and on that lie belay's image and journal.
//! Afterwards this machine's kernel mounts it, which replays the journal of that ext4, and the
//! image is repaired and looked at.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::process::{self, Process};
use belay_fixtures::{Kind, image_tools, mounts};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rustix::process::Signal;
use tempfile::TempDir;

use super::arguments::Common;
use super::check;
use super::counts::Counts;
use super::disk::Disk;
use super::in_place;
use super::judge::{Heard, Judge, Listener};
use super::machine::Told;
use super::page;
use super::repair::repair;
use super::series::{self, Lives};
use super::serve::Power;
use super::volume::{self, Volume};
use super::work::Tree;
use crate::interrupt;

/// For the page.
const HOW: &str = "An emulated machine (qemu) with a kernel of its own is killed: image and journal lie on the ext4 of its drive, which has \
     lost any part of what was not flushed. Then the same is done as above.";
/// For the page of a volume.
const HOW_VOLUME: &str = "An emulated machine (qemu) with a kernel of its own is killed: the store of a volume lies on the ext4 of its drive, which has \
     lost any part of what was not flushed. Then the volume is mounted here, read, unmounted and checked, and compared with what two \
     applications did.";
const DISK: &str = "disk.raw";
const DISK_MIB: u64 = 48;
const IMAGE_MIB: u64 = 12;
/// A volume must be larger.
const VOLUME_MIB: u64 = 24;
/// Steps of an application in a life, at most.
const STEPS: usize = 1500;
/// One of its applications does fewer than these before the power goes, if that takes no longer
/// than this.
const LIFE_STEPS: usize = 150;
const LIFE: Duration = Duration::from_secs(60);
/// How often it is started until it boots.
const BOOTS: u32 = 5;
const LIMIT: Duration = Duration::from_secs(60);
/// An emulated machine starts slowly, the more so if others are at work.
const BOOT: Duration = Duration::from_secs(300);

/// Arguments of `powercut-vm`.
#[derive(Clone, Debug, clap::Args)]
pub struct VmArgs {
    /// How many times the machine loses its power, altogether
    #[arg(long, default_value_t = 5)]
    cuts: u64,
    /// Lives of an image before a new one is made
    #[arg(long, default_value_t = 5)]
    lives: u64,
    /// What `scripts/setup-vm` has prepared
    #[arg(long, default_value = "target/vm")]
    machine: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Cuts the power of emulated machines; true if everything was right each time.
pub fn run(args: &VmArgs) -> Result<bool> {
    let seed = args.common.seed();
    for file in ["vmlinuz", "initrd"] {
        let path = args.machine.join(file);
        ensure!(path.is_file(), "{} is missing: run scripts/setup-vm", path.display());
    }
    let interrupted = interrupt::flag()?;
    println!("powercut-vm: seed {seed}, {} applications", args.common.clients);
    let rows = series::run(
        &args.common.fixtures,
        args.cuts,
        &interrupted,
        |kind| Bench::new(args, kind, seed),
        |kind, _, cuts| format!("powercut-vm --seed {seed} --fixtures {kind} --cuts {cuts}"),
    )?;
    if let Some(path) = &args.common.page {
        let (how, more) = match args.common.fixtures == [Kind::Volume] {
            true => (HOW_VOLUME, " --fixtures volume"),
            false => (HOW, ""),
        };
        let command = format!("powercut-vm --cuts {} --seed {seed}{more}", args.cuts);
        page::write(path, how, &command, &rows)?;
    }
    Ok(series::is_right(&rows))
}

struct Bench<'a> {
    args: &'a VmArgs,
    kind: Kind,
    rng: ChaCha12Rng,
    counts: Counts,
    power: Arc<Power>,
    disk: Disk,
    judge: Judge,
    _mount: fuser::BackgroundSession,
    dir: TempDir,
}

/// Unmounts when it goes.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        mounts::unmount_by_force(&self.0);
    }
}

impl<'a> Bench<'a> {
    fn new(args: &'a VmArgs, kind: Kind, seed: u64) -> Result<Self> {
        let dir = args.common.directory("belay-fixture-vm-")?;
        for name in ["disk", "mnt", "content", "state", "names", "volume"] {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        }
        let power = Arc::new(Power::default());
        let mount = power.mount(&dir.path().join("disk"))?;
        Ok(Self {
            args,
            kind,
            rng: ChaCha12Rng::seed_from_u64(seed ^ kind.number() << 40),
            counts: Counts::default(),
            power,
            disk: Disk::default(),
            judge: Judge::new(kind, seed, args.common.clients, STEPS),
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
            self.disk = self.fresh()?;
            self.judge.settled.clear();
        }
        self.judge.life += 1;
        let mut boots = 0;
        let (heard, disk) = loop {
            // On a machine with much to do a kernel may find its emulated clocks too bad to go on.
            match self.machine()? {
                Some(end) => break end,
                None => boots += 1,
            }
            ensure!(
                boots < BOOTS,
                "the emulated machine does not boot: see console.log with --keep"
            );
        };
        self.counts.cuts += 1;
        let end = self.judge.end(&heard, None)?;
        self.counts.undecided += u64::from(disk.undecided() > 0);
        let disk = disk.lose(&mut self.rng);
        let number = self.judge.life;
        let life = || format!("life {number}");
        let (bytes, found) = self.repaired(&disk).with_context(life)?;
        let found = self.judge.compare(&found, &end).with_context(life)?;
        self.counts.images += 1;
        self.counts.durable += found.durable;
        self.counts.found += found.steps;
        self.judge.settled = found.trees;
        self.disk = Disk::with(DISK, 2, &bytes);
        Ok(())
    }

    fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }
}

impl Bench<'_> {
    /// A disk with a new image on it.
    fn fresh(&self) -> Result<Disk> {
        let raw = self.path("new.raw");
        let content = self.path("content");
        match self.kind {
            kind if kind.is_volume() => {
                let names = content.join("names");
                std::fs::create_dir_all(&names).context("making a folder for names")?;
                let volume = Volume::in_folder(&names);
                volume.make(
                    self.kind,
                    &content.join("image"),
                    VOLUME_MIB,
                    Path::new("/disk/image"),
                )?;
            }
            kind => image_tools::make(kind, &content.join("image"), IMAGE_MIB)?,
        }
        let file = std::fs::File::create(&raw).context("creating a disk")?;
        file.set_len(DISK_MIB << 20).context("setting the size of a disk")?;
        let mut mke2fs = tool("mke2fs");
        mke2fs.args(["-F", "-q", "-t", "ext4", "-d"]).arg(self.path("content")).arg(&raw);
        process::run_ok(mke2fs, LIMIT)?;
        Ok(Disk::with(DISK, 2, &std::fs::read(&raw).context("reading a disk")?))
    }

    /// Starts the machine, and cuts its power. Gives nothing if it ended by itself before anything
    /// was mounted.
    fn machine(&mut self) -> Result<Option<(Heard, Disk)>> {
        self.power.on(self.disk.clone(), None);
        let console = self.path("console.log");
        let interval = ["100ms", "1s", "5s"][self.rng.random_range(0..3)];
        let Judge { seed, clients, life, .. } = &self.judge;
        let more = match self.kind {
            kind if kind.is_volume() => "--names /disk/names".to_owned(),
            _ => format!("--belay-arg=--checkpoint-interval --belay-arg={interval}"),
        };
        let append = format!(
            "console=ttyS0 loglevel=4 panic=-1 no_timer_check tsc=unstable mitigations=off -- --kind {} --seed {seed} --clients {clients} --life {life} --steps {STEPS} \
             {more}",
            self.kind
        );
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-accel", "tcg", "-cpu", "max", "-m", "512", "-nodefaults", "-display", "none"]);
        qemu.arg("-no-reboot").arg("-kernel").arg(self.args.machine.join("vmlinuz"));
        qemu.arg("-initrd").arg(self.args.machine.join("initrd")).args(["-append", &append]);
        let disk = self.path("disk").join(DISK);
        // Its writes go to the drive's cache, and its flushes are this disk's syncs.
        qemu.arg("-drive").arg(format!(
            "file={},format=raw,if=virtio,cache=writeback,file.locking=off",
            disk.display()
        ));
        qemu.arg("-serial").arg(format!("file:{}", console.display())).args(["-serial", "stdio"]);
        qemu.stdin(Stdio::null()).stdout(Stdio::piped());
        qemu.stderr(std::fs::File::create(self.path("qemu.log")).context("creating a log")?);
        let child = qemu.spawn().context("starting qemu-system-x86_64 (see scripts/setup-vm)")?;
        let mut qemu = Process::adopt(child, "qemu-system-x86_64");
        let output = qemu.child().stdout.take().context("no output to read")?;
        let listener = Listener::start(output, &self.power);
        let deadline = Instant::now() + BOOT;
        // Now and then it dies before the mount.
        let early = self.rng.random_ratio(1, 12);
        if early {
            self.power.cut_in(self.rng.random_range(0..60));
        }
        while !listener.has(|told| matches!(told, Told::Mounted | Told::Failed(_))) {
            if self.power.wait_off(Duration::from_millis(50)) {
                break;
            }
            if qemu.exited()?.is_some() && self.power.changes() == (true, 0) {
                return Ok(None);
            }
            qemu.must_run()?;
            if Instant::now() > deadline {
                bail!("the emulated machine did not mount in {BOOT:?}; see {}", console.display());
            }
        }
        // By what is done and not by time, as nobody knows how fast an emulated machine is.
        let steps = self.rng.random_range(0..LIFE_STEPS);
        let instant = Duration::from_millis(self.rng.random_range(0..500));
        if self.rng.random_ratio(1, 3) {
            self.power.cut_in(self.rng.random_range(0..300));
        }
        let deadline = Instant::now() + LIFE;
        let is_far = |told: &Told| matches!(told, Told::Done(_, step) if *step >= steps);
        while !listener.has(is_far) && Instant::now() < deadline {
            qemu.must_run()?;
            if self.power.wait_off(Duration::from_millis(20)) {
                break;
            }
        }
        self.power.wait_off(instant);
        let (disk, _) = self.power.off();
        qemu.signal(Signal::KILL)?;
        ensure!(qemu.wait(LIMIT)?.is_some(), "qemu did not end");
        Ok(Some((listener.finish(), disk)))
    }

    /// Mounts what the disk has kept, repairs the image and has it checked. Gives the disk as it is
    /// then.
    fn repaired(&mut self, disk: &Disk) -> Result<(Vec<u8>, Tree)> {
        let content = disk.find(DISK).and_then(|inode| disk.content(inode)).context("no disk")?;
        let (raw, mountpoint) = (self.path("after.raw"), self.path("mnt"));
        std::fs::write(&raw, content.bytes.to_vec()).context("writing a disk")?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop"]).arg(&raw).arg(&mountpoint);
        process::run_ok(mount, LIMIT).context("mounting the disk of a machine that has died")?;
        let mounted = Mounted(mountpoint.clone());
        let image = mountpoint.join("image");
        let found = match self.kind {
            kind if kind.is_volume() => self.mounted_again(&mountpoint)?,
            kind => {
                self.counts.note(repair(&image, &self.path("state"))?);
                let path = self.path("repaired");
                std::fs::copy(&image, &path).context("copying the image")?;
                image_tools::check(kind, &path)?;
                check::read_image(kind, &path, &self.path("found"))?
            }
        };
        mounts::unmount_clean(&mountpoint, LIMIT)?;
        drop(mounted);
        await_release(&raw)?;
        check_disk(&raw)?;
        Ok((std::fs::read(&raw).context("reading a disk")?, found))
    }

    /// Mounts a volume again whose store is in that folder, reads and unmounts it, and has it
    /// checked.
    fn mounted_again(&self, folder: &Path) -> Result<Tree> {
        let name = Path::new(volume::NAME).with_extension("toml");
        std::fs::copy(folder.join("names").join(&name), self.path("names").join(&name))
            .context("copying the name of the volume")?;
        let volume = Volume::in_folder(&self.path("names"));
        volume.point_to(&folder.join("image"))?;
        let (mountpoint, state) = (self.path("volume"), self.path("state"));
        let found = volume.with(&mountpoint, &state, &self.path("again.log"), |folder| {
            if self.kind == Kind::VolumeInPlace {
                in_place::mend(folder)?;
            }
            check::read_folder(folder)
        })?;
        volume.check()?;
        Ok(found)
    }
}

/// Waits until no loop device is on that file. A process with a mount table of its own may have a
/// copy of a mount that was taken off here, and the file system is not at rest until that is gone.
fn await_release(raw: &Path) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    let is_on_it = |device: std::fs::DirEntry| {
        let file = std::fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        file.trim_ascii_end() == raw.as_os_str().as_bytes()
    };
    while std::fs::read_dir("/sys/block")?.flatten().any(is_on_it) {
        ensure!(
            Instant::now() < deadline,
            "{} is in use {LIMIT:?} after its unmount",
            raw.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// What the machine's own file system is on must be in order too, or the disk has lost what no disk
/// may lose.
fn check_disk(raw: &Path) -> Result<()> {
    let mut e2fsck = tool("e2fsck");
    e2fsck.args(["-f", "-n"]).arg(raw);
    process::run_ok(e2fsck, LIMIT).context("checking the machine's disk itself").map(drop)
}

fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}
