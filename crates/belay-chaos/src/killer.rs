//! Kills a bed's daemon at moments of its choice.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use belay_testbed::{Bed, Mode, Signal, mounts, process};
use nix::libc;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rustix::process::{Pid, kill_process_group};

use crate::interrupt::Stop;
use crate::worker::Gate;

/// How long a successor may take to appear.
const SUCCESSOR: Duration = Duration::from_secs(60);

/// What keeps kills away from changes.
#[derive(Clone, Debug, Default)]
pub enum Guard {
    /// Nothing does.
    #[default]
    None,
    /// The clients pass a gate; this is its directory.
    Gate(PathBuf),
    /// The clients know nothing: they are stopped for a moment. The process group at work is in here.
    Freeze(Arc<Mutex<Option<u32>>>),
}

/// When and how to kill.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Mean time from a successor's start to its death, beyond what the start takes.
    pub every: Duration,
    /// How long a start takes. Some of the kills are meant for it, most for what comes after.
    pub start: Duration,
    /// Drawn from with equal chances.
    pub signals: Vec<Signal>,
    /// No more than so many.
    pub limit: Option<u64>,
    /// What keeps kills away from changes, if anything.
    pub guard: Guard,
    /// Counts what the clients do, so that kills can be aimed at the start of an operation.
    pub progress: Option<Arc<AtomicU64>>,
}

/// A killer's state as others see it.
#[derive(Debug, Default)]
pub struct Toll {
    kills: AtomicU64,
    failure: Mutex<Option<String>>,
    /// Stops the killer.
    pub stop: Stop,
}

impl Toll {
    /// Kills so far.
    pub fn kills(&self) -> u64 {
        self.kills.load(Ordering::Relaxed)
    }

