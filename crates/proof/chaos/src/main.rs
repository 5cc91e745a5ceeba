//! `belay-chaos`: the differential soak, the demo and the test suites, all under fire.
#![forbid(unsafe_code)]

mod away;
mod compare;
mod demo;
mod exec;
mod generate;
mod interrupt;
mod killer;
mod ops;
mod page;
mod pool;
mod powercut;
mod report;
mod scribble;
mod soak;
mod study;
mod suite;
mod target;
mod volume;
mod worker;
mod zoo;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Kills the daemons of held mounts and checks that nobody notices.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Drive the same random operations against a held mount under fire and against an oracle, and
    /// compare
    ///
    /// Every result is compared as it comes, and the trees at the end. The sequence depends on seed
    /// and number of processes alone, so a divergence can be replayed; the moments of the kills are
    /// new each time.
    Soak(soak::SoakArgs),
    /// Show it: real work on a real sshfs whose daemon is killed again and again
    Demo(demo::DemoArgs),
    /// Run a file system test suite on the bare daemon and on the held mount under fire, and
    /// compare test by test
    Suite(suite::SuiteArgs),
    /// Crash daemons systematically, and tabulate what applications and file systems see of it
    Study(study::StudyArgs),
    /// Kill belay, daemon and applications at once, lose what was not synced, and check what is
    /// left on the image
    ///
    /// The image lies on a disk of this program's own, which notes each write and sync. When the
    /// power goes, of what was not synced any part may be missing. After `belay repair` the image
    /// has to be clean, with all that was acknowledged as durable, and each application's files as
    /// they were at one instant.
    Powercut(powercut::PowercutArgs),
    /// Cut the power of an emulated machine in which belay works, and check what is left on the
    /// image
    ///
    /// As `powercut`, but the kernel is lost as well with all that it had not written yet. Needs
    /// what `scripts/setup-vm` prepares, and root for a loop device.
    PowercutVm(powercut::vm::VmArgs),
    /// Build a source tree on a volume, kill its processes, and again and again all at once
    ///
    /// The memory of the volume is kept or lost, with what its disk was not asked to sync. After
    /// each end it is mounted again and checked, and the build goes on with what was durable. Its
    /// end must be that of an undisturbed one. Needs what `scripts/setup-study` gets.
    PowercutBuild(powercut::build::BuildArgs),
    /// The machine that loses its power (started by `powercut`)
    #[command(hide = true)]
    PowercutMachine(powercut::MachineArgs),
    /// Soak every daemon of the table (archives, overlays, encryption, object stores and more), one
    /// after the other
    Zoo(zoo::ZooArgs),
    /// Find out by `belay qualify` which policy each daemon of the table needs
    Certify(zoo::certify::CertifyArgs),
    /// Write pages anew from their results (soak, power failures, studies), or look whether they
    /// are true
    Page(page::PageArgs),
    /// Write the page about the daemons from the results
    ZooPage(zoo::page::PageArgs),
    /// Scribble over the memory that belay shares with a daemon, under load: it may lose the mount,
    /// and nothing else
    Scribble(scribble::ScribbleArgs),
    /// Take the server of an sshfs away, and sshfs with it, for a while, again and again: whoever
    /// works on the mount waits
    Away(away::AwayArgs),
    /// Work on a mount whose server goes away (started by `away`)
    #[command(hide = true)]
    AwayClient(away::client::ClientArgs),
    /// Carry out operations for a soak (started by it)
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

fn main() -> ExitCode {
    let result: Result<bool> = match Cli::parse().command {
        Command::Soak(args) => soak::run(&args),
        Command::Zoo(args) => zoo::run(&args),
        Command::Certify(args) => zoo::certify::run(&args),
        Command::Page(args) => page::run(&args),
        Command::ZooPage(args) => zoo::page::run(&args),
        Command::Scribble(args) => scribble::run(&args),
        Command::Away(args) => away::run(&args),
        Command::AwayClient(args) => away::client::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Suite(args) => suite::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Powercut(args) => powercut::run(&args),
        Command::PowercutVm(args) => powercut::vm::run(&args),
        Command::PowercutBuild(args) => powercut::build::run(&args),
        Command::PowercutMachine(args) => powercut::machine::run(&args),
        Command::Worker(args) => worker::serve(&args).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("belay-chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}
