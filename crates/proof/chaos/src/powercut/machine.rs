//! The machine that loses its power: `belay run`, the daemon and the applications. It is process 1
//! of a process namespace (or of an emulated machine), so that all of it ends in one instant.
//!
//! It tells of what it has done on its standard output, a line each: nothing else of it is left in
//! the end.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use belay_fixtures::process::Process;
use belay_fixtures::{Belay, Kind, image_tools, mounts};

use super::builder;
use super::volume::Volume;
use super::work::Script;

const START: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(30);

/// Arguments of the hidden command `powercut-machine`.
#[derive(Clone, Debug, clap::Args)]
pub struct MachineArgs {
    /// The daemon
    #[arg(long)]
    pub kind: Kind,
    /// Its image
    #[arg(long)]
    pub image: PathBuf,
    /// Where to mount it
    #[arg(long)]
    pub mountpoint: PathBuf,
    /// For belay's sockets and reports
    #[arg(long)]
    pub state_dir: PathBuf,
    /// The folder with the name of the volume, if it is one
    #[arg(long)]
    pub names: Option<PathBuf>,
    /// Seed of the applications
    #[arg(long)]
    pub seed: u64,
    /// How many applications
    #[arg(long)]
    pub clients: usize,
    /// The number of this life of the image
    #[arg(long)]
    pub life: u64,
    /// Steps of each application, after which it waits
    #[arg(long)]
    pub steps: usize,
    /// Unmount after those, instead of waiting
    #[arg(long)]
    pub leave: bool,
    /// The volume has as much memory as by default
    #[arg(long)]
    pub usual_memory: bool,
    /// What is to be built besides, and who is to be killed meanwhile, as JSON
    #[arg(long)]
    pub order: Option<PathBuf>,
    /// Further argument for belay (repeatable)
    #[arg(long = "belay-arg", allow_hyphen_values = true)]
    pub belay_args: Vec<String>,
}

/// A line that the machine writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The daemon serves.
    Mounted,
    /// An application is done with a step, and with all before.
    Done(usize, usize),
    /// So many stages of the build are done, and what they made is durable.
    Built(usize),
    /// So many processes were killed.
    Killed(u64),
    /// The file system was unmounted, and belay has ended.
    Ended,
    /// Something failed.
    Failed(String),
}

impl Told {
    fn line(&self) -> String {
        match self {
            Self::Mounted => "power: mounted\n".to_owned(),
            Self::Done(client, step) => format!("power: done {client} {step}\n"),
            Self::Built(stages) => format!("power: built {stages}\n"),
            Self::Killed(processes) => format!("power: killed {processes}\n"),
            Self::Ended => "power: ended\n".to_owned(),
            Self::Failed(why) => format!("power: failed {}\n", why.replace('\n', " ")),
        }
    }

    /// Reads a line; others may be between them.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, line) = line.trim_end().split_once("power: ")?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "mounted" => Self::Mounted,
            "done" => {
                let (client, step) = rest.split_once(' ')?;
                Self::Done(client.parse().ok()?, step.parse().ok()?)
            }
            "built" => Self::Built(rest.parse().ok()?),
            "killed" => Self::Killed(rest.parse().ok()?),
            "ended" => Self::Ended,
            "failed" => Self::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

pub(super) fn tell(told: &Told) {
    // One write, so that lines of several threads do not mix.
    let _ = std::io::stdout().lock().write_all(told.line().as_bytes());
    let _ = std::io::stdout().lock().flush();
}

/// The folder that an application works in, and the seed of its steps.
pub fn client(kind: Kind, seed: u64, life: u64, client: usize) -> Script {
    let folder = format!("life{life}-{client}");
    let seed = seed.wrapping_mul(0x9e37_79b9).wrapping_add(life << 8 | client as u64);
    match kind {
        Kind::Fusefat => Script::of_fat(seed, &folder),
        _ => Script::new(seed, &folder),
    }
}

/// The machine, until it is killed.
pub fn run(args: &MachineArgs) -> Result<bool> {
    // It lives until the power goes, whatever fails.
    let mut belay = None;
    if let Err(why) = work(args, &mut belay) {
        tell(&Told::Failed(format!("{why:#}")));
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn work(args: &MachineArgs, belay: &mut Option<Process>) -> Result<()> {
    let command = match &args.names {
        Some(names) => {
            let volume = Volume::in_folder(names);
            let volume = if args.usual_memory { volume.with_usual_memory() } else { volume };
            volume.mount(&args.mountpoint, &args.state_dir, &args.belay_args)?
        }
        None => {
            let words = image_tools::daemon(args.kind, &args.image, &args.mountpoint)?;
            let mut belay = Belay::find()?.command();
            belay.args(["run", "--policy", "epoch", "--state-dir"]).arg(&args.state_dir);
            belay.args(&args.belay_args).arg("--").args(words);
            belay
        }
    };
    // What belay and the daemon say must not come between the lines.
    let log = args.state_dir.with_file_name("belay.log");
    let belay = belay.insert(Process::start(command, &log)?);
    mounts::wait(&args.mountpoint, true, START, || belay.must_run())?;
    std::fs::metadata(&args.mountpoint).context("first look at the mount")?;
    tell(&Told::Mounted);
    std::thread::scope(|scope| {
        for client in 0..args.clients {
            scope.spawn(move || apply(args, client));
        }
        if let Some(order) = &args.order {
            scope.spawn(|| builder::carry_out(order, &args.mountpoint, &args.state_dir));
        }
    });
    if args.leave {
        mounts::unmount_clean(&args.mountpoint, END)?;
        let status = belay.child().wait().context("waiting for belay")?;
        ensure!(status.success(), "belay ended with {status}");
        tell(&Told::Ended);
    }
    Ok(())
}

fn apply(args: &MachineArgs, number: usize) {
    for (count, step) in
        client(args.kind, args.seed, args.life, number).take(args.steps).enumerate()
    {
        if let Err(why) = patiently(&args.mountpoint, &step) {
            tell(&Told::Failed(format!("client {number}, step {count}: {step:?}: {why}")));
            return;
        }
        tell(&Told::Done(number, count));
    }
}

/// A directory may still hold a file that was just removed: the daemon hides those until they are
/// closed, and the kernel does not wait for that.
fn patiently(root: &Path, step: &super::work::Step) -> std::io::Result<()> {
    for _ in 0..500 {
        match step.run(root) {
            Err(why) if why.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
    step.run(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back() {
        let (built, killed) = (Told::Built(3), Told::Killed(2));
        let failed = Told::Failed("a b".to_owned());
        for told in [Told::Mounted, Told::Done(1, 20), built, killed, Told::Ended, failed] {
            assert_eq!(Told::parse(&told.line()), Some(told));
        }
        assert_eq!(Told::parse("[ 1.0] noise power: done 0 7\r\n"), Some(Told::Done(0, 7)));
        assert_eq!(Told::parse("power: done 0"), None);
        assert_eq!(Told::parse("fuse2fs: hello"), None);
    }
}