    /// Why the killer gave up, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A bed held by belay, with these arguments, for somebody who kills its daemon: however often it
/// dies, that is not its own fault, so belay is not to give it up, unless the arguments say so.
pub fn held(belay_args: &[String]) -> Mode {
    let mut extra_args = belay_args.to_vec();
    if !extra_args.iter().any(|arg| arg.starts_with("--max-crashes")) {
        extra_args.push("--max-crashes=0".to_owned());
    }
    Mode::Held { extra_args }
}

/// Kills until it is stopped or has killed enough. Meant for a thread of its own; failures are left in the toll.
pub fn run(bed: &Bed, plan: &Plan, toll: &Toll) {
    if let Err(error) = hunt(bed, plan, toll) {
        *toll.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{error:#}"));
    }
}

fn hunt(bed: &Bed, plan: &Plan, toll: &Toll) -> Result<()> {
    let mut rng = ChaCha12Rng::seed_from_u64(plan.seed ^ 0x6b69_6c6c);
    let gate = if let Guard::Gate(dir) = &plan.guard { Some(Gate::open(dir)?) } else { None };
    if !matches!(plan.guard, Guard::None) {
        mounts::ensure_control_files()?;
    }
    let mut victim = bed.daemon_pid()?;
    while plan.limit.is_none_or(|limit| toll.kills() < limit) {
        // One in ten dies as soon as it is seen: probably while it recovers.
        let start = if rng.random_bool(0.8) { plan.start } else { Duration::ZERO };
        let pause = start + pause(plan.every, &mut rng);
        if !rng.random_bool(0.1) && toll.stop.wait(pause) || toll.stop.asked() {
            return Ok(());
        }
        let signal = *plan.signals.choose(&mut rng).context("no signals to kill with")?;
        let quietly = || await_quiet(bed, victim).and_then(|()| process::kill(victim, signal));
        let killed = match (&gate, &plan.guard, &plan.progress) {
            (Some(gate), ..) => gate.alone(quietly)?,
            (_, Guard::Freeze(group), _) => frozen(group, quietly),
            (_, _, Some(progress)) if rng.random_bool(0.5) => {
                aim(progress, Duration::from_micros(rng.random_range(0..300)));
                process::kill(victim, signal)
            }
            _ => process::kill(victim, signal),
        };
        if let Err(error) = killed {
            bed.check()?;
            if bed.daemon_pid()? == victim {
                return Err(error);
            }
        } else {
            toll.kills.fetch_add(1, Ordering::Relaxed);
            if !bed.is_held() {
                return Ok(());
            }
        }
        victim = successor(bed, victim, &toll.stop)?;
    }
    Ok(())
}

/// Exponentially distributed, as for things that happen at random, but not too long.
fn pause(mean: Duration, rng: &mut ChaCha12Rng) -> Duration {
    let uniform: f64 = rng.random_range(0.001..1.0);
    mean.mul_f64((-uniform.ln()).min(5.0))
}

/// Waits until an operation ends, which is when the next begins, and then a little.
fn aim(progress: &AtomicU64, delay: Duration) {
    let before = progress.load(Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(1);
    while progress.load(Ordering::Relaxed) == before && Instant::now() < deadline {
        std::hint::spin_loop();
    }
    let start = Instant::now();
    while start.elapsed() < delay {
        std::hint::spin_loop();
    }
}

/// Does something while a process group is stopped, which does not end while this lasts.
fn frozen(group: &Mutex<Option<u32>>, what: impl FnOnce() -> Result<()>) -> Result<()> {
    let group = group.lock().unwrap_or_else(PoisonError::into_inner);
    let group = group.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    signal(Signal::STOP);
    let result = what();
    signal(Signal::CONT);
    result
}

/// Waits until the daemon changes nothing and is not about to. That the kernel waits for no reply is not enough: behind
/// its reply a daemon may go on working, and belay has errands of its own (the removal of a file that was unlinked
/// while open comes after the reply to its RELEASE), which the kernel does not count. But each of them is done, or has
/// woken a reader, before the daemon's threads sleep and one of them in the read of the device: a daemon with a single
/// thread, such as ntfs-3g, does nothing at all then. What could follow comes from clients, who are held back, so that
/// a second look tells a rest from a pause between two requests.
fn await_quiet(bed: &Bed, daemon: u32) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut calm = 0;
    while calm < 2 {
        let quiet = mounts::requests_waiting(bed.mountpoint())? == 0 && awaits_requests(daemon);
        calm = if quiet { calm + 1 } else { 0 };
        if Instant::now() > deadline {
            bail!("the daemon (process {daemon}) did not come to rest within 10 s");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Whether all threads of a daemon sleep, and at least one of them in a read of the FUSE device.
fn awaits_requests(daemon: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{daemon}/task")) else { return false };
    let mut reading = false;
    for thread in threads {
        let Ok(thread) = thread.map(|entry| entry.path()) else { return false };
        let text = |name: &str| std::fs::read_to_string(thread.join(name)).unwrap_or_default();
        // Behind the program's name, which may hold anything.
        if !text("stat").rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
            return false;
        }
        reading |= reads_device(&thread, &text("syscall"));
    }
    reading
}

/// Whether a line of `/proc/PID/task/TID/syscall` (number, then arguments in hexadecimal) is a read of the device.
fn reads_device(thread: &Path, line: &str) -> bool {
    let mut words = line.split(' ');
    let number = words.next().and_then(|word| word.parse::<i64>().ok());
    let fd = words.next().and_then(|word| u32::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (Some(number), Some(fd)) = (number, fd) else { return false };
    [libc::SYS_read, libc::SYS_readv, libc::SYS_splice].contains(&number)
        && std::fs::read_link(thread.join(format!("fd/{fd}")))
            .is_ok_and(|file| file == Path::new("/dev/fuse"))
}

/// Waits for a daemon other than `old`. When a stop is asked for meanwhile, it is still waited for.
fn successor(bed: &Bed, old: u32, stop: &Stop) -> Result<u32> {
    let deadline = Instant::now() + SUCCESSOR;
    let mut wait = Duration::from_millis(1);
    loop {
        let seen = bed.daemon_pid();
        match &seen {
            Ok(pid) if *pid != old => return Ok(*pid),
            _ if Instant::now() < deadline => {}
            Ok(_) => {
                bail!("belay still names the killed daemon (process {old}) after {SUCCESSOR:?}")
            }
            Err(_) => return seen.with_context(|| format!("no successor within {SUCCESSOR:?}")),
        }
        bed.check()?;
        if stop.asked() {
            std::thread::sleep(wait);
        } else {
            stop.wait(wait);
        }
        wait = (wait * 2).min(Duration::from_millis(20));
    }
}
