//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::begun::{Begun, Common};
use crate::carry::{self, CarryArgs};
use crate::fixtures::Fixtures;
use crate::layouts::{self, LayoutsArgs};
use crate::model::{BlackoutFixture, BlackoutRun, CostRun, Failure, MemoryRun};
use crate::ops::Op;
use crate::pages::{self, PageArgs};
use crate::path::{self, CountedArgs, PathArgs};
use crate::recovery::{self, RecoveryArgs};
use crate::refuse::membrane::{self, MembraneArgs};
use crate::refuse::{self, RefuseArgs};
use crate::report::Holder;
use crate::restart::{self, RestartArgs};
use crate::run_file::Results;
use crate::{blackout, cost, memory, report};

#[derive(Parser)]
#[command(version, about = "Measures what belay costs, against the bare daemon in the same run")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Time of each operation, held against bare, in pairs of samples
    Cost(CostArgs),
    /// What belay itself adds to a request, without kernel and daemon: nanoseconds and instructions
    Path(PathArgs),
    /// What it costs to bring a message through a relay: copied, and by splice(2)
    Carry(CarryArgs),
    /// Do nothing but some operations (started by `path`)
    #[command(hide = true)]
    Counted(CountedArgs),
    /// Memory per cached node, fixed, and per open file
    Memory(MemoryArgs),
    /// The pause that an application sees when the daemon is killed
    Blackout(BlackoutArgs),
    /// What holding a daemon costs whole programs: the benchmarks of the Re-FUSE study
    Refuse(RefuseArgs),
    /// What one crash in the middle of a sort costs, as in the Re-FUSE study
    Restart(RestartArgs),
    /// What holding a daemon that buffers costs whole programs: the benchmarks of the Membrane
    /// study
    Membrane(MembraneArgs),
    /// How long a recovery takes by how much there is to be recovered, as in the Membrane study
    Recovery(RecoveryArgs),
    /// What layouts of a volume cost, and which of them survive power failures, as in the study of
    /// Loris
    Layouts(LayoutsArgs),
    /// The page of results of `layouts` or `blackout`, made anew
    Page(PageArgs),
    /// Tables, plots and CSV from results files
    Report(ReportArgs),
}

#[derive(Args)]
struct CostArgs {
    #[command(flatten)]
    common: Common,
    /// Daemons, separated by commas, or `all`
    #[arg(long, default_value = "passthrough-ll,bindfs")]
    fixtures: Fixtures,
    /// Operations, separated by commas; all if not given
    #[arg(long, value_delimiter = ',')]
    ops: Vec<Op>,
    /// Numbers of client threads
    #[arg(long, value_delimiter = ',', default_value = "1,4", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Vec<u8>,
    /// Pairs of samples for each operation [default: 30, with --quick 6]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Starts of both daemons, best an even number, over which the rounds are spread [default: 6,
    /// with --quick 2]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    sessions: Option<u16>,
    /// Aimed length of one sample in milliseconds [default: 40, with --quick 20]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batch_ms: Option<u64>,
    /// Bare against bare: shows the noise of the method
    #[arg(long)]
    aa: bool,
    /// A short run that shows that everything works
    #[arg(long)]
    quick: bool,
}

#[derive(Args)]
struct MemoryArgs {
    #[command(flatten)]
    common: Common,
    /// Daemons, separated by commas, or `all`
    #[arg(long, default_value = "bindfs")]
    fixtures: Fixtures,
    /// Nodes to be looked up
    #[arg(long, default_value_t = 1_000_000)]
    nodes: u64,
    /// Files to be held open at the end
    #[arg(long, default_value_t = 0, value_name = "N")]
    files: u64,
    /// Bare against bare
    #[arg(long)]
    aa: bool,
}

#[derive(Args)]
struct BlackoutArgs {
    #[command(flatten)]
    common: Common,
    /// Daemons, separated by commas, or `all`
    #[arg(long, default_value = "all")]
    fixtures: Fixtures,
    /// Kills of each held daemon
    #[arg(long, default_value_t = 100)]
    kills: usize,
    /// Starts of each bare daemon
    #[arg(long, default_value_t = 20)]
    starts: usize,
    /// Nodes to be cached while the daemon is killed
    #[arg(long, default_value_t = 0)]
    nodes: u64,
    /// Files to be open while the daemon is killed
    #[arg(long, default_value_t = 0)]
    open_files: u64,
    /// Seed of the times between kills
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the bare daemon's start, without belay
    #[arg(long)]
    bare_only: bool,
}

