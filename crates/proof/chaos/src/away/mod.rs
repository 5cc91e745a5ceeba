//! sshfs with its server away for a while, again and again: whoever works on the mount waits, and
//! sees no error.

pub mod client;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, Signal, process};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use crate::interrupt;
use client::{Client, Record, Role};

/// The longest that a mount may take to serve again when its server is back: the longest pause
/// between two tries, and much for a machine that has other things to do.
const BACK: Duration = Duration::from_secs(300);
/// How long a frozen server keeps its connections.
const FROZEN: Duration = Duration::from_millis(300);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(10);

/// Arguments of `away`.
#[derive(Clone, Debug, clap::Args)]
pub struct AwayArgs {
    /// How often a server goes away, on all mounts together
    #[arg(long, default_value_t = 200)]
    times: u64,
    /// The shortest time that one is away
    #[arg(long, value_parser = humantime::parse_duration, default_value = "1s")]
    shortest: Duration,
    /// The longest
    #[arg(long, value_parser = humantime::parse_duration, default_value = "5m")]
    longest: Duration,
    /// Mounts at once, each with a server of its own
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=200))]
    parallel: u64,
    /// Seed of the times and of what is written [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the result in this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What has been seen.
#[derive(Clone, Debug, Default, Serialize)]
struct Seen {
    mounts: u64,
    outages: u64,
    /// Outages at whose end belay said that it waits.
    waited: u64,
    /// Outages in which nobody but the server died.
    broken: u64,
    /// Seconds that servers were away, in all and at most.
    away_s: f64,
    longest_away_s: f64,
    /// From the return of a server until both its clients went on.
    back_after_s: Vec<f64>,
    writes: u64,
    reads: u64,
    bytes_compared: u64,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    seed: u64,
    seconds: f64,
    #[serde(flatten)]
    seen: &'a Seen,
    failures: &'a [String],
}

/// Takes servers away; true if nobody noticed.
pub fn run(args: &AwayArgs) -> Result<bool> {
    ensure!(args.shortest <= args.longest, "--shortest is longer than --longest");
    let interrupted = interrupt::flag()?;
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("seed {seed}");
    let begin = Instant::now();
    let done = AtomicU64::new(0);
    let (mut seen, mut failures) = (Seen::default(), Vec::new());
    std::thread::scope(|scope| -> Result<()> {
        let mut mounts = Vec::new();
        for index in 0..args.parallel.min(args.times) {
            let share = args.times / args.parallel + u64::from(index < args.times % args.parallel);
            let (interrupted, done) = (&*interrupted, &done);
            let name = format!("mount {index}");
            // The server ends with the thread that started it.
            let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, move || {
                let seed = seed.wrapping_add(index << 32);
                let mut seen = Seen::default();
                let result = mount(args, seed, share, interrupted, done, &mut seen);
                (seen, result.map_err(|why| format!("mount {index}: {why:#}")))
            });
            mounts.push(thread.context("starting a thread")?);
        }
        for mount in mounts {
            let Ok((part, result)) = mount.join() else { bail!("a thread panicked") };
            seen.add(part);
            if let Err(why) = result {
                println!("{why}");
                failures.push(why);
            }
        }
        Ok(())
    })?;
    seen.back_after_s.sort_by(f64::total_cmp);
    let seconds = begin.elapsed().as_secs_f64();
    println!("{seen}\n{} failures in {seconds:.0} s", failures.len());
    if let Some(path) = &args.json {
        let report = Report { seed, seconds, seen: &seen, failures: &failures };
        let text = serde_json::to_string_pretty(&report).context("encoding the result")?;
        fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(failures.is_empty() && seen.outages >= args.times)
}

/// One mount, from its start to its end.
fn mount(
    args: &AwayArgs,
    seed: u64,
    times: u64,
    interrupted: &AtomicBool,
    done: &AtomicU64,
    seen: &mut Seen,
) -> Result<()> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    // Without it sshfs acknowledges writes that its server has not got yet, and a server that dies
    // with sshfs takes them along.
    let daemon_opts = vec!["sshfs_sync".to_owned()];
    let options = FixtureOptions { repeatable: true, daemon_opts, ..FixtureOptions::default() };
    let patience = format!("--retry-for={}s", args.longest.as_secs().saturating_mul(2).max(600));
    let mut fixture =
        Fixture::start(Kind::Sshfs, &Mode::Held { extra_args: vec![patience] }, &options)?;
    seen.mounts += 1;
    let mut writer = Client::start(Role::Writer, fixture.root(), seed)?;
    await_work(&fixture, &mut [&mut writer], 1)?;
    let mut reader = Client::start(Role::Reader, fixture.root(), seed)?;
    for _ in 0..times {
        await_work(&fixture, &mut [&mut writer, &mut reader], rng.random_range(2..40))?;
        let away = rng.random_range(args.shortest..=args.longest);
        let kind = [Outage::Both, Outage::Connection, Outage::Frozen][rng.random_range(0..3)];
        outage(&mut fixture, kind, away, interrupted, seen)?;
        let back = Instant::now();
        await_work(&fixture, &mut [&mut writer, &mut reader], 2).with_context(|| {
            let behind = fs::metadata(fixture.backing().join(client::LOG)).map(|meta| meta.len());
            format!("after {away:?} without the server (whose log has {behind:?} bytes)")
        })?;
        let after = back.elapsed().as_secs_f64();
        seen.back_after_s.push(after);
        if interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        seen.outages += 1;
        let number = done.fetch_add(1, Ordering::Relaxed) + 1;
        println!("{number}: away for {:.1} s, back after {after:.1} s", away.as_secs_f64());
    }
    let record = writer.finish(BACK)?;
    seen.reads += reader.finish(BACK)?.operations;
    seen.writes += record.operations;
    seen.bytes_compared += check(&fixture, seed, &record)?;
    fixture.stop()
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// The server freezes, sshfs is killed, the server dies.
    Both,
    /// The server dies under requests; sshfs, which tells their callers and ends, is left to
    /// itself.
    Connection,
    /// The server freezes, requests with it, and then dies.
    Frozen,
}

