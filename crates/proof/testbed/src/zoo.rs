//! Daemons that are described by a table, `zoo/zoo.toml`, not by code: what each needs, and how it is started.
//!
//! A new daemon is a new entry. Words in commands, scripts and environments may contain `$BACK` (the folder or file behind the mount),
//! `$MNT` (the mountpoint), `$DIR` (a folder of the fixture's own), `$SAMPLE` (a tree of files to be shown), `$ZOO` (where
//! `scripts/setup-zoo` has put what no Debian package brings), `$SCRIPTS` (the folder `zoo/`), `$BUILT` (where this
//! workspace's programs are), `$PORT` (a free port of the loopback address) and `$OTHERS` (`allow_other` for root; an ordinary user may not say so everywhere; `$PUBLIC` is loggedfs's word for it).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::belay::Belay;
use crate::process::{Process, run_ok};

const TABLE: &str = include_str!("../zoo/zoo.toml");
/// How long a preparation, or the start of a server, may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What a soak may do on a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Everything that a file system is for.
    All,
    /// What works on whole files that nobody has open.
    WholeFiles,
    /// Nothing but reading.
    Read,
}

/// One daemon of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Daemon {
    /// Its name, on the command line and in reports.
    pub name: String,
    /// Where it comes from: a Debian package, PyPI, npm, crates.io, or a script of this repository.
    pub from: String,
    /// What it talks to the kernel by.
    pub library: String,
    /// What it is written in.
    pub language: String,
    /// What it is for: mirror, overlay, encryption, archive, image, object store, network, other.
    pub family: String,
    /// Run by `sh -eu` before the start.
    #[serde(default)]
    pub prepare: String,
    /// A server that it needs, started before it and ended after it.
    #[serde(default)]
    pub server: Vec<String>,
    /// Run by `sh` again and again until it succeeds: then the server serves.
    #[serde(default)]
    pub ready: String,
    /// Its command line, program first, in the foreground.
    pub command: Vec<String>,
    /// Variables of its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Further arguments for `belay run`.
    #[serde(default)]
    pub belay: Vec<String>,
    /// Further arguments for `belay qualify`.
    #[serde(default)]
    pub qualify: Vec<String>,
    /// What may be done on its mount.
    pub work: Work,
    /// Its exit status at an ordinary end, bare.
    #[serde(default)]
    pub end_status: i32,
    /// Run by `sh -eu` after the end: succeeds if what is behind the mount is sound.
    #[serde(default)]
    pub check: String,
    /// What is behind the mount can be read there as on the mount.
    #[serde(default)]
    pub mirrors_backing: bool,
    /// The mount shows `/`, so tests work below the folder behind it.
    #[serde(default)]
    pub mirrors_root: bool,
    /// All hard links of a file are one inode for the kernel.
    #[serde(default)]
    pub shares_hard_links: bool,
    /// It gives inode numbers of its own, which last.
    #[serde(default)]
    pub own_numbers: bool,
    /// It does not know of space behind the end of a file, or of modes of renames and allocations.
    #[serde(default)]
    pub plain_modes_only: bool,
    /// What it answers to extended attributes is not what happened: it calls libattr's functions of old, which give no
    /// errno.
    #[serde(default)]
    pub no_xattrs: bool,
    /// Names at the top of its mount that are the daemon's own books, which tests leave alone and do not compare.
    #[serde(default)]
    pub own_names: Vec<String>,
    /// A time that is set is not the one that is shown, or not after a kill.
    #[serde(default)]
    pub loose_times: bool,
    /// It does not store the modes of all directories, bare, and belay has it store while the mount is used.
    #[serde(default)]
    pub loose_directory_modes: bool,
    /// Only root can mount it here.
    #[serde(default)]
    pub root_only: bool,
    /// What it cannot do under belay, as belay itself reports it: then it is no bed for a soak.
    #[serde(default)]
    pub limit: String,
    /// What does go wrong with it at times, as belay itself reports it then.
    #[serde(default)]
    pub caution: String,
}

/// A daemon that was tried, and has no entry of its own.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub from: String,
    /// What keeps it out.
    pub why: String,
}

/// Where `belay` is, and what else was built with it.
fn built() -> Result<PathBuf> {
    let program = PathBuf::from(Belay::find()?.command().get_program());
    Ok(program.parent().context("belay is in no folder")?.to_owned())
}

/// A daemon of the table, by its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zoo(u8);

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Table {
    daemon: Vec<Daemon>,
    left_out: Vec<LeftOut>,
}

fn parsed() -> &'static Table {
    static PARSED: OnceLock<Table> = OnceLock::new();
    PARSED.get_or_init(|| toml::from_str(TABLE).expect("zoo.toml is checked by a test"))
}

fn table() -> &'static [Daemon] {
    &parsed().daemon
}

/// The daemons that were tried and left out.
#[must_use]
pub fn left_out() -> &'static [LeftOut] {
    &parsed().left_out
}

impl Zoo {
    /// All daemons of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..u8::try_from(table().len()).unwrap_or(u8::MAX)).map(Self)
    }

    /// What the table says of it.
    #[must_use]
    pub fn daemon(self) -> &'static Daemon {
        &table()[usize::from(self.0)]
    }
}

