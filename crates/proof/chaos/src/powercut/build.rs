//! A source tree is built on a volume while its processes are killed, and again and again all of
//! them in one instant, with its memory or without, and with what its disk was not asked to sync.
//! Then it is mounted again, and the build goes on with what is durable.

mod life;
mod results;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use belay_fixtures::Kind;
use belay_workloads::Scale;

use super::Memory;
use crate::interrupt;
use life::Bench;
pub use results::Results;

/// Arguments of `powercut-build`.
#[derive(Clone, Debug, clap::Args)]
pub struct BuildArgs {
    /// How many times everything is killed
    #[arg(long, default_value_t = 20)]
    cuts: u64,
    /// Mean time until everything is killed, once none, one or two more stages of the build are
    /// done
    #[arg(long, value_parser = humantime::parse_duration, default_value = "2s")]
    life: Duration,
    /// Mean time between two kills of single processes, or several
    #[arg(long, value_parser = humantime::parse_duration, default_value = "500ms")]
    every: Duration,
    /// What becomes of the memory of the volume, drawn with equal chances
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lost,kept")]
    memory: Vec<Memory>,
    /// How much work; `tiny`: a small generated program in place of OpenSSH
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    scale: Scale,
    /// Jobs of `make`
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// Further applications at work at once
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// Go on until so many builds have come to their end as well
    #[arg(long, default_value_t = 0)]
    builds: u64,
    /// Seed of all that is drawn [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Stages are said to be durable, and nothing was synced: that must be found to be wrong
    #[arg(long, hide = true)]
    lying_builder: bool,
    /// Where to put what is needed
    #[arg(long, default_value = "/dev/shm")]
    workdir: PathBuf,
    /// Write the figures here, as a page in Markdown
    #[arg(long)]
    page: Option<PathBuf>,
    /// Leave the files of a life behind in which something was wrong
    #[arg(long)]
    keep: bool,
}

impl BuildArgs {
    fn command(&self, seed: u64, cuts: u64) -> String {
        let Self { life, every, memory, scale, jobs, clients, builds, .. } = self;
        let memory: Vec<_> = memory.iter().map(|memory| memory.name()).collect();
        format!(
            "powercut-build --cuts {cuts} --builds {builds} --life {life:?} --every {every:?} --memory {} --scale {scale} --jobs {jobs} \
             --clients {clients} --seed {seed}",
            memory.join(",")
        )
    }
}

/// Builds and cuts; true if everything was right each time.
pub fn run(args: &BuildArgs) -> Result<bool> {
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let interrupted = interrupt::flag()?;
    println!("powercut-build: seed {seed}");
    let begin = Instant::now();
    let mut bench = Bench::new(args, seed, &interrupted)?;
    let bar = super::counts::bar(Kind::Volume, args.cuts);
    let mut wrong = None;
    while bench.cuts() < args.cuts || bench.builds < args.builds {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let builds = bench.builds;
        let lived = bench.life();
        if bench.builds > builds {
            println!("  a build has ended, {} ends so far, {:.0?}", bench.cuts(), begin.elapsed());
        }
        if let Err(why) = lived {
            let why = format!("{why:#}");
            println!("WRONG in life {}: {why}", bench.number());
            println!("  replay: belay-chaos {}", args.command(seed, args.cuts));
            wrong = Some(why);
            break;
        }
        bar.set_position(bench.cuts());
    }
    bar.finish_and_clear();
    let results = Results {
        version: 1,
        command: args.command(seed, bench.cuts()),
        work: bench.work(),
        stages: bench.stages(),
        builds: bench.builds,
        seconds: begin.elapsed().as_secs(),
        rows: bench.rows.clone(),
        wrong: wrong.clone(),
    };
    println!("{results}");
    if let Some(path) = &args.page {
        results.write(path)?;
    }
    Ok(wrong.is_none())
}