#[derive(Args)]
struct ReportArgs {
    /// Directory of the results files
    #[arg(long = "in", default_value = "target/bench", value_name = "DIR")]
    input: PathBuf,
    /// Where to write benchmarks.md, benchmarks.html and benchmarks/*.csv
    #[arg(long, default_value = "docs", value_name = "DIR")]
    out: PathBuf,
    /// The relay holds the daemons: the aims of the shim's cost are not for it
    #[arg(long)]
    relay: bool,
    /// Write nothing; fail if what is there is not as it would be written
    #[arg(long)]
    check: bool,
}

/// Does what the command line says; false where something could not be measured.
pub fn run() -> Result<bool> {
    match Cli::parse().command {
        Command::Cost(args) => run_cost(args),
        Command::Path(args) => path::run(&args),
        Command::Carry(args) => carry::run(&args),
        Command::Counted(args) => path::run_counted(&args),
        Command::Memory(args) => run_memory(&args),
        Command::Blackout(args) => run_blackout(&args),
        Command::Refuse(args) => refuse::run(&args),
        Command::Restart(args) => restart::run(&args),
        Command::Membrane(args) => membrane::run(&args),
        Command::Recovery(args) => recovery::run(&args),
        Command::Layouts(args) => layouts::run(&args),
        Command::Page(args) => pages::run(&args),
        Command::Report(args) => {
            let holder = if args.relay { Holder::Relay } else { Holder::Shim };
            if args.check {
                return report::is_true(&args.input, &args.out, holder);
            }
            for path in report::write(&args.input, &args.out, holder)? {
                println!("{}", path.display());
            }
            Ok(true)
        }
    }
}

fn run_cost(args: CostArgs) -> Result<bool> {
    let plan = cost::Plan {
        ops: if args.ops.is_empty() { Op::all() } else { args.ops },
        threads: args.threads.into_iter().map(usize::from).collect(),
        rounds: args.rounds.unwrap_or(if args.quick { 6 } else { 30 }).into(),
        sessions: args.sessions.unwrap_or(if args.quick { 2 } else { 6 }).into(),
        batch: Duration::from_millis(args.batch_ms.unwrap_or(if args.quick { 20 } else { 40 })),
        aa: args.aa,
    };
    let begun = Begun::new(&args.common, if args.aa { "cost-aa" } else { "cost" })?;
    if args.aa {
        println!("bare against bare: `held` below is a second bare daemon");
    }
    let mut run = CostRun {
        aa: plan.aa,
        rounds: plan.rounds,
        sessions: plan.sessions,
        batch_ms: u64::try_from(plan.batch.as_millis()).unwrap_or(u64::MAX),
        fixtures: Vec::new(),
    };
    for kind in args.fixtures.0 {
        let fixture = cost::measure(kind, &plan);
        match fixture.geometric_mean {
            Some(mean) => println!(
                "{kind}: geometric mean {mean:.4} over {} cases; daemons on CPUs {} (bare) and {} ({})",
                fixture.cases.len(),
                fixture.daemon_cpus[0],
                fixture.daemon_cpus[1],
                if args.aa { "bare too" } else { "held" },
            ),
            None => println!("{kind}: nothing was measured"),
        }
        run.fixtures.push(fixture);
        begun.write(Results::Cost(run.clone()))?;
    }
    println!("results: {}", begun.path().display());
    Ok(run.fixtures.iter().all(|b| b.failures.is_empty()))
}