/// The folder in which `scripts/setup-zoo` puts what no Debian package brings: `$BELAY_ZOO`, else `zoo` in the folder for
/// what is downloaded and built for tests.
pub fn folder() -> PathBuf {
    std::env::var_os("BELAY_ZOO")
        .map_or_else(|| PathBuf::from("/var/cache/belay-zoo"), PathBuf::from)
}

/// A fixture's places, and the server behind it.
#[derive(Debug)]
pub(crate) struct Place {
    daemon: &'static Daemon,
    words: Vec<(&'static str, String)>,
    server: Option<Process>,
}

impl Place {
    /// Prepares what is behind the mount, and starts the server.
    pub(crate) fn prepare(zoo: Zoo, dir: &Path, backing: &Path, mountpoint: &Path) -> Result<Self> {
        let daemon = zoo.daemon();
        let sample = dir.join("sample");
        make_sample(&sample).context("making the sample tree")?;
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .context("finding a free port")?
            .port();
        let text = |path: &Path| path.display().to_string();
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo");
        let words = vec![
            ("$BACK", text(backing)),
            ("$MNT", text(mountpoint)),
            ("$DIR", text(dir)),
            ("$SAMPLE", text(&sample)),
            ("$ZOO", text(&folder())),
            ("$SCRIPTS", text(&scripts)),
            ("$BUILT", text(&built()?)),
            ("$PORT", port.to_string()),
            ("$PUBLIC", if geteuid().is_root() { "-p" } else { "-f" }.to_owned()),
            ("$OTHERS", if geteuid().is_root() { "allow_other" } else { "rw" }.to_owned()),
        ];
        let mut place = Self { daemon, words, server: None };
        place.shell(&daemon.prepare).context("preparing what is behind it")?;
        if !daemon.server.is_empty() {
            let words = place.fill(&daemon.server);
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).current_dir(dir);
            let mut server = Process::start(command, &dir.join("server.log"))?;
            let deadline = Instant::now() + LIMIT;
            while let Err(why) = place.shell(&daemon.ready) {
                server.must_run().context("the server")?;
                if Instant::now() > deadline {
                    bail!("the server does not serve: {why:#}{}", server.tail());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            place.server = Some(server);
        }
        Ok(place)
    }

    fn fill(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill_one(word)).collect()
    }

    fn fill_one(&self, word: &str) -> String {
        self.words.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value))
    }

    fn shell(&self, script: &str) -> Result<()> {
        if script.is_empty() {
            return Ok(());
        }
        let mut command = Command::new("sh");
        command.args(["-eu", "-c", script]);
        for (name, value) in &self.words {
            command.env(name.trim_start_matches('$'), value);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
        run_ok(command, LIMIT).map(drop)
    }

    /// The daemon's command line.
    pub(crate) fn command(&self, extra: &[String]) -> Vec<OsString> {
        let words = self.fill(&self.daemon.command);
        words.into_iter().chain(extra.iter().cloned()).map(OsString::from).collect()
    }

    /// The daemon's environment, beyond what it inherits.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&String, String)> {
        self.daemon.environment.iter().map(|(name, value)| (name, self.fill_one(value)))
    }

    /// Checks what is behind the mount after its end.
    pub(crate) fn check(&self) -> Result<()> {
        self.shell(&self.daemon.check).context("checking what is behind the mount")
    }
}

/// A small tree of files, folders and links, the same each time.
fn make_sample(sample: &Path) -> Result<()> {
    let content = |number: usize| -> Vec<u8> {
        (0..number * 7919).map(|at| (at * number + at / 251) as u8).collect()
    };
    for dir in ["d0", "d1", "d2/d0"] {
        fs::create_dir_all(sample.join(dir))?;
    }
    for (number, name) in
        ["f0", "f1", "f2", "d0/f0", "d0/f1", "d2/f3", "d2/d0/f2"].iter().enumerate()
    {
        fs::write(sample.join(name), content(number * number))?;
    }
    for number in 0..150 {
        fs::write(sample.join(format!("d1/f{number}")), number.to_string())?;
    }
    symlink("f1", sample.join("s0"))?;
    symlink("d2/f3", sample.join("s1"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_sound() {
        let names: BTreeSet<&str> = Zoo::all().map(|zoo| zoo.daemon().name.as_str()).collect();
        assert_eq!(names.len(), Zoo::all().count(), "each name once");
        for zoo in Zoo::all() {
            let daemon = zoo.daemon();
            assert!(daemon.command.iter().any(|word| word.contains("$MNT")), "{}", daemon.name);
            assert_eq!(daemon.server.is_empty(), daemon.ready.is_empty(), "{}", daemon.name);
        }
        for left in left_out() {
            assert!(!names.contains(left.name.as_str()), "{} is in the table", left.name);
        }
    }

    #[test]
    fn samples_are_equal() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        make_sample(&a).unwrap();
        make_sample(&b).unwrap();
        assert_eq!(fs::read(a.join("d2/d0/f2")).unwrap(), fs::read(b.join("d2/d0/f2")).unwrap());
        assert_eq!(fs::read_dir(a.join("d1")).unwrap().count(), 150);
    }
}
