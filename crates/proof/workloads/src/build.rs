//! A build of a C program: its sources copied into the mount, unpacked, configured and made there.
//!
//! Every file below the unpacked tree is compared, by length and hash, those excepted that two
//! undisturbed builds have otherwise: see [`incomparable`]. Modes are compared as well. The path of
//! the mount is another each time; where a file of text holds it, it is replaced before the file is
//! hashed.

mod generated;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use walkdir::WalkDir;

use crate::outcome::{Outcome, forget_pages, hash};
use crate::program::{self, Watch};

/// Where `scripts/setup-study` leaves OpenSSH's sources, below the directory of the fixtures's
/// other things.
pub const OPENSSH: &str = "openssh.tar.gz";

/// A date for what asks for one while it is built.
const SOURCE_DATE_EPOCH: &str = "1700000000";

/// Sources to be built: an archive with one directory in it, which has a `configure`.
#[derive(Debug)]
pub struct Source {
    archive: PathBuf,
    name: String,
    /// What the build must bring about at least.
    programs: Vec<String>,
    /// Targets of its own of `make`, each of which is long.
    parts: Vec<String>,
    /// Commands that must succeed, by which it is seen whether they run; `SCRATCH` is a directory
    /// outside of the mount.
    trials: Vec<Vec<String>>,
    /// Holds the archive, if it was made here.
    _dir: Option<TempDir>,
}

impl Source {
    /// OpenSSH, as `scripts/setup-study` got it.
    ///
    /// # Errors
    /// When it is not there.
    pub fn openssh() -> Result<Self> {
        let archive = belay_fixtures::cache_dir()?.join(OPENSSH);
        ensure!(
            archive.is_file(),
            "{} is missing: run scripts/setup-study, which gets OpenSSH's sources",
            archive.display()
        );
        Ok(Self {
            archive,
            name: "OpenSSH".to_owned(),
            programs: ["ssh", "sshd", "ssh-keygen", "scp", "sftp"].map(str::to_owned).to_vec(),
            parts: vec!["openbsd-compat/libopenbsd-compat.a".to_owned()],
            trials: vec![
                command("ssh -V"),
                command("ssh-keygen -q -t ed25519 -P secret -N secret -f SCRATCH/key"),
                command("ssh-keygen -l -f SCRATCH/key.pub"),
            ],
            _dir: None,
        })
    }

    /// A small program of so many modules, for tests.
    ///
    /// # Errors
    /// When it cannot be packed.
    pub fn generated(modules: usize) -> Result<Self> {
        let (dir, archive) = generated::pack(modules)?;
        let name = format!("a generated program of {modules} modules");
        let (programs, trials) = (vec!["program".to_owned()], vec![command("program")]);
        Ok(Self { archive, name, programs, parts: vec![], trials, _dir: Some(dir) })
    }

    /// What is in this archive, for who does stages of a build that somebody else judges.
    #[must_use]
    pub fn in_archive(archive: &Path) -> Self {
        let name = archive.display().to_string();
        let (programs, parts, trials) = (vec![], vec![], vec![]);
        Self { archive: archive.to_owned(), name, programs, parts, trials, _dir: None }
    }

    /// Where the archive is.
    #[must_use]
    pub fn archive(&self) -> &Path {
        &self.archive
    }

    /// Targets of its own of `make`, each of which is long.
    #[must_use]
    pub fn parts(&self) -> &[String] {
        &self.parts
    }
}

/// A part of a build that can be done again from its beginning, if nothing is there of what it
/// makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The archive is copied into the mount.
    Copy,
    /// It is unpacked there.
    Unpack,
    /// `configure`.
    Configure,
    /// These targets are made, or all if there are none.
    Make(Vec<String>),
}

impl Stage {
    /// What it is called, and its log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Copy => "cp",
            Self::Unpack => "tar",
            Self::Configure => "configure",
            Self::Make(_) => "make",
        }
    }
}

/// A build.
#[derive(Debug)]
pub struct Build {
    source: Source,
    jobs: u8,
}

