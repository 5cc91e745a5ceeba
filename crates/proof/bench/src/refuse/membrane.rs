//! What holding a daemon costs that keeps changes in its memory, under the policy `epoch`:
//! Membrane's Tables 4 and 5.

use anyhow::Result;
use belay_fixtures::Mode;
use clap::Args;

use super::{Study, Work, table};
use crate::begun::Common;
use crate::fixtures::Fixtures;
use crate::run_file::Results;

/// Arguments of `membrane`.
#[derive(Args, Clone, Debug)]
pub struct MembraneArgs {
    #[command(flatten)]
    common: Common,
    /// Daemons, separated by commas
    #[arg(long, default_value = "fuse2fs-ext2,fuse2fs-ext3,fuse2fs-ext4,fusefat")]
    fixtures: Fixtures,
    #[command(flatten)]
    work: Work,
    /// Keep belay's own process, a thread of which commits in the background, on the CPU of the
    /// others; without it that may run anywhere, as the kernel's own writeback may
    #[arg(long)]
    commit_here: bool,
    /// The policy with which they are held
    #[arg(long, default_value = "epoch")]
    policy: String,
}

/// Measures, and writes `membrane.json` and `membrane.md`; false where something could not be
/// measured.
pub fn run(args: &MembraneArgs) -> Result<bool> {
    let study = Study {
        name: "membrane",
        work: &args.work,
        held: &Mode::Held { extra_args: vec!["--policy".to_owned(), args.policy.clone()] },
        belay_anywhere: !args.commit_here,
        paper: &table::MEMBRANE,
        results: Results::Membrane,
    };
    study.run(&args.common, &args.fixtures)
}
