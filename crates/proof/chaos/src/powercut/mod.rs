//! Power failures: belay, the daemon and the applications are gone in one instant, with all their
//! memory, and of what was written to the disk and not synced any part may be missing.
//!
//! | module | answers |
//! | --- | --- |
//! | [`work`] | what the applications do, and what the tree is after each step |
//! | [`machine`] | what runs on the machine that loses its power |
//! | [`disk`] | what a disk may have kept |
//! | [`pages`] | bytes whose copies cost nothing |
//! | [`serve`] | the disk as a mounted folder, and the switch |
//! | [`arguments`] | what both ways are told alike |
//! | [`check`] | whether what is on the image afterwards is right |
//! | [`promise`] | the same for a volume, which promises less of data that were not synced |
//! | [`in_place`] | what else may be there if its data are written in place |
//! | [`volume`] | a volume of belay's own: how it is made, mounted and checked |
//! | [`judge`] | what a machine has told, and whether the image agrees |
//! | [`repair`] | `belay repair` |
//! | [`enclosed`] | a machine as a namespace of processes |
//! | [`build`] | a source tree is built meanwhile, and single processes are killed |
//! | [`builder`] | the part of that which runs on the machine |
//! | [`stages`] | what is there after each stage of a build |
//! | [`life`] | one life of a machine, its end, and what comes after it |
//! | [`vm`] | the same with an emulated machine and its kernel |
//! | [`series`] | one life after another on each fixture |
//! | [`counts`] | the figures |
//! | [`page`] | the figures as a page |

mod arguments;
pub mod build;
mod builder;
mod check;
mod counts;
mod disk;
mod enclosed;
mod in_place;
mod judge;
mod life;
pub mod machine;
mod page;
mod pages;
mod promise;
mod repair;
mod series;
mod serve;
mod stages;
pub mod vm;
mod volume;
mod work;

pub use page::Results;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::interrupt;
use arguments::Common;
use life::Bench;
pub use machine::MachineArgs;

/// For the page.
const HOW: &str = "belay, the daemon and two applications are killed in one instant, at a random change of the disk or at any time; of what the \
     disk was not asked to sync any part is missing afterwards, by sectors and names. Then `belay repair` (or the next `belay \
     run`), the file system's checker, and a comparison with what the applications did.";

/// For the page of a volume.
const HOW_VOLUME: &str = "All processes of a volume and two applications are killed in one instant, at a random change of the disk or at any time; of \
     what the disk was not asked to sync any part is missing afterwards, by sectors, and the memory of the volume is gone. Then it is \
     mounted again, which replays the intent log (and the power goes in that as well, now and then), read, unmounted and checked, and compared \
     with what the applications did: their operations on names are there up to some point, with all that were durable; what was synced is \
     there; a page is old or new.";
/// The same if the memory is kept.
const HOW_KEPT: &str = "All processes of a volume and two applications are killed in one instant, at any time. The memory of the volume and the disk are as \
     they are then. It is mounted again, read, unmounted and checked: each step that an application had done is there, whether it was synced or \
     not.";

/// What becomes of the memory of a volume.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// It is gone, as after a power failure.
    Lost,
    /// It outlives all processes, and the disk loses nothing either.
    Kept,
}

impl Memory {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Kept => "kept",
        }
    }
}

/// Arguments of `powercut`.
#[derive(Clone, Debug, clap::Args)]
pub struct PowercutArgs {
    /// How many times everything is killed, altogether
    #[arg(long, default_value_t = 20)]
    cuts: u64,
    /// Power failures at other changes of the disk, that are tried on the record of each life; 0:
    /// at every one
    #[arg(long, default_value_t = 8)]
    also: u64,
    /// Steps of an application in a life, at most
    #[arg(long, default_value_t = 1500)]
    steps: usize,
    /// Lives of an image before a new one is made
    #[arg(long, default_value_t = 6)]
    lives: u64,
    /// The disk says that it has made things durable, and has not: that must be found to be wrong
    #[arg(long, hide = true)]
    lying_disk: bool,
    /// What becomes of the memory of a volume
    #[arg(long, value_enum, default_value = "lost")]
    memory: Memory,
    /// Further argument for `belay run` (repeatable)
    #[arg(long = "belay-arg", allow_hyphen_values = true)]
    belay_args: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Cuts the power; true if everything was right each time.
pub fn run(args: &PowercutArgs) -> Result<bool> {
    let seed = args.common.seed();
    let interrupted = interrupt::flag()?;
    println!("powercut: seed {seed}, {} applications", args.common.clients);
    let rows = series::run(
        &args.common.fixtures,
        args.cuts,
        &interrupted,
        |kind| Bench::new(args, kind, seed, &interrupted),
        |kind, counts, _| {
            let memory = if args.memory == Memory::Kept { " --memory kept" } else { "" };
            format!(
                "powercut --seed {seed} --fixtures {kind} --cuts {} --also {} --clients {} --steps {} --lives {}{memory}",
                counts.cuts.max(20),
                args.also,
                args.common.clients,
                args.steps,
                args.lives
            )
        },
    )?;
    if let Some(path) = &args.common.page {
        let PowercutArgs { cuts, also, steps, common: Common { clients, .. }, .. } = args;
        let is_volume = args.common.fixtures.iter().all(|kind| kind.is_volume());
        let names: Vec<_> = args.common.fixtures.iter().map(|kind| kind.name()).collect();
        let fixtures = format!(" --fixtures {}", names.join(","));
        let (how, more) = match (is_volume, args.memory) {
            (false, _) => (HOW, String::new()),
            (true, Memory::Lost) => (HOW_VOLUME, fixtures),
            (true, Memory::Kept) => (HOW_KEPT, fixtures + " --memory kept"),
        };
        let command = format!(
            "powercut --cuts {cuts} --also {also} --clients {clients} --steps {steps} --seed {seed}{more}"
        );
        page::write(path, how, &command, &rows)?;
    }
    Ok(series::is_right(&rows))
}