/// Takes the server away, perhaps sshfs with it, and brings the server back.
fn outage(
    fixture: &mut Fixture,
    kind: Outage,
    away: Duration,
    interrupted: &AtomicBool,
    seen: &mut Seen,
) -> Result<()> {
    let daemon = fixture.daemon_pid()?;
    match kind {
        Outage::Both => {
            fixture.server().context("no server")?.freeze()?;
            process::kill(daemon, Signal::KILL)?;
        }
        Outage::Connection => seen.broken += 1,
        Outage::Frozen => {
            fixture.server().context("no server")?.freeze()?;
            std::thread::sleep(FROZEN); // requests come meanwhile
            seen.broken += 1;
        }
    }
    fixture.server().context("no server")?.stop()?;
    let begin = Instant::now();
    while begin.elapsed() < away && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK.min(away.saturating_sub(begin.elapsed())));
    }
    seen.waited += u64::from(fixture.belay_status()?["state"] == "waiting");
    let begun = begin.elapsed().as_secs_f64();
    seen.away_s += begun;
    seen.longest_away_s = seen.longest_away_s.max(begun);
    fixture.server().context("no server")?.start_again()
}

/// Waits until each of the clients has done so many operations more.
fn await_work(fixture: &Fixture, clients: &mut [&mut Client], more: u64) -> Result<()> {
    let end = Instant::now() + BACK;
    let wanted: Vec<u64> = clients.iter().map(|client| client.done() + more).collect();
    loop {
        let mut all = true;
        for (client, wanted) in clients.iter_mut().zip(&wanted) {
            client.check()?;
            all &= client.done() >= *wanted;
        }
        if all {
            return Ok(());
        }
        fixture.check()?;
        if Instant::now() > end {
            bail!("the mount does not answer: {}", fixture.belay_status()?);
        }
        std::thread::sleep(LOOK);
    }
}

/// Compares what is behind the mount with what the writer was told is written.
fn check(fixture: &Fixture, seed: u64, record: &Record) -> Result<u64> {
    let mut bytes = 0;
    let mut expect = |name: &str, wanted: Vec<u8>| -> Result<()> {
        let path = fixture.backing().join(name);
        let found = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        bytes += wanted.len() as u64;
        let at = found.iter().zip(&wanted).position(|(a, b)| a != b);
        ensure!(
            found == wanted,
            "{name} is wrong: {} bytes for {}, at {at:?}",
            found.len(),
            wanted.len()
        );
        Ok(())
    };
    expect(client::LOG, (0..record.records).flat_map(|index| client::line(seed, index)).collect())?;
    for index in 0..record.files {
        expect(&client::name(index), client::content(seed, index))?;
    }
    let entries = fs::read_dir(fixture.backing()).context("listing what is behind the mount")?;
    ensure!(entries.count() as u64 == record.files + 1, "there are files that nobody has made");
    Ok(bytes)
}

impl Seen {
    fn add(&mut self, part: Self) {
        self.mounts += part.mounts;
        self.outages += part.outages;
        self.waited += part.waited;
        self.broken += part.broken;
        self.away_s += part.away_s;
        self.longest_away_s = self.longest_away_s.max(part.longest_away_s);
        self.back_after_s.extend(part.back_after_s);
        self.writes += part.writes;
        self.reads += part.reads;
        self.bytes_compared += part.bytes_compared;
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let median =
            self.back_after_s.get(self.back_after_s.len() / 2).copied().unwrap_or_default();
        let most = self.back_after_s.last().copied().unwrap_or_default();
        write!(
            out,
            "{} outages on {} mounts ({} of the server alone), {} of them waited for, {:.0} s in all and {:.1} s at most; back after {median:.1} s \
             (median), {most:.1} s (longest); {} writes, {} reads, {} bytes compared",
            self.outages,
            self.mounts,
            self.broken,
            self.waited,
            self.away_s,
            self.longest_away_s,
            self.writes,
            self.reads,
            self.bytes_compared
        )
    }
}
