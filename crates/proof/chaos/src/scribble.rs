//! Scribbles over the memory that belay shares with a daemon, under load: belay may lose what it
//! knew of the mount, and then says so. It must not die of it, hang, or touch anything else.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, Signal, process};
use clap::ValueEnum;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde_json::Value;

use crate::compare::{Oracle, Rules};
use crate::generate::{Generator, Names};
use crate::interrupt;
use crate::ops::{Batch, Round};
use crate::pool::Pool;

/// How long belay may take to answer, and to come to an end.
const ANSWER: Duration = Duration::from_secs(60);
/// What a supervisor may take of memory, whatever it reads.
const MEMORY: u64 = 1 << 30;

/// A policy, and a daemon that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Held {
    Reconcile,
    Journal,
    Transaction,
    Epoch,
    Buffer,
}

impl Held {
    fn kind(self) -> Result<Kind> {
        Ok(match self {
            Self::Reconcile | Self::Journal => Kind::Bindfs,
            Self::Transaction => Kind::Ntfs3g,
            Self::Epoch => Kind::Fuse2fsExt4,
            Self::Buffer => Kind::parse("fuse-zip")?,
        })
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Arguments of `scribble`.
#[derive(Clone, Debug, clap::Args)]
pub struct ScribbleArgs {
    /// Mounts whose memory is scribbled over, for each policy
    #[arg(long, default_value_t = 100)]
    times: u64,
    /// Policies
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Held::Reconcile, Held::Journal, Held::Transaction, Held::Epoch, Held::Buffer])]
    policies: Vec<Held>,
    /// Seed of what is written where [default: random]
    #[arg(long)]
    seed: Option<u64>,
}

/// What has been seen.
#[derive(Debug, Default)]
struct Toll {
    mounts: u64,
    words: u64,
    kills: u64,
    given_up: u64,
}

/// Scribbles; true if belay withstood all of it.
pub fn run(args: &ScribbleArgs) -> Result<bool> {
    let interrupted = interrupt::flag()?;
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("scribble: seed {seed}");
    let mut good = true;
    for held in &args.policies {
        let mut toll = Toll::default();
        let number = held.kind()?.number();
        for time in 0..args.times {
            if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(false);
            }
            let mut rng = ChaCha12Rng::seed_from_u64(seed.wrapping_add(time) ^ number << 40);
            if let Err(why) = scribble(*held, &mut rng, &mut toll) {
                good = false;
                println!(
                    "{}: {why:#}\n  replay: belay-chaos scribble --policies {} --times 1 --seed {}",
                    held.name(),
                    held.name(),
                    seed.wrapping_add(time)
                );
            }
        }
        println!(
            "{:<12} {} mounts, {} words, {} kills, {} mounts given up",
            held.name(),
            toll.mounts,
            toll.words,
            toll.kills,
            toll.given_up
        );
    }
    Ok(good)
}

/// One mount, from its start to its end.
fn scribble(held: Held, rng: &mut ChaCha12Rng, toll: &mut Toll) -> Result<()> {
    let kind = held.kind()?;
    let options = FixtureOptions { image_mib: 32, ..FixtureOptions::default() };
    let policy = ["--policy".to_owned(), held.name(), "--max-crashes=5".to_owned()];
    let fixture = Fixture::start(kind, &Mode::Held { extra_args: policy.to_vec() }, &options)?;
    toll.mounts += 1;
    let first = fixture.belay_status()?;
    let pids = ["/supervisor/pid", "/keeper/pid"].map(|path| pid(&first, path));
    let [Some(supervisor), Some(keeper)] = pids else { bail!("no processes in {first}") };
    let recorder = recorder(supervisor)?;
    let mut pool = Pool::start("the mount", &fixture, 2, ANSWER)?;
    let mut generator =
        Generator::new(rng.random(), 2, Rules::scope(kind, Oracle::Bare), &Names::default());
    work(&mut pool, &generator.prologue());
    for _ in 0..4 {
        work(&mut pool, &generator.round());
        for _ in 0..rng.random_range(1..400) {
            let Some(at) = word_in_use(&recorder, rng)? else { continue };
            recorder
                .write_all_at(&value(&recorder, rng).to_ne_bytes(), at)
                .context("scribbling")?;
            toll.words += 1;
        }
        if rng.random_bool(0.5)
            && let Ok(victim) = fixture.daemon_pid()
        {
            let signal = *[Signal::KILL, Signal::SEGV].choose(rng).unwrap_or(&Signal::KILL);
            toll.kills += u64::from(process::kill(victim, signal).is_ok());
        }
        let Some(status) = ask(&fixture)? else { break };
        ensure!(
            pid(&status, "/supervisor/pid") == Some(supervisor),
            "the supervisor died: {status}"
        );
        ensure!(pid(&status, "/keeper/pid") == Some(keeper), "the keeper died: {status}");
        let peak = peak(supervisor);
        ensure!(peak.is_none_or(|peak| peak < MEMORY), "the supervisor took {peak:?} bytes");
    }
    drop(pool);
    let words = fixture.last_words();
    ensure!(!words.contains("panicked"), "a panic{words}");
    toll.given_up += u64::from(fixture.check().is_err());
    fixture.end(ANSWER)
}

