//! Which policy each daemon of the table needs, as `belay qualify` finds it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use belay_fixtures::scene::Scene;
use belay_fixtures::zoo::Work;
use belay_fixtures::{Belay, Kind, image_tools};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::results;
use crate::interrupt;

/// Arguments of `certify`.
#[derive(Clone, Debug, clap::Args)]
pub struct CertifyArgs {
    /// These daemons only, separated by commas [default: all on which can be written, those of the
    /// other tests too]
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Operations to try [default: all]
    #[arg(long, value_delimiter = ',')]
    ops: Vec<String>,
    /// What the daemons die of
    #[arg(long, value_delimiter = ',', default_value = "KILL")]
    signals: Vec<String>,
    /// Keep the results in this file, as JSON; what is known of other daemons stays in it
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where the profiles are written, each as NAME.toml
    #[arg(long)]
    profiles: PathBuf,
}

/// What `belay qualify` says of a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// The policy; `None` if it is certified for none.
    pub policy: Option<String>,
    /// That in words.
    pub verdict: String,
    /// How many experiments were made.
    pub experiments: u64,
    /// When it was begun.
    pub date: String,
}

/// By daemon.
pub type Certificates = BTreeMap<String, Certificate>;

/// Qualifies them one after the other; true if there is a word on each of them.
pub fn run(args: &CertifyArgs) -> Result<bool> {
    let interrupted = interrupt::flag()?;
    std::fs::create_dir_all(&args.profiles)
        .with_context(|| format!("making {}", args.profiles.display()))?;
    let wanted = |kind: &Kind| match kind.entry() {
        _ if !args.only.is_empty() => args.only.contains(kind),
        Some(daemon) => daemon.work != Work::Read && daemon.limit.is_empty(),
        None => *kind != Kind::Dir,
    };
    let mut good = true;
    for kind in Kind::zoo().chain(Kind::all()).filter(wanted) {
        if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(false);
        }
        let name = kind.name();
        match qualify(kind, args) {
            Ok(certificate) => {
                println!("{name:<15} {}", certificate.verdict);
                if let Some(path) = &args.json {
                    let mut all: Certificates = results::read(path)?;
                    all.insert(name.to_owned(), certificate);
                    results::write(path, &all)?;
                }
            }
            Err(why) => {
                good = false;
                println!("{name:<15} failed: {why:#}");
            }
        }
    }
    Ok(good)
}

fn qualify(kind: Kind, args: &CertifyArgs) -> Result<Certificate> {
    let name = kind.name();
    let scene = Scene::prepare(kind)?;
    let found = tempfile::NamedTempFile::new().context("making a file for the results")?;
    let mut command = Command::new(Belay::find()?.command().get_program());
    command.arg("qualify").arg("--json").arg(found.path());
    command.arg("--profile").arg(args.profiles.join(format!("{name}.toml"))).arg("--force");
    command.arg("--signals").arg(args.signals.join(","));
    if !args.ops.is_empty() {
        command.arg("--ops").arg(args.ops.join(","));
    }
    command.arg("--mountpoint").arg(scene.mountpoint());
    if kind.mirrors_root() {
        let below = scene.backing();
        command.arg("--dir").arg(below.strip_prefix("/").unwrap_or(Path::new(".")));
    }
    if kind.backed_by_directory() {
        // What `--dir` names is looked for below it.
        let behind = if kind.mirrors_root() { "/".into() } else { scene.backing() };
        command.arg("--behind").arg(behind);
    }
    if let Some(line) = image_tools::check_line(kind) {
        command.arg("--check").arg(line);
    }
    if let Some(daemon) = kind.entry() {
        command.args(&daemon.qualify);
    }
    // One that is used was made for this.
    command.arg("--use-device");
    command.arg("--").args(scene.command()?).envs(scene.environment());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Its exit status says only whether the daemon was certified, which the results say too.
    let output = command.output().context("starting belay qualify")?;
    // Which also takes away what was made for it, such as a loop device. What policies that are not
    // enough have done to a store of which there is one only is not what is asked here.
    if let Err(damage) = scene.check() {
        println!("{name:<15} after all tries: {damage:#}");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("nothing");
    let text = std::fs::read(found.path()).context("reading the results")?;
    let found: Value = serde_json::from_slice(&text)
        .with_context(|| format!("belay qualify gave no results; it said: {last}"))?;
    let word = |name: &str| found[name].as_str().map(str::to_owned);
    Ok(Certificate {
        policy: word("certified"),
        verdict: word("verdict").context("the results have no verdict")?,
        experiments: found["experiments"].as_array().map_or(0, |all| all.len() as u64),
        date: word("date").context("the results have no date")?,
    })
}