impl Build {
    /// Builds these sources with so many jobs at once.
    #[must_use]
    pub fn new(source: Source, jobs: u8) -> Self {
        Self { source, jobs }
    }

    /// What is built, for a report.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}, make -j{}", self.source.name, self.jobs)
    }

    /// Makes its directory.
    ///
    /// # Errors
    /// When the mount does not let it.
    pub fn setup(&self, root: &Path) -> Result<()> {
        let dir = dir(root);
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))
    }

    /// Copies, unpacks, configures and makes. `scratch` is a directory outside of the mount, for
    /// logs.
    ///
    /// # Errors
    /// When one of these fails.
    pub fn work(&self, root: &Path, scratch: &Path, watch: &Watch<'_>) -> Result<()> {
        let stages = [Stage::Copy, Stage::Unpack, Stage::Configure, Stage::Make(vec![])];
        stages.iter().try_for_each(|stage| self.stage(stage, root, scratch, watch))
    }

    /// Does one of these.
    ///
    /// # Errors
    /// When it fails.
    pub fn stage(
        &self,
        stage: &Stage,
        root: &Path,
        scratch: &Path,
        watch: &Watch<'_>,
    ) -> Result<()> {
        let dir = dir(root);
        let archive = dir.join("source.tar.gz");
        let mut command = match stage {
            Stage::Copy => {
                let mut copy = Command::new("cp");
                copy.arg(&self.source.archive).arg(&archive);
                copy
            }
            Stage::Unpack => {
                let mut unpack = Command::new("tar");
                unpack.arg("-C").arg(&dir).args(["--no-same-owner", "-xzf"]).arg(&archive);
                unpack
            }
            Stage::Configure => {
                let mut configure = Command::new("./configure");
                // Without debug information, which holds the mount's path.
                configure.args(["--quiet", "--prefix=/usr/local", "CFLAGS=-O1"]);
                in_tree(configure, &dir)?
            }
            Stage::Make(targets) => {
                let mut make = Command::new("make");
                make.arg(format!("-j{}", self.jobs)).args(targets);
                in_tree(make, &dir)?
            }
        };
        command.env("LC_ALL", "C");
        program::run(command, &scratch.join(stage.name()), watch).map(drop)
    }

    /// What is there after a build.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look(&self, root: &Path) -> Result<Outcome> {
        facts(&tree(&dir(root))?)
    }

    /// What is there at any time, with what was copied: nothing, if nothing was begun.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look_at_all(&self, root: &Path) -> Result<Outcome> {
        match dir(root) {
            dir if dir.exists() => facts(&dir),
            _ => Ok(Outcome::default()),
        }
    }

    /// Where what is told of such a look is.
    #[must_use]
    pub fn place(root: &Path, name: &str) -> PathBuf {
        dir(root).join(name)
    }

    /// An error if the programs are not there.
    ///
    /// # Errors
    /// See above.
    pub fn verify(&self, outcome: &Outcome) -> Result<()> {
        for program in &self.source.programs {
            let fact = outcome.get(&format!("build: {program}"));
            ensure!(fact.is_some_and(|fact| fact.starts_with("100755")), "there is no {program}");
        }
        Ok(())
    }

    /// Runs what was built.
    ///
    /// # Errors
    /// When it does not run.
    pub fn prove(&self, root: &Path, watch: &Watch<'_>) -> Result<()> {
        let tree = tree(&dir(root))?;
        let scratch = tempfile::tempdir().context("making a directory for keys")?;
        for trial in &self.source.trials {
            let Some((program, arguments)) = trial.split_first() else { continue };
            let mut command = Command::new(tree.join(program));
            let place = scratch.path().display().to_string();
            command.args(arguments.iter().map(|word| word.replace("SCRATCH", &place)));
            program::run(command, &scratch.path().join("log"), watch)
                .context("running what was built")?;
        }
        Ok(())
    }

    /// Removes everything, so that it can be built again.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn again(&self, root: &Path) -> Result<()> {
        let dir = dir(root);
        std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        self.setup(root)
    }
}

