//! What people do with a file system.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use belay_fixtures::process::run_ok;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use crate::exec::{bytes, hex};
use belay_study::tree::Tree;

const LIMIT: Duration = Duration::from_secs(900);

/// Writes the file to be sorted and the tree to be packed.
pub fn prepare(root: &Path, size_mb: u64, seed: u64) -> Result<()> {
    std::fs::create_dir(root.join("tmp")).context("creating tmp")?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let input = File::create(root.join("input")).context("creating the input")?;
    let mut input = BufWriter::with_capacity(1 << 17, input);
    let mut written = 0;
    while written < size_mb * 1_000_000 {
        let line =
            format!("{:032x} {:032x} {written}\n", rng.random::<u128>(), rng.random::<u128>());
        input.write_all(line.as_bytes()).context("writing the input")?;
        written += line.len() as u64;
    }
    input.into_inner().context("writing the input")?.sync_all().context("syncing the input")?;
    let tree = root.join("tree");
    std::fs::create_dir(&tree).context("creating the tree")?;
    for dir in 0..10 {
        let dir = tree.join(format!("dir{dir}"));
        std::fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        for file in 0..20 {
            let path = dir.join(format!("file{file}"));
            let mut write = || -> std::io::Result<()> {
                std::fs::write(&path, bytes(rng.random(), rng.random_range(0..40_000)))?;
                std::fs::set_permissions(
                    &path,
                    PermissionsExt::from_mode(if file % 3 == 0 { 0o755 } else { 0o640 }),
                )
            };
            write().with_context(|| format!("writing {}", path.display()))?;
        }
        // No symbolic links: bare sshfs cannot set a link's times, so tar complains there too.
    }
    Ok(())
}

/// Sorts the input, with temporary files on the same file system, and says what came out.
pub fn sort(root: &Path) -> Result<String> {
    let output = root.join("output");
    let mut command = Command::new("sort");
    command
        .env("LC_ALL", "C")
        .args(["-S", "16M", "-T"])
        .arg(root.join("tmp"))
        .arg("-o")
        .arg(&output);
    command.arg(root.join("input"));
    run_ok(command, LIMIT)?;
    let result = digest(&output)?;
    std::fs::remove_file(&output).context("removing the sorted file")?;
    Ok(result)
}

/// Packs the tree, unpacks it elsewhere, and says what is there then.
pub fn tar(root: &Path) -> Result<Tree> {
    let archive = root.join("archive.tar");
    let copy = root.join("copy");
    std::fs::create_dir(&copy).context("creating the copy's directory")?;
    let mut pack = Command::new("tar");
    pack.arg("-C").arg(root).arg("-cf").arg(&archive).arg("tree");
    run_ok(pack, LIMIT)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-C").arg(&copy).arg("-xf").arg(&archive);
    run_ok(unpack, LIMIT)?;
    let tree = Tree::read(&copy, false).context("reading the copy")?;
    std::fs::remove_dir_all(&copy).context("removing the copy")?;
    std::fs::remove_file(&archive).context("removing the archive")?;
    Ok(tree)
}

fn line(number: u64) -> String {
    format!("line {number} of a file that stays open\n")
}

/// Appends lines to one open file until told to stop, and counts them.
pub fn append(path: &Path, lines: &AtomicU64, done: &AtomicBool) -> Result<()> {
    let mut file =
        File::options().create(true).append(true).open(path).context("opening the log")?;
    while !done.load(Ordering::Relaxed) {
        let number = lines.load(Ordering::Relaxed);
        file.write_all(line(number).as_bytes())
            .with_context(|| format!("appending line {number}"))?;
        lines.fetch_add(1, Ordering::Relaxed);
        // The pace of a log file.
        std::thread::sleep(Duration::from_millis(2));
    }
    file.sync_all().context("syncing the log")
}

/// Whether a file consists of exactly so many lines.
pub fn appended(path: &Path, lines: u64) -> Result<bool> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text == (0..lines).map(line).collect::<String>())
}

fn digest(path: &Path) -> Result<String> {
    let mut digest = Sha256::new();
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    std::io::copy(&mut file, &mut digest).with_context(|| format!("reading {}", path.display()))?;
    Ok(hex(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_comes_out_the_same() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&one, &other] {
            prepare(dir.path(), 1, 3).unwrap();
        }
        assert_eq!(sort(one.path()).unwrap(), sort(other.path()).unwrap());
        let tree = tar(one.path()).unwrap();
        assert_eq!(tree.0.len(), 1 + 10 + 10 * 20);
        assert!(tree == tar(other.path()).unwrap());
        let lines = AtomicU64::new(0);
        append(&one.path().join("log"), &lines, &AtomicBool::new(true)).unwrap();
        assert!(appended(&one.path().join("log"), 0).unwrap());
        assert!(!appended(&one.path().join("log"), 1).unwrap());
    }
}