/// The status; `None` if belay has given the mount up and ended.
fn ask(fixture: &Fixture) -> Result<Option<Value>> {
    let begin = Instant::now();
    match fixture.belay_status() {
        Ok(status) => Ok(Some(status)),
        Err(_) if fixture.check().is_err() => Ok(None),
        Err(why) if begin.elapsed() > ANSWER => Err(why.context("belay hangs")),
        Err(why) => Err(why),
    }
}

/// Does a round's work, whatever comes of it.
fn work(pool: &mut Pool, round: &Round) {
    let batches: Vec<&Batch> = round.own.iter().chain(&round.shared).collect();
    for batch in batches {
        if pool.order(batch, false).is_err() {
            return;
        }
        for op in &batch.ops {
            if pool.answer(batch.worker, op).is_err() {
                return;
            }
        }
    }
}

fn pid(status: &Value, path: &str) -> Option<u32> {
    status.pointer(path)?.as_u64().and_then(|pid| u32::try_from(pid).ok())
}

/// The memory that a supervisor shares with its daemon: of what it has open the memory file with
/// that name, or the largest file that has none.
fn recorder(supervisor: u32) -> Result<File> {
    let mut found = None;
    for entry in fs::read_dir(format!("/proc/{supervisor}/fd")).context("looking at its files")? {
        let path = entry?.path();
        let Ok(target) = fs::read_link(&path) else { continue };
        let name = target.to_string_lossy().into_owned();
        let size = fs::metadata(&path).map(|meta| meta.len()).unwrap_or_default();
        if name.contains("belay-recorder") || (name.contains("deleted") && size > 1 << 28) {
            found = Some(path);
        }
    }
    let path = found.context("it has no recorder open")?;
    File::options()
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))
}

/// A word that is in use: most of a recorder is a hole.
fn word_in_use(recorder: &File, rng: &mut ChaCha12Rng) -> Result<Option<u64>> {
    let length = recorder.metadata().context("looking at the recorder")?.len();
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while extents.len() < 64 {
        let Ok(start) = rustix::fs::seek(recorder, rustix::fs::SeekFrom::Data(at)) else { break };
        let end = rustix::fs::seek(recorder, rustix::fs::SeekFrom::Hole(start)).unwrap_or(length);
        extents.push((start, end));
        at = end;
    }
    let mut seeker = recorder;
    seeker.seek(SeekFrom::Start(0)).context("seeking")?;
    let Some((start, end)) = extents.choose(rng) else { return Ok(None) };
    // The beginning of an extent is where headers and counters are.
    let span = if rng.random_bool(0.3) { (end - start).min(4096) } else { end - start };
    Ok(Some(start + rng.random_range(0..span.max(8)) / 8 * 8))
}

/// What is written: bits that mean much, numbers that are plausible, or what stands elsewhere.
fn value(recorder: &File, rng: &mut ChaCha12Rng) -> u64 {
    match rng.random_range(0..7) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.random(),
        3 => rng.random_range(0..4096),
        4 => rng.random_range(0..4096) << 32 | rng.random_range(0..4096),
        5 => 1 << rng.random_range(0..64),
        _ => {
            let mut word = [0; 8];
            let at = word_in_use(recorder, rng).ok().flatten().unwrap_or_default();
            let _ = recorder.read_exact_at(&mut word, at);
            u64::from_ne_bytes(word)
        }
    }
}

/// The most memory that a process has had.
fn peak(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    // Its own: the memory that it shares is the recorder.
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}