/// As it is run in the unpacked tree.
fn in_tree(mut command: Command, dir: &Path) -> Result<Command> {
    command.current_dir(tree(dir)?).env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH);
    // Of a make that this program may have been started by.
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// What each file below a directory is like.
fn facts(base: &Path) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for entry in WalkDir::new(base).min_depth(1).sort_by_file_name() {
        let entry = entry.with_context(|| format!("walking {}", base.display()))?;
        let path = entry.path();
        let name = path.strip_prefix(base).unwrap_or(path).to_string_lossy().into_owned();
        let what = if entry.file_type().is_dir() {
            "directory".to_owned()
        } else if entry.file_type().is_symlink() {
            let target = std::fs::read_link(path);
            format!("link to {}", target.with_context(|| format!("reading {name}"))?.display())
        } else if incomparable(&name) {
            "file".to_owned()
        } else {
            content(path, base)?
        };
        let mode = entry.metadata().with_context(|| format!("looking at {name}"))?;
        outcome.add(format!("build: {name}"), format!("{:o} {what}", mode.permissions().mode()));
    }
    Ok(outcome)
}

fn command(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Files whose content is another in each of two undisturbed builds. That they are there, and their
/// modes, is compared.
///
/// `config.log` has the time, the process ids in the names of temporary files, and the directories
/// of the compiler's temporary files. Nothing else was found to differ.
fn incomparable(name: &str) -> bool {
    name.rsplit('/').next() == Some("config.log")
}

/// Fingerprint of a file, wherever the tree or what holds it is, as the daemon gives it.
fn content(path: &Path, tree: &Path) -> Result<String> {
    let told = || format!("reading {}", path.display());
    let mut file = File::open(path).with_context(told)?;
    forget_pages(&file).with_context(told)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(told)?;
    let said = file.metadata().with_context(told)?.len();
    ensure!(
        bytes.len() as u64 == said,
        "{} has {said} bytes and gave {}",
        path.display(),
        bytes.len()
    );
    if let (Ok(text), Some(here)) = (std::str::from_utf8(&bytes), tree.to_str())
        && text.contains(here)
    {
        bytes = text.replace(here, "TREE").into_bytes();
    }
    Ok(format!("{} bytes {}", bytes.len(), hash(&bytes)))
}

fn dir(root: &Path) -> PathBuf {
    root.join("build")
}

/// The one directory that was unpacked.
fn tree(dir: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))?;
    let mut found = None;
    for entry in entries {
        let entry = entry.with_context(|| format!("listing {}", dir.display()))?;
        if entry.file_type().with_context(|| format!("listing {}", dir.display()))?.is_dir() {
            ensure!(found.is_none(), "the archive holds more than one directory");
            found = Some(entry.path());
        }
    }
    found.with_context(|| format!("no directory was unpacked in {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn built_in(root: &Path) -> Outcome {
        let build = Build::new(Source::generated(3).unwrap(), 2);
        build.setup(root).unwrap();
        let logs = tempfile::tempdir().unwrap();
        build.work(root, logs.path(), &Watch::limit(Duration::from_secs(120))).unwrap();
        let outcome = build.look(root).unwrap();
        build.verify(&outcome).unwrap();
        build.prove(root, &Watch::limit(Duration::from_secs(60))).unwrap();
        outcome
    }

    #[test]
    fn builds_at_different_places_are_equal_and_a_corrupt_one_is_not() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let outcome = built_in(one.path());
        assert_eq!(outcome.differences(&built_in(other.path())), [] as [String; 0]);
        // In the object of one module, one byte.
        let object = other.path().join("build/program-1.0/module1.o");
        let mut bytes = std::fs::read(&object).unwrap();
        bytes[70] ^= 0x10;
        std::fs::write(&object, bytes).unwrap();
        let build = Build::new(Source::generated(3).unwrap(), 1);
        let found = outcome.differences(&build.look(other.path()).unwrap());
        assert!(found.len() == 1 && found[0].contains("module1.o"), "{found:?}");
        std::fs::remove_file(other.path().join("build/program-1.0/program")).unwrap();
        assert!(build.verify(&build.look(other.path()).unwrap()).is_err());
    }
}