fn run_memory(args: &MemoryArgs) -> Result<bool> {
    let begun = Begun::new(&args.common, if args.aa { "memory-aa" } else { "memory" })?;
    let mut run = MemoryRun { aa: args.aa, fixtures: Vec::new(), failures: Vec::new() };
    for kind in &args.fixtures.0 {
        match memory::measure(*kind, args.nodes, args.files, args.aa) {
            Ok(fixture) => {
                let s = &fixture.summary;
                println!(
                    "{kind}: {} nodes: belay {:.1} bytes/node, {} bytes fixed; daemon {:+.1} bytes/node (bare {:.1}), \
                     {:+} bytes fixed; {} bytes per open file",
                    fixture.nodes,
                    s.belay_per_node,
                    s.belay_fixed,
                    s.daemon_per_node,
                    s.bare_daemon_per_node,
                    s.daemon_fixed,
                    s.per_open_file.map_or("-".to_owned(), |b| format!("{b:+.1}")),
                );
                run.fixtures.push(fixture);
            }
            Err(error) => run.failures.push(Failure::new(kind, &error)),
        }
        begun.write(Results::Memory(run.clone()))?;
    }
    println!("results: {}", begun.path().display());
    Ok(run.failures.is_empty())
}

fn run_blackout(args: &BlackoutArgs) -> Result<bool> {
    let name = match (args.nodes, args.open_files) {
        (0, 0) => "blackout".to_owned(),
        (nodes, files) => format!("blackout-n{nodes}-f{files}"),
    };
    let begun = Begun::new(&args.common, &name)?;
    let plan = blackout::Plan {
        kills: args.kills,
        starts: args.starts,
        nodes: args.nodes,
        open_files: args.open_files,
        seed: args.seed,
    };
    let mut run = BlackoutRun {
        nodes: args.nodes,
        open_files: args.open_files,
        kills: args.kills,
        fixtures: Vec::new(),
        failures: Vec::new(),
    };
    for kind in &args.fixtures.0 {
        match blackout::measure(*kind, &plan, !args.bare_only, &mut run.failures) {
            Ok(fixture) => {
                print_blackout(&fixture);
                run.fixtures.push(fixture);
            }
            Err(error) => run.failures.push(Failure::new(kind, &error)),
        }
        begun.write(Results::Blackout(run.clone()))?;
    }
    println!("results: {}", begun.path().display());
    Ok(run.failures.is_empty() && run.fixtures.iter().all(|b| b.errors == 0))
}

fn print_blackout(fixture: &BlackoutFixture) {
    let show = |spread: &Option<crate::stats::Spread>| {
        spread.as_ref().map_or("-".to_owned(), |s| {
            format!("{:.2} / {:.2} / {:.2} ms", s.median / 1e3, s.p99 / 1e3, s.max / 1e3)
        })
    };
    println!(
        "{:<15} {} nodes, {} open files: bare start {}; pause {} ({} kills, {} errors in {} answers); \
         median / p99 / max",
        fixture.fixture,
        fixture.nodes,
        fixture.open_files,
        show(&fixture.bare_start),
        show(&fixture.pause),
        fixture.pause_us.len(),
        fixture.errors,
        fixture.answers,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        for line in [
            "belay-bench cost --fixtures passthrough_ll,bindfs --rounds 3 --pin none --ops stat,seq-read-4k --quick --aa",
            "belay-bench memory --nodes 1000 --files 10",
            "belay-bench blackout --fixtures all --kills 5 --nodes 1000000 --open-files 10000",
            "belay-bench path --count 1000 --no-instructions --pin 0",
            "belay-bench counted negative-lookup held 100",
            "belay-bench report --in a --out b",
            "belay-bench refuse --fixtures sshfs --rounds 2 --macro-rounds 0 --file-mib 4 --no-control",
            "belay-bench refuse --workloads sort,openssh,postmark --scale paper --pin none",
            "belay-bench membrane --fixtures fuse2fs-ext2,fusefat --rounds 2 --workloads sort --scale tiny --policy epoch",
            "belay-bench recovery --fixtures fusefat --crashes 5 --series dirty,changes --records 10,100 --dirty-mb 1",
            "belay-bench layouts --rounds 5 --benchmarks postmark,files --postmark-files 100 --transactions 200 --seeds 10",
            "belay-bench restart --fixtures avfs --crashes 5 --plain 2 --size-mb 10 --signal KILL",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        assert!(Cli::try_parse_from(["belay-bench", "cost", "--rounds", "0"]).is_err());
    }
}
