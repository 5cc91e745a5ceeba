//! A build of a C program: its sources copied into the mount, unpacked, configured and made there.
//!
//! Every file below the unpacked tree is compared, by length and hash, those excepted that two
//! undisturbed builds have otherwise: see [`incomparable`]. Modes are compared as well. The path of
//! the mount is another each time; where a file of text holds it, it is replaced before the file is
//! hashed.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use belay_fixtures::process::run_ok;
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
        let dir = tempfile::tempdir().context("making a directory for sources")?;
        let tree = dir.path().join("program-1.0");
        std::fs::create_dir(&tree).context("creating the sources' directory")?;
        let mut files: Vec<(String, String)> = vec![
            ("configure".into(), CONFIGURE.into()),
            ("Makefile.in".into(), makefile(modules)),
            ("main.c".into(), main_c(modules)),
        ];
        files.extend((0..modules).map(|n| {
            let text = format!(
                "#include \"config.h\"\nint module{n}(int x)\n{{\n\treturn x * {n} + FACTOR;\n}}\n"
            );
            (format!("module{n}.c"), text)
        }));
        for (name, text) in files {
            let path = tree.join(&name);
            std::fs::write(&path, text)
                .and_then(|()| {
                    let mode = if name == "configure" { 0o755 } else { 0o644 };
                    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))
                })
                .with_context(|| format!("writing {}", path.display()))?;
        }
        let archive = dir.path().join("program.tar.gz");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(dir.path()).args(["--owner=0", "--group=0", "-czf"]).arg(&archive);
        tar.arg("program-1.0");
        run_ok(tar, std::time::Duration::from_secs(60)).context("packing the sources")?;
        let name = format!("a generated program of {modules} modules");
        let (programs, trials) = (vec!["program".to_owned()], vec![command("program")]);
        Ok(Self { archive, name, programs, trials, _dir: Some(dir) })
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
        let dir = dir(root);
        let archive = dir.join("source.tar.gz");
        let mut copy = Command::new("cp");
        copy.arg(&self.source.archive).arg(&archive);
        let mut unpack = Command::new("tar");
        unpack.arg("-C").arg(&dir).args(["--no-same-owner", "-xzf"]).arg(&archive);
        for (step, command) in [("cp", copy), ("tar", unpack)] {
            program::run(command, &scratch.join(step), watch)?;
        }
        let tree = tree(&dir)?;
        let mut configure = Command::new("./configure");
        // Without debug information, which holds the mount's path.
        configure.args(["--quiet", "--prefix=/usr/local", "CFLAGS=-O1"]);
        let mut make = Command::new("make");
        make.arg(format!("-j{}", self.jobs));
        for (step, mut command) in [("configure", configure), ("make", make)] {
            command.current_dir(&tree).env("LC_ALL", "C");
            command.env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH);
            // Of a make that this program may have been started by.
            for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
                command.env_remove(name);
            }
            program::run(command, &scratch.join(step), watch)?;
        }
        Ok(())
    }

    /// What is there after a build.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look(&self, root: &Path) -> Result<Outcome> {
        let dir = dir(root);
        let tree = tree(&dir)?;
        let mut outcome = Outcome::default();
        for entry in WalkDir::new(&tree).min_depth(1).sort_by_file_name() {
            let entry = entry.with_context(|| format!("walking {}", tree.display()))?;
            let path = entry.path();
            let name = path.strip_prefix(&tree).unwrap_or(path).to_string_lossy().into_owned();
            let what = if entry.file_type().is_dir() {
                "directory".to_owned()
            } else if entry.file_type().is_symlink() {
                let target = std::fs::read_link(path);
                format!("link to {}", target.with_context(|| format!("reading {name}"))?.display())
            } else if incomparable(&name) {
                "file".to_owned()
            } else {
                content(path, &tree)?
            };
            let mode = entry.metadata().with_context(|| format!("looking at {name}"))?;
            outcome
                .add(format!("build: {name}"), format!("{:o} {what}", mode.permissions().mode()));
        }
        Ok(outcome)
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

fn command(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Files whose content is another in each of two undisturbed builds. That they are there, and their
/// modes, is compared.
///
/// `config.log` has the time, the process ids in the names of temporary files, and the directories
/// of the compiler's temporary files. Nothing else was found to differ.
fn incomparable(name: &str) -> bool {
    name == "config.log"
}

/// Fingerprint of a file, wherever the tree is, as the daemon gives it.
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

/// Does, in little, what such scripts do: tries the compiler, writes and removes files, fills in a
/// template.
const CONFIGURE: &str = r#"#!/bin/sh
set -e
for i in 1 2 3 4 5 6 7 8; do
    echo "int main(void) { return sizeof(char[$i]) - $i; }" > conftest.c
    ${CC-cc} -o conftest conftest.c
    ./conftest
    echo "test $i in $$: passed" >> config.log
    rm -f conftest conftest.c
done
echo '#define FACTOR 42' > conftest.h
mv conftest.h config.h
sed "s|@DIR@|$(pwd)|" Makefile.in > Makefile.tmp
mv Makefile.tmp Makefile
"#;

fn makefile(modules: usize) -> String {
    let objects: Vec<_> = (0..modules).map(|n| format!("module{n}.o")).collect();
    format!(
        "CC = cc\nDIR = @DIR@\nOBJECTS = {}\nprogram: main.o libmodules.a\n\t$(CC) -o $@ main.o libmodules.a\n\
         libmodules.a: $(OBJECTS)\n\trm -f $@\n\tar rcD $@ $(OBJECTS)\n%.o: %.c config.h\n\t$(CC) -O1 -c -o $@ $<\n",
        objects.join(" ")
    )
}

fn main_c(modules: usize) -> String {
    let declarations: String = (0..modules).map(|n| format!("int module{n}(int);\n")).collect();
    let calls: Vec<_> = (0..modules).map(|n| format!("module{n}({n})")).collect();
    format!("{declarations}int main(void)\n{{\n\treturn ({}) == 0;\n}}\n", calls.join(" + "))
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
