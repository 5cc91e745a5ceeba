//! PostMark with verification (namespace transactions, V-B): it writes known patterns, looks at the
//! result of each call, and compares what it reads with what it wrote.
//!
//! The program itself does neither, so its work is done here as it does it: a pool of files;
//! transactions, each of which reads or appends to a file and then creates or removes one, with
//! equal chances; and all of them removed in the end.

use crate::outcome::Outcome;
use crate::postmark::PostMark;
use crate::program::Watch;
use anyhow::{Context, Result, bail, ensure};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::fs::{Advice, fadvise};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Files are in so many directories.
const FOLDERS: u64 = 10;
/// What is read and written at once.
const BLOCK: usize = 4096;

/// PostMark, verified.
#[derive(Debug)]
pub struct Verified {
    /// Its parameters.
    pub postmark: PostMark,
}

/// A file that should be there.
struct Known {
    number: u64,
    size: u64,
}

#[derive(Default)]
struct Counts {
    created: u64,
    removed: u64,
    read: u64,
    appended: u64,
    bytes_read: u64,
    bytes_written: u64,
}

struct Run<'a> {
    root: &'a Path,
    watch: &'a Watch<'a>,
    rng: ChaCha12Rng,
    files: Vec<Known>,
    next: u64,
    counts: Counts,
}

impl Verified {
    /// Makes its directories.
    ///
    /// # Errors
    /// When the mount does not let it.
    pub fn setup(&self, root: &Path) -> Result<()> {
        for number in 0..FOLDERS {
            let folder = folder(root, number);
            fs::create_dir_all(&folder)
                .with_context(|| format!("creating {}", folder.display()))?;
        }
        Ok(())
    }

    /// Does the work, and gives the counts.
    ///
    /// # Errors
    /// When a call fails, or what it gives is not what it should be.
    pub fn work(&self, root: &Path, watch: &Watch<'_>) -> Result<String> {
        let rng = ChaCha12Rng::seed_from_u64(u64::from(self.postmark.seed));
        let (files, counts) = (Vec::new(), Counts::default());
        let mut run = Run { root, watch, rng, files, next: 0, counts };
        for _ in 0..self.postmark.files {
            run.create(&self.postmark)?;
        }
        run.compare_names()?;
        for _ in 0..self.postmark.transactions {
            run.transaction(&self.postmark)?;
        }
        run.compare_names()?;
        while !run.files.is_empty() {
            run.remove(run.files.len() - 1)?;
        }
        run.compare_names()?;
        let Counts { created, removed, read, appended, bytes_read, bytes_written } = run.counts;
        Ok(format!(
            "{created} created\n{removed} removed\n{read} read\n{appended} appended to\n{bytes_read} bytes read\n{bytes_written} bytes written"
        ))
    }

    /// What is there after a run.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn look(&self, root: &Path, said: &str) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for (number, line) in said.lines().enumerate() {
            outcome.add(format!("postmark: line {number:02}"), line);
        }
        outcome.add("postmark: files left", names(root)?.len().to_string());
        Ok(outcome)
    }
}

impl Run<'_> {
    fn below(&mut self, end: u64) -> u64 {
        self.rng.next_u64() % end.max(1)
    }

    fn path(&self, number: u64) -> PathBuf {
        folder(self.root, number % FOLDERS).join(number.to_string())
    }

    fn transaction(&mut self, with: &PostMark) -> Result<()> {
        if !self.files.is_empty() {
            let which = self.below(self.files.len() as u64) as usize;
            match self.below(2) {
                0 => self.read(which)?,
                _ => self.append(which, with)?,
            }
        }
        match self.below(2) {
            0 if !self.files.is_empty() => {
                let which = self.below(self.files.len() as u64) as usize;
                self.remove(which)
            }
            _ => self.create(with),
        }
    }

    fn create(&mut self, with: &PostMark) -> Result<()> {
        self.watch.check()?;
        let number = self.next;
        self.next += 1;
        let size = with.smallest + self.below(with.largest - with.smallest + 1);
        let path = self.path(number);
        let file = File::create_new(&path).with_context(|| format!("creating {}", path.display()));
        self.write(&file?, number, 0..size)?;
        self.files.push(Known { number, size });
        self.counts.created += 1;
        Ok(())
    }

    fn append(&mut self, which: usize, with: &PostMark) -> Result<()> {
        self.watch.check()?;
        let Known { number, size } = self.files[which];
        let end = size + 1 + self.below(with.smallest);
        let path = self.path(number);
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.with_context(|| format!("opening {} to append", path.display()))?;
        self.write(&file, number, size..end)?;
        self.files[which].size = end;
        self.counts.appended += 1;
        Ok(())
    }

    fn write(&mut self, mut file: &File, number: u64, part: std::ops::Range<u64>) -> Result<()> {
        let path = self.path(number);
        let told = || format!("writing to {}", path.display());
        let mut at = part.start;
        while at < part.end {
            let count = (part.end - at).min(BLOCK as u64);
            file.write_all(&pattern(number, at, count as usize)).with_context(told)?;
            at += count;
        }
        let said = file.metadata().with_context(told)?.len();
        ensure!(said == part.end, "{} has {said} bytes, not {}", path.display(), part.end);
        self.counts.bytes_written += part.end - part.start;
        Ok(())
    }

    fn read(&mut self, which: usize) -> Result<()> {
        self.watch.check()?;
        let Known { number, size } = self.files[which];
        let path = self.path(number);
        let told = || format!("reading {}", path.display());
        let mut file = File::open(&path).with_context(told)?;
        // What the module has is to be seen, not what the kernel has of it, which is written
        // through.
        fadvise(&file, 0, None, Advice::DontNeed).with_context(told)?;
        let said = file.metadata().with_context(told)?.len();
        ensure!(said == size, "{} has {said} bytes, not {size}", path.display());
        let (mut at, mut block) = (0, [0; BLOCK]);
        loop {
            let count = file.read(&mut block).with_context(told)?;
            if count == 0 {
                break;
            }
            let wrong = pattern(number, at, count).iter().zip(&block).position(|(a, b)| a != b);
            if let Some(wrong) = wrong {
                bail!("{}: byte {} is not what was written", path.display(), at + wrong as u64);
            }
            at += count as u64;
        }
        ensure!(at == size, "{} gave {at} bytes, not {size}", path.display());
        self.counts.read += 1;
        self.counts.bytes_read += at;
        Ok(())
    }

    fn remove(&mut self, which: usize) -> Result<()> {
        self.watch.check()?;
        let Known { number, .. } = self.files.swap_remove(which);
        let path = self.path(number);
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        match fs::symlink_metadata(&path) {
            Err(why) if why.kind() == ErrorKind::NotFound => {}
            other => bail!("{} was removed, and then: {other:?}", path.display()),
        }
        self.counts.removed += 1;
        Ok(())
    }

    /// The files that are there are those that should be.
    fn compare_names(&self) -> Result<()> {
        let there = names(self.root)?;
        let known: BTreeSet<PathBuf> = self.files.iter().map(|one| self.path(one.number)).collect();
        if let Some(path) = there.symmetric_difference(&known).next() {
            let is = if there.contains(path) { "is there" } else { "is missing" };
            bail!("{} {is}, which it should not", path.display());
        }
        Ok(())
    }
}

/// Bytes of a file from one on: no two places of any files have the same.
fn pattern(number: u64, at: u64, count: usize) -> Vec<u8> {
    let byte = |at: u64| {
        let word = (number << 32 | at >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word ^ word >> 29).to_le_bytes()[(at & 7) as usize]
    };
    (at..at + count as u64).map(byte).collect()
}

fn folder(root: &Path, number: u64) -> PathBuf {
    root.join("postmark").join(format!("s{number}"))
}

fn names(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for number in 0..FOLDERS {
        let folder = folder(root, number);
        let told = || format!("listing {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(told)? {
            let path = entry.with_context(told)?.path();
            ensure!(found.insert(path.clone()), "{} is listed twice", path.display());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    fn small() -> Verified {
        Verified {
            postmark: PostMark {
                files: 20,
                smallest: 1,
                largest: 9000,
                transactions: 200,
                seed: 3,
            },
        }
    }

    #[test]
    fn a_plain_directory_is_right_each_time() {
        let dir = tempfile::tempdir().unwrap();
        small().setup(dir.path()).unwrap();
        let watch = Watch::limit(Duration::from_secs(60));
        let said = small().work(dir.path(), &watch).unwrap();
        assert_eq!(small().work(dir.path(), &watch).unwrap(), said);
        assert_eq!(small().look(dir.path(), &said).unwrap().get("postmark: files left"), Some("0"));
    }

    /// Somebody changes one byte of a file meanwhile.
    #[test]
    fn a_wrong_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        small().setup(dir.path()).unwrap();
        let done = AtomicBool::new(false);
        let corrupt = || {
            let all = names(dir.path()).unwrap_or_default();
            if all.len() >= 20 && !done.swap(true, Ordering::Relaxed) {
                for path in all {
                    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, 0).unwrap();
                    file.write_all_at(&[!byte[0]], 0).unwrap();
                }
            }
            false
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let why = small().work(dir.path(), &Watch { deadline, stop: &corrupt }).unwrap_err();
        assert!(why.to_string().contains("is not what was written"), "{why:#}");
    }
}
